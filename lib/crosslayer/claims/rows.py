"""Rows behind a claim: which table, which rows of it and which value each series of a study is made of.

    sources = {"DoQ exchange": Source("dns_exchanges", pl.col("protocol") == "DoQ", pl.col("total_ms"))}

The filter is a polars expression on the columns of the Parquet files, so that it can be written out and used alone.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import polars as pl

from crosslayer import metrics
from crosslayer.claims.data import Observed, Series
from crosslayer.vocabulary import Role

VALID_EXCHANGE = pl.col("error").is_null() & (pl.col("role") == Role.MEASURED)
"""Rows of `dns_exchanges` that count (`metrics.exchanges`)."""

VALID_LOAD = (
    pl.col("error").is_null()
    & (pl.col("role") == Role.MEASURED)
    & ((pl.col("h3") != "0-rtt") | pl.col("early_data_accepted").fill_null(False))
)
"""Rows of `page_loads` that count (`metrics.page_loads`)."""


@dataclass(frozen=True, slots=True)
class Source:
    """Rows of a table and their value: one series, or one term of a sum."""

    table: str
    rows: pl.Expr
    """Condition on the table's columns for rows that count."""
    value: pl.Expr
    """In the unit of the series, of the table's columns."""


def with_columns(values: Mapping[str, Any]) -> pl.Expr:
    """Rows whose columns have these values."""
    return reduce(operator.and_, (pl.col(column) == str(value) for column, value in values.items()))


Sources = Mapping[str, tuple[Source, ...]]
"""Sources by series. Several sources of one series are added within each round."""


@dataclass(frozen=True, slots=True)
class RowsOfClaim:
    """Rows of one table that a claim is judged by."""

    table: str
    rows: pl.Expr
    series: tuple[str, ...]
    """Name of the series in the claim."""

    def code(self, folder: str) -> str:
        """Python that reads them from a dataset folder."""
        return f'pl.scan_parquet("{folder}/{self.table}/**/*.parquet").filter(\n    {written(self.rows)}\n)'


def observed_from(sources: Mapping[str, Source], tables: Mapping[str, pl.LazyFrame], rtts: pl.LazyFrame) -> Observed:
    """A campaign whose every series is rows of one table.

    Parameters
    ----------
    sources
        By series.
    tables
        By name, those that the sources name.
    rtts
        From `metrics.nominal_rtts`: link and its nominal RTT, ms.
    """
    rows = [
        tables[source.table]
        .filter(source.rows)
        .select(*metrics.ROUND, series=pl.lit(series), value=source.value.cast(pl.Float64))
        .filter(pl.col("value").is_not_null())
        for series, source in sources.items()
    ]
    return Observed(pl.concat(rows), rtts_ms=dict(rtts.collect().iter_rows()))


def rows_of(asked: list[tuple[Series, tuple[str, ...]]], sources: Sources) -> list[RowsOfClaim]:
    """Rows of the series that a check asked for, table by table.

    Parameters
    ----------
    asked
        Series, and the links that were pooled; `Observed.asked`.
    sources
        Those of the study.
    """
    filters: dict[str, list[pl.Expr]] = {}
    names: dict[str, list[str]] = {}
    for series, links in asked:
        where = pl.col("link").is_in(sorted(links))
        if series.pages:
            where &= pl.col("page").is_in(sorted(series.pages))
        for name, _ in series.terms:
            for source in sources.get(name, ()):
                filters.setdefault(source.table, []).append(source.rows & where)
                names.setdefault(source.table, []).append(name)
    return [
        RowsOfClaim(table, reduce(operator.or_, _different(exprs)), tuple(dict.fromkeys(names[table])))
        for table, exprs in filters.items()
    ]


_AS_PYTHON = (
    (r"\.not\(\)", ".not_()"),
    (r"\.(fill_null|contains|starts_with)\(\[([^\]]*)\]\)", r".\1(\2)"),
    (r"\.is_in\(\[(\[[^\]]*\])\]\)", r".is_in(\1)"),
    (r"dyn (?:int|float): ", ""),
    (r"\bfalse\b", "False"),
    (r"\btrue\b", "True"),
    (r"\[\(", "(("),
    (r"\)\]", "))"),
    (r"\bcol\(", "pl.col("),
)
"""Replacements in the text of a polars expression that make it Python."""


def written(expression: pl.Expr) -> str:
    """A filter as Python."""
    text = str(expression)
    for pattern, replacement in _AS_PYTHON:
        text = re.sub(pattern, replacement, text)
    return text


def _different(expressions: list[pl.Expr]) -> list[pl.Expr]:
    return list({str(expression): expression for expression in expressions}.values())
