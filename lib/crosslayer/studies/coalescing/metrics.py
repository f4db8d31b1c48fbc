"""Series of this study for its figures and claims. A campaign is read once for both."""

from __future__ import annotations

from threading import Lock

import polars as pl

from crosslayer import metrics

TRANSPORTS = ("DoUDP", "DoQ", "DoH")
SHOWN = {
    metrics.combination(protocol, h3): (f"{protocol} exchange", f"H3 {h3.upper()} PLT")
    for protocol, h3 in metrics.SHOWN
}
"""Series of exchange and load, by combination. The PLT of the combination is their sum in the same round."""

_OF_EXCHANGES = {"{} exchange": "total_ms", "{} handshake": "handshake_ms", "{} query": "query_ms"}
_OF_LOADS = {
    "H3 {} connect": "connect_duration_ms",
    "H3 {} PLT": "plt_ms",
    "H3 {} request start": "request_start_ms",
    "H3 {} until request": "until_request_ms",
    "H3 {} handshake done": "connect_ms",
    "H3 {} response start": "response_start_ms",
    "H3 {} response end": "response_end_ms",
    "H3 {} DOM interactive": "dom_interactive_ms",
    "H3 {} connect beyond the netlog's": "beyond_ms",
}

MAIN = {f"{h3} main PLT": f"H3 {h3.upper()} PLT" for h3 in ("1-rtt", "0-rtt")}
"""Names of two series in this study, by their different names in `metrics.loads_by_kind`."""

_read: list[tuple[tuple[pl.LazyFrame, ...], metrics.Cells]] = []
"""Cache with the tables and series of the last two campaigns."""
_reading = Lock()


def observations(dns_exchanges: pl.LazyFrame, tcp_rtts: pl.LazyFrame, page_loads: pl.LazyFrame) -> metrics.Cells:
    """Series, all in ms: durations of exchanges, TCP RTTs, times of loads, PLTs of combinations, PLTs of self-checks.

    Exchanges have series by protocol and part.

    Self-checks have the series names of `metrics.loads_by_kind`, except for the series that `MAIN` renames.
    """
    tables = (dns_exchanges, tcp_rtts, page_loads)
    with _reading:
        for known, cells in _read:
            if all(one is other for one, other in zip(known, tables, strict=True)):
                return cells
        _read[:-1] = []
        _read.append((tables, _observations(*tables)))
        return _read[-1][1]


def _observations(dns_exchanges: pl.LazyFrame, tcp_rtts: pl.LazyFrame, page_loads: pl.LazyFrame) -> metrics.Cells:
    exchanges, connects = metrics.exchanges(dns_exchanges), metrics.tcp_rtts(tcp_rtts)
    beyond = pl.col("connect_duration_ms") - pl.col("netlog_handshake_ms")
    until_request = pl.col("request_start_ms") - pl.col("connect_start_ms")
    loads = metrics.page_loads(page_loads).with_columns(beyond_ms=beyond, until_request_ms=until_request)
    links = pl.concat(table.select("link") for table in (exchanges, connects, loads)).unique()
    parts = [
        part
        for link in sorted(links.collect(engine="streaming")["link"])
        for part in (
            metrics.Part(exchanges.filter(link=link), "protocol", _OF_EXCHANGES),
            metrics.Part(connects.filter(link=link), "link", {"TCP RTT": "rtt_ms"}),
            metrics.Part(loads.filter(link=link), "h3", _OF_LOADS, str.upper),
            metrics.loads_by_kind(page_loads.filter(link=link), but=MAIN),
        )
    ]
    return metrics.Cells(parts, sums=SHOWN)
