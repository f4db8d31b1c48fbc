"""Claims: the table against the published data itself, every kind of verdict, and what cannot be measured."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner
from tests import committed

import synthetic
from crosslayer import claims, metrics, published
from crosslayer.campaign.dataset import Dataset
from crosslayer.claims import Verdict, distribution_shape, rules, table, tolerances
from crosslayer.claims.data import FEWEST_ROUNDS, NotMeasured, Observed
from crosslayer.claims.measures import CustomMeasure, Limited, Measure, Quantile, Share, median
from crosslayer.claims.rules import of_distance, spaced
from crosslayer.claims.tolerances import Tolerance
from crosslayer.cli import cli
from crosslayer.metrics.resampling import Estimate, Sample
from crosslayer.report import ReportError
from crosslayer.studies import STUDIES
from crosslayer.studies.coalescing import claims as tnsm24
from crosslayer.studies.one_connection import claims as one_connection

TABLES = ("dns_exchanges", "tcp_rtts", "page_loads", "link_checks")
OURS = ("TNSM24", "TNSM24 talk")


@pytest.fixture(scope="module")
def results() -> pl.DataFrame:
    """Every published result."""
    return published.load().claims.filter(kind="result")


@pytest.fixture(scope="module")
def as_published(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """A campaign drawn from the published quantiles."""
    return Dataset.open(synthetic.write(tmp_path_factory.mktemp("published"), rounds=200))


@pytest.fixture(scope="module")
def verdicts(as_published: Dataset) -> pl.DataFrame:
    return check(as_published)


class Changed:
    """A dataset of which some tables are others."""

    def __init__(self, dataset: Dataset, tables: dict[str, pl.LazyFrame]) -> None:
        self._dataset, self._tables = dataset, tables

    def table(self, name: str) -> pl.LazyFrame:
        return self._tables[name] if name in self._tables else self._dataset.table(name)


def check(dataset: Dataset, **changed: pl.LazyFrame) -> pl.DataFrame:
    owners = {claim: study.name for study in STUDIES.values() if study.claims for claim in study.claims.checks}
    elsewhere = {claim: f"the study {study} is not in this dataset" for claim, study in owners.items()}
    return claims.check(Changed(dataset, changed), tnsm24.CLAIMS, published.load().claims, elsewhere=elsewhere)


def observed(dataset: Dataset, **changed: pl.LazyFrame) -> Observed:
    return tnsm24.observed(**{name: Changed(dataset, changed).table(name) for name in TABLES})


def row(verdicts: pl.DataFrame, claim: str) -> dict[str, object]:
    return verdicts.row(by_predicate=pl.col("claim_id") == claim, named=True)


def small(folder: Path, **options: object) -> pl.DataFrame:
    """Verdicts of a small campaign with something missing."""
    return check(Dataset.open(synthetic.write(folder, **options)))  # type: ignore[arg-type]


# The table


def test_every_result_of_the_paper_and_its_talk_has_a_check_and_no_check_is_without_a_claim(
    results: pl.DataFrame,
) -> None:
    wanted = results.filter(pl.col("paper").is_in(OURS))["claim_id"].to_list()
    elsewhere = set(one_connection.CHECKS) & set(wanted)  # what takes coalescing itself
    assert elsewhere == {"T222", "T269"}
    assert sorted(wanted) == sorted([*tnsm24.CHECKS, *elsewhere])


@pytest.mark.slow
def test_every_result_of_every_paper_is_listed_once_and_in_order(results: pl.DataFrame, verdicts: pl.DataFrame) -> None:
    assert verdicts["claim_id"].to_list() == results["claim_id"].to_list()
    others = verdicts.filter(~pl.col("paper").is_in(OURS))
    assert others["verdict"].unique().to_list() == ["not measured"]
    assert others["why"].str.contains(r"^The stud.* not in this dataset\.$").all()


def test_cells_of_fig_8_are_those_their_claims_name(as_published: Dataset, results: pl.DataFrame) -> None:
    """Each must ask for the cell in its claim's scope."""
    campaign = observed(as_published)
    for index in range(45):
        claim = results.row(by_predicate=pl.col("claim_id") == f"T{223 + index}", named=True)
        combination, page, link = claim["scope"].split("; ")
        asked = tnsm24.CHECKS[f"T{223 + index}"].run(campaign, float(claim["value"])).estimate
        plt, base = (median(name, page).on(link)(campaign).value for name in (combination, "DoUDP + H3 1-RTT"))
        assert asked is not None
        assert asked.value == pytest.approx((plt / base - 1) * 100)


def test_a_campaign_drawn_from_the_published_curves_reproduces_them(verdicts: pl.DataFrame) -> None:
    """Wiring: a check that asks for another link, page, protocol or quantile than its claim fails here."""
    fits = pl.col("verdict").is_in(["reproduced", "inconclusive"])  # some tolerances are narrower than 200 rounds give
    by_verdict = dict(verdicts.select("claim_id", fits.alias("fits")).iter_rows())
    exchanges = [f"T{n:03}" for n in (*range(77, 86), *range(88, 96), 98, 99)]
    orderings = [f"T{n}" for n in (122, 124, 125, 127, 137, 138, 147, 149, 202, 219)]
    heatmap = [f"T{n}" for n in (123, 128, 129, 134, 135, 136, *range(139, 147), *range(223, 268))]
    absolute = [f"T{n}" for n in (155, 156, 164, 165, 170, 171, 173, 174, 175, 180, 181, 184, 185, 187)]
    summary = [f"T{n}" for n in (*range(196, 202), 1, 2) if n > 100] + ["T001", "T002"]
    for claim in [*exchanges, *orderings, *heatmap, *absolute, *summary]:
        assert by_verdict[claim], row(verdicts, claim)


