"""The server based on aioquic in virtual time: protocols, early data, tokens, and handling of bad input.

This file is also the program that examines the server once in a guest; the tests read its output.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import time
from typing import Any

import pytest

from crosslayer import dns, pages
from crosslayer.discover import discover
from crosslayer.discover.behaviour import CHECKS, ExaminedServer, examine
from crosslayer.discover.support import ProbedHost
from crosslayer.dns.exchange import CLIENTS
from crosslayer.guest import inside, run_attached
from crosslayer.h3 import PageClient
from crosslayer.links import load_profiles
from crosslayer.testbed import namespaces
from crosslayer.testbed.second_server import AioquicServer, serving
from crosslayer.testbed.server import ConnectionEvent, QueryEvent, RequestEvent, ServerError, TokenEvent
from crosslayer.testbed.testbed import Testbed
from crosslayer.vocabulary import Protocol

SPECS = pages.load_pages(pages.find_spec_dir())
HOST = SPECS["wikipedia.org"].host
PROGRAM = [sys.executable, "-m", "tests.integration.test_second_server"]
QUIC = (Protocol.DOH3, Protocol.DOQ)
_SETTINGS = dns.ClientSettings(timeout_s=3.0)


def findings(server: AioquicServer, rtt_ms: float) -> list[dict[str, Any]]:
    """Results of the checks of `crosslayer servers`."""
    host = ProbedHost("localhost", server.address)
    question = dns.Question(HOST)
    support = {
        Protocol(row.transport): row
        for rows in discover([host], question=question, packets_per_s=2000.0, timeout_s=3.0, unanswered=True)
        for row in rows
        if row.port == dns.DEFAULT_PORTS[Protocol(row.transport)]
    }
    examined = ExaminedServer("localhost", server.address, support, question, rtt_ms, 1, _SETTINGS)
    return [dataclasses.asdict(finding) for finding in examine(examined, "0")]


def status_of(client: PageClient, path: str, host: str = HOST) -> str:
    """HTTP status of a request."""
    client._deadline = time.monotonic() + _SETTINGS.timeout_s
    response = client._core.get(host, path, "", time.monotonic())
    client._run_until(lambda: response.ended)
    return response.headers[b":status"].decode()


def refusal_of(server: AioquicServer, command: str, **parameters: str) -> str:
    """Error of the control socket for a command that the server refuses; empty if it accepts the command."""
    try:
        server.command(command, **parameters)
    except ServerError as refused:
        return refused.what
    return ""


def tickets_of_others(server: AioquicServer) -> dict[str, Any]:
    """Whether the page's address accepts a ticket of DoH3, one of DoQ, and one of DoH3 after a rotation of ticket keys.

    Values are resumption and early data, by protocol.
    """
    page = dns.Resolver(server.addresses[HOST], "localhost", server.ca_file)
    resolver = dns.Resolver(server.address, "localhost", server.ca_file)
    accepted = {}
    for protocol, rotated in ((Protocol.DOH3, False), (Protocol.DOQ, False), (Protocol.DOH3, True)):
        query = dns.build_query(dns.Question(HOST), protocol, _SETTINGS)
        with CLIENTS[protocol](resolver, _SETTINGS) as first:
            first.connect(query)
            first.query(query)
            first.wait_for_ticket()
            session = first.session
        if rotated:
            server.rotate_ticket_keys()
        with PageClient(page, _SETTINGS, session=session, early_data=True) as client:
            client.connect()
            client.finish(client.begin(SPECS["wikipedia.org"]))
            accepted[f"{protocol}{' rotated' if rotated else ''}"] = [
                client.handshake.session_resumed,
                client.handshake.early_data_accepted,
            ]
    return accepted


def measure() -> dict[str, Any]:
    """All observations of the tests."""
    seen: dict[str, Any] = {}
    names = ("wikipedia.org", "example.org", "warmup")
    with (
        Testbed() as testbed,
        testbed.serve(SPECS, resolved=names) as (first, addresses),
        serving(first, addresses, testbed.folder / "second") as server,
    ):
        check = testbed.set_link(load_profiles()["4g"])
        assert check.rtt_ms is not None
        seen["tickets"] = tickets_of_others(server)
        server.events()
        with PageClient(dns.Resolver(server.addresses[HOST], HOST, server.ca_file), _SETTINGS) as client:
            client.connect()
            client.finish(client.begin(SPECS["wikipedia.org"]))
            client.wait_for_ticket()
            seen["open"] = server.stats()["open"]
            seen["statuses"] = [
                status_of(client, "/nowhere"),
                status_of(client, "/", "www.nowhere.example"),
                status_of(client, "/dns-query?dns=!"),
                status_of(client, "/dns-query?dns=AAAA"),
                status_of(client, "/dns-query"),
            ]
            seen["closed"] = server.close_connections("h3")
        events = server.events()
        kinds = (ConnectionEvent, RequestEvent, QueryEvent, TokenEvent)
        seen["events"] = {kind.__name__: sum(isinstance(event, kind) for event in events) for kind in kinds}
        seen["refused"] = [
            refusal_of(server, "early-data", mode="late"),
            refusal_of(server, "certificate"),
            refusal_of(server, "close-connections", listener="dot"),
        ]
        seen["findings"] = findings(server, check.rtt_ms)
        server.raise_if_dead()
        seen["stopped"] = server.restarted().stats()["open"]
    return seen


@pytest.fixture(scope="module")
def examined(testbed_machine: None, virtual_clock: list[str]) -> dict[str, Any]:
    done = subprocess.run(PROGRAM, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_it_answers_in_the_round_trips_of_each_transport(examined: dict[str, Any]) -> None:
    rtts = {(one["check"], one["transport"]): one["value"] for one in examined["findings"] if one["unit"] == "RTT"}
    assert rtts["answer", "DoUDP"] == pytest.approx(1, abs=0.02)
    for protocol in QUIC:
        assert rtts["answer", protocol] == pytest.approx(2, abs=0.03)
        assert rtts["resumption", protocol] == pytest.approx(2, abs=0.03)
        assert rtts["early-answer", protocol] == pytest.approx(1, abs=0.03)


def test_it_passes_every_check_of_its_protocols(examined: dict[str, Any]) -> None:
    failed = {
        (one["check"], one["transport"]): one["detail"] for one in examined["findings"] if one["result"] == "failed"
    }
    assert failed == {}
    passed = {(one["check"], one["transport"]) for one in examined["findings"] if one["result"] == "succeeded"}
    wanted = {(check.name, protocol) for check in CHECKS for protocol in check.transports if protocol in QUIC}
    assert passed >= wanted


def test_dns_and_web_share_their_tickets(examined: dict[str, Any]) -> None:
    assert examined["tickets"] == {
        "DoH3": [True, True],  # at another address
        "DoQ": [False, False],  # early data is limited to one application protocol
        "DoH3 rotated": [False, False],
    }


def test_what_is_not_there_or_malformed_has_its_status(examined: dict[str, Any]) -> None:
    assert examined["statuses"] == ["404", "421", "400", "400", "400"]


def test_it_reports_what_happened_and_obeys(examined: dict[str, Any]) -> None:
    count = examined["events"]
    assert count["ConnectionEvent"] == count["TokenEvent"] == 1
    assert count["RequestEvent"] == len(SPECS["wikipedia.org"].resources) + 5
    assert count["QueryEvent"] == 0
    assert examined["open"]["h3"] >= 1
    assert examined["closed"] >= 1
    assert examined["stopped"] == {"doq": 0, "h3": 0}


def test_it_refuses_commands_that_it_cannot_carry_out(examined: dict[str, Any]) -> None:
    late, certificate, listener = examined["refused"]
    assert "no mode 'late'" in late
    assert "unknown command 'certificate'" in certificate
    assert "unknown listener 'dot'" in listener


if __name__ == "__main__":
    if not inside():
        sys.exit(run_attached(PROGRAM, clock="virtual", seed=1))
    namespaces.enter(PROGRAM)
    print(json.dumps(measure()))
