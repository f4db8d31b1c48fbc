"""TNSM24 sections IV-C and IV-D: PLT of the combinations (Figs. 8 to 12)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, partial
from itertools import pairwise, product
from typing import Any

import altair as alt
import numpy as np
import polars as pl

from crosslayer import metrics
from crosslayer.figures import Inputs, cdf, marks
from crosslayer.figures.style import EARLY_DATA, STYLES, TEXT_WIDTH, AnyChart, link_title, with_titles
from crosslayer.metrics.resampling import Sample
from crosslayer.studies.coalescing.figures.common import (
    DOTTED,
    OURS,
    PAPER,
    figure,
    links_in,
    measured,
    observations,
    pages_in,
    with_published,
)

SERIES = ("DoQ + H3 0-RTT", "DoQ + H3 1-RTT", "DoH + H3 1-RTT")
"""Combinations compared with the baseline."""

_HEATMAP_WIDTH = (TEXT_WIDTH - 114) // 3
_INCREASE = "PLT increase over the baseline's median (%)"


# Data of all figures


def _cells(inputs: Inputs) -> Iterator[tuple[str, str, dict[str, metrics.Numbers]]]:
    """Link, page and PLTs by combination, for each cell that has the baseline."""
    observed = observations(inputs)
    for link, page in product(inputs.links, inputs.pages):
        cells = {name: (name, link, page) for name in sorted(metrics.COMBINATIONS)}
        if cells[metrics.BASELINE] in observed.cells:
            yield link, page, {name: observed.numbers(cell) for name, cell in cells.items() if cell in observed.cells}


def _median(plts: dict[str, metrics.Numbers]) -> float:
    """The baseline's median PLT in a cell, ms."""
    return float(np.median(plts[metrics.BASELINE].values))


# Fig. 8


@lru_cache(maxsize=2)  # used by Fig. 12, too
def fig8_data(inputs: Inputs) -> pl.DataFrame:
    """Median relative PLT increase of every cell.

    Columns series, link, page, source (measured, published, difference), percent (the increase; in rows of source
    `difference`, percentage points), low, high (95 % interval), n. Rows are in the order of the figure.
    """

    rows = [
        (link, page, name, *estimate)
        for link, page, plts in _cells(inputs)
        for name, *estimate in _increases(inputs, plts)
        if name in SERIES
    ]
    ours = measured(["link", "page", "series"], rows).rename({"median": "percent"}).drop("rounds")
    published = inputs.published.heatmap.with_columns(source=pl.lit("published"))
    both = ours.join(published, on=["link", "page", "series"], suffix="_published")
    difference = both.select(
        "link", "page", "series", source=pl.lit("difference"), percent=pl.col("percent") - pl.col("percent_published")
    )
    frame = pl.concat([ours, published, difference], how="diagonal")
    return frame.select("series", "link", "page", "source", "percent", "low", "high", "n").sort(
        pl.col("series").replace_strict({name: rank for rank, name in enumerate(SERIES)}, return_dtype=pl.Int64),
        "source",
        maintain_order=True,
    )


def _increases(inputs: Inputs, plts: dict[str, metrics.Numbers]) -> Iterator[tuple[str, int, int, float, Any, Any]]:
    """PLT increase of each combination in a cell, compared with the baseline: (name, n, rounds, median, low, high).

    The increase is in percent of the baseline's median. Whole rounds are resampled, so baseline and combination stay
    paired.
    """
    rounds = observations(inputs).rounds_of(np.concatenate([plt.rounds for plt in plts.values()]))
    ends = np.cumsum([0, *(len(plt.values) for plt in plts.values())])
    numbers = [rounds.numbers[first:last] for first, last in pairwise(ends)]
    samples = {
        name: Sample(plt.values, of, rounds.blocks) for (name, plt), of in zip(plts.items(), numbers, strict=True)
    }
    return metrics.relative_to(metrics.BASELINE, samples, rounds)


