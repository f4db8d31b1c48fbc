"""Intervals of the answer's numbers: they cover the value of a campaign that was not used for them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from crosslayer import claims, metrics, report
from crosslayer.campaign.dataset import Dataset
from crosslayer.metrics.campaigns import student_t
from crosslayer.metrics.resampling import Sample, drawn, interval
from crosslayer.report import answer

ROOT = Path(__file__).parents[2]
REPEATED = {
    study: sorted(path.parent for path in (ROOT / "data" / "repeats" / study).glob("**/campaign.json"))
    for study in ("coalescing", "combinations", "one-connection")
}
TRIALS, ROUNDS = 400, 24
WEIGHTS = next(drawn(ROUNDS, 200))


def campaign(draw: np.random.Generator, between: float) -> tuple[float, float, float]:
    """Median of a simulated campaign with its 95 % interval; rounds have a common effect and a right tail."""
    rounds = draw.normal(10, between) + draw.lognormal(0, 0.7, ROUNDS)
    sample = Sample(rounds, np.arange(ROUNDS))
    return sample.quantile(0.5), *interval(sample.quantiles(0.5, WEIGHTS), ROUNDS)


def covered_percent(campaigns: int, between: float) -> tuple[float, float]:
    """How often the value of a further campaign lies in the interval of several, and in the interval of one."""
    draw = np.random.default_rng(1)
    by_several = by_one = 0
    for _ in range(TRIALS):
        *used, (value, _, _) = (campaign(draw, between) for _ in range(campaigns + 1))
        errors = [metrics.standard_error(low, high, ROUNDS) for _, low, high in used]
        further = metrics.further_campaign([value for value, _, _ in used], errors)
        assert further is not None
        by_several += further.holds(value)
        by_one += used[0][1] <= value <= used[0][2]
    return 100 * by_several / TRIALS, 100 * by_one / TRIALS


@pytest.mark.slow
@pytest.mark.parametrize("campaigns", [3, 4])
@pytest.mark.parametrize("between", [0.5, 1.0])
def test_the_interval_covers_a_further_campaign_at_its_nominal_rate(campaigns: int, between: float) -> None:
    """Three standard errors of 400 trials at 95 % are 3.3 points. The errors of rounds are about 0.2."""
    by_several, by_one = covered_percent(campaigns, between)
    assert by_several == pytest.approx(95, abs=3.3)
    assert by_one < 75, "the interval of one campaign does not cover the next one"


def test_without_an_effect_of_the_campaign_the_interval_is_not_too_short() -> None:
    by_several, _ = covered_percent(3, 0.0)
    assert by_several >= 95


@pytest.mark.parametrize(("degrees", "expected"), [(1, 12.7062), (2, 4.3027), (3, 3.1824), (5, 2.5706), (30, 2.0423)])
def test_the_quantile_is_that_of_published_tables(degrees: int, expected: float) -> None:
    assert student_t(degrees, 0.95) == pytest.approx(expected, abs=1e-4)


def test_one_campaign_has_no_interval_for_a_further_one() -> None:
    assert metrics.further_campaign([1.0]) is None


def test_the_variance_between_campaigns_is_what_their_errors_do_not_explain() -> None:
    alike = metrics.further_campaign([10.0, 10.2, 10.1], [0.5, 0.5, 0.5])
    apart = metrics.further_campaign([10.0, 14.0, 12.0], [0.5, 0.5, 0.5])
    assert alike is not None
    assert apart is not None
    assert alike.between == 0
    assert apart.between == pytest.approx((4 - 0.25) ** 0.5)
    assert alike.high - alike.mean == pytest.approx(4.3027 * 0.5 * (4 / 3) ** 0.5, rel=1e-4)


def test_equal_values_have_an_interval_of_what_the_clock_resolves() -> None:
    further = metrics.further_campaign([1.0, 1.0, 1.0], resolution=0.01)
    assert further is not None
    assert (further.low, further.high) == (0.99, 1.01)


@pytest.mark.slow
@pytest.mark.parametrize("study", REPEATED)
def test_a_campaign_that_was_left_out_lies_in_the_interval_of_the_others(study: str, tmp_path: Path) -> None:
    """Always in RTT; percentages mostly: a faster machine changes them, in virtual time a load that the tick delays."""
    dataset = Dataset.open(ROOT / "data" / "raw" / study)
    report.save_answer(dataset, pl.DataFrame(schema=claims.COLUMNS), tmp_path)
    saved = json.loads((tmp_path / study / "answer.json").read_text(encoding="utf-8"))
    campaigns = 1 + len(list((ROOT / "data" / "repeats" / study).glob("*/")))
    assert campaigns >= 3
    assert {len(number["values"]) for number in saved["numbers"]} == {campaigns}
    assert saved["numbers"]
    for number in saved["numbers"]:
        if number["unit"] == "RTT":
            assert number["held_out"] == campaigns, number["name"]
    tries, held = campaigns * len(saved["numbers"]), sum(number["held_out"] for number in saved["numbers"])
    assert held >= (0.95 if dataset.campaign.clock == "virtual" else 0.9) * tries
    assert answer.gathered(tmp_path, None).studies[1][2] == str(campaigns)


@pytest.mark.slow
@pytest.mark.parametrize("folder", [path for paths in REPEATED.values() for path in paths], ids=str)
def test_a_further_campaign_has_the_conditions_of_the_committed_one(folder: Path) -> None:
    further = Dataset.open(folder)
    study = folder.relative_to(ROOT / "data" / "repeats").parts[0]
    first = Dataset.open(ROOT / "data" / "raw" / study)
    assert further.campaign.study == first.campaign.study
    assert further.campaign.clock == first.campaign.clock
    assert further.campaign.campaign != first.campaign.campaign
    assert further.campaign.git.clean
    assert set(further.campaign.links) == set(first.campaign.links)
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) <= 1_000_000


def test_another_campaign_of_the_study_has_no_repeats(tmp_path: Path) -> None:
    other = Dataset.open(ROOT / "data" / "raw" / "coalescing-virtual")
    assert answer.repeats(other) == []
