"""Conclusions of this study as sentences that can be wrong, judged on its campaign."""

from __future__ import annotations

from itertools import product

import polars as pl

from crosslayer import metrics
from crosslayer.claims import Claims
from crosslayer.claims.checks import Bound, Ordering, by_id, claim
from crosslayer.claims.data import Observed
from crosslayer.claims.measures import Measure, maximum, median, minimum
from crosslayer.claims.rows import Source, observed_from
from crosslayer.vocabulary import ClientKind, PathEvent, Protocol

_EARLY = (Protocol.DOQ, Protocol.DOH3)
SHORT_S = 2.0
"""Idle time within which no side closes a connection."""
_VALID = pl.col("error").is_null() & (pl.col("keeper") == str(ClientKind.STUB))


def source(protocol: str, event: PathEvent, *, beyond: bool) -> Source:
    """Answers of the stub after an idle time: whole, or what they take beyond the silence that it waited through."""
    rows = _VALID & (pl.col("protocol") == protocol) & (pl.col("path_event") == str(event))
    if event is PathEvent.NOTHING:
        rows &= pl.col("rest_s") <= SHORT_S
    if beyond:
        return Source("rests", rows & (pl.col("silence_ms") > 0), pl.col("answer_ms") - pl.col("silence_ms"))
    return Source("rests", rows, pl.col("answer_ms"))


SOURCES = {
    f"{protocol}, {event}{', beyond the wait' if beyond else ''}": source(str(protocol), event, beyond=beyond)
    for protocol, event, beyond in product(Protocol, PathEvent, (False, True))
}


def observed(rests: pl.LazyFrame, link_checks: pl.LazyFrame) -> Observed:
    """Answers of the stub by transport and event, ms."""
    return observed_from(SOURCES, {"rests": rests}, metrics.nominal_rtts(link_checks))


def answer(protocol: Protocol, event: PathEvent) -> Measure:
    """Median answer, RTT, all links and idle times."""
    return median(f"{protocol}, {event}", in_rtts=True)


def beyond(protocol: Protocol, event: PathEvent) -> Measure:
    """What nine of ten answers take at most beyond the wait for a sign of life, RTT."""
    return median(f"{protocol}, {event}, beyond the wait", in_rtts=True).at(0.9)


CLAIMS = Claims(
    checks=by_id(
        claim(
            "IDLE1",
            "Where the path forgot an idle connection, early data recovers it within 1.5 round-trips after the wait",
            maximum(beyond(protocol, PathEvent.FORGOTTEN) for protocol in _EARLY),
            Bound(below=1.5, unit="RTT"),
        ),
        claim(
            "IDLE2",
            "Where the server restarted, which takes no early data for its old tickets, it takes a round-trip more",
            minimum(beyond(protocol, PathEvent.RESTARTED) for protocol in _EARLY),
            Bound(above=1.5, unit="RTT"),
        ),
        claim(
            "IDLE3",
            "Where the path forgot an idle connection, DoH recovers later than DoH3",
            {"DoH over DoH3": beyond(Protocol.DOH, PathEvent.FORGOTTEN) - beyond(Protocol.DOH3, PathEvent.FORGOTTEN)},
            Ordering(unit="RTT"),
        ),
        claim(
            "IDLE4",
            f"After {SHORT_S:g} s without a query the next answer takes less than 1.5 round-trips, but over DoTCP",
            maximum(answer(protocol, PathEvent.NOTHING) for protocol in Protocol if protocol is not Protocol.DOTCP),
            Bound(below=1.5, unit="RTT"),
        ),
    ),
    observed=observed,
    tables=("rests", "link_checks"),
    sources={name: (source,) for name, source in SOURCES.items()},
)