def fig8(frame: pl.DataFrame) -> AnyChart:
    """Heat maps of TNSM24 Fig. 8: measured, published, and their difference."""
    shown = [float(x) for x in frame.filter(pl.col("source") != "difference")["percent"]]
    deltas = [abs(float(x)) for x in frame.filter(pl.col("source") == "difference")["percent"]]
    low, top, reach = min([0.0, *shown]), max([1.0, *shown]), max([1.0, *deltas])
    increases, dark = alt.Scale(domain=[low, top], scheme="blues"), low + 0.58 * (top - low)
    points = alt.Scale(domain=[-reach, 0, reach], range=["#5e3c99", "#f7f7f7", "#e66101"])
    texts = {name: pl.col(name).map_elements(_plain, return_dtype=pl.String) for name in ("percent", "low", "high")}
    signed = pl.col("percent").map_elements(_signed, return_dtype=pl.String)
    cells = frame.select("series", "link", "page").unique(maintain_order=True)
    every = cells.join(pl.DataFrame({"source": ["measured", "published", "difference"]}), how="cross")
    rows = with_titles(every.join(frame, on=every.columns, how="left", maintain_order="left")).with_columns(
        number=pl.when(pl.col("source") == "difference")
        .then(signed)
        .otherwise(texts["percent"])
        .fill_null("–"),  # a cell that this campaign lacks
        interval=pl.format("{} – {}", texts["low"], texts["high"]).fill_null(""),
    )
    plots = [
        _heatmap(frame, "measured", "measured (%)", increases, dark_above=dark),
        _heatmap(frame, "published", f"published, {PAPER} (%)", increases, dark_above=dark),
        _heatmap(frame, "difference", "difference (points)", points, dark_above=0.6 * reach),
    ]
    chart: AnyChart = alt.hconcat(*plots, spacing=8).resolve_scale(color="independent")
    chart.data = rows
    return chart


def fig8_table(frame: pl.DataFrame) -> pl.DataFrame:
    """Table of Fig. 8: page, link, series, n, median, low, high, published; percent."""
    ours, printed = (frame.filter(pl.col("source") == source) for source in ("measured", "published"))
    key = ["page", "link", "series"]
    return ours.join(printed.select(*key, published="percent"), on=key, how="left", maintain_order="left").select(
        *key, "n", pl.col("percent").alias("median"), "low", "high", "published"
    )


def _heatmap(frame: pl.DataFrame, source: str, title: str, scale: alt.Scale, *, dark_above: float) -> AnyChart:
    links = [link_title(link) for link in links_in(frame)]
    pages = pages_in(frame)
    leftmost = source == "measured"
    of_source = frame.filter(pl.col("source") == source)
    if of_source.is_empty():
        return marks.empty_plot("not measured", _HEATMAP_WIDTH, 90 * len(SERIES))
    tooltip = marks.tooltip(
        "series", "page", "link_title", "source", value="percent", of="percent:Q", digits="+.2f", counted="rounds"
    )
    shade = "abs(datum.percent)" if source == "difference" else "datum.percent"
    ink = marks.light_where(f"{shade} > {dark_above}")
    y = marks.rows("page", pages)
    if not leftmost:
        y["axis"] = None
    x = marks.columns("link_title", links, labelFontSize=8, labelExpr="split(datum.label, ' ')")
    base = alt.Chart(width=_HEATMAP_WIDTH, height=30 * len(pages)).encode(x, y)
    with_intervals = of_source["low"].drop_nulls().len() > 0
    texts = [marks.CellText("number:N", ink, dy=-4 if with_intervals else 0)]
    texts += [marks.CellText("interval:N", ink, dy=7, size=6.5)] if with_intervals else []
    cells = marks.heatmap(base, alt.Color("percent:Q", scale=scale, legend=None), tooltip, *texts)
    row = marks.facet_rows("series", SERIES, labelAngle=-90, labelOrient="left", labelPadding=2, labels=leftmost)
    chart: AnyChart = marks.multiples(cells, row=row, spacing=8).transform_filter(alt.datum.source == source)
    return chart.properties(title=marks.heading(title, bold=False))


def _plain(value: float) -> str:
    """Number with one decimal and a typographic minus, without a negative zero."""
    return f"{round(value, 1) + 0.0:.1f}".replace("-", "−")


def _signed(value: float) -> str:
    rounded = round(value, 1) + 0.0
    return "0.0" if rounded == 0 else f"{rounded:+.1f}".replace("-", "−")


# Fig. 9


