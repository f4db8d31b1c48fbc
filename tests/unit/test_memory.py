"""A campaign larger than memory: parts in any order, and blocks of very many rounds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import synthetic
from crosslayer import metrics
from crosslayer.campaign import dataset
from crosslayer.campaign.dataset import Dataset
from crosslayer.claims.data import Observed
from crosslayer.claims.measures import median
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
    labels = {"campaign": "c", "host": "", "link": "fiber", "page": "p"}
    one, other = (
        pl.DataFrame({"round": draw.permutation(30)[:20]}).select(
            *(pl.lit(word).alias(name) for name, word in labels.items()),
            "round",
            series=pl.lit(name),
            value=pl.col("round") * factor,
        )
        for name, factor in (("a", 1.0), ("b", 3.0))
    )
    results = Observed([one.lazy(), other.lazy()], rtts_ms={"fiber": 10.0})
    common = one.join(other, on="round", suffix="_b")
    difference = median({"b": 1.0, "a": -2.0}).on("fiber")(results)
    assert difference.value == common.select(pl.col("value_b") - 2 * pl.col("value")).to_series().median()
    assert results.rounds == pl.concat([one, other])["round"].n_unique()


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


def rows_of(series: str, rounds: np.ndarray, values: np.ndarray, host: str = "", page: str = "p") -> pl.LazyFrame:
    labels = {"campaign": "c", "host": host, "link": "fiber", "page": page, "series": series}
    return pl.LazyFrame({"round": rounds, "value": values}).with_columns(
        **{name: pl.lit(word) for name, word in labels.items()}
    )


def test_cells_give_what_joins_of_rows_give() -> None:
    """Sums within a round, whatever is missing, in whatever order, on whatever host a round was measured."""
    draw = np.random.default_rng(3)
    parts = [
        pl.concat(
            rows_of(series, draw.permutation(np.array(among))[:25], draw.uniform(1, 2, 25), host)
            for host, among in (("a", range(40)), ("b", range(30, 70)))
        )
        for series in ("exchange", "load")
    ]
    cells = metrics.Cells((metrics.Part(part) for part in parts), sums={"both": ("exchange", "load")})
    whole = pl.concat(parts).collect()
    exchanges, loads = (whole.filter(series=series) for series in ("exchange", "load"))
    joined = exchanges.join(loads, on=["round", "host"], suffix="_load").sort("round", "host")
    assert 0 < joined.height < 50
    assert cells.cells == {(series, "fiber", "p") for series in ("exchange", "load", "both")}
    both = cells.numbers(("both", "fiber", "p"))
    assert np.array_equal(both.values, (joined["value"] + joined["value_load"]).to_numpy())
    less = cells.total({"load": 1.0, "exchange": -1.0}, "fiber", "p")
    assert less.values == pytest.approx((joined["value_load"] - joined["value"]).to_numpy())
    expected = metrics.rounds_of(joined.with_columns(pl.col("campaign", "host").cast(pl.Categorical)))
    assert np.array_equal(cells.rounds_of(both.rounds).numbers, expected.numbers)
    assert np.array_equal(cells.rounds_of(both.rounds).hosts, expected.hosts)


def test_rows_of_a_cell_in_two_parts_are_refused() -> None:
    rows = rows_of("exchange", np.arange(5), np.ones(5))
    with pytest.raises(ValueError, match="rows of exchange, fiber, p are in two parts"):
        metrics.Cells([metrics.Part(rows), metrics.Part(rows)])


def test_some_cells_have_the_rounds_that_they_have_alone() -> None:
    draw = np.random.default_rng(4)
    parts = [
        rows_of(series, draw.permutation(first + np.arange(20)), draw.uniform(size=20), page=page)
        for page, first in (("p", 7), ("q", 0))
        for series in ("exchange", "load")
    ]
    some = metrics.Cells(metrics.Part(part) for part in parts).only(["fiber", "dsl"], ["p"])
    alone = metrics.Cells(metrics.Part(part) for part in parts[:2])
    assert some.cells == alone.cells
    assert some.rounds.count == alone.rounds.count == 20
    for cell in alone.cells:
        for result, expected in zip(some.numbers(cell), alone.numbers(cell), strict=True):
            assert np.array_equal(result, expected)


def test_a_sum_without_a_common_round_is_no_cell() -> None:
    parts = [rows_of("exchange", np.arange(5), np.ones(5)), rows_of("load", np.arange(5, 9), np.ones(4))]
    cells = metrics.Cells((metrics.Part(part) for part in parts), sums={"both": ("exchange", "load")})
    assert ("both", "fiber", "p") not in cells.cells
    assert cells.pages("exchange", "fiber") == ("p",)
    assert cells.pages("both", "fiber") == ()


def test_a_dataset_that_is_opened_in_slices_is_the_same_and_refused_for_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = synthetic.write(tmp_path, links=["fiber", "4g"], pages=["example.org"], rounds=12, failures=0.1)
    whole = Dataset.open(folder)
    monkeypatch.setattr(dataset, "_AT_ONCE", 7)
    assert Dataset.open(folder).rounds_per_cell == whole.rounds_per_cell
    [path] = (folder / "tcp_rtts").glob("link=fiber/*.parquet")
    rows = pq.read_table(path, partitioning=None)
    pq.write_table(pa.concat_tables([rows, rows.slice(0, 1)]), path)  # far from the slice that has it too
    with pytest.raises(dataset.DatasetError, match="1 observations are there more than once"):
        Dataset.open(folder)


@pytest.mark.parametrize("q", [0.05, 0.5, 0.99])
def test_a_sample_larger_than_its_pilot_has_the_same_quantiles(q: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few observations of the pilot, many that are equal, and rounds that differ: whatever misleads the search."""
    draw = np.random.default_rng(5)
    clusters = np.repeat(np.arange(50), 200)
    values = np.round(draw.lognormal(size=10_000) + clusters // 10, 1)
    [weights] = list(resampling.drawn(50, 40))
    whole = resampling.Sample(values, clusters)
    expected = whole.quantiles(q, weights)
    assert whole.quantile(q) == pytest.approx(np.quantile(values, q, method="median_unbiased"), rel=1e-12)
    monkeypatch.setattr(resampling, "_OF_PILOT", 100)
    few = resampling.Sample(values, clusters)
    assert np.array_equal(few.quantiles(q, weights), expected)
    assert few.at(0, 9_999) == [values.min(), values.max()]
    assert few.quantile(q) == whole.quantile(q)
