"""Real loads of the web study in a Chromium that resolves names itself, through the stub, over every transport.

In virtual time, because the tests check evidence and order, which other load of the machine could disturb.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import polars as pl
import pytest

from crosslayer.campaign.dataset import Dataset
from crosslayer.dns import Protocol
from crosslayer.pages import find_spec_dir, load_pages
from crosslayer.studies.web.figures import ROUND_TRIPS
from tests.integration.conftest import CROSSLAYER

PAGE = load_pages(find_spec_dir())["social-network"]
RTT_MS = 14.767
CLOCK_STEP_MS = 0.2
"""Tolerance for differences of times, which Chromium rounds to 0.1 ms each."""


@pytest.fixture(scope="module", params=["told by a switch", "told by HTTPS records"])
def dataset(
    request: pytest.FixtureRequest,
    browser_machine: None,
    virtual_clock: list[str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Dataset:
    """One round of one cell."""
    folder = tmp_path_factory.mktemp("web")
    records = "true" if "records" in request.param else "false"
    plan = folder / "plan.toml"
    plan.write_text(
        f'study = "web"\nlinks = ["fiber"]\npages = ["{PAGE.name}"]\nrounds = 1\n'
        f'[options]\nhttps_records = {records}\nconnections = "one"\n'
    )
    command = [*CROSSLAYER, "measure", "--plan", str(plan), *virtual_clock, "--out", str(folder / "data")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    return Dataset.open(folder / "data", every_round=True)


def itself(folder: Path, *arguments: str) -> pl.DataFrame:
    """Loads in a browser that queries the resolver itself: two rounds of a cell."""
    plan = folder / "plan.toml"
    plan.write_text(
        f'study = "web"\nlinks = ["fiber"]\npages = ["{PAGE.name}"]\nrounds = 2\n[options]\nresolver = "browser"\n'
    )
    command = [*CROSSLAYER, "measure", "--plan", str(plan), *arguments, "--out", str(folder / "itself")]
    subprocess.run(command, check=True, capture_output=True, timeout=900)
    return loads(Dataset.open(folder / "itself", every_round=True))


def loads(dataset: Dataset) -> pl.DataFrame:
    return dataset.table("page_loads").collect()


def lookups(dataset: Dataset) -> pl.DataFrame:
    return dataset.table("lookups").sort("position", "number").collect()


def test_a_load_over_every_transport(dataset: Dataset) -> None:
    rows = loads(dataset)
    assert rows["error"].to_list() == [None] * len(Protocol)
    assert sorted(rows["dns_protocol"]) == sorted(Protocol)
    assert set(rows["coupling"]) == {"coupled"}
    assert not rows["session_resumed"].any()  # a new user context: the web's handshakes are full
    assert set(dataset.table("resources").collect()["alpn"]) == {"h3"}


def test_a_page_with_aliases_loads_as_well(browser_machine: None, virtual_clock: list[str], tmp_path: Path) -> None:
    command = ["measure", "--study", "web", "--links", "fiber", "--pages", "example.org", "--rounds", "1"]
    subprocess.run(
        [*CROSSLAYER, *command, *virtual_clock, "--out", str(tmp_path / "web")],
        check=True,
        capture_output=True,
        timeout=900,
    )
    rows = loads(Dataset.open(tmp_path / "web", every_round=True))
    assert rows["error"].to_list() == [None] * len(Protocol)
    assert set(rows["lookup_count"]) == {1}


def test_a_browser_resolves_over_the_configured_transport(
    browser_machine: None, virtual_clock: list[str], tmp_path: Path
) -> None:
    """The server log confirms it, or the load is an error. A lookup on the existing connection takes a round-trip."""
    rows = itself(tmp_path, *virtual_clock)
    assert sorted(rows["dns_protocol"]) == ["DoH", "DoH", "DoH3", "DoH3"]
    assert rows["error"].null_count() == rows.height
    assert set(rows["lookup_count"]) == {PAGE.lookups}
    took = rows["domain_lookup_end_ms"] - rows["domain_lookup_start_ms"]
    assert took.to_list() == pytest.approx([RTT_MS] * rows.height, abs=0.4)


def test_every_lookup_is_accounted_for(dataset: Dataset) -> None:
    for _, load in lookups(dataset).group_by("position"):
        assert {name.rstrip(".") for name in load["name"]} == set(PAGE.hosts)
        assert set(load["type"]) == {"A", "HTTPS"}
        assert set(load["rcode"]) == {"NOERROR"}
        assert load["error"].null_count() == load.height
    assert set(loads(dataset)["lookup_count"]) == {PAGE.lookups}


def test_the_first_lookup_sets_up_a_resumed_connection(dataset: Dataset) -> None:
    for (protocol,), load in lookups(dataset).group_by("dns_protocol"):
        opened = load.filter("new_connection")
        assert opened.height == (protocol != Protocol.DOUDP)
        if Protocol(str(protocol)).transport.encrypted:
            assert load["session_resumed"].all()
        # Independent of noise, no lookup is faster than its round-trips.
        own = load.filter(pl.col("name") == f"{PAGE.host}.")
        assert own["total_ms"].max() > 0.97 * ROUND_TRIPS[str(protocol)] * RTT_MS  # type: ignore[operator]
        assert load["query_ms"].min() > 0.97 * RTT_MS  # type: ignore[operator]


def test_the_browsers_lookup_holds_the_stubs(dataset: Dataset) -> None:
    """Browser and stub use the same clock: the browser's lookup begins before the stub's and ends after it."""
    first = (
        lookups(dataset).filter(pl.col("name") == f"{PAGE.host}.").group_by("position").agg(pl.col("started_s").min())
    )
    joined = loads(dataset).join(first.rename({"started_s": "asked_s"}), on="position")
    asked_ms = (joined["asked_s"] - joined["started_s"]) * 1e3
    assert (asked_ms >= joined["domain_lookup_start_ms"] - CLOCK_STEP_MS).all()
    assert (asked_ms + joined["stub_lookup_ms"] <= joined["domain_lookup_end_ms"] + CLOCK_STEP_MS).all()
