"""DNS lookups as series by transport and kind, including lookups with early data."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from crosslayer.metrics.links import in_rtts
from crosslayer.metrics.rows import exchanges
from crosslayer.vocabulary import Resumption, Role


def lookup_series(
    dns_exchanges: pl.LazyFrame, rtts: pl.LazyFrame, kinds: Mapping[tuple[str, str], str]
) -> pl.LazyFrame:
    """Rows of DNS lookups with two further columns: `series` (e.g. `DoQ 0-RTT`) and `total_rtt`.

    If packets of the first flight are lost, the server may receive the early data after the handshake. The row of such
    a lookup has an error. This function includes the row nevertheless, because the delay of the lookup is the cost of
    early data under packet loss.

    Parameters
    ----------
    dns_exchanges
        Rows of the table.
    rtts
        Nominal RTT of each link.
    kinds
        For each pair of condition and resumption: the text that follows the transport in the name of the series. In
        `DoQ 0-RTT`, for example, it is a space and `0-RTT`.
    """
    series = pl.col("protocol")
    for (condition, resumption), ending in kinds.items():
        of_kind = (pl.col("condition") == condition, pl.col("resumption") == resumption)
        series = pl.when(*of_kind).then(pl.concat_str(pl.col("protocol"), pl.lit(ending))).otherwise(series)
    early = dns_exchanges.filter(resumption=Resumption.EARLY_DATA, role=Role.MEASURED)
    late = early.filter(pl.col("session_resumed"), ~pl.col("early_data_accepted"), pl.col("total_ms").is_not_null())
    whole = [exchanges(dns_exchanges, resumption=resumption) for resumption in (Resumption.NONE, Resumption.EARLY_DATA)]
    rows = pl.concat([*whole, late.filter(pl.col("error").is_not_null())])
    return in_rtts(rows.with_columns(series=series), rtts, ["total_ms"])
