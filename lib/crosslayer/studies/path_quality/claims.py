"""Falsifiable claims of this study, judged on the data of its campaign."""

from __future__ import annotations

from itertools import product

import polars as pl

from crosslayer import metrics
from crosslayer.claims import Claims
from crosslayer.claims.data import Observed
from crosslayer.claims.measures import Limited, Measure, median
from crosslayer.claims.rows import VALID_EXCHANGE, Source, observed_from, with_columns
from crosslayer.claims.rules import Number, Ordering, by_id, claim, within
from crosslayer.claims.tolerances import FRACTION, IN_RTTS
from crosslayer.studies.path_quality.visits import PAIRS

_RTTS = ("4g-rtt-5", "4g-rtt-20", "4g-rtt-100", "4g-rtt-300", "4g-rtt-600")
_LOSSY = ("4g-loss-1", "4g-loss-2", "4g-loss-5")
_IN_LINE = (("DoT", "DoQ"), ("DoH", "DoH3"))
"""Pairs of transports: one that delivers all answers in order (TCP), and one with independent streams (QUIC)."""
SOURCES = {
    **{
        f"{protocol}{name}": Source(
            "dns_exchanges",
            VALID_EXCHANGE & (pl.col("protocol") == protocol) & (pl.col("resumption") == resumption),
            pl.col("total_ms"),
        )
        for protocol, (resumption, name) in product(("DoQ", "DoH3"), {"none": "", "early-data": " 0-RTT"}.items())
    },
    **{
        f"{protocol}, shared": Source(
            "paced_queries",
            VALID_EXCHANGE & (pl.col("connection_mode") == "kept") & (pl.col("protocol") == protocol),
            pl.col("response_ms"),
        )
        for pair in _IN_LINE
        for protocol in pair
    },
    **{
        mode.name: Source(
            "resolved_loads",
            pl.col("error").is_null() & with_columns(mode.columns),
            pl.col("load_complete_ms"),
        )
        for pair in PAIRS.values()
        for mode in pair
    },
}
_TABLES = ("dns_exchanges", "paced_queries", "resolved_loads")


def observed(
    dns_exchanges: pl.LazyFrame, paced_queries: pl.LazyFrame, resolved_loads: pl.LazyFrame, link_checks: pl.LazyFrame
) -> Observed:
    """Times in ms by series: lookups, queries that share a connection, and page loads on two connections and on one."""
    tables = dict(zip(_TABLES, (dns_exchanges, paced_queries, resolved_loads), strict=True))
    return observed_from(SOURCES, tables, metrics.nominal_rtts(link_checks))


def spared(protocol: str, link: str) -> Measure:
    """Median lookup time without early data minus that with early data, RTT."""
    return (median(protocol, in_rtts=True) - median(f"{protocol} 0-RTT", in_rtts=True)).on(link)


def worth(visit: str, link: str) -> Measure:
    """Median load time on two connections minus that on one connection, RTT."""
    two, one = (median(mode.name, in_rtts=True).on(link) for mode in PAIRS[visit])
    return two - one


CLAIMS = Claims(
    checks=by_id(
        *(
            claim(
                identifier,
                f"At every RTT from 5 to 600 ms early data saves {protocol} one round-trip",
                within({link: spared(protocol, link) for link in _RTTS}, 1.0, IN_RTTS.at_least),
                Ordering(unit="RTT", criterion=f"95 % interval of each saving within {IN_RTTS.at_least} RTT of one"),
            )
            for identifier, protocol in {"PATH1": "DoQ", "PATH2": "DoH3"}.items()
        ),
        claim(
            "PATH3",
            "Without loss one connection saves a first visit one round-trip of two",
            worth("first visit", "4g-loss-0"),
            Number(published=1.0, tolerance=IN_RTTS, unit="RTT"),
        ),
        claim(
            "PATH4",
            "Without loss one connection saves a returning visit nothing",
            worth("returning", "4g-loss-0"),
            Number(published=0.0, tolerance=FRACTION, unit="RTT"),
        ),
        claim(
            "PATH5",
            "With 5 % loss the median query of a shared connection waits longer if answers are delivered in order",
            {
                f"{slow} over {fast}": (
                    median(f"{slow}, shared", in_rtts=True) - median(f"{fast}, shared", in_rtts=True)
                ).on("4g-loss-5")
                for slow, fast in _IN_LINE
            },
            Ordering(unit="RTT", resolution=FRACTION.at_least),
        ),
        claim(
            "PATH6",
            "With loss one connection costs the median first visit nothing",
            {link: Limited(worth("first visit", link), -FRACTION.at_least, upper=False) for link in _LOSSY},
            Ordering(unit="RTT", criterion=f"95 % interval of each difference above -{FRACTION.at_least} RTT"),
        ),
    ),
    observed=observed,
    tables=(*_TABLES, "link_checks"),
    sources={name: (source,) for name, source in SOURCES.items()},
)
