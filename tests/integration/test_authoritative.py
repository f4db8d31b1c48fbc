"""The study `authoritative` with a real BIND, link and stubs, and its errors for bad input."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from crosslayer.campaign.dataset import Dataset
from crosslayer.studies.authoritative.measure import ORIGIN, STREAMS, ZONE
from crosslayer.testbed.bind import LOCAL, Bind, BindError, find_named
from crosslayer.testbed.dnsproxy import DnsproxyError, find_dnsproxy
from crosslayer.vocabulary import Role
from tests.integration.conftest import CROSSLAYER, Run

STUDY = ["measure", "--study", "authoritative", "--size", "smoke", "--rounds", "1"]
NOMINAL_MS = {"twente-local": 0.0, "twente-eu": 5.0}


@pytest.fixture(scope="module", autouse=True)
def bind9() -> None:
    """Skip, with the reason, if there is no BIND."""
    try:
        find_named()
    except BindError as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def campaign(virtual_clock: list[str], tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("authoritative") / "smoke"
    command = [*CROSSLAYER, *STUDY, *virtual_clock, "--out", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return Dataset.open(folder, every_round=True)


def test_every_query_is_answered_over_its_transport_and_connection(campaign: Dataset) -> None:
    rows = campaign.table("paced_queries").collect()
    assert rows["error"].null_count() == rows.height
    measured = rows.filter(pl.col("role") == Role.MEASURED)
    counts = {key: part.height for key, part in measured.group_by("link", "protocol", "connection_mode")}
    for link in NOMINAL_MS:
        for stream in STREAMS:
            expected = 2 * (4 if stream.connection == "kept" else 1)
            assert counts[link, stream.protocol.value, stream.connection] == expected
    kept = measured.filter(pl.col("connection_mode") == "kept")
    assert not kept["new_connection"].any()
    assert measured.filter(pl.col("connection_mode") != "kept")["new_connection"].all()
    # A handshake may complete before the server reads the early data: on a link without delay, or if the machine stalls
    # for a round-trip. Then early data is not accepted, and the response takes one more round-trip. This must not
    # happen in all rounds.
    early = measured.filter(pl.col("connection_mode") == "0-rtt", pl.col("link") != "twente-local")
    assert early.group_by("protocol").agg(pl.col("early_data_accepted").any())["early_data_accepted"].all()
    for row in early.filter(~pl.col("early_data_accepted")).iter_rows(named=True):
        assert row["response_ms"] > 1.9 * NOMINAL_MS[row["link"]]
    assert (rows["send_delay_ms"] >= 0).all()
    assert (rows["authority_ms"] > 0).all()
    assert campaign.campaign.versions["bind"].startswith("BIND 9")


def test_no_response_beats_its_round_trips(campaign: Dataset) -> None:
    rows = campaign.table("paced_queries").filter(pl.col("role") == Role.MEASURED).collect()
    trips = {("DoTCP", "new"): 2, ("DoT", "new"): 3, ("DoH", "new"): 3, ("DoQ", "new"): 2, ("DoH3", "new"): 2}
    for row in rows.iter_rows(named=True):
        least = trips.get((row["protocol"], row["connection_mode"]), 1) * NOMINAL_MS[row["link"]]
        assert row["response_ms"] > 0.95 * least
        assert row["response_ms"] >= row["query_ms"]


def test_messages_have_the_sizes_that_are_stated(campaign: Dataset) -> None:
    rows = campaign.table("paced_queries").collect()
    plain = rows.filter(pl.col("protocol").is_in(["DoUDP", "DoTCP"]))
    assert set(plain["query_bytes"]) == {57}
    assert set(plain["answer_bytes"]) == {89}
    padded = rows.filter(~pl.col("protocol").is_in(["DoUDP", "DoTCP"]))
    assert set(padded["query_bytes"]) == {128}
    assert set(padded["answer_bytes"]) == {468}


SERVERS = """
[zone]
name = "box.example"
ttl_s = 86400
[[resolver]]
name = "mine"
rtt_ms = 83.9
[[resolver]]
name = "bind"
make = "bind9"
rtt_ms = 83.9
"""


def real(
    folder: Path, server: str, *arguments: str, outside: str = "1"
) -> tuple[subprocess.CompletedProcess[str], list[dict[str, Any]]]:
    """Measure a server of a box as if it were on the Internet; returns the command's result and the box's record."""
    box, truth = folder / "box.toml", folder / "truth.jsonl"
    box.write_text(SERVERS, encoding="utf-8")
    in_box = ["--clock", "virtual", "--truth", str(truth), "--packets", "--writable", str(folder)]
    study = ["--study", "authoritative", "--size", "smoke", "--server", server, "--name", "a.box.example"]
    done = subprocess.run(
        [
            *CROSSLAYER, "box", str(box), *in_box, "--",
            *CROSSLAYER, "measure", *study, "--rounds", "4", "--out", str(folder / "out"), *arguments,
        ],
        capture_output=True, text=True, timeout=600, check=False,
        env=os.environ | {"CROSSLAYER_BOX_IS_OUTSIDE": outside, "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    return done, [json.loads(line) for line in truth.read_text(encoding="utf-8").splitlines()]


def test_a_real_server_is_measured_at_its_distance(virtual_clock: list[str], tmp_path: Path) -> None:
    done, truth = real(tmp_path, "198.18.1.53", "--i-may-send-this")
    assert done.returncode == 0, done.stderr
    rows = Dataset.open(tmp_path / "out", every_round=True).table("paced_queries").collect()
    assert rows["error"].null_count() == rows.height, rows["error"].drop_nulls().to_list()
    assert (rows["path_rtt_ms"] - 83.9).abs().max() < 0.1
    measured = rows.filter(pl.col("role") == Role.MEASURED)
    counts = {key: part.height for key, part in measured.group_by("protocol", "connection_mode")}
    assert counts == {
        (stream.protocol.value, stream.connection): 4 * 2 * (4 if stream.connection == "kept" else 1)
        for stream in STREAMS
    }
    trips = {
        ("DoTCP", "new"): 2, ("DoT", "new"): 3, ("DoH", "new"): 3, ("DoQ", "new"): 2, ("DoH3", "new"): 2,
    }  # fmt: skip
    for row in measured.iter_rows(named=True):
        late = row["connection_mode"] == "0-rtt" and not row["early_data_accepted"]
        expected_ms = 2 * 83.9 if late else trips.get((row["protocol"], row["connection_mode"]), 1) * 83.9
        assert row["response_ms"] == pytest.approx(expected_ms, abs=1), row
    early = measured.filter(pl.col("connection_mode") == "0-rtt")
    assert early.group_by("protocol").agg(pl.col("early_data_accepted").any())["early_data_accepted"].all()
    # By the box's record, only this server was queried, and each measured query arrived.
    answers = [row for row in truth if row["event"] == "answer" and row["resolver"] != "authority"]
    assert {row["resolver"] for row in answers} == {"mine"}
    assert len(answers) == rows.height
    assert f"This sends {rows.height} queries for 'a.box.example'" in done.stdout
    assert sum(row["early_data"] for row in answers) == early["early_data_accepted"].sum()
    assert "RTT of the path (TCP connect, median): 83.9" in done.stdout


def test_a_real_bind_is_measured_over_what_it_offers(virtual_clock: list[str], tmp_path: Path) -> None:
    listed = tmp_path / "mine.toml"
    listed.write_text(
        '[[resolver]]\nname = "bind"\naddress = ["198.18.2.53"]\nhost = "bind.resolvers.test"\n'
        "transports = { doudp = 53, dotcp = 53, dot = 853, doh = 443 }\n",
        encoding="utf-8",
    )
    done, _truth = real(tmp_path, str(listed), "--i-may-send-this")
    assert done.returncode == 0, done.stderr
    rows = Dataset.open(tmp_path / "out", every_round=True).table("paced_queries").collect()
    assert rows["error"].null_count() == rows.height, rows["error"].drop_nulls().to_list()
    kept = rows.filter(pl.col("role") == Role.MEASURED, pl.col("connection_mode") == "kept")
    assert set(kept["protocol"]) == {"DoUDP", "DoTCP", "DoT", "DoH"}
    assert (kept["response_ms"] - 83.9).abs().max() < 1


def test_nothing_is_sent_to_a_real_server_without_consent(virtual_clock: list[str], tmp_path: Path) -> None:
    for arguments, message in (((), "you did not consent; nothing was sent"), (("--dry-run",), "")):
        done, truth = real(tmp_path, "198.18.1.53", *arguments)
        assert (done.returncode == 0) == bool(arguments)
        assert message in done.stderr
        assert "queries for 'a.box.example'" in done.stdout
        assert not [row for row in truth if row["event"] in ("packet", "drop", "answer")]
        assert not (tmp_path / "out").exists()
        (tmp_path / "truth.jsonl").unlink()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--study", "loss", "--server", "192.0.2.1", "--name", "a.example"], "need --study authoritative"),
        (["--study", "authoritative", "--server", "192.0.2.1"], "belong together"),
        (["--study", "authoritative", "--name", "a.example"], "belong together"),
        (["--study", "authoritative", "--server", "quad9", "--name", "a.example"], "has 2 addresses"),
        (["--study", "authoritative", "--server", "nonsense", "--name", "a.example"], "nonsense"),
    ],
)
def test_what_is_wrong_with_a_real_server_is_named(crosslayer: Run, arguments: list[str], message: str) -> None:
    done = crosslayer("measure", *arguments)
    assert done.returncode
    assert message in done.stderr


def start(folder: Path, zone: str = ZONE) -> Bind:
    return Bind.start(subprocess.Popen, folder=folder, origin=ORIGIN, zone=zone)


def test_bind_answers_with_the_papers_size(tmp_path: Path) -> None:
    with start(tmp_path / "bind"):
        command = ["kdig", "+bufsize=1232", "+norecurse", f"@{LOCAL[0]}", "-p", str(LOCAL[1]), f"www.{ORIGIN}", "A"]
        output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout
    assert ";; Received 89 B" in output


@pytest.mark.parametrize(
    ("zone", "message"),
    [
        ("www IN A 192.0.2.1\n", "no TTL"),
        (ZONE + "www IN A 192.0.2.999\n", "bad dotted quad"),
        (ZONE.replace("@ IN SOA ns hostmaster 1 3600 600 86400 300\n", ""), "SOA"),
    ],
)
def test_a_zone_that_bind_refuses_is_reported_with_its_message(tmp_path: Path, zone: str, message: str) -> None:
    with pytest.raises(BindError, match="BIND refuses the zone") as caught:
        start(tmp_path / "bind", zone)
    assert message in caught.value.next_step


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_a_port_in_use_is_named(tmp_path: Path, kind: socket.SocketKind) -> None:
    with socket.socket(socket.AF_INET, kind) as taken:
        taken.bind(LOCAL)
        if kind is socket.SOCK_STREAM:
            taken.listen()
        with pytest.raises(BindError, match="a port is in use") as caught:
            start(tmp_path / "bind")
    assert str(LOCAL[1]) in str(caught.value)


def test_a_missing_bind_is_named_with_the_next_step(crosslayer: Run, tmp_path: Path) -> None:
    done = crosslayer(*STUDY, "--out", str(tmp_path / "x"), env=os.environ | {"CROSSLAYER_NAMED": "/nonexistent/named"})
    assert done.returncode in (1, 3)
    assert "there is no BIND 9" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_rate_that_cannot_be_held_is_refused(crosslayer: Run, tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text('study = "authoritative"\nlinks = ["twente-local"]\nrounds = 1\n[options]\ninterval_ms = 10\n')
    done = crosslayer("measure", "--plan", str(plan), "--out", str(tmp_path / "x"))
    assert done.returncode == 1
    assert "cannot each ask every 10 ms" in done.stderr


def test_dnsproxy_at_both_ends(virtual_clock: list[str], tmp_path: Path) -> None:
    try:
        find_dnsproxy()
    except DnsproxyError as missing:
        pytest.skip(str(missing))
    plan = 'study = "authoritative"\nlinks = ["twente-eu"]\nrounds = 1\n[options]\nproxy = "dnsproxy"\nqueries = 2\n'
    (tmp_path / "plan.toml").write_text(plan, encoding="utf-8")
    arguments = ["measure", "--plan", str(tmp_path / "plan.toml"), *virtual_clock, "--out", str(tmp_path / "dataset")]
    done = subprocess.run([*CROSSLAYER, *arguments], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    campaign = Dataset.open(tmp_path / "dataset", every_round=True)
    rows = campaign.table("paced_queries").filter(pl.col("role") == Role.MEASURED).collect()
    assert set(rows["protocol"]) == {stream.protocol.value for stream in STREAMS}
    assert set(rows["connection_mode"]) == {"kept"}
    assert rows["error"].null_count() == rows.height
    assert not rows.filter(pl.col("protocol").is_in(["DoUDP", "DoT", "DoH", "DoH3", "DoQ"]))["new_connection"].any()
    assert (rows["response_ms"] > 0.95 * NOMINAL_MS["twente-eu"]).all()
    assert campaign.campaign.versions["dnsproxy"]
    assert "proxy = dnsproxy" in campaign.caption


def test_a_plan_with_dnsproxy_says_where_to_have_it_from(
    testbed_machine: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CROSSLAYER_DNSPROXY", str(tmp_path / "nowhere"))
    plan = 'study = "authoritative"\nlinks = ["twente-eu"]\nrounds = 1\n[options]\nproxy = "dnsproxy"\n'
    (tmp_path / "plan.toml").write_text(plan, encoding="utf-8")
    arguments = ["measure", "--plan", str(tmp_path / "plan.toml"), "--out", str(tmp_path / "dataset")]
    done = subprocess.run([*CROSSLAYER, *arguments], capture_output=True, text=True, timeout=900)
    assert done.returncode != 0
    assert "there is no dnsproxy on this machine" in done.stderr
    assert "nix develop" in done.stderr
