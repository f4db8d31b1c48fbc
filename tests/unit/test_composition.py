"""The sum of an exchange and a load against a load that resolves by itself: what it is made of, round by round."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from crosslayer import published
from crosslayer.campaign.conditions import Exchange
from crosslayer.campaign.tables import TABLES
from crosslayer.dns import Protocol, Resumption
from crosslayer.figures import Inputs, draw
from crosslayer.studies.composition.figures import FIGURES, PROTOCOLS
from crosslayer.studies.composition.measure import _EXCHANGES

RTT_MS = {"fiber": 14.77, "4g": 91.85}
LONGER_MS = {"DoUDP": 0.0, "DoH": 2.0, "DoQ": -1.0}
"""How much longer than the sum a coupled load takes here."""


@pytest.fixture(scope="module")
def inputs() -> Inputs:
    rows: dict[str, list[dict[str, Any]]] = {"dns_exchanges": [], "page_loads": []}
    for link, rtt in RTT_MS.items():
        for number in range(8):
            at = {
                "campaign": "c",
                "host": "",
                "round": number,
                "link": link,
                "page": "example.org",
                "condition": "main",
                "role": "measured",
            }
            alone = {"h3": "1-rtt", "response_start_ms": 2 * rtt, "plt_ms": 3 * rtt, "early_data_accepted": False}
            rows["page_loads"].append(at | alone | {"coupling": "decoupled"})
            for of_study in _EXCHANGES.values():
                name = of_study.protocol.value
                took = (1 + PROTOCOLS.index(name)) * rtt
                exchange = of_study.columns | {"total_ms": took}
                rows["dns_exchanges"] += [at | exchange, at | exchange | {"resumption": "none", "role": "priming"}]
                until = {key: alone[key] + took + LONGER_MS[name] for key in ("response_start_ms", "plt_ms")}
                rows["page_loads"].append(at | alone | until | {"coupling": "coupled", "dns_protocol": name})
    checks = [{"campaign": "c", "round": 0, "link": link, "nominal_rtt_ms": rtt} for link, rtt in RTT_MS.items()]

    def table(name: str, of: list[dict[str, Any]]) -> pl.LazyFrame:
        return pl.LazyFrame(of, schema=TABLES[name].polars_schema())

    return Inputs(
        dns_exchanges=table("dns_exchanges", rows["dns_exchanges"]), tcp_rtts=table("tcp_rtts", []),
        page_loads=table("page_loads", rows["page_loads"]), link_checks=table("link_checks", checks),
        published=published.load(), links=tuple(RTT_MS), pages=("example.org",),
    )  # fmt: skip


def test_both_sides_are_in_the_same_state() -> None:
    for exchange in _EXCHANGES.values():
        assert exchange.resumption in exchange.protocol.transport.resumptions
    assert _EXCHANGES["DoQ, exchange"] == Exchange(Protocol.DOQ, Resumption.TICKET)


def test_the_difference_is_that_of_the_same_round(inputs: Inputs) -> None:
    drawing = draw(FIGURES[0], inputs, "")
    actual = drawing.rows.filter(source="measured")
    assert actual.height == 2 * 2 * 3  # first byte and PLT, links, transports
    for name, longer in LONGER_MS.items():
        values = actual.filter(series=name)["median"].to_list()
        assert values == pytest.approx([-longer] * 4)
    assert "First byte: 0.00 ms over DoUDP, -2.00 ms over DoH" in str(drawing.verdict)


def test_without_coupled_loads_there_is_no_answer(inputs: Inputs) -> None:
    few = replace(inputs, page_loads=inputs.page_loads.filter(pl.col("coupling") == "decoupled"))
    drawing = draw(FIGURES[0], few, "")
    assert drawing.rows.is_empty()
    assert str(drawing.verdict).startswith("Not answered")
