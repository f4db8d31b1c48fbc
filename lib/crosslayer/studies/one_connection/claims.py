"""Falsifiable claims of this study, and two claims of TNSM24: T269 on early SETTINGS, T222 on the paper's emulation."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import polars as pl

from crosslayer import metrics
from crosslayer.claims import Claims
from crosslayer.claims.data import NotMeasured, Observed
from crosslayer.claims.measures import CustomMeasure, Limited, Measure, Share, maximum, median
from crosslayer.claims.rows import Source, with_columns
from crosslayer.claims.rules import Bound, Cause, Number, Ordering, by_id, claim
from crosslayer.claims.tolerances import FRACTION, IN_RTTS
from crosslayer.metrics.resampling import Estimate
from crosslayer.studies.one_connection.metrics import DOCUMENT, FIRST_BYTE, NAME, TIMES, WORTH, by_mode, loads
from crosslayer.studies.one_connection.modes import BASELINE, FIRST_VISIT, MODES, RETURNING, WITHOUT_TOKEN, Mode
from crosslayer.vocabulary import Http3, Protocol

NO_SLOWER_RTT = 0.05
"""Maximum delay that does not count as slower, RTT. On 4G it is 5 ms, which no user notices."""
_MEANT = "meant"


def observed(resolved_loads: pl.LazyFrame, link_checks: pl.LazyFrame) -> Observed:
    """Times by mode and event, ms (series such as `DoQ, then H3 1-RTT, document`), and the series `meant`.

    `meant` has a value for each 0-RTT load whose mode uses a token: 1 if the load has no error, 0 if it has one. A load
    has an error if the server log contradicts its mode, e.g. if the log shows no early data or no token.
    """
    of_mode = loads(resolved_loads)
    rows = [
        of_mode.select(*metrics.ROUND, series=pl.format(f"{{}}, {measure}", "mode"), value=pl.col(column))
        for measure, column in TIMES.items()
    ]
    with_token = by_mode(resolved_loads).filter(
        pl.col("h3") == Http3.ZERO_RTT, ~pl.col("condition").is_in(WITHOUT_TOKEN)
    )
    meant = pl.col("error").is_null().cast(pl.Float64)
    rows.append(with_token.select(*metrics.ROUND, series=pl.lit(_MEANT), value=meant))
    return Observed(pl.concat(rows), rtts_ms=dict(metrics.nominal_rtts(link_checks).collect().iter_rows()))


# Comparisons


def at(mode: Mode, measure: str, *pages: str) -> Measure:
    """Median time until an event of `TIMES` in a mode, RTT."""
    return median(f"{mode.name}, {measure}", *pages, in_rtts=True)


def later(mode: Mode, other: Mode, *pages: str, measure: str = DOCUMENT) -> Measure:
    """Time until an event in `mode` minus that in `other`: median of the differences within rounds, RTT."""
    terms = {f"{mode.name}, {measure}": 1.0, f"{other.name}, {measure}": -1.0}
    return median(terms, *pages, in_rtts=True)


def spared(what: str, visit: str, *pages: str) -> Measure:
    """How much earlier the document is complete in `with_it` than in `without` of an entry of `WORTH`: median, RTT."""
    (worth,) = [worth for worth in WORTH if (worth.what, worth.visit) == (what, visit)]
    return later(worth.without, worth.with_it, *pages)


def in_every_cell(margin: Callable[[str], Measure], *pages: str) -> Callable[[Observed], Mapping[str, Measure]]:
    """Function that returns `margin` for each link and page with data; if `pages` are given, only for these pages."""

    def margins(o: Observed) -> dict[str, Measure]:
        series = f"{BASELINE.name}, {DOCUMENT}"
        cells = ((link, page) for link in o.links for page in pages or o.pages(series, link))
        return {f"{page} on {link}": margin(page).on(link) for link, page in cells}

    return margins


@CustomMeasure
def proved(o: Observed) -> Estimate:
    """Percentage of the 0-RTT loads with a token that have no error, i.e. whose mode the server log confirms."""
    links = [link for link in o.links if o.pages(_MEANT, link)]
    if not links:
        raise NotMeasured("this campaign has no 0-RTT load with a token")
    return median(_MEANT).on(*links).by(Share(lambda values: values == 1))(o)


def on_one_connection(mode: Mode, link: str) -> Measure:
    """Median time until the first byte, name resolution included: maximum over the paper's pages on a link; RTT."""
    return maximum(at(mode, FIRST_BYTE, page).on(link) for page in _OF_THE_PAPER)


