"""`crosslayer discover` in the testbed finds exactly the transports that each resolver supports.

This file is also the program that runs `crosslayer discover` on a link and records the sent packets.
"""

from __future__ import annotations

import csv
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from crosslayer import resources
from crosslayer.discover.negotiate import ATTEMPTS, negotiate
from crosslayer.discover.pace import Pace
from crosslayer.discover.probe import decode_version_negotiation, encode_probe
from crosslayer.discover.support import ENDPOINTS
from crosslayer.dns import Protocol
from crosslayer.dns.capture import Packet, read_frame
from tests.integration.conftest import CROSSLAYER, Run

pytestmark = pytest.mark.alone

Row = dict[str, Any]

NOBODY = "10.53.0.200"
"""Address without a host."""
DO53 = {("DoUDP", 53), ("DoTCP", 53)}
OVER_TCP = {("DoT", 853), ("DoH", 443)}
TRUTH = {
    "coalesce": DO53 | OVER_TCP | {("DoH3", 443), ("DoQ", 853)},
    "coalesce-retry": DO53 | {("DoH3", 443), ("DoQ", 784)},
    "coalesce-8853": DO53 | {("DoQ", 8853)},
    "http3-853": set(),
    "bind9": DO53 | OVER_TCP,
    "bind9-tls12": DO53 | OVER_TCP,
    "knot-resolver": DO53 | OVER_TCP,
    "coredns": DO53 | OVER_TCP | {("DoH3", 443), ("DoQ", 853)},
    "dnsproxy": DO53 | OVER_TCP | {("DoH3", 443), ("DoQ", 853)},
}
"""Supported transports and ports, for resolvers whose versions all support the same."""
PROGRAMS = {"bind9": "named", "bind9-tls12": "named", "knot-resolver": "kresd", "dnsproxy": "dnsproxy"}
QUIC = {"DoH3", "DoQ"}
HERE = os.environ | {
    "PYTHONPATH": os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")]))
}
"""Environment of this file as a program: its PYTHONPATH has the checkout first, then the folders of this process."""


def is_here(name: str) -> bool:
    try:
        return name not in PROGRAMS or bool(resources.locate(PROGRAMS[name]))
    except resources.ResourceError:
        return False


# Inside the client's namespace


@contextmanager
def packets_sent() -> Iterator[list[Packet]]:
    """TCP and UDP packets sent on eth0 during the body of `with`, with kernel timestamps."""
    sent: list[Packet] = []
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as capture:
        capture.setsockopt(socket.SOL_SOCKET, 35, 1)  # SO_TIMESTAMPNS
        capture.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        capture.settimeout(0.1)
        stopping = threading.Event()

        def read() -> None:
            while True:
                try:
                    frame, ancillary, _, address = capture.recvmsg(65535, 64)
                except TimeoutError:
                    if stopping.is_set():
                        return
                    continue
                seconds, nanoseconds = struct.unpack("@qq", ancillary[0][2])
                at_ns = seconds * 1_000_000_000 + nanoseconds
                packet = read_frame(frame, at_ns=at_ns, sent=address[2] == 4, interface=address[0])
                if packet is not None and packet.sent and packet.interface == "eth0":
                    sent.append(packet)

        reader = threading.Thread(target=read)
        reader.start()
        try:
            yield sent
        finally:
            stopping.set()
            reader.join()


def count(rates: list[str], targets: list[str]) -> list[dict[str, Any]]:
    """Discover the targets once at each rate; returns the results and the packets sent meanwhile."""
    runs = []
    for rate in rates:
        command = [*CROSSLAYER, "discover", "--json", "--rate", rate, "--timeout", "0.9", *targets]
        with packets_sent() as sent:
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        runs.append(
            {
                "support": json.loads(done.stdout)["support"],
                "packets": [[p.at_ns, p.ip_protocol, p.source[1], *p.destination, p.bytes] for p in sent],
            }
        )
    return runs


# The matrix


