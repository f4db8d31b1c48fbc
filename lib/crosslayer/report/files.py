"""Figures and claims as files, and reading back those of a campaign."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import altair as alt
import polars as pl
import vl_convert

from crosslayer import claims
from crosslayer.campaign.dataset import Dataset
from crosslayer.errors import CrosslayerError
from crosslayer.figures import FIGURES, Drawing
from crosslayer.studies import STUDIES

PNG_SCALE = 2.0

_KEY = "crosslayer"
_CLAIMS = "claims.parquet"


class ReportError(CrosslayerError):
    """Figures, claims or their page that cannot be written or shown."""


def save(chart: alt.VConcatChart, frame: pl.DataFrame, folder: Path, name: str, **about: str) -> dict[str, Path]:
    """Write a figure as SVG, PNG (two pixels per CSS pixel), Vega-Lite JSON, and the CSV it draws.

    Parameters
    ----------
    chart, frame
        The figure and its rows.
    folder
        Made where it is missing.
    name
        File name without ending.
    about
        Kept in the JSON under `usermeta.crosslayer`: campaign, caption, verdict.

    Returns
    -------
    dict
        Path by ending: `svg`, `png`, `json`, `csv`.

    Raises
    ------
    ReportError
        Where the folder cannot be written.
    """
    spec = chart.to_dict(validate=False)  # the tests validate every figure; here it would take longer than drawing
    spec["usermeta"] = {_KEY: {"name": name} | about}
    text = json.dumps(spec, ensure_ascii=False, separators=(",", ":"))
    version = vegalite_version()
    content = {
        "svg": _clips_from_0(vl_convert.vegalite_to_svg(text, vl_version=version)).encode(),
        "png": vl_convert.vegalite_to_png(text, vl_version=version, scale=PNG_SCALE),
        "json": text.encode(),
        "csv": frame.write_csv().encode(),
    }
    paths = {ending: folder / f"{name}.{ending}" for ending in content}
    for ending, path in paths.items():
        write(path, content[ending])
    return paths


def _clips_from_0(svg: str) -> str:
    """The renderer numbers clip paths on from figure to figure; the same figure is to be the same file."""
    numbers: dict[str, int] = {}
    return re.sub(r"\bclip(\d+)\b", lambda found: f"clip{numbers.setdefault(found[1], len(numbers))}", svg)


def save_drawing(drawing: Drawing, dataset: Dataset, folder: Path) -> dict[str, Path]:
    """`save` a drawn figure in the folder of its study, e.g. `figures/coalescing/`, with its verdict if it has one."""
    verdict = drawing.figure.verdict
    return save(
        drawing.chart,
        drawing.frame,
        folder / drawing.figure.study,
        drawing.figure.name,
        campaign=dataset.campaign.campaign,
        caption=drawing.caption,
        **({"verdict": verdict(drawing.frame)} if verdict else {}),
    )


def saved_figures(folder: Path) -> dict[str, dict[str, Any]]:
    """Vega-Lite of every figure in a folder by name, in the order of the paper; `about` says whose it is.

    Raises
    ------
    ReportError
        For a file that cannot be read.
    """
    found = {}
    for name, figure in FIGURES.items():
        path = folder / figure.study / f"{name}.json"
        if not path.is_file():
            continue
        try:
            found[name] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ReportError(
                f"cannot be read ({error})", where=str(path), next_step="Draw the figure again."
            ) from error
    return found


def about(spec: dict[str, Any]) -> dict[str, str]:
    """What `save` kept of a figure: name, campaign, caption and, where it answers a question, its verdict."""
    kept: dict[str, str] = spec["usermeta"][_KEY]
    return kept


def save_claims(verdicts: pl.DataFrame, dataset: Dataset, folder: Path) -> list[Path]:
    """Write `claims.parquet` and `claims.md` beside the figures of the study, e.g. in `figures/coalescing/`.

    Parameters
    ----------
    verdicts
        From `crosslayer.claims.check`; the Parquet has the column `campaign` before theirs.
    dataset
        What was checked.
    folder
        E.g. `figures`; made where it is missing.

    Returns
    -------
    list of Path
        The two files.

    Raises
    ------
    ReportError
        Where the folder cannot be written.
    """
    table = io.BytesIO()
    verdicts.select(pl.lit(dataset.campaign.campaign).alias("campaign"), pl.all()).write_parquet(table)
    text = claims.to_markdown(verdicts, caption=dataset.caption)
    content = {_claims_path(dataset, folder): table.getvalue()}
    content[_claims_path(dataset, folder).with_suffix(".md")] = text.encode()
    for path, data in content.items():
        write(path, data)
    return list(content)


def saved_claims(dataset: Dataset, folder: Path) -> pl.DataFrame | None:
    """The verdicts in a folder: of the dataset, and of other studies there for the claims that only those check.

    Returns
    -------
    polars.DataFrame or None
        Columns `campaign` and those of `crosslayer.claims.check`, in their order; None where there is no table of this
        campaign and of this version's columns.

    Raises
    ------
    ReportError
        For a file that cannot be read.
    """
    own = _read_claims(_claims_path(dataset, folder))
    if own is None or (own["campaign"] != dataset.campaign.campaign).any():
        return None
    order = own.select("claim_id")
    for study in STUDIES.values():
        if study.name == dataset.campaign.study or study.claims is None:
            continue
        if (other := _read_claims(folder / study.name / _CLAIMS)) is None:
            continue
        checked = other.filter(pl.col("claim_id").is_in(list(study.claims.checks)))
        own = pl.concat([own.join(checked, on="claim_id", how="anti"), checked])
    return order.join(own, on="claim_id", maintain_order="left").select(own.columns)


def _read_claims(path: Path) -> pl.DataFrame | None:
    """A saved table; None where there is none of this version's columns."""
    if not path.is_file():
        return None
    try:
        table = pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise ReportError(
            f"cannot be read ({error})", where=str(path), next_step="Check the claims again: `crosslayer report`."
        ) from error
    return table if dict(table.schema) == {"campaign": pl.String} | claims.COLUMNS else None


def write(path: Path, content: bytes) -> None:
    """Write beside and put in place, so that a reader never sees half a file.

    Raises
    ------
    ReportError
        Where the folder cannot be made or written.
    """
    fresh = path.with_name(f".{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_bytes(content)
        fresh.replace(path)
    except OSError as error:
        raise ReportError(
            f"cannot be written ({error.strerror})",
            where=str(path),
            next_step="Make room or the folder writable, or choose another.",
        ) from error


def vegalite_version() -> str:
    """Vega-Lite version the charts are made for, e.g. 6.4."""
    return ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])


def _claims_path(dataset: Dataset, folder: Path) -> Path:
    return folder / dataset.campaign.study / _CLAIMS