def test_our_value_of_every_printed_cell_is_close_to_the_published_one(verdicts: pl.DataFrame) -> None:
    """Closer than the tolerances: the data are the published ones."""
    cells = verdicts.filter(pl.col("section_or_figure") == "Fig. 8", pl.col("paper") == "TNSM24")
    distance = (cells["ours"] - cells["published"].str.strip_suffix(" %").cast(pl.Float64)).abs()
    assert cells.height == 45
    assert distance.max() < 1.0  # type: ignore[operator]


def test_where_the_paper_contradicts_itself_the_note_says_so(verdicts: pl.DataFrame) -> None:
    for claim in ("T003", "T004", "T080", "T086", "T113", "T138", "T139", "T140", "T145", "T146", "T198"):
        assert row(verdicts, claim)["note"] != "", claim
    assert row(verdicts, "T003")["verdict"] == "not reproduced"  # nor by the data behind the paper
    assert "Contradicts the paper's own Fig. 8" in str(row(verdicts, "T003")["plain"])


@pytest.mark.slow
def test_every_claim_has_a_sentence_and_every_failure_a_cause() -> None:
    for study in STUDIES.values():
        for check in study.claims.checks.values() if study.claims else ():
            assert len(check.sentence) > 10, check.claim
    # Campaigns in virtual time are checked too; if verdicts differ, the page has both values.
    for name in STUDIES:
        failed = committed.verdicts(name).filter(verdict="not reproduced")
        assert failed.filter(cause="")["claim_id"].to_list() == []
        # Every number that bears a cause out is in the campaign.
        assert failed.filter(pl.col("cause").str.contains("lacks the numbers"))["claim_id"].to_list() == []


def test_a_cause_has_numbers_of_ours_or_calls_itself_a_guess(as_published: Dataset) -> None:
    one = rules.claim("T001", "A sentence", "a reason")
    with pytest.raises(ValueError, match="call it a guess: The browser is faster"):
        rules.by_id(one, causes={"The browser is faster.": "T001"})
    campaign = tnsm24.CLAIMS.observed(**{name: as_published.table(name) for name in tnsm24.CLAIMS.tables})
    exchange = tnsm24.exchange("DoUDP")
    text = rules.Cause("It takes {0} RTT.", (exchange,)).filled(campaign)
    assert text == f"It takes {exchange(campaign).value:.2f} RTT."
    lacking = rules.Cause("It takes {0} RTT.", (exchange.on("moon"),)).filled(campaign)
    assert lacking == "A guess, for which this campaign lacks the numbers: It takes ? RTT."


def test_a_claim_belongs_to_one_study_and_texts_to_claims_that_exist() -> None:
    one = rules.claim("T001", "A sentence", "a reason")
    with pytest.raises(ValueError, match="two checks"):
        rules.by_id(one, one)
    with pytest.raises(ValueError, match="T002 has no check"):
        rules.by_id(one, causes={"A guess.": "T001 T002"})


def test_arithmetic_goes_along_every_resample() -> None:
    two, four = constant(2.0, 1.0, 3.0), constant(4.0, 3.0, 5.0)
    for measure, value, interval in (
        (two + four, 6.0, (4.05, 7.95)),
        (four - two, 2.0, (2.0, 2.0)),
        (1 - two, -1.0, (-1.95, -0.05)),
        (3 * two, 6.0, (3.15, 8.85)),
        (1 / two, 0.5, (0.339, 0.952)),
        (four / two - 1, 1.0, (0.678, 1.905)),
        (four.over(two), 100.0, (67.8, 190.5)),
    ):
        results = measure(None)  # type: ignore[arg-type]
        assert results.value == pytest.approx(value)
        assert results.interval == pytest.approx(interval, rel=0.02, abs=0.1)


def test_intervals_are_those_of_the_figures(as_published: Dataset, verdicts: pl.DataFrame) -> None:
    combinations = metrics.combine(
        metrics.exchanges(as_published.table("dns_exchanges")), metrics.page_loads(as_published.table("page_loads"))
    )
    chosen = combinations.filter(pl.col("link") == "fiber", pl.col("page") == "example.org")
    figure = metrics.relative_medians(chosen).row(by_predicate=pl.col("combination") == "DoH + H3 1-RTT", named=True)
    claim = row(verdicts, "T253")
    assert (claim["ours"], claim["low"], claim["high"]) == pytest.approx(
        (figure["increase_percent"], figure["low"], figure["high"])
    )


# Verdicts


@pytest.mark.slow
def test_another_truth_is_not_reproduced(as_published: Dataset) -> None:
    """DoH and DoQ exchanged, 0-RTT and 1-RTT exchanged: what was claimed of them must fall."""
    swapped = as_published.table("dns_exchanges").with_columns(pl.col("protocol").replace({"DoH": "DoQ", "DoQ": "DoH"}))
    loads = as_published.table("page_loads").with_columns(
        h3=pl.col("h3").replace({"1-rtt": "0-rtt", "0-rtt": "1-rtt"}), early_data_accepted=True
    )
    judged = check(as_published, dns_exchanges=swapped, page_loads=loads)
    for claim in ("T005", "T085", "T122", "T147", "T079", "T090", "T215", "T141", "T210"):
        assert row(judged, claim)["verdict"] == "not reproduced", row(judged, claim)
    assert row(judged, "T082")["verdict"] == "not reproduced"
    assert row(judged, "T077")["verdict"] == "reproduced"  # DoUDP is untouched


