"""The procedure held against itself: loads that should be equal, how surely they are, and whether their spread is."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import polars as pl

from crosslayer.metrics.gathering import Frames, schema_of
from crosslayer.metrics.intervals import groups, rounds_of
from crosslayer.metrics.observations import CELL, ROUND, page_loads
from crosslayer.metrics.resampling import Reals, interval

EQUAL_PERCENT = 3.0
"""Differences of the median PLT that count as none."""

TEST_LEVEL = 0.9
"""An interval of 90 % within the margins is what two one-sided tests at 5 % each ask for (Schuirmann, 1987)."""

SELF_CHECKS = {
    "A/A: H3 1-RTT": (("1-rtt", "main"), ("1-rtt", "aa")),
    "A/A: H3 1-RTT, before": (("1-rtt", "aa-1"), ("1-rtt", "aa-2")),
    "A/A: H3 0-RTT with token": (("0-rtt", "main"), ("0-rtt", "aa")),
    "A/A: H3 0-RTT without token": (("0-rtt", "no-token"), ("0-rtt", "aa-no-token")),
    "Ticket refused - H3 1-RTT": (("1-rtt", "refused"), ("1-rtt", "main")),
}
"""Handshake and variant of each two loads of a round that should be equal; `before` is how older campaigns did it."""


def self_checked(table: pl.LazyFrame) -> pl.LazyFrame:
    """Pairs of loads of a round that should be equal, in percent of the median of their means in the cell.

    Takes `page_loads`; a load that was not what it was meant to be, by the server's word, counts in no pair.

    Returns
    -------
    polars.LazyFrame
        campaign, round, link, page, series (of `SELF_CHECKS`), first, second, difference.
    """
    known = sorted({variant for kinds in SELF_CHECKS.values() for _, variant in kinds})
    loads = page_loads(table.filter(pl.col("variant").is_in(known)), variant=None)
    # Read once, and with words as categories: ten times something is chosen of them and joined.
    columns = (*ROUND, "h3", "variant", "plt_ms")
    loads = loads.select(columns).with_columns(pl.col(pl.String).cast(pl.Categorical))
    loads = loads.collect(engine="streaming").lazy()
    parts = []
    for series, kinds in SELF_CHECKS.items():
        first, second = (
            loads.filter(pl.col("variant") == variant, pl.col("h3") == h3).select(*ROUND, pl.col("plt_ms").alias(name))
            for name, (h3, variant) in zip(("first", "second"), kinds, strict=True)
        )
        level = ((pl.col("first") + pl.col("second")) / 2).median().over(CELL)
        percents = {name: 100 * pl.col(name) / level for name in ("first", "second")}
        parts.append(first.join(second, on=ROUND).with_columns(**percents, series=pl.lit(series)))
    return pl.concat(parts).with_columns(difference=pl.col("first") - pl.col("second"))


def equivalence(frame: Frames, by: Sequence[str], margin: float = EQUAL_PERCENT) -> pl.DataFrame:
    """Whether the median of `difference` is none, by two one-sided tests, of rows of `self_checked`.

    Returns
    -------
    polars.DataFrame
        by..., n, median, low, high (90 % interval, rounds resampled), equal (the interval is within the margins; null
        where there are too few rounds for one), p (the larger of both one-sided tests), ks (greatest distance of the
        two distributions), ks_p (how often equal ones are as far apart). Percent of the PLT, shares of 1.
    """
    rows = []
    for key, group in groups(frame, ["difference", "first", "second"], by):
        rounds = rounds_of(group)
        sample = rounds.sample(group["difference"].to_numpy())
        draws = [sample.quantiles(0.5, weights) for weights in rounds.drawn()]
        low = high = equal = p = None
        if draws:
            medians = np.concatenate(draws)
            low, high = interval(medians, rounds.count, TEST_LEVEL)
            equal = -margin < low and high < margin
            p = float(max(np.mean(medians <= -margin), np.mean(medians >= margin)))
        apart = kolmogorov_smirnov(group["first"].to_numpy(), group["second"].to_numpy())
        rows.append((*key, sample.size, sample.quantile(0.5), low, high, equal, p, *apart))
    numbers = ("median", "low", "high", "equal", "p", "ks", "ks_p")
    schema: dict[str, pl.DataType] = schema_of(frame, by) | {"n": pl.Int64()}
    schema |= {name: pl.Boolean() if name == "equal" else pl.Float64() for name in numbers}
    return pl.DataFrame(rows, schema=schema, orient="row")


def kolmogorov_smirnov(one: Reals, other: Reals) -> tuple[float, float]:
    """Greatest distance of two empirical distributions, and how often two samples of one are as far apart.

    The asymptotic distribution with Stephens's correction (1970); with ties it errs towards "equal".
    """
    # In order, so that each is looked for near the one before; polars sorts twice as fast as numpy.
    first, second, both = (pl.Series(of).sort().to_numpy() for of in (one, other, np.concatenate([one, other])))
    shares = [np.searchsorted(of, both, side="right") / len(of) for of in (first, second)]
    distance = float(np.max(np.abs(shares[0] - shares[1])))
    size = math.sqrt(len(one) * len(other) / (len(one) + len(other)))
    reduced = (size + 0.12 + 0.11 / size) * distance
    if reduced < 0.2:
        return distance, 1.0  # the series does not converge, and its sum is 1 to twelve digits
    terms = ((-1) ** (k - 1) * math.exp(-2 * (k * reduced) ** 2) for k in range(1, 101))
    return distance, min(1.0, max(0.0, 2 * math.fsum(terms)))
