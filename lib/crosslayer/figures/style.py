"""Style of all figures: styles of series, titles of links and pages, widths, and the frame around a chart."""

from __future__ import annotations

import base64
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import altair as alt
import polars as pl

from crosslayer.links import Profile, load_profiles
from crosslayer.vocabulary import vantage_title

# Okabe and Ito's colours, which are distinguishable with every kind of colour blindness, and not too light for white
# paper. Without colour, dash and shape distinguish series; the published curves are thin and dotted.
GREY, BLUE, GREEN, RED, PURPLE, BROWN = "#4d4d4d", "#0072b2", "#009e73", "#d55e00", "#b0578d", "#8a6d00"
SKY, ORANGE = "#56b4e9", "#e69f00"
SOLID, LONG, SHORT, WIDE, CHAIN, DOUBLE = [1, 0], [7, 2], [3, 1.5], [4, 4], [7, 2, 2, 2], [7, 2, 2, 2, 2, 2]


@dataclass(frozen=True, slots=True)
class Style:
    """Colour, shape and dash of a series."""

    color: str
    shape: str
    dash: Sequence[float]


TRANSPORTS = {
    "DoUDP": Style(GREY, "diamond", CHAIN),
    "DoTCP": Style(PURPLE, "square", WIDE),
    "DoT": Style(BROWN, "triangle-up", DOUBLE),
    "DoH": Style(RED, "triangle-down", LONG),
    "DoH3": Style(GREEN, "cross", SHORT),
    "DoQ": Style(BLUE, "circle", SOLID),
}
"""Style of each transport, the same in all figures."""

EARLY_DATA = Style(GREEN, "triangle-up", SHORT)
"""Style of everything that is sent as early data (0-RTT)."""
WITHOUT_TOKEN = Style(PURPLE, "cross", WIDE)
"""Style of page loads with early data but without an address-validation token."""

COMBINATIONS: dict[str, Style] = {
    "DoUDP + H3 1-RTT": TRANSPORTS["DoUDP"],
    "DoQ + H3 0-RTT": EARLY_DATA,
    "DoQ + H3 1-RTT": TRANSPORTS["DoQ"],
    "DoH + H3 1-RTT": TRANSPORTS["DoH"],
}
"""Style of each combination of a DNS transport and an HTTP/3 handshake.

It is `EARLY_DATA` if the handshake sends early data, otherwise the style of the transport.
"""

PARTS: dict[str, Style] = {
    "DoUDP lookup": TRANSPORTS["DoUDP"],
    "DoQ handshake": TRANSPORTS["DoQ"],
    "DoQ query": TRANSPORTS["DoQ"],
    "TCP RTT": TRANSPORTS["DoTCP"],
    "H3 1-RTT connect": TRANSPORTS["DoH"],
    "H3 0-RTT connect": EARLY_DATA,
}
"""Style of each part of an exchange or a load."""

_PAGES: dict[str, Style] = {
    "example.org": Style(BLUE, "circle", SOLID),
    "wikipedia.org": Style(BROWN, "square", CHAIN),
    "instagram.com": Style(GREEN, "triangle-up", SHORT),
    "long-document": Style(RED, "diamond", LONG),
}
_OTHER_PAGE = Style(PURPLE, "cross", WIDE)


def page_styles(pages: Sequence[str]) -> dict[str, Style]:
    """Style of each page in figures whose series are pages; pages without a style of their own share one."""
    return {page: _PAGES.get(page, _OTHER_PAGE) for page in pages}


STYLES: dict[str, Style] = {**TRANSPORTS, **COMBINATIONS, **PARTS}

PUBLISHED_DASH = [1, 2]

COLUMN_WIDTH = 336
"""Total width of a figure that fills one column of a two-column paper, px at 96 dpi."""
TEXT_WIDTH = 690
"""Total width of a figure that fills both columns, px at 96 dpi."""

FONT = "Crosslayer Sans, Liberation Sans, Arial, Helvetica, sans-serif"
"""Fonts of all figures, in the order of preference.

The first font is our own. No system has another font of this name, so pictures have the same bytes on every machine. A
browser that lacks our font, e.g. one that shows JupyterLab, uses one of the others; their letters have the same widths.
"""
FONT_FILES = Path(__file__).parent / "fonts"
"""Folder with TTF files for drawing, and WOFF files that each SVG embeds.

WOFF files contain only the characters that texts in figures may use. They were made by
`pyftsubset CrosslayerSans-Bold.ttf --flavor=woff --no-hinting --layout-features=kern --unicodes=20-7e,a7,b0-b2,b5,b7,`
`d7,e9,fc,2013,2014,2018,2019,201c,201d,2026,2192,2212,2248,2264,2265` (one list without a space).
"""
FONT_WEIGHTS = {"Regular": 400, "Bold": 700}
"""CSS weight of each WOFF file `CrosslayerSans-KEY.woff`."""
INK, MUTED, RULE = "#1a1a1a", "#5a5a5a", "#dcdcdc"
TITLE_PX, TEXT_PX, NOTE_PX = 11.5, 10, 9


