"""A campaign larger than memory: parts in any order, and blocks of very many rounds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import synthetic
from crosslayer import metrics
from crosslayer.campaign.dataset import Dataset
from crosslayer.claims.measures import median
from crosslayer.claims.observed import Observed
from crosslayer.metrics import resampling
from crosslayer.metrics.resampling import Rounds


def test_parts_give_what_the_whole_gives(tmp_path: Path) -> None:
    links, pages = ["fiber", "4g"], ["example.org", "wikipedia.org"]
    folder = synthetic.write(tmp_path, links=links, pages=pages, rounds=25, failures=0.1)
    loads = metrics.page_loads(Dataset.open(folder).table("page_loads"))
    parts = [loads.filter(pl.col("link") == link) for link in links]
    for by in ([], ["h3"], ["link", "page", "h3"]):
        assert metrics.medians(parts, "plt_ms", by).equals(metrics.medians(loads, "plt_ms", by))
        assert metrics.curves(parts, "plt_ms", by).equals(metrics.curves(loads, "plt_ms", by))


def test_observations_are_of_their_round_whatever_the_order_of_parts() -> None:
    draw = np.random.default_rng(1)
    words = {"campaign": "c", "host": "", "link": "fiber", "page": "p"}
    one, other = (
        pl.DataFrame({"round": draw.permutation(30)[:20]}).select(
            *(pl.lit(word).alias(name) for name, word in words.items()),
            "round",
            series=pl.lit(name),
            value=pl.col("round") * factor,
        )
        for name, factor in (("a", 1.0), ("b", 3.0))
    )
    found = Observed([one.lazy(), other.lazy()], rtts_ms={"fiber": 10.0})
    common = one.join(other, on="round", suffix="_b")
    difference = median({"b": 1.0, "a": -2.0}).on("fiber")(found)
    assert difference.value == common.select(pl.col("value_b") - 2 * pl.col("value")).to_series().median()
    assert found.rounds == pl.concat([one, other])["round"].n_unique()


def test_of_very_many_rounds_blocks_of_neighbours_of_one_host_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resampling, "MOST_BLOCKS", 100)
    hosts = np.sort(np.arange(1003) % 3)
    np.random.default_rng(1).shuffle(hosts)
    rounds = Rounds.of(np.arange(1003), hosts)
    assert rounds.count == 1003
    assert 97 <= len(rounds.hosts) <= 100
    assert np.array_equal(rounds.hosts[rounds.blocks], hosts)
    sizes = np.bincount(rounds.blocks)
    assert sizes.min() >= 10
    assert sizes.max() <= 12
    for host in range(3):
        assert np.all(np.diff(rounds.blocks[hosts == host]) >= 0)
