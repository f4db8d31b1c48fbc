"""The emulated link: its nominal and measured values, and times as multiples of its RTT."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl


def nominal_rtts(link_checks: pl.LazyFrame) -> pl.LazyFrame:
    """Nominal RTT of each link of `link_checks`: link, nominal_rtt_ms; sorted by RTT, then by name.

    A link without delay (`local`) is left out, because a time cannot be a multiple of 0 ms.
    """
    return (
        link_checks.filter(pl.col("nominal_rtt_ms") > 0)
        .group_by("link")
        .agg(pl.col("nominal_rtt_ms").median())
        .sort("nominal_rtt_ms", "link")
    )


def in_force(link_checks: pl.LazyFrame) -> pl.LazyFrame:
    """The last check of each round and cell: only this check describes the link during the measurement.

    The rows of `link_checks` must be in the order of time.
    """
    codes = (pl.col(name).cast(pl.Categorical).to_physical() for name in ("campaign", "link", "page"))
    # Numbers instead of names, because there may be millions of rows.
    return link_checks.filter(pl.struct("round", *codes).is_last_distinct())


def without_loss(rows: pl.LazyFrame, link_checks: pl.LazyFrame) -> pl.LazyFrame:
    """Rows of the links whose profile loses no packets."""
    return rows.join(
        link_checks.filter(pl.col("nominal_loss_percent") > 0), on="link", how="anti", maintain_order="left"
    )


def in_rtts(frame: pl.LazyFrame, rtts: pl.LazyFrame, columns: Sequence[str]) -> pl.LazyFrame:
    """Add times as multiples of the link's nominal RTT: for each column `X_ms` a column `X_rtt`.

    Rows of links without an RTT are left out. `rtts` is the result of `nominal_rtts`.
    """
    multiples = [(pl.col(name) / pl.col("nominal_rtt_ms")).alias(f"{name.removesuffix('_ms')}_rtt") for name in columns]
    return frame.join(rtts, on="link").with_columns(multiples)


def link_table(link_checks: pl.LazyFrame) -> pl.LazyFrame:
    """Nominal and measured values of each link (TNSM24 Table II, measured).

    Returns
    -------
    polars.LazyFrame
        link, quantity (`RTT`, `down`, `up`), unit, nominal, median, low, high (minimum and maximum of the checks),
        checks (number of checks that measured the quantity), failed (checks with a verdict other than `pass`). A failed
        check that was repeated after a new calibration is counted in `failed`, but in no other column.
    """
    quantities = {
        "RTT": ("rtt_ms", "nominal_rtt_ms", "ms"),
        "down": ("down_mbit", "nominal_down_mbit", "Mbit/s"),
        "up": ("up_mbit", "nominal_up_mbit", "Mbit/s"),
    }
    failed = link_checks.group_by("link").agg(failed=(pl.col("verdict") != "pass").sum())
    of_quantities = {
        quantity: pl.struct(
            unit=pl.lit(unit),
            nominal=pl.col(nominal).median(),
            median=pl.col(measured).median(),
            low=pl.col(measured).min(),
            high=pl.col(measured).max(),
            checks=pl.col(measured).count(),
        )
        for quantity, (measured, nominal, unit) in quantities.items()
    }
    rows = (
        in_force(link_checks)
        .group_by("link")
        .agg(**of_quantities, order=pl.col("nominal_rtt_ms").median())
        .unpivot(list(quantities), index=["link", "order"], variable_name="quantity", value_name="of_quantity")
        .unnest("of_quantity")
        .join(failed, on="link", how="left", maintain_order="left")
    )
    order = pl.col("quantity").replace_strict({name: at for at, name in enumerate(quantities)}, return_dtype=pl.Int8)
    return rows.sort("order", "link", order).select("link", pl.exclude("link", "order"))