# Rules of the claims

no_slower = Ordering(unit="RTT", criterion=f"95 % interval of each difference below {NO_SLOWER_RTT} RTT")
faster = Ordering(unit="RTT")
one_round_trip = Number(published=1.0, tolerance=IN_RTTS, unit="RTT")
nothing = Number(published=0.0, tolerance=FRACTION, unit="RTT")
_PLAIN_BACK = Mode(Protocol.DOUDP, h3=Http3.ZERO_RTT)
_EMULATION = Mode(Protocol.DOQ, h3=Http3.ZERO_RTT)
_OF_THE_PAPER = ("example.org", "wikipedia.org")


def below(value: float) -> Bound:
    """Rule for a claim that a time is below `value` RTTs."""
    return Bound(below=value, unit="RTT")


_SLOW_UPLINK = Cause(
    "The long document is complete {0} RTT later on DSL, whose uplink is slow, and {1} RTT later on 4G. A guess: "
    "the query and acknowledgements share the uplink.",
    tuple(later(FIRST_VISIT, BASELINE, "long-document").on(link) for link in ("dsl", "4g")),
)
_PADDED = Cause(
    "The query leaves in a datagram of 1,200 bytes. So the lookup takes {0} RTT longer than over DoUDP on DSL, "
    "whose uplink is slow, and {1} RTT longer on 4G.",
    tuple(later(RETURNING, _PLAIN_BACK, measure=NAME).on(link) for link in ("dsl", "4g")),
)
_PADDED_TWICE = Cause(
    "The saving is more than a round-trip, because two padded datagrams fewer are sent without the handshake. It "
    "is {0} RTT on DSL and {1} RTT on 4G.",
    tuple(spared("over DoQ, then H3", "first visit").on(link) for link in ("dsl", "4g")),
)

_SAME_ROUND_TRIPS = Cause(
    "In this study, less than 0.05 RTT counts as no difference. With the paper's emulation, the document of "
    "wikipedia.org is complete {0} RTT later on fiber, {1} on 4G and {2} on DSL. The paper's instagram.com is not "
    "in this study.",
    tuple(later(_EMULATION, FIRST_VISIT, "wikipedia.org").on(link) for link in ("fiber", "4g", "dsl")),
)

