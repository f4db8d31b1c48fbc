"""The load procedure: loads an hour, 0-RTT by the server's word, how much earlier its response starts, the A/A test.

    python -m tests.benchmarks.bench_loads [--write] [--rounds 45] [--links fiber,4g,dsl]

Must hold (issue "the main job"): at least 1,500 measured loads an hour for example.org on fiber, its DNS exchanges
included; at least 99 % of the loads meant to be 0-RTT are; their response starts earlier by 0.75 RTT on fiber and
0.95 RTT on 4G; the 95 % interval of the paired A/A difference of PLT lies within -3 % to +3 %.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from crosslayer import metrics
from crosslayer.links import load_profiles
from tests.benchmarks._common import report

KEYS = ["round", "link", "page"]
_CHECKS = 4  # three kinds of load and the negative control


def campaign(folder: Path, link: str, rounds: int) -> pl.DataFrame:
    """Measure example.org on one link, with a self-check in every round; the loads of the dataset."""
    plan = folder.with_suffix(".toml")
    options = f"[options]\naa_period = {_CHECKS}\n"
    plan.write_text(f'links = ["{link}"]\npages = ["example.org"]\nrounds = {rounds}\n{options}', encoding="utf-8")
    command = [sys.executable, "-m", "crosslayer", "measure", "--plan", str(plan), "--out", str(folder)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return pl.read_parquet(folder / "page_loads/**/*.parquet")


def pairs(loads: pl.DataFrame, one: pl.Expr, other: pl.Expr, column: str) -> pl.Series:
    """`one` minus `other` of a column within each round."""
    good = loads.filter(pl.col("error").is_null())
    both = good.filter(one).join(good.filter(other), on=KEYS, suffix="_other")
    return both[column] - both[f"{column}_other"]


def interval(values: list[float]) -> tuple[float, float]:
    """95 % bootstrap interval of the median of paired differences (percentile method, resampling rounds)."""
    draw = np.random.default_rng(1)
    medians = np.median(draw.choice(np.array(values), (10_000, len(values))), axis=1)
    low, high = np.quantile(medians, [0.025, 0.975])
    return float(low), float(high)


def main() -> None:
    """Run one campaign per link and read the numbers off it."""
    rounds = int(sys.argv[sys.argv.index("--rounds") + 1]) if "--rounds" in sys.argv else 45
    links = sys.argv[sys.argv.index("--links") + 1].split(",") if "--links" in sys.argv else ["fiber", "4g", "dsl"]
    profiles = load_profiles()
    main_1, main_0 = (
        (pl.col("condition") == "main") & (pl.col("role") == "measured") & (pl.col("h3") == name)
        for name in ("1-rtt", "0-rtt")
    )
    result: dict[str, Any] = {"rounds": rounds, "links": {}}
    with tempfile.TemporaryDirectory() as folder:
        for link in links:
            loads = campaign(Path(folder) / link, link, rounds)
            zero = loads.filter(main_0)
            seconds = loads["started_s"].max() - loads["started_s"].min()  # type: ignore[operator]
            earlier = pairs(loads, main_1, main_0, "response_start_ms")
            saved = pairs(loads, main_1, main_0, "plt_ms")
            checked = metrics.self_checked(metrics.Cells([metrics.loads_by_kind(loads.lazy())]))
            of_aa = [pairs for (series, *_), pairs in checked.items() if series.startswith("A/A")]
            same = pl.Series(np.concatenate([pairs.first - pairs.second for pairs in of_aa]))
            low, high = interval(same.to_list())
            result["links"][link] = {
                "loads": loads.height,
                "failed": loads.filter(pl.col("error").is_not_null()).height,
                "loads_per_hour": round((loads.height - 1) / seconds * 3600),
                "zero_rtt_by_the_servers_word": zero.filter(pl.col("early_data_accepted")).height / zero.height,
                "response_start_earlier_rtt": round(earlier.median() / profiles[link].rtt_ms, 3),  # type: ignore[operator]
                "plt_saved_ms": round(saved.median(), 2),  # type: ignore[arg-type]
                "plt_1rtt_ms": round(loads.filter(main_1)["plt_ms"].median(), 2),  # type: ignore[arg-type]
                "plt_0rtt_ms": round(loads.filter(main_0)["plt_ms"].median(), 2),  # type: ignore[arg-type]
                "aa_pairs": len(same),
                "aa_difference_percent": round(same.median(), 2),  # type: ignore[arg-type]
                "aa_interval_percent": [round(low, 2), round(high, 2)],
            }
    report("loads", result)


if __name__ == "__main__":
    main()
