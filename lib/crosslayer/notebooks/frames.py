"""One duration of a campaign as a frame: one row per observation, with its condition and the RTT of its link."""

from __future__ import annotations

from difflib import get_close_matches

import polars as pl

from crosslayer.campaign.dataset import Dataset
from crosslayer.campaign.tables import TABLES
from crosslayer.metrics import nominal_rtts, page_loads
from crosslayer.notebooks.errors import NotebookError
from crosslayer.vocabulary import Role

_UNIT = "_ms"
_OF_THE_CAMPAIGN = frozenset({"campaign", "study", "role"})
"""Key columns that frames lack, because each would have the same value in all rows."""


def frame(dataset: Dataset, measure: str) -> pl.DataFrame:
    """All values of one measured duration, e.g. the PLT: one row for each successful observation.

    Observations with a role other than `measured`, e.g. priming, are left out.

    Parameters
    ----------
    dataset
        An opened campaign.
    measure
        Name of a column in ms, with or without its unit: `plt`, `total_ms`. If several tables of observations have this
        column, the name begins with the table: `dns_exchanges.total`.

    Returns
    -------
    polars.DataFrame
        Columns: round, link, link_rtt_ms (nominal), page, the columns that identify the condition (e.g. `h3`), and the
        measure in ms (`plt_ms`) and in multiples of the RTT (`plt_rtt`). Columns without any value are left out.

    Raises
    ------
    NotebookError
        If no table of the campaign has the measure, or several have it.
    """
    table, column = _chosen(dataset, measure)
    keys = [each.name for each in TABLES[table].columns if each.key]
    rows = dataset.table(table)
    if table == "page_loads":
        rows = page_loads(rows, condition=None)
    elif "role" in keys:
        rows = rows.filter(pl.col("role") == Role.MEASURED)
    rows = rows.filter(pl.col("error").is_null(), pl.col(column).is_not_null())
    rtts = nominal_rtts(dataset.table("link_checks")).rename({"nominal_rtt_ms": "link_rtt_ms"})
    joined = rows.join(rtts, on="link", how="left", maintain_order="left").select(
        "round",
        "link",
        "link_rtt_ms",
        "page",
        *(name for name in keys if name not in _OF_THE_CAMPAIGN | {"round", "link", "page"}),
        column,
        (pl.col(column) / pl.col("link_rtt_ms")).alias(column.removesuffix(_UNIT) + "_rtt"),
    )
    rows_of_measure = joined.collect(engine="streaming")
    return rows_of_measure.select(s.name for s in rows_of_measure if s.null_count() < max(1, s.len()))


def _chosen(dataset: Dataset, measure: str) -> tuple[str, str]:
    """Names of the table and the column of a measure; `NotebookError` unless there is exactly one."""
    having = {
        f"{table}.{column.name}": (table, column.name)
        for table, columns in TABLES.items()
        if columns.observed and dataset.files[table]
        for column in columns.columns
        if column.name.endswith(_UNIT) and column.stored is float
    }
    wanted = measure if measure.endswith(_UNIT) else measure + _UNIT
    matches = [key for key in having if key == wanted or key.split(".")[1] == wanted]
    if len(matches) == 1:
        return having[matches[0]]
    names = [key.split(".")[1].removesuffix(_UNIT) for key in having]
    meant = matches or get_close_matches(measure, names, n=3) or sorted(set(names))
    what = f"is in {len(matches)} tables" if matches else "is no duration of this campaign"
    raise NotebookError(what, where=measure, next_step=f"Choose one of: {', '.join(meant)}.")