CHECKS = by_id(
    claim(
        "CONN1",
        "On a first visit, encrypted DNS on the page's connection is nowhere slower than unencrypted DNS",
        in_every_cell(lambda page: Limited(later(FIRST_VISIT, BASELINE, page), NO_SLOWER_RTT, upper=True)),
        no_slower,
    ),
    claim(
        "CONN2",
        "On a returning visit encrypted DNS on the page's connection is everywhere faster than unencrypted DNS with "
        "a full handshake for the page",
        in_every_cell(lambda page: later(BASELINE, RETURNING, page)),
        faster,
    ),
    claim(
        "CONN3",
        "On a returning visit encrypted DNS on the page's connection is nowhere slower than unencrypted DNS with "
        "early data and a token for the page",
        in_every_cell(lambda page: Limited(later(RETURNING, _PLAIN_BACK, page), NO_SLOWER_RTT, upper=True)),
        no_slower,
    ),
    claim(
        "CONN4",
        "On a first visit one connection saves a round-trip compared with DoQ on a separate connection",
        spared("over DoQ, then H3", "first visit"),
        one_round_trip,
    ),
    claim(
        "CONN5",
        "If the client waits for SETTINGS before its request, it loses the round-trip that early data saves",
        spared("not waiting for SETTINGS", "returning visit"),
        one_round_trip,
    ),
    claim(
        "CONN6",
        "With a full handshake, waiting for SETTINGS costs nothing, because they arrive with it",
        spared("not waiting for SETTINGS", "first visit"),
        nothing,
    ),
    claim(
        "CONN7",
        "On one connection, no token is needed if the page is requested after its name",
        spared("the token", "returning visit"),
        nothing,
    ),
    claim(
        "CONN8",
        "Requested together with its name, the document of wikipedia.org takes one round-trip more without the token",
        spared("the token, page at once", "returning visit", "wikipedia.org"),
        one_round_trip,
    ),
    claim(
        "CONN9",
        "Requesting the page together with its name saves a round-trip on a returning visit",
        spared("asking for the page at once", "returning visit"),
        one_round_trip,
    ),
    claim(
        "CONN10",
        "Requesting the page together with its name saves a round-trip on a first visit",
        spared("asking for the page at once", "first visit"),
        one_round_trip,
    ),
    claim(
        "CONN11",
        "99 % of the 0-RTT loads with a token used early data, confirmed by the server log",
        proved,
        Bound(above=99.0, unit="%"),
    ),
    claim(
        "CONN12",
        "On a returning visit, name and first byte take less than 2.05 RTT on 4G",
        on_one_connection(RETURNING, "4g"),
        below(2.05),
    ),
    claim(
        "CONN13",
        "On a returning visit, name and first byte take less than 2.10 RTT on fiber",
        on_one_connection(RETURNING, "fiber"),
        below(2.1),
    ),
    claim(
        "CONN14",
        "On a first visit, name and first byte take less than 3.05 RTT on 4G",
        on_one_connection(FIRST_VISIT, "4g"),
        below(3.05),
    ),
    claim(
        "CONN15",
        "On a first visit, name and first byte take less than 3.10 RTT on fiber",
        on_one_connection(FIRST_VISIT, "fiber"),
        below(3.1),
    ),
    claim(
        "T269",
        "SETTINGS that come earlier would save a round-trip",
        spared("not waiting for SETTINGS", "returning visit"),
        one_round_trip,
        follows_from="CONN5, the same number",
    ),
    claim(
        "T222",
        "The emulation is a lower bound of what coalescing saves",
        in_every_cell(
            lambda page: Limited(later(_EMULATION, FIRST_VISIT, page), -NO_SLOWER_RTT, upper=False), *_OF_THE_PAPER
        ),
        Ordering(
            unit="RTT",
            criterion="the emulation, a DoQ query and then H3 0-RTT, completes the document nowhere earlier than one "
            f"connection with a full handshake (by {NO_SLOWER_RTT} RTT or more), on each link and page of the paper",
        ),
    ),
    remarks={
        _SAME_ROUND_TRIPS: "T222",
        "With a full handshake they arrive with it, and waiting for them costs nothing (CONN6).": "T269",
    },
    causes={_SLOW_UPLINK: "CONN1", _PADDED: "CONN3", _PADDED_TWICE: "CONN4"},
)

SOURCES = {
    f"{name}, {measure}": (
        Source(
            "resolved_loads",
            pl.col("error").is_null() & with_columns(mode.columns),
            pl.col(column),
        ),
    )
    for name, mode in MODES.items()
    for measure, column in TIMES.items()
} | {
    _MEANT: (
        Source(
            "resolved_loads",
            (pl.col("h3") == str(Http3.ZERO_RTT)) & ~pl.col("condition").is_in(WITHOUT_TOKEN),
            pl.col("error").is_null(),
        ),
    )
}

CLAIMS = Claims(CHECKS, observed, ("resolved_loads", "link_checks"), SOURCES)
