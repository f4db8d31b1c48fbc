"""Every transport and resumption with the real server, in a private network namespace, with a packet capture.

This file is also the program that makes all measurements once inside the namespace; the tests read its output.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from crosslayer import resources
from crosslayer.dns import (
    Capture,
    ClientSettings,
    ExchangeResult,
    Protocol,
    Question,
    Resolver,
    Resumption,
    SessionStore,
    exchange,
    tcp_rtt,
)
from crosslayer.errors import CrosslayerError
from crosslayer.testbed import namespaces
from crosslayer.testbed import server as testbed_server

NAME = "www.example.org"
ADDRESS = "10.53.1.1"
SERVER_ADDRESS = "10.53.0.2"
CONDITIONS = [(protocol, resumption) for protocol in Protocol for resumption in protocol.transport.resumptions]
RESUMED = [condition for condition in CONDITIONS if condition[1] is not Resumption.NONE]
QUIC = (Protocol.DOH3, Protocol.DOQ)
LARGE_BYTES = 5113

Row = dict[str, Any]


# Inside the namespace


@contextmanager
def running_server(folder: Path, **options: Any) -> Iterator[testbed_server.Server]:
    pages = folder / "pages" / "page"
    (pages / "body").mkdir(parents=True, exist_ok=True)
    (pages / "body" / "0").write_bytes(b"<p>page")
    resource = {"path": "/", "file": "body/0", "content_type": "text/html", "content_encoding": "", "wire_bytes": 7}
    manifest = {"page": "page", "host": NAME, "aliases": [], "resources": [resource]}
    (pages / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    with testbed_server.Server.start(
        subprocess.Popen, pages_dir=folder / "pages", addresses={NAME: ADDRESS}, folder=folder / "run", **options
    ) as server:
        yield server


def row_of(result: ExchangeResult, server: testbed_server.Server) -> Row:
    """The exchange with its events in the server log, matched by the client's port."""
    remote = f":{result.local_port}"
    events = [event for event in server.events() if event.remote.endswith(remote)]
    queries = [event for event in events if isinstance(event, testbed_server.QueryEvent)]
    connections = [event for event in events if isinstance(event, testbed_server.ConnectionEvent)]
    return asdict(result) | {
        "server": [asdict(event) for event in queries],
        "connections": [asdict(event) for event in connections],
    }


def settled_stats(server: testbed_server.Server) -> dict[str, dict[str, int]]:
    """The server's counts after it has read every close; the wait of 2 s is far shorter than its idle timeout."""
    until = time.monotonic() + 2
    while any((stats := server.stats())["open"].values()) and time.monotonic() < until:
        time.sleep(0.01)
    return stats


def captures_under_traffic(number: int) -> int:
    """Open and close captures one after the other while a thread sends datagrams; returns how many were opened."""
    ended = threading.Event()

    def send() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            while not ended.is_set():
                sender.sendto(bytes(100), (SERVER_ADDRESS, 9))

    sending = threading.Thread(target=send)
    sending.start()
    try:
        for _ in range(number):
            Capture().close()
    finally:
        ended.set()
        sending.join()
    return number


