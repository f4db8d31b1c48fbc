"""The guest's parts that need no guest: which kernel, where its memory goes, who measures which round."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crosslayer.campaign.errors import CampaignError
from crosslayer.campaign.guest_main import from_json, to_json
from crosslayer.campaign.guests import left_of
from crosslayer.campaign.measurer import Measurer
from crosslayer.campaign.plan import Cell, Plan
from crosslayer.campaign.rounds import FinishedRound, Job
from crosslayer.guest import Guest, GuestError, find_kernel, inside
from crosslayer.guest import guest as guest_module
from crosslayer.testbed.errors import TestbedError

ABOUT = {
    "version": "7.2.13",
    "config_sha256": "c0",
    "source": "linux-source-7.2 7.2.13-1",
    "source_sha256": "50",
    "patch_sha256": "9a",
    "clock_read_ns": 16,
    "inputs_sha256": "not of interest",
}


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kernel that a variable names."""
    path = tmp_path / "crosslayer-linux"
    path.write_text("#!/bin/sh\n", encoding="utf-8")
    path.chmod(0o755)
    monkeypatch.setenv("CROSSLAYER_KERNEL", str(path))
    return path


def test_a_kernel_says_what_it_was_built_from(kernel: Path) -> None:
    kernel.with_name("crosslayer-linux.json").write_text(json.dumps(ABOUT), encoding="utf-8")
    result = find_kernel()
    assert (result.path, result.version, result.clock_read_ns) == (kernel, "7.2.13", 16)
    assert result.as_versions()["guest_kernel_config_sha256"] == "c0"


@pytest.mark.parametrize("about", [None, "{", "{}"], ids=["no file", "no JSON", "no version"])
def test_a_kernel_of_unknown_origin_is_refused(kernel: Path, about: str | None) -> None:
    if about is not None:
        kernel.with_name("crosslayer-linux.json").write_text(about, encoding="utf-8")
    with pytest.raises(GuestError, match="how the guest's kernel was built") as caught:
        find_kernel()
    assert "make guest" in caught.value.next_step


def test_without_a_kernel_the_way_to_one_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CROSSLAYER_KERNEL", str(tmp_path / "none"))
    with pytest.raises(TestbedError, match="no kernel for the guest") as caught:
        Guest(["/bin/true"], clock="virtual")
    assert "make guest" in caught.value.next_step


def test_memory_goes_where_executable_mappings_are_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "is not there"))
    assert guest_module._memory_folder().is_dir()
    monkeypatch.setattr(guest_module, "MEMORY_BYTES", 1 << 60)
    with pytest.raises(GuestError, match="noexec") as caught:
        guest_module._memory_folder()
    assert "TMPDIR" in caught.value.next_step


def test_a_command_knows_the_clock_of_its_guest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(guest_module.MARK, raising=False)
    assert inside() is None
    monkeypatch.setenv(guest_module.MARK, "virtual")
    assert inside() == "virtual"


@pytest.mark.parametrize(("rounds", "sizes"), [(1, [1]), (8, [8]), (9, [4, 5]), (25, [6, 6, 6, 7])])
def test_tasks_are_rounds_of_a_cell_and_follow_from_the_plan(rounds: int, sizes: list[int]) -> None:
    plan = Plan(study="coalescing", links=("fiber", "4g"), pages=("a", "b"), rounds=rounds)
    todo = {(number, cell) for number in range(plan.rounds) for cell in plan.order(number)}
    tasks = plan.tasks()
    assert tasks == plan.tasks()
    assert [len(task) for task in tasks[:: len(plan.cells)]] == sizes
    assert sorted(entry[0] for task in tasks for entry in task) == sorted(number for number, _ in todo)
    assert {entry for task in tasks for entry in task} == todo
    assert all(len({cell for _, cell in task}) == 1 for task in tasks)
    assert len({plan.seed_of(task) for task in tasks}) == len(tasks)
    assert plan.seed_of(tasks[0]) != plan.resized(seed=2).seed_of(tasks[0])


def test_what_is_left_of_a_campaign_keeps_its_tasks() -> None:
    plan = Plan(study="coalescing", links=("fiber",), pages=("a", "b"), rounds=9)
    first, *others = plan.tasks()
    todo = [entry for task in (first[2:], *others[:-1]) for entry in task]
    assert left_of(Job(plan, "", todo, Measurer, {}, "")) == [first[2:], *others[:-1]]


def test_a_job_that_a_killed_process_left_is_removed_and_no_other(tmp_path: Path) -> None:
    ours = guest_module._JobFile(tmp_path, b"{}\n")
    left = tmp_path / f"{guest_module._JOB}left"
    left.write_bytes(b"{}\n")
    other = guest_module._JobFile(tmp_path, b"{}\ninput")
    assert sorted(tmp_path.iterdir()) == sorted((ours.path, other.path))
    assert other.path.read_bytes() == b"{}\ninput"
    ours.remove()
    other.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_part_comes_out_of_a_guest_as_it_went_in() -> None:
    rows = {"dns_exchanges": [{"round": 1, "total_ms": 14.782144, "error": None, "retry_received": False}]}
    part = FinishedRound(Cell("4g", "example.org"), 1, rows, 0, "netem", {"python": "3.13"})
    assert from_json(json.dumps(to_json(part)).encode()) == part
    checks = FinishedRound(None, -1, {"link_checks": [{"rtt_samples_ms": [1.0, 2.0]}]}, 0, "netem", {})
    assert from_json(json.dumps(to_json(checks)).encode()) == checks


def test_a_fault_in_a_guest_is_the_campaigns_fault() -> None:
    line = {"fault": "there is no chromium", "where": "here", "next_step": "Install it."}
    with pytest.raises(TestbedError, match="no chromium"):
        from_json(json.dumps(line | {"cannot_measure": True}).encode())
    with pytest.raises(CampaignError, match="Install it"):
        from_json(json.dumps(line | {"cannot_measure": False}).encode())