def constant(value: float, low: float, high: float, rounds: int = 30) -> Measure:
    draws = None if rounds < metrics.MIN_ROUNDS else np.linspace(low, high, 1001)
    return CustomMeasure(lambda observed: Estimate(value, 100, rounds, draws))


def run(rule: rules.Rule, of: object, value: float | None = None) -> rules.Outcome:
    return rule.judge(of, None, value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [
        (2.5, Verdict.REPRODUCED),
        (2.25, Verdict.INCONCLUSIVE),
        (2.2, Verdict.DIRECTION_ONLY),
        (1.99, Verdict.DIRECTION_ONLY),
        (1.9, Verdict.NOT_REPRODUCED),
        (2.9, Verdict.DIRECTION_ONLY),
        (3.0, Verdict.NOT_REPRODUCED),
    ],
)
def test_a_duration_keeps_its_direction_as_long_as_it_keeps_its_round_trips(ours: float, verdict: Verdict) -> None:
    outcome = run(tnsm24.trips(2), constant(ours, ours - 0.001, ours + 0.001), 2.5)
    assert outcome.verdict == verdict


@pytest.mark.parametrize(
    ("ours", "low", "high", "verdict"),
    [
        (10.0, 9.0, 11.0, Verdict.REPRODUCED),
        (13.1, 12.0, 14.0, Verdict.INCONCLUSIVE),
        (14.0, 13.0, 15.0, Verdict.INCONCLUSIVE),
        (14.0, 13.5, 15.0, Verdict.DIRECTION_ONLY),
        (5.7, 5.2, 6.2, Verdict.DIRECTION_ONLY),
        (5.7, 4.9, 6.2, Verdict.NOT_REPRODUCED),
        (21.0, 20.5, 21.5, Verdict.NOT_REPRODUCED),
        (2.0, 1.0, 3.0, Verdict.NOT_REPRODUCED),
        (2.0, -1.0, 5.0, Verdict.NOT_REPRODUCED),
        (2.0, -1.0, 8.0, Verdict.INCONCLUSIVE),
        (-2.0, -3.0, -1.0, Verdict.NOT_REPRODUCED),
    ],
)
def test_a_difference_keeps_its_direction_where_its_interval_excludes_0(
    ours: float, low: float, high: float, verdict: Verdict
) -> None:
    assert run(tnsm24.in_percent, constant(ours, low, high), 10.0).verdict == verdict


def test_a_negative_difference_has_a_direction_too() -> None:
    assert run(tnsm24.in_percent, constant(-18.0, -19.0, -17.0), -10.0).verdict == Verdict.DIRECTION_ONLY
    assert run(tnsm24.in_percent, constant(20.0, 19.0, 21.0), -10.0).verdict == Verdict.NOT_REPRODUCED


def test_a_plt_in_ms_has_no_direction() -> None:
    assert run(tnsm24.absolute_ms, constant(300.0, 290.0, 310.0), 630.0).verdict == Verdict.NOT_REPRODUCED


def test_an_interval_that_reaches_beyond_the_tolerance_is_reported() -> None:
    assert "the interval exceeds the tolerance" in run(tnsm24.in_percent, constant(10.0, 1.0, 19.0), 10.0).why
    assert "exceeds" not in run(tnsm24.in_percent, constant(10.0, 9.0, 11.0), 10.0).why


def test_a_duration_is_judged_by_its_round_trips_and_by_what_is_beyond_them() -> None:
    def verdict_of(ours: float, width: float = 0.001) -> tuple[str, str]:
        outcome = run(tnsm24.trips(2), constant(ours, ours - width, ours + width), 2.2)
        return outcome.round_trips, outcome.overhead

    assert verdict_of(2.21) == ("yes", "yes")
    assert verdict_of(2.1) == ("yes", "no")
    assert verdict_of(2.2, 0.06) == ("yes", "inconclusive")
    assert verdict_of(3.2) == ("no", "no")
    assert verdict_of(2.97, 0.1) == ("inconclusive", "no")
    assert run(tnsm24.in_rtts, constant(2.2, 2.1, 2.3), 2.2).round_trips == ""
    assert run(tnsm24.trips(2), constant(2.0, 1.9, 2.1), 2.0).overhead == ""  # a count of round-trips has none


@pytest.mark.parametrize(
    ("ours", "low", "high", "verdict"),
    [
        (8.0, 6.0, 9.9, Verdict.REPRODUCED),
        (11.5, 9.6, 17.1, Verdict.INCONCLUSIVE),
        (11.5, 10.6, 12.1, Verdict.NOT_REPRODUCED),
        (-2.0, -3.0, -1.0, Verdict.NOT_REPRODUCED),
    ],
)
def test_up_to_is_a_bound(ours: float, low: float, high: float, verdict: Verdict) -> None:
    rule = rules.Number(tolerance=tolerances.RELATIVE, unit="%", up_to=True)
    assert run(rule, constant(ours, low, high), 10.0).verdict == verdict


