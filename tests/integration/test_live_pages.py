"""`crosslayer measure --study web --sites` in the Internet in a box, compared with the box's paths.

This file is also the program that runs in the box: `test_live_pages.py FOLDER`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

from crosslayer.campaign.dataset import Dataset
from tests.integration.conftest import CROSSLAYER, Run

ROOT = Path(__file__).parents[2]
BOX = """
[zone]
name = "box.example"
[[origin]]
name = "www.shop.example"
rtt_ms = 24
[[resolver]]
name = "near"
rtt_ms = 10
transports = ["doudp", "doh", "doq"]
[[resolver]]
name = "far"
rtt_ms = 60
transports = ["doudp", "doh", "doq"]
"""
SITES = "# in the box\nhttps://www.shop.example/\nhttps://missing.example/  # no such name\n"
ORIGIN_MS = 24
RESOLVER_MS = {"near": 10, "far": 60}
ROUND_TRIPS = {"DoUDP": 1, "DoH": 3, "DoQ": 2}
"""Of a lookup on a new connection with a resumed session."""
HIT_ROUND_TRIPS = 3
"""Of the page on a new connection: TCP, TLS, request."""
ROUNDS = 2


def measured(folder: Path) -> None:
    """Kill the command with SIGKILL after its first finished round of a page, then give it again."""
    from crosslayer.campaign.store import Store

    sites, out = folder / "sites.txt", folder / "live"
    sites.write_text(SITES, encoding="utf-8")
    command = [*CROSSLAYER, "measure", "--study", "web", "--sites", str(sites), "--rounds", str(ROUNDS)]
    command += ["--out", str(out)]
    log = folder / "killed.log"
    with log.open("wb") as shown, subprocess.Popen(command, stdout=shown, stderr=shown) as process:
        while b" 1/4 " not in log.read_bytes():
            assert process.poll() is None, log.read_text(encoding="utf-8")
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
    with Store(out) as store:
        kept = [row["started_s"] for row in store.rows("page_loads", "host-1")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    result = {"kept": kept, "status": done.returncode, "output": done.stdout, "error": done.stderr[-2000:]}
    print(json.dumps(result))


def check_times(dataset: Dataset) -> None:
    loads = dataset.table("page_loads").filter(page="www.shop.example").collect()
    assert len(loads) == ROUNDS * len(RESOLVER_MS) * len(ROUND_TRIPS)
    for row in loads.iter_rows(named=True):
        lookup_ms = ROUND_TRIPS[row["dns_protocol"]] * RESOLVER_MS[row["resolver"]]
        assert row["error"] is None
        assert row["stub_lookup_ms"] == pytest.approx(lookup_ms, abs=0.2)
        assert row["plt_ms"] == pytest.approx(lookup_ms + HIT_ROUND_TRIPS * ORIGIN_MS, abs=0.5)
        assert row["plt_ms"] <= row["fcp_ms"] <= row["plt_ms"] + 20  # the next frame
        assert (row["lookup_count"], row["document_protocol"]) == (1, "h2")
    lookups = dataset.table("lookups").collect()
    assert set(lookups["page"]) == {"www.shop.example"}
    assert set(lookups["type"]) == {"A", "AAAA", "HTTPS"}
    resumed = lookups.filter(pl.col("dns_protocol") != "DoUDP")["session_resumed"]
    assert resumed.all()


def check_failures(dataset: Dataset) -> None:
    loads = dataset.table("page_loads").filter(page="missing.example").collect()
    assert len(loads) == ROUNDS * len(RESOLVER_MS) * len(ROUND_TRIPS)
    assert all("ERR_NAME_NOT_RESOLVED (lookup: rcode NXDOMAIN)" in error for error in loads["error"])


def check_resumed(kept: list[float], dataset: Dataset) -> None:
    loads = dataset.table("page_loads").collect()
    of_round = len(RESOLVER_MS) * len(ROUND_TRIPS)
    assert len(kept) in range(of_round, len(loads), of_round)
    assert set(kept) <= set(loads["started_s"])
    assert loads.select("round", "page", "resolver", "dns_protocol").is_duplicated().sum() == 0
    assert len(loads) == 2 * ROUNDS * of_round


def check_printed(output: str) -> None:
    lines = [line.split() for line in output.splitlines()]
    for resolver, rtt_ms in RESOLVER_MS.items():
        for transport, round_trips in ROUND_TRIPS.items():
            (line,) = (line for line in lines if line[:3] == ["www.shop.example", resolver, transport])
            if transport != "DoUDP":
                assert float(line[7]) == pytest.approx((round_trips - 1) * rtt_ms, abs=0.5)


@pytest.mark.usefixtures("browser_machine")
def test_live_pages(crosslayer: Run, virtual_clock: list[str], tmp_path: Path) -> None:
    box = tmp_path / "box.toml"
    box.write_text(BOX, encoding="utf-8")
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
    }
    options = ["--clock", "virtual", "--writable", str(tmp_path)]
    done = crosslayer("box", str(box), *options, "--", sys.executable, __file__, str(tmp_path), env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout)
    assert result["status"] == 0, result["error"]
    dataset = Dataset.open(tmp_path / "live")
    check_times(dataset)
    check_failures(dataset)
    check_resumed(result["kept"], dataset)
    check_printed(result["output"])


if __name__ == "__main__":
    measured(Path(sys.argv[1]))
