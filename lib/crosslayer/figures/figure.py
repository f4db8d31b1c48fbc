"""Defines and draws figures: makes rows from tables, a chart from the rows, and SVG, PNG and Vega-Lite of the chart."""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import altair as alt
import polars as pl
import polars.selectors as cs
import vl_convert
from PIL import Image

from crosslayer.errors import CrosslayerError
from crosslayer.figures import cdf
from crosslayer.figures.style import COLUMN_WIDTH, FONT_FILES, FONT_WEIGHTS, AnyChart, framed, woff

_DECIMALS = 6
"""Decimal places of the rows' values (ms, round-trips, parts of 1), finer than the resolution of any clock."""
MAX_ROWS = 5000
"""Maximum number of rows that a chart may embed."""

PNG_SCALE = 2.0
"""Pixels of a PNG per CSS pixel."""

_PALETTE_COLOURS = 64
"""Number of colours of a PNG in a notebook. A chart has about twelve, and their blends with the background."""

_IN_JUPYTERLAB = "v5"
"""Major version of the Vega-Lite in JupyterLab. It is older than `vegalite_version`, but draws our charts correctly."""


class FigureError(CrosslayerError):
    """A figure that cannot be drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure of a study."""

    name: str
    """Name of the figure's files, without ending."""
    title: str
    paper_figure: str = ""
    """Corresponding figure or table of the paper, e.g. `Fig. 5`; empty if there is none."""
    notebook: str
    """Name of the notebook that explains the figure."""
    caption: str
    """Caption without the provenance, which `draw` adds."""
    note: str = ""
    """Meaning of marks and overlays, one or two sentences under the plot."""
    data: Callable[[Any], pl.DataFrame]
    """Makes the rows of the chart. Its argument is an `Inputs`, a `BothClocks`, or the results of a benchmark."""
    chart: Callable[[pl.DataFrame], AnyChart]
    """Draws the rows as a chart."""
    table: tuple[str, ...] | Callable[[pl.DataFrame], pl.DataFrame] | None = None
    """Table of the figure's numbers: names of columns of the rows, or a function that makes a table of the rows."""
    verdict: Callable[[pl.DataFrame], str] | None = None
    """Answers the question of the study in sentences, from the rows."""
    lacks: Callable[[Any], str] | None = None
    """Returns a sentence on missing data; empty if nothing is missing. It takes the argument of `data`."""
    width: int = COLUMN_WIDTH
    counted: str = "measured"
    """Value of the column `source` in the rows whose numbers of observations the figure states."""
    whole: bool = False
    """Whether a CDF figure shows whole curves. Otherwise its axis ends at the 99th percentile, with a note."""

    @property
    def heading(self) -> str:
        """Title; the name of the paper's figure, if there is one, precedes it."""
        return f"{self.paper_figure}. {self.title}" if self.paper_figure else self.title


@dataclass(frozen=True)
class Drawing:
    """A figure drawn from one dataset. Notebooks display it."""

    figure: Figure
    rows: pl.DataFrame
    """Rows of the chart."""
    caption: str
    """Caption with provenance."""
    table: pl.DataFrame | None
    """Table of the figure's numbers; None if the figure has no table."""
    verdict: str | None
    """Answer to the question of the study; None if the figure has no verdict."""
    _spec: dict[str, Any] = field(repr=False)

    @cached_property
    def chart(self) -> alt.VConcatChart:
        """The chart as an object of Altair, which the caller may change."""
        return alt.VConcatChart.from_dict(self._spec, validate=False)

    def vega_lite(self) -> dict[str, Any]:
        """The chart as Vega-Lite with embedded rows. The outermost dict is a copy, so callers may add keys to it."""
        return dict(self._spec)

    def svg(self) -> str:
        """The chart as SVG without scripts.

        Raises
        ------
        FigureError
            If the renderer refuses the chart.
        """
        return self._svg

    def png(self) -> bytes:
        """The chart as PNG with two pixels per CSS pixel; raises as `svg` does."""
        return self._png

    @cached_property
    def _svg(self) -> str:
        text = json.dumps(self._spec, ensure_ascii=False, separators=(",", ":"))
        _register_fonts()
        try:
            return _with_fonts(_clips_from_0(vl_convert.vegalite_to_svg(text, vl_version=vegalite_version())))
        except ValueError as error:
            raise _cannot(self.figure, error) from error

    @cached_property
    def _png(self) -> bytes:
        picture: bytes = vl_convert.svg_to_png(self.svg(), scale=PNG_SCALE)
        return picture

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """Formats for notebooks: a chart with tooltips in JupyterLab, a picture on GitHub. Neither needs a network."""
        schema = f"https://vega.github.io/schema/vega-lite/{_IN_JUPYTERLAB}.json"
        return {
            f"application/vnd.vegalite.{_IN_JUPYTERLAB}+json": _with_csv(self._spec) | {"$schema": schema},
            "image/png": base64.b64encode(_with_palette(self._png)).decode(),
            "text/plain": f"{self.figure.heading}. {self.caption}",
        }


def _with_palette(png: bytes) -> bytes:
    """Convert a PNG to a PNG with a colour palette, so that notebooks stay small.

    The result has an eighth of the size.
    """
    palette = io.BytesIO()
    with Image.open(io.BytesIO(png)) as picture:
        picture.convert("RGB").quantize(_PALETTE_COLOURS).save(palette, "PNG", optimize=True)
    return palette.getvalue()


