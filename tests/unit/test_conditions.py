"""Conditions as tables, evidence of the server log on loads and exchanges, and tokens that Chromium keeps."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from crosslayer import dns
from crosslayer.browser import Browser, BrowserError, PageLoad
from crosslayer.campaign.conditions import FULL_HANDSHAKE, REFUSED, Condition, ConditionsMeasurer, Load, measuring
from crosslayer.campaign.evidence import exchange_columns, incomplete, keeps_token, load_evidence, mismatch
from crosslayer.campaign.instruments import Loads, resource_rows
from crosslayer.campaign.measurer import RoundContext
from crosslayer.campaign.plan import Cell
from crosslayer.campaign.tables import TABLES, Resources
from crosslayer.pages import PageSpec, find_spec_dir, load_pages
from crosslayer.studies import STUDIES, sized
from crosslayer.testbed.server import Event, QueryEvent, RequestEvent, TokenEvent
from crosslayer.vocabulary import Role

PAGE = load_pages(find_spec_dir())["wikipedia.org"]
HOST = PAGE.host
OWN, OTHER = "10.53.0.1:4000", "10.53.0.1:4001"
LOAD = RequestEvent(
    time_ns=1_000_000, done_ns=3_500_000, listener="h3", remote=OWN, server_name=HOST, host=HOST, method="GET",
    path="/", status=200, bytes=18_000, handshake_complete=False, resumed=True, address_validated=True,
    key_share="X25519MLKEM768", initials=2,
)  # fmt: skip


def evidence(kind: Load, **seen: bool) -> dict[str, Any]:
    early = kind.h3 == "0-rtt"
    return load_evidence(
        [replace(LOAD, **seen)], PAGE, early_data=early, resumed=kind.resumed, validated=kind.validated
    )


def test_a_load_with_the_token_it_was_meant_to_have_is_without_error() -> None:
    assert evidence(Load("0-rtt")) == {
        "early_data_accepted": True,
        "session_resumed": True,
        "address_validated": True,
        "ech_accepted": False,
        "server_ms": 2.5,
        "key_share": "X25519MLKEM768",
        "initial_packets": 2,
    }
    assert "error" not in evidence(Load("0-rtt", "no-token", token=False), address_validated=False)
    full = {"handshake_complete": True, "resumed": False, "address_validated": False}
    assert "error" not in evidence(Load("1-rtt", primed_alias=0), **full)


@pytest.mark.parametrize(
    ("kind", "validated", "error"),
    [
        (Load("0-rtt"), False, "not as expected: address_validated is False instead of True"),
        (
            Load("0-rtt", "no-token", token=False),
            True,
            "not as expected: address_validated is True instead of False",
        ),
    ],
)
def test_a_load_is_an_error_where_the_token_is_not_as_it_was_meant(kind: Load, validated: bool, error: str) -> None:
    result = evidence(kind, address_validated=validated)
    assert (result["error"], result["address_validated"]) == (error, validated)


@pytest.mark.parametrize(
    ("kind", "seen", "error"),
    [
        (FULL_HANDSHAKE, {"fonts.example": False, "cdn.example": False}, None),
        (Load("0-rtt"), {"fonts.example": True, "cdn.example": True}, None),
        (
            FULL_HANDSHAKE,
            {"fonts.example": False, "cdn.example": True},
            "not as expected: session_resumed is True instead of False for cdn.example",
        ),
        (
            Load("0-rtt"),
            {"fonts.example": False, "cdn.example": False},
            "not as expected: session_resumed is False instead of True for cdn.example, fonts.example",
        ),
        (Load("0-rtt"), {"cdn.example": True}, "the server saw no request of this load over HTTP/3 for fonts.example"),
    ],
)
def test_a_load_is_an_error_unless_all_its_hosts_are_resumed_alike(
    kind: Load, seen: dict[str, bool], error: str | None
) -> None:
    page = replace(PAGE, origins=("fonts.example", "cdn.example"))
    early = kind.h3 == "0-rtt"
    document = replace(LOAD, handshake_complete=not early, resumed=kind.resumed, address_validated=kind.validated)
    others = [replace(LOAD, time_ns=2_000_000, host=host, path="/x", resumed=resumed) for host, resumed in seen.items()]
    earlier = replace(LOAD, time_ns=1, host="cdn.example", path="/x", resumed=not kind.resumed)  # of the priming
    result = load_evidence(
        [earlier, document, *others], page, early_data=early, resumed=kind.resumed, validated=kind.validated
    )
    assert result.get("error") == error


def test_the_negative_control_is_an_error_unless_the_server_refused_its_ticket() -> None:
    refused = {"handshake_complete": True, "resumed": False}
    assert "error" not in evidence(REFUSED, **refused)
    assert evidence(REFUSED, **refused | {"handshake_complete": False})["error"] == (
        "not as expected: early_data_accepted is True instead of False"
    )
    assert evidence(REFUSED, **refused | {"resumed": True})["error"] == (
        "not as expected: session_resumed is True instead of False"
    )


def test_the_ticket_is_refused_after_the_priming_and_of_no_other_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    server = SimpleNamespace(
        events=lambda: [TokenEvent(0, "h3", OWN, True), LOAD],
        close_connections=lambda _listener: done.append("close"),
        rotate_ticket_keys=lambda: done.append("rotate"),
    )
    loads = Loads(SimpleNamespace(server=server, addresses={}), FULL_HANDSHAKE)  # type: ignore[arg-type]
    for kind in (Load("0-rtt"), REFUSED):
        done.clear()
        loads._load(Primed(), PAGE, kind)
        assert done == (["close", "rotate"] if kind is REFUSED else ["close"])


def test_a_repeated_load_is_a_self_check_of_its_condition_and_primes_another_alias() -> None:
    kinds = [
        Load("1-rtt", primed_alias=0),
        Load("0-rtt"),
        Load("0-rtt", "no-token", token=False),
    ]
    assert [kind.repeated for kind in kinds] == [
        Load("1-rtt", role=Role.SELF_CHECK, primed_alias=1),
        Load("0-rtt", role=Role.SELF_CHECK),
        Load("0-rtt", "no-token", role=Role.SELF_CHECK, token=False),
    ]


def test_where_a_token_needs_a_ticket_it_is_kept_only_behind_that_of_the_same_connection() -> None:
    def token(behind_ticket: bool, remote: str) -> TokenEvent:
        return TokenEvent(0, "h3", remote, behind_ticket)

    for behind in (True, False):
        assert keeps_token([token(behind, OWN), token(not behind, OTHER), LOAD], HOST, needs_ticket=True) is behind
        assert keeps_token([token(behind, OWN), LOAD], HOST, needs_ticket=False) is True
        first = replace(LOAD, remote=OTHER)
        assert (
            keeps_token([token(not behind, OTHER), first, token(behind, OWN), LOAD], HOST, needs_ticket=True) is behind
        )
    assert keeps_token([token(False, OWN), LOAD, token(True, OWN)], HOST, needs_ticket=True) is True, "sent again"
    assert keeps_token([token(True, OWN), LOAD, token(False, OWN)], HOST, needs_ticket=True) is True
    assert keeps_token([token(True, OTHER), LOAD], HOST, needs_ticket=False) is None
    assert keeps_token([token(True, OWN), replace(LOAD, host="other.example")], HOST, needs_ticket=True) is None


class Primed(Browser):
    """A browser that drives nothing."""

    title, token_needs_ticket, faults, late = "nothing", True, (), TimeoutError

    def __init__(self) -> None:
        self.contexts = 0
        self.opened: list[str] = []

    def close(self) -> None:
        """Nothing to end."""

    def _open(self, url: str) -> None:
        self.opened.append(url)

    def _run(self, function: str, argument: object) -> str:
        return ""

    @contextmanager
    def _context(self) -> Iterator[None]:
        self.contexts += 1
        yield

    def _measured(self, host: str, begin: float, close_connections: Any) -> PageLoad:
        return PageLoad(0.0, 0.0, True, {}, {}, (), "{}")


def test_priming_starts_over_in_another_context_until_it_left_what_is_asked_for() -> None:
    browser, left = Primed(), iter([False, False, True, True])
    browser.load(HOST, prime_host=HOST, close_connections=lambda: None, primed=lambda: next(left))
    assert browser.contexts == 3
    assert [url.endswith(f"{HOST}/") for url in browser.opened] == [False, False, False, True], "the page came twice"
    browser, left = Primed(), iter([True, False, True, True])  # a token that comes while the page is loaded
    browser.load(HOST, prime_host=HOST, close_connections=lambda: None, primed=lambda: next(left))
    assert browser.contexts == 2
    with pytest.raises(BrowserError, match="was primed 16 times"):
        browser.load(HOST, prime_host=HOST, close_connections=lambda: None, primed=lambda: False)


def test_a_resource_has_the_time_that_the_server_took_for_it() -> None:
    entry = dict.fromkeys(Resources.sources("PerformanceResourceTiming").values(), 1)
    urls = [f"https://{HOST}/a.css?v=1", f"https://{HOST}/b.js", f"https://{PAGE.aliases[0]}/a.css"]
    load = PageLoad(0.0, 0.0, True, {}, {}, tuple(entry | {"name": url} for url in urls), "{}")
    row = {column.name: "x" for column in Resources.columns if column.required}
    rows = resource_rows(
        row, load, [LOAD, replace(LOAD, path="/a.css"), replace(LOAD, path="/b.js", done_ns=1_250_000)]
    )
    assert [row["server_ms"] for row in rows] == [2.5, 0.25, None]


def exchanged(protocol: dns.Protocol, resumption: dns.Resumption, error: str | None = None) -> dns.ExchangeResult:
    return dns.ExchangeResult(
        protocol=protocol, resumption=resumption, priming=False, started_s=1.0, handshake_ms=0.0, query_ms=15.0,
        total_ms=15.0, cpu_ms=1.0, error=error, rcode="NOERROR", answers=(), local_port=4000,
        early_data_accepted=True if protocol is dns.Protocol.DOQ else None,
    )  # fmt: skip


QUERY = QueryEvent(
    time_ns=1, listener="doq", remote=OWN, name="a.", type="A", rcode="NOERROR", handshake_complete=False, resumed=True,
    address_validated=True,
)  # fmt: skip


def test_early_data_of_an_exchange_is_by_the_servers_word() -> None:
    """The client's TLS says that it was accepted, also where the query came after the handshake."""
    early = exchanged(dns.Protocol.DOQ, dns.Resumption.EARLY_DATA)
    results = exchange_columns(early, [replace(QUERY, remote=OTHER), QUERY])
    assert (results["early_data_accepted"], results["address_validated"], results["error"]) == (True, True, None)
    results = exchange_columns(early, [replace(QUERY, handshake_complete=True, address_validated=False)])
    assert (results["early_data_accepted"], results["address_validated"]) == (False, False)
    assert results["error"] == "not as expected: early_data_accepted is False instead of True"