def fig9_data(inputs: Inputs) -> pl.DataFrame:
    """Data of Fig. 9: CDF of the relative PLT increase in each cell. Columns of `cdf.SCHEMA`, link and page."""

    observed = observations(inputs)
    cells = [
        cdf.measured_groups(
            (
                cdf.CurveGroup(f"{page} | {link}", name, (plt / _median(plts) - 1) * 100, observed.rounds_of(rounds))
                for name, (plt, rounds) in plts.items()
                if name in SERIES
            ),
            points=60,
        )
        for link, page, plts in _cells(inputs)
    ]
    known = inputs.published.quantiles.filter(figure="Fig. 9").with_columns(panel=pl.format("{} | {}", "page", "link"))
    frame = pl.concat([*cells, cdf.published_quantiles(known)])
    name = pl.col("panel").str.split(" | ")
    return frame.with_columns(page=name.list.first(), link=name.list.last())


def fig9(frame: pl.DataFrame) -> AnyChart:
    """Chart of TNSM24 Fig. 9: CDF of the relative PLT increase, one row per page, one column per link."""
    links = links_in(frame)
    width = (TEXT_WIDTH - 56) // len(links) - 12
    pages = [page for page in pages_in(frame) if page in set(frame["page"])]
    rows = []
    for page in pages:
        of_page = frame.filter(pl.col("page") == page)
        layers = cdf.layers(
            SERIES,
            x_title="PLT increase (%)" if page == pages[-1] else None,
            width=width,
            height=100,
            domain=cdf.x_domain(of_page),
        )
        titles = [link_title(link) for link in links]
        column = marks.facet_columns("link_title", titles, labels=page == pages[0], labelPadding=2)
        plot = marks.multiples(layers, column=column, spacing=12).transform_filter(alt.datum.page == page)
        rows.append(plot.properties(title=marks.heading(page, bold=False, frame="bounds")))
    chart = alt.vconcat(*rows, spacing=8)
    chart.data = with_titles(frame)
    return chart


# Figs. 10 and 11


def _absolute_panels(page: str) -> dict[tuple[str, str], cdf.Panel]:
    series = metrics.COMBINATIONS
    return {
        ("fiber", "plt"): cdf.Panel(f"(a) {page}, fiber: PLT", "PLT (ms)", series),
        ("fiber", "delta"): cdf.Panel(f"(a) {page}, fiber: minus the baseline's median", "PLT difference (ms)", series),
        ("4g", "plt"): cdf.Panel(f"(b) {page}, 4G: PLT", "PLT (ms)", series),
        ("4g", "delta"): cdf.Panel(f"(b) {page}, 4G: minus the baseline's median", "PLT difference (ms)", series),
    }


def absolute_data(inputs: Inputs, page: str) -> pl.DataFrame:
    panels = _absolute_panels(page)
    known = inputs.published.absolute_plt.filter(page=page)
    quantiles = [name for name in known.columns if name.startswith("p") and name[1:].isdigit()]
    parts, observed = [], observations(inputs)
    for (link, kind), panel in panels.items():
        shift = pl.col("baseline_ms") if kind == "delta" else pl.lit(0.0)
        groups = (
            cdf.CurveGroup(
                panel.name, name, plt - (_median(plts) if kind == "delta" else 0), observed.rounds_of(rounds)
            )
            for one, other, plts in _cells(inputs)
            if (one, other) == (link, page)
            for name, (plt, rounds) in plts.items()
        )
        printed = known.filter(pl.col("link") == link).select(
            pl.lit(panel.name).alias("panel"), "series", *(pl.col(name) - shift for name in quantiles)
        )
        parts += [cdf.measured_groups(groups), cdf.published_quantiles(printed)]
    return pl.concat(parts)


# Fig. 12


def fig12_data(inputs: Inputs) -> pl.DataFrame:
    """Data of Fig. 12: the medians of Fig. 8 as CDF curves. A curve is the distribution of the cells' medians."""
    cells = fig8_data(inputs).filter(pl.col("source") != "difference")
    curves = metrics.curves(
        cells.with_columns(campaign=pl.lit(""), round=pl.lit(0)).lazy(), "percent", ["series", "source"]
    )
    feet = curves.group_by("series", "source", maintain_order=True).first().with_columns(cdf=pl.lit(0.0))
    rows = pl.concat([feet, curves.select(feet.columns)]).with_columns(
        panel=pl.lit("cells"), kind=pl.lit("curve"), low=pl.lit(None, pl.Float64), high=pl.lit(None, pl.Float64)
    )
    return rows.select(pl.col(name).cast(kind) for name, kind in cdf.SCHEMA.items()).sort(
        "source", "series", "cdf", maintain_order=True
    )


