"""From a claim to its rows: filters written out, counted against the estimates that they stand for."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner
from tests import committed

import crosslayer
from crosslayer.campaign.dataset import Dataset
from crosslayer.claims import RowsOfClaim, Verdict, rows_behind, rows_behind_each
from crosslayer.cli import cli
from crosslayer.notebooks.errors import NotebookError
from crosslayer.studies import STUDIES
from crosslayer.vocabulary import Role

RAW = Path("data/raw")
NOT_ROWS = {"T076"}
"""Failures are counted, of all that was tried."""


def executed(code: str) -> pl.DataFrame:
    """What the printed code reads."""
    frame: pl.LazyFrame = eval(code, {"pl": pl})
    return frame.collect()


@pytest.mark.slow
@pytest.mark.parametrize("study", [name for name, study in STUDIES.items() if study.claims and study.claims.sources])
def test_every_measured_claim_leads_to_rows(study: str) -> None:
    dataset, own = Dataset.open(RAW / study), STUDIES[study].claims
    assert own is not None
    verdicts = committed.verdicts(study)
    measured = set(verdicts.filter(pl.col("verdict") != Verdict.NOT_MEASURED)["claim_id"]) - NOT_ROWS
    filters: dict[str, dict[str, pl.Expr]] = defaultdict(dict)
    for name, parts in rows_behind_each(dataset, own, sorted(measured & set(own.checks))):
        assert parts, name
        for part in parts:
            filters[part.table][name] = part.rows.any()
    for table, of_claims in filters.items():
        has_rows = dataset.table(table).select(**of_claims).collect().row(0, named=True)
        assert [name for name, some in has_rows.items() if not some] == [], table


@pytest.mark.slow
def test_rows_of_several_claims_are_those_of_each() -> None:
    """What one claim asks for is not among the rows of the next, though estimates are kept."""
    dataset, own = Dataset.open(RAW / "idle-connection"), STUDIES["idle-connection"].claims
    assert own is not None
    names = [name for name, check in own.checks.items() if check.rule]
    assert len(names) > 2
    for name, parts in rows_behind_each(dataset, own, [*names, *names]):
        alone = rows_behind(dataset, own, name)
        assert [(part.table, str(part.rows), part.series) for part in parts] == [
            (part.table, str(part.rows), part.series) for part in alone
        ]


@pytest.mark.slow
def test_printed_filters_read_the_rows_that_the_expression_chooses() -> None:
    for study in ("web", "path-quality", "idle-connection", "combinations", "authoritative"):
        dataset, own = Dataset.open(RAW / study), STUDIES[study].claims
        assert own is not None
        last = [name for name, check in own.checks.items() if check.rule][-1]
        for part in rows_behind(dataset, own, last):
            whole = pl.scan_parquet(f"{dataset.folder}/{part.table}/**/*.parquet")
            code = part.code(str(dataset.folder), pl.DataFrame())
            assert executed(code).equals(whole.filter(part.rows).collect())


@pytest.mark.slow
def test_rows_are_as_many_as_the_claim_counts() -> None:
    view = crosslayer.open(RAW / "coalescing")
    verdicts = {row["claim_id"]: row for row in view.claims().rows.iter_rows(named=True)}
    [exchanges] = view.observations("T079")  # the median of the rows of one series
    frame = exchanges.frame.collect()
    assert frame.height == verdicts["T079"]["n"]
    rtts = {row["link"]: row["nominal_rtt_ms"] for row in view.tables.link_checks.collect().iter_rows(named=True)}
    in_rtts = frame["total_ms"] / frame["link"].cast(pl.String).replace_strict(rtts)
    assert in_rtts.median() == pytest.approx(verdicts["T079"]["ours"])
    tables = {part.table for part in view.observations("T123")}
    assert tables == {"dns_exchanges", "page_loads"}
    for part in view.observations("T123"):
        assert set(part.frame.select("link", "page").unique().collect().iter_rows()) == {("4g-medium", "example.org")}


def test_printed_code_leaves_out_the_rounds_in_which_the_machine_was_busy() -> None:
    view = crosslayer.open(RAW / "key-share")
    assert view.dataset.left_out
    [part] = view.observations("KEYSHARE1")
    frame = part.frame.collect()
    assert part.frame.collect().height < executed(part.code.partition(".join(")[0]).height
    by_code, ours = (
        sorted(of.select(pl.col("round"), pl.col("link", "protocol", "condition").cast(pl.String)).rows())
        for of in (executed(part.code), frame)
    )
    assert by_code == ours


def test_rows_with_lists_are_printed() -> None:
    printed = CliRunner().invoke(cli, ["claims", str(RAW / "one-connection"), "--rows", "CONN13"])
    assert printed.exit_code == 0, printed.output
    assert "32 rows\ncampaign\t" in printed.output


def test_a_claim_without_rows_of_its_own_names_the_tables_of_its_study() -> None:
    with pytest.raises(NotebookError, match="computes each of its values from several rows") as caught:
        crosslayer.open(RAW / "resolvers").observations("I090")
    assert "resolver_queries" in str(caught.value)


def test_a_claim_of_another_study_names_its_campaign() -> None:
    with pytest.raises(NotebookError, match="does not judge this claim") as caught:
        crosslayer.open(RAW / "idle-connection").observations("T123")
    assert "data/raw/coalescing" in str(caught.value)


def test_the_command_prints_filter_and_rows() -> None:
    printed = CliRunner().invoke(cli, ["claims", str(RAW / "key-share"), "--rows", "KEYSHARE2"])
    assert printed.exit_code == 0, printed.output
    title, verdict, code, *_ = printed.output.splitlines()
    assert title.startswith("KEYSHARE2 On DSL, ")
    assert re.fullmatch(r"reproduced: [\d.]+ RTT \[[\d.]+, [\d.]+\]", verdict)
    assert code.startswith('pl.scan_parquet("')
    assert "88 rows" in printed.output  # 22 rounds on DSL, two transports, two key shares
    assert "handshake_ms" in printed.output


def test_a_filter_is_python() -> None:
    rows = (pl.col("error").is_null() & (pl.col("role") == Role.MEASURED)) & (pl.col("idle_s") <= 2.0)
    code = RowsOfClaim("idle_recoveries", rows & pl.col("link").is_in(["4g", "fiber"]), ()).code("here", pl.DataFrame())
    assert "[[" not in code
    assert "pl.col('link').is_in(['4g', 'fiber'])" in code
    compile(code, "filter", "eval")