@pytest.mark.parametrize("events", [[], [replace(QUERY, remote=OTHER)], [replace(QUERY, listener="doh3")]])
def test_an_exchange_that_the_server_does_not_know_is_an_error(events: list[Event]) -> None:
    result = exchange_columns(exchanged(dns.Protocol.DOQ, dns.Resumption.NONE), events)
    assert (result["error"], result["early_data_accepted"]) == ("the server saw no query of this exchange", None)
    failed = exchange_columns(exchanged(dns.Protocol.DOQ, dns.Resumption.NONE, "no answer in time"), events)
    assert failed["error"] == "no answer in time"


def test_outside_quic_there_is_nothing_to_prove() -> None:
    results = exchange_columns(exchanged(dns.Protocol.DOT, dns.Resumption.TICKET), [])
    assert (results["error"], results["early_data_accepted"]) == (None, None)
    assert "address_validated" not in results


def test_a_mismatch_names_every_value_that_differs() -> None:
    evidence = {"session_resumed": True, "connection_count": 2, "server_ms": 1.5}
    assert mismatch(evidence, {"session_resumed": True, "connection_count": 2}) is None
    assert mismatch(evidence, {"session_resumed": False, "connection_count": 1}) == (
        "not as expected: session_resumed is True instead of False, connection_count is 2 instead of 1"
    )


