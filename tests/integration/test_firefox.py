"""Page loads in a real Firefox, by both clocks, confirmed by the server log."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from crosslayer.browser import find_browser
from crosslayer.campaign.dataset import Dataset
from crosslayer.dns import Protocol
from crosslayer.links import load_profiles
from tests.integration.conftest import CROSSLAYER
from tests.integration.test_web_loads import itself
from tests.integration.watching import Watch

pytestmark = pytest.mark.alone

ROOT = Path(__file__).resolve().parents[2]
MEASURE = ["measure", "--browser", "firefox", "--links", "4g", "--pages", "example.org", "--rounds", "2"]


def loads(folder: Path) -> pl.DataFrame:
    """The measured loads of the main condition of a campaign."""
    rows = Dataset.open(folder, every_round=True).table("page_loads").collect()
    return rows.filter(condition="main", role="measured").sort("round", "h3")


@pytest.fixture(scope="module")
def measured(firefox_machine: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Watch]:
    """Two rounds in real time, and the record of their effects on the host."""
    folder = tmp_path_factory.mktemp("firefox") / "data"
    watch = Watch(home := tmp_path_factory.mktemp("home"))
    command = [*CROSSLAYER, *MEASURE, "--out", str(folder)]
    try:
        done = subprocess.run(
            command, env=os.environ | {"HOME": str(home)}, capture_output=True, text=True, timeout=600, check=False
        )
    finally:
        watch.stop()
    assert done.returncode == 0, done.stderr
    return folder, watch


@pytest.fixture(scope="module")
def virtual(firefox_machine: None, virtual_clock: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same campaign in virtual time."""
    folder = tmp_path_factory.mktemp("firefox-virtual") / "data"
    command = [*CROSSLAYER, *MEASURE, *virtual_clock, "--out", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(params=["wall", "virtual"])
def campaign(request: pytest.FixtureRequest) -> Path:
    if request.param == "virtual":
        folder: Path = request.getfixturevalue("virtual")
        return folder
    return request.getfixturevalue("measured")[0]  # type: ignore[no-any-return]


def test_the_server_log_confirms_every_load(campaign: Path) -> None:
    rows = loads(campaign)
    assert rows["error"].null_count() == rows.height == 4
    assert (rows["early_data_accepted"] == (rows["h3"] == "0-rtt")).all()
    assert (rows["session_resumed"] == (rows["h3"] == "0-rtt")).all()
    assert (rows["address_validated"] == (rows["h3"] == "0-rtt")).all()


def test_rows_and_campaign_name_the_browser(campaign: Path) -> None:
    assert set(loads(campaign)["browser"]) == {"firefox"}
    about = json.loads((campaign / "campaign.json").read_text(encoding="utf-8"))
    assert about["plan"]["browser"] == "firefox"
    assert about["versions"]["firefox"] == find_browser("firefox").browser_version
    assert "chromium" not in about["versions"]


def test_no_early_load_waits_for_the_connection_before_it(measured: tuple[Path, Watch]) -> None:
    """neqo keeps a closed connection for three PTOs; an earlier load would be slower than one with a full handshake."""
    rows = loads(measured[0])
    full, early = (rows.filter(h3=kind)["response_start_ms"] for kind in ("1-rtt", "0-rtt"))
    assert early.max() < full.min()  # type: ignore[operator]


def test_nothing_gets_out_and_no_profile_is_read(measured: tuple[Path, Watch]) -> None:
    watch = measured[1]
    assert watch.escaped == []
    assert watch.bound == set()
    assert watch.devices == set()
    assert watch.touched == []


def test_early_data_saves_a_round_trip_of_the_response(virtual: Path) -> None:
    rows = loads(virtual)
    full, early = (rows.filter(h3=kind)["response_start_ms"] for kind in ("1-rtt", "0-rtt"))
    for saved in full - early:
        assert 0.95 <= saved / load_profiles()["4g"].rtt_ms <= 1.1


def test_a_firefox_killed_in_a_campaign_is_a_failed_row_and_the_next_load_has_a_new_one(
    firefox_machine: None, tmp_path: Path
) -> None:
    command = [*CROSSLAYER, *MEASURE, "--rounds", "3", "--out", str(tmp_path / "data")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        output = ""
        while " 1/3 " not in output and (more := process.stderr.read(1)):
            output += more
        for pid in _firefoxes(process.pid):
            os.kill(pid, signal.SIGKILL)
        process.communicate(timeout=600)
    assert process.returncode == 0, output
    rows = Dataset.open(tmp_path / "data", every_round=True).table("page_loads").collect()
    failed = rows.filter(pl.col("error").is_not_null())
    assert failed.height == 1
    assert "failed in Firefox" in failed["error"][0]
    assert rows.filter(round=2, condition="main", role="measured")["error"].to_list() == [None, None]


def test_it_resolves_by_itself_over_every_transport(firefox_machine: None, tmp_path: Path) -> None:
    arguments = ["--study", "web", "--browser", "firefox", "--links", "fiber", "--pages", "social-network"]
    command = [*CROSSLAYER, "measure", *arguments, "--rounds", "1", "--out", str(tmp_path / "web")]
    subprocess.run(command, check=True, capture_output=True, timeout=600)
    rows = Dataset.open(tmp_path / "web", every_round=True).table("page_loads").collect()
    assert sorted(rows["dns_protocol"]) == sorted(Protocol)
    assert rows["error"].null_count() == rows.height


def test_it_resolves_over_the_configured_transport(firefox_machine: None, tmp_path: Path) -> None:
    rows = itself(tmp_path, "--browser", "firefox")
    assert sorted(rows["dns_protocol"]) == ["DoH", "DoH", "DoH3", "DoH3"]
    assert rows["error"].null_count() == rows.height


def test_an_https_record_provides_the_ech_key(firefox_machine: None, tmp_path: Path) -> None:
    """With the record, Firefox uses HTTP/3 or HTTP/2; its choice varies."""
    plan = tmp_path / "plan.toml"
    plan.write_text(
        'study = "https-records"\nbrowser = "firefox"\nlinks = ["fiber"]\npages = ["example.org"]\nrounds = 2\n'
        '[options]\nkinds = ["none", "whole", "ech"]\n'
    )
    command = [*CROSSLAYER, "measure", "--plan", str(plan), "--out", str(tmp_path / "records")]
    subprocess.run(command, check=True, capture_output=True, timeout=600)
    rows = Dataset.open(tmp_path / "records", every_round=True).table("page_loads").collect()
    assert rows["error"].to_list() == [None] * 6
    assert set(rows.filter(condition="none")["document_protocol"]) == {"h2"}
    assert set(rows["document_protocol"]) <= {"h2", "h3"}
    assert (rows["ech_accepted"] == (rows["condition"] == "ech")).all()


def _firefoxes(above: int) -> list[int]:
    """PIDs of the Firefox main processes that are descendants of a process."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = re.sub(r"\(.*\)", "()", entry.read_text(encoding="utf-8")).split()
            command = (entry.parent / "cmdline").read_bytes().split(b"\0")
        except OSError:  # ended meanwhile
            continue
        parents[int(fields[0])] = int(fields[3]), command
    results = []
    for pid, (parent, command) in parents.items():
        if b"--remote-debugging-port" not in command:
            continue
        while parent in parents and parent != above:
            parent = parents[parent][0]
        if parent == above:
            results.append(pid)
    return results


@pytest.mark.parametrize("transport", ["doh", "doh3"])
def test_its_own_lookups_go_by_the_transport_asked_for_on_a_connection_of_their_own(
    firefox_machine: None, tmp_path: Path, transport: str
) -> None:
    """The resolver is the page's own host; the server log shows transport and connection of the queries."""
    result = tmp_path / "result.json"
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.load_over_trr", transport, str(result)],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    results = json.loads(result.read_text())
    assert set(results["names"]) == set(results["expected"])
    assert set(results["transports"]) == {transport}
    assert results["document"]
    assert not set(results["document"]) & set(results["queries"])
