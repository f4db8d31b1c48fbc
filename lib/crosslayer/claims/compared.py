"""The verdicts of two campaigns side by side: of the same plan, or by two clocks."""

from __future__ import annotations

import polars as pl

from crosslayer.claims.rules import Verdict

_OURS = ("verdict", "ours", "low", "high")


def compared(verdicts: pl.DataFrame, others: pl.DataFrame) -> pl.DataFrame:
    """The claims that two campaigns have both measured.

    Parameters
    ----------
    verdicts, others
        From `crosslayer.claims.check`.

    Returns
    -------
    polars.DataFrame
        claim_id, quantity, scope, unit, verdict, ours, low, high, the same of the other campaign as `verdict_other`
        and so on, and changed (the verdict is another one); in the order of the first.
    """
    measured = pl.col("verdict") != Verdict.NOT_MEASURED
    one = verdicts.filter(measured).select("claim_id", "quantity", "scope", "unit", *_OURS)
    other = others.filter(measured).select("claim_id", *_OURS)
    both = one.join(other, on="claim_id", suffix="_other", maintain_order="left")
    return both.with_columns(changed=pl.col("verdict") != pl.col("verdict_other"))