_FIG12 = (cdf.Panel("cells", f"Median {_INCREASE}", SERIES),)


def fig12_table(frame: pl.DataFrame) -> pl.DataFrame:
    """Table of Fig. 12: for each combination, the median and the largest of the cells' PLT increases, percent.

    Columns series, n (number of cells), median, worst, published_median, published_worst.
    """
    cells = frame.filter(pl.col("cdf") > 0).group_by("series", "source", maintain_order=True)
    both = cells.agg(pl.col("n").first(), pl.col("x").median().alias("median"), pl.col("x").max().alias("worst"))
    ours, printed = (both.filter(pl.col("source") == source) for source in ("measured", "published"))
    return ours.join(printed, on="series", suffix="_published", maintain_order="left").select(
        "series", "n", "median", "worst", published_median="median_published", published_worst="worst_published"
    )


# Differences within a round


_PAIRS = {
    "DoH instead of DoQ (H3 1-RTT)": ("DoH + H3 1-RTT", "DoQ + H3 1-RTT"),
    "H3 1-RTT instead of 0-RTT (DoQ)": ("DoQ + H3 1-RTT", "DoQ + H3 0-RTT"),
    "DoQ instead of DoUDP (H3 1-RTT)": ("DoQ + H3 1-RTT", "DoUDP + H3 1-RTT"),
}
_PAIR_STYLES = dict(zip(_PAIRS, (STYLES["DoH"], EARLY_DATA, STYLES["DoQ"]), strict=True))


def differences_data(inputs: Inputs) -> pl.DataFrame:
    """PLT difference within a round for each pair of combinations in `_PAIRS`, in percent of the baseline's median.

    Columns link, page, series, source, n, rounds, median, low, high.
    """

    rows = []
    for name, (first, second) in _PAIRS.items():
        for link, page, plts in _cells(inputs):
            if {first, second} <= plts.keys():
                more, rounds = observations(inputs).total({first: 1.0, second: -1.0}, link, page)
                estimate = metrics.median(more / _median(plts) * 100, observations(inputs).rounds_of(rounds))
                rows.append((link, page, name, *estimate))
    ours = inputs.by_rtt(measured(["link", "page", "series"], rows))
    heatmap = inputs.published.heatmap
    zero = heatmap.select("link", "page").unique(maintain_order=True).with_columns(percent=pl.lit(0.0))
    printed = pl.concat([heatmap, zero.with_columns(series=pl.lit(metrics.BASELINE)).select(heatmap.columns)])
    parts = []
    for name, (first, second) in _PAIRS.items():
        one, other = (printed.filter(series=series).drop("series") for series in (first, second))
        parts.append(
            one.join(other, on=["link", "page"], suffix="_second").select(
                "link",
                "page",
                series=pl.lit(name),
                source=pl.lit("published"),
                median=pl.col("percent") - pl.col("percent_second"),
            )
        )
    return pl.concat([ours, *parts], how="diagonal")


