"""Reading the published values (`data/published`), so that figures and claims get them as frames."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from crosslayer import places
from crosslayer.errors import CrosslayerError
from crosslayer.figures.inputs import Published


class PublishedError(CrosslayerError):
    """The published values cannot be read."""


def find_reference_folder() -> Path:
    """Folder of the published values; `places.PlaceError` where there is none."""
    return places.find("published").path


def load(folder: Path | None = None) -> Published:
    """Read the published values.

    Parameters
    ----------
    folder
        `data/published` of the checkout by default; its README describes the tables.

    Raises
    ------
    PublishedError
        Naming the file that cannot be read.
    """
    folder = folder or find_reference_folder()

    def table(name: str, *, text_only: bool = False) -> pl.DataFrame:
        path = folder / f"{name}.csv"
        try:
            return pl.read_csv(path, infer_schema=not text_only, infer_schema_length=None).with_columns(
                pl.col(pl.String).fill_null("")
            )
        except (OSError, pl.exceptions.PolarsError) as error:
            raise PublishedError(
                f"cannot be read ({error})",
                where=str(path),
                next_step="Work in a checkout, or set CROSSLAYER_PUBLISHED to a folder like its data/published.",
            ) from error

    return Published(
        curves=table("curves"),
        quantiles=table("quantiles"),
        points=table("points"),
        heatmap=table("heatmap"),
        absolute_plt=table("absolute_plt"),
        links=table("links"),
        sizes=table("sizes"),
        claims=table("claims", text_only=True),
    )