def _with_csv(spec: dict[str, Any]) -> dict[str, Any]:
    """Copy of a chart whose rows are CSV instead of JSON objects.

    The copy has half the size, because CSV does not repeat the names of the columns in each row.
    """
    formats: dict[str, dict[str, Any]] = {}
    datasets = dict(spec.get("datasets", {}))
    for name, rows in datasets.items():
        table = pl.DataFrame(rows, infer_schema_length=None)
        if (parsers := _csv_parsers(table)) is not None:
            formats[name] = {"type": "csv", "parse": parsers}
            datasets[name] = table.write_csv()

    def formatted(part: Any) -> Any:
        if isinstance(part, list):
            return [formatted(item) for item in part]
        if not isinstance(part, dict):
            return part
        copy = {key: formatted(value) for key, value in part.items()}
        if (data := part.get("data")) and isinstance(data, dict) and data.get("name") in formats:
            copy["data"] = data | {"format": formats[data["name"]]}
        return copy

    charts = {key: value for key, value in spec.items() if key != "datasets"}
    return {**formatted(charts), "datasets": datasets}


def _csv_parsers(table: pl.DataFrame) -> dict[str, str] | None:
    """Vega-Lite's parsers for the columns of the CSV; None if Vega-Lite would read other values, or without rows.

    Vega-Lite cannot distinguish an empty text from a missing value in CSV. In a text column with the parser `string`,
    it reads both as missing values. In a text column without a parser, it reads both as empty texts.
    """
    parsers = {}
    for column in table:
        if column.dtype.is_numeric():
            parsers[column.name] = "number"
        elif column.dtype == pl.Boolean:
            parsers[column.name] = "boolean"
        elif column.dtype not in (pl.String, pl.Null):
            return None
        elif column.null_count():
            if "" in column:
                return None
            parsers[column.name] = "string"
    return parsers if table.height else None


def draw(figure: Figure, source: Any, provenance: str) -> Drawing:
    """Draw a figure from its data.

    Parameters
    ----------
    figure
        Figure to draw, e.g. one of a study.
    source
        Argument of the figure's `data`: `Inputs`, `BothClocks`, or the results of a benchmark.
    provenance
        Campaign, rounds, backend and host, from `Dataset.caption`.

    Raises
    ------
    FigureError
        If there are more rows than a chart may embed, or the data cannot be drawn; the message has the cause.
    """
    try:
        rows = _rounded(figure.data(source))
        if rows.height > MAX_ROWS:
            raise FigureError(
                f"{rows.height} rows, more than the {MAX_ROWS} a chart may embed",
                where=figure.name,
                next_step="Measure fewer links or pages in one campaign, or draw the links separately.",
            )
        tail = cdf.tail_note(rows) if set(cdf.SCHEMA) <= set(rows.columns) and not figure.whole else ""
        lacks = figure.lacks(source) if figure.lacks else ""
        notes = [figure.note, _samples(rows, figure.counted), tail, lacks, provenance]
        return Drawing(
            figure,
            rows,
            caption=" ".join(part for part in (figure.caption, figure.note, lacks, provenance) if part),
            table=rows.select(figure.table) if isinstance(figure.table, tuple) else figure.table and figure.table(rows),
            verdict=figure.verdict(rows) if figure.verdict else None,
            _spec=framed(figure.chart(rows), figure.heading, notes, figure.width),
        )
    except FigureError:
        raise
    except Exception as error:  # bad data of one figure must not stop the others
        raise _cannot(figure, error) from error


def _rounded(rows: pl.DataFrame) -> pl.DataFrame:
    """Round the rows, because the last digits of sums differ between processors and libraries."""
    rounded = cs.float().round(_DECIMALS)
    return rows.with_columns(pl.when(rounded == 0).then(0.0).otherwise(rounded).name.keep())  # also turns -0 into 0


def _cannot(figure: Figure, error: Exception) -> FigureError:
    cause = str(error).partition("\n")[0]
    return FigureError(
        f"cannot be drawn ({type(error).__name__}: {cause})",
        where=figure.name,
        next_step="Check its rows in the dataset: they are damaged, or of another study.",
    )


def _samples(rows: pl.DataFrame, source: str) -> str:
    """Sentence with the least and greatest `n` of a source's rows, e.g. `n = 20 to 40.`; empty without such rows."""
    if "n" not in rows.columns or "source" not in rows.columns:
        return ""
    counts = rows.filter(pl.col("source") == source)["n"].drop_nulls().sort().to_list()
    if not counts:
        return ""
    low, high = counts[0], counts[-1]
    return f"n = {low}." if low == high else f"n = {low} to {high}."


def vegalite_version() -> str:
    """Version of Vega-Lite for which the charts are made, e.g. 6.4."""
    return ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])


@cache
def _register_fonts() -> None:
    """Register our font with the renderer, once per process."""
    vl_convert.register_font_directory(str(FONT_FILES))


def _with_fonts(svg: str) -> str:
    """Embed the fonts in an SVG, because a browser without them would use wider letters."""
    faces = _font_face("Regular") + (_font_face("Bold") if 'font-weight="bold"' in svg else "")
    start = svg.index(">") + 1
    return f"{svg[:start]}<style>{faces}</style>{svg[start:]}"


def _font_face(name: str) -> str:
    source = f"url(data:font/woff;base64,{woff(name)})"
    return f"@font-face{{font-family:'Crosslayer Sans';font-weight:{FONT_WEIGHTS[name]};src:{source}}}"


def _clips_from_0(svg: str) -> str:
    """Number the clip paths of an SVG from 0, so that equal figures give equal files.

    The renderer itself continues the numbers of the previous SVG.
    """
    numbers: dict[str, int] = {}
    return re.sub(r"\bclip(\d+)\b", lambda match: f"clip{numbers.setdefault(match[1], len(numbers))}", svg)