@pytest.fixture(scope="module")
def discovered(testbed_machine: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Results for all installed resolvers, for a silent address, and for the server's address without a server."""
    matrix = tmp_path_factory.mktemp("discover") / "matrix.parquet"
    names = [name for name in TRUTH if is_here(name)]
    arguments = ["discover", "--json", "--rate", "500", "--timeout", "2", "--out", str(matrix), *names]
    done = subprocess.run(
        [*CROSSLAYER, *arguments, NOBODY, "10.53.0.2"], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) | {"file": matrix, "stderr": done.stderr}


def rows_of(discovered: dict[str, Any], target: str) -> dict[tuple[str, int], Row]:
    return {(row["transport"], row["port"]): row for row in discovered["support"] if row["target"] == target}


@pytest.mark.parametrize("name", TRUTH)
def test_each_resolver_is_measured_with_what_it_speaks_and_nothing_more(discovered: dict[str, Any], name: str) -> None:
    if not is_here(name):
        pytest.skip(f"{PROGRAMS[name]} is not installed")
    rows = rows_of(discovered, name)
    assert list(rows) == [(str(protocol), port) for protocol, port in ENDPOINTS]
    assert {endpoint for endpoint, row in rows.items() if row["supported"]} == TRUTH[name]
    for row in rows.values():
        assert (row["rcode"] == "NOERROR") is row["supported"], row
        assert (row["error"] is None) is row["supported"], row


def test_what_is_missing_is_reported_and_no_failure(discovered: dict[str, Any]) -> None:
    missing = {name for name in TRUTH if not is_here(name)}
    reported = {absent["name"] for absent in discovered["absent"]}
    assert reported - {"knot", "unbound", "dnsdist"} == missing
    assert discovered["stderr"].count("not emulated:") == len(reported)


def test_what_does_not_start_is_reported_with_its_last_output(crosslayer: Run, tmp_path: Path) -> None:
    for program, script in (("named", "echo first; echo no luck today >&2; exit 1"), ("kresd", "exit 1")):
        (tmp_path / program).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        (tmp_path / program).chmod(0o755)
    environment = os.environ | {f"CROSSLAYER_{name.upper()}": str(tmp_path / name) for name in ("named", "kresd")}
    done = crosslayer("discover", "--rate", "1000", "--timeout", "0.3", "http3-853", env=environment)
    assert done.returncode == 0, done.stderr
    assert "not emulated: bind9: did not start. Last output: no luck today\n" in done.stderr
    assert "not emulated: knot-resolver: did not start. (no output)\n" in done.stderr
    assert "0 of 1 addresses answer DNS" in done.stdout


@pytest.mark.parametrize("address", [NOBODY, "10.53.0.2"])
def test_nothing_is_discovered_where_nothing_listens(discovered: dict[str, Any], address: str) -> None:
    rows = rows_of(discovered, address).values()
    assert len(rows) == len(ENDPOINTS)
    assert [row["supported"] for row in rows] == [False] * len(rows)
    assert {row["error"] for row in rows if row["transport"] in QUIC} == {"no answer to Version Negotiation"}
    over_tcp = {row["error"] for row in rows if row["transport"] not in QUIC}
    if address == NOBODY:
        assert over_tcp <= {"timeout", "network: No route to host"}
    else:
        assert over_tcp == {"connection refused"}


def test_a_web_server_at_a_port_of_doq_is_no_resolver(discovered: dict[str, Any]) -> None:
    row = rows_of(discovered, "http3-853")["DoQ", 853]
    assert row["quic_versions"] == ["v1", "v2"]
    assert row["error"] == "quic: connection closed, code 0x178 (TLS alert no_application_protocol)"


def test_tls_of_each_kind_is_seen_as_it_is(discovered: dict[str, Any]) -> None:
    for name in filter(is_here, TRUTH):
        for (transport, _port), row in rows_of(discovered, name).items():
            if not row["supported"] or transport in ("DoUDP", "DoTCP"):
                assert row["tls_version"] is None
                assert row["certificate_subject"] is None
                continue
            assert row["tls_version"] == ("TLSv1.2" if name == "bind9-tls12" else "TLSv1.3"), row
            assert row["alpn"] == {"DoT": None, "DoH": "h2", "DoH3": "h3", "DoQ": "doq"}[transport]
            assert row["certificate_subject"] == "CN=crosslayer server"
            assert row["session_ticket"] is True, row


def test_quic_of_each_kind_is_seen_as_it_is(discovered: dict[str, Any]) -> None:
    for name in filter(is_here, TRUTH):
        for (transport, _port), row in rows_of(discovered, name).items():
            offered = (row["early_data_offered"], row["retry_received"], row["address_token"])
            if not row["supported"] or transport not in QUIC:
                assert offered == (None, None, None)
                assert row["quic_version"] is None
                continue
            # dnsproxy's DoQ sends a Retry to unknown addresses.
            retry = name == "coalesce-retry" or (name, transport) == ("dnsproxy", "DoQ")
            assert offered == (name != "coalesce-retry", retry, True), row
            assert row["quic_versions"] == ["v1", "v2"]
            assert row["quic_version"] == "v1"


def test_the_file_has_what_was_printed(discovered: dict[str, Any]) -> None:
    assert pq.read_table(discovered["file"]).to_pylist() == discovered["support"]


# On a link, at a rate


@pytest.fixture(scope="module")
def on_a_link(testbed_machine: None) -> list[dict[str, Any]]:
    done = subprocess.run(
        [*CROSSLAYER, "link", "cable", "--", sys.executable, __file__, "20,1000", "coalesce", NOBODY, "10.53.0.2"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=HERE,
    )
    assert done.returncode == 0, done.stderr
    runs: list[dict[str, Any]] = json.loads(done.stdout)
    return runs


def test_on_a_link_the_resolvers_and_the_server_at_its_end_are_detected(on_a_link: list[dict[str, Any]]) -> None:
    # Two runs in succession: the first leaves no state that disturbs the second.
    for run in on_a_link:
        for target in ("coalesce", "10.53.0.2"):
            supported = {endpoint for endpoint, row in rows_of(run, target).items() if row["supported"]}
            assert supported == TRUTH["coalesce"]
        assert not any(row["supported"] for row in rows_of(run, NOBODY).values())


def average(packets: list[list[Any]]) -> float:
    """Mean packet rate from the first to the last packet, packets per second."""
    times = [packet[0] for packet in packets]
    return len(times) / (max(times) - min(times)) * 1e9


def test_no_more_packets_leave_than_the_rate_allows(on_a_link: list[dict[str, Any]]) -> None:
    slow, fast = (run["packets"] for run in on_a_link)
    assert len(slow) > 80
    assert average(slow) <= 20
    # The rate limit determined the speed, not the link or the machine.
    assert average(fast) > average(slow)


def test_a_connection_sends_no_more_than_was_paid_for(on_a_link: list[dict[str, Any]]) -> None:
    protocols = {
        (socket.IPPROTO_UDP if protocol in (Protocol.DOUDP, Protocol.DOH3, Protocol.DOQ) else socket.IPPROTO_TCP, port):
        protocol
        for protocol, port in ENDPOINTS
    }  # fmt: skip
    for run in on_a_link:
        connections: Counter[tuple[int, int, str, int]] = Counter()
        for _at, ip_protocol, local_port, address, port, _bytes in run["packets"]:
            connections[ip_protocol, local_port, address, port] += 1
        for (ip_protocol, _local_port, _address, port), packets in connections.items():
            assert packets <= protocols[ip_protocol, port].transport.connection_packets


def test_probes_leave_in_rounds_and_only_where_nobody_answered(on_a_link: list[dict[str, Any]]) -> None:
    for run in on_a_link:
        probes: dict[tuple[str, int], int] = defaultdict(int)
        begun = [packet for packet in run["packets"] if packet[1] == socket.IPPROTO_UDP and packet[4] != 53]
        ports = Counter(packet[2] for packet in begun)
        (prober,) = {port for port, number in ports.items() if number == max(ports.values())}
        for _at, _protocol, local_port, address, port, size in begun:
            if local_port == prober:
                assert size == 8 + 1200
                probes[address, port] += 1
        # Packets to the address without a host are not sent, because its ARP request has no answer.
        assert {address for address, _port in probes} == {"10.53.0.64", "10.53.0.2"}
        assert len(probes) == 2 * 4
        for (_address, port), number in probes.items():
            assert number == (1 if port in (443, 853) else ATTEMPTS)


# Version Negotiation of a real stack


@contextmanager
def echoing(reply: bytes) -> Iterator[int]:
    """A UDP server that sends the same reply to every datagram; yields its port."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))

        def serve() -> None:
            while True:
                data, client = server.recvfrom(2000)
                if not data:
                    return
                server.sendto(reply, client)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.sendto(b"", server.getsockname())
            thread.join()


@pytest.mark.parametrize(
    "reply", [b"", b"noise", b"\x80" + bytes(30), b"\x80" + bytes(4) + b"\x08" + b"x" * 8 + b"\x08"]
)
def test_what_is_no_answer_counts_as_silence(reply: bytes) -> None:
    done: list[int] = []
    with echoing(reply) as port:
        answers = negotiate([("127.0.0.1", port)], Pace(1000), timeout_s=0.1, progress=done.append)
    assert answers == {}
    assert sum(done) == 1


def test_both_families_are_probed_at_once() -> None:
    if not socket.has_ipv6 or not Path("/proc/net/if_inet6").exists():
        pytest.skip("no IPv6 on this machine")
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as six:
        try:
            six.bind(("::1", 0))
        except OSError:
            pytest.skip("no IPv6 on this machine")

        def serve() -> None:
            probe, client = six.recvfrom(2000)
            destination, source = probe[5:14], probe[14:23]
            six.sendto(b"\x80" + bytes(4) + source + destination + bytes([0, 0, 0, 1]), client)

        thread = threading.Thread(target=serve)
        thread.start()
        endpoint = ("::1", six.getsockname()[1])
        answers = negotiate([endpoint, ("127.0.0.1", 9)], Pace(1000), timeout_s=0.3, progress=lambda _done: None)
        thread.join()
    assert answers == {endpoint: (1,)}


def test_version_0_which_the_paper_sent_is_not_answered_by_a_present_server(crosslayer: Run) -> None:
    done = crosslayer("link", "local", "--", sys.executable, __file__, env=HERE)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"forcing": [1, 0x6B3343CF], "zero": None}


def compare_versions() -> dict[str, list[int] | None]:
    """Versions in the server's answers to the probe and to the same packet with version 0."""
    answers: dict[str, list[int] | None] = {}
    ids = {"destination_id": b"\x01" * 8, "source_id": b"\x02" * 8}
    probe = encode_probe(**ids)
    for name, packet in (("zero", probe[:1] + bytes(4) + probe[5:]), ("forcing", probe)):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.settimeout(1)
            client.sendto(packet, ("10.53.0.2", 853))
            try:
                versions = decode_version_negotiation(client.recv(2000), **ids)
            except TimeoutError:
                answers[name] = None
            else:
                answers[name] = sorted(version for version in versions if version & 0x0F0F0F0F != 0x0A0A0A0A)
    return answers


# Permitted and refused targets


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["192.0.2.1"], "192.0.2.1 is not in the testbed (10.53.0.0/16), and hosts outside it are not probed"),
        (["dns.example"], "no resolver 'dns.example' in the testbed. There are: coalesce, "),
        (["10.53.0.0/24"], "is a network, and networks are not probed"),
        (["--allow-external"], "there is no target"),
    ],
)
def test_a_target_that_may_not_be_probed_is_one_line(crosslayer: Run, arguments: list[str], message: str) -> None:
    done = crosslayer("discover", *arguments)
    assert done.returncode == 1
    assert message in done.stderr
    assert done.stdout == ""