def measure(folder: Path) -> dict[str, Any]:
    for command in ("link set lo up", *(f"address add {a}/32 dev lo" for a in (SERVER_ADDRESS, ADDRESS))):
        subprocess.run([namespaces.tool("ip"), *command.split()], check=True)
    question = Question(NAME)
    results: dict[str, Any] = {"captures under traffic": captures_under_traffic(20)}
    with Capture() as capture:
        with running_server(folder / "plain") as running:
            server = Resolver(SERVER_ADDRESS, NAME, running.ca_file)
            for protocol, resumption in CONDITIONS:
                store = SessionStore()
                if resumption is not Resumption.NONE:
                    priming = exchange(server, question, protocol, sessions=store, priming=True, capture=capture)
                    results[f"{protocol} priming"] = row_of(priming, running)
                result = exchange(server, question, protocol, resumption, sessions=store, capture=capture)
                results[f"{protocol} {resumption}"] = row_of(result, running)
            for protocol in Protocol:
                absent = exchange(server, Question("absent.example.org"), protocol, capture=capture)
                results[f"{protocol} absent"] = row_of(absent, running)
            by_address = Resolver(SERVER_ADDRESS, SERVER_ADDRESS, running.ca_file)
            for protocol in (Protocol.DOT, Protocol.DOH, *QUIC):
                results[f"{protocol} by address"] = row_of(exchange(by_address, question, protocol), running)
            for protocol in (Protocol.DOH, Protocol.DOH3):
                post = exchange(server, question, protocol, settings=ClientSettings(http_method="POST"))
                results[f"{protocol} POST"] = row_of(post, running)
            for protocol, resumption in RESUMED:
                store = SessionStore()
                exchange(server, question, protocol, sessions=store, priming=True)
                running.rotate_ticket_keys()
                refused = exchange(server, question, protocol, resumption, sessions=store)
                results[f"{protocol} {resumption} after rotation"] = row_of(refused, running)
            running.set_certificate(LARGE_BYTES)
            for protocol in (Protocol.DOT, Protocol.DOH, *QUIC):
                store = SessionStore()
                large = exchange(server, question, protocol, sessions=store, priming=True, capture=capture)
                results[f"{protocol} large"] = row_of(large, running)
                resumed = exchange(server, question, protocol, Resumption.TICKET, sessions=store)
                results[f"{protocol} large, resumed"] = row_of(resumed, running)
            for protocol in QUIC:
                for name, resumption, token in (("token", Resumption.NONE, True), ("ticket", Resumption.TICKET, False)):
                    store = SessionStore()
                    exchange(server, question, protocol, sessions=store, priming=True)
                    alone = exchange(server, question, protocol, resumption, sessions=store, token=token)
                    results[f"{protocol} {name} alone"] = row_of(alone, running)
            missing = exchange(server, question, Protocol.DOQ, sessions=SessionStore(), token=True)
            results["no token"] = asdict(missing)
            results["tcp_rtt"] = tcp_rtt(server)
            results["stats"] = settled_stats(running)
        with running_server(folder / "retry", retry=True) as running:
            server = Resolver(SERVER_ADDRESS, NAME, running.ca_file)
            for protocol in QUIC:
                for resumption in protocol.transport.resumptions:
                    store = SessionStore()
                    exchange(server, question, protocol, sessions=store, priming=True)
                    result = exchange(server, question, protocol, resumption, sessions=store, capture=capture)
                    results[f"{protocol} {resumption} with retry"] = row_of(result, running)
        with running_server(folder / "late", early_data=False) as running:
            server = Resolver(SERVER_ADDRESS, NAME, running.ca_file)
            for protocol in QUIC:
                store = SessionStore()
                exchange(server, question, protocol, sessions=store, priming=True)
                result = exchange(server, question, protocol, Resumption.EARLY_DATA, sessions=store)
                results[f"{protocol} without early data"] = row_of(result, running)
    return results