TABLES_OF_CONDITIONS = [
    name for name, study in STUDIES.items() if not study.measured_by and issubclass(study.measurer, ConditionsMeasurer)
]


def test_six_studies_and_early_data_are_tables_of_conditions() -> None:
    assert set(TABLES_OF_CONDITIONS) == {
        "coalescing", "combinations", "browsers", "serialisation", "key-share", "address-token", "early-data",
    }  # fmt: skip


@pytest.mark.parametrize("name", TABLES_OF_CONDITIONS)
def test_conditions_of_a_study_have_columns_that_distinguish_them(name: str) -> None:
    measurer: Any = STUDIES[name].measurer
    keys = [(one.table, *sorted(one.columns.items())) for one in (measurer.table | measurer.checks).values()]
    assert len(set(keys)) == len(keys)
    for table, *columns in keys:
        assert {column for column, _ in columns} <= {column.name for column in TABLES[table].columns}


@pytest.mark.parametrize("name", TABLES_OF_CONDITIONS)
def test_a_cluster_worker_receives_the_measurer_by_its_name(name: str) -> None:
    measurer = STUDIES[name].measurer
    assert pickle.loads(pickle.dumps(measurer)) is measurer
    assert measurer.__module__ == f"{STUDIES[name].package}.measure"


def test_conditions_that_share_an_instrument_open_it_once_and_it_is_closed() -> None:
    done: list[str] = []

    @dataclass(frozen=True)
    class Counted(Condition):
        key: str
        table = "tcp_rtts"
        columns: ClassVar[dict[str, Any]] = {}

        @property
        def tool(self) -> str:
            return self.key

        def open(self, context: RoundContext, sharing: Sequence[Any]) -> Any:
            done.append(f"open {self.tool} for {len(sharing)}")
            return SimpleNamespace(close=lambda: done.append(f"close {self.tool}"))

        def warm_up(self, tool: Any, page: PageSpec) -> None:
            raise ValueError

        def observe(self, tool: Any, page: PageSpec, row: dict[str, Any]) -> Any:
            return {self.table: [row]}

    conditions = {"a": Counted("one"), "b": Counted("two"), "c": Counted("one")}
    plan = sized("serialisation", "smoke")
    context = RoundContext(plan, "c", {PAGE.name: PAGE}, *[None] * 4)  # type: ignore[arg-type]
    with measuring(conditions)(context) as measurer:
        cell = Cell("dsl", PAGE.name)
        assert measurer.conditions(cell) == ["a", "b", "c"]
        assert measurer.occasional_conditions(cell, 0) == []
        [row] = measurer.measure("b", cell, 3, 1)["tcp_rtts"]
        assert (row["round"], row["page"], row["position"], row["study"]) == (3, PAGE.name, 1, "serialisation")
    assert done == ["open one for 2", "open two for 1", "close two", "close one"]


