"""All states of DNS and HTTP/3: sums within a round, equal states on both sides, answers that follow the numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

from crosslayer import claims, published
from crosslayer.campaign.tables import TABLES
from crosslayer.figures import Figure, Inputs, draw
from crosslayer.studies import STUDIES
from crosslayer.studies.combinations.figures import FIGURES
from crosslayer.studies.combinations.metrics import COMBINATIONS, EXCHANGES, LOADS, combined, costs, named
from crosslayer.vocabulary import Protocol, Resumption

RTT_MS = {"fiber": 14.77, "4g": 91.85}
PAGES = {"example.org": 30.0, "wikipedia.org": 120.0, "instagram.com": 300.0}
ROUNDS = 12
ROUND_TRIPS = {"DoUDP": 1, "DoTCP": 2, "DoT": 3, "DoH": 3, "DoH3": 2, "DoQ": 2}
LOAD_RTTS = {("1-rtt", "main"): 3.0, ("0-rtt", "main"): 2.0, ("0-rtt", "no-token"): 2.0}
NAMES = {figure.name: figure for figure in FIGURES}


def measured(rounds: int = ROUNDS) -> Inputs:
    """Everything takes its round-trips; on wikipedia.org a load without token takes one more."""
    noise = np.random.default_rng(1)
    exchanges: list[dict[str, Any]] = []
    loads: list[dict[str, Any]] = []
    for link, rtt in RTT_MS.items():
        for page, constant in PAGES.items():
            for number in range(rounds):
                at = {"campaign": "c", "host": "", "round": number, "link": link, "study": "combinations", "page": page}
                for protocol in Protocol:
                    for resumption in protocol.transport.resumptions:
                        early = resumption is Resumption.EARLY_DATA
                        total = (ROUND_TRIPS[protocol] - early) * rtt + noise.normal(0, 0.2)
                        shared = {"protocol": protocol.value, "condition": "main"}
                        own = {
                            "handshake_ms": total - rtt,
                            "resumption": resumption.value,
                            "role": "measured",
                            "total_ms": total,
                        }
                        exchanges.append(at | shared | own)
                        if resumption is not Resumption.NONE:  # its ticket costs an exchange that counts nowhere
                            exchanges.append(at | shared | {"resumption": "none", "role": "priming", "total_ms": 1e6})
                by_stub = {"protocol": "DoQ", "condition": "quic-go", "resumption": "none", "role": "measured"}
                exchanges.append(at | by_stub | {"total_ms": 2 * rtt - 1.4, "handshake_ms": rtt - 1})
                as_browser = by_stub | {"condition": "quic-go-x25519mlkem768"}
                exchanges.append(at | as_browser | {"total_ms": 2 * rtt - 1.1, "handshake_ms": rtt - 0.7})
                for (h3, condition), rtts in LOAD_RTTS.items():
                    stall = page == "wikipedia.org" and condition == "no-token"
                    plt = constant + (rtts + stall) * rtt + noise.normal(0, 0.2)
                    proof = {"early_data_accepted": h3 == "0-rtt", "session_resumed": h3 == "0-rtt"}
                    loads.append(at | proof | {"h3": h3, "condition": condition, "role": "measured", "plt_ms": plt})
    checks = [{"campaign": "c", "round": 0, "link": link, "nominal_rtt_ms": rtt} for link, rtt in RTT_MS.items()]

    def table(name: str, rows: list[dict[str, Any]]) -> pl.LazyFrame:
        return pl.LazyFrame(rows, schema=TABLES[name].polars_schema())

    return Inputs(
        dns_exchanges=table("dns_exchanges", exchanges), tcp_rtts=table("tcp_rtts", []),
        page_loads=table("page_loads", loads), link_checks=table("link_checks", checks), published=published.load(),
        links=tuple(RTT_MS), pages=tuple(PAGES),
    )  # fmt: skip


@pytest.fixture(scope="module")
def inputs() -> Inputs:
    return measured()


def rows_of(inputs: Inputs) -> pl.LazyFrame:
    return combined(inputs.dns_exchanges, inputs.page_loads)


def test_every_state_that_a_transport_has_is_there_with_every_load(inputs: Inputs) -> None:
    known = {named(protocol, resumption) for protocol in Protocol for resumption in protocol.transport.resumptions}
    assert set(EXCHANGES) == known
    actual = rows_of(inputs).collect()
    assert set(actual["combination"]) == set(COMBINATIONS)
    assert len(COMBINATIONS) == 12 * 3
    counts = actual.group_by("link", "page", "combination").len()
    assert counts["len"].unique().to_list() == [ROUNDS]  # no priming exchange, no round twice


def test_a_combination_is_the_sum_within_its_round(inputs: Inputs) -> None:
    actual = rows_of(inputs).collect()
    assert (actual["plt_ms"] - actual["exchange_ms"] - actual["browser_plt_ms"]).abs().max() < 1e-9  # type: ignore[operator]
    few = inputs.page_loads.filter(pl.col("round") != 3, condition="main", role="measured")
    assert 3 not in combined(inputs.dns_exchanges, few).collect()["round"].to_list()


def test_with_the_same_load_only_the_exchanges_differ(inputs: Inputs) -> None:
    difference = {}
    for load in LOADS:
        of_load = costs(rows_of(inputs), f"DoQ + {load}", f"DoUDP + {load}").sort("link", "page", "round").collect()
        difference[load] = of_load["difference_ms"].to_numpy()
    for load in LOADS[1:]:
        assert np.allclose(difference[load], difference[LOADS[0]])


def drawn(name: str, inputs: Inputs) -> pl.DataFrame:
    return draw(NAMES[name], inputs, "").rows


def test_the_factorial_has_whole_round_trips(inputs: Inputs) -> None:
    actual = drawn("factorial", inputs)
    for page in PAGES:
        stall = page == "wikipedia.org"
        for exchange, load, expected in (
            ("DoUDP", "H3 1-RTT", 0),
            ("DoUDP", "H3 0-RTT with token", -1),
            ("DoQ", "H3 0-RTT without token", int(stall)),
            ("DoQ 0-RTT", "H3 0-RTT with token", -1),
            ("DoH resumed", "H3 1-RTT", 2),
        ):
            cell = actual.row(
                by_predicate=(pl.col("page") == page) & (pl.col("exchange") == exchange) & (pl.col("load") == load),
                named=True,
            )
            assert cell["median"] == pytest.approx(expected, abs=0.02)
            assert cell["low"] <= cell["median"] <= cell["high"]


def pooled(frame: pl.DataFrame, series: str, page: str = "example.org", **more: str) -> float:
    return float(frame.filter(source="pooled", series=series, page=page, **more)["median"][0])


def test_the_ticket_is_taken_off_where_both_sides_have_it(inputs: Inputs) -> None:
    compared, like = drawn("as-compared", inputs), drawn("like-with-like", inputs)
    emulated = pooled(compared, "DoQ + H3 0-RTT with token")
    assert emulated == pooled(like, "DoQ with a web ticket, DoUDP without") == pytest.approx(0, abs=0.5)
    assert pooled(compared, "DoUDP + H3 0-RTT with token") < -15
    # One round-trip more, of a PLT that is one round-trip shorter.
    assert pooled(like, "both: H3 0-RTT with token") > pooled(like, "neither: H3 1-RTT") > 15


def test_a_returning_visitors_doq_costs_nothing_and_doh_still_two_round_trips(inputs: Inputs) -> None:
    actual = drawn("visits", inputs)
    assert pooled(actual, "DoQ", visit="first visit") > 15
    assert pooled(actual, "DoQ", visit="returning visit") == pytest.approx(0, abs=0.5)
    assert pooled(actual, "DoH", visit="returning visit") > 2 * pooled(actual, "DoQ", visit="first visit")


def test_what_our_client_adds_is_distinguished_from_the_transport(inputs: Inputs) -> None:
    actual = drawn("implementations", inputs).filter(source="pooled", client="aioquic with P-256")
    assert dict(actual.select("measure", "median").iter_rows()) == {
        "handshake": pytest.approx(1.0, abs=0.1),
        "whole exchange": pytest.approx(1.4, abs=0.1),
    }


def test_a_like_for_like_key_share_is_distinguished(inputs: Inputs) -> None:
    actual = drawn("implementations", inputs)
    like = actual.filter(pl.col("client") == "quic-go with X25519MLKEM768")
    assert like["median"].to_list() == pytest.approx([0.3] * like.height)
    assert like.height == 2 * (len(RTT_MS) + 1)


@pytest.mark.slow
@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_every_figure_answers_and_says_where_it_cannot(inputs: Inputs, figure: Figure) -> None:
    assert figure.verdict is not None
    assert figure.table is not None
    whole = draw(figure, inputs, "")
    none = draw(figure, Inputs(
        dns_exchanges=inputs.dns_exchanges.clear(), tcp_rtts=inputs.tcp_rtts, page_loads=inputs.page_loads.clear(),
        link_checks=inputs.link_checks, published=inputs.published, links=inputs.links, pages=inputs.pages,
    ), "")  # fmt: skip
    for drawing in (whole, none):
        assert drawing.svg().startswith("<svg")
    assert (none.verdict or "").startswith("Not answered")
    if figure.name != "self-check":  # these rows have none
        assert whole.verdict
        assert not whole.verdict.startswith("Not answered")
        few = draw(figure, measured(rounds=3), "")
        assert few.verdict
        assert "[" not in few.verdict


def test_claims_of_its_own_follow_the_numbers(inputs: Inputs) -> None:
    states = ("F001", "F002", "F003", "F004", "F005")
    judged = verdicts(inputs)
    assert {name: judged[name] for name in states} == dict.fromkeys(states, "reproduced")
    early = pl.col("resumption") == "early-data"
    slow = replace(
        inputs,
        dns_exchanges=inputs.dns_exchanges.with_columns(pl.col("total_ms") + pl.when(early).then(30.0).otherwise(0.0)),
    )
    slowed = verdicts(slow)
    refuted = {"F001": "not reproduced", "F002": "not reproduced"}
    assert {name: slowed[name] for name in states} == dict.fromkeys(states, "reproduced") | refuted
    assert slowed["F012"] == "not reproduced"  # what DoQ costs a returning visitor of example.org
    few = verdicts(measured(rounds=3))
    assert few.pop("F018") == "not measured"  # these rows have no DSL
    assert set(few.values()) == {"inconclusive"}


def verdicts(inputs: Inputs) -> dict[str, str]:
    own = STUDIES["combinations"].claims
    assert own is not None
    judged = claims.check(Frames(inputs), own, pl.DataFrame(schema=published.load().claims.schema), elsewhere={})
    return dict(judged.select("claim_id", "verdict").iter_rows())


class Frames:
    """The tables of inputs."""

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs

    def table(self, name: str) -> pl.LazyFrame:
        frame: pl.LazyFrame = getattr(self._inputs, name)
        return frame
