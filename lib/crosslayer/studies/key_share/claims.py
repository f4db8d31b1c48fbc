"""Falsifiable claims of this study, judged on the data of its campaigns."""

from __future__ import annotations

from itertools import product

import polars as pl

from crosslayer import metrics
from crosslayer.claims import Claims
from crosslayer.claims.data import Observed
from crosslayer.claims.measures import Measure, maximum, median, minimum
from crosslayer.claims.rows import VALID_EXCHANGE, Source, observed_from
from crosslayer.claims.rules import Bound, Ordering, by_id, claim
from crosslayer.claims.tolerances import EXCHANGE_RESOLUTION_MS

_PROTOCOLS, _LARGE, _SMALL = ("DoQ", "DoT"), "x25519mlkem768", "x25519"
_FAST = ("fiber", "cable", "4g", "4g-medium")
SOURCES = {
    f"{protocol}, {share}": Source(
        "dns_exchanges",
        VALID_EXCHANGE & (pl.col("protocol") == protocol) & (pl.col("condition") == share),
        pl.col("handshake_ms"),
    )
    for protocol, share in product(_PROTOCOLS, (_LARGE, _SMALL))
}


def observed(dns_exchanges: pl.LazyFrame, link_checks: pl.LazyFrame) -> Observed:
    """Handshake times by transport and key share, ms."""
    return observed_from(SOURCES, {"dns_exchanges": dns_exchanges}, metrics.nominal_rtts(link_checks))


def cost(protocol: str, link: str, *, in_rtts: bool = False) -> Measure:
    """Time that the post-quantum key share adds to the handshake: median of differences within rounds, ms or RTT."""
    return median({f"{protocol}, {_LARGE}": 1.0, f"{protocol}, {_SMALL}": -1.0}, in_rtts=in_rtts).on(link)


def of_all(links: tuple[str, ...]) -> list[Measure]:
    """Time that the key share adds to the handshake over each transport on each of `links`, RTT."""
    return [cost(protocol, link, in_rtts=True) for protocol, link in product(_PROTOCOLS, links)]


CLAIMS = Claims(
    checks=by_id(
        claim(
            "KEYSHARE1",
            "Except on DSL the post-quantum key share costs a handshake less than a tenth of a round-trip",
            maximum(of_all(_FAST)),
            Bound(below=0.1, unit="RTT"),
        ),
        claim(
            "KEYSHARE2",
            "On DSL, whose uplink is slow, the post-quantum key share costs more than a quarter of a round-trip",
            minimum(of_all(("dsl",))),
            Bound(above=0.25, unit="RTT"),
        ),
        claim(
            "KEYSHARE3",
            "The post-quantum key share costs most on DSL, in ms, over both transports",
            {
                f"{protocol}, DSL over {link}": cost(protocol, "dsl") - cost(protocol, link)
                for protocol, link in product(_PROTOCOLS, _FAST)
            },
            Ordering(unit="ms", resolution=EXCHANGE_RESOLUTION_MS),
        ),
    ),
    observed=observed,
    tables=("dns_exchanges", "link_checks"),
    sources={name: (source,) for name, source in SOURCES.items()},
)
