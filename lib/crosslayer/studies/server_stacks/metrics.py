"""Times of every condition with each server, and their differences. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from crosslayer import metrics
from crosslayer.studies.server_stacks.conditions import (
    DOCUMENT,
    EXCHANGES,
    FIRST_BYTE,
    LOADS,
    NAME,
    VISITS,
    VisitComparison,
)
from crosslayer.studies.server_stacks.stacks import FIRST, STACKS, labelled
from crosslayer.vocabulary import Role

TIMES = {NAME: "resolved_ms", FIRST_BYTE: "response_start_ms", DOCUMENT: "document_ms"}
"""Events of a visit, each with the column of `resolved_loads` that has the time until this event."""

_FIELDS = ("protocol", "resumption", "connections", "h3", "condition")
_BY_STACK = [*metrics.ROUND, "what", "measure", "stack"]


def columns_of(what: str, stack: str) -> dict[str, str]:
    """Columns, with their values, that identify the rows of a condition with a server."""
    if what in VISITS:
        columns = {name: str(getattr(VISITS[what], name)) for name in _FIELDS}
    elif what in EXCHANGES:
        protocol, resumption = EXCHANGES[what]
        columns = {"protocol": str(protocol), "resumption": str(resumption), "condition": "main"}
    else:
        h3, condition = LOADS[what]
        columns = {"h3": str(h3), "condition": condition}
    return columns | {"condition": labelled(stack, columns["condition"])}


def times(resolved_loads: pl.LazyFrame, dns_exchanges: pl.LazyFrame, page_loads: pl.LazyFrame) -> pl.LazyFrame:
    """Times until each event, by condition and server.

    Returns
    -------
    polars.LazyFrame
        The columns of `ROUND`, what (the condition), measure (name, first byte, document), stack, value (ms).
    """
    measured = dns_exchanges.filter(pl.col("role") == Role.MEASURED, pl.col("error").is_null())
    loads = metrics.page_loads(page_loads, condition=None)
    parts = [
        *((visits(resolved_loads), name, column) for name, column in TIMES.items()),
        (_named(measured, EXCHANGES), NAME, "total_ms"),
        (_named(loads, LOADS), FIRST_BYTE, "response_start_ms"),
    ]
    return pl.concat(
        rows.select(*metrics.ROUND, "what", "stack", measure=pl.lit(measure), value=column)
        for rows, measure, column in parts
    )


def visits(resolved_loads: pl.LazyFrame) -> pl.LazyFrame:
    """Successful visits: rows of `resolved_loads` with the visit's name in `what` and the server in `stack`."""
    return _named(metrics.resolved_loads(resolved_loads), VISITS)


def _named(rows: pl.LazyFrame, conditions: Mapping[str, Any]) -> pl.LazyFrame:
    """Rows of some conditions with the condition's name in `what` and the server in `stack`."""
    keys = [columns_of(what, stack) | {"what": what, "stack": stack} for what in conditions for stack in STACKS]
    return rows.join(pl.LazyFrame(keys), on=[name for name in keys[0] if name not in ("what", "stack")])


def differences(of: pl.LazyFrame, rtts: pl.LazyFrame) -> pl.LazyFrame:
    """Times with each aioquic server minus those with quic-go in the same round; takes rows of `times`.

    Returns
    -------
    polars.LazyFrame
        The columns of `ROUND`, what, measure, stack, difference_ms, difference_rtt.
    """
    first = of.filter(stack=FIRST).drop("stack")
    both = of.filter(pl.col("stack") != FIRST).join(first, on=[*metrics.ROUND, "what", "measure"])
    rows = both.select(*_BY_STACK, difference_ms=pl.col("value") - pl.col("value_right"))
    return metrics.in_rtts(rows, rtts, ["difference_ms"])


def costs(of: pl.LazyFrame, comparison: VisitComparison) -> pl.LazyFrame:
    """Time until the document in `comparison.visit` minus that in `comparison.other`; takes rows of `times`.

    Returns
    -------
    polars.LazyFrame
        The columns of `ROUND`, stack, difference_ms, difference_percent (of the median of `other` in the cell).
    """
    documents = of.filter(measure=DOCUMENT)
    parts = [
        metrics.paired_costs(
            documents.filter(stack=stack), "value", "what", comparison.visit.name, comparison.other.name
        ).with_columns(stack=pl.lit(stack))
        for stack in STACKS
    ]
    return pl.concat(parts)
