"""Two campaigns of a study side by side, one by each clock: what is between them, and which verdicts differ."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

import synthetic
from crosslayer import claims, report
from crosslayer.campaign.dataset import Dataset, paired_campaigns
from crosslayer.campaign.tables import TABLES
from crosslayer.cli import cli
from crosslayer.figures import clocks as figures
from crosslayer.figures.sentences import with_interval
from crosslayer.metrics import clocks
from crosslayer.metrics.clocks import ComparedCondition, Step
from crosslayer.notebooks import open_campaign

ROUNDS = 30
COMPUTING_MS = 7.0
DISAGREEMENT = (
    r"(All \d+ differences are differences of the PLT\. Real and virtual time disagree on \d+ of them"
    r"|Of the \d+ differences of the PLT, real and virtual time disagree on \d+"
    r"|Real and virtual time disagree on the only difference of the PLT), with (a deviation|deviations) of "
)


def exchanges(clock_ms: float, doq_ms: float = 0.0) -> pl.LazyFrame:
    """Exchanges of one RTT over DoUDP and of two over DoQ, on two links and two pages, plus what computing adds."""
    rows = [
        {"campaign": str(clock_ms), "round": number, "host": "", "link": link, "page": page, "protocol": protocol}
        | {
            "resumption": "none",
            "role": "measured",
            "condition": condition,
            "cpu_ms": 1.0 if protocol == "DoUDP" else 4.0,
        }
        | {"total_ms": rtts * rtt + clock_ms + (doq_ms if protocol == "DoQ" else 0) + number * 0.01}
        | {"handshake_sent_packets": rtts, "query_sent_packets": 1}
        for number in range(ROUNDS)
        for link, rtt in (("fiber", 15.0), ("4g", 92.0))
        for page in ("example.org", "wikipedia.org")
        for protocol, rtts, condition in (("DoUDP", 1, "main"), ("DoQ", 2, "main"), ("DoQ", 3, "retry"))
    ]
    return pl.LazyFrame(rows, schema=TABLES["dns_exchanges"].polars_schema())


def durations(of_exchanges: pl.LazyFrame) -> pl.DataFrame:
    empty = {name: pl.LazyFrame(schema=TABLES[name].polars_schema()) for name in ("page_loads", "paced_queries")}
    return clocks.durations(of_exchanges, *empty.values())


def test_repeated_loads_of_committed_campaigns_are_no_condition_of_their_own() -> None:
    raw = Path(__file__).parents[2] / "data" / "raw"
    for name in ("coalescing", "coalescing-virtual"):
        tables = Dataset.open(raw / name)
        frame = clocks.durations(*(tables.table(of) for of in ("dns_exchanges", "page_loads", "paced_queries")))
        known = {one.name for one in clocks.conditions(frame) if one.measure == clocks.PLT}
        assert known == {"H3 1-RTT", "H3 0-RTT", "H3 0-RTT no-token", "H3 1-RTT refused"}


def test_steps_change_one_word_and_begin_at_the_first_that_is_listed() -> None:
    known = [one for one in clocks.conditions(durations(exchanges(0))) if one.measure == clocks.EXCHANGE]
    assert [one.name for one in known] == ["DoUDP", "DoQ", "DoQ retry"]
    steps = [(step.condition.name, step.reference.name, step.word) for step in clocks.steps(known)]
    assert steps == [("DoQ", "DoUDP", "transport"), ("DoQ retry", "DoQ", "condition")]


def test_computing_is_what_the_wall_clock_has_beyond_the_virtual_one_and_cancels_in_differences() -> None:
    wall, virtual = durations(exchanges(COMPUTING_MS)), durations(exchanges(0))
    doq, doudp = ComparedCondition(clocks.EXCHANGE, "DoQ"), ComparedCondition(clocks.EXCHANGE, "DoUDP")
    cells = clocks.compared(clocks.values(wall, doq), clocks.values(virtual, doq)).sort("link")
    # Its page is not asked for: a lookup takes as long for any.
    assert cells.select("link", "page", "n").rows() == [("4g", "", 2 * ROUNDS), ("fiber", "", 2 * ROUNDS)]
    assert cells["virtual"].to_list() == pytest.approx([184.145, 30.145])
    assert cells["apart"].to_list() == pytest.approx([COMPUTING_MS] * 2)
    assert (cells["low"] <= COMPUTING_MS).all()
    assert (cells["high"] >= COMPUTING_MS).all()
    step = Step(doq, doudp, "transport")
    between = clocks.compared(clocks.differences(wall, step), clocks.differences(virtual, step))
    assert between["apart"].to_list() == pytest.approx([0, 0], abs=1e-9)
    assert clocks.reasons(wall, virtual, step)["cpu_ms"].to_list() == [3.0, 3.0]


def test_an_exact_answer_has_the_digits_that_its_interval_needs() -> None:
    assert with_interval({"median": 0.174, "low": 0.171, "high": 0.183}, "ms", 1) == "0.17 [0.17, 0.18] ms"
    assert with_interval({"median": 0.24, "low": 0.09, "high": 0.38}, "ms", 1) == "0.2 [0.1, 0.4] ms"
    assert with_interval({"median": 0.0, "low": -0.001, "high": 0.001}, "RTT", 1) == "0.0 [0.0, 0.0] RTT"


def both(folder: Path, *, later_ms: float = 0.0, rounds: int = 7) -> Dataset:
    """A campaign by the wall clock, and beside it the same observations as one by the virtual clock, H3 0-RTT later."""
    wall = synthetic.write(folder / "mine", pages=["example.org"], rounds=rounds)
    virtual = folder / "mine-virtual"
    shutil.copytree(wall, virtual)
    about = json.loads((virtual / "campaign.json").read_text())
    about["plan"]["clock"] = "virtual"
    (virtual / "campaign.json").write_text(json.dumps(about))
    for path in virtual.glob("page_loads/*/*.parquet"):
        early = pl.col("h3") == "0-rtt"
        rows = pl.read_parquet(path)
        rows.with_columns(pl.when(early).then(pl.col("plt_ms") + later_ms).otherwise("plt_ms")).write_parquet(path)
    return Dataset.open(wall)


def test_the_campaign_by_the_virtual_clock_is_paired_with_that_by_the_walls(tmp_path: Path) -> None:
    dataset = both(tmp_path)
    [virtual] = paired_campaigns(dataset)
    assert (virtual.folder.name, virtual.campaign.clock) == ("mine-virtual", "virtual")
    assert paired_campaigns(virtual) == []


@pytest.mark.slow
def test_a_difference_that_the_clocks_do_not_share_is_named(tmp_path: Path) -> None:
    same = both(tmp_path / "same", rounds=12)
    drawer = report.Drawer(same, paired_campaigns(same))
    grid, differences = figures.figures(same.campaign.study, {})
    assert drawer.draw(grid).rows["apart"].to_list() == pytest.approx([0.0] * drawer.draw(grid).rows.height)
    verdict = drawer.draw(differences).verdict
    assert re.match(r"Real and virtual time agree on (\d+) of \1 differences\. ", str(verdict))
    assert "disagree on" not in str(verdict)
    other = both(tmp_path / "other", later_ms=50.0, rounds=12)
    rows = report.Drawer(other, paired_campaigns(other)).draw(differences)
    assert set(rows.rows.filter(~pl.col("agrees"))["panel"]) == {"PLT: H3 0-RTT minus H3 1-RTT"}
    assert re.search(DISAGREEMENT, str(rows.verdict))


@pytest.mark.slow
@pytest.mark.parametrize(("rounds", "hollow"), [(1, False), (12, True)])
def test_a_difference_is_hollow_only_where_an_interval_says_so(tmp_path: Path, rounds: int, hollow: bool) -> None:
    apart = both(tmp_path, later_ms=50.0, rounds=rounds)
    _, differences = figures.figures(apart.campaign.study, {})
    drawing = report.Drawer(apart, paired_campaigns(apart)).draw(differences)
    assert drawing.rows["agrees"].null_count() == (0 if hollow else drawing.rows.height)
    assert ('fill="white" stroke="#009e73"' in drawing.svg()) is hollow


@pytest.mark.slow
def test_verdicts_by_both_campaigns_stand_on_the_page_and_the_command_counts_those_that_differ(
    tmp_path: Path,
) -> None:
    dataset = both(tmp_path, later_ms=60.0)
    out = tmp_path / "figures"
    paired = paired_campaigns(dataset)
    report.save_claims(report.check_claims(dataset), dataset, out)
    report.check_others(dataset, paired, out)
    drawer = report.Drawer(dataset, paired)
    for figure in drawer.figures[-2:]:
        drawer.save(figure, out)
    index = report.write_index(dataset, out)
    page = index.with_name("claims.html").read_text()
    counted = re.search(
        r"<td>synthetic \(virtual time\)<p.*?</p></td><td[^>]*>(\d+)</td><td[^>]*>(\d+)</td>", index.read_text()
    )
    assert counted is not None
    assert 'id="coalescing-clock-differences"' in (out / "coalescing" / "index.html").read_text()
    changed = claims.compared(report.check_claims(dataset), report.check_claims(paired[0])).filter("changed")[
        "claim_id"
    ]
    shown = re.search(rf'<tr id="{changed[0]}"[^>]* data-changed>.*?</tr>', page, re.DOTALL)
    assert shown is not None
    assert '<p class="other ' in shown[0]
    done = CliRunner().invoke(cli, ["claims", str(dataset.folder), "--compare", str(paired[0].folder)])
    assert done.exit_code == 0, done.output
    assert f"{counted[2]} of {counted[1]} verdicts differ." in done.output
    assert all(claim in done.output for claim in changed)
    report.check_others(dataset, [], out)
    assert not (out / "coalescing" / "claims-other-campaigns.parquet").exists()


def test_campaigns_without_a_common_verdict_are_reported(tmp_path: Path) -> None:
    one, other = (
        str(synthetic.write(tmp_path / link, links=[link], pages=["example.org"], rounds=1))
        for link in ("fiber", "cable")
    )
    done = CliRunner().invoke(cli, ["claims", one, "--compare", other])
    assert done.exit_code == 0, done.output
    assert "0 of 0 verdicts differ.\nNo claim has a verdict in both" in done.output


@pytest.mark.slow
def test_a_notebook_shows_what_both_clocks_say(tmp_path: Path) -> None:
    dataset = both(tmp_path, later_ms=60.0)
    study = open_campaign(dataset.folder)
    assert study.figures[-2:] == ("coalescing-both-clocks", "coalescing-clock-differences")
    verdict = study.verdict("coalescing-clock-differences").data
    assert re.search(DISAGREEMENT, str(verdict))
    rows = study.compared().rows
    assert rows is not None
    assert rows.height > 0


@pytest.mark.slow
def test_a_campaign_of_another_study_is_refused(tmp_path: Path) -> None:
    dataset = both(tmp_path)
    root = Path(__file__).parents[2] / "data" / "raw" / "serialisation"
    done = CliRunner().invoke(cli, ["claims", str(dataset.folder), "--compare", str(root)])
    assert done.exit_code != 0
    assert "is of the study serialisation, not of coalescing" in str(done.exception)