def test_from_a_link_nothing_outside_is_asked_for(crosslayer: Run) -> None:
    done = crosslayer("link", "local", "--no-server", "--", *CROSSLAYER, "discover", "--allow-external", "192.0.2.1")
    assert done.returncode == 1
    assert "hosts outside cannot be reached from a link" in done.stderr


def test_outside_is_this_machines_own_network(crosslayer: Run, tmp_path: Path) -> None:
    # The loopback address is the only host outside the testbed that the test may probe.
    targets, matrix = tmp_path / "targets", tmp_path / "matrix.csv"
    targets.write_text("127.0.0.1  # ourselves\n", encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)):
        done = crosslayer(
            "discover", "--allow-external", "--file", str(targets), "--rate", "1000", "--timeout", "0.5", "--json",
            "--out", str(matrix),
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["outside"] is True
    assert report["absent"] == []
    assert [(row["transport"], row["port"]) for row in report["support"]] == [(str(p), port) for p, port in ENDPOINTS]
    assert {row["address"] for row in report["support"]} == {"127.0.0.1"}
    with matrix.open(encoding="utf-8", newline="") as lines:
        assert len(list(csv.DictReader(lines))) == len(ENDPOINTS)


def test_stopped_it_says_how_far_it_came(testbed_machine: None) -> None:
    process = subprocess.Popen(
        [*CROSSLAYER, "discover", "--rate", "0.1", "http3-853"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    output = b""
    while b"check" not in output:  # the progress bar has appeared
        piece = process.stderr.read1()  # type: ignore[attr-defined]
        assert piece, output
        output += piece
    os.killpg(process.pid, signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert b"Stopped: 0 of 1 addresses were examined." in stderr
    assert b"Traceback" not in stderr
    assert b"0 of 0 addresses answer DNS" in stdout


if __name__ == "__main__":
    if sys.argv[1:]:
        print(json.dumps(count(sys.argv[1].split(","), sys.argv[2:])))
    else:
        print(json.dumps(compare_versions()))
