"""The ladder: what each mode takes by the protocols, what the server must say of it, figures and claims."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

from charts import valid
from crosslayer import claims, pages, published
from crosslayer.campaign.tables import TABLES
from crosslayer.figures import Inputs, draw
from crosslayer.studies import STUDIES
from crosslayer.studies.one_connection.measure import evidence_columns
from crosslayer.studies.one_connection.modes import AT_ONCE, BASELINE, FIRST_VISIT, MODES, NO_TOKEN, RETURNING, Mode
from crosslayer.testbed.server import Event, QueryEvent, RequestEvent
from crosslayer.vocabulary import Http3, Protocol, Resumption, Sharing

STUDY = STUDIES["one-connection"]
PAGE = pages.load_pages(pages.find_spec_dir())["example.org"]
RTT_MS = {"fiber": 14.767, "4g": 91.852}
ROUNDS = 16
NAME_PORT, PAGE_PORT = 40001, 40002


@pytest.mark.parametrize(
    ("mode", "name", "page"),
    [
        (BASELINE, 1, 3),
        (Mode(Protocol.DOUDP, h3=Http3.ZERO_RTT), 1, 2),
        (Mode(Protocol.DOQ), 2, 4),
        (Mode(Protocol.DOQ, Resumption.EARLY_DATA, h3=Http3.ZERO_RTT), 1, 2),
        (FIRST_VISIT, 2, 3),
        (replace(FIRST_VISIT, condition=AT_ONCE), 2, 2),
        (RETURNING, 1, 2),
        (replace(RETURNING, condition=AT_ONCE), 1, 1),
        (replace(RETURNING, condition="settings"), 2, 3),
        (Mode(Protocol.DOUDP, h3=Http3.ZERO_RTT, condition="settings"), 1, 3),
    ],
)
def test_round_trips_by_the_protocols(mode: Mode, name: int, page: int) -> None:
    assert mode in MODES.values()
    assert (mode.name_round_trips, mode.page_round_trips) == (name, page)


def test_every_mode_is_distinguished() -> None:
    columns = [tuple(mode.columns.values()) for mode in MODES.values()]
    assert len(set(columns)) == len(columns) == len(MODES) == 25
    keys = {column.name for column in TABLES["resolved_loads"].columns if column.key}
    assert set(BASELINE.columns) <= keys


def events(mode: Mode) -> list[Event]:
    """What the server tells of a load that was what it was meant to be."""
    shared = mode.connections is Sharing.SHARED
    port = PAGE_PORT if shared else NAME_PORT
    common: dict[str, Any] = {"time_ns": 0, "resumed": mode.resumed}
    common["address_validated"] = mode.resumed and mode.token
    query = QueryEvent(
        **common, listener=mode.protocol.lower(), remote=f"10.53.0.1:{port}", name=f"{PAGE.host}.", type="A",
        rcode="NOERROR", handshake_complete=not mode.query_early,
    )  # fmt: skip
    request = RequestEvent(
        **common, done_ns=0, listener="h3", remote=f"10.53.0.1:{PAGE_PORT}", server_name="localhost", host=PAGE.host,
        method="GET", path="/", status=200, bytes=650, handshake_complete=not mode.request_early,
    )  # fmt: skip
    return [query, request]


def judged(mode: Mode, of: list[Event]) -> str | None:
    port = PAGE_PORT if mode.connections is Sharing.SHARED else NAME_PORT
    error: str | None = evidence_columns(of, mode, PAGE, (port, PAGE_PORT))["error"]
    return error


@pytest.mark.parametrize("mode", MODES.values(), ids=list(MODES))
def test_the_server_log_confirms_every_load(mode: Mode) -> None:
    query, request = events(mode)
    assert judged(mode, [query, request]) is None
    assert "1 queries, 0 requests of the document" in str(judged(mode, [query]))
    assert "0 queries" in str(judged(mode, [request]))
    for field, column in (
        ("handshake_complete", "early_data_accepted"),
        ("resumed", "session_resumed"),
        ("address_validated", "address_validated"),
    ):
        other = replace(request, **{field: not getattr(request, field)})
        assert f"not as expected: {column} is" in str(judged(mode, [query, other]))
    if mode.protocol is not Protocol.DOUDP:
        late = replace(query, handshake_complete=not query.handshake_complete)  # type: ignore[type-var]
        assert "query_early is" in str(judged(mode, [late, request]))


def test_two_connections_are_not_one() -> None:
    query, request = events(RETURNING)
    elsewhere = replace(query, remote=f"10.53.0.1:{NAME_PORT}")  # type: ignore[type-var]
    error = evidence_columns([elsewhere, request], RETURNING, PAGE, (NAME_PORT, PAGE_PORT))["error"]
    assert error == "not as expected: connection_count is 2 instead of 1"


# Figures and claims


def made(**overheads: float) -> Inputs:
    """Loads that take their round-trips, 0.01 RTT of the page, 1 RTT without a token where that matters, and a noise.

    `overheads`: RTT added to a mode's document, by the mode's name.
    """
    noise = np.random.default_rng(1)
    rows, checks = [], []
    for link, rtt in RTT_MS.items():
        checks.append({"campaign": "c", "round": 0, "link": link, "nominal_rtt_ms": rtt})
        for page in ("example.org", "wikipedia.org"):
            for number in range(ROUNDS):
                for name, mode in MODES.items():
                    stalls = page == "wikipedia.org" and mode.request_early and not mode.token
                    start = mode.page_round_trips + noise.uniform(0, 0.001)
                    document = start + 0.01 + stalls + overheads.get(name, 0.0)
                    counts = [float(n) for n in range(1200, 18001 if page == "wikipedia.org" else 1201, 1200)]
                    arrived = [(start if n < 2500 else document) * rtt for n in counts]
                    rows.append(
                        {"campaign": "c", "host": "", "round": number, "link": link, "study": STUDY.name, "page": page}
                        | mode.columns
                        | {"resolved_ms": mode.name_round_trips * rtt, "response_start_ms": start * rtt}
                        | {"document_ms": document * rtt, "load_complete_ms": document * rtt}
                        | {"arrived_ms": arrived, "arrived_bytes": counts}
                        | {"received_bytes": [n + 1400 for n in counts], "first_flight_bytes": 1200}
                    )
    tables = {"resolved_loads": rows, "link_checks": checks}
    frames = {name: pl.LazyFrame(of, schema=TABLES[name].polars_schema()) for name, of in tables.items()}
    others = {name: TABLES[name].polars_schema() for name in ("dns_exchanges", "tcp_rtts", "page_loads")}
    frames |= {name: pl.LazyFrame(schema=schema) for name, schema in others.items()}
    return Inputs(**frames, published=published.load(), links=tuple(RTT_MS), pages=("example.org", "wikipedia.org"))


def rows_of(name: str, of: Inputs) -> pl.DataFrame:
    (figure,) = [figure for figure in STUDY.figures if figure.name == name]
    drawing = draw(figure, of, "Campaign synthetic.")
    valid(drawing)
    return drawing.rows


@pytest.mark.slow
def test_the_ladder_has_every_mode_with_its_round_trips() -> None:
    rows = rows_of("ladder", made())
    assert rows["mode"].unique(maintain_order=True).to_list() == list(MODES)
    counted = rows.drop_nulls("round_trips")
    assert set(counted["measure"]) == {"name", "first byte"}
    assert ((counted["median"] - counted["round_trips"]).abs() < 0.002).all()
    assert counted["low"].null_count() == 0


def test_worth_is_what_was_put_in() -> None:
    of = made(**{FIRST_VISIT.name: 0.02})
    rows = rows_of("one-connection-worth", of).filter(page="wikipedia.org", link="4g")
    worth = {(visit, what): median for visit, what, median in rows.select("visit", "what", "median").iter_rows()}
    assert worth["first visit", "over DoUDP, then H3"] == pytest.approx(-0.02, abs=0.002)
    assert worth["returning visit", "over DoUDP, then H3 1-RTT"] == pytest.approx(1, abs=0.002)
    assert worth["returning visit", "the token"] == pytest.approx(0, abs=0.002)
    assert worth["returning visit", "the token, page at once"] == pytest.approx(1, abs=0.002)
    assert worth["returning visit", "not waiting for SETTINGS"] == pytest.approx(1, abs=0.002)


def test_steps_of_the_document_are_where_the_loads_fell_silent() -> None:
    rows = rows_of("document-size", made())
    steps = rows.filter(source="step", link="4g")
    without = Mode(Protocol.DOUDP, h3=Http3.ZERO_RTT, condition=NO_TOKEN).name
    assert set(steps["mode"]) == {without, "DoH3 0-RTT and page on one connection, page at once, no token"}
    assert steps.row(0, named=True)["kb"] == pytest.approx(2.4)
    assert steps.row(0, named=True)["received"] == pytest.approx(3800)
    assert steps.row(0, named=True)["allowed"] == pytest.approx(3600)
    sizes = rows.filter(source="size", link="4g", mode=without).sort("kb")["median"].to_list()
    assert sizes[0] == pytest.approx(2, abs=0.01)
    assert sizes[-1] == pytest.approx(3, abs=0.02)


class Kept:
    def __init__(self, of: Inputs) -> None:
        self.of = of

    def table(self, name: str) -> pl.LazyFrame:
        frame: pl.LazyFrame = getattr(self.of, name)
        return frame


def verdicts(of: Inputs) -> dict[str, str]:
    none = published.load().claims.clear()
    judged = claims.check(Kept(of), STUDY.claims, none, elsewhere={})
    return dict(judged.select("claim_id", "verdict").iter_rows())


def test_claims_hold_where_modes_take_their_round_trips() -> None:
    emulation = Mode(Protocol.DOQ, h3=Http3.ZERO_RTT)
    assert set(verdicts(made(**{emulation.name: 0.01})).values()) == {"reproduced"}


def test_claims_fail_where_one_connection_is_slow() -> None:
    judged = verdicts(made(**{FIRST_VISIT.name: 0.08}))
    refuted = {name for name, verdict in judged.items() if verdict == "not reproduced"}
    assert refuted == {"CONN1", "CONN6", "T222"}