def differences(frame: pl.DataFrame) -> AnyChart:
    """Chart of the PLT differences: medians with intervals, one column per page, one row per link."""
    if frame.filter(pl.col("source") == "measured").is_empty():
        return marks.empty_plot("no rounds with both sides of a pair", TEXT_WIDTH - 60, 80)
    links = [link_title(link) for link in links_in(frame)]
    pages = [page for page in pages_in(frame) if page in set(frame["page"])]
    x = alt.X("median:Q", title="Share of the baseline's PLT (%)", axis=alt.Axis(tickCount=4))
    y = marks.rows("link_title", links, bold=True)
    encodings = marks.encode_series("series", _PAIR_STYLES, "color", "shape", "offset", columns=3)
    who = ("page", "link_title", "series", "source")
    tooltip = marks.tooltip(*who, value="median, %", digits="+.2f", counted="pairs")
    base = alt.Chart(width=(TEXT_WIDTH - 95) // len(pages) - 14, height=38 * len(links))
    layers = [
        marks.line_at(base, x=0),
        *marks.intervals(marks.rows_from(base, "measured"), x, y, tooltip, encodings, size=44),
        marks.published_points(base, x, y, tooltip, encodings, size=56),
    ]
    column = marks.facet_columns("page", pages, labelPadding=2)
    chart: AnyChart = marks.multiples(layers, column=column, spacing=14).resolve_scale(x="independent")
    chart.data = with_titles(frame)
    return chart


_figure = partial(figure, notebook="page_loads")
FIGURES = (
    _figure(
        name="fig08-heatmap",
        title="Median PLT increase over DoUDP + H3 1-RTT",
        paper_figure="Fig. 8",
        caption="Increase of the median PLT of each combination over the median PLT of the baseline (DoUDP + H3 "
        "1-RTT) on the same page and link. Three values: measured and published increase in percent, and their "
        "difference in percentage points.",
        note="Numbers in small print: 95 % interval. Whole rounds are resampled, "
        "so baseline and combination stay paired.",
        data=fig8_data,
        chart=fig8,
        table=fig8_table,
        width=TEXT_WIDTH,
    ),
    _figure(
        name="fig09-plt-grid",
        title="Relative PLT increase, three pages by five links",
        paper_figure="Fig. 9",
        caption="CDF of the PLT increase of each combination over the median PLT of the baseline (DoUDP + H3 1-RTT) "
        "on the same page and link.",
        note=DOTTED,
        data=fig9_data,
        chart=fig9,
        width=TEXT_WIDTH,
    ),
    _figure(
        name="fig10-plt-wikipedia",
        title="PLT of wikipedia.org on fiber and 4G",
        paper_figure="Fig. 10",
        caption="CDF of the PLT of wikipedia.org, and of the PLT minus the median of the baseline (DoUDP + H3 1-RTT). "
        "The PLT also depends on machine and browser, which differ from those of the paper. The PLT minus the median "
        "is therefore more comparable with the paper. Its intervals treat the median as exact.",
        note=f"Thin dotted curves: computed from the values of {PAPER}. {OURS}",
        data=partial(absolute_data, page="wikipedia.org"),
        chart=partial(
            cdf.chart, panels=tuple(_absolute_panels("wikipedia.org").values()), height=120, legend_columns=2
        ),
        table=cdf.table,
    ),
    _figure(
        name="fig11-plt-instagram",
        title="PLT of instagram.com on fiber and 4G",
        paper_figure="Fig. 11",
        caption="CDF of the PLT of instagram.com, and of the PLT minus the median of the baseline (DoUDP + H3 1-RTT). "
        "The intervals of this difference treat the median as exact.",
        note=f"Thin dotted curves: computed from the values of {PAPER}. {OURS}",
        data=partial(absolute_data, page="instagram.com"),
        chart=partial(
            cdf.chart, panels=tuple(_absolute_panels("instagram.com").values()), height=120, legend_columns=2
        ),
        table=cdf.table,
    ),
    _figure(
        name="fig12-summary",
        title="Median PLT increase over all cells",
        paper_figure="Fig. 12",
        caption="CDF of the median PLT increases of Fig. 8. Each combination has one value for each page and link.",
        note=f"Thin dotted curves: {PAPER} as published, 15 cells.",
        data=fig12_data,
        chart=partial(cdf.chart, panels=_FIG12, height=190, whole=True, published_steps=True),
        table=fig12_table,
        whole=True,
    ),
    _figure(
        name="plt-differences",
        title="PLT differences between DNS transports and handshakes",
        caption="Differences of the PLT between two combinations of the same round, in percent of the median PLT of "
        "the baseline (DoUDP + H3 1-RTT). Three differences: DoQ minus DoUDP (both with H3 1-RTT), DoH minus DoQ (both "
        "with H3 1-RTT), and H3 1-RTT minus H3 0-RTT (both with DoQ).",
        note=f"Filled: medians of the differences, 95 % intervals. Hollow: differences between medians in {PAPER} Fig. "
        "8.",
        data=differences_data,
        chart=differences,
        table=with_published,
        width=TEXT_WIDTH,
    ),
)
