"""Rows by which a claim is judged: for each series of a study, its table, a filter of rows, and an expression.

    sources = {"DoQ exchange": Source("dns_exchanges", pl.col("protocol") == "DoQ", pl.col("total_ms"))}

The filter is a polars expression on the columns of the Parquet files, so it can be printed and used without crosslayer.
"""

from __future__ import annotations

import ast
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
"""Filter that selects the valid rows of `dns_exchanges`, as `metrics.exchanges` does, but with any `resumption`."""

VALID_LOAD = (
    pl.col("error").is_null()
    & (pl.col("role") == Role.MEASURED)
    & ((pl.col("h3") != "0-rtt") | pl.col("early_data_accepted").fill_null(False))
)
"""Filter that selects the valid rows of `page_loads`, whatever their `condition`.

It requires a server log: without a log, it selects no load over H3 0-RTT.
"""


@dataclass(frozen=True, slots=True)
class Source:
    """Where the values of a series, or of one summand of a series, come from: a table, a filter and an expression."""

    table: str
    rows: pl.Expr
    """Filter on the table's columns."""
    value: pl.Expr
    """Expression on the table's columns, in the unit of the series."""


def with_columns(values: Mapping[str, Any]) -> pl.Expr:
    """Filter that selects the rows whose columns have these values, compared as text."""
    return reduce(operator.and_, (pl.col(column) == str(value) for column, value in values.items()))


Sources = Mapping[str, tuple[Source, ...]]
"""Sources by series. If a series has several sources, its value in a round is the sum of their values in this round."""


@dataclass(frozen=True, slots=True)
class RowsOfClaim:
    """The rows of one table by which a claim is judged."""

    table: str
    rows: pl.Expr
    series: tuple[str, ...]
    """Names of the claim's series that come from this table."""

    def code(self, folder: str, left_out: pl.DataFrame) -> str:
        """Python code that reads the rows from a dataset folder, without the rounds in `left_out`."""
        code = f'pl.scan_parquet("{folder}/{self.table}/**/*.parquet").filter(\n{_lines(written(self.rows))}\n)'
        if left_out.is_empty():
            return code
        rounds = ",\n".join(f'    "{name}": {values.to_list()!r}' for name, values in left_out.to_dict().items())
        return (
            f"{code}.join(  # without rounds in which the machine was busy\n"
            f'    pl.LazyFrame({{\n{rounds},\n}}), on={left_out.columns!r}, how="anti", maintain_order="left"\n)'
        )


def observed_from(sources: Mapping[str, Source], tables: Mapping[str, pl.LazyFrame], rtts: pl.LazyFrame) -> Observed:
    """Construct the observations of a campaign from its tables; each series has one source.

    Parameters
    ----------
    sources
        Source by series.
    tables
        Table by name, for all tables of the sources.
    rtts
        Links with their nominal RTTs, ms, from `metrics.nominal_rtts`.
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
        Each series with the links over which it was pooled, from `Observed.asked`.
    sources
        Sources of the study.
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
"""Replacements that turn the text of a polars expression into Python code."""


def written(expression: pl.Expr) -> str:
    """A filter as Python code."""
    with pl.Config(fmt_table_cell_list_len=-1):  # otherwise a list of more than three values is shortened
        text = str(expression)
    for pattern, replacement in _AS_PYTHON:
        text = re.sub(pattern, replacement, text)
    return text


def _lines(expression: str) -> str:
    """Python code of a filter without superfluous parentheses.

    Each condition is on its own line. If there are several alternatives (`|`), each is in parentheses.
    """
    alternatives = []
    for alternative in _operands(ast.parse(expression, mode="eval").body, ast.BitOr):
        conditions = []
        for condition in _operands(alternative, ast.BitAnd):
            text = ast.unparse(condition)
            conditions.append(f"({text})" if isinstance(condition, (ast.Compare, ast.BinOp)) else text)
        alternatives.append(conditions)
    if len(alternatives) == 1:
        return "    " + "\n    & ".join(alternatives[0])
    return "    " + "\n    | ".join("(\n        " + "\n        & ".join(each) + "\n    )" for each in alternatives)


def _operands(node: ast.expr, operation: type[ast.operator]) -> list[ast.expr]:
    """Operands of a chain of one operation, from left to right."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, operation):
        return [*_operands(node.left, operation), *_operands(node.right, operation)]
    return [node]


def _different(expressions: list[pl.Expr]) -> list[pl.Expr]:
    return list({str(expression): expression for expression in expressions}.values())