def requests_of(*left_out: str, status: int = 200) -> list[RequestEvent]:
    """The server's events on a load of the page; the resources named are not requested, or fail with a status."""
    paths = [resource.path for resource in PAGE.resources]
    events = [replace(LOAD, path=path, time_ns=LOAD.time_ns + number) for number, path in enumerate(paths)]
    if status != 200:
        return [replace(event, status=status) if event.path in left_out else event for event in events]
    return [event for event in events if event.path not in left_out]


def browser_load(*entries: dict[str, object]) -> PageLoad:
    return PageLoad(0.0, 0.0, True, {}, {}, entries, "")


def test_a_load_with_all_its_resources_is_complete() -> None:
    priming = [
        replace(LOAD, path="/robots.txt", time_ns=5, status=404),
        *requests_of(*[r.path for r in PAGE.resources[1:]]),
    ]
    icon = replace(LOAD, path="/favicon.ico", time_ns=LOAD.time_ns + 99, status=404)
    elsewhere = replace(LOAD, host="www.warmup.example", path="/x", time_ns=LOAD.time_ns + 99, status=404)
    again = [replace(event, time_ns=event.time_ns + 50) for event in requests_of()]
    assert incomplete([*priming, *again, icon, elsewhere], PAGE, browser_load()) == {}
    first = PAGE.resources[1].path
    too_early = replace(LOAD, path=first, time_ns=LOAD.time_ns + 50, status=425)
    assert incomplete([too_early, *again], PAGE, browser_load()) == {}


def test_a_load_in_which_a_resource_fails_is_an_error_with_the_reason() -> None:
    last = PAGE.resources[-1].path
    error = incomplete(requests_of(last, status=404), PAGE, browser_load())["error"]
    assert error == f"1 resource failed, the first is https://{HOST}{last} (404)"
    gone = replace(LOAD, path="/gone.png", time_ns=LOAD.time_ns + 99, status=404)
    error = incomplete([*requests_of(), gone], PAGE, browser_load())["error"]
    assert error == f"1 resource failed, the first is https://{HOST}/gone.png (404)"
    seen = {"name": f"https://{HOST}/x%2fy.png?z=1", "responseStatus": 503}
    error = incomplete(requests_of(), PAGE, browser_load(seen))["error"]
    assert error == f"1 resource failed, the first is https://{HOST}/x%2Fy.png (503)"


def test_a_load_that_lacks_a_resource_is_an_error_with_the_reason() -> None:
    lacking = [resource.path for resource in PAGE.resources[-2:]]
    error = incomplete(requests_of(*lacking), PAGE, browser_load())["error"]
    assert error == f"2 resources not requested, the first is https://{HOST}{lacking[0]}"
    # Requests of the priming load do not count.
    later = [replace(event, time_ns=event.time_ns + 50) for event in requests_of(*lacking)]
    assert incomplete([*requests_of(), *later], PAGE, browser_load())["error"] == error
