"""Timers of clients, computed from their packets: how long a client waits before it tries something else.

No I/O here. Figures and claims use the same delays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

import polars as pl

from crosslayer import metrics
from crosslayer.vocabulary import Browser


@dataclass(frozen=True, slots=True)
class Event:
    """A packet of a load at which a timer begins or ends. The fields select it in the table `attempts`."""

    kind: str
    """Kind of the packet's attempt, as in `attempts`. `connection` stands for `quic` and `tcp` together."""
    family: int | None = None
    """IP version; None for any."""
    number: int = 0
    """Index among the attempts of this kind and family, from 0; for an end, attempts before the begin do not count."""
    column: Literal["started_ms", "answered_ms"] = "started_ms"


@dataclass(frozen=True, slots=True)
class Timer:
    """A delay between two packets of a load."""

    title: str
    client: str
    """Value of the column `browser`."""
    condition: str
    begin: Event
    end: Event


_SYN, _QUIC, _CONNECTION = Event("tcp"), Event("quic"), Event("connection")


def _answer(query_type: str) -> Event:
    return Event(query_type, column="answered_ms")


_QUIC_TCP = ("quic-tcp", "QUIC, then TCP", "first-udp-dropped", _QUIC, _SYN)
_ALT_SVC = ("alt-svc-quic-tcp", "QUIC by Alt-Svc, then TCP", "return-alt-svc-udp-dropped", _QUIC, _SYN)
_IPV6_IPV4 = (
    "ipv6-ipv4",
    "TCP over IPv6, then over IPv4",
    "first-ipv6-no-record-dropped",
    Event("tcp", 6),
    Event("tcp", 4),
)
_LATE_AAAA = (
    "late-aaaa",
    "A answer, then a connection while AAAA is late",
    "first-ipv6-no-record-late-aaaa",
    _answer("A"),
    _CONNECTION,
)
_LATE_A = (
    "late-a",
    "AAAA answer, then a connection while A is late",
    "first-ipv6-no-record-late-a",
    _answer("AAAA"),
    _CONNECTION,
)
_OF_BROWSERS = (
    _QUIC_TCP,
    ("private-quic-tcp", "QUIC to a private address, then TCP", "first-private-udp-dropped", _QUIC, _SYN),
    ("early-tcp", "QUIC with early data, then TCP", "return-udp-dropped", _QUIC, _SYN),
    _ALT_SVC,
    ("syn-syn", "SYN, then another connection", "first-both-dropped", _SYN, Event("tcp", number=1)),
    (
        "hello-syn",
        "hello with ECH without an answer, then another connection",
        "first-ech-dropped",
        _SYN,
        Event("tcp", number=1),
    ),
    _IPV6_IPV4,
    (
        "quic-ipv6-tcp-ipv4",
        "QUIC over IPv6, then TCP over IPv4",
        "first-ipv6-dropped",
        Event("quic", 6),
        Event("tcp", 4),
    ),
    _LATE_AAAA,
    _LATE_A,
    (
        "late-https",
        "A and AAAA answers, then a connection while HTTPS is late",
        "first-ipv6-late-https",
        _answer("A"),
        _CONNECTION,
    ),
)
_LOOKUP_LOOKUP = ("lookup-lookup", "lookup, then its repetition", "first-dns-dropped", Event("A"), Event("A", None, 1))
"""Time until a client repeats a lookup.

Firefox has no such timer of its own: the C library repeats its lookups, after the timeout in resolv.conf.
"""
_OF_CURL = (
    ("lookup-tcp", "lookup, then TCP behind QUIC", "first-udp-dropped", Event("A"), _SYN),
    _QUIC_TCP,
    _ALT_SVC,
    _IPV6_IPV4,
    (
        "tcp-ipv6-quic-ipv4",
        "TCP over IPv6, then QUIC over IPv4",
        "first-ipv6-dropped",
        Event("tcp", 6),
        Event("quic", 4),
    ),
    _LATE_AAAA,
    _LATE_A,
)

_OF = {
    Browser.CHROMIUM: (*_OF_BROWSERS, _LOOKUP_LOOKUP),
    Browser.FIREFOX: _OF_BROWSERS,
    Browser.FIREFOX_HAPPY_EYEBALLS: _OF_BROWSERS,
    Browser.CURL: _OF_CURL,
}

TIMERS: Final[Mapping[str, Timer]] = {
    f"{client.value} {name}": Timer(title, client.value, condition, begin, end)
    for client, timers in _OF.items()
    for name, title, condition, begin, end in timers
}
"""Timers by name of their series in the claims, e.g. `curl quic-tcp`."""


def delays(attempts: pl.LazyFrame) -> pl.LazyFrame:
    """Delay of each timer in each round: the columns of `metrics.ROUND`, series and value, ms."""
    frames = [_delay(attempts, timer).with_columns(series=pl.lit(name)) for name, timer in TIMERS.items()]
    return pl.concat(frames).select(*metrics.ROUND, "series", "value")


def rows_of(timer: Timer) -> pl.Expr:
    """Rows of `attempts` from which a timer is computed."""
    return (pl.col("browser") == timer.client) & (pl.col("condition") == timer.condition)


def _delay(attempts: pl.LazyFrame, timer: Timer) -> pl.LazyFrame:
    of_load = attempts.filter(rows_of(timer)).sort("number")
    begin = _moments(timer.begin).get(timer.begin.number, null_on_oob=True)
    # An attempt of an earlier load may still retransmit, so packets before the begin do not end the wait.
    ends = _moments(timer.end).filter(_moments(timer.end) >= begin)
    value = ends.get(timer.end.number, null_on_oob=True) - begin
    return of_load.group_by(metrics.ROUND).agg(value=value).drop_nulls("value")


def _moments(event: Event) -> pl.Expr:
    """Times in the event's column, ms, of all attempts in a load that have the event's kind and family."""
    kinds = ["quic", "tcp"] if event.kind == "connection" else [event.kind]
    rows = pl.col("kind").is_in(kinds)
    if event.family is not None:
        rows &= pl.col("family") == event.family
    return pl.col(event.column).filter(rows)
