"""Objects that a notebook displays: a figure with its caption, a table, a sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import altair as alt
import polars as pl
from IPython.display import Image, Markdown, display

from crosslayer import report
from crosslayer.campaign.dataset import Dataset
from crosslayer.figures import Drawing, Figure, FigureError
from crosslayer.figures.style import COLUMN_WIDTH


class AnswerText(Markdown):
    """Markdown text for display. If the text was made from a frame, `rows` is this frame."""

    def __init__(self, text: str, rows: pl.DataFrame | None = None) -> None:
        super().__init__(text)  # type: ignore[no-untyped-call]
        self.rows = rows


class FigureView:
    """A figure of a dataset for display: with tooltips in JupyterLab, as a picture on GitHub."""

    def __init__(self, figure: Figure, dataset: Dataset, drawing: Drawing | FigureError) -> None:
        self.figure = figure
        self._dataset = dataset
        self._drawing = drawing

    @property
    def error(self) -> str:
        """Reason why the figure cannot be drawn; empty if it can.

        If it cannot, the properties `rows`, `table`, `chart`, `caption` and `verdict` raise `FigureError`.
        """
        return str(self._drawing) if isinstance(self._drawing, FigureError) else ""

    @property
    def rows(self) -> pl.DataFrame:
        """Rows that the figure draws."""
        return self._drawn.rows

    @property
    def table(self) -> pl.DataFrame | None:
        """Table of the figure's numbers; None if the figure has no table."""
        return self._drawn.table

    @property
    def chart(self) -> alt.VConcatChart:
        """The figure as an Altair chart."""
        return self._drawn.chart

    @property
    def caption(self) -> str:
        """Caption of the figure, including campaign and host."""
        return self._drawn.caption

    @property
    def verdict(self) -> str | None:
        """Answer to the study's question; None if the figure does not answer it."""
        return self._drawn.verdict

    def save(self, folder: str | Path) -> dict[str, Path]:
        """Write the figure as SVG, PNG, Vega-Lite JSON and CSV into a folder.

        Returns the path of each file; the keys are `svg`, `png`, `json` and `csv`.
        """
        return report.save(self._drawn, Path(folder), **report.made_from(self._dataset))

    @property
    def _drawn(self) -> Drawing:
        if isinstance(self._drawing, FigureError):
            raise self._drawing
        return self._drawing

    def _ipython_display_(self) -> None:
        if self.error:
            display(failure(self.error))
            return
        width = {"image/png": {"width": width_px(self.figure)}}
        display(self._drawn._repr_mimebundle_(), raw=True, metadata=width)
        display(caption(self.figure))


def show_saved(png: Path, figure: Figure) -> None:
    """Display a figure's saved picture and below it the caption. The picture also has notes, campaign and host."""
    display(Image(png.read_bytes(), width=width_px(figure), alt=figure.heading), caption(figure))


def caption(figure: Figure) -> AnswerText:
    """Text below a figure: its heading and its caption."""
    return AnswerText(f"**{figure.heading}.** {figure.caption}")


def failure(error: str) -> AnswerText:
    """Text in place of a figure that could not be drawn."""
    return AnswerText(f"> **This figure could not be drawn.** {error}")


def width_px(figure: Figure) -> int:
    """Width at which a figure's picture is displayed, px."""
    return 520 if figure.width == COLUMN_WIDTH else 900


def top(dataset: Dataset, notice: str) -> str:
    """Markdown text that describes the analysed campaign, after the notice if there is one."""
    campaign = dataset.campaign
    lines = [f"> **Note.** {notice}", ""] if notice else []
    lines.append(
        f"{dataset.caption} Links: {', '.join(campaign.links)}. Pages: {', '.join(campaign.pages)}. Measured "
        f"{campaign.started} to {campaign.ended or 'now: not finished'}."
    )
    return "\n".join(lines)


def table(rows: pl.DataFrame) -> AnswerText:
    """A Markdown table; floating-point numbers have four significant digits, missing values are `–`."""

    def cell(value: Any) -> str:
        if value is None:
            return "–"
        return f"{value:.4g}" if isinstance(value, float) else str(value)

    right = {name for name, kind in rows.schema.items() if kind.is_numeric()}
    head = " | ".join(name.replace("_", " ") for name in rows.columns)
    rule = " | ".join("---:" if name in right else "---" for name in rows.columns)
    body = [" | ".join(cell(value) for value in row) for row in rows.iter_rows()]
    return AnswerText("\n".join(f"| {line} |" for line in (head, rule, *body)), rows)
