"""Valid rows of a dataset, and counts of failed rows."""

from __future__ import annotations

import polars as pl

from crosslayer.campaign.dataset import busy
from crosslayer.vocabulary import Role

CELL = ("link", "page")
"""Columns that name a cell."""

ROUND = ("campaign", "round", "host", "link", "page")
"""Columns that name one round of a cell: rows with equal values are paired. One host measures all of a round."""

CLUSTER = ROUND[:3]
"""Columns that name the unit of resampling: a round of a host."""

# In an imported campaign, which has no server log, both columns are null, and the requested condition counts.
_UNPROVEN = (pl.col("h3") == "0-rtt") & ~pl.col("early_data_accepted").fill_null(pl.col("session_resumed").is_null())

_LOADS = {"1-rtt": "H3 1-RTT", "0-rtt": "H3 0-RTT"}
"""Names of page loads by handshake, for tables that contain exchanges too."""


def exchanges(table: pl.LazyFrame, *, resumption: str = "none") -> pl.LazyFrame:
    """Successful rows of `dns_exchanges`; exchanges that only fetched a ticket are left out."""
    return table.filter(
        pl.col("resumption") == resumption,
        pl.col("role") == Role.MEASURED,
        pl.col("error").is_null(),
    )


def tcp_rtts(table: pl.LazyFrame) -> pl.LazyFrame:
    """Rows of successful TCP connects; the columns are those of the table `tcp_rtts`."""
    return table.filter(pl.col("error").is_null())


def page_loads(
    table: pl.LazyFrame, *, condition: str | None = "main", role: Role | None = Role.MEASURED
) -> pl.LazyFrame:
    """Successful rows of `page_loads`, with the column `connect_duration_ms`.

    If `condition` is None, loads of every condition are selected; if `role` is None, loads of every role.
    `connect_duration_ms` is `connectEnd - connectStart`, as in TNSM24 section IV-A. A load counts as H3 0-RTT only if
    the server log confirms that its request was early data. In an imported campaign, which has no server log, the
    requested handshake counts. For live pages, the column `resolver` replaces the link.
    """
    asked = {"condition": condition, "role": role}
    wanted = {name: value for name, value in asked.items() if value is not None}
    return table.filter(pl.col("error").is_null(), ~_UNPROVEN, **wanted).with_columns(
        (pl.col("connect_ms") - pl.col("connect_start_ms")).alias("connect_duration_ms"),
        link=pl.coalesce("^resolver$", "link"),
    )


def resolved_loads(table: pl.LazyFrame) -> pl.LazyFrame:
    """Successful rows of the table `resolved_loads`, with all its columns.

    Rows whose condition the server log does not confirm have an error, and are therefore left out.
    """
    return table.filter(pl.col("error").is_null())


def failures(
    dns_exchanges: pl.LazyFrame,
    tcp_rtts: pl.LazyFrame,
    page_loads: pl.LazyFrame,
    host_load: pl.LazyFrame | None = None,
) -> pl.LazyFrame:
    """Attempted and failed observations by condition and link, and rounds in which the machine was too busy.

    Returns
    -------
    polars.LazyFrame
        condition (e.g. `DoQ`, `TCP RTT`, `H3 0-RTT`; `round` for the rounds of `host_load`, which fail if the machine
        was too busy), link, attempted, failed (counts), reason (the most frequent one).
    """
    parts = [
        dns_exchanges.filter(pl.col("role") == Role.MEASURED).select("link", "error", condition=pl.col("protocol")),
        tcp_rtts.select("link", "error", condition=pl.lit("TCP RTT")),
        page_loads.filter(condition="main", role=Role.MEASURED).select(
            "link",
            pl.when(_UNPROVEN)
            .then(pl.coalesce("error", pl.lit("the server saw no early data")))
            .otherwise("error")
            .alias("error"),
            condition=pl.col("h3"),
        ),
    ]
    if host_load is not None:
        starved = busy(host_load).select(*ROUND, error=pl.lit("the machine was busy with something else"))
        parts.append(host_load.join(starved, on=ROUND, how="left").select("link", "error", condition=pl.lit("round")))
    failed = pl.col("error").is_not_null()
    often = failed & (pl.col("n") == pl.col("n").filter(failed).max())
    return (
        pl.concat(parts)
        .group_by("condition", "link", "error")  # counted in two steps, so that no row is kept
        .agg(n=pl.len())
        .with_columns(condition=pl.col("condition").replace(_LOADS))
        .group_by("condition", "link")
        .agg(
            attempted=pl.col("n").sum(),
            failed=pl.col("n").filter(failed).sum(),
            reason=pl.col("error").filter(often).min(),
        )
        .sort("condition", "link")
    )