@pytest.mark.parametrize(
    ("ours", "low", "verdict"),
    [
        (1.2, 1.1, Verdict.REPRODUCED),
        (1.2, 0.9, Verdict.INCONCLUSIVE),
        (0.9, 0.7, Verdict.INCONCLUSIVE),
        (0.9, 0.85, Verdict.NOT_REPRODUCED),
        (0.8, 0.7, Verdict.NOT_REPRODUCED),
    ],
)
def test_a_bound_holds_or_falls_with_its_whole_interval(ours: float, low: float, verdict: Verdict) -> None:
    for sign in (1, -1):
        limit = {"above": 1.0} if sign > 0 else {"below": -1.0}
        measure = constant(sign * ours, sign * low, sign * (2 * ours - low))
        bound = rules.Bound(unit="RTT", **limit)
        assert run(bound, measure).verdict == verdict


def test_an_ordering_is_as_strong_as_its_weakest_comparison() -> None:
    strong, weak, wrong = constant(2.0, 1.0, 3.0), constant(1.0, -0.5, 2.5), constant(-1.0, -1.5, -0.5)
    against = constant(-1.0, -2.5, 0.5)

    def verdict(measures: list[Measure], enough: int | None = None) -> Verdict:
        by_name = {str(number): measure for number, measure in enumerate(measures)}
        return run(rules.Ordering(unit="ms", enough=enough), by_name).verdict

    assert verdict([strong, strong]) == Verdict.REPRODUCED
    assert verdict([strong, weak]) == Verdict.INCONCLUSIVE
    assert verdict([strong, against]) == Verdict.INCONCLUSIVE
    assert verdict([strong, wrong]) == Verdict.NOT_REPRODUCED
    assert verdict([strong, strong, wrong], enough=2) == Verdict.REPRODUCED
    assert verdict([strong, weak, wrong], enough=2) == Verdict.INCONCLUSIVE
    assert verdict([strong, wrong, wrong], enough=2) == Verdict.NOT_REPRODUCED


def test_an_ordering_without_intervals_is_never_reproduced() -> None:
    outcome = run(rules.Ordering(unit="ms"), {"one": constant(5.0, 0, 0, rounds=4)})
    assert outcome.verdict == Verdict.INCONCLUSIVE
    assert "4 give no interval" in outcome.why


@pytest.mark.parametrize(
    ("tolerance", "published_value", "allowed"),
    [
        (tolerances.IN_RTTS, 1.0, 0.15),
        (tolerances.IN_RTTS, 3.0, 0.3),
        (tolerances.RELATIVE, 0.5, 1.0),
        (tolerances.RELATIVE, -9.0, 3.0),
        (tolerances.RELATIVE, 53.7, 5.0),
        (tolerances.ABSOLUTE, 630.0, 63.0),
        (tolerances.difference_ms(14.8), 14.1, 2.22),
        (tolerances.difference_ms(14.8), 26.0, 2.6),
    ],
)
def test_tolerances(tolerance: Tolerance, published_value: float, allowed: float) -> None:
    assert tolerance.allowed(published_value) == pytest.approx(allowed)


# What cannot be measured


@pytest.mark.slow
def test_without_0_rtt_loads_only_their_claims_are_not_measured(tmp_path: Path) -> None:
    judged = small(tmp_path, h3=["1-rtt"], rounds=8)
    assert row(judged, "T049")["verdict"] == "not measured"
    assert "H3 0-RTT until request" in str(row(judged, "T049")["why"])
    for claim in ("T005", "T058", "T139", "T148", "T156", "T195", "T203", "T220", "T223"):
        assert row(judged, claim)["verdict"] == "not measured"
        assert row(judged, claim)["ours"] is None
    assert row(judged, "T050")["verdict"] != "not measured"
    assert row(judged, "T155")["verdict"] != "not measured"


def test_0_rtt_that_the_server_did_not_see_counts_as_missing(as_published: Dataset) -> None:
    refused = as_published.table("page_loads").with_columns(early_data_accepted=False)
    judged = check(as_published, page_loads=refused)
    assert row(judged, "T049")["verdict"] == "not measured"


def test_one_link_gives_no_number_over_all_links(tmp_path: Path) -> None:
    judged = small(tmp_path, links=["fiber"], rounds=8)
    for claim in ("T050", "T079", "T086", "T103", "T116", "T122", "T126", "T148", "T191", "T196"):
        assert row(judged, claim)["verdict"] == "not measured", row(judged, claim)
        assert row(judged, claim)["ours"] is None
    assert "cable" in str(row(judged, "T079")["why"])
    assert row(judged, "T090")["verdict"] == "reproduced"


@pytest.mark.slow
def test_one_round_gives_no_number_at_all(tmp_path: Path) -> None:
    judged = small(tmp_path, rounds=1)
    assert judged["verdict"].unique().to_list() == ["not measured"]
    assert judged["ours"].null_count() == judged.height
    assert "Only 1 round measured" in str(row(judged, "T079")["why"])


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [FEWEST_ROUNDS, metrics.MIN_ROUNDS - 1])
def test_few_rounds_give_numbers_without_intervals_and_no_proven_ordering(tmp_path: Path, rounds: int) -> None:
    judged = small(tmp_path, rounds=rounds)
    assert judged["low"].null_count() == judged["high"].null_count() == judged.height
    assert row(judged, "T079")["verdict"] == "inconclusive"
    assert row(judged, "T079")["rounds_needed"] == metrics.MIN_ROUNDS
    assert f"(too few rounds: {rounds} give no interval)" in str(row(judged, "T079")["why"])
    for claim in ("T005", "T122", "T124", "T001"):
        assert row(judged, claim)["verdict"] == "inconclusive", row(judged, claim)
    assert "reproduced" not in judged["verdict"].to_list()


