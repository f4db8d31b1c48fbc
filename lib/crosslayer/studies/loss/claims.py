"""Falsifiable claims of this study, judged on the data of its campaign."""

from __future__ import annotations

from itertools import product

import polars as pl

from crosslayer import metrics
from crosslayer.claims import Claims
from crosslayer.claims.data import Observed
from crosslayer.claims.measures import Measure, median
from crosslayer.claims.rows import VALID_EXCHANGE, Source, observed_from
from crosslayer.claims.rules import Ordering, by_id, claim, within
from crosslayer.claims.tolerances import IN_RTTS
from crosslayer.vocabulary import Role

_LINKS = ("4g-loss-0", "4g-loss-1", "4g-loss-2", "4g-loss-5")
_LATE = (
    pl.col("error").is_not_null()
    & pl.col("session_resumed").fill_null(False)
    & ~pl.col("early_data_accepted").fill_null(False)
)
"""Rows whose early data was lost with the first flight. Here they count; other studies treat them as errors."""
_TIMED = (pl.col("role") == Role.MEASURED) & (pl.col("condition") == "main") & pl.col("total_ms").is_not_null()


def source(protocol: str, resumption: str) -> Source:
    """Lookups over a transport, with the given value of the column `resumption` (`none` or `early-data`)."""
    valid = VALID_EXCHANGE if resumption == "none" else pl.col("error").is_null() | _LATE
    rows = valid & _TIMED & (pl.col("protocol") == protocol) & (pl.col("resumption") == resumption)
    return Source("dns_exchanges", rows, pl.col("total_ms"))


SOURCES = {
    **{protocol: source(protocol, "none") for protocol in ("DoUDP", "DoT", "DoH", "DoQ", "DoH3")},
    **{f"{protocol} 0-RTT": source(protocol, "early-data") for protocol in ("DoQ", "DoH3")},
}


def observed(dns_exchanges: pl.LazyFrame, link_checks: pl.LazyFrame) -> Observed:
    """Lookup times by transport and resumption, ms."""
    return observed_from(SOURCES, {"dns_exchanges": dns_exchanges}, metrics.nominal_rtts(link_checks))


def quantile(series: str, link: str, q: float = 0.5) -> Measure:
    """Quantile `q` of the lookup time on a link, RTT."""
    return median(series, in_rtts=True).on(link).at(q)


def spared(protocol: str, link: str) -> Measure:
    """Median lookup time without early data minus that with early data, RTT."""
    return quantile(protocol, link) - quantile(f"{protocol} 0-RTT", link)


CLAIMS = Claims(
    checks=by_id(
        *(
            claim(
                identifier,
                f"At every loss from 0 to 5 % early data saves {protocol} one round-trip of the median lookup",
                within({link: spared(protocol, link) for link in _LINKS}, 1.0, IN_RTTS.at_least),
                Ordering(unit="RTT", criterion=f"95 % interval of each saving within {IN_RTTS.at_least} RTT of one"),
            )
            for identifier, protocol in {"LOSS1": "DoQ", "LOSS2": "DoH3"}.items()
        ),
        claim(
            "LOSS3",
            "With 5 % loss the 95th percentile of the lookups is higher over DoUDP than over DoQ with early data",
            {"P95": quantile("DoUDP", "4g-loss-5", 0.95) - quantile("DoQ 0-RTT", "4g-loss-5", 0.95)},
            Ordering(unit="RTT"),
            remark="It rests on the timer of the DoUDP client, which repeats a lost query after one second.",
        ),
        claim(
            "LOSS4",
            "At every loss the median lookup takes longest over DoH, then over DoQ, then over DoUDP",
            {
                f"{more} over {less}, {link}": quantile(more, link) - quantile(less, link)
                for link, (more, less) in product(_LINKS, (("DoH", "DoQ"), ("DoQ", "DoUDP")))
            },
            Ordering(unit="RTT"),
        ),
    ),
    observed=observed,
    tables=("dns_exchanges", "link_checks"),
    sources={name: (source,) for name, source in SOURCES.items()},
)