# The tests


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    try:
        resources.locate("server")
    except CrosslayerError as error:
        pytest.skip(str(error))
    namespace = ["unshare", "--user", "--map-root-user", "--net", "--pid", "--fork", "--kill-child"]
    allowed = subprocess.run([*namespace, "true"], capture_output=True, text=True, check=False)
    if allowed.returncode:
        pytest.skip(f"no private network namespace here: {allowed.stderr.strip()}")
    folder = tmp_path_factory.mktemp("dns")
    done = subprocess.run(
        [*namespace, sys.executable, __file__, str(folder)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    results: dict[str, Any] = json.loads(done.stdout)
    return results


def assert_good(row: Row) -> None:
    assert row["error"] is None, row["error"]
    assert (row["rcode"], row["answers"]) == ("NOERROR", [ADDRESS])
    assert row["total_ms"] > 0
    (query,) = row["server"]
    assert (query["name"], query["type"], query["rcode"]) == (f"{NAME}.", "A", "NOERROR")


@pytest.mark.parametrize(("protocol", "resumption"), CONDITIONS)
def test_every_condition_is_answered_and_the_server_agrees(
    rows: dict[str, Any], protocol: Protocol, resumption: Resumption
) -> None:
    row = rows[f"{protocol} {resumption}"]
    assert_good(row)
    (query,) = row["server"]
    resumed = resumption is not Resumption.NONE
    early = resumption is Resumption.EARLY_DATA
    assert query["listener"] == protocol.lower().removeprefix("do" if protocol in ("DoUDP", "DoTCP") else "")
    if protocol is Protocol.DOT:
        # CoreDNS's own listener gives its plugins no TLS state, so the connection's event has it.
        (connection,) = row["connections"]
        assert connection["resumed"] is resumed
    else:
        assert query["resumed"] is resumed
    assert query["handshake_complete"] is not early
    tls = protocol not in (Protocol.DOUDP, Protocol.DOTCP)
    assert row["session_resumed"] is (resumed if tls else None)
    assert row["tls_version"] == ("TLSv1.3" if tls else None)
    assert row["early_data_accepted"] is (early if protocol in QUIC else None)
    assert row["quic_version"] == ("v1" if protocol in QUIC else None)
    assert row["retry_received"] is (False if protocol in QUIC else None)
    assert (row["handshake_ms"] == 0) is (early or protocol is Protocol.DOUDP)


@pytest.mark.parametrize("protocol", [Protocol.DOT, Protocol.DOH, *QUIC])
def test_priming_exchanges_are_full_and_marked(rows: dict[str, Any], protocol: Protocol) -> None:
    row = rows[f"{protocol} priming"]
    assert_good(row)
    assert row["priming"] is True
    assert row["session_resumed"] is False
    assert rows[f"{protocol} none"]["priming"] is False


def sizes(row: Row, what: str) -> tuple[int, int, int, int]:
    """Handshake sent and received, query sent and received."""
    handshake_sent, handshake_received, query_sent, query_received = (
        row[f"{phase}_{direction}_{what}"] for phase in ("handshake", "query") for direction in ("sent", "received")
    )
    return handshake_sent, handshake_received, query_sent, query_received


def test_sizes_of_doudp_are_exact(rows: dict[str, Any]) -> None:
    # UDP header, a query of 44 bytes, an answer longer by one A record, whose owner name may be uncompressed.
    row = rows["DoUDP none"]
    assert sizes(row, "packets") == (0, 0, 1, 1)
    assert sizes(row, "bytes")[:3] == (0, 0, 8 + 44)
    assert 8 + 44 < row["query_received_bytes"] <= 8 + 44 + 31


def test_sizes_of_dotcp_are_exact(rows: dict[str, Any]) -> None:
    # Handshake: SYN 40 and ACK 32 sent, SYN-ACK 40 received. Then query with length prefix, ACK of the answer, and FIN.
    row = rows["DoTCP none"]
    # Without a delay on the link, the server's FIN may be acknowledged before the client has closed.
    acknowledged = row["query_sent_packets"] - 3
    assert acknowledged in (0, 1)
    assert sizes(row, "packets")[:2] == (2, 1)
    assert sizes(row, "bytes")[:3] == (72, 40, (32 + 2 + 44) + 32 + 32 + 32 * acknowledged)
    # The answer, and the server's ACK of the query if it is a separate packet.
    answer_bytes = rows["DoUDP none"]["query_received_bytes"] - 8
    assert row["query_received_bytes"] in (32 + 2 + answer_bytes, 32 + 32 + 2 + answer_bytes)


@pytest.mark.parametrize("protocol", QUIC)
def test_sizes_of_quic(rows: dict[str, Any], protocol: Protocol) -> None:
    full, early = rows[f"{protocol} none"], rows[f"{protocol} early-data"]
    # Two padded datagrams: the client hello, and the flight with the client's Finished.
    assert (full["handshake_sent_packets"], full["handshake_sent_bytes"]) == (2, 2 * 1208)
    assert full["handshake_received_bytes"] >= 1208
    # Query, acknowledgement and close together are smaller than one padded datagram.
    assert full["query_sent_packets"] >= 2
    assert 128 < full["query_sent_bytes"] < 600
    assert full["query_received_bytes"] > 468
    assert sizes(early, "packets")[:2] == (0, 0)
    assert early["query_sent_bytes"] >= 2 * 1208
    assert early["query_received_bytes"] > 468


@pytest.mark.parametrize("protocol", [Protocol.DOT, Protocol.DOH])
def test_sizes_of_tls_on_tcp(rows: dict[str, Any], protocol: Protocol) -> None:
    full, resumed = rows[f"{protocol} none"], rows[f"{protocol} ticket"]
    # At least SYN, ACK, client hello and Finished. A resumed handshake does not receive the certificate.
    assert full["handshake_sent_packets"] >= 4
    # With one key share, the client hello fits in one packet.
    assert full["handshake_sent_bytes"] < 1000
    assert full["handshake_received_bytes"] > resumed["handshake_received_bytes"] + 400
    assert full["query_sent_bytes"] > 128
    assert full["query_received_bytes"] > 468


@pytest.mark.parametrize("protocol", Protocol)
def test_a_name_that_does_not_exist(rows: dict[str, Any], protocol: Protocol) -> None:
    row = rows[f"{protocol} absent"]
    assert (row["error"], row["rcode"], row["answers"]) == ("rcode NXDOMAIN", "NXDOMAIN", [])
    assert row["total_ms"] > 0


@pytest.mark.parametrize("protocol", [Protocol.DOT, Protocol.DOH, *QUIC])
def test_a_certificate_may_be_for_the_address(rows: dict[str, Any], protocol: Protocol) -> None:
    assert_good(rows[f"{protocol} by address"])
    # Without a capture, there are no sizes.
    assert all(rows[f"{protocol} by address"][f"query_{what}"] is None for what in ("sent_bytes", "received_packets"))


@pytest.mark.parametrize("protocol", [Protocol.DOH, Protocol.DOH3])
def test_post(rows: dict[str, Any], protocol: Protocol) -> None:
    assert_good(rows[f"{protocol} POST"])


@pytest.mark.parametrize(("protocol", "resumption"), RESUMED)
def test_a_ticket_refused_is_a_failed_observation(
    rows: dict[str, Any], protocol: Protocol, resumption: Resumption
) -> None:
    row = rows[f"{protocol} {resumption} after rotation"]
    assert (row["error"], row["session_resumed"], row["answers"]) == ("session not resumed", False, [ADDRESS])
    (query,) = row["server"]
    assert (query["resumed"], query["handshake_complete"]) == (False, True)


@pytest.mark.parametrize("protocol", QUIC)
def test_early_data_a_server_does_not_take_is_a_failed_observation(rows: dict[str, Any], protocol: Protocol) -> None:
    row = rows[f"{protocol} without early data"]
    assert (row["error"], row["session_resumed"]) == ("early data not accepted", True)
    assert row["answers"] == [ADDRESS]


@pytest.mark.parametrize("protocol", QUIC)
def test_a_token_spares_the_retry(rows: dict[str, Any], protocol: Protocol) -> None:
    for resumption in Resumption:
        row = rows[f"{protocol} {resumption} with retry"]
        assert_good(row)
        assert row["retry_received"] is (resumption is Resumption.NONE)
    assert rows[f"{protocol} none with retry"]["handshake_sent_packets"] == 3
    assert rows[f"{protocol} ticket with retry"]["handshake_sent_packets"] == 2
    (query,) = rows[f"{protocol} early-data with retry"]["server"]
    assert query["handshake_complete"] is False


@pytest.mark.parametrize("protocol", [Protocol.DOT, Protocol.DOH, *QUIC])
def test_a_certificate_of_any_size_is_shown_verified_and_counted(rows: dict[str, Any], protocol: Protocol) -> None:
    row, resumed = rows[f"{protocol} large"], rows[f"{protocol} large, resumed"]
    assert_good(row)
    assert row["certificate_bytes"] == LARGE_BYTES
    assert row["handshake_received_bytes"] > LARGE_BYTES
    sent = (1208, 1) if protocol in QUIC else (40, 1)
    assert (row["first_flight_bytes"], row["first_flight_packets"]) == sent
    assert 0 < rows[f"{protocol} none"]["certificate_bytes"] < 1000
    assert_good(resumed)
    assert resumed["certificate_bytes"] == 0


@pytest.mark.parametrize("protocol", QUIC)
def test_ticket_and_token_are_brought_one_without_the_other(rows: dict[str, Any], protocol: Protocol) -> None:
    token, ticket = rows[f"{protocol} token alone"], rows[f"{protocol} ticket alone"]
    for row in (token, ticket):
        assert_good(row)
    assert (token["session_resumed"], ticket["session_resumed"]) == (False, True)
    assert (token["certificate_bytes"], ticket["certificate_bytes"]) == (LARGE_BYTES, 0)
    assert [row["server"][0]["address_validated"] for row in (token, ticket)] == [True, False]


def test_without_a_token_there_is_no_exchange_with_one(rows: dict[str, Any]) -> None:
    assert rows["no token"]["error"] == "no address-validation token: a priming exchange must come first"


def test_a_capture_opens_while_packets_arrive(rows: dict[str, Any]) -> None:
    assert rows["captures under traffic"] == 20


def test_tcp_rtt(rows: dict[str, Any]) -> None:
    assert 0 < rows["tcp_rtt"] < 100


def test_connections_are_closed_not_left_to_time_out(rows: dict[str, Any]) -> None:
    for listener in ("doq", "h3"):
        assert rows["stats"]["connections"][listener] > 0
        assert rows["stats"]["open"].get(listener, 0) == 0


if __name__ == "__main__":
    print(json.dumps(measure(Path(sys.argv[1]))))
