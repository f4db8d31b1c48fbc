"""Sums of an exchange and a load of the same round, for all states of DNS and of the page."""

from __future__ import annotations

from itertools import product

import polars as pl

from crosslayer import metrics
from crosslayer.study import SIX_TRANSPORTS
from crosslayer.vocabulary import Protocol, Resumption

_STATES = {Resumption.NONE: "", Resumption.TICKET: " resumed", Resumption.EARLY_DATA: " 0-RTT"}

FULL, WITH, WITHOUT = "H3 1-RTT", "H3 0-RTT with token", "H3 0-RTT without token"
LOADS = (FULL, WITHOUT, WITH)
"""States of the page: first visit, returning visit with a ticket only, returning visit with a ticket and a token."""


def named(protocol: Protocol, resumption: Resumption = Resumption.NONE) -> str:
    """Name of an exchange, e.g. `DoQ`, `DoQ resumed` or `DoQ 0-RTT`."""
    return f"{protocol}{_STATES[resumption]}"


EXCHANGES = tuple(
    named(protocol, resumption)
    for resumption in Resumption
    for protocol in SIX_TRANSPORTS
    if resumption in protocol.transport.resumptions
)
"""States of DNS: first all full handshakes, then resumed sessions, then early data."""

BEST = {protocol: named(protocol, protocol.transport.resumptions[-1]) for protocol in SIX_TRANSPORTS}
"""State of each transport on a returning visit: early data if possible, otherwise a resumed session if possible."""


def combination(exchange: str, load: str) -> str:
    """Name of a combination, e.g. `DoQ 0-RTT + H3 1-RTT`."""
    return f"{exchange} + {load}"


COMBINATIONS = tuple(combination(*pair) for pair in product(EXCHANGES, LOADS))


def combined(dns_exchanges: pl.LazyFrame, page_loads: pl.LazyFrame) -> pl.LazyFrame:
    """PLT of every combination: the sum of DNS exchange and browser PLT of the same round and cell.

    Returns
    -------
    polars.LazyFrame
        campaign, round, link, page, exchange, load, combination, exchange_ms, browser_plt_ms, plt_ms. A round
        without an exchange or without a load has no row.
    """
    state = pl.col("resumption").replace_strict(_STATES, default=None, return_dtype=pl.String)
    ours = dns_exchanges.filter(pl.col("condition") == "main")  # excludes exchanges by the stub
    exchanges = pl.concat(metrics.exchanges(ours, resumption=name) for name in _STATES).select(
        *metrics.ROUND, exchange=pl.concat_str("protocol", state), exchange_ms="total_ms"
    )
    kind = pl.when(pl.col("h3") == "1-rtt").then(pl.lit(FULL))
    loads = pl.concat(
        metrics.page_loads(page_loads, condition=condition).select(
            *metrics.ROUND, load=kind.otherwise(pl.lit(name)), browser_plt_ms="plt_ms"
        )
        for condition, name in (("main", WITH), ("no-token", WITHOUT))
    )
    return exchanges.join(loads, on=metrics.ROUND).with_columns(
        combination=pl.format("{} + {}", "exchange", "load"), plt_ms=pl.col("exchange_ms") + pl.col("browser_plt_ms")
    )


def costs(rows: pl.LazyFrame, combination: str, baseline: str) -> pl.LazyFrame:
    """PLT of a combination minus that of a baseline in the same round. `rows` is a result of `combined`.

    Returns
    -------
    polars.LazyFrame
        campaign, round, link, page, difference_ms, difference_percent (of the baseline's median in the cell).
    """
    return metrics.paired_costs(rows, "plt_ms", "combination", combination, baseline)
