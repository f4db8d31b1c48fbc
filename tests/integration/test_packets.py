"""Captured packets of real loads: tshark decrypts them, they are drawn, and capturing does not change the times."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from crosslayer.packets import read_kept
from tests.integration.conftest import Run, run_here

CLIENT = Path(__file__).with_name("coalesced_client.py")
LOAD_MOST_BYTES = 1_000_000


def packets_in_tshark(capture: Path, matching: str) -> int:
    """Number of packets in a capture that match a display filter of tshark; its only input is the file."""
    tshark = shutil.which("tshark")
    if tshark is None:
        pytest.skip("no tshark here: apt-get install tshark")
    reported = subprocess.run([tshark, "-r", capture, "-Y", matching], capture_output=True, text=True, check=True)
    return len(reported.stdout.splitlines())


@pytest.mark.alone
def test_a_command_on_a_link_is_captured(crosslayer: Run, tmp_path: Path) -> None:
    """A page is loaded on the connection that resolved its name; the query is early data."""
    capture = tmp_path / "visit.pcapng"
    done = crosslayer("link", "local", "--capture", str(capture), "--", sys.executable, str(CLIENT), "wikipedia.org")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["early"]
    about, recorded = read_kept(capture)
    assert about is not None
    assert about.missing == 0
    assert {event["event"] for event in about.server} == {"connection", "query", "request", "token"}
    assert "CLIENT_EARLY_TRAFFIC_SECRET" in recorded.keys
    shown = crosslayer("show", str(capture))
    page = Path(shown.stdout.strip())
    assert "GET /dns-query, early data" in page.read_text(encoding="utf-8")
    assert max(capture.stat().st_size, page.stat().st_size) < LOAD_MOST_BYTES
    from_client = "ip.src == 10.53.0.1 && "
    assert packets_in_tshark(capture, f"{from_client}http3.frame_type == 1") > 1
    assert packets_in_tshark(capture, f"{from_client}quic.long.packet_type == 1 && quic.stream_data") > 0
    whole = packets_in_tshark(capture, f"{from_client}quic")
    stripped = tmp_path / "stripped.pcapng"
    stripped.write_bytes(capture.read_bytes().replace(b"_TRAFFIC_SECRET", b"_TRAFFIC_NOTHIN"))
    assert packets_in_tshark(stripped, f"{from_client}quic") == whole
    assert packets_in_tshark(stripped, "http3") == 0  # the keys are those in the file, and no others


def test_capturing_changes_nothing_in_virtual_time(virtual_clock: list[str], tmp_path: Path) -> None:
    """One round of all conditions with captures and one without have the same times; the files are complete."""
    arguments = ["measure", "--study", "one-connection", "--size", "smoke", "--rounds", "1", *virtual_clock]
    loads = {}
    for name, more in (("with", ["--capture", "pcap,qlog"]), ("without", [])):
        done = run_here(*arguments, *more, "--out", str(tmp_path / name))
        assert done.returncode == 0, done.stderr
        loads[name] = pl.read_parquet(tmp_path / name / "resolved_loads/**/*.parquet")
    assert not (tmp_path / "without" / "captures").exists()
    key = ["protocol", "resumption", "connections", "h3", "condition"]
    both = loads["with"].join(loads["without"], on=key, suffix="_without")
    assert both.height == loads["with"].height > 20
    for time in ("resolved_ms", "document_ms", "load_complete_ms"):
        moved = both.select((pl.col(time) / pl.col(f"{time}_without") - 1).abs().max()).item()
        assert moved < 0.01, time
    captures = sorted((tmp_path / "with").glob("captures/*/*/0/*.pcapng"))
    assert len(captures) == both.height
    for capture in captures:
        about, recorded = read_kept(capture)
        assert about is not None
        assert (about.missing, about.clock) == (0, "virtual")
        assert capture.stat().st_size < LOAD_MOST_BYTES
        row = about.rows["resolved_loads"][0]
        # The visit's time begins with the first packet of the file; packets of the priming are not in it.
        first = next(frame for frame in recorded.frames if frame.data[12:14] == b"\x08\x00")
        assert abs(first.at_ns / 1e9 - row["started_s"]) < 1e-3, capture.name
    shared = next(capture for capture in captures if "one-connection" in capture.name)
    kinds = {file.name.rpartition("_")[2] for file in shared.parent.glob(f"{shared.stem}.*qlog")}
    assert kinds == {"server.sqlog", "client.qlog"}
    assert packets_in_tshark(shared, "ip.src == 10.53.0.1 && http3.frame_type == 1") > 1
    listed = run_here("show", str(tmp_path / "with")).stdout.splitlines()
    assert len(listed) == len(captures)
    times = [float(line.split()[0]) for line in listed]
    assert times == sorted(times, reverse=True)
    page = Path(run_here("show", str(shared)).stdout.strip())
    assert page.stat().st_size < LOAD_MOST_BYTES
