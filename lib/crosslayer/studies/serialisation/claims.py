"""Falsifiable claims of this study, judged on the data of its campaigns."""

from __future__ import annotations

import polars as pl

from crosslayer import metrics
from crosslayer.claims import Claims
from crosslayer.claims.data import Observed
from crosslayer.claims.measures import Measure, median
from crosslayer.claims.rows import VALID_EXCHANGE, Source, observed_from
from crosslayer.claims.rules import Number, Ordering, by_id, claim, descending
from crosslayer.claims.tolerances import ABSOLUTE, EXCHANGE_RESOLUTION_MS
from crosslayer.links import load_profiles

_SENT = {"DoQ": "main", "DoQ, padded to 1024": "datagram-1200-padding-1024"}
_FURTHER_BYTES = 1024 - 128
"""Bytes by which a query padded to 1024 bytes exceeds the usual query, which is padded to 128 bytes."""
_HEADERS_BYTES = 34
"""Bytes of a packet's IPv4 and Ethernet headers, which netem counts."""
_DOQ_BYTES = 1200 + _HEADERS_BYTES + 128 + 43 + _HEADERS_BYTES
"""Bytes on the uplink from the client's second flight to the end of a DoQ query, headers included.

The client's second flight is padded to 1200 bytes (RFC 9000, section 14.1). The query has 128 bytes and 43 bytes of
overhead.
"""
_DOUDP_BYTES = 52 + _HEADERS_BYTES
_UPLINKS = ("dsl", "dsl-uplink-x2", "dsl-uplink-x4", "dsl-uplink-x16")
"""DSL, and the same link with uplinks 2, 4 and 16 times as fast."""
SOURCES = {
    name: Source(
        "dns_exchanges",
        VALID_EXCHANGE & (pl.col("protocol") == "DoQ") & (pl.col("condition") == condition),
        pl.col("query_ms"),
    )
    for name, condition in _SENT.items()
} | {"DoUDP": Source("dns_exchanges", VALID_EXCHANGE & (pl.col("protocol") == "DoUDP"), pl.col("query_ms"))}


def observed(dns_exchanges: pl.LazyFrame, link_checks: pl.LazyFrame) -> Observed:
    """Query times by transport and padding of the query, ms."""
    return observed_from(SOURCES, {"dns_exchanges": dns_exchanges}, metrics.nominal_rtts(link_checks))


def longer(series: str, other: str, link: str) -> Measure:
    """Query time of `series` minus that of `other`: median of the differences within rounds, ms."""
    return median({series: 1.0, other: -1.0}).on(link)


def sending_ms(size_bytes: int) -> float:
    """Time to transmit `size_bytes` on the uplink of DSL, ms."""
    upload_mbit = load_profiles()["dsl"].upload_mbit
    assert upload_mbit is not None
    return size_bytes * 8e-3 / upload_mbit


CLAIMS = Claims(
    checks=by_id(
        claim(
            "SERIAL1",
            f"On DSL {_FURTHER_BYTES} bytes of padding make the query longer by the time that they occupy the uplink",
            longer("DoQ, padded to 1024", "DoQ", "dsl"),
            Number(published=sending_ms(_FURTHER_BYTES), tolerance=ABSOLUTE, unit="ms"),
        ),
        claim(
            "SERIAL2",
            "The time of a DoQ query minus that of a DoUDP query falls with every faster uplink",
            descending({link: longer("DoQ", "DoUDP", link) for link in _UPLINKS}),
            Ordering(unit="ms", resolution=EXCHANGE_RESOLUTION_MS),
        ),
        claim(
            "SERIAL3",
            "On DSL the bytes of second flight and query explain the time of a DoQ query minus that of a DoUDP query",
            longer("DoQ", "DoUDP", "dsl"),
            Number(published=sending_ms(_DOQ_BYTES - _DOUDP_BYTES), tolerance=ABSOLUTE, unit="ms"),
            remark="A padded datagram of 1,200 bytes and the padded query, with headers, less the query over DoUDP.",
        ),
    ),
    observed=observed,
    tables=("dns_exchanges", "link_checks"),
    sources={name: (source,) for name, source in SOURCES.items()},
)