def test_a_link_of_that_name_with_another_rtt_is_not_the_papers_link(as_published: Dataset) -> None:
    checks_table = as_published.table("link_checks").with_columns(
        nominal_rtt_ms=pl.when(pl.col("link") == "fiber").then(30.0).otherwise("nominal_rtt_ms")
    )
    judged = check(as_published, link_checks=checks_table)
    assert row(judged, "T090")["verdict"] == "not measured"
    assert "30.0 ms here and 14.8 ms" in str(row(judged, "T090")["why"])
    assert row(judged, "T093")["verdict"] == "reproduced"


def test_a_link_whose_rtt_is_not_known_gives_no_multiples_of_it(as_published: Dataset) -> None:
    judged = check(as_published, link_checks=as_published.table("link_checks").filter(pl.col("link") != "fiber"))
    assert row(judged, "T090")["why"] == "The RTT of fiber is not known."
    assert row(judged, "T093")["verdict"] == "reproduced"


@pytest.mark.slow
def test_links_measured_unequally_are_not_pooled(as_published: Dataset) -> None:
    fewer = as_published.table("dns_exchanges").filter((pl.col("link") != "dsl") | (pl.col("round") < 20))
    judged = check(as_published, dns_exchanges=fewer)
    assert "unequal" in str(row(judged, "T079")["why"])
    assert row(judged, "T098")["verdict"] == "reproduced"


def test_a_study_without_claims_measures_none(as_published: Dataset) -> None:
    judged = claims.check(as_published, None, published.load().claims, elsewhere={"T001": "it is elsewhere"})
    assert judged["verdict"].unique().to_list() == ["not measured"]
    assert row(judged, "T001")["why"] == "It is elsewhere."
    assert row(judged, "T002")["why"] == "No check is written for it."


def test_extremes_have_an_interval_beyond_them(verdicts: pl.DataFrame) -> None:
    minimum, maximum = row(verdicts, "T080"), row(verdicts, "T078")
    assert minimum["low"] < minimum["ours"] == minimum["high"]  # type: ignore[operator]
    assert maximum["low"] == maximum["ours"] < maximum["high"]  # type: ignore[operator]
    assert minimum["verdict"] == "reproduced"
    assert Quantile(0)(sample([3.0, 1.0, 1.5, 2.0, 9.0, 4.0]), None).interval is None
    assert Quantile(0)(
        sample([3.0, 1.0, 1.5, 2.0, 9.0, 4.0]), np.ones((1, 6), dtype=np.int32)
    ).interval == pytest.approx((-8.5, 1))


@pytest.mark.slow
def test_failed_exchanges_are_counted(tmp_path: Path) -> None:
    judged = row(small(tmp_path, rounds=30, failures=0.1), "T076")
    assert judged["verdict"] == "not reproduced"
    assert 10 < judged["ours"] < 90  # type: ignore[operator]
    assert judged["n"] == 450


def test_a_sum_within_the_rounds_needs_all_of_its_terms(tmp_path: Path) -> None:
    folder = synthetic.write(tmp_path, links=["fiber"], pages=["example.org"], rounds=10)
    dataset = Dataset.open(folder)
    kept = dataset.table("dns_exchanges").filter((pl.col("protocol") != "DoH") | (pl.col("round") >= 4))
    campaign = observed(dataset, dns_exchanges=kept)
    difference = campaign.sample(median({"DoH exchange": 1.0, "DoQ exchange": -1.0}).on("fiber").series)
    assert difference.rounds == 6
    rows = kept.filter(pl.col("round") >= 4).collect().pivot("protocol", index="round", values="total_ms")
    assert sorted(difference.values) == pytest.approx(sorted(rows["DoH"] - rows["DoQ"]))
    with pytest.raises(NotMeasured, match="no DoQ exchange on cable"):
        campaign.sample(median("DoQ exchange").on("cable").series)


# Shapes


def sample(values: object) -> Sample:
    array = np.asarray(values, dtype=float)
    return Sample(array, np.arange(len(array)))


@pytest.mark.slow
def test_modes_of_known_distributions() -> None:
    draw = np.random.default_rng(3)
    one = [distribution_shape.modes(sample(draw.normal(50, 5, 100))).value for _ in range(60)]
    skewed = [distribution_shape.modes(sample(draw.exponential(5, 100))).value for _ in range(60)]
    two = [
        distribution_shape.modes(sample(np.concatenate([draw.normal(20, 2, 60), draw.normal(33, 2, 40)]))).value
        for _ in range(60)
    ]
    assert np.mean(np.array(one) == 1) > 0.9
    assert np.mean(np.array(skewed) == 1) > 0.9
    assert np.mean(np.array(two) == 2) > 0.95


def test_share_of_the_first_mode() -> None:
    draw = np.random.default_rng(4)
    both = np.concatenate([draw.normal(20, 2, 600), draw.normal(33, 2, 400)])
    assert distribution_shape.first_mode_percent(sample(both)).value == pytest.approx(60, abs=2)
    assert distribution_shape.first_mode_percent(sample(draw.normal(20, 2, 500))).value == 100
    assert distribution_shape.positions_of_modes(sample([5.0] * 10)) == [5.0]
    assert distribution_shape.modes(sample([30.2] * 3 + [30.3] * 5)).value == 1  # two steps of Chromium's clock
    assert distribution_shape.modes(sample([30.2] * 3 + [31.2] * 5)).value == 2
    assert distribution_shape.positions_of_modes(sample([67.5178675] * 5 + [67.51786750000001])) == [67.5178675]


