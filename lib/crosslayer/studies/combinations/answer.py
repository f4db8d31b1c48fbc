"""What encrypted DNS costs a first and a returning visit, each compared with plain DNS in the same state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from crosslayer import metrics
from crosslayer.figures import Inputs
from crosslayer.figures.sentences import percent, reach
from crosslayer.studies.coalescing import PAGES
from crosslayer.studies.combinations.figures import VISITS, visits_data
from crosslayer.studies.combinations.metrics import combined, costs
from crosslayer.study import FIRST_VISIT, RETURNING_VISIT, StudyAnswer
from crosslayer.vocabulary import Protocol

_QUIC = (Protocol.DOQ, Protocol.DOH3)
_TCP = (Protocol.DOT, Protocol.DOH)


def answer(inputs: Inputs, verdicts: Mapping[str, Mapping[str, Any]]) -> StudyAnswer:
    """Both visits, each with its increases; nothing if the campaign lacks a page, an exchange or a load."""
    every = visits_data(inputs)
    shares = every.filter(source="pooled")
    wanted = len(VISITS) * len(PAGES) * (len(_QUIC) + len(_TCP))
    shown = shares.filter(pl.col("page").is_in(PAGES), pl.col("series").is_in([*_QUIC, *_TCP]))
    if shown.height < wanted:
        return StudyAnswer()
    first, returning = (_Visit(inputs, every, visit) for visit in VISITS)
    on_first = (
        f"DoQ or DoH3 adds {first.rtts(_QUIC)} round-trips (RTT) to plain DNS. DoT or DoH adds {first.rtts(_TCP)} RTT."
    )
    on_returning = (
        f"With early data, DoQ or DoH3 adds {returning.rtts(_QUIC)} RTT, and on the slowest uplink up to "
        f"{returning.most(Protocol.DOQ)} of the page load time. Resumed DoT or DoH adds {returning.rtts(_TCP)} RTT."
    )
    increases = [
        (topic, name, visit.pages(protocol))
        for topic, visit, doq, doh in (
            (FIRST_VISIT, first, "DoQ", "DoH"),
            (RETURNING_VISIT, returning, "DoQ with early data", "DoH, resumed"),
        )
        for name, protocol in ((doq, Protocol.DOQ), (doh, Protocol.DOH))
    ]
    return StudyAnswer(((FIRST_VISIT, on_first), (RETURNING_VISIT, on_returning)), tuple(increases))


class _Visit:
    """The costs of one kind of visit."""

    def __init__(self, inputs: Inputs, shares: pl.DataFrame, visit: str) -> None:
        self._inputs = inputs
        self._cells = shares.filter(visit=visit, source="measured")
        self._shares = shares.filter(visit=visit, source="pooled")
        self._pairs = VISITS[visit]

    def rtts(self, protocols: tuple[Protocol, ...]) -> str:
        """Smallest and largest median of a link and page, RTT."""
        rows = combined(self._inputs.dns_exchanges, self._inputs.page_loads)
        cells = [
            metrics.medians(
                metrics.in_rtts(costs(rows, *self._pairs[protocol]), self._inputs.rtts, ["difference_ms"]),
                "difference_rtt",
                metrics.CELL,
            )
            for protocol in protocols
        ]
        return reach(pl.concat(cells)["median"], 1)

    def pages(self, protocol: Protocol) -> dict[str, str]:
        """Median of all rounds of all links for each page, percent of the load time over plain DNS."""
        values = {page: self._shares.filter(series=str(protocol), page=page)["median"].item() for page in PAGES}
        return {page: percent(value, 0 if abs(value) >= 2 else 1) for page, value in values.items()}

    def most(self, protocol: Protocol) -> str:
        """Largest median of a link and page, percent of the load time over plain DNS."""
        costs = self._cells.filter(pl.col("page").is_in(PAGES), series=str(protocol))
        return percent(max(costs["median"]), 0)
