"""Write figures and the verdicts on claims to files, and read these files."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from crosslayer import claims
from crosslayer.campaign.dataset import Dataset, dataset_sha256
from crosslayer.errors import CrosslayerError
from crosslayer.figures import Drawing, Figure, FigureError, clocks
from crosslayer.figures.hosts import HOSTS
from crosslayer.studies import STUDIES, owners
from crosslayer.study import Study

_KEY = "crosslayer"
_CLAIMS = "claims.parquet"
_OTHERS = "claims-other-campaigns.parquet"
ANSWER = "answer.json"
VERDICT_FILES = (_CLAIMS, "claims.md", _OTHERS, ANSWER)
"""Files of the verdicts of a campaign. The last two are written only if they have content."""
_COLUMNS_OF_OTHERS = {"compared_with": pl.String, "campaign": pl.String, "clock": pl.String} | claims.COLUMNS
_PICTURES = ("svg", "png", "csv")
ENDINGS = (*_PICTURES, "json")
"""File name endings of a figure's files."""


class ReportError(CrosslayerError):
    """Figures, claims or pages that cannot be written or read."""


@dataclass(frozen=True, slots=True)
class Saved:
    """A figure that was read from a folder."""

    study: Study
    figure: Figure
    spec: dict[str, Any]
    """Vega-Lite specification with the metadata that `save` adds."""
    svg: str
    """The picture; empty if the figure could not be drawn."""

    @property
    def campaign(self) -> str:
        """Campaign of the figure."""
        return self._kept("campaign")

    @property
    def verdict(self) -> str:
        """Answer to the question of the figure; empty if it has none."""
        return self._kept("verdict")

    @property
    def verdict_virtual(self) -> str:
        """The answer of a second campaign, in virtual time, to the figure's question; empty without such an answer."""
        return self._kept("verdict_virtual")

    @property
    def error(self) -> str:
        """Reason why the figure could not be drawn; empty if it was drawn."""
        return self._kept("error")

    def _kept(self, name: str) -> str:
        return str(self.spec["usermeta"][_KEY].get(name, ""))


def save(drawing: Drawing, folder: Path, **about: str) -> dict[str, Path]:
    """Write a figure as SVG, PNG (two pixels per CSS pixel), Vega-Lite JSON, and its rows as CSV.

    Parameters
    ----------
    drawing
        The figure.
    folder
        Folder for the files; created if it is missing.
    about
        Metadata, stored in the JSON under `usermeta.crosslayer` with name, caption and verdict. `campaign` is also the
        last column of the CSV, so copied rows name their campaign.

    Returns
    -------
    dict
        Path by ending: `svg`, `png`, `json`, `csv`.

    Raises
    ------
    ReportError
        If the folder cannot be written.
    FigureError
        If the renderer refuses the chart; no file is written.
    """
    name = drawing.figure.name
    rows = drawing.rows.with_columns(campaign=pl.lit(about["campaign"])) if "campaign" in about else drawing.rows
    about |= {"name": name, "caption": drawing.caption} | ({"verdict": drawing.verdict} if drawing.verdict else {})
    content = {
        "svg": drawing.svg().encode(),
        "png": drawing.png(),
        "json": _as_json(drawing.vega_lite() | {"usermeta": {_KEY: about}}),
        "csv": rows.write_csv().encode(),
    }
    paths = {ending: folder / f"{name}.{ending}" for ending in content}
    for ending, path in paths.items():
        write(path, content[ending])
    return paths


def check_folder(dataset: Dataset, folder: Path) -> None:
    """Raise an error if the report of a dataset must not be written to a folder.

    Raises
    ------
    ReportError
        If the folder is a file, or its subfolder for the study contains a dataset.
    """
    for path in (folder, made := folder / dataset.campaign.study):
        if path.exists() and not path.is_dir():
            raise ReportError("is a file, not a folder", where=str(path), next_step="Choose another folder with --out.")
    if (made / "campaign.json").exists():
        raise ReportError(
            "holds a dataset, which figures would overwrite",
            where=str(made),
            next_step="Choose another folder with --out.",
        )