def test_outliers_do_not_hide_modes() -> None:
    draw = np.random.default_rng(6)
    both = np.concatenate([draw.normal(20, 2, 60), draw.normal(33, 2, 40), [30_000.0]])
    assert distribution_shape.positions_of_modes(sample(both)) == pytest.approx([20, 33], abs=1.5)
    assert distribution_shape.modes(sample(np.append(draw.normal(50, 1, 99), 30_000.0))).value == 1


@pytest.mark.parametrize(
    ("levels", "expected"),
    [([2.1, 2.2, 2.5, 2.8, 2.9], 5), ([2.1, 2.12, 2.5, 2.8, 2.9], 4), ([1.01, 1.02, 1.03, 1.04, 1.05], 0)],
)
def test_steps(levels: list[float], expected: int) -> None:
    draw = np.random.default_rng(5)
    values = np.concatenate([level + draw.normal(0, 0.004, 200) for level in levels])
    assert distribution_shape.steps(sample(values)).value == expected


def test_share_within_percentiles() -> None:
    whole = sample(range(100))
    assert distribution_shape.share_within(sample(range(10, 30)), whole, 0.0, 0.2) == pytest.approx(50)


# How it is read


def test_markdown_has_every_claim_and_the_counts(verdicts: pl.DataFrame) -> None:
    text = claims.to_markdown(verdicts, caption="Campaign x.")
    assert sum(line.startswith(("| T", "| S0")) for line in text.splitlines()) == 211
    assert f"{claims.counts(verdicts)['reproduced']} reproduced" in text
    assert "Campaign x." in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in rows} == {9}
    assert sum("The paper contradicts itself: " in line for line in rows) == len(table.CONTRADICTIONS)


def test_what_follows_from_others_is_marked_and_counted_apart(verdicts: pl.DataFrame) -> None:
    following = verdicts.filter(pl.col("follows_from") != "")
    named = ("T146", "T166", "T174", "T175", "T186", "T187", "T191", "T192", "T105", "T217", "S006")
    assert set(named) <= set(following["claim_id"])
    judged = claims.counts(verdicts)
    assert sum(judged.values()) == verdicts.height
    assert judged[table.FOLLOWING] == following.height > 0
    assert judged["follows"] == following.height
    assert judged["reproduced"] == verdicts.filter(verdict="reproduced", follows_from="").height


def test_the_version_of_the_rules_is_kept(verdicts: pl.DataFrame) -> None:
    assert verdicts["rules"].unique().to_list() == [tolerances.VERSION] == [5]
    assert all(text[:4] == "2026" for text in tolerances.RULES.values())


def test_where_a_paper_contradicts_itself_there_is_a_note(verdicts: pl.DataFrame) -> None:
    marked = verdicts.filter(pl.col("claim_id").is_in(table.CONTRADICTIONS))
    assert marked.height == len(table.CONTRADICTIONS)
    assert (marked["note"] != "").all()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2.5, "2.50"),
        (5.0, "5"),
        (0.0308, "0.0308"),
        (0.0, "0"),
        (630.44, "630.4"),
        (1234.5, "1234"),
        (-0.2, "-0.20"),
        (-0.05, "-0.05"),
    ],
)
def test_numbers_keep_their_digits(value: float, text: str) -> None:
    assert rules.number(value) == text


def test_every_sentence_is_one_and_ends(verdicts: pl.DataFrame) -> None:
    assert verdicts["why"].str.ends_with(".").all()
    assert (verdicts["why"].str.len_chars() > 5).all()
    assert not verdicts["why"].str.contains("nan|inf\\b|None").any()


@pytest.fixture
def folder(tmp_path: Path) -> Callable[[], Path]:
    return lambda: synthetic.write(tmp_path / "dataset", rounds=7)


