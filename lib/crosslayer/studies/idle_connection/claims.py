"""Falsifiable claims of this study, judged on the data of its campaign."""

from __future__ import annotations

from itertools import product

import polars as pl

from crosslayer import metrics
from crosslayer.claims import Claims
from crosslayer.claims.data import Observed
from crosslayer.claims.measures import Measure, maximum, median, minimum
from crosslayer.claims.rows import Source, observed_from
from crosslayer.claims.rules import Bound, Ordering, by_id, claim
from crosslayer.vocabulary import ClientKind, PathEvent, Protocol

_EARLY = (Protocol.DOQ, Protocol.DOH3)
SHORT_S = 2.0
"""Maximum idle time, s, of the rows that the claims about a connection without a path event use.

Client and server still keep a connection that was idle for this time.
"""
_VALID = pl.col("error").is_null() & (pl.col("client") == str(ClientKind.STUB))


def source(protocol: str, event: PathEvent, *, beyond: bool) -> Source:
    """Answer times of the stub after an idle time.

    A time is from the query to the answer. With `beyond`, the stub's wait for a packet on the old connection is
    subtracted. At the end of this wait, the stub also sends the query over a new connection. Queries without such a
    wait are then omitted.
    """
    rows = _VALID & (pl.col("protocol") == protocol) & (pl.col("path_event") == str(event))
    if event is PathEvent.NONE:
        rows &= pl.col("idle_s") <= SHORT_S
    if beyond:
        return Source("idle_recoveries", rows & (pl.col("silence_ms") > 0), pl.col("answer_ms") - pl.col("silence_ms"))
    return Source("idle_recoveries", rows, pl.col("answer_ms"))


SOURCES = {
    f"{protocol}, {event}{', beyond the wait' if beyond else ''}": source(str(protocol), event, beyond=beyond)
    for protocol, event, beyond in product(Protocol, PathEvent, (False, True))
}


def observed(idle_recoveries: pl.LazyFrame, link_checks: pl.LazyFrame) -> Observed:
    """Answer times of the stub by transport and event, ms."""
    return observed_from(SOURCES, {"idle_recoveries": idle_recoveries}, metrics.nominal_rtts(link_checks))


def answer(protocol: Protocol, event: PathEvent) -> Measure:
    """Median time from query to answer in RTTs, over all links and over the idle times that `source` selects."""
    return median(f"{protocol}, {event}", in_rtts=True)


def beyond(protocol: Protocol, event: PathEvent) -> Measure:
    """90th percentile, in RTTs, of the times of `source` with `beyond`: from the end of the wait to the answer."""
    return median(f"{protocol}, {event}, beyond the wait", in_rtts=True).at(0.9)


CLAIMS = Claims(
    checks=by_id(
        claim(
            "IDLE1",
            "If the NAT mapping expired, early data gets the answer within 1.5 round-trips after the wait",
            maximum(beyond(protocol, PathEvent.NAT_EXPIRED) for protocol in _EARLY),
            Bound(below=1.5, unit="RTT"),
        ),
        claim(
            "IDLE2",
            "If the server restarted and refuses early data for old tickets, the answer takes one round-trip more",
            minimum(beyond(protocol, PathEvent.SERVER_RESTARTED) for protocol in _EARLY),
            Bound(above=1.5, unit="RTT"),
        ),
        claim(
            "IDLE3",
            "If the NAT mapping expired, DoH recovers later than DoH3",
            {
                "DoH over DoH3": beyond(Protocol.DOH, PathEvent.NAT_EXPIRED)
                - beyond(Protocol.DOH3, PathEvent.NAT_EXPIRED)
            },
            Ordering(unit="RTT"),
        ),
        claim(
            "IDLE4",
            f"After {SHORT_S:g} s without a query the next answer takes less than 1.5 round-trips, except over DoTCP",
            maximum(answer(protocol, PathEvent.NONE) for protocol in Protocol if protocol is not Protocol.DOTCP),
            Bound(below=1.5, unit="RTT"),
        ),
    ),
    observed=observed,
    tables=("idle_recoveries", "link_checks"),
    sources={name: (source,) for name, source in SOURCES.items()},
)