def save_drawing(drawing: Drawing, dataset: Dataset, folder: Path, **about: str) -> dict[str, Path]:
    """Save a figure in the folder of its study, e.g. `figures/coalescing/`; see `save`."""
    return save(drawing, folder / dataset.campaign.study, **made_from(dataset), **about)


def made_from(dataset: Dataset) -> dict[str, str]:
    """Metadata that identifies the dataset of a figure: `campaign` and `dataset_sha256`."""
    return {"campaign": dataset.campaign.campaign, "dataset_sha256": dataset_sha256(dataset.folder)}


def save_failure(figure: Figure, error: FigureError, dataset: Dataset, folder: Path) -> None:
    """Write to a figure's JSON why it cannot be drawn, and remove SVG, PNG and CSV that an earlier run wrote for it."""
    path = folder / dataset.campaign.study / f"{figure.name}.json"
    about = {"name": figure.name, "campaign": dataset.campaign.campaign, "error": str(error)}
    write(path, _as_json({"usermeta": {_KEY: about}}))
    for ending in _PICTURES:
        path.with_suffix(f".{ending}").unlink(missing_ok=True)


def saved_figures(folder: Path) -> list[Saved]:
    """All figures in a folder, in the order of the studies and of the figures in each study.

    Raises
    ------
    ReportError
        For a file that cannot be read.
    """
    drawn = []
    for study in STUDIES.values():
        for figure in (*study.figures, *clocks.figures(study.name, study.condition_titles), HOSTS):
            path = folder / study.name / f"{figure.name}.json"
            if not path.is_file():
                continue
            try:
                saved = Saved(study, figure, json.loads(path.read_text(encoding="utf-8")), "")
                if not saved.error:
                    svg = path.with_suffix(".svg").read_text(encoding="utf-8")
                    saved = Saved(study, figure, saved.spec, svg)
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise ReportError(
                    f"cannot be read ({error})", where=str(path), next_step="Draw the figure again."
                ) from error
            drawn.append(saved)
    return drawn


def save_claims(verdicts: pl.DataFrame, dataset: Dataset, folder: Path) -> list[Path]:
    """Write `claims.parquet` and `claims.md` to the folder of the study's figures, e.g. `figures/coalescing/`.

    Parameters
    ----------
    verdicts
        From `crosslayer.claims.check`. The Parquet file has an additional first column `campaign`.
    dataset
        Dataset that was checked.
    folder
        E.g. `figures`; created if it is missing.

    Returns
    -------
    list of Path
        The two files.

    Raises
    ------
    ReportError
        If the folder cannot be written, or `check_folder` refuses it.
    """
    check_folder(dataset, folder)
    table = io.BytesIO()
    verdicts.select(pl.lit(dataset.campaign.campaign).alias("campaign"), pl.all()).write_parquet(table)
    path = folder / dataset.campaign.study / _CLAIMS
    content = {
        path: table.getvalue(),
        path.with_suffix(".md"): claims.to_markdown(verdicts, caption=dataset.caption).encode(),
    }
    for path, data in content.items():
        write(path, data)
    return list(content)


def save_other_verdicts(of_others: Sequence[tuple[Dataset, pl.DataFrame]], dataset: Dataset, folder: Path) -> None:
    """Write the verdicts of other campaigns of the study, as `claims-other-campaigns.parquet`.

    Its columns are `compared_with` (campaign of `dataset`), `campaign` and `clock` of the other campaign, and those of
    `crosslayer.claims.check`.

    Parameters
    ----------
    of_others
        Other campaigns with their verdicts. Claims that are not measured are omitted; if no row remains, the file is
        removed.
    dataset
        The campaign with which the others are compared.
    folder
        As for `save_claims`.

    Raises
    ------
    ReportError
        If the folder cannot be written.
    """
    mine = pl.lit(dataset.campaign.campaign).alias("compared_with")
    parts = []
    for other, verdicts in of_others:
        whose = {"campaign": other.campaign.campaign, "clock": other.campaign.clock}
        measured = verdicts.filter(pl.col("verdict") != claims.Verdict.NOT_MEASURED)
        parts.append(measured.select(mine, *(pl.lit(value).alias(name) for name, value in whose.items()), pl.all()))
    path = folder / dataset.campaign.study / _OTHERS
    kept = pl.concat([pl.DataFrame(schema=_COLUMNS_OF_OTHERS), *parts])
    if kept.is_empty():
        path.unlink(missing_ok=True)
        return
    table = io.BytesIO()
    kept.write_parquet(table)
    write(path, table.getvalue())