@pytest.mark.slow
def test_command_prints_the_counts_and_writes_table_text_and_page(folder: Callable[[], Path], tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["claims", str(folder()), "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    saved = pl.read_parquet(tmp_path / "out" / "coalescing" / "claims.parquet")
    for verdict, count in claims.counts(saved).items():
        assert f"{count:>5}  {verdict}" in lines
    assert sum(claims.counts(saved).values()) == saved.height
    assert saved["campaign"].unique().to_list() == ["synthetic"]
    assert any(line.startswith("T079") for line in lines)
    printed = [" ".join(line.split()) for line in lines]
    for reason in saved.filter(verdict="inconclusive")["would_decide"]:
        assert reason in printed
    assert (tmp_path / "out" / "coalescing" / "claims.md").read_text(encoding="utf-8").startswith("# Claims")
    assert '<tr id="T079"' in (tmp_path / "out" / "claims.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_command_names_the_folder_it_cannot_write(folder: Callable[[], Path], tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(ReportError, match="cannot be written"):
        CliRunner().invoke(cli, ["claims", str(folder()), "--out", str(blocked / "out")], catch_exceptions=False)


@pytest.mark.slow
def test_command_writes_nothing_without_a_folder(
    folder: Callable[[], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = folder()
    shutil.rmtree(tmp_path / "cwd", ignore_errors=True)
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    assert CliRunner().invoke(cli, ["claims", str(source)]).exit_code == 0
    assert list((tmp_path / "cwd").iterdir()) == []


# What decides, what does not, and what would


def test_a_value_below_the_resolution_of_the_clock_has_no_verdict() -> None:
    variance = rules.Number(tolerance=Tolerance(at_least=0.1), unit="ms²", resolution=0.0001)
    outcome = run(variance, constant(8e-8, 4e-8, 1.7e-7), 0.1)  # the tolerance alone would take 0 for 0.1
    assert outcome.verdict == Verdict.INCONCLUSIVE
    assert "resolves" in outcome.why
    assert outcome.would_decide
    ordering = rules.Ordering(unit="ms", resolution=0.01)
    assert run(ordering, {"DoQ over DoUDP": constant(0.00063, 0.0006, 0.00066)}).verdict == Verdict.INCONCLUSIVE
    assert run(ordering, {"DoUDP over DoQ": constant(-0.0016, -0.0017, -0.0015)}).verdict == Verdict.INCONCLUSIVE
    assert run(ordering, {"DoQ over DoUDP": constant(0.5, 0.4, 0.6)}).verdict == Verdict.REPRODUCED


def test_what_the_configuration_gives_follows_from_it() -> None:
    rule = rules.Number(tolerance=Tolerance(at_least=5.0), unit="ms")
    path, ours = constant(248.0, 248.0, 248.0), constant(248.2, 248.1, 248.3)
    given = rules.claim("B024", "A mean", ours, rule, given_by="the RTT of the link", given=path)
    assert given.run(None, 248.99).verdict == Verdict.FOLLOWS  # type: ignore[arg-type]
    assert given.run(None, 260.0).verdict == Verdict.NOT_REPRODUCED  # type: ignore[arg-type]


def test_rounds_that_would_decide_narrow_the_interval_to_the_border() -> None:
    outcome = run(tnsm24.in_percent, constant(12.0, 10.0, 14.0), 10.0)  # 13.33 at most; reaches 1.9 where 1.33 would do
    assert outcome.verdict == Verdict.INCONCLUSIVE
    assert outcome.rounds_needed is not None
    assert outcome.estimate is not None
    low, high = outcome.estimate.interval or (0.0, 0.0)
    narrower = (30 / outcome.rounds_needed) ** 0.5
    assert 12 + (high - 12) * narrower == pytest.approx(13.33, abs=0.02)
    assert low < 12
    assert run(tnsm24.in_percent, constant(12.0, 10.0, 14.0, rounds=4), 10.0).rounds_needed == metrics.MIN_ROUNDS
    assert run(tnsm24.in_percent, constant(10.0, 9.5, 10.5), 10.0).rounds_needed is None


def test_an_extreme_takes_as_many_observations_as_the_published_one() -> None:
    minimum = CustomMeasure(lambda observed: Estimate(1.14, 72, 24, ends=(1.0, 1.14)))
    rule = rules.Number(tolerance=tolerances.IN_RTTS, unit="RTT")
    outcome = rules.claim("T052", "A least one", minimum, rule, sample=11_487).run(None, 1.25)  # type: ignore[arg-type]
    assert outcome.verdict == Verdict.INCONCLUSIVE
    assert outcome.rounds_needed == 3829  # 24 * 11487 / 72


def test_equal_things_are_within_a_distance_on_both_sides() -> None:
    rule = rules.Ordering(unit="%")
    assert run(rule, rules.within({"one": constant(0.5, 0.2, 0.8)}, 0.0, 1.0)).verdict == Verdict.REPRODUCED
    assert run(rule, rules.within({"one": constant(-2.0, -2.2, -1.8)}, 0.0, 1.0)).verdict == Verdict.NOT_REPRODUCED
    assert run(rule, rules.within({"one": constant(0.5, -0.2, 1.2)}, 0.0, 1.0)).verdict == Verdict.INCONCLUSIVE


def test_a_value_with_a_limit_is_shown_itself_and_not_its_distance() -> None:
    saved = {"first": constant(2.155, 0.9, 4.1), "second": constant(3.0, 2.9, 3.1)}
    outcome = run(rules.Ordering(unit="RTT"), {name: Limited(of, -0.05, upper=False) for name, of in saved.items()})
    assert outcome.verdict == Verdict.REPRODUCED
    assert outcome.why == "2 of 2 limits are kept (2 significantly). Weakest: first: +2.15 RTT."
    assert outcome.estimate is not None
    assert (outcome.estimate.value, outcome.estimate.interval) == (2.155, pytest.approx((0.9, 4.1), abs=0.1))
    later = {"first": constant(0.02, 0.01, 0.03), "second": constant(0.3, 0.2, 0.4)}
    outcome = run(rules.Ordering(unit="RTT"), {name: Limited(of, 0.05, upper=True) for name, of in later.items()})
    assert outcome.verdict == Verdict.NOT_REPRODUCED
    assert outcome.why.endswith("1 is violated (1 significantly). Strongest evidence against it: second: +0.30 RTT.")
    both_sides = rules.within({"one": constant(1.0, 0.95, 1.05), "other": constant(1.1, 1.05, 1.14)}, 1.0, 0.15)
    assert "Weakest: other, not above 1.15: +1.10 RTT." in run(rules.Ordering(unit="RTT"), both_sides).why


def test_a_refuted_ordering_shows_the_comparison_that_refutes_it() -> None:
    without_interval = constant(-0.008, 0, 0, rounds=4)
    outcome = run(rules.Ordering(unit="RTT"), {"P95": without_interval, "P50": constant(-0.09, -0.1, -0.08)})
    assert outcome.verdict == Verdict.NOT_REPRODUCED
    assert outcome.why.endswith("Strongest evidence against it: P50, -0.09 RTT.")
    assert outcome.estimate is not None
    assert outcome.estimate.value == -0.09
    three = {"one": constant(1.0, 0.9, 1.1), "two": constant(-1.0, -1.1, -0.9), "three": constant(-0.5, -0.6, -0.4)}
    outcome = run(rules.Ordering(unit="RTT", enough=2), three)
    assert outcome.verdict == Verdict.NOT_REPRODUCED
    assert outcome.why.endswith("Strongest evidence against it, number 2 by strength: three, -0.50 RTT.")


def test_a_distribution_narrower_than_the_step_of_the_clock_has_no_shape() -> None:
    def verdict(spread: float) -> Verdict:
        rule = rules.Shape(
            level=80.0, direction=constant(1.0, 0.5, 1.5), unit="%", criterion="", label="Share:",
            spread=constant(spread, 0, spread), resolution=0.007, spread_unit="RTT",
        )  # fmt: skip
        return run(rule, constant(95.0, 90.0, 100.0)).verdict

    assert verdict(0.5) == Verdict.REPRODUCED
    assert verdict(0.0) == Verdict.INCONCLUSIVE


def test_the_criterion_of_a_share_is_in_percentage_points() -> None:
    share = rules.Number(tolerance=tolerances.SHARE, unit="%")
    assert share.criterion == "95 % interval within 10 percentage points of the claimed value (at most half of it)"
    assert "1.50 percentage points above; tolerance 5 percentage points" in run(share, constant(11.5, 11, 12), 10.0).why


def test_a_share_of_all_observations_has_an_interval_from_few_rounds() -> None:
    share = Share(lambda value: value > 0)
    every = sample([1.0] * 100)
    estimate = share(Sample(every.values, np.arange(100) % 6), np.ones((1, 6)))
    assert estimate.interval == pytest.approx((100 * 0.025 ** (1 / 100), 100.0))
    assert share(sample([1.0, 0.0] * 3), np.ones((1, 6))).interval is None


def test_a_tolerance_of_a_share_never_reaches_0() -> None:
    assert tolerances.SHARE.allowed(60.0) == 10.0
    assert tolerances.SHARE.allowed(10.0) == 5.0


def test_chance_gets_few_verdicts_wrong(verdicts: pl.DataFrame) -> None:
    decided = verdicts.filter(
        pl.col("verdict").is_in(["reproduced", "direction only", "not reproduced"]), pl.col("low").is_not_null()
    )
    assert claims.expected_errors(verdicts) == pytest.approx(0.025 * decided.height)


WITH_CLAIMS = sorted(committed.CAMPAIGNS)


@pytest.mark.slow
@pytest.mark.parametrize("campaign", WITH_CLAIMS)
def test_every_verdict_but_reproduced_has_a_reason_by_either_clock(campaign: str) -> None:
    of = Dataset.open(committed.CAMPAIGNS[campaign]).campaign
    assert STUDIES[of.study].claims is not None, "a study has no judged sentence"
    judged = committed.verdicts(campaign)
    open_ones = judged.filter(pl.col("verdict").is_in(["direction only", "inconclusive", "not reproduced"]))
    assert open_ones.filter(cause="", would_decide="")["claim_id"].to_list() == []
    inconclusive = judged.filter(verdict="inconclusive")
    assert inconclusive.filter(would_decide="")["claim_id"].to_list() == []
    if of.clock == "wall":
        assert inconclusive.filter(pl.col("rounds_needed").is_null())["claim_id"].to_list() == []
    estimates = judged.filter(pl.col("low").is_not_null())
    outside = (pl.col("ours") < pl.col("low") - 1e-9) | (pl.col("ours") > pl.col("high") + 1e-9)
    assert estimates.filter(outside)["claim_id"].to_list() == []


def test_the_headlines_have_a_verdict_in_plain_text(verdicts: pl.DataFrame) -> None:
    plain = {claim: str(row(verdicts, claim)["plain"]) for claim in ("T001", "T002", "T003", "T004")}
    assert plain["T001"].startswith("Holds for the worst link and page")
    assert plain["T002"].startswith("Holds for the worst link and page")
    for claim in ("T003", "T004"):
        assert plain[claim].startswith("Contradicts the paper's own Fig. 8")
    assert verdicts.filter(pl.col("plain") != "").height == 4


def test_the_rounds_that_decide_a_variance_are_counted_on_the_scale_of_its_interval() -> None:
    draws = np.exp(np.linspace(-4, 4, 2001))
    variance = Estimate(1.0, 100, 20, draws, in_logarithm=True)
    assert variance.interval is not None
    _, high = variance.interval
    needed = rules.rounds_to_decide(variance, 2.0)
    assert needed == math.ceil(20 * (math.log(high) / math.log(2)) ** 2)
    linear = rules.rounds_to_decide(replace(variance, in_logarithm=False), 2.0)
    assert linear is not None
    assert linear > 5 * needed


def test_the_unit_of_one_is_singular() -> None:
    texts = [spaced("queries", 1), spaced("modes", 1), spaced("RTT", 1), spaced("", 1), of_distance("%", -1)]
    assert texts == [" query", " mode", " RTT", "", " percentage point"]
    assert [spaced("modes", 2), spaced("modes", 1.04), of_distance("%", 0.5)] == [
        " modes",
        " modes",
        " percentage points",
    ]
    assert [spaced(unit, 1) for unit in ("ms", "failed exchanges")] == [" ms", " failed exchange"]
