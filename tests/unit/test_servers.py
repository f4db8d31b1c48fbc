"""The table of servers: its checks, its formats, and what its command refuses."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from crosslayer.cli import cli
from crosslayer.discover import DiscoverError, matrix, servers, table
from crosslayer.discover import behaviour as of_servers
from crosslayer.discover.behaviour import CHECKS, CheckOutcome, Result, ServerFinding, absent
from crosslayer.discover.emulated import IMPLEMENTATIONS
from crosslayer.dns import Protocol
from crosslayer.errors import CrosslayerError

KINDS = [kind for kind in IMPLEMENTATIONS if kind.name in servers.SERVERS]
PAIRS = [(check, protocol) for check in CHECKS for protocol in check.transports]


def finding(server: str, index: int, result: Result = Result.SUCCEEDED, **more: object) -> ServerFinding:
    check, protocol = PAIRS[index]
    plain = ServerFinding(
        server, "1.2", str(protocol), check.name, check.asked_by or None, str(result), None, None, None
    )
    return replace(plain, **more)


def full(server: str, **changed: ServerFinding) -> list[ServerFinding]:
    """Findings of a server that does everything; `changed` by name of the check and transport."""
    rows = []
    for index, (check, protocol) in enumerate(PAIRS):
        number = {"RTT": 2.0125, "bytes": 468.0, "times": 2.9}.get(check.unit)
        row = finding(server, index, value=number, unit=check.unit if number else None)
        rows.append(changed.get(f"{check.name}_{protocol}".replace("-", "_"), row))
    return rows


def at(name: str, protocol: Protocol) -> int:
    return next(index for index, (check, other) in enumerate(PAIRS) if (check.name, other) == (name, protocol))


def test_every_check_has_an_abbreviation_of_its_own_on_each_transport() -> None:
    letters = [abbr for abbr, _check, _protocol in matrix._tests()]
    assert len(set(letters)) == len(letters) == len(PAIRS)


def test_every_compared_server_is_a_kind_that_can_be_started() -> None:
    assert {kind.name for kind in KINDS} == set(servers.SERVERS)


# quic-interop-runner's results


def test_results_are_as_quic_interop_runner_writes_them() -> None:
    broken = finding("dnsproxy", at("padding", Protocol.DOQ), Result.FAILED, value=60.0, unit="bytes", detail="no")
    rows = [*full("coalesce"), *full("dnsproxy", padding_DoQ=broken), absent("unbound", "It is not here. Install it.")]
    interop = json.loads(json.dumps(matrix.interop(rows, KINDS, began_s=10.0, ended_s=20.5)))
    assert (interop["start_time"], interop["end_time"]) == (10.0, 20.5)
    assert interop["clients"] == ["crosslayer"]
    assert interop["servers"] == ["coalesce", "dnsproxy", "unbound"]
    assert set(interop["servers"]) <= set(interop["urls"])
    # One list for each pair of client and server, the client outside.
    assert len(interop["results"]) == len(interop["measurements"]) == len(interop["clients"]) * len(interop["servers"])
    for results in interop["results"]:
        assert [result["abbr"] for result in results] == list(interop["tests"])
        assert {result["result"] for result in results} <= {"succeeded", "failed", "unsupported", None}
    failed = [result for result in interop["results"][1] if result["result"] == "failed"]
    assert failed == [{"abbr": "QP", "name": "padding", "result": "failed"}]
    assert {result["result"] for result in interop["results"][2]} == {None}
    assert interop["measurements"][2] == []
    assert {"name": "answer", "abbr": "QA", "result": "succeeded", "details": "2.0125 RTT"} in interop["measurements"][
        0
    ]
    assert all(set(test) == {"name", "desc"} for test in interop["tests"].values())


# For a terminal


def test_the_text_says_what_each_speaks_and_what_is_not_here() -> None:
    nothing = {
        f"{check.name}_{protocol}".replace("-", "_"): finding("bind9", index, Result.UNSUPPORTED)
        for index, (check, protocol) in enumerate(PAIRS)
        if protocol in (Protocol.DOH3, Protocol.DOQ)
    }
    text = matrix.text([*full("coalesce"), *full("bind9", **nothing), absent("unbound", "Not here. Install it.")])
    assert text.count("DoQ") == 1
    assert re.search(r"^bind9 1\.2 +DoUDP +2\.01 +2\.90$", text, re.MULTILINE)
    assert "coalesce: 12 of 12 checks of RFC 9250" in text
    assert "bind9: " not in text
    assert "unbound: Not here. Install it." in text


def test_the_text_marks_what_is_wrong() -> None:
    changed = {
        "padding_DoQ": finding("x", at("padding", Protocol.DOQ), Result.FAILED, value=60.0, unit="bytes"),
        "early_answer_DoQ": finding("x", at("early-answer", Protocol.DOQ), Result.FAILED, value=2.0, unit="RTT"),
        "replay_DoQ": finding("x", at("replay", Protocol.DOQ), Result.FAILED, detail="answered again"),
        "reset_DoQ": finding("x", at("reset", Protocol.DOQ), Result.FAILED, detail="did nothing"),
    }
    text = matrix.text(full("x", **changed))
    (line,) = [line for line in text.splitlines() if line.strip().startswith("DoQ ")]
    assert "60 B ✕" in line
    assert "2.01, late" in line
    assert "x: 11 of 12 checks of RFC 9250; DoQ replay (answered again); DoQ reset (did nothing)" in text


# Files


def test_the_page_is_whole_and_what_a_server_says_is_no_markup() -> None:
    wicked = finding("x", at("reset", Protocol.DOQ), Result.FAILED, detail="<script>alert(1)</script>")
    page = matrix.page([*full("x", reset_DoQ=wicked), absent("unbound", "It is not here.")], "4G, RTT 92 ms")
    assert "<script" not in page
    assert not re.search(r'(?:src|href)="(?!data:)', page)
    assert page.count('class="transport"') == len(PAIRS)
    assert page.count('class="failed"') == 1
    assert "It is not here." in page


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_files_have_every_row_and_column(tmp_path: Path, ending: str) -> None:
    rows = [*full("coalesce"), absent("unbound", "It is not here.")]
    path = tmp_path / f"servers{ending}"
    table.write(rows, path, ServerFinding, "servers")
    columns = list(ServerFinding.__dataclass_fields__)
    if ending == ".csv":
        with path.open(encoding="utf-8", newline="") as lines:
            read = list(csv.DictReader(lines))
        assert list(read[0]) == columns
        assert (read[-1]["server"], read[-1]["transport"]) == ("unbound", "")
    else:
        parquet = pq.read_table(path)
        assert parquet.to_pylist() == table.records(rows)
        assert all(parquet.schema.field(name).metadata[b"description"] for name in columns)
        assert parquet.schema.metadata[b"table"] == b"servers"
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(DiscoverError, match=r"cannot be written .* Choose another"):
        servers._write(tmp_path / "nowhere", full("x"), "{}", "")


# What time decides


@pytest.mark.parametrize(("rtts", "result"), [(1.02, "succeeded"), (2.01, "failed")])
def test_early_data_is_answered_early_or_it_is_not(monkeypatch: pytest.MonkeyPatch, rtts: float, result: str) -> None:
    accepted: Callable[..., CheckOutcome] = lambda *_: CheckOutcome(Result.SUCCEEDED, value=rtts)  # noqa: E731
    monkeypatch.setattr(of_servers, "_early_data", accepted)
    outcome = of_servers._early_answer(None, Protocol.DOQ)  # type: ignore[arg-type]
    assert (outcome.result, outcome.value) == (result, rtts)


@pytest.mark.parametrize(("rtts", "result"), [(3.01, "succeeded"), (4.46, "failed")])
def test_an_answer_that_takes_a_round_trip_too_many_is_marked(rtts: float, result: str) -> None:
    outcome = of_servers._in_time(Protocol.DOT, CheckOutcome(Result.SUCCEEDED, value=rtts))
    assert (outcome.result, outcome.value) == (result, rtts)


# The command


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nsd"], "there is no server 'nsd'. Did you mean 'dnsdist'? There are: coalesce, coredns, dnsproxy"),
        (["--link", "5g"], "5g"),
        (["--link", "local"], "link local: has no delay, but the table gives times in RTT"),
        (["--out", "/dev/null/x"], "cannot be made (Not a directory). Choose another folder with --out."),
    ],
)
def test_what_cannot_be_is_one_line(tmp_path: Path, arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(cli, ["servers", "--out", str(tmp_path), *arguments])
    assert isinstance(done.exception, CrosslayerError)
    assert message in str(done.exception)


def test_no_rounds_are_a_wrong_option() -> None:
    done = CliRunner().invoke(cli, ["servers", "--rounds", "0"])
    assert done.exit_code == 2
    assert "--rounds" in done.output


def test_help_names_every_server_and_file() -> None:
    output = " ".join(CliRunner().invoke(cli, ["servers", "--help"]).output.split())
    for word in (*servers.SERVERS, *servers.FILES):
        assert word in output
