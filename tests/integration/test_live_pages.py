"""`crosslayer measure --study web --sites` in a box (emulated Internet): times are those of the box's paths.

This file is also the program that runs in the box: `test_live_pages.py SCENARIO FOLDER`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from crosslayer.campaign.dataset import Dataset
from tests.integration.conftest import CROSSLAYER, Run

ROOT = Path(__file__).parents[2]
BOX = ROOT / "emulation/boxes/sites.toml"
STOPS = """
[zone]
name = "box.example"
[[origin]]
name = "www.shop.example"
rtt_ms = 24
[[resolver]]
name = "stopping"
rtt_ms = 10
transports = ["doh"]
asks_to_stop = { after_queries = 10, answer = "403" }
[[resolver]]
name = "dead"
transports = ["doudp"]
dead = true
"""
SITES = "# in the box\nhttps://www.shop.example/\nhttps://missing.example/  # no such name\nhttp://www.shop.example/\n"
ORIGIN_MS = 24
RESOLVER_MS = {"near": 10, "far": 60}
ROUND_TRIPS = {"DoUDP": 1, "DoH": 3, "DoQ": 2}
"""Round-trips of a lookup on a new connection with a resumed session."""
HIT_ROUND_TRIPS = 3
"""Round-trips of the page on a new connection: TCP, TLS, request."""
ROUNDS = 2


def killed(folder: Path) -> None:
    """Kill the command with SIGKILL after its first finished round of a page, then run it again."""
    from crosslayer.campaign.store import Store

    sites, out = folder / "sites.txt", folder / "live"
    sites.write_text(SITES, encoding="utf-8")
    command = [*CROSSLAYER, "measure", "--study", "web", "--sites", str(sites), "--rounds", str(ROUNDS)]
    command += ["--out", str(out)]
    log = folder / "killed.log"
    with log.open("wb") as shown, subprocess.Popen(command, stdout=shown, stderr=shown) as process:
        while b" 1/6 " not in log.read_bytes():
            assert process.poll() is None, log.read_text(encoding="utf-8")
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
    with Store(out) as store:
        kept = [row["started_s"] for row in store.rows("page_loads", "host-1")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    result = {"kept": kept, "status": done.returncode, "output": done.stdout, "error": done.stderr[-2000:]}
    print(json.dumps(result))


def user(folder: Path) -> None:
    """Measure as an ordinary user, before and after the machine permits the stub's port."""
    sites = folder / "sites.txt"
    sites.write_text("https://www.shop.example/\n", encoding="utf-8")
    command = ["unshare", "--user", "--map-user=1000", "--map-group=1000", *CROSSLAYER, "measure", "--study", "web"]
    command += ["--sites", str(sites), "--resolver", "udp://198.18.1.53", "--rounds", "1", "--i-may-send-this"]
    command += ["--out", str(folder / "live")]
    result = {}
    for name, first_port in (("refused", 1024), ("done", 53)):
        Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").write_text(str(first_port), encoding="ascii")
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        result[name] = [done.returncode, done.stderr[-2000:], done.stdout]
    print(json.dumps(result))


def stops(folder: Path) -> None:
    """Measure four rounds, and then one more."""
    sites = folder / "sites.txt"
    sites.write_text("https://www.shop.example/\n", encoding="utf-8")
    base = [*CROSSLAYER, "measure", "--study", "web", "--sites", str(sites), "--out", str(folder / "live")]
    result = {}
    for rounds in ("4", "5"):
        done = subprocess.run([*base, "--rounds", rounds], capture_output=True, text=True, check=False)
        result[rounds] = [done.returncode, done.stderr[-2000:]]
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
    reasons = {
        "missing.example": "net::ERR_NAME_NOT_RESOLVED (lookup: rcode NXDOMAIN)",
        "http://www.shop.example": "net::ERR_CONNECTION_REFUSED",
    }
    for page, reason in reasons.items():
        errors = dataset.table("page_loads").filter(page=page).collect()["error"]
        assert len(errors) == ROUNDS * len(RESOLVER_MS) * len(ROUND_TRIPS)
        assert all(error.endswith(reason) for error in errors), page


