"""The figures of the committed campaigns: the numbers that are committed with them, and one look in all of them."""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import altair as alt
import pytest
import vl_convert
from fontTools.ttLib import TTFont
from tests.committed import CAMPAIGNS
from tests.compare_figures import chart, differing

from crosslayer.campaign.dataset import Dataset, paired_campaigns
from crosslayer.figures import Drawing, clocks, draw, server_cost
from crosslayer.figures.style import FONT_FILES, TRANSPORTS
from crosslayer.report import Drawer, save
from crosslayer.studies import STUDIES

ROOT = Path(__file__).parents[2]
CLOCK_FIGURES = [
    (name, figure.name)
    for name, study in STUDIES.items()
    if f"{name}-virtual" in CAMPAIGNS
    for figure in clocks.figures(name, study.condition_titles)
]
FIGURES = [*((study.name, figure.name) for study in STUDIES.values() for figure in study.figures), *CLOCK_FIGURES]
SERVER_COST = ("server-cost", "server-cost")
VEGA_LITE_IN_JUPYTERLAB = "5.21"


@cache
def dataset(study: str) -> Dataset:
    return Dataset.open(ROOT / "data" / "raw" / study)


@cache
def drawer(study: str) -> Drawer:
    return Drawer(dataset(study), paired_campaigns(dataset(study)))


@cache
def drawing(study: str, name: str) -> Drawing:
    if (study, name) == SERVER_COST:
        results = ROOT / "tests" / "benchmarks" / "results" / "server_cost.json"
        return draw(server_cost.FIGURE, json.loads(results.read_text())["result"]["transports"], "")
    [figure] = [figure for figure in drawer(study).figures if figure.name == name]
    return drawer(study).draw(figure)


def inner(spec: Any) -> Iterator[dict[str, Any]]:
    """Every object of a specification, but for its rows."""
    if isinstance(spec, dict):
        yield spec
        for key, value in spec.items():
            if key != "datasets":
                yield from inner(value)
    elif isinstance(spec, list):
        for value in spec:
            yield from inner(value)


@pytest.mark.slow
@pytest.mark.parametrize(("study", "name"), [*CLOCK_FIGURES, SERVER_COST])
def test_figures_are_those_that_are_committed(study: str, name: str, tmp_path: Path) -> None:
    """`test_run_all` compares the other figures, which run_all draws."""
    about = {"campaign": dataset(study).campaign.campaign} if study in STUDIES else {}
    save(drawing(study, name), tmp_path / study, **about)
    # The note of server-cost names the machine of the benchmark, which the result does not contain.
    assert [file for file in differing(tmp_path) if file != "server-cost/server-cost.json"] == []
    with_csv = drawing(study, name)._repr_mimebundle_()["application/vnd.vegalite.v5+json"]
    vl_convert.vegalite_to_vega(json.dumps(with_csv), vl_version=VEGA_LITE_IN_JUPYTERLAB)


def _committed(study: str, name: str) -> Path:
    return ROOT / "figures" / study / f"{name}.json"


def test_every_committed_figure_is_still_drawn() -> None:
    committed = {(path.parent.name, path.stem) for path in (ROOT / "figures").glob("*/*.csv")}
    assert committed == {*FIGURES, SERVER_COST}


@pytest.mark.slow
@pytest.mark.parametrize(("study", "name"), [*FIGURES, SERVER_COST])
def test_every_figure_has_tooltips_and_is_drawn_by_jupyterlab_too(study: str, name: str) -> None:
    spec = chart(_committed(study, name))
    alt.VConcatChart.validate(spec)
    marks = [part["encoding"] for part in inner(spec) if "mark" in part and "encoding" in part]
    assert any("tooltip" in encoding for encoding in marks)
    assert all("tooltip" in part.get("encoding", {}) for part in inner(spec) if _mark(part) == "point")
    vl_convert.vegalite_to_vega(json.dumps(spec), vl_version=VEGA_LITE_IN_JUPYTERLAB)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("study", "name"),
    [("coalescing", "fig03-handshakes"), ("one-connection", "document-size"), ("idle-connection", "idle-next-answer")],
)
def test_rows_as_csv_draw_the_same_picture(study: str, name: str) -> None:
    drawn = drawing(study, name)
    with_rows = drawn.vega_lite()
    with_csv = drawn._repr_mimebundle_()["application/vnd.vegalite.v5+json"]
    assert all(isinstance(rows, str) for rows in with_csv["datasets"].values())
    assert _rounded(with_csv) == _rounded(with_rows)


def _rounded(spec: dict[str, Any]) -> str:
    """The chart as SVG, without the numbers of clips, which count up; numbers with six decimals."""
    svg = vl_convert.vegalite_to_svg(json.dumps(spec), vl_version=VEGA_LITE_IN_JUPYTERLAB)
    return re.sub(r"\d+\.\d+", lambda number: f"{float(number[0]):.6f}", re.sub(r"clip\d+", "clip", svg))


_DRAW = """
import hashlib, sys
from crosslayer import published
from crosslayer.campaign.dataset import Dataset
from crosslayer.figures import Inputs, draw
from crosslayer.studies import STUDIES
dataset = Dataset.open(sys.argv[1])
drawn = draw(STUDIES["serialisation"].figures[0], Inputs.of(dataset, published.load()), dataset.caption)
print(hashlib.sha256(drawn.svg().encode()).hexdigest(), hashlib.sha256(drawn.png()).hexdigest())
"""


