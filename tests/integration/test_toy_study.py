"""A study added by the recipe of CONTRIBUTING.md: measured in virtual time, drawn, judged, and in the report."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import polars as pl
import pytest

from tree_copy import ROOT, copied, runner

TOY = ROOT / "tests" / "toy"

pytestmark = pytest.mark.skipif(not (ROOT / "CONTRIBUTING.md").is_file(), reason="the tests are not in a checkout")


def test_the_toy_has_at_most_100_lines() -> None:
    lines = sum(len(file.read_text(encoding="utf-8").splitlines()) for file in TOY.glob("*.py"))
    assert lines <= 100


def test_a_study_is_a_folder_a_line_and_a_notebook(
    testbed_machine: None, virtual_clock: list[str], tmp_path: Path
) -> None:
    tree = copied(tmp_path / "tree")
    run = runner(tree)
    shutil.copytree(TOY, tree / "lib" / "crosslayer" / "studies" / "toy")
    registry = tree / "lib" / "crosslayer" / "studies" / "__init__.py"
    registry.write_text(registry.read_text(encoding="utf-8").replace('    "web",\n', '    "web",\n    "toy",\n'))
    notebook = json.loads((tree / "notebooks" / "question_key_share.ipynb").read_text(encoding="utf-8"))
    (tree / "notebooks" / "toy.ipynb").write_text(json.dumps(notebook), encoding="utf-8")

    run("-m", "crosslayer", "measure", "--study", "toy", "--size", "quick", *virtual_clock, "--out", "data/raw/toy")
    exchanges = pl.read_parquet(tree / "data" / "raw" / "toy" / "dns_exchanges" / "**" / "*.parquet")
    assert exchanges.height == 8
    assert exchanges["study"].unique().to_list() == ["toy"]
    assert exchanges["error"].null_count() == 8
    assert exchanges["total_ms"].median() == pytest.approx(14.77, abs=0.5)  # the RTT of fiber

    run("-m", "crosslayer", "report", "data/raw/toy", "--out", "out")
    assert (tree / "out" / "toy" / "toy-exchange.svg").is_file()
    verdicts = pl.read_parquet(tree / "out" / "toy" / "claims.parquet").filter(claim_id="TOY1")
    assert verdicts["verdict"].to_list() == ["reproduced"]
    for page, part in (
        ("index.html", "How long does it take?"),
        ("toy/index.html", 'id="toy-exchange"'),
        ("claims.html", 'id="TOY1"'),
        ("claims.html", "A toy takes one round-trip"),
    ):
        assert part in (tree / "out" / page).read_text(encoding="utf-8"), page
    assert "toy" in run("-m", "crosslayer", "measure", "--help")
