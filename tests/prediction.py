"""Predict times of lookups and page loads from the measured times of a resolver, and compare with the real times.

`python -m tests.prediction` prints a table. Everything runs in virtual time. First, `crosslayer compare` measures two
resolvers in a box. Then kdig and curl run in the box with these resolvers: their times are the real ones. The same
commands also run with emulations of the resolvers (`crosslayer link --resolver-like`): their times are the predicted
ones.

A page is one document. kdig resolves its name over DoH at the resolver, then curl loads it over HTTP/2. The time of a
page is the time of both programs; computing takes no virtual time. curl does not resolve the name itself, because it
may wait up to a second before it uses an answer over DoH.

`prediction.py ask ADDRESS HIT MISS PAGE TIMES` runs kdig and curl and prints their times as JSON. The arguments are
those of `ask`.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

BOX = """
[zone]
name = "box.example"
rtt_ms = 60
[[origin]]
name = "www.origin.test"
rtt_ms = 20
[[resolver]]
name = "steady"
rtt_ms = 30
[[resolver]]
name = "uneven"       # packets towards the client have a random delay
rtt_ms = 45
jitter_ms = 3
"""
LINK = "rtt-20"
RESOLVERS = ("steady", "uneven")
SEEDS, TIMES = 4, 3
"""Number of runs of each emulation, one per seed, and repetitions of each query per run.

In the box there is one run per resolver, with SEEDS x TIMES repetitions.
"""
TRANSPORTS = {"DoUDP": [], "DoTCP": ["+tcp"], "DoT": ["+tls"], "DoH": ["+https"], "DoQ": ["+quic"]}
_TOOK = re.compile(r"in ([0-9.]+) ms")

Times = dict[str, list[float]]
"""Times by kind of query or page, ms."""


def ask(address: str, hit: str, miss: str, page: str, times: int) -> Times:
    """Run kdig and curl in the client's namespace; returns their times.

    Parameters
    ----------
    address
        Address of the resolver.
    hit
        Name that is in the resolver's cache after the first query.
    miss
        Name that is not in the cache: `{}` is replaced by a new label for each query.
    page
        URL of the document.
    times
        Repetitions of each query and page load.
    """
    taken: Times = defaultdict(list)
    _kdig(address, hit, [])
    for number in range(times):
        for transport, options in TRANSPORTS.items():
            taken[f"{transport}, in the cache"].append(_kdig(address, hit, options))
            taken[f"{transport}, not in the cache"].append(
                _kdig(address, miss.format(f"{transport.lower()}{number}"), options)
            )
    command = ["curl", "-s", "-o", os.devnull, "--cacert", os.environ["CROSSLAYER_CA"]]
    for number in range(times + 1):
        kind = "page, name in the cache" if number else "page, name not in the cache"
        started = time.monotonic()
        answer = _output(["kdig", "+short", f"@{address}", "+https", urlsplit(page).hostname or "", "A"])
        _output([*command, "--resolve", f"{urlsplit(page).hostname}:443:{answer.splitlines()[-1]}", page])
        taken[kind].append((time.monotonic() - started) * 1e3)
    return taken


def _kdig(address: str, name: str, options: list[str]) -> float:
    command = ["kdig", f"@{address}", *options, name, "A"]
    output = _output(command)
    match = _TOOK.search(output)
    assert match, output
    return float(match[1])


def _output(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@dataclass(frozen=True, slots=True)
class Prediction:
    """Predicted and real times of one kind of query or page at a resolver."""

    resolver: str
    what: str
    real: list[float]
    predicted: list[float]

    @property
    def error_ms(self) -> float:
        """Median of the predicted times minus median of the real times, ms."""
        return statistics.median(self.predicted) - statistics.median(self.real)


def measure(folder: Path, seeds: int = SEEDS) -> list[Prediction]:
    """Measure the resolvers, then determine the real and the predicted times. Each run has its own guest.

    The dataset of the resolvers is `folder`/measured.
    """
    box, dataset = folder / "box.toml", folder / "measured"
    box.write_text(BOX, encoding="ascii")
    in_box = ["box", str(box), "--clock", "virtual", "--writable", str(folder), "--"]
    program = [sys.executable, str(Path(__file__).resolve()), "ask"]
    compare = [sys.executable, "-m", "crosslayer", "compare", "--name", "a.box.example", "--zone", "box.example"]
    run(*in_box, *compare, "--rate", "50", "--rounds", "12", "--all", "--dataset", str(dataset))

    def real_of(number: int, name: str) -> Times:
        asked = [f"198.18.{number}.53", "a.box.example", "{}.box.example"]
        return parsed(run(*in_box, *program, *asked, "https://www.origin.test/", str(seeds * TIMES)))

    def predicted_of(name: str, seed: int) -> Times:
        like = ["link", "--clock", "virtual", LINK, "--resolver-like", f"{dataset}:{name}", "--seed", str(seed), "--"]
        asked = ["$CROSSLAYER_RESOLVER", "www.wikipedia.org", "{}.example"]
        return parsed(run(*like, *program, *asked, "https://www.example.org/", str(TIMES)))

    with ThreadPoolExecutor(2) as pool:
        real = [pool.submit(real_of, number, name) for number, name in enumerate(RESOLVERS, start=1)]
        runs = {name: [pool.submit(predicted_of, name, seed) for seed in range(seeds)] for name in RESOLVERS}
        return [
            Prediction(name, what, some, [ms for run in runs[name] for ms in run.result()[what]])
            for name, asked in zip(RESOLVERS, real, strict=True)
            for what, some in asked.result().items()
        ]


def run(*arguments: str) -> str:
    """Run `crosslayer`; returns its standard output. `SystemExit` if it fails."""
    command = [sys.executable, "-m", "crosslayer", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)}: {done.stderr}")
    return done.stdout


def parsed(printed: str) -> Times:
    """Times from the last line of the output of `ask`."""
    times: Times = json.loads(printed.splitlines()[-1])
    return times


def table(predictions: list[Prediction]) -> str:
    """Markdown table: medians and 90th percentiles of the real and the predicted times."""
    lines = [
        "| resolver | asked | real, median, ms | predicted, ms | difference, ms | real, P90, ms | predicted, ms |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    for one in predictions:
        medians = [statistics.median(some) for some in (one.real, one.predicted)]
        tails = [sorted(some)[int(0.9 * (len(some) - 1))] for some in (one.real, one.predicted)]
        numbers = (*(f"{value:.1f}" for value in medians), f"{one.error_ms:+.1f}", *(f"{value:.1f}" for value in tails))
        lines.append(f"| {one.resolver} | {one.what} | {' | '.join(numbers)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    if sys.argv[1:2] == ["ask"]:
        print(json.dumps(ask(*sys.argv[2:6], int(sys.argv[6]))))
    else:
        with tempfile.TemporaryDirectory() as name:
            print(table(measure(Path(name))))
