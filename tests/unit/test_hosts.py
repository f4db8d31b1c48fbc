"""Hosts beside each other: intervals that resample them, their spread, and the ones that disagree."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from crosslayer import metrics, published
from crosslayer.campaign import provenance
from crosslayer.campaign.dataset import Dataset
from crosslayer.campaign.errors import CampaignError
from crosslayer.campaign.plan import Cell, Plan
from crosslayer.campaign.rounds import FinishedRound
from crosslayer.campaign.run import _Hosts
from crosslayer.campaign.store import Store
from crosslayer.campaign.tables import TABLES
from crosslayer.figures import Inputs
from crosslayer.figures.hosts import HOSTS


def loads(of_hosts: dict[str, float], rounds: int = 20) -> pl.LazyFrame:
    """Of each host so many rounds around its own PLT, ms; the A/A loads are alike."""
    draw = np.random.default_rng(1)
    rows: list[dict[str, Any]] = []
    for index, (host, plt_ms) in enumerate(of_hosts.items()):
        for number in range(rounds):
            known = {"campaign": "c", "round": index * rounds + number, "host": host, "link": "fiber", "page": "p"}
            known |= {"h3": "1-rtt", "coupling": "decoupled", "dns_protocol": None, "error": None}
            rows += [
                known | {"condition": "main", "role": role, "plt_ms": plt_ms + draw.normal(0, 0.1)}
                for role in ("measured", "self-check")
            ]
    return pl.LazyFrame(rows)


def width(frame: pl.LazyFrame) -> float:
    actual = metrics.medians(frame.filter(condition="main", role="measured"), "plt_ms", ["link"]).row(0, named=True)
    return float(actual["high"] - actual["low"])


def test_an_interval_knows_that_hosts_differ() -> None:
    apart = loads({"a": 100.0, "b": 110.0, "c": 120.0, "d": 130.0})
    pretended = apart.with_columns(host=pl.lit("one"))
    assert width(apart) > 1.5 * width(pretended)
    alike = loads(dict.fromkeys("abcd", 100.0))
    assert width(alike) < 2 * width(alike.with_columns(host=pl.lit("one")))


def test_the_host_that_disagrees_is_named() -> None:
    spread = metrics.spread(loads({"a": 100.0, "b": 100.0, "c": 100.0, "slow": 102.0}))
    assert metrics.disagreeing(spread) == ["slow"]
    actual = {row["host"]: row for row in spread.iter_rows(named=True)}
    assert actual["slow"]["median"] == pytest.approx(2, abs=0.3)
    assert metrics.disagreeing(metrics.spread(loads(dict.fromkeys("abcd", 100.0)))) == []


def test_the_figure_has_every_host_in_both_panels() -> None:
    dataset = Dataset.open(Path(__file__).parents[2] / "data" / "raw" / "coalescing")
    inputs = Inputs.of(dataset, published.load())
    host = pl.when(pl.col("round") % 2 == 0).then(pl.lit("even")).otherwise(pl.lit("odd"))
    of_two_hosts = replace(inputs, page_loads=inputs.page_loads.with_columns(host=host))
    rows = HOSTS.data(of_two_hosts)
    assert rows.group_by("panel").agg(pl.col("host").sort())["host"].to_list() == [["even", "odd"]] * 2
    HOSTS.chart(rows).to_dict()
    own = rows.filter(pl.col("panel").str.starts_with("A/A"))
    # Each of three kinds of load is repeated in 3 of the 24 rounds of each of 15 cells.
    assert own["n"].sum() == 3 * 3 * 15
    assert ((own["low"] < 0) & (own["high"] > 0)).all()


def test_a_repetition_is_compared_with_the_load_that_it_repeats() -> None:
    at = {"campaign": "c", "round": 1, "host": "a", "link": "fiber", "page": "p", "early_data_accepted": True}
    kinds = (("1-rtt", "main", 110, 99), ("0-rtt", "no-token", 80, 88))
    rows = [
        at | {"h3": h3, "condition": condition, "role": role, "plt_ms": plt_ms}
        for h3, condition, *both in kinds
        for role, plt_ms in zip(("measured", "self-check"), both, strict=True)
    ]
    table = pl.LazyFrame(rows, schema=TABLES["page_loads"].polars_schema())
    assert metrics.repetition_differences(table).collect()["percent"].to_list() == pytest.approx([10.0, -10.0])


def test_hosts_have_names_and_a_mixed_campaign_says_so(tmp_path: Any) -> None:
    plan = Plan(study="coalescing", links=("fiber",), pages=("p",), rounds=2)

    def part(mark: str, version: str, name: str = "") -> FinishedRound:
        host = provenance.MeasuringHost(mark, name, {"cpu": "x"})
        return FinishedRound(Cell("fiber", "p"), 0, {}, 0, "netem", {"chromium": version, "server": "1"}, host)

    with Store(tmp_path, plan) as store:
        hosts = _Hosts(store, "c")
        assert [
            hosts.named(part("m1", "156")),
            hosts.named(part("m2", "157")),
            hosts.named(part("m3", "156", "tall")),
        ] == [
            "host-1",
            "host-2",
            "tall",
        ]
    with Store(tmp_path, plan) as store:
        assert _Hosts(store, "c").named(part("m2", "157")) == "host-2", "the same after a restart"
        assert store.fact("versions") == {"chromium": "156", "server": "1"}
        assert store.fact("hosts")["host-2"] == {"cpu": "x", "other_versions": {"chromium": "157"}}
        [note] = store.fact("notes")
        assert note.endswith("on host-2, with other versions of: chromium")


def test_a_host_is_distinguished_without_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CROSSLAYER_HOST", raising=False)
    here, elsewhere = provenance.this_host("one"), provenance.this_host("other")
    assert here == provenance.this_host("one")
    assert here.mark != elsewhere.mark, "nobody can join two campaigns by it"
    assert here.name == ""
    monkeypatch.setenv("CROSSLAYER_HOST", "rack 1; rm")
    with pytest.raises(CampaignError, match="CROSSLAYER_HOST"):
        provenance.this_host("one")
