"""Figures and claims as files, and the page made from them."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner
from tests import committed

import crosslayer
import synthetic
from crosslayer import claims, published, report, studies
from crosslayer.browser import BrowserError
from crosslayer.campaign import provenance
from crosslayer.campaign.dataset import Dataset, dataset_sha256
from crosslayer.cli import cli
from crosslayer.figures import Drawing, Figure, Inputs, draw
from crosslayer.figures.sentences import added, extremes
from crosslayer.links import load_profiles
from crosslayer.report import answer, facts, made
from crosslayer.report import drawing as drawing_all
from crosslayer.report.files import saved_claims
from crosslayer.studies import STUDIES, Study, coalescing
from crosslayer.study import TOPICS

ROOT = Path(__file__).parents[2]
NAMES = ("failures", "fig05-dns-exchange")
FIGURES = {figure.name: figure for study in STUDIES.values() for figure in study.figures}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("dataset")
    return Dataset.open(synthetic.write(folder, pages=["example.org"], rounds=7))


@pytest.fixture(scope="module")
def drawings(dataset: Dataset) -> list[Drawing]:
    inputs = Inputs.of(dataset, published.load())
    return [draw(FIGURES[name], inputs, dataset.caption) for name in NAMES]


@pytest.fixture(scope="module")
def verdicts(dataset: Dataset) -> pl.DataFrame:
    return report.check_claims(dataset)


@pytest.fixture
def folder(dataset: Dataset, drawings: list[Drawing], verdicts: pl.DataFrame, tmp_path: Path) -> Path:
    for drawing in drawings:
        report.save_drawing(drawing, dataset, tmp_path)
    report.save_claims(verdicts, dataset, tmp_path)
    return tmp_path


def with_campaign(dataset: Dataset, folder: Path, **changed: Any) -> Dataset:
    """The same observations with another `campaign.json`."""
    shutil.copytree(dataset.folder, folder)
    path = folder / "campaign.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    return Dataset.open(folder)


class Elements(HTMLParser):
    """Elements of a page, without what is inside its scripts and style."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))


def study_page(index: Path, study: str = "coalescing") -> str:
    return (index.parent / study / "index.html").read_text(encoding="utf-8")


def claims_page(index: Path) -> str:
    return (index.parent / "claims.html").read_text(encoding="utf-8")


# Files


