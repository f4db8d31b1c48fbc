"""The gateway's study: what the server must say of a load, and that its figure says what was put in."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

from charts import valid
from crosslayer import pages, published
from crosslayer.campaign.tables import TABLES
from crosslayer.figures import Inputs, draw
from crosslayer.studies import STUDIES
from crosslayer.studies.gateway.kinds import KINDS, NONE, ONE, TWO, GatewayKind
from crosslayer.studies.gateway.measure import evidence_columns
from crosslayer.testbed.server import Event, QueryEvent, RequestEvent
from crosslayer.vocabulary import Sharing

STUDY = STUDIES["gateway"]
PAGE = pages.load_pages(pages.find_spec_dir())["wikipedia.org"]
RTT_MS = {"fiber": 14.767, "4g": 91.852}
ROUNDS = 12
ASKED_FROM, LOADED_FROM = 40001, 40002


def events(kind: GatewayKind) -> tuple[list[QueryEvent], list[RequestEvent]]:
    """What the server tells of a load that was what it was meant to be."""
    common: dict[str, Any] = {"time_ns": 0, "resumed": False, "address_validated": False, "handshake_complete": True}
    port = ASKED_FROM if kind.through is Sharing.SHARED else LOADED_FROM
    queries = [
        QueryEvent(
            **common,
            listener="doh3",
            remote=f"10.53.0.1:{ASKED_FROM}",
            name=f"{PAGE.host}.",
            type=of,
            rcode="NOERROR",
        )
        for of in ("A", "HTTPS")
    ]
    requests = [
        RequestEvent(
            **common, done_ns=0, listener="h3", remote=f"10.53.0.1:{port}", server_name=PAGE.host, host=PAGE.host,
            method="GET", path=resource.path, status=200, bytes=650,
        )
        for resource in PAGE.resources
    ]  # fmt: skip
    return queries, requests


def judged(kind: GatewayKind, of: list[Event], carried: dict[int, int] | None = None) -> str | None:
    if carried is None:
        port = ASKED_FROM if kind.through is Sharing.SHARED else LOADED_FROM
        carried = {port: len(PAGE.resources)} if kind.through else {}
    error: str | None = evidence_columns(of, kind, PAGE, {ASKED_FROM}, carried)["error"]
    return error


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_the_server_log_confirms_every_load(kind: GatewayKind) -> None:
    queries, requests = events(kind)
    assert judged(kind, [*queries, *requests]) is None
    assert (
        evidence_columns([*queries, *requests], kind, PAGE, {ASKED_FROM}, {})["connection_count"]
        == kind.connection_count
    )
    wrong: dict[str, list[Event]] = {
        "asked not once": [queries[0], *queries, *requests],
        "but: nothing": [*requests],
        "another.test": [replace(queries[0], name="another.test."), *queries, *requests],
        "but: udp": [replace(queries[0], listener="udp"), *requests],
        "requests of the page instead of": [*queries, *requests[:-1]],
        "another than the stub": [replace(queries[0], remote="10.53.0.1:4"), queries[1], *requests],
        "session_resumed is True": [*queries, *(replace(request, resumed=True) for request in requests)],
        "early_data_accepted is True": [
            *queries,
            *(replace(request, handshake_complete=False) for request in requests),
        ],
    }
    for fault, of in wrong.items():
        assert fault in str(judged(kind, of))
    # A request that left on a connection of its own, and one that the gateway knows nothing of.
    elsewhere = [*requests[:-1], replace(requests[-1], remote="10.53.0.1:40003")]
    assert judged(kind, [*queries, *elsewhere])
    assert judged(kind, [*queries, *requests], {1: 1})


def test_one_connection_and_two_are_distinguished() -> None:
    for kind, other in ((KINDS[ONE], KINDS[TWO]), (KINDS[TWO], KINDS[ONE])):
        queries, requests = events(other)
        carried = {int(requests[0].remote.rpartition(":")[2]): len(requests)}
        error = judged(kind, [*queries, *requests], carried)
        counts = f"{other.connection_count} instead of {kind.connection_count}"
        assert error == f"not as expected: connection_count is {counts}"


def made(gain_rtt: float, gateway_ms: float) -> Inputs:
    """Loads of four round-trips, one connection sparing some of it, the gateway taking some time."""
    noise = np.random.default_rng(1)
    rows = [
        {"campaign": "c", "host": "", "round": number, "link": link, "study": STUDY.name, "page": page}
        | {"role": "measured"}
        | kind.columns
        | {"early_data_accepted": False, "session_resumed": False, "connect_start_ms": 0.0, "connect_ms": 1.0}
        | dict.fromkeys(
            ("plt_ms", "response_start_ms"),
            4 * rtt + (kind.through is not None) * gateway_ms - (name == ONE) * gain_rtt * rtt + noise.uniform(0, 0.5),
        )
        for link, rtt in RTT_MS.items()
        for page in ("example.org", "wikipedia.org")
        for number in range(ROUNDS)
        for name, kind in KINDS.items()
    ]
    checks = [{"campaign": "c", "round": 0, "link": link, "nominal_rtt_ms": rtt} for link, rtt in RTT_MS.items()]
    tables = {"page_loads": rows, "link_checks": checks, "dns_exchanges": [], "tcp_rtts": [], "resolved_loads": []}
    frames = {name: pl.LazyFrame(of, schema=TABLES[name].polars_schema()) for name, of in tables.items()}
    return Inputs(**frames, published=published.load(), links=tuple(RTT_MS), pages=("example.org", "wikipedia.org"))


def test_the_figure_says_what_was_put_in() -> None:
    (figure,) = STUDY.figures
    drawing = draw(figure, made(gain_rtt=1.0, gateway_ms=-0.5), "Campaign synthetic.")
    valid(drawing)
    gain = drawing.rows.filter(source="difference", series="two connections minus one", measure="PLT")
    gain_ms = drawing.rows.filter(source="difference", series="two connections minus one", measure="PLT (ms)")
    assert gain.height == 4
    assert gain["median"].to_list() == pytest.approx([1.0] * 4, abs=0.02)
    assert gain_ms["median"].to_list() == pytest.approx([14.767, 14.767, 91.852, 91.852], abs=0.25)
    assert (gain["low"] <= gain["median"]).all()
    same = drawing.rows.filter(
        source="difference", series="two connections minus no gateway", measure="start of the response (ms)"
    )
    assert same["median"].to_list() == pytest.approx([-0.5] * 4, abs=0.25)
    assert drawing.table is not None
    # Two times in RTT and in ms, three kinds and three differences, in four cells.
    assert drawing.table.height == 4 * (3 + 3) * 4
    verdict = str(drawing.verdict)
    assert re.search(
        r"a gateway with two connections, it shortens the PLT by (1\.0|0\.9)\d to 1\.0\d RTT \(14\.\d to 9\d\.\d ms\)",
        verdict,
    )
    assert re.search(r"A gateway with two connections lengthens the PLT by -0\.0\d to ", verdict)


def test_without_the_gateway_there_is_no_answer() -> None:
    (figure,) = STUDY.figures
    of = made(1.0, 0.0)
    of = replace(of, page_loads=of.page_loads.filter(pl.col("condition") == KINDS[NONE].condition))
    drawing = draw(figure, of, "")
    assert str(drawing.verdict).startswith("Not answered")