@pytest.mark.slow
def test_pictures_are_the_same_bytes_whatever_fonts_a_machine_has(tmp_path: Path) -> None:
    """By the machine's own fonts, by none, and by others that are called as those which stand in for ours."""
    others = tmp_path / "others"
    others.mkdir()
    for style, source, weight in (("Regular", "Bold", 400), ("Bold", "Regular", 700)):
        font = TTFont(FONT_FILES / f"CrosslayerSans-{source}.ttf")
        for record in font["name"].names:
            names = {1: "Liberation Sans", 2: style, 4: f"Liberation Sans {style}", 6: f"LiberationSans-{style}"}
            record.string = names.get(record.nameID, record.toUnicode())
        font["OS/2"].usWeightClass = weight
        font.save(others / f"{style}.ttf")
    digests = []
    for folders in (None, [], [others]):
        settings = dict(os.environ)
        if folders is not None:
            settings["FONTCONFIG_FILE"] = str(tmp_path / f"{len(folders)}.conf")
            listed = "".join(f"<dir>{folder}</dir>" for folder in folders)
            Path(settings["FONTCONFIG_FILE"]).write_text(f'<?xml version="1.0"?><fontconfig>{listed}</fontconfig>')
        command = [sys.executable, "-c", _DRAW, str(ROOT / "data" / "raw" / "serialisation")]
        digests.append(subprocess.run(command, env=settings, capture_output=True, text=True, check=True).stdout)
    assert digests[0] == digests[1] == digests[2]


def test_our_font_has_every_sign_that_figures_draw() -> None:
    signs = {
        sign
        for svg in (ROOT / "figures").glob("*/*.svg")
        for text in re.findall(r"<text[^>]*>([^<]*)", svg.read_text(encoding="utf-8"))
        for sign in html.unescape(text)
    }
    assert "−" in signs
    for file in sorted([*FONT_FILES.glob("*.ttf"), *FONT_FILES.glob("*.woff")]):
        assert signs <= {chr(code) for code in TTFont(file).getBestCmap()}, file.name


def test_pictures_have_their_letters_with_them() -> None:
    """As a browser shows them on a machine without fonts of these widths: legends do not overlap."""
    for svg in (ROOT / "figures").glob("*/*.svg"):
        text = svg.read_text(encoding="utf-8")
        weights = set(re.findall(r"@font-face\{font-family:'Crosslayer Sans';font-weight:(\d+);", text))
        assert weights == ({"400", "700"} if 'font-weight="bold"' in text else {"400"}), svg.name
    for name in ("Regular", "Bold"):
        whole, subset = (TTFont(FONT_FILES / f"CrosslayerSans-{name}.{ending}") for ending in ("ttf", "woff"))
        widths = {code: whole["hmtx"][glyph][0] for code, glyph in whole.getBestCmap().items()}
        assert {code: widths[code] for code in subset.getBestCmap()} == {
            code: subset["hmtx"][glyph][0] for code, glyph in subset.getBestCmap().items()
        }


def _mark(part: dict[str, Any]) -> str:
    mark = part.get("mark", "")
    return str(mark["type"] if isinstance(mark, dict) else mark)


def test_a_series_has_one_colour_one_shape_and_one_dash_in_all_figures() -> None:
    seen: dict[tuple[str, str], set[str]] = defaultdict(set)
    for study, name in (*FIGURES, SERVER_COST):
        for part in inner(chart(_committed(study, name))):
            for channel in ("color", "shape", "strokeDash"):
                scale = part.get(channel, {}).get("scale", {}) if isinstance(part.get(channel), dict) else {}
                if isinstance(scale, dict) and all(isinstance(item, str) for item in scale.get("domain", [1])):
                    for series, style in zip(scale["domain"], scale["range"], strict=True):
                        seen[series, channel].add(str(style))
    assert {key: styles for key, styles in seen.items() if len(styles) > 1} == {}
    for transport, style in TRANSPORTS.items():
        assert seen[transport, "color"] == {style.color}
        assert seen[transport, "shape"] == {style.shape}
        assert seen[transport, "strokeDash"] == {str(list(style.dash))}
    # A series named after a transport, e.g. `DoQ query`, looks like it; early data and sizes of datagrams do not.
    for (series, channel), styles in seen.items():
        first, _, rest = series.partition(" ")
        if first in TRANSPORTS and "," not in series and "0-RTT" not in rest and "instead" not in rest:
            assert styles == seen[first, channel], (series, channel)


def test_transports_are_distinguished_without_colour() -> None:
    for channel in ("color", "shape", "dash"):
        assert len({str(getattr(style, channel)) for style in TRANSPORTS.values()}) == len(TRANSPORTS)


@pytest.mark.parametrize("page", sorted((ROOT / "figures").glob("*/index.html")), ids=lambda page: page.parent.name)
def test_every_entry_of_a_page_navigation_differs(page: Path) -> None:
    navigation = page.read_text(encoding="utf-8").partition('<nav aria-label="Contents">')[2].partition("</nav>")[0]
    entries = re.findall(r'<a href="#[^"]+">([^<]+)</a>', navigation)
    assert len(entries) >= 3
    assert len(set(entries)) == len(entries)
