"""The A/A test of the load procedure, with as many pairs as it takes: two alias hosts, both H3 1-RTT, nothing to find.

    python -m tests.benchmarks.bench_aa [--write] [--pairs 400] [--seconds 900]

Must hold (issue "the main job"): the 95 % interval of the paired PLT difference on fiber lies within -3 % to +3 %.
One load of example.org varies by several milliseconds on a shared machine; 40 pairs are then too few for that width.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from functools import partial

import numpy as np

from crosslayer import pages
from crosslayer.browser import Browser, find_browser, launch
from crosslayer.campaign.instruments import LOADS_PER_PROCESS
from crosslayer.links import load_profiles
from crosslayer.testbed import namespaces
from crosslayer.testbed.testbed import Testbed
from tests.benchmarks._common import option, paired_difference, report


def main() -> None:
    """Load pair after pair, each in random order, and say how far the two hosts are apart."""
    namespaces.enter([sys.executable, "-m", "tests.benchmarks.bench_aa", *sys.argv[1:]])
    pairs, seconds = option("--pairs", 400), option("--seconds", 900)
    specs = pages.load_pages(pages.find_spec_dir())
    page = specs["example.org"]
    draw = random.Random(1)
    plt_ms: dict[str, list[float]] = {alias: [] for alias in page.aliases[:2]}
    begin = time.monotonic()
    with Testbed() as testbed, testbed.serve(specs, resolved=[page.name, "warmup"]) as (server, addresses):
        verdict = testbed.set_link(load_profiles()["fiber"]).verdict
        programs = find_browser()
        processes = 0
        while len(plt_ms[page.aliases[0]]) < pairs and time.monotonic() - begin < seconds:
            processes += 1
            folder = testbed.folder / f"aa-{processes}"
            with launch(programs, folder=folder, addresses=addresses, certificates=server.certificates) as browser:

                def load(alias: str, browser: Browser = browser) -> float:
                    close = partial(server.close_connections, "h3")
                    load = browser.load(page.host, prime_host=alias, close_connections=close)
                    return float(load.navigation["loadEventStart"])

                load(page.aliases[0])  # the first of a process is not recorded
                while browser.loads < LOADS_PER_PROCESS:
                    for alias in draw.sample(page.aliases[:2], 2):
                        plt_ms[alias].append(load(alias))
    first, second = (np.array(plt_ms[alias]) for alias in page.aliases[:2])
    level = float(np.median(np.concatenate([first, second])))
    estimate, low, high = paired_difference(first - second)
    quartiles = statistics.quantiles([*first, *second], n=4)
    report(
        "aa",
        {
            "link": verdict,
            "pairs": len(first),
            "plt_ms": round(level, 2),
            "plt_interquartile_ms": [round(quartiles[0], 1), round(quartiles[2], 1)],
            "difference_percent": round(estimate / level * 100, 2),
            "interval_percent": [round(low / level * 100, 2), round(high / level * 100, 2)],
        },
    )


if __name__ == "__main__":
    main()
