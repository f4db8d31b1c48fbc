"""A round keeps every check of its link, and a campaign the versions of all that takes part."""

from __future__ import annotations

import ssl
import time
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from crosslayer import resources
from crosslayer.campaign import provenance, rounds
from crosslayer.campaign.captures import Captures
from crosslayer.campaign.plan import Cell
from crosslayer.campaign.tables import TABLES
from crosslayer.links import Profile, load_profiles
from crosslayer.studies import sized
from crosslayer.testbed import network, testbed
from crosslayer.testbed.check import LinkCheck
from crosslayer.testbed.errors import TestbedError
from crosslayer.testbed.testbed import Testbed

FIBER = load_profiles()["fiber"]


def checked(profile: Profile, verdict: str) -> LinkCheck:
    rtt = profile.rtt_ms
    return LinkCheck(profile.name, 1.0, "netem", (rtt,), 1, rtt, rtt, None, None, None, None, rtt / 2, rtt / 2, verdict)


@pytest.fixture
def verdicts(monkeypatch: pytest.MonkeyPatch) -> deque[str]:
    """What the next checks of a link say."""
    coming: deque[str] = deque()
    monkeypatch.setattr(testbed, "check", lambda _prober, profile, *_, **__: checked(profile, coming.popleft()))
    monkeypatch.setattr(testbed, "_PAUSES_S", (0.0, 0.0))
    monkeypatch.setattr(network, "carrier_changes", lambda: 0)
    return coming


def a_testbed() -> Testbed:
    """One without namespaces."""
    made = object.__new__(Testbed)
    made._prober, made._servers, made._checks, made.profile = None, [], [], None  # type: ignore[assignment]
    made._delay_meter = made._replay = made._middlebox = None
    made._delays = {FIBER.name: (0.0, 0.0)}
    made.backend = SimpleNamespace(name="netem", raise_if_dead=lambda: None, apply=lambda *_: None)  # type: ignore[assignment]
    made._calibrate = lambda _profile: None  # type: ignore[method-assign]
    return made


class Measuring:
    """Measures nothing."""

    def conditions(self, cell: Cell) -> list[str]:
        return ["all"]

    def occasional_conditions(self, cell: Cell, round_number: int) -> list[str]:
        return []

    def measure(self, *_: Any) -> dict[str, list[Any]]:
        return {"tcp_rtts": [{"error": None}]}

    def failed(self, condition: str, cell: Cell, number: int, position: int, why: str) -> dict[str, list[Any]]:
        return {"tcp_rtts": [{"error": why}]}


@pytest.mark.parametrize(
    ("errors", "failures"),
    [
        (["pass", "pass"], 0),
        (["idle RTT 16 ms", "downlink lost", "pass", "pass"], 0),
        (["idle RTT 16 ms", "idle RTT 17 ms", "idle RTT 18 ms", "idle RTT 19 ms"], 1),
        (["pass", "the host was busy", "pass"], 0),
        (["pass", "idle RTT 16 ms", "idle RTT 16 ms", "idle RTT 16 ms"], 1),
    ],
)
def test_every_check_of_a_round_is_a_row(verdicts: deque[str], errors: list[str], failures: int) -> None:
    context = a_testbed()
    plan = sized("coalescing", "smoke")
    job: Any = SimpleNamespace(plan=plan, campaign="c", profiles={FIBER.name: FIBER})
    verdicts.append("pass")
    context.set_link(FIBER)
    context.take_checks()
    verdicts.extend(errors)
    captures = Captures(plan, Path("not written to"))
    rows, failed = rounds._round(job, context, Measuring(), captures, 3, Cell(FIBER.name, "example.org"))  # type: ignore[arg-type]
    assert [row["verdict"] for row in rows["link_checks"]] == errors
    assert {(row["round"], row["page"], row["campaign"]) for row in rows["link_checks"]} == {(3, "example.org", "c")}
    assert failed == failures
    assert not verdicts
    assert bool(rows["tcp_rtts"][0]["error"]) == bool(failures)
    [load] = rows["host_load"]
    assert set(load) == {column.name for column in TABLES["host_load"].columns if column.name not in ("clock", "host")}
    assert (load["round"], load["link"], load["page"]) == (3, FIBER.name, "example.org")


@pytest.mark.parametrize(
    ("errors", "failures"),
    [
        (["pass", "pass"], 0),
        (["pass", "slow", "slow", "slow", "pass", "pass"], 0),
        (["slow", "slow", "slow", "slow", "pass", "slow", "pass"], 0),
        (["pass", "slow", "slow", "slow", "slow", "slow", "slow", "pass", "slow", "slow", "slow"], 1),
    ],
)
def test_a_round_whose_link_fails_its_check_is_measured_again(
    verdicts: deque[str], errors: list[str], failures: int
) -> None:
    plan = sized("coalescing", "smoke")
    job: Any = SimpleNamespace(plan=plan, campaign="c", profiles={FIBER.name: FIBER})
    captures, messages = Captures(plan, Path("not written to")), []
    verdicts.extend(errors)
    cell, measuring = Cell(FIBER.name, "example.org"), Measuring()
    rows, failed = rounds._proved_round(job, a_testbed(), measuring, captures, 3, cell, messages.append)  # type: ignore[arg-type]
    assert [row["verdict"] for row in rows["link_checks"]] == errors
    assert not verdicts
    assert failed == failures
    assert len(rows["tcp_rtts"]) == len(rows["host_load"]) == 1
    assert bool(rows["tcp_rtts"][0]["error"]) == bool(failures)
    assert len(messages) == min(errors.count("slow") // 3, 2)
    assert all(line.startswith("Round 3 of fiber, example.org is measured again: ") for line in messages)


def test_a_clock_that_is_set_costs_the_round(monkeypatch: pytest.MonkeyPatch) -> None:
    unix_ns = time.time_ns
    with rounds._clock_unset():
        time.sleep(0.01)
    for step_s in (-3600.0, -0.005, 0.005, 3600.0):
        with pytest.raises(TestbedError, match="clock was set by"), rounds._clock_unset():
            monkeypatch.setattr(time, "time_ns", lambda step_s=step_s: unix_ns() + round(step_s * 1e9))
        monkeypatch.setattr(time, "time_ns", unix_ns)


def test_versions_of_openssl_and_quic_go_are_reported() -> None:
    assert provenance.packages()["openssl"] == ssl.OPENSSL_VERSION
    wanted = resources.locate("profiles").path.parent / "go.mod"
    [version] = [line.split()[1] for line in wanted.read_text().splitlines() if "quic-go/quic-go " in line]
    try:
        server = resources.locate("server").path
    except resources.ResourceError as missing:
        pytest.skip(str(missing))
    assert provenance.quic_go_version(server) == version
    assert provenance.quic_go_version(Path(ssl.__file__)) == ""