def saved_other_verdicts(verdicts: pl.DataFrame, folder: Path) -> pl.DataFrame:
    """The verdicts of other campaigns on the claims in `verdicts`, for all studies in the folder.

    `verdicts` is a result of `saved_claims`. Other campaigns are those whose verdicts `save_other_verdicts` wrote.

    Returns
    -------
    polars.DataFrame
        Columns of `save_other_verdicts`, in the order of the claims; no rows if there is no other campaign.

    Raises
    ------
    ReportError
        For a file that cannot be read.
    """
    tables = [_read(folder / name / _OTHERS, _COLUMNS_OF_OTHERS) for name in STUDIES]
    others = pl.concat([pl.DataFrame(schema=_COLUMNS_OF_OTHERS), *(table for table in tables if table is not None)])
    shown = verdicts.select("claim_id", compared_with="campaign")
    return shown.join(others, on=["claim_id", "compared_with"], maintain_order="left_right").select(*_COLUMNS_OF_OTHERS)


def saved_claims(dataset: Dataset, folder: Path) -> pl.DataFrame | None:
    """The verdicts on all claims from the tables of a folder: the dataset's table, and the tables of other studies.

    If another study checks a claim, the verdict of that study's campaign replaces the dataset's verdict.

    Returns
    -------
    polars.DataFrame or None
        Columns `campaign` and those of `crosslayer.claims.check`, rows in the order of the claims. None if the folder
        has no table of the dataset's campaign, or if another version of crosslayer wrote it with other columns.

    Raises
    ------
    ReportError
        For a file that cannot be read.
    """
    own = _read_claims(folder / dataset.campaign.study / _CLAIMS)
    if own is None or (own["campaign"] != dataset.campaign.campaign).any():
        return None
    order, of_claim = own.select("claim_id"), owners()
    for name in STUDIES:
        if name == dataset.campaign.study or (other := _read_claims(folder / name / _CLAIMS)) is None:
            continue
        checked = other.filter(pl.col("claim_id").is_in([claim for claim, owner in of_claim.items() if owner == name]))
        own = pl.concat([own.join(checked, on="claim_id", how="anti"), checked])
    # Claims that other studies make themselves come last.
    order = pl.concat([order, own.join(order, on="claim_id", how="anti").select("claim_id")])
    return order.join(own, on="claim_id", maintain_order="left").select(own.columns)


def study_verdicts(study: Study, folder: Path) -> pl.DataFrame | None:
    """Saved verdicts on the claims that a study checks, from the study's table in a folder.

    The columns are those of `saved_claims`. None if the folder has no such table with these columns; `ReportError` if
    the table cannot be read.
    """
    if study.claims is None or (verdicts := _read_claims(folder / study.name / _CLAIMS)) is None:
        return None
    return verdicts.filter(pl.col("claim_id").is_in(list(study.claims.checks)))


def _read_claims(path: Path) -> pl.DataFrame | None:
    return _read(path, {"campaign": pl.String} | claims.COLUMNS)


def _read(path: Path, columns: Mapping[str, Any]) -> pl.DataFrame | None:
    """Read a saved table; None if the file is missing or the columns of the table are not `columns`."""
    if not path.is_file():
        return None
    try:
        table = pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise ReportError(
            f"cannot be read ({error})", where=str(path), next_step="Check the claims again: `crosslayer report`."
        ) from error
    return table if dict(table.schema) == columns else None


def write(path: Path, content: bytes) -> None:
    """Write `content` to a temporary file and rename it to `path`, so a reader never sees an incomplete file.

    Raises
    ------
    ReportError
        If the folder cannot be created or written.
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
            next_step="Free disk space, make the folder writable, or choose another folder.",
        ) from error


def _as_json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
