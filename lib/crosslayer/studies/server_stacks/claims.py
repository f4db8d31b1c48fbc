"""Falsifiable claims of this study, judged on the data of its campaigns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

import polars as pl

from crosslayer import metrics
from crosslayer.claims import Claims
from crosslayer.claims.data import NotMeasured, Observed
from crosslayer.claims.measures import Limited, Measure, median
from crosslayer.claims.rows import VALID_EXCHANGE, VALID_LOAD, Source, with_columns
from crosslayer.claims.rules import Cause, Ordering, by_id, claim, within
from crosslayer.studies.server_stacks.conditions import (
    ANSWER,
    DOCUMENT,
    EXCHANGES,
    FIRST_BYTE,
    LOADS,
    NAME,
    VISITS,
    ServerVisit,
    VisitComparison,
)
from crosslayer.studies.server_stacks.metrics import TIMES, columns_of, times
from crosslayer.studies.server_stacks.stacks import FIRST, SECOND, STACKS, WIDE
from crosslayer.vocabulary import Protocol

SAME_RTT = 0.02
"""Maximum difference at which two times until the name, or until the first byte, count as equal, RTT."""
_SAME_COST_RTT = 0.05
"""Maximum delay at which the study `one-connection` does not call a load slower, RTT."""
_SAME_DOCUMENT_RTT = 0.1
_LARGE = "wikipedia.org"
"""Page whose document is larger than the initial congestion window of aioquic."""


def _series(what: str, measure: str, stack: str) -> str:
    return f"{what}, {measure}, {stack}"


def observed(
    resolved_loads: pl.LazyFrame, dns_exchanges: pl.LazyFrame, page_loads: pl.LazyFrame, link_checks: pl.LazyFrame
) -> Observed:
    """Times by condition, measure and server, ms; a series is e.g. `DoQ, then H3 1-RTT, first byte, aioquic`."""
    rows = times(resolved_loads, dns_exchanges, page_loads).select(
        *metrics.ROUND, "value", series=pl.format("{}, {}, {}", "what", "measure", "stack")
    )
    return Observed(rows, rtts_ms=dict(metrics.nominal_rtts(link_checks).collect().iter_rows()))


# Comparisons


def later(what: str, measure: str, *pages: str, stack: str = SECOND) -> Measure:
    """Time with server `stack` minus that with the first server: median of the differences within rounds, RTT."""
    terms = {_series(what, measure, stack): 1.0, _series(what, measure, FIRST): -1.0}
    return median(terms, *pages, in_rtts=True)


def cost(comparison: VisitComparison, *pages: str, stack: str = SECOND, less: bool = False) -> Measure:
    """Time until the document in `comparison.visit` minus that in `comparison.other`, with server `stack`.

    The value is the median of the differences within rounds, RTT. With `less`, the cost of the same comparison with the
    first server is subtracted.
    """
    terms: dict[str, float] = {}
    for one, sign in ((stack, 1.0), *([(FIRST, -1.0)] if less else [])):
        terms[_series(comparison.visit.name, DOCUMENT, one)] = sign
        terms[_series(comparison.other.name, DOCUMENT, one)] = -sign
    return median(terms, *pages, in_rtts=True)


def in_every_cell(
    measured: Mapping[str, Callable[[str], Measure]], *pages: str
) -> Callable[[Observed], dict[str, Measure]]:
    """Function that returns the measures for each link and page; if `pages` are given, only for these pages."""
    any_series = _series(next(iter(VISITS)), NAME, FIRST)

    def measures(o: Observed) -> dict[str, Measure]:
        cells = [(link, page) for link in o.links for page in pages or o.pages(any_series, link)]
        if not cells:
            raise NotMeasured("this campaign has no visits")
        return {
            f"{what} of {page} on {link}": of_page(page).on(link)
            for what, of_page in measured.items()
            for link, page in cells
        }

    return measures


def same(
    conditions: Iterable[str], measure: str, distance: float, *pages: str, stack: str = SECOND
) -> Callable[[Observed], Mapping[str, Measure]]:
    """Function that returns margins, all above 0 if `stack` and the first server differ by less than `distance` RTT."""
    cells = in_every_cell({what: partial(later, what, measure, stack=stack) for what in conditions}, *pages)
    return lambda o: within(cells(o), 0.0, distance)


def _same_cost(o: Observed) -> Mapping[str, Measure]:
    return within(in_every_cell({one.name: partial(cost, one, less=True) for one in _COSTS})(o), 0.0, _SAME_COST_RTT)


def _much_later(what: str, page: str) -> Measure:
    """How much later the second server completes the document; limit: more than 0.5 RTT."""
    return Limited(later(what, DOCUMENT, page), 0.5, upper=False)


def _saved_more(page: str) -> Measure:
    """How much less one connection saves with the second server than with the first; limit: below `SAME_RTT`."""
    return Limited(cost(_OVER_DOQ, page, less=True), SAME_RTT, upper=True)


def _not_slower(comparison: VisitComparison, page: str) -> Measure:
    """How much longer `comparison.visit` takes with the second server than `comparison.other`.

    Limit: below `_SAME_COST_RTT`.
    """
    return Limited(cost(comparison, page), _SAME_COST_RTT, upper=True)


def _token_saves_less(page: str) -> Measure:
    """How much more time the token saves with the second server than with the first; limit: below 0."""
    return Limited(cost(_TOKEN, page, less=True), 0.0, upper=True)


_BY_NAME = {comparison.name: comparison for comparison in ANSWER}
_COSTS = [one for name, one in _BY_NAME.items() if " over plain DNS" in name and "one connection" not in name]
_SHARED = [_BY_NAME[f"{visit}: one connection over plain DNS"] for visit in ("first visit", "returning")]
_OVER_DOQ = _BY_NAME["first visit: one connection over DoQ"]
_TOKEN = _BY_NAME["returning: no token over a token"]
_PLAIN = ServerVisit(Protocol.DOUDP).name


# Rules of the claims


def _ordering(criterion: str) -> Ordering:
    return Ordering(unit="RTT", criterion=f"95 % interval of each difference {criterion}")


_WINDOW = Cause(
    "The initial congestion window of aioquic is 10 datagrams (RFC 9002, section 7.2), that of quic-go 32. The "
    f"document of {_LARGE} does not fit into 10. With plain DNS and a full handshake, it is complete {{0}} RTT later "
    "on fiber and {1} RTT later on 4G. With a window of 32, it is {2} and {3} RTT later.",
    tuple(
        later(_PLAIN, DOCUMENT, _LARGE, stack=stack).on(link) for stack in (SECOND, WIDE) for link in ("fiber", "4g")
    ),
)
_SAME_LIMIT = Cause(
    "Also with the token, the server pauses after a window of 10 datagrams. With a window of 32 datagrams, the "
    "token saves {0} RTT on fiber and {1} RTT on 4G.",
    tuple(cost(_TOKEN, _LARGE, stack=WIDE).on(link) for link in ("fiber", "4g")),
)

CHECKS = by_id(
    claim(
        "STACK1",
        "In every visit and exchange, the name is resolved within 0.02 RTT of the time of the other server",
        same([*VISITS, *EXCHANGES], NAME, SAME_RTT),
        _ordering(f"within {SAME_RTT} RTT"),
    ),
    claim(
        "STACK2",
        "In every visit and load, the first byte arrives within 0.02 RTT of the time of the other server",
        same([*VISITS, *LOADS], FIRST_BYTE, SAME_RTT),
        _ordering(f"within {SAME_RTT} RTT"),
    ),
    claim(
        "STACK3",
        "In every visit, the document of wikipedia.org is complete more than half a round-trip later from aioquic",
        in_every_cell({what: partial(_much_later, what) for what in VISITS}, _LARGE),
        _ordering("above 0.5 RTT"),
    ),
    claim(
        "STACK4",
        "With the initial window of quic-go, the document of wikipedia.org is complete within 0.1 RTT of the time "
        "of the other server",
        same(VISITS, DOCUMENT, _SAME_DOCUMENT_RTT, _LARGE, stack=WIDE),
        _ordering(f"within {_SAME_DOCUMENT_RTT} RTT"),
    ),
    claim(
        "STACK5",
        "The time that DoQ or DoH3 adds until the document is complete differs by less than 0.05 RTT between the two "
        "servers",
        _same_cost,
        _ordering(f"within {_SAME_COST_RTT} RTT"),
    ),
    claim(
        "STACK6",
        "On a first visit with aioquic, one connection saves at least as much, compared with separate DoQ, as with "
        "quic-go",
        in_every_cell({_OVER_DOQ.name: _saved_more}),
        _ordering(f"below {SAME_RTT} RTT"),
    ),
    claim(
        "STACK7",
        "With aioquic, one connection is not slower than plain DNS on the same kind of visit, first or returning",
        in_every_cell({one.name: partial(_not_slower, one) for one in _SHARED}),
        _ordering(f"below {_SAME_COST_RTT} RTT"),
    ),
    claim(
        "STACK8",
        "On wikipedia.org the address-validation token saves less time with aioquic than with quic-go",
        in_every_cell({_TOKEN.name: _token_saves_less}, _LARGE),
        _ordering("below 0"),
    ),
    causes={_WINDOW: "STACK3", _SAME_LIMIT: "STACK8"},
)


def _source(table: str, valid: pl.Expr, what: str, stack: str, column: str) -> tuple[Source, ...]:
    return (Source(table, valid & with_columns(columns_of(what, stack)), pl.col(column)),)


SOURCES = {
    **{
        _series(what, measure, stack): _source("resolved_loads", pl.col("error").is_null(), what, stack, column)
        for stack in STACKS
        for what in VISITS
        for measure, column in TIMES.items()
    },
    **{
        _series(what, NAME, stack): _source("dns_exchanges", VALID_EXCHANGE, what, stack, "total_ms")
        for stack in STACKS
        for what in EXCHANGES
    },
    **{
        _series(what, FIRST_BYTE, stack): _source("page_loads", VALID_LOAD, what, stack, "response_start_ms")
        for stack in STACKS
        for what in LOADS
    },
}

CLAIMS = Claims(CHECKS, observed, ("resolved_loads", "dns_exchanges", "page_loads", "link_checks"), SOURCES)
