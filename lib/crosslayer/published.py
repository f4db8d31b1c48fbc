"""Values of the papers (`data/published`) as frames, for comparison in figures and claims."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

import polars as pl

from crosslayer import resources
from crosslayer.errors import CrosslayerError


class PublishedError(CrosslayerError):
    """The published values cannot be read."""


@dataclass(frozen=True, slots=True)
class Published:
    """Published values: a frame for each CSV file that figures and claims use.

    `data/published/README.md` describes the sources of the values and their accuracy.
    """

    curves: pl.DataFrame
    """CDFs of TNSM24 Figs. 5, 6, 9 and 12: `x` (in `unit`) and `cdf` of each vertex, by figure, link, page, series."""
    quantiles: pl.DataFrame
    """Quantiles (`min`, `p1` to `p99`, `max`, in `unit`) of CDFs: of those in `curves`, and of others.

    The others are in no published figure; their column `figure` is empty.
    """
    points: pl.DataFrame
    """Claims about one point of a distribution: quantile level `cdf`, value `x` in `unit`, by `claim_id`."""
    heatmap: pl.DataFrame
    """TNSM24 Fig. 8: median relative PLT increase, percent, by link, page and series."""
    absolute_plt: pl.DataFrame
    """Quantiles of TNSM24 Figs. 10 and 11, ms, by figure, page, link and series."""
    links: pl.DataFrame
    """TNSM24 Table II: `rtt_ms`, `down_mbit`, `up_mbit` of each link."""
    sizes: pl.DataFrame
    """IMC22 Table 1: quantiles over the resolvers of the bytes of IP payload, by series and part of the exchange."""
    claims: pl.DataFrame
    """All claims, every column as text: `paper`, `claim_id`, `value`, `unit`, `kind` and more."""


def find_published_folder() -> Path:
    """Folder of the published values; `resources.ResourceError` if there is none."""
    return resources.locate("published").path


def load(folder: Path | None = None) -> Published:
    """Read the published values.

    Parameters
    ----------
    folder
        Folder with the CSV files; by default the result of `find_published_folder`.

    Raises
    ------
    PublishedError
        If a file cannot be read; the error names the file.
    """
    folder = folder or find_published_folder()
    return Published(**{field.name: _table(folder / f"{field.name}.csv") for field in fields(Published)})


def _table(path: Path) -> pl.DataFrame:
    try:
        # Claims are read as text, because not all values are numbers.
        frame = pl.read_csv(path, infer_schema=path.stem != "claims", infer_schema_length=None)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise PublishedError(
            f"cannot be read ({error})",
            where=str(path),
            next_step="Work in a checkout, or set CROSSLAYER_PUBLISHED to a copy of its data/published.",
        ) from error
    return frame.with_columns(pl.col(pl.String).fill_null(""))