def check_resumed(kept: list[float], dataset: Dataset) -> None:
    loads = dataset.table("page_loads").collect()
    of_round = len(RESOLVER_MS) * len(ROUND_TRIPS)
    assert len(kept) in range(of_round, len(loads), of_round)
    assert set(kept) <= set(loads["started_s"])
    assert loads.select("round", "page", "resolver", "dns_protocol").is_duplicated().sum() == 0
    assert len(loads) == 3 * ROUNDS * of_round


def check_printed(output: str) -> None:
    lines = [line.split() for line in output.splitlines()]
    for resolver, rtt_ms in RESOLVER_MS.items():
        for transport, round_trips in ROUND_TRIPS.items():
            (line,) = (line for line in lines if line[:3] == ["www.shop.example", resolver, transport])
            if transport != "DoUDP":
                assert float(line[7]) == pytest.approx((round_trips - 1) * rtt_ms, abs=0.5)


def in_box(run: Run, scenario: str, folder: Path, clock: str, box: Path = BOX, **variables: str) -> dict[str, Any]:
    """Result that a scenario prints in the box."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    options = ["--clock", clock, "--writable", str(folder)]
    program = [sys.executable, __file__, scenario, str(folder)]
    done = run("box", str(box), *options, "--", *program, env=os.environ | variables | {"PYTHONPATH": path})
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)  # type: ignore[no-any-return]


@pytest.mark.usefixtures("browser_machine")
def test_live_pages(crosslayer: Run, virtual_clock: list[str], tmp_path: Path) -> None:
    result = in_box(crosslayer, "killed", tmp_path, "virtual")
    assert result["status"] == 0, result["error"]
    dataset = Dataset.open(tmp_path / "live")
    check_times(dataset)
    check_failures(dataset)
    check_resumed(result["kept"], dataset)
    check_printed(result["output"])


@pytest.mark.usefixtures("browser_machine")
def test_who_asks_to_stop_and_who_is_silent(crosslayer: Run, virtual_clock: list[str], tmp_path: Path) -> None:
    box = tmp_path / "box.toml"
    box.write_text(STOPS, encoding="utf-8")
    result = in_box(crosslayer, "stops", tmp_path, "virtual", box)
    assert [code for code, _ in result.values()] == [0, 0], result
    loads = Dataset.open(tmp_path / "live").table("page_loads").sort("round").collect()
    stopping, dead = (loads.filter(resolver=name)["error"].to_list() for name in ("stopping", "dead"))
    assert stopping[0] is None
    assert "(lookup: http status 403)" in stopping[1]
    assert stopping[2:] == ["left alone: it answered with http status 403"] * 3
    assert all("(lookup: timeout)" in error for error in dead[:3])
    assert dead[3] == "not asked again: no answer in 3 successive loads"


@pytest.mark.usefixtures("browser_machine")
def test_an_ordinary_user_measures_outside(crosslayer: Run, tmp_path: Path) -> None:
    """In real time, because Chromium's sandbox does not work in a guest."""
    state = str(tmp_path / "state")
    result = in_box(crosslayer, "user", tmp_path, "wall", CROSSLAYER_BOX_IS_OUTSIDE="1", XDG_STATE_HOME=state)
    refused, done = result["refused"], result["done"]
    assert refused[0] == 1
    assert "127.0.53.1:53: cannot be bound (Permission denied)" in refused[1]
    assert "sudo sysctl net.ipv4.ip_unprivileged_port_start=53" in refused[1]
    assert done[0] == 0, done[1]
    assert "without its sandbox" not in done[2]
    loads = Dataset.open(tmp_path / "live").table("page_loads").collect()
    assert loads["error"].to_list() == [None]


if __name__ == "__main__":
    {"killed": killed, "stops": stops, "user": user}[sys.argv[1]](Path(sys.argv[2]))
