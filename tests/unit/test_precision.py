"""The planner and the intervals it rests on, against distributions whose answer is known."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

import synthetic
from crosslayer import metrics
from crosslayer.commands import sample_size
from crosslayer.metrics.precision import rounds_needed
from crosslayer.metrics.resampling import Estimate, Sample, derived, drawn

LEVEL, NOISE = 100.0, 5.0


def pilots(rounds: int, trials: int, seed: int, distribution: str = "normal") -> pl.LazyFrame:
    """Many pilots side by side, one per page."""
    draw = np.random.default_rng(seed)
    size = trials * rounds
    plt_ms = LEVEL + (draw.normal(0, NOISE, size) if distribution == "normal" else draw.exponential(2 * NOISE, size))
    return pl.LazyFrame(
        {
            "campaign": "c",
            "host": "",
            "round": np.tile(np.arange(rounds), trials),
            "link": "fiber",
            "page": np.repeat(np.arange(trials), rounds).astype(str),
            "combination": "DoQ + H3 1-RTT",
            "plt_ms": plt_ms,
        }
    )


def true_rounds(precision_percent: float, distribution: str = "normal") -> float:
    """Rounds at which 1.96 asymptotic standard errors of the median are the precision."""
    if distribution == "normal":
        median, density = LEVEL, 1 / (NOISE * math.sqrt(2 * math.pi))
    else:
        median, density = LEVEL + 2 * NOISE * math.log(2), 1 / (4 * NOISE)
    return (1.96 / (2 * density) / (median * precision_percent / 100)) ** 2


# The planner


@pytest.mark.parametrize("distribution", ["normal", "exponential"])
def test_a_large_pilot_finds_the_rounds_that_theory_asks_for(distribution: str) -> None:
    plan = rounds_needed(pilots(400, 40, 1, distribution), 0.5)
    truth = true_rounds(0.5, distribution)
    assert plan["rounds_needed"].median() == pytest.approx(truth, rel=0.12)
    assert plan["rounds_needed"].quantile(0.1) > truth / 2  # type: ignore[operator]
    assert plan["rounds_needed"].quantile(0.9) < truth * 2  # type: ignore[operator]


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [10, 30])
def test_rounds_enough_are_enough_as_often_as_they_say(rounds: int) -> None:
    plan = rounds_needed(pilots(rounds, 300, 2), 0.5)
    assert 0.84 <= (plan["rounds_enough"] >= true_rounds(0.5)).mean() <= 0.96  # type: ignore[operator]


@pytest.mark.slow
def test_the_rounds_planned_give_the_precision_asked_for() -> None:
    planned = int(rounds_needed(pilots(300, 40, 3), 1.0)["rounds_needed"].median())  # type: ignore[arg-type]
    result = rounds_needed(pilots(planned, 100, 4), 1.0)
    assert result["half_width_percent"].median() == pytest.approx(1.0, rel=0.15)


def test_half_the_half_width_takes_four_times_the_rounds() -> None:
    rows = pilots(50, 5, 5)
    coarse, fine = (rounds_needed(rows, percent)["rounds_needed"] for percent in (0.4, 0.2))
    assert (fine / coarse).to_list() == pytest.approx([4.0] * 5, rel=0.02)


def test_no_cell_is_asked_for_fewer_rounds_than_an_interval_takes() -> None:
    plan = rounds_needed(pilots(20, 3, 6), 50.0)
    assert plan["rounds_needed"].to_list() == [metrics.MIN_ROUNDS] * 3


def test_a_pilot_of_too_few_rounds_gives_no_number() -> None:
    plan = rounds_needed(pilots(metrics.MIN_ROUNDS - 1, 2, 7), 1.0)
    assert plan.select("half_width_percent", "rounds_needed", "rounds_enough").null_count().row(0) == (2, 2, 2)


# The command


def run(folder: Path) -> list[str]:
    """What the command says of a pilot, line by line."""
    result = CliRunner().invoke(sample_size.command, [str(folder)], catch_exceptions=False)
    return result.output.splitlines()


@pytest.mark.parametrize(("text", "percent"), [("1%", 1.0), (" 0.5 % ", 0.5), ("12.25%", 12.25)])
def test_precision_is_a_percentage(text: str, percent: float) -> None:
    assert sample_size.parse_precision(text) == percent


@pytest.mark.parametrize("text", ["1", "0.01", "0%", "100%", "-1%", "one", "%", ""])
def test_another_precision_is_refused(text: str) -> None:
    with pytest.raises(sample_size.SampleSizeError, match=r"is not a precision.*e\.g\. 1%"):
        sample_size.parse_precision(text)


def test_command_lists_every_cell_and_the_greatest_number(tmp_path: Path) -> None:
    folder = synthetic.write(tmp_path, links=["4g", "fiber"], pages=["wikipedia.org", "example.org"], rounds=20)
    lines = run(folder)
    rows = [line.split() for line in lines if " + H3 " in line]
    assert len(rows) == 2 * 2 * 4
    assert [row[0] for row in rows] == ["4g"] * 8 + ["fiber"] * 8
    assert [row[1] for row in rows[:8]] == ["wikipedia.org"] * 4 + ["example.org"] * 4
    needed, enough = ([int(row[column]) for row in rows] for column in (-2, -1))
    assert all(more >= least for least, more in zip(needed, enough, strict=True))
    assert f"--rounds {max(needed)} ({max(enough)} with 90 % confidence)" in "\n".join(lines)


def test_a_cell_with_too_few_rounds_is_marked(tmp_path: Path) -> None:
    folder = synthetic.write(tmp_path, links=["fiber"], pages=["example.org"], rounds=8, failures=0.2, seed=3)
    lines = run(folder)
    text = "\n".join(lines)
    assert " ?" in text
    assert "fewer than 6 complete rounds" in text


def test_command_refuses_a_pilot_that_says_nothing(tmp_path: Path) -> None:
    short = synthetic.write(tmp_path / "short", links=["fiber"], pages=["example.org"], rounds=5)
    with pytest.raises(sample_size.SampleSizeError, match=r"fewer than 6 complete rounds in every cell.*--rounds 30"):
        run(short)
    only_dns = synthetic.write(tmp_path / "dns", links=["fiber"], pages=["example.org"], rounds=8, h3=[], aa=False)
    with pytest.raises(sample_size.SampleSizeError, match="no round with both"):
        run(only_dns)


# Estimates: statistics of resampled rounds


def estimate(values: np.ndarray, q: float, weights: np.ndarray) -> Estimate:
    sample = Sample(values, np.arange(len(values)))
    return Estimate(sample.quantile(q), sample.size, sample.rounds, sample.quantiles(q, weights))


def coverage(statistic: object, truth: float, rounds: int = 30, trials: int = 400) -> float:
    """Share of simulated campaigns whose interval holds the truth."""
    draw, hits = np.random.default_rng(12), 0
    [weights] = list(drawn(rounds, 500))
    for _ in range(trials):
        low, high = statistic(draw, weights).interval  # type: ignore[operator]
        hits += low <= truth <= high
    return hits / trials


def test_intervals_of_a_lower_quantile_hold_the_truth() -> None:
    def p25(draw: np.random.Generator, weights: np.ndarray) -> Estimate:
        return estimate(draw.exponential(1, 30), 0.25, weights)

    assert 0.90 <= coverage(p25, -math.log(0.75)) <= 0.985


def test_intervals_of_a_difference_of_medians_with_common_noise_hold_the_truth() -> None:
    def difference(draw: np.random.Generator, weights: np.ndarray) -> Estimate:
        common = draw.normal(100, 20, 30)
        one, other = (estimate(common + shift + draw.normal(0, 2, 30), 0.5, weights) for shift in (7.0, 0.0))
        return derived(lambda x, y: x - y, one, other)

    assert 0.90 <= coverage(difference, 7.0) <= 1.0


def test_intervals_of_a_mean_over_cells_hold_the_truth() -> None:
    def mean(draw: np.random.Generator, weights: np.ndarray) -> Estimate:
        cells = [estimate(draw.normal(level, 3, 30), 0.5, weights) for level in (10, 20, 60)]
        return derived(lambda *xs: np.mean(xs, axis=0), *cells)

    assert 0.90 <= coverage(mean, 30.0) <= 0.985


@pytest.mark.parametrize("q", [0.05, 0.2, 0.5, 0.75, 0.99])
def test_quantiles_of_resamples_are_exact(q: float) -> None:
    """The search in the middle of a large sample, and beyond it, against sorting each resample."""
    draw = np.random.default_rng(8)
    rounds = 600
    clusters = np.repeat(np.arange(rounds), 3)
    values = draw.exponential(size=3 * rounds)
    [weights] = list(drawn(rounds, 30, seed=1))
    slow = [np.quantile(np.repeat(values, row[clusters].astype(int)), q, method="median_unbiased") for row in weights]
    assert Sample(values, clusters).quantiles(q, weights) == pytest.approx(slow)


def test_equal_rounds_of_unequal_size_are_searched_all_over() -> None:
    """One round holds a third of the observations, all low: drawn or not, the median jumps out of the middle."""
    draw = np.random.default_rng(9)
    rounds = 40
    clusters = np.concatenate([np.zeros(2000, dtype=int), np.repeat(np.arange(1, rounds), 100)])
    values = np.concatenate([draw.normal(0, 1, 2000), draw.normal(50, 1, 3900)])
    [weights] = list(drawn(rounds, 60, seed=2))
    slow = [np.median(np.repeat(values, row[clusters].astype(int))) for row in weights]
    assert Sample(values, clusters).quantiles(0.5, weights) == pytest.approx(slow)


def test_an_estimate_without_draws_has_no_interval_and_passes_that_on() -> None:
    known, unknown = Estimate(1.0, 10, 8, np.zeros(5)), Estimate(2.0, 3, 3)
    both = derived(lambda x, y: x + y, known, unknown)
    assert (both.value, both.n, both.rounds, both.interval) == (3.0, 3, 3, None)
