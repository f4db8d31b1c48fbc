"""The study of two servers: differences within a round, claims that hold, and claims that fail where they must."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

from crosslayer import published
from crosslayer.campaign.tables import TABLES
from crosslayer.claims.rules import Verdict
from crosslayer.figures import Inputs, draw
from crosslayer.studies import STUDIES
from crosslayer.studies.one_connection.modes import MODES
from crosslayer.studies.server_stacks.claims import CLAIMS, SOURCES
from crosslayer.studies.server_stacks.conditions import DOCUMENT, EXCHANGES, FIRST_BYTE, LOADS, NAME, VISITS
from crosslayer.studies.server_stacks.figures import FIGURES
from crosslayer.studies.server_stacks.metrics import columns_of, differences, times
from crosslayer.studies.server_stacks.stacks import FIRST, SECOND, STACKS, WIDE

RTT_MS = {"fiber": 14.77, "4g": 91.85}
PAGES = ("example.org", "wikipedia.org")
STUDY = STUDIES["server-stacks"]
ROUNDS = 12
NAMES = {figure.name: figure for figure in FIGURES}


def round_trips(what: str) -> float:
    """Until the first byte, as far as the tests need it."""
    visit = VISITS[what]
    early = visit.resumption == "early-data" and "settings" not in visit.condition
    name = 1 if visit.protocol == "DoUDP" or early else 2
    if "at-once" in visit.condition:
        return name
    return name + 1 + (visit.connections == "separate" and visit.h3 == "1-rtt")


def measured(*, first_byte: float = 0.0, document: float = 1.1, wide: float = 0.0, token: float = 0.8) -> Inputs:
    """Everything takes its round-trips; with the second server some more.

    Parameters
    ----------
    first_byte, document, wide
        RTT that aioquic takes longer until the first byte and for the document of wikipedia.org, and with the window of
        quic-go for that.
    token
        RTT that the document of wikipedia.org takes longer without the token from aioquic; from quic-go 1.
    """
    noise = np.random.default_rng(1)
    rows: dict[str, list[dict[str, Any]]] = {"resolved_loads": [], "dns_exchanges": [], "page_loads": []}

    def later(stack: str, rtt: float) -> float:
        return first_byte * rtt * (stack != FIRST) + float(noise.normal(0, 0.01))

    for link, rtt in RTT_MS.items():
        for page in PAGES:
            for number in range(ROUNDS):
                at = {"campaign": "c", "host": "", "round": number, "link": link, "study": STUDY.name, "page": page}
                at |= {"role": "measured"}
                for stack in STACKS:
                    for what in VISITS:
                        start = round_trips(what) * rtt + later(stack, rtt)
                        large = page == "wikipedia.org"
                        extra = {FIRST: 0.0, SECOND: document, WIDE: wide}[stack] * large
                        no_token = large and what == "DoUDP, then H3 0-RTT, no token"
                        extra += (token if stack == SECOND else 1.0) * no_token
                        end = start + extra * rtt
                        taken: dict[str, Any] = {"resolved_ms": rtt, "response_start_ms": start, "document_ms": end}
                        taken |= {"arrived_ms": [start, end], "arrived_bytes": [11e3, 18e3 + large]}
                        taken |= {"received_bytes": [12e3, 20e3]}
                        rows["resolved_loads"].append(at | columns_of(what, stack) | taken)
                    if stack == WIDE:
                        continue
                    for what in EXCHANGES:
                        total = 2 * rtt + later(stack, rtt)
                        rows["dns_exchanges"].append(at | columns_of(what, stack) | {"total_ms": total})
                    for what in LOADS:
                        columns = columns_of(what, stack)
                        proof = {"early_data_accepted": columns["h3"] == "0-rtt", "session_resumed": False}
                        rows["page_loads"].append(at | columns | proof | {"response_start_ms": rtt + later(stack, rtt)})
    made = {
        name: pl.LazyFrame(rows.get(name, []), schema=TABLES[name].polars_schema()).with_columns(host=pl.lit(""))
        for name in ("dns_exchanges", "tcp_rtts", "page_loads", "resolved_loads", "paced_queries", "idle_recoveries")
    }
    checks = [{"campaign": "c", "round": 0, "link": link, "nominal_rtt_ms": rtt} for link, rtt in RTT_MS.items()]
    made["link_checks"] = pl.LazyFrame(checks, schema=TABLES["link_checks"].polars_schema())
    return Inputs(**made, published=published.load(), links=tuple(RTT_MS), pages=PAGES)


@pytest.fixture(scope="module")
def inputs() -> Inputs:
    return measured()


def verdicts(of: Inputs) -> dict[str, Verdict]:
    observed = CLAIMS.observed(*(getattr(of, table) for table in CLAIMS.tables))
    return {identifier: check.run(observed, None).verdict for identifier, check in CLAIMS.checks.items()}


def test_its_visits_are_the_modes_of_the_study_that_measures_them() -> None:
    named = {name: mode.columns for name, mode in MODES.items()}
    assert {what: columns_of(what, FIRST) for what in VISITS} == named


def test_every_row_of_the_measurer_is_a_condition_of_the_analysis() -> None:
    from crosslayer.studies.server_stacks.measure import CONDITIONS

    measured_here = [one.columns for one in CONDITIONS.values()]
    for what in [*EXCHANGES, *LOADS]:
        wanted = columns_of(what, FIRST)
        assert any(wanted.items() <= {name: str(value) for name, value in one.items()}.items() for one in measured_here)


def test_a_condition_with_the_second_server_is_named_in_its_rows() -> None:
    assert columns_of("DoQ, then H3 1-RTT", SECOND)["condition"] == "aioquic: main"
    assert columns_of("DoUDP, then H3 0-RTT, no token", WIDE)["condition"] == "aioquic-window: no-token"


def test_differences_are_within_a_round(inputs: Inputs) -> None:
    of_all = times(inputs.resolved_loads, inputs.dns_exchanges, inputs.page_loads)
    later = differences(of_all, inputs.rtts).collect()
    assert set(later["stack"]) == {SECOND, WIDE}
    assert set(later.filter(stack=SECOND)["what"]) == {*VISITS, *EXCHANGES, *LOADS}
    document = later.filter(measure=DOCUMENT, stack=SECOND, page="wikipedia.org", what="DoQ, then H3 1-RTT")
    assert document["difference_rtt"].median() == pytest.approx(1.1, abs=0.01)
    assert later.filter(measure=FIRST_BYTE)["difference_rtt"].abs().max() < 0.01
    assert set(later.filter(measure=NAME, stack=WIDE)["what"]) == set(VISITS)


def test_claims_hold_where_only_the_window_differs(inputs: Inputs) -> None:
    assert set(verdicts(inputs).values()) == {Verdict.REPRODUCED}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "refuted"),
    [
        ({"first_byte": 0.03}, {"STACK2"}),
        ({"document": 0.2}, {"STACK3"}),
        ({"wide": 0.3}, {"STACK4"}),
        ({"token": 1.2}, {"STACK8"}),
    ],
)
def test_a_claim_fails_where_it_must(changed: dict[str, float], refuted: set[str]) -> None:
    wrong = {name for name, verdict in verdicts(measured(**changed)).items() if verdict is Verdict.NOT_REPRODUCED}
    assert refuted <= wrong
    assert wrong <= refuted | {"STACK1", "STACK5"}


def test_every_claim_leads_to_its_rows(inputs: Inputs) -> None:
    observed = CLAIMS.observed(*(getattr(inputs, table) for table in CLAIMS.tables))
    for check in CLAIMS.checks.values():
        observed.forget_asked()
        check.run(observed, None)
        assert {name for series, _ in observed.asked for name, _ in series.terms} <= set(SOURCES)


@pytest.mark.parametrize("name", NAMES)
def test_figures_draw_and_answer(inputs: Inputs, name: str) -> None:
    drawing = draw(NAMES[name], inputs, "measured")
    assert not drawing.rows.is_empty()
    assert "Not answered" not in drawing.verdict


def test_figures_of_one_server_say_so() -> None:
    of = measured()
    only_first = ~pl.col("condition").str.starts_with("aioquic")
    alone = replace(
        of,
        resolved_loads=of.resolved_loads.filter(only_first),
        dns_exchanges=of.dns_exchanges.filter(only_first),
        page_loads=of.page_loads.filter(only_first),
    )
    for figure in FIGURES[:2]:
        assert "Not answered" in draw(figure, alone, "measured").verdict


def test_a_silence_is_what_was_sent_before_it(inputs: Inputs) -> None:
    sentence = draw(NAMES["server-arrivals"], inputs, "measured").verdict
    assert "aioquic sends 12.0 kB, then waits for acknowledgements (on Fiber" in sentence
    assert "quic-go sends all data (20.0 kB) without a wait (on Fiber" in sentence
