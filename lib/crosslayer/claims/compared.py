"""Comparison of the verdicts of two campaigns, e.g. one in real time and one in virtual time."""

from __future__ import annotations

import polars as pl

from crosslayer.claims.rules import Verdict

_OURS = ("verdict", "ours", "low", "high")


def compared(verdicts: pl.DataFrame, others: pl.DataFrame) -> pl.DataFrame:
    """Verdicts and values of the claims that both campaigns measured.

    Parameters
    ----------
    verdicts, others
        From `crosslayer.claims.check`.

    Returns
    -------
    polars.DataFrame
        claim_id, quantity, scope, unit; verdict, ours, low and high of the first campaign; verdict_other, ours_other,
        low_other and high_other of the second campaign; changed (whether the verdicts differ). Rows are in the order of
        `verdicts`.
    """
    measured = pl.col("verdict") != Verdict.NOT_MEASURED
    one = verdicts.filter(measured).select("claim_id", "quantity", "scope", "unit", *_OURS)
    other = others.filter(measured).select("claim_id", *_OURS)
    both = one.join(other, on="claim_id", suffix="_other", maintain_order="left")
    return both.with_columns(changed=pl.col("verdict") != pl.col("verdict_other"))
