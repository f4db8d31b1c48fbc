"""Figures as files, and the page made from them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import polars as pl
import pytest

import synthetic
from crosslayer import published, report
from crosslayer.campaign.dataset import Dataset
from crosslayer.figures import FIGURES, Drawing, Inputs, draw

NAMES = ("failures", "fig05-dns-exchange")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return Dataset.open(synthetic.write(tmp_path_factory.mktemp("dataset"), links=["fiber"], rounds=7, failures=0.2))


@pytest.fixture(scope="module")
def drawings(dataset: Dataset) -> list[Drawing]:
    inputs = Inputs.of(dataset, published.load())
    return [draw(FIGURES[name], inputs, dataset.caption) for name in NAMES]


@pytest.fixture
def folder(dataset: Dataset, drawings: list[Drawing], tmp_path: Path) -> Path:
    for drawing in drawings:
        report.save_drawing(drawing, dataset, tmp_path)
    return tmp_path


def test_a_figure_is_saved_in_four_forms(folder: Path, drawings: list[Drawing]) -> None:
    saved = folder / "coalescing"
    assert {path.name for path in saved.iterdir()} == {
        f"{name}.{ending}" for name in NAMES for ending in ("svg", "png", "json", "csv")
    }
    for drawing in drawings:
        name = drawing.figure.name
        assert (saved / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (saved / f"{name}.svg").read_text()
        assert pl.read_csv(saved / f"{name}.csv", infer_schema_length=None).height == drawing.frame.height
        spec = json.loads((saved / f"{name}.json").read_text())
        assert spec["usermeta"]["crosslayer"]["campaign"] == "synthetic"
        assert spec["usermeta"]["crosslayer"]["caption"] == drawing.caption


def test_the_page_shows_figures_captions_notice_and_provenance(folder: Path, dataset: Dataset) -> None:
    page = report.write_index(dataset, folder, notice="Reference <campaign>.").read_text()
    for name in NAMES:
        assert f'<figure id="{name}"' in page
    assert "Reference &lt;campaign&gt;." in page
    assert dataset.caption in page
    assert "Example CPU" in page
    assert dataset.campaign.git_revision in page


def test_the_page_loads_nothing_from_elsewhere(folder: Path, dataset: Dataset) -> None:
    page = report.write_index(dataset, folder).read_text()
    markup = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert not re.findall(r"""(?:src|srcset|data)=["'](?!data:)(?!fig|[a-z0-9-]+["'])""", markup)
    assert not re.findall(r"<link[^>]*href=[\"'](?!data:)", markup)
    assert "@import" not in markup
    assert "url(" not in markup


def test_figures_of_another_campaign_are_left_out(folder: Path, dataset: Dataset) -> None:
    path = folder / "coalescing" / "failures.json"
    spec = json.loads(path.read_text())
    spec["usermeta"]["crosslayer"]["campaign"] = "another"
    path.write_text(json.dumps(spec))
    page = report.write_index(dataset, folder).read_text()
    assert '<figure id="failures"' not in page
    assert '<figure id="fig05-dns-exchange"' in page


def test_no_figures_is_an_error(tmp_path: Path, dataset: Dataset) -> None:
    with pytest.raises(report.ReportError, match="no figures of campaign synthetic"):
        report.write_index(dataset, tmp_path)


def test_a_broken_figure_file_is_named(folder: Path, dataset: Dataset) -> None:
    (folder / "coalescing" / "failures.json").write_text("{")
    with pytest.raises(report.ReportError, match=r"failures\.json: cannot be read"):
        report.write_index(dataset, folder)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, dataset: Dataset, drawings: list[Drawing]) -> None:
    (tmp_path / "coalescing").write_text("a file where the folder should be")
    with pytest.raises(report.ReportError, match="cannot be written"):
        report.save_drawing(drawings[0], dataset, tmp_path)