@cache
def woff(name: str) -> str:
    """A WOFF file of `FONT_WEIGHTS` in base64."""
    return base64.b64encode((FONT_FILES / f"CrosslayerSans-{name}.woff").read_bytes()).decode()


AnyChart = alt.LayerChart | alt.Chart | alt.VConcatChart | alt.HConcatChart | alt.FacetChart


@cache
def _profiles() -> dict[str, Profile]:
    return load_profiles()


def link_title(link: str) -> str:
    """Title of a link in figures: that of its profile or of its vantage point, otherwise the link's name."""
    profile = _profiles().get(link)
    return profile.title if profile else vantage_title(link) or link


def page_title(page: str) -> str:
    """Title of a page in figures: its name, with `(copy)` if it is named like a public site; see `sites/README.md`."""
    return f"{page} (copy)" if "." in page else page


def with_titles(frame: pl.DataFrame) -> pl.DataFrame:
    """Rows with the additional column `link_title`."""
    titles = {link: link_title(link) for link in frame["link"].unique() if link is not None}
    return frame.with_columns(link_title=pl.col("link").replace(titles))


def framed(chart: AnyChart, title: str, notes: Sequence[str], width: int) -> dict[str, Any]:
    """Vega-Lite of a chart with the title above and the notes below; both are wrapped to the figure's width.

    Title and notes are added to the chart's Vega-Lite dictionary. Each Altair object around the chart would instead
    copy the whole chart.

    Parameters
    ----------
    chart
        The plot, with its rows as the data of its outermost level.
    title
        Title, on one line if it fits.
    notes
        Sentences on marks, missing data and provenance.
    width
        `COLUMN_WIDTH` or `TEXT_WIDTH`.
    """
    plot = chart.to_dict(validate=False)  # tests validate every figure; here, validation would take longer than drawing
    of_figure = {name: plot.pop(name) for name in ("$schema", "data", "datasets") if name in plot}
    plot.pop("config")
    _name_pages(plot)
    above = {"text": _wrapped([title], width, TITLE_PX), "fontSize": TITLE_PX, "color": INK, "offset": 8}
    below = {
        "text": _wrapped([" ".join(note for note in notes if note)], width, NOTE_PX),
        "orient": "bottom",
        "fontSize": NOTE_PX,
        "fontWeight": "normal",
        "color": MUTED,
        "lineHeight": NOTE_PX + 2.5,
        "offset": 8,
    }
    # A concatenation has one title, so the notes are the title of a second one around the first.
    titled = {"vconcat": [plot], "title": above, "resolve": _OWN_LEGENDS}
    return of_figure | {
        "vconcat": [titled],
        "title": below,
        "resolve": _OWN_LEGENDS,
        "padding": 6,
        "config": _CONFIG.to_dict(),
    }


_PAGE_LABEL = "indexof((datum.label), '.') >= 0 ? (datum.label) + ' (copy)' : (datum.label)"
"""Vega expression that equals `page_title`.

`datum.label` is in parentheses, because Vega-Lite replaces it by an expression.
"""
_GUIDES = {"x": "axis", "y": "axis", "row": "header", "column": "header", "facet": "header"} | dict.fromkeys(
    ("color", "fill", "stroke", "shape"), "legend"
)
"""Channels of a chart, each with the guide that shows its values: axis, header or legend."""


def _name_pages(spec: Any) -> None:
    """Label pages on axes, headers and legends with the titles of `page_title`; names of pages in the rows stay."""
    for key, value in spec.items() if isinstance(spec, dict) else enumerate(spec if isinstance(spec, list) else ()):
        guide = _GUIDES.get(key) if isinstance(key, str) else None
        if guide and isinstance(value, dict) and value.get("field") == "page":
            shown = value.setdefault(guide, {})
            if shown is not None:
                shown.setdefault("labelExpr", _PAGE_LABEL)
        else:
            _name_pages(value)


_OWN_LEGENDS = {"scale": dict.fromkeys(("color", "shape", "strokeDash"), "independent")}
"""Vega-Lite option that keeps the legend of a plot next to the plot, below the title."""

_CONFIG = alt.Config(
    font=FONT,
    background="white",
    title=alt.TitleConfig(anchor="start", frame="bounds"),
    view=alt.ViewConfig(stroke=None),
    axis=alt.AxisConfig(
        labelFontSize=TEXT_PX,
        titleFontSize=TEXT_PX,
        titleFontWeight="normal",
        labelColor=INK,
        titleColor=INK,
        gridColor=RULE,
        gridWidth=0.6,
        domainColor=MUTED,
        tickColor=MUTED,
        tickSize=4,
    ),
    legend=alt.LegendConfig(labelFontSize=TEXT_PX, labelColor=INK, offset=6),
    header=alt.HeaderConfig(labelFontSize=TEXT_PX, labelColor=INK, labelFontWeight="bold", labelPadding=4),
)


def _wrapped(paragraphs: Sequence[str], width: int, font_px: float) -> list[str]:
    letters = int(width / (font_px * 0.5))
    return [line for paragraph in paragraphs for line in textwrap.wrap(paragraph, letters)]
