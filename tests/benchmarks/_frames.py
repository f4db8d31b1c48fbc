"""The frame work of the study twice: with the library (polars), and the same work written in pandas.

    python -m tests.benchmarks._frames compare FOLDER RUNS     both in turn: seconds of each, and how far they differ
    python -m tests.benchmarks._frames stream FOLDER           the library alone, link by link

Frame work is: load the tables, choose the rows that count, join exchanges and loads to PLTs, normalise (multiples of
the RTT; percent over the baseline's median), quantiles of every group, and the interval of each median by order
statistics, which needs no bootstrap. Prints one line of JSON.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

from crosslayer import metrics
from crosslayer.campaign.dataset import Dataset

EXCHANGE, INCREASE = ["link", "protocol"], ["link", "page", "combination"]
LEVELS = {"p5": 0.05, "p25": 0.25, "median": 0.5, "p75": 0.75, "p95": 0.95}
COLUMNS = ["n", "min", *LEVELS, "max", "low", "high"]


def with_polars(dataset: Dataset, *, by_link: bool = False) -> list[pl.DataFrame]:
    """Exchanges in multiples of the RTT, and relative PLT increases: one row per group, columns as `COLUMNS`.

    All links at once, or one link after the other as the figures do, so that a campaign of any size fits in memory.
    """
    rtts = metrics.nominal_rtts(dataset.table("link_checks"))
    exchanges = metrics.exchanges(dataset.table("dns_exchanges"))
    loads = metrics.page_loads(dataset.table("page_loads"))
    parts = []
    for one in [pl.col("link") == link for link in dataset.campaign.links] if by_link else [pl.lit(True)]:
        in_rtts = metrics.in_rtts(exchanges.filter(one), rtts, ["total_ms"])
        increases = metrics.relative_increase(metrics.combine(exchanges.filter(one), loads.filter(one)))
        of_link = [
            metrics.summary(in_rtts, "total_rtt", EXCHANGE),
            metrics.summary(increases, "increase_percent", INCREASE),
        ]
        parts.append(pl.collect_all(of_link, engine="streaming"))
    return [pl.concat(frames) for frames in zip(*parts, strict=True)]


def with_pandas(dataset: Dataset) -> list[Any]:
    """The same."""
    import numpy as np
    import pandas as pd

    def table(name: str, columns: list[str]) -> Any:
        parts = [
            pd.read_parquet(path, columns=columns, partitioning=None)
            for path in sorted((dataset.folder / name).glob("link=*/*.parquet"))
        ]
        return pd.concat(parts, ignore_index=True)

    def ends(values: Any) -> Any:
        n = len(values)
        beyond = max(0, int((n - 1.96 * n**0.5 - 1) // 2))
        return np.sort(values.to_numpy())[[beyond, n - 1 - beyond]]

    def summary(frame: Any, value: str, by: list[str]) -> Any:
        groups = frame.groupby(by, observed=True)[value]
        result = groups.agg(n="count", min="min", max="max")
        result[list(LEVELS)] = groups.quantile(list(LEVELS.values())).unstack()
        result[["low", "high"]] = groups.apply(ends).to_list()
        return result.reset_index()

    cell = ["link", "page"]
    round_ = ["campaign", "round", *cell]
    chosen = ["study", "error"]
    exchanges = table("dns_exchanges", [*round_, *chosen, "protocol", "resumption", "role", "total_ms"])
    exchanges = exchanges[
        (exchanges["study"] == "coalescing")
        & (exchanges["resumption"] == "none")
        & ~exchanges["role"].fillna(False).astype(bool)
        & exchanges["error"].isna()
    ]
    evidence = ["early_data_accepted", "session_resumed"]
    loads = table("page_loads", [*round_, *chosen, "condition", "role", "h3", *evidence, "plt_ms"])
    proven = loads["early_data_accepted"].fillna(loads["session_resumed"].isna()).astype(bool)
    loads = loads[
        (loads["study"] == "coalescing")
        & (loads["condition"] == "main")
        & (loads["role"] == "measured")
        & loads["error"].isna()
        & ((loads["h3"] != "0-rtt") | proven)
    ]
    rtts = table("link_checks", ["link", "nominal_rtt_ms"]).groupby("link")["nominal_rtt_ms"].median()
    exchanges = exchanges.assign(total_rtt=exchanges["total_ms"] / exchanges["link"].map(rtts))

    plts = exchanges[[*round_, "protocol", "total_ms"]].merge(loads[[*round_, "h3", "plt_ms"]], on=round_)
    plts["combination"] = plts["protocol"] + " + H3 " + plts["h3"].str.upper()
    plts["plt_ms"] += plts["total_ms"]
    shown = ["DoUDP + H3 1-RTT", "DoQ + H3 0-RTT", "DoQ + H3 1-RTT", "DoH + H3 1-RTT"]
    plts = plts[plts["combination"].isin(shown)]
    baseline = plts[plts["combination"] == shown[0]].groupby(cell)["plt_ms"].median().rename("baseline_ms")
    plts = plts.merge(baseline, left_on=cell, right_index=True)
    plts["increase_percent"] = (plts["plt_ms"] / plts["baseline_ms"] - 1) * 100
    return [summary(exchanges, "total_rtt", EXCHANGE), summary(plts, "increase_percent", INCREASE)]


def timed(work: Callable[[Any], Any], argument: Any) -> tuple[float, Any]:
    """Seconds, and what came out."""
    begin = time.perf_counter()
    result = work(argument)
    return time.perf_counter() - begin, result


def compare(folder: Path, runs: int) -> dict[str, Any]:
    """Both in turn, `runs` times each after one that warms up; results must agree.

    The checks at the dataset's door come before and count on neither side: pandas has nothing like them.
    """
    import numpy as np

    checks_s, dataset = timed(Dataset.open, folder)
    greatest = 0.0
    for one, other, by in zip(with_polars(dataset), with_pandas(dataset), (EXCHANGE, INCREASE), strict=True):
        result, expected = one.sort(by), other.sort_values(by)
        assert result.select(by).rows() == list(expected[by].itertuples(index=False, name=None))
        ours, others = result.select(COLUMNS).to_numpy(), expected[COLUMNS].to_numpy()
        np.testing.assert_allclose(ours, others, rtol=1e-9, atol=1e-9)
        greatest = max(greatest, float(np.max(np.abs(ours - others))))
    seconds: dict[str, list[float]] = {"polars": [], "pandas": []}
    for _ in range(runs):
        seconds["polars"].append(timed(with_polars, dataset)[0])
        seconds["pandas"].append(timed(with_pandas, dataset)[0])
    polars_s, pandas_s = (statistics.median(seconds[name]) for name in ("polars", "pandas"))
    return {
        "polars_seconds": round(polars_s, 3),
        "pandas_seconds": round(pandas_s, 3),
        "times_as_fast": round(pandas_s / polars_s, 2),
        "runs": runs,
        "greatest_difference": greatest,
        "checks_seconds": round(checks_s, 3),
    }


def stream(folder: Path) -> dict[str, Any]:
    """The library alone, its checks included."""
    checks_s, dataset = timed(Dataset.open, folder)
    seconds, result = timed(lambda whole: with_polars(whole, by_link=True), dataset)
    groups = sum(frame.height for frame in result)
    return {"checks_seconds": round(checks_s, 1), "frames_seconds": round(seconds, 1), "groups": groups}


if __name__ == "__main__":
    what, where, *number = sys.argv[1:]
    print(json.dumps({"compare": compare, "stream": stream}[what](Path(where), *map(int, number))))