@pytest.mark.slow
def test_a_figure_is_saved_in_four_forms(folder: Path, dataset: Dataset, drawings: list[Drawing]) -> None:
    saved = folder / "coalescing"
    assert {path.name for path in saved.iterdir()} == {
        *(f"{name}.{ending}" for name in NAMES for ending in ("svg", "png", "json", "csv")),
        "claims.parquet",
        "claims.md",
    }
    for drawing in drawings:
        name = drawing.figure.name
        assert (saved / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (saved / f"{name}.svg").read_text()
        rows = pl.read_csv(saved / f"{name}.csv", infer_schema_length=None)
        assert (rows.height, rows.columns) == (drawing.rows.height, [*drawing.rows.columns, "campaign"])
        assert set(rows["campaign"]) == {"synthetic"}
        spec = json.loads((saved / f"{name}.json").read_text())
        assert spec["usermeta"]["crosslayer"]["campaign"] == "synthetic"
        assert spec["usermeta"]["crosslayer"]["caption"] == drawing.caption
        assert spec["usermeta"]["crosslayer"]["dataset_sha256"] == dataset_sha256(dataset.folder)


def test_the_hash_of_a_dataset_is_what_sha256sum_says_and_follows_its_files(dataset: Dataset, tmp_path: Path) -> None:
    output = subprocess.run(
        "sha256sum campaign.json */*/*.parquet | sha256sum",
        shell=True,
        cwd=dataset.folder,
        env={**os.environ, "LC_ALL": "C"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert output.stdout.split()[0] == dataset_sha256(dataset.folder)
    changed = with_campaign(dataset, tmp_path / "other", backend="uml")
    assert dataset_sha256(changed.folder) != dataset_sha256(dataset.folder)


def test_claims_are_saved_with_the_campaign_they_are_of(folder: Path, verdicts: pl.DataFrame) -> None:
    saved = pl.read_parquet(folder / "coalescing" / "claims.parquet")
    assert saved["campaign"].unique().to_list() == ["synthetic"]
    assert saved.drop("campaign").equals(verdicts)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, dataset: Dataset, drawings: list[Drawing]) -> None:
    (tmp_path / "coalescing").write_text("a file where the folder should be")
    with pytest.raises(report.ReportError, match="cannot be written"):
        report.save_drawing(drawings[0], dataset, tmp_path)


# The page


@pytest.mark.slow
@pytest.mark.parametrize("command", ["figures", "report", "claims"])
def test_a_folder_that_is_a_file_or_a_dataset_is_refused_before_anything_is_drawn(
    tmp_path: Path, dataset: Dataset, command: str
) -> None:
    (tmp_path / "file").touch()
    study = tmp_path / "raw" / "coalescing"
    shutil.copytree(dataset.folder, study)
    before = {path: path.stat().st_mtime_ns for path in study.rglob("*")}
    for out, fault in (("file", "is a file, not a folder"), ("raw", "holds a dataset, which figures would overwrite")):
        arguments = [sys.executable, "-m", "crosslayer", command, str(dataset.folder), "--out", str(tmp_path / out)]
        done = subprocess.run(arguments, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        [line] = done.stderr.splitlines()
        assert line.startswith("crosslayer: ")
        assert fault in line
    assert {path: path.stat().st_mtime_ns for path in study.rglob("*")} == before


@pytest.mark.slow
def test_what_a_drawing_process_cannot_write_is_one_line(tmp_path: Path, dataset: Dataset) -> None:
    (tmp_path / "coalescing" / f".{NAMES[0]}.svg.new").mkdir(parents=True)
    command = [sys.executable, "-m", "crosslayer", "figures", str(dataset.folder), "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert re.fullmatch(rf"crosslayer: \S+{NAMES[0]}.svg: cannot be written \(Is a directory\)\..*\n", done.stderr)


def test_the_page_shows_figures_captions_notice_and_provenance(folder: Path, dataset: Dataset) -> None:
    index = report.write_index(dataset, folder, notice="Reference <campaign>.")
    page = study_page(index)
    for name in NAMES:
        assert f'<figure id="{name}"' in page
    for text in (page, index.read_text()):
        assert "Reference &lt;campaign&gt;." in text
        assert "Example CPU" in text
    assert dataset.caption in page
    assert dataset.campaign.git_revision in page
    assert "2026-01-02 03:04 to 2026-01-02 05:04 UTC, 120 minutes" in index.read_text()


def test_the_page_shows_every_claim_and_counts_them(folder: Path, dataset: Dataset, verdicts: pl.DataFrame) -> None:
    index = report.write_index(dataset, folder)
    elements = Elements(claims_page(index)).elements
    rows = [attributes for tag, attributes in elements if tag == "tr" and "data-paper" in attributes]
    assert [row["id"] for row in rows] == verdicts["claim_id"].to_list()
    ours = verdicts.filter(paper="TNSM24")
    summary = ", ".join(f"{count} {verdict}" for verdict, count in claims.counts(ours).items())
    summary = re.sub(rf"\b{claims.FOLLOWING}\b", "already determined by another result or the configuration", summary)
    summary = summary.replace("direction only", "reproduced in direction only")
    judged = "(judged by the studies coalescing, one-connection)"
    assert f"{ours.height} results that TNSM24 prints {judged}: <strong>{summary}</strong>" in study_page(index)
    counted = Counter((row["data-paper"], row["data-counted"]) for row in rows)
    text = re.sub(r"<script.*?</script>", "", index.read_text(), flags=re.DOTALL)
    for paper, kind, count in re.findall(r'data-paper="([^"]*)" data-verdict="([^"]+)">(\d+)</a>', text):
        assert counted.pop((paper, kind)) == int(count)
    assert not counted


def test_a_claim_leads_to_its_figure_its_rows_and_its_rule(folder: Path, dataset: Dataset) -> None:
    index = report.write_index(dataset, folder)
    page = claims_page(index)
    row = page[page.index('<tr id="T077"') : page.index("</tr>", page.index('<tr id="T077"'))]
    figure, rows, rule = re.findall(r'href="([^"#][^"]*|#rule[^"]*)"', row)
    assert figure == "coalescing/index.html#fig05-dns-exchange"
    assert '<figure id="fig05-dns-exchange"' in study_page(index)
    assert pl.read_csv(folder / rows, infer_schema_length=None).height
    assert f'<dt id="{rule.removeprefix("#")}">' in page


def test_every_link_between_the_pages_leads_somewhere(folder: Path, dataset: Dataset) -> None:
    index = report.write_index(dataset, folder)
    ids: dict[Path, set[str | None]] = {}
    for path in folder.rglob("*.html"):
        ids[path] = {attributes.get("id") for _, attributes in Elements(path.read_text()).elements}
    assert {index, folder / "claims.html", folder / "coalescing" / "index.html"} <= set(ids)
    for path in ids:
        for tag, attributes in Elements(path.read_text()).elements:
            target = attributes.get("href" if tag == "a" else "src") or ""
            if not target or target.startswith(("data:", "https://doi.org/")):
                continue
            name, _, anchor = target.partition("#")
            position = (path.parent / name).resolve() if name else path
            assert position.is_file(), (path, target)
            if anchor and "=" not in anchor:
                assert anchor in ids[position], (path, target)


def test_the_first_page_is_small(folder: Path, dataset: Dataset) -> None:
    assert report.write_index(dataset, folder).stat().st_size <= 300_000


def test_an_interval_without_width_is_given_as_text(folder: Path, dataset: Dataset, verdicts: pl.DataFrame) -> None:
    one = pl.col("claim_id") == "T077"
    flat = verdicts.with_columns(
        pl.when(one).then(34.24).otherwise(pl.col(name)).alias(name) for name in ("ours", "low", "high")
    )
    report.save_claims(flat, dataset, folder)
    page = claims_page(report.write_index(dataset, folder))
    row = page[page.index('<tr id="T077"') : page.index("</tr>", page.index('<tr id="T077"'))]
    assert '<td data-label="Ours">34.24 RTT</td><td data-label="95 % interval">narrower than its last digit</td>' in row


def test_headline_numbers_are_those_of_their_claims(folder: Path, dataset: Dataset, verdicts: pl.DataFrame) -> None:
    page = report.write_index(dataset, folder).read_text()
    headlines = page[page.index('class="headlines"') : page.index("</table>", page.index('class="headlines"'))]
    own = next(iter(STUDIES.values())).headlines
    assert headlines.count('<a href="claims.html#') == len(own)
    row = verdicts.row(by_predicate=pl.col("claim_id") == "T077", named=True)
    assert row["low"] < row["ours"] < row["high"]
    assert claims.interval(row) == "[1.03, 1.03]"
    cells = (("Ours", claims.ours(row)), ("95 % interval", "narrower than its last digit"), ("Published", "1.03 RTT"))
    assert "".join(f'<td data-label="{label}">{cell}</td>' for label, cell in cells) in headlines
    wide = verdicts.with_columns(
        pl.when(pl.col("claim_id") == "T077").then(1.5).otherwise(pl.col("high")).alias("high")
    )
    report.save_claims(wide, dataset, folder)
    page = report.write_index(dataset, folder).read_text()
    assert '>[1.03, 1.50]</td><td data-label="Published">1.03 RTT</td>' in page


def test_a_claim_without_a_number_has_a_dash_on_top(tmp_path: Path) -> None:
    """Without 0-RTT loads three headlines have no number, and the page says so."""
    dataset = Dataset.open(synthetic.write(tmp_path / "dataset", links=["fiber"], rounds=7, h3=["1-rtt"]))
    report.save_claims(report.check_claims(dataset), dataset, tmp_path)
    page = report.write_index(dataset, tmp_path).read_text()
    assert page.count('<td data-label="Ours">–</td><td data-label="95 % interval">–</td>') >= 2


def test_without_claims_the_page_says_how_to_check_them(folder: Path, dataset: Dataset) -> None:
    (folder / "coalescing" / "claims.parquet").unlink()
    index = report.write_index(dataset, folder)
    for page in (index.read_text(), claims_page(index)):
        assert "Not checked yet for this campaign: <code>crosslayer report</code> does it." in page
        assert "data-paper" not in re.sub(r"<style.*?</style>|<script.*?</script>", "", page, flags=re.DOTALL)
    assert f'<figure id="{NAMES[0]}"' in study_page(index)


def test_claims_of_another_campaign_or_version_are_left_out(
    folder: Path, dataset: Dataset, verdicts: pl.DataFrame
) -> None:
    path = folder / "coalescing" / "claims.parquet"
    of_another = pl.read_parquet(path).with_columns(campaign=pl.lit("another"))
    for table in (of_another, verdicts):
        table.write_parquet(path)
        assert "Not checked yet" in report.write_index(dataset, folder).read_text()


def test_claims_alone_are_a_page_too(tmp_path: Path, dataset: Dataset, verdicts: pl.DataFrame) -> None:
    report.save_claims(verdicts, dataset, tmp_path)
    index = report.write_index(dataset, tmp_path)
    assert '<tr id="T079"' in claims_page(index)
    assert "<figure" not in index.read_text()
    assert "<figure" not in study_page(index)


def test_a_study_page_shows_verdicts_that_the_page_of_claims_lacks(
    folder: Path, dataset: Dataset, drawings: list[Drawing], verdicts: pl.DataFrame
) -> None:
    resolvers = replace(dataset, campaign=replace(dataset.campaign, study="resolvers", campaign="box"))
    other = verdicts.with_columns(verdict=pl.lit("not reproduced"), why=pl.lit("Measured 56 ms."))
    report.save_claims(other, resolvers, folder)
    (folder / "resolvers" / "over-time.json").write_text(
        json.dumps({"usermeta": {"crosslayer": {"name": "over-time", "campaign": "box", "error": "over-time: none"}}})
    )
    index = report.write_index(dataset, folder)
    assert "</span>I090" in (page := study_page(index, "resolvers"))
    assert '<p class="note">Measured 56 ms.' in page
    assert 'href="../claims.html#I090"' not in page
    assert 'href="../claims.html#T077"' in study_page(index)


def test_figures_of_another_campaign_are_left_out(folder: Path, dataset: Dataset) -> None:
    path = folder / "coalescing" / "failures.json"
    spec = json.loads(path.read_text())
    spec["usermeta"]["crosslayer"]["campaign"] = "another"
    path.write_text(json.dumps(spec))
    page = study_page(report.write_index(dataset, folder))
    assert '<figure id="failures"' not in page
    assert '<figure id="fig05-dns-exchange"' in page


def test_claims_of_another_study_come_from_its_own_campaign(
    folder: Path, dataset: Dataset, verdicts: pl.DataFrame
) -> None:
    other = replace(dataset, campaign=replace(dataset.campaign, study="single-query", campaign="another"))
    report.save_claims(verdicts.with_columns(verdict=pl.lit("direction only"), ours=1.5), other, folder)
    index = report.write_index(dataset, folder)
    page = claims_page(index)
    rows = {a["id"]: a["class"] for tag, a in Elements(page).elements if tag == "tr" and "data-paper" in a}
    assert list(rows) == verdicts["claim_id"].to_list()
    assert rows["I103"] == "direction-only"
    assert rows["I123"] == "not-measured"  # the study web is not there
    assert rows["T077"] == "reproduced"
    assert "<summary>2 campaigns</summary><p>synthetic, another</p>" in page
    assert "Single query, gain of DoQ over DoT and DoH" in index.read_text()


def test_every_figure_has_its_part_of_the_page() -> None:
    for study in STUDIES.values():
        notebooks = {section.notebook for section in study.sections}
        assert {figure.notebook for figure in study.figures} <= notebooks, study.name


@pytest.mark.parametrize(
    ("study", "text"), [("web", "ACM IMC 2022"), ("authoritative", "Twente"), ("key-share", "a question")]
)
def test_the_page_says_what_its_study_measures(
    folder: Path, dataset: Dataset, verdicts: pl.DataFrame, study: str, text: str
) -> None:
    other = replace(dataset, campaign=replace(dataset.campaign, study=study))
    report.save_claims(verdicts, other, folder)
    page = study_page(report.write_index(other, folder), study)
    about = page[page.index('<p class="about">') : page.index("</p>", page.index('<p class="about">'))]
    assert text in about
    assert ('class="bar"' in page) == (study != "key-share")


def test_figures_of_other_studies_are_shown_whatever_campaign_they_are_of(
    folder: Path, dataset: Dataset, drawings: list[Drawing], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = replace(drawings[0].figure, name="asked", notebook="question_key_share", title="Why?")
    with_figures(monkeypatch, asked, study="key-share")
    other = replace(dataset, campaign=replace(dataset.campaign, study="key-share", campaign="another"))
    report.save_drawing(replace(drawings[0], figure=asked, verdict="Because of <it>."), other, folder)
    index = report.write_index(dataset, folder)
    page = study_page(index, "key-share")
    section = STUDIES["key-share"].sections[0]
    assert page.index(f'<section id="{section.notebook}">') < page.index('<figure id="asked"')
    entry = f'<li><a href="#{section.notebook}">{section.heading}</a><ul><li><a href="#asked">Why?</a></li></ul></li>'
    assert entry in page
    assert '<p class="short">Because of &lt;it&gt;.</p>' in page
    question = section.lead.replace("'", "&#39;")
    assert f'<a href="key-share/index.html">{question}</a>' in index.read_text()


# A figure that fails


def with_figures(monkeypatch: pytest.MonkeyPatch, *more: Figure, study: str = studies.DEFAULT) -> None:
    """As if a few figures of `NAMES`, and some more of a study, were all that there are."""
    known = {studies.DEFAULT: tuple(FIGURES[name] for name in NAMES)}
    known[study] = (*known.get(study, ()), *more)
    monkeypatch.setattr(Study, "figures", property(lambda self: known.get(self.name, ())))


def broken_figure() -> Figure:
    def fail(inputs: Inputs) -> pl.DataFrame:
        raise ValueError("the rows <are> gone")

    return replace(FIGURES[NAMES[0]], name="broken", title="A broken one", data=fail)


@pytest.mark.slow
def test_a_figure_that_fails_is_a_box_and_all_others_are_drawn(
    tmp_path: Path, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_figures(monkeypatch, broken_figure())
    (tmp_path / "coalescing").mkdir()
    (tmp_path / "coalescing" / "broken.svg").write_text("of an earlier campaign")
    written = report.write_report(dataset, tmp_path)
    assert list(written.failed) == ["broken"]
    assert "ValueError: the rows <are> gone" in written.failed["broken"]
    page = study_page(written.page)
    box = page[page.index('<figure id="broken"') : page.index("</figure>", page.index('<figure id="broken"'))]
    assert 'class="failed"' in box
    assert "the rows &lt;are&gt; gone" in box
    assert "<img" not in box
    assert not (tmp_path / "coalescing" / "broken.svg").exists()
    for name in NAMES:
        assert f'data-name="{name}"' in page
    assert "broken" in study_page(report.write_index(dataset, tmp_path))  # whoever renews the page


@pytest.mark.slow
def test_the_exit_status_says_that_a_figure_failed(
    tmp_path: Path, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_figures(monkeypatch, broken_figure())
    for command in ("figures", "report"):
        result = CliRunner().invoke(cli, [command, str(dataset.folder), "--out", str(tmp_path / command)])
        assert result.exit_code == 4
        assert "ValueError" in result.output
        assert (tmp_path / command / "index.html").is_file()


@pytest.mark.slow
def test_processes_draw_what_one_draws(tmp_path: Path, dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    with_figures(monkeypatch)  # in this process: those that draw have all of them
    monkeypatch.setattr(drawing_all, "_WORTH_PROCESSES", 1)
    alone = report.write_figures(dataset, tmp_path / "alone")
    both = report.write_figures(dataset, tmp_path / "both", processes=2)
    assert not alone.failed
    assert not both.failed
    files = sorted(path.relative_to(tmp_path / "alone") for path in (tmp_path / "alone").rglob("*.*"))
    pages = [
        "index.html",
        "claims.html",
        "report.js",
        "coalescing/index.html",
        "coalescing/about.json",
        "coalescing/.made.json",
    ]
    assert {str(file) for file in files} >= set(pages)
    assert len(files) == 4 * len(NAMES) + len(pages)
    for name in files:
        assert (tmp_path / "alone" / name).read_bytes() == (tmp_path / "both" / name).read_bytes(), name


def counting(figure: Figure, drawn: list[str]) -> Figure:
    def data(inputs: Inputs) -> pl.DataFrame:
        drawn.append(figure.name)
        return figure.data(inputs)

    return replace(figure, data=data)


@pytest.mark.slow
def test_a_second_report_makes_only_what_is_missing_or_changed(
    tmp_path: Path, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[str] = []
    checked: list[str] = []
    figures = tuple(counting(FIGURES[name], drawn) for name in NAMES)
    monkeypatch.setattr(Study, "figures", property(lambda self: figures if self.name == "coalescing" else ()))
    check = report.check_claims
    monkeypatch.setattr(report, "check_claims", lambda of: checked.append(of.campaign.study) or check(of))
    first = report.write_report(dataset, tmp_path)
    files = {path: path.read_bytes() for path in tmp_path.rglob("*.*") if path.name != "ro-crate-metadata.json"}
    assert (sorted(drawn), checked) == (sorted(NAMES), ["coalescing"])
    report.write_report(dataset, tmp_path)
    assert (sorted(drawn), checked) == (sorted(NAMES), ["coalescing"])
    assert {path: path.read_bytes() for path in files} == files
    study = first.page.parent / "coalescing"
    (study / f"{NAMES[0]}.png").write_bytes(b"not what was drawn")
    (study / "claims.parquet").unlink()
    report.write_report(dataset, tmp_path)
    assert (drawn[2:], checked) == ([NAMES[0]], ["coalescing"] * 2)
    changed = with_campaign(dataset, tmp_path / "changed", notes=["Another note."])
    report.write_report(changed, tmp_path)
    assert sorted(drawn[3:]) == sorted(NAMES)
    monkeypatch.setattr(made, "_code", lambda study: "another revision")
    report.write_report(changed, tmp_path)
    assert sorted(drawn[5:]) == sorted(NAMES)


def append(path: Path) -> None:
    path.write_text(f"{path.read_text(encoding='utf-8')}\n# changed\n", encoding="utf-8")


def test_what_the_figures_of_a_study_depend_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = shutil.copytree(Path(crosslayer.__file__).parent, tmp_path / "crosslayer")
    monkeypatch.setattr(made, "_PACKAGE", package)
    code = made._code.__wrapped__  # type: ignore[attr-defined]
    before = code("coalescing")
    for name in ("studies/web/figures.py", "testbed/backends.py"):
        append(package / name)
    assert code("coalescing") == before
    append(package / "figures" / "marks.py")
    assert code("coalescing") != before


# The answer on top


def of_committed(name: str) -> Dataset:
    return Dataset.open(ROOT / "data" / "raw" / name)


def answer_of(dataset: Dataset, verdicts: pl.DataFrame, folder: Path) -> answer.Whole:
    report.save_answer(dataset, verdicts, folder)
    return answer.gathered(folder, None)


def medians_by_hand(page: str, exchange: tuple[str, str], load: tuple[str, str]) -> float:
    """Median over all links of what an exchange adds to DoUDP in its round, percent of the cell's median over DoUDP."""
    shares = []
    for link in sorted((ROOT / "data" / "raw" / "combinations" / "page_loads").iterdir()):
        loads, exchanges = (
            pl.read_parquet(ROOT / "data" / "raw" / "combinations" / table / link.name / "part-0.parquet").filter(
                pl.col("page") == page, pl.col("error").is_null()
            )
            for table in ("page_loads", "dns_exchanges")
        )
        load_complete_ms = dict(loads.filter(h3=load[0], condition=load[1]).select("round", "plt_ms").rows())
        plain, other = (
            dict(exchanges.filter(protocol=name, resumption=state, condition="main").select("round", "total_ms").rows())
            for name, state in (("DoUDP", "none"), exchange)
        )
        level = statistics.median(plain[number] + load_complete_ms[number] for number in load_complete_ms)
        shares += [100 * (other[number] - plain[number]) / level for number in load_complete_ms]
    return statistics.median(shares)


def means_and_half_widths(cells: tuple[str, ...]) -> list[tuple[float, float]]:
    """The numbers of cells such as `+34.3 ± 0.1 %`."""
    numbers = [re.fullmatch(r"\+([\d.]+)\xa0±\xa0([\d.]+)\xa0%", cell) for cell in cells]
    return [(float(number[1]), float(number[2])) for number in numbers if number]


@pytest.mark.slow
def test_the_answer_compares_each_visit_with_plain_dns_in_the_same_state(tmp_path: Path) -> None:
    of = answer_of(of_committed("combinations"), pl.DataFrame(schema=claims.COLUMNS), tmp_path)
    (first, on_first), (returning, on_returning) = of.sentences
    assert (first, returning) == ("First visit", "Returning visit")
    pages = ("example.org", "wikipedia.org", "instagram.com")
    full, early = ("1-rtt", "main"), ("0-rtt", "main")
    by_hand = {
        ("First visit", "DoQ"): (("DoQ", "none"), full),
        ("First visit", "DoH"): (("DoH", "none"), full),
        ("Returning visit", "DoQ"): (("DoQ", "early-data"), early),
        ("Returning visit", "DoH"): (("DoH", "ticket"), early),
    }
    numbers = {(topic, number.name): number for topic, number in of.intervals}
    increases = {row[0]: row[1:] for row in of.increases}
    for (topic, name), state in by_hand.items():
        shown = [numbers[topic, f"{name}, {page} (copy)"] for page in pages]
        (cells,) = (row for of_row, row in increases.items() if of_row.startswith(f"{topic}, in virtual time: {name}"))
        written = means_and_half_widths(cells)
        assert len(written) == len(pages)
        for number, (mean, half) in zip(shown, written, strict=True):
            assert number.low is not None
            assert mean == pytest.approx(number.mean, abs=0.5 if half >= 1 else 0.05)
            assert number.mean - number.low <= half + 1e-6  # the interval is never shown narrower than it is
            assert half <= number.mean - number.low + (1 if half > 1 else 0.1)
        own = [next(iter(number.values.values())) for number in shown]
        # By hand, a load without proof of its early data counts too.
        assert own == pytest.approx([medians_by_hand(page, *state) for page in pages], rel=1e-3)
        by_campaign = [statistics.mean(number.values.values()) for number in shown]
        assert [number.mean for number in shown] == pytest.approx(by_campaign)
    assert "Compared with plain DNS, DoQ or DoH3 adds 1.0 to 1.1 round-trips (RTT), 1.6 on DSL." in on_first
    assert "DoQ or DoH3 adds 0.0 RTT, 0.3 on DSL (DoQ: at worst +11\N{NO-BREAK SPACE}% page load time)" in on_returning
    heads = ("Page load time compared with plain DNS on the same visit", *(f"{page} (copy)" for page in pages))
    assert of.increases[0] == heads
    assert list(increases)[1:] == [
        "First visit, in virtual time: DoQ",
        "First visit, in virtual time: DoH",
        "Returning visit, in virtual time: DoQ with early data",
        "Returning visit, in virtual time: DoH, resumed",
    ]


def test_the_answer_names_the_cost_on_the_slowest_uplink_separately() -> None:
    profiles = load_profiles()
    uplinks = {link: profiles[link].upload_mbit or math.inf for link in coalescing.LINKS}
    assert min(uplinks, key=lambda link: uplinks[link]) == coalescing.SLOWEST_UPLINK
    cells = [{"link": link, "rtt": rtt} for link, rtt in (("fiber", 1.0), ("dsl", 1.5), ("4g", 1.1), ("dsl", 1.6))]
    name, topic = "DoQ", "First visit"

    def text(of: list[dict[str, Any]]) -> str:
        named = extremes(of, "rtt", "dsl")
        values = {(topic, f"{name}, {which}"): row["rtt"] for which, row in named.items()}
        return added(values, topic, name, "dsl")

    assert text(cells) == "1.0 to 1.1 RTT, 1.6 on DSL"
    assert text(cells[::2]) == "1.0 to 1.1 RTT"
    assert text(cells[1::2]) == "1.5 to 1.6 RTT"


@pytest.mark.slow
def test_the_answer_says_what_one_connection_saves_and_costs_at_most(tmp_path: Path) -> None:
    ((topic, sentence),) = answer_of(
        of_committed("one-connection"), pl.DataFrame(schema=claims.COLUMNS), tmp_path
    ).sentences
    assert topic == "One connection for name and page"
    worth = pl.read_csv(ROOT / "figures" / "one-connection" / "one-connection-worth.csv")
    cells = worth.filter(pl.col("page").is_in(["example.org", "wikipedia.org"]))
    over = {
        (visit, what): of["median"] for (visit, what), of in cells.partition_by("visit", "what", as_dict=True).items()
    }
    separate, later = over["first visit", "over DoQ, then H3"], -over["first visit", "over DoUDP, then H3"].min()
    on_dsl = cells.filter(visit="first visit", what="over DoQ, then H3", link="dsl")["median"].max()
    assert f"by {separate.min():.1f} RTT, {on_dsl:.1f} on DSL (25\N{NO-BREAK SPACE}% of its time)" in sentence
    assert f"Compared with plain DNS, it is at most {later:.2f} RTT" in sentence
    back = f"{-over['returning visit', 'over DoUDP, then H3 0-RTT'].min():.2f} RTT"
    assert re.search(rf"later on a first visit, {re.escape(back)} \(\+[\d.]+.%\) on a returning one\.", sentence)


@pytest.mark.slow
def test_the_answer_names_rounds_machine_and_revision_of_its_numbers(tmp_path: Path) -> None:
    for name in ("coalescing", "one-connection", "combinations"):
        dataset = of_committed(name)
        report.save_answer(dataset, pl.DataFrame(schema=claims.COLUMNS), tmp_path)
    whole = answer.gathered(tmp_path, None)
    assert [topic for topic, _ in whole.sentences] == [*TOPICS, "First visit, in real time"]
    assert [row[0] for row in whole.increases[-2:]] == [f"First visit, in real time: {name}" for name in ("DoQ", "DoH")]
    rows = {row[0]: row[1:] for row in whole.studies}
    assert list(rows) == ["Study", "one-connection", "combinations", "coalescing"]
    processors = {"combinations": "AMD EPYC, Intel Xeon"}
    for name, clock in (("combinations", "virtual"), ("one-connection", "virtual"), ("coalescing", "real")):
        folders = [ROOT / "data" / "raw" / name, *sorted((ROOT / "data" / "repeats" / name).glob("*/"))]
        campaigns = [json.loads((folder / "campaign.json").read_text()) for folder in folders]
        rounds = [campaign["plan"]["rounds"] for campaign in campaigns]
        time, count, of_cell, of_links, cpu, revisions = rows[name]
        assert (time, count) == (f"{clock} time", str(len(folders)))
        assert of_cell == f"{min(rounds)} to {max(rounds)}"
        assert of_links.startswith(f"{len(campaigns[0]['plan']['links'])}, RTT 15 to ")
        assert cpu == processors.get(name, "AMD EPYC")
        assert set(revisions.split(", ")) == {campaign["git"]["revision"][:7] for campaign in campaigns}
    assert whole.evidence.endswith(" Real time: first visit only.")
    limits = r"0\.01 RTT or [\d.]+ points in virtual time, [\d.]+ RTT in real time"
    expected = rf"±: 95.% interval for a further campaign \(outside the table at most {limits}\)\."
    assert re.search(expected, whole.evidence)


def test_a_campaign_that_lacks_a_page_adds_no_sentence(
    tmp_path: Path, dataset: Dataset, verdicts: pl.DataFrame
) -> None:
    measured = verdicts.with_columns(ours=pl.lit(0.28), verdict=pl.lit("reproduced"))
    whole = answer_of(dataset, measured, tmp_path)
    assert whole.sentences == ()
    assert (whole.evidence, whole.studies) == ("", ())
    assert [claim for claim, _, _ in whole.headlines] == ["T001", "T002", "T003", "T004"]
    none = verdicts.with_columns(ours=pl.lit(None, pl.Float64))
    assert answer_of(dataset, none, tmp_path).headlines == ()
    assert not (tmp_path / "coalescing" / "answer.json").exists()


@pytest.mark.parametrize(
    ("verdict", "first", "decided"),
    [
        ("reproduced", "holds for the worst link and page (", "holds"),
        ("inconclusive", "undecided for the worst link and page (", "inconclusive"),
        ("not reproduced", "does not hold here, not even for the worst link and page (", "does not hold"),
        (
            "direction only",
            "does not hold here, not even for the worst link and page (",
            "reproduced in direction only",
        ),
    ],
)
def test_the_headlines_of_the_paper_have_verdicts_in_plain_text(
    tmp_path: Path, dataset: Dataset, verdicts: pl.DataFrame, verdict: str, first: str, decided: str
) -> None:
    judged = verdicts.with_columns(verdict=pl.lit(verdict), ours=pl.lit(0.28))
    whole = answer_of(dataset, judged, tmp_path)
    assert whole.headlines_of.endswith(", checked by one campaign in real time")
    headlines = {claim: text for claim, _, text in whole.headlines}
    assert headlines["T001"].startswith(first)
    heatmap = published.load().heatmap
    percent = {(row["link"], row["page"], row["series"]): row["percent"] for row in heatmap.iter_rows(named=True)}
    for claim, links in (("T003", ("fiber", "cable", "dsl")), ("T004", ("4g", "4g-medium"))):
        most = max(
            100 * (1 - (100 + percent[link, page, "DoQ + H3 0-RTT"]) / (100 + percent[link, page, "DoH + H3 1-RTT"]))
            for link, page, series in percent
            if link in links and series == "DoH + H3 1-RTT"
        )
        assert headlines[claim].endswith(f"; the paper's Fig. 8: at most {most:.0f}\N{NO-BREAK SPACE}%")
        assert headlines[claim].startswith(f"{decided} (at most 28\N{NO-BREAK SPACE}%)")


@pytest.mark.slow
def test_the_page_begins_with_the_answer(folder: Path, dataset: Dataset, verdicts: pl.DataFrame) -> None:
    report.save_answer(of_committed("combinations"), verdicts, folder)
    report.save_answer(dataset, verdicts.with_columns(ours=pl.lit(0.28), verdict=pl.lit("reproduced")), folder)
    page = report.write_index(dataset, folder).read_text()
    part = page[page.index('class="answer"') : page.index("</ul>", page.index('class="answer"'))]
    assert part.count("<li>") == 2
    assert "<strong>First visit:</strong> Compared with plain DNS, DoQ or DoH3 adds" in part
    paper = page[page.index('class="paper"') : page.index("</ul>", page.index('class="paper"'))]
    assert paper.count("<li>") == 4
    order = ['class="answer"', 'class="bar"', 'class="paper"', 'id="questions"', 'id="summary"']
    assert [page.index(part) for part in order] == sorted(page.index(part) for part in order)


def test_the_answer_of_a_question_is_that_of_its_figures(
    folder: Path, dataset: Dataset, drawings: list[Drawing]
) -> None:
    (folder / "coalescing" / "claims.parquet").unlink()
    report.save_drawing(replace(drawings[0], verdict="Yes, it does."), dataset, folder)
    page = report.write_index(dataset, folder).read_text()
    part = page[page.index('class="answer"') : page.index("</ul>", page.index('class="answer"'))]
    assert "<li>Yes, it does.</li>" in part


def test_a_broken_answer_is_named(folder: Path, dataset: Dataset, verdicts: pl.DataFrame) -> None:
    (folder / "coalescing" / "answer.json").write_text("{")
    with pytest.raises(report.ReportError, match=r"answer\.json: cannot be read"):
        report.write_index(dataset, folder)


@pytest.mark.slow
def test_the_readme_says_what_the_committed_campaigns_answer(tmp_path: Path) -> None:
    for name, study in STUDIES.items():
        if study.claims:
            of_study = Dataset.open(ROOT / "data" / "raw" / name)
            of_claims = committed.verdicts(name)
            report.save_claims(of_claims, of_study, tmp_path)
            report.save_answer(of_study, of_claims, tmp_path)
    default = Dataset.open(ROOT / "data" / "raw" / studies.DEFAULT)
    whole = answer.as_markdown(answer.gathered(tmp_path, saved_claims(default, tmp_path)))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    block = readme[readme.index("<!-- answer -->") : readme.index("<!-- /answer -->")]
    assert block == f"<!-- answer -->\n{whole}\n", "run `crosslayer report` and commit README.md"


def test_the_readme_is_renewed_in_a_checkout_and_nowhere_else(
    tmp_path: Path, dataset: Dataset, verdicts: pl.DataFrame
) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("# Title\n\n<!-- answer -->\nold\n<!-- /answer -->\n\nmore\n")
    copy = Dataset.open(shutil.copytree(dataset.folder, tmp_path / "data" / "raw" / studies.DEFAULT))
    for where, own in ((tmp_path / "mine", copy), (tmp_path / "figures", dataset)):
        report.save_claims(verdicts, own, where)
        report.save_answer(own, verdicts, where)
        answer.renew_readme(own, where)
        assert "\nold\n" in readme.read_text()
    answer.renew_readme(copy, tmp_path / "figures")
    whole = answer.as_markdown(answer.gathered(tmp_path / "figures", verdicts))
    assert readme.read_text() == f"# Title\n\n<!-- answer -->\n{whole}\n<!-- /answer -->\n\nmore\n"


def test_a_dataset_from_another_machine_is_called_one(tmp_path: Path, folder: Path, dataset: Dataset) -> None:
    assert "Measured elsewhere" in report.write_index(dataset, folder).read_text()
    local_executor = with_campaign(dataset, tmp_path / "here", host=provenance.host())
    page = report.write_index(local_executor, folder).read_text()
    assert "Measured elsewhere" not in page
    assert 'class="notice"' not in page
    of_checkout = Dataset.open(Path(__file__).parents[2] / "data" / "raw" / "coalescing")
    assert facts.elsewhere(dataset)
    assert facts.elsewhere(of_checkout) == "", "its page is the same wherever it is made"


# What comes from outside


def test_the_pages_load_nothing_from_elsewhere(folder: Path, dataset: Dataset) -> None:
    index = report.write_index(dataset, folder)
    for page in (index.read_text(), claims_page(index), study_page(index)):
        elements = Elements(page).elements
        for tag, attributes in elements:
            for name in ("src", "srcset", "data", "action", "poster", "background"):
                value = attributes.get(name) or "data:"
                assert value.startswith("data:") or not re.match(r"[a-z]+:|//", value), (tag, attributes)
            if tag == "link":
                assert attributes["href"] == "data:,"
            assert tag not in ("iframe", "object", "embed", "base")
        policy = next(a["content"] for tag, a in elements if tag == "meta" and a.get("http-equiv"))
        assert policy is not None
        assert policy.startswith("default-src 'none';")
        assert "http" not in policy
        style = page[page.index("<style>") : page.index("</style>")]
        assert "@import" not in style
        assert "url(" not in style


def test_whatever_a_dataset_and_its_claims_say_stays_text(tmp_path: Path, verdicts: pl.DataFrame) -> None:
    evil = "</script><img src=x onerror=alert(1)>&\"'"
    source = Dataset.open(synthetic.write(tmp_path / "source", links=["fiber"], rounds=7, campaign=evil))
    host = json.loads((source.folder / "campaign.json").read_text())["host"]
    bad = with_campaign(
        source,
        tmp_path / "bad",
        notes=[evil],
        host=host | {"cpu": evil},
        versions={evil: evil},
        started=evil,
        backend=evil,
    )
    report.save_drawing(draw(FIGURES[NAMES[0]], Inputs.of(bad, published.load()), bad.caption), bad, tmp_path)
    text = [name for name, kind in claims.COLUMNS.items() if kind == pl.String and name not in ("verdict", "claim_id")]
    report.save_claims(verdicts.with_columns(pl.lit(evil).alias(name) for name in text), bad, tmp_path)
    index = report.write_index(bad, tmp_path, notice=evil)
    for page, scripts in ((index.read_text(), 0), (claims_page(index), 1), (study_page(index), 2)):
        assert "<img src=x" not in page
        assert page.count("</script>") == scripts
        assert all(attributes.get("src") != "x" for _, attributes in Elements(page).elements)


def test_nothing_to_show_is_an_error(tmp_path: Path, dataset: Dataset) -> None:
    with pytest.raises(report.ReportError, match=r"no figures and no claims of campaign synthetic\. Make them first"):
        report.write_index(dataset, tmp_path)


@pytest.mark.parametrize("name", ["failures.json", "claims.parquet"])
def test_a_broken_file_is_named(folder: Path, dataset: Dataset, name: str) -> None:
    (folder / "coalescing" / name).write_text("{")
    with pytest.raises(report.ReportError, match=rf"{re.escape(name)}: cannot be read"):
        report.write_index(dataset, folder)


def test_a_missing_chromium_is_reported_before_anything_is_drawn(
    tmp_path: Path, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CROSSLAYER_CHROMIUM", str(tmp_path / "no-chromium"))
    out = tmp_path / "out"
    result = CliRunner().invoke(cli, ["report", str(dataset.folder), "--out", str(out), "--pdf"])
    assert isinstance(result.exception, BrowserError)
    assert "there is no Chromium on this machine" in str(result.exception)
    assert result.exception.next_step
    assert not out.exists()
