"""Every figure draws from whatever a dataset has, within its limits, and shows the numbers of the metrics."""

from __future__ import annotations

import base64
import io
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import altair as alt
import polars as pl
import pytest
import vl_convert
from PIL import Image, ImageChops, ImageStat

import synthetic
from charts import valid
from crosslayer import metrics, published
from crosslayer.campaign.dataset import Dataset
from crosslayer.figures import MAX_ROWS, Drawing, FigureError, Inputs, cdf, draw, style
from crosslayer.figures import figure as figure_module
from crosslayer.figures.style import STYLES, TRANSPORTS
from crosslayer.studies import STUDIES
from crosslayer.studies.coalescing.figures.common import lacks
from crosslayer.studies.coalescing.figures.dns_overhead import SERIES as DNS_SERIES
from crosslayer.studies.coalescing.figures.handshakes import SERIES as HANDSHAKE_SERIES
from crosslayer.studies.coalescing.figures.page_loads import SERIES as PLT_SERIES

FIGURES = {figure.name: figure for figure in STUDIES["coalescing"].figures}

PARTS: dict[str, dict[str, Any]] = {
    "one cell": {"links": ["dsl"], "pages": ["wikipedia.org"]},
    "one round": {"rounds": 1},
    "no 0-RTT": {"h3": ["1-rtt"]},
    "no baseline": {"protocols": ["DoQ", "DoH"]},
    "only DNS": {"h3": [], "aa": False},
    "all failed": {"failures": 1.0},
}
LACKS = {
    "one cell": "Not in this campaign: Fiber, Cable, 4G, 4G medium, example.org, instagram.com.",
    "one round": "",
    "no 0-RTT": "Not in this campaign: H3 0-RTT loads.",
    "no baseline": "Not in this campaign: DoUDP exchanges.",
    "only DNS": "Not in this campaign: H3 1-RTT loads, H3 0-RTT loads.",
    "all failed": "Not in this campaign: DoUDP exchanges, DoQ exchanges, DoH exchanges, H3 1-RTT loads, "
    "H3 0-RTT loads, TCP RTTs.",
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    folder = synthetic.write(tmp_path_factory.mktemp("whole"), rounds=40)
    return Inputs.of(Dataset.open(folder), published.load())


@pytest.fixture(scope="module", params=PARTS)
def part(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Inputs]:
    folder = synthetic.write(tmp_path_factory.mktemp("part"), **({"rounds": 7} | PARTS[request.param]))
    return request.param, Inputs.of(Dataset.open(folder), published.load())


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_draws_within_its_limits(whole: Inputs, name: str) -> None:
    drawing = draw(FIGURES[name], whole, "Campaign synthetic.")
    assert 0 < drawing.rows.height <= MAX_ROWS
    spec = valid(drawing)
    assert sum(len(rows) for rows in spec["datasets"].values()) <= MAX_ROWS
    assert spec["vconcat"][0]["title"]["text"][0].startswith(FIGURES[name].heading.split()[0])
    assert "Campaign synthetic." in " ".join(spec["title"]["text"])
    assert drawing.caption.endswith("Campaign synthetic.")
    assert "<svg" in vl_convert.vegalite_to_svg(json.dumps(spec))


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_says_what_is_missing(part: tuple[str, Inputs], name: str) -> None:
    what, inputs = part
    drawing = draw(FIGURES[name], inputs, "Campaign synthetic.")
    spec = drawing.vega_lite()
    notes = " ".join(spec["title"]["text"])
    assert LACKS[what] in notes
    assert LACKS[what] in drawing.caption
    vl_convert.vegalite_to_vega(json.dumps(spec))  # compiles


def test_what_only_some_cells_lack_is_reported_with_the_cells(whole: Inputs) -> None:
    link, page = pl.col("link"), pl.col("page")
    nothing = (link == "4g") & (page == "example.org")
    inputs = replace(
        whole,
        dns_exchanges=whole.dns_exchanges.filter(~nothing, (pl.col("protocol") != "DoQ") | (link != "dsl")),
        tcp_rtts=whole.tcp_rtts.filter(~nothing),
        page_loads=whole.page_loads.filter(
            ~nothing, (pl.col("h3") == "1-rtt") | (link != "fiber") | (page == "example.org")
        ),
    )
    assert lacks(inputs) == (
        "Not in this campaign: example.org on 4G, DoQ exchanges (DSL), "
        "H3 0-RTT loads (wikipedia.org on Fiber; instagram.com on Fiber)."
    )


@pytest.mark.slow
def test_links_without_an_rtt_are_left_out_and_named(tmp_path: Path) -> None:
    folder = synthetic.write(tmp_path, rounds=2)
    shutil.rmtree(folder / "link_checks" / "link=fiber")
    assert lacks(Inputs.of(Dataset.open(folder), published.load())) == "Left out, no RTT above 0 is known: Fiber."
    shutil.rmtree(folder / "link_checks")
    assert lacks(Inputs.of(Dataset.open(folder), published.load())) == (
        "Left out, no RTT above 0 is known: 4G, 4G medium, Cable, DSL, Fiber."
    )


def test_a_chart_with_too_many_rows_is_refused(whole: Inputs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figure_module, "MAX_ROWS", 10)
    with pytest.raises(FigureError, match=r"fig05-dns-exchange: .* rows, more than the 10"):
        draw(FIGURES["fig05-dns-exchange"], whole, "")


def test_the_figures_cover_the_paper() -> None:
    covered = {figure.paper_figure for figure in FIGURES.values()}
    assert {"Table II", *(f"Fig. {number}" for number in range(3, 13))} <= covered
    for study in STUDIES.values():
        assert {figure.notebook for figure in study.figures} == {section.notebook for section in study.sections}
        assert len({figure.name for figure in study.figures}) == len(study.figures)


def test_bad_data_is_a_figure_error_with_its_cause(whole: Inputs) -> None:
    broken = replace(whole, dns_exchanges=whole.dns_exchanges.drop("protocol"))
    with pytest.raises(
        FigureError, match=r"fig05-dns-exchange: cannot be drawn \(ColumnNotFoundError: .*protocol"
    ) as raised:
        draw(FIGURES["fig05-dns-exchange"], broken, "")
    assert isinstance(raised.value.__cause__, pl.exceptions.ColumnNotFoundError)


def test_the_last_digits_of_a_sum_are_not_drawn(whole: Inputs) -> None:
    failures = FIGURES["failures"]

    def drawn(of: float) -> Drawing:
        data = lambda inputs: failures.data(inputs).with_columns(measured=pl.lit(of))  # noqa: E731
        return draw(replace(failures, data=data), whole, "")

    assert drawn(0.1 + 0.2).rows["measured"][0] == 0.3
    assert drawn(0.1 + 0.2).svg() == drawn(0.3).svg()
    assert drawn(-1e-14).vega_lite() == drawn(0.0).vega_lite()
    assert drawn(-1e-14).rows.write_csv() == drawn(0.0).rows.write_csv()


def test_a_drawing_shows_itself_with_tooltips_and_as_a_picture(whole: Inputs) -> None:
    drawing = draw(FIGURES["failures"], whole, "Campaign synthetic.")
    shown = drawing._repr_mimebundle_()
    kept, whole_picture = (Image.open(io.BytesIO(png)) for png in (base64.b64decode(shown["image/png"]), drawing.png()))
    assert (kept.format, kept.size, kept.mode) == ("PNG", whole_picture.size, "P")
    # The palette changes no pixel visibly: within 1.5 % of a colour channel on average.
    difference = ImageStat.Stat(ImageChops.difference(kept.convert("RGB"), whole_picture.convert("RGB")))
    assert max(difference.mean) < 4
    spec = shown["application/vnd.vegalite.v5+json"]
    assert spec.keys() == drawing.vega_lite().keys() | {"$schema"}
    assert shown["text/plain"].startswith("Failed observations. ")
    assert drawing.table is not None
    assert drawing.verdict is None


@pytest.mark.parametrize("order", [DNS_SERIES, HANDSHAKE_SERIES, PLT_SERIES, metrics.COMBINATIONS, tuple(TRANSPORTS)])
def test_series_differ_in_colour_and_in_dash(order: tuple[str, ...]) -> None:
    assert len({STYLES[name].color for name in order}) == len(order)
    assert len({tuple(STYLES[name].dash) for name in order}) == len(order)


def test_fig5_draws_the_medians_and_the_published_curve(whole: Inputs) -> None:
    frame = FIGURES["fig05-dns-exchange"].data(whole)
    rows = metrics.in_rtts(whole.exchanges, whole.rtts, ["total_ms"]).collect()
    for protocol in DNS_SERIES:
        drawn = frame.filter(kind="median", series=protocol).row(0, named=True)
        expected = rows.filter(protocol=protocol)["total_rtt"]
        assert drawn["x"] == pytest.approx(expected.median())
        assert drawn["n"] == expected.len()
        assert drawn["low"] <= drawn["x"] <= drawn["high"]
    printed = frame.filter(source="published", series="DoQ")
    assert printed.height == whole.published.curves.filter(figure="Fig. 5", series="DoQ").height
    assert printed.filter(pl.col("cdf") <= 0.5)["x"].max() == pytest.approx(2.5, abs=0.01)


def test_fig8_has_every_cell_three_times(whole: Inputs) -> None:
    frame = FIGURES["fig08-heatmap"].data(whole)
    assert frame.group_by("source").len().sort("source").rows() == [
        ("difference", 45),
        ("measured", 45),
        ("published", 45),
    ]
    cell = {"series": "DoH + H3 1-RTT", "page": "example.org", "link": "4g-medium"}
    values = {row["source"]: row["percent"] for row in frame.filter(**cell).iter_rows(named=True)}
    assert values["published"] == 53.7
    assert values["difference"] == pytest.approx(values["measured"] - 53.7)


def test_fig12_has_one_point_per_cell(whole: Inputs) -> None:
    frame = FIGURES["fig12-summary"].data(whole)
    curve = frame.filter(source="measured", series="DoQ + H3 0-RTT")
    assert curve["n"].unique().to_list() == [15]
    assert curve.height == 15 + 1  # and the foot of the curve


def test_copies_of_pages_are_called_copies_and_rows_keep_their_names(whole: Inputs) -> None:
    drawing = draw(FIGURES["fig08-heatmap"], whole, "")
    svg = drawing.svg()
    assert ">example.org (copy)</text>" in svg
    assert ">wikipedia.org (copy)</text>" in svg
    assert ">example.org</text>" not in svg
    assert "(copy)" not in drawing.rows.write_csv()
    assert style.page_title("example.org") == "example.org (copy)"
    assert style.page_title("long-document") == "long-document"


def test_headers_of_panels_call_copies_of_pages_copies() -> None:
    rows = pl.DataFrame({"page": ["example.org", "long-document"], "ms": [1, 2]})
    chart = alt.Chart(rows).mark_point().encode(x="ms:Q").facet(column="page:N")
    spec = style.framed(chart, "Title", [], style.COLUMN_WIDTH)
    svg = vl_convert.vegalite_to_svg(json.dumps(spec), vl_version=figure_module.vegalite_version())
    assert ">example.org (copy)</text>" in svg
    assert ">long-document</text>" in svg


def test_curves_start_at_zero_and_end_at_one(whole: Inputs) -> None:
    frame = FIGURES["fig09-plt-grid"].data(whole)
    ends = (
        frame.filter(source="measured", kind="curve")
        .group_by("panel", "series")
        .agg(low=pl.min("cdf"), high=pl.max("cdf"))
    )
    assert ends.select("low", "high").unique().rows() == [(0.0, 1.0)]


def curve(values: list[float]) -> pl.DataFrame:
    rows = pl.LazyFrame(
        {"campaign": "c", "round": range(len(values)), "host": "", "panel": "p", "series": "DoQ", "x_ms": values}
    )
    return cdf.measured(rows, "x_ms", points=200)


def test_a_plot_shows_all_of_a_short_curve_and_says_where_it_cuts_a_tail() -> None:
    short, long = curve([1.0] * 8 + [50.0]), curve([1.0] * 999 + [50.0])
    assert cdf.x_domain(short)[1] > 50
    assert cdf.tail_note(short) == ""
    assert cdf.x_domain(long)[1] < 2
    assert "99th percentile" in cdf.tail_note(long)
    assert cdf.x_domain(long, top=1.0)[1] > 50


def test_published_values_are_named_where_they_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(published.PublishedError, match=r"curves\.csv"):
        published.load(tmp_path)
