"""Discovery without a network: the probe and its answers, targets, the rate limit, the drafts of DoQ, the matrix."""

from __future__ import annotations

import csv
import random
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dns.message
import pyarrow.parquet as pq
import pytest
from aioquic.buffer import Buffer  # type: ignore[attr-defined]
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.events import StreamDataReceived
from aioquic.quic.packet import encode_quic_version_negotiation, pull_quic_header

from crosslayer.discover import DiscoverError, ProbedHost, Support, Target, parse_targets, read_targets, support, table
from crosslayer.discover import run as discovery
from crosslayer.discover.doq import DRAFTS, AnyDoQCore
from crosslayer.discover.emulated import IMPLEMENTATIONS, Absent, Population
from crosslayer.discover.pace import Pace
from crosslayer.discover.probe import FORCING_VERSION, decode_version_negotiation, encode_probe, version_names
from crosslayer.dns import ClientSettings, DnsError, Protocol, Question, Resolver, Session, build_query, client_for
from crosslayer.dns.message import framed
from crosslayer.errors import printable
from crosslayer.testbed import namespaces
from crosslayer.testbed.certificates import make_certificates

DESTINATION, SOURCE = b"\x01" * 8, b"\x02" * 8
IDS = {"destination_id": DESTINATION, "source_id": SOURCE}

# The probe


def answer(*versions: int) -> bytes:
    """Version Negotiation as RFC 9000, section 17.2.1 draws it."""
    ids = bytes([8]) + SOURCE + bytes([8]) + DESTINATION
    return b"\x80" + bytes(4) + ids + b"".join(version.to_bytes(4, "big") for version in versions)


def test_the_probe_is_a_padded_long_header_of_a_version_that_forces_negotiation() -> None:
    probe = encode_probe(DESTINATION, SOURCE)
    assert len(probe) == 1200
    assert probe[0] & 0xC0 == 0xC0
    assert probe[1:5] == bytes.fromhex("1a2a3a4a")
    # As a stack that is not ours reads it.
    header = pull_quic_header(Buffer(data=probe), host_cid_length=8)
    assert (header.version, header.destination_cid, header.source_cid) == (FORCING_VERSION, DESTINATION, SOURCE)


def test_an_answer_gives_its_versions_in_their_order() -> None:
    assert decode_version_negotiation(answer(0x6B3343CF, 1, 0xFF00001D), **IDS) == (0x6B3343CF, 1, 0xFF00001D)
    assert decode_version_negotiation(answer(0x2A2A2A2A), **IDS) == (0x2A2A2A2A,)


def test_an_answer_of_another_stack_is_read() -> None:
    datagram = encode_quic_version_negotiation(
        source_cid=DESTINATION, destination_cid=SOURCE, supported_versions=[1, 0x6B3343CF]
    )
    assert decode_version_negotiation(datagram, **IDS) == (1, 0x6B3343CF)


@pytest.mark.parametrize(
    ("datagram", "message"),
    [
        (b"", "shorter than a long header"),
        (b"\x80\0\0\0", "shorter than a long header"),
        (b"\x40" + answer(1)[1:], "no long header"),
        (b"\xc0\0\0\0\x01" + answer(1)[5:], "a packet of version 0x00000001"),
        (answer(1)[:5], "ends inside the destination connection ID"),
        (answer(1)[:5] + b"\xff" + SOURCE, "ends inside the destination connection ID"),
        (answer(1)[:14], "ends inside the source connection ID"),
        (answer(1)[:14] + b"\x08" + DESTINATION[:7], "ends inside the source connection ID"),
        (b"\x80" + bytes(4) + bytes([8]) + DESTINATION + bytes([8]) + SOURCE + b"\0\0\0\x01", "another destination"),
        (answer(1).replace(DESTINATION, b"\x03" * 8), "another source connection ID"),
        (answer(1).replace(SOURCE, b"\x03" * 8), "another destination connection ID"),
        (answer(), "0 bytes are no list of versions"),
        (answer(1) + b"\0", "5 bytes are no list of versions"),
        (answer(1)[:-1], "3 bytes are no list of versions"),
        (answer(1, FORCING_VERSION), "offers the version it refuses"),
        (encode_probe(DESTINATION, SOURCE), "a packet of version 0x1a2a3a4a"),
    ],
)
def test_what_is_no_answer_is_refused_with_its_reason(datagram: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decode_version_negotiation(datagram, **IDS)


def test_every_truncation_of_an_answer_is_refused_or_whole_versions_shorter() -> None:
    whole = answer(1, 2, 3)
    for end in range(len(whole)):
        shorter = len(whole) - end
        if shorter in (4, 8):
            assert len(decode_version_negotiation(whole[:end], **IDS)) == 3 - shorter // 4
        else:
            with pytest.raises(ValueError, match=r"."):
                decode_version_negotiation(whole[:end], **IDS)


def test_noise_is_never_an_answer_and_never_another_error() -> None:
    noise = random.Random(784)
    for _ in range(2000):
        datagram = bytearray(noise.randbytes(noise.randrange(64)))
        if len(datagram) > 5 and noise.random() < 0.7:
            datagram[:5] = b"\x80\0\0\0\0"
        with pytest.raises(ValueError, match=r"."):
            decode_version_negotiation(bytes(datagram), **IDS)


def test_versions_have_names_and_reserved_ones_none() -> None:
    versions = (1, 0x6B3343CF, 0xFF00001D, 0x0A1A2A3A, 0x51303530, 1, 0xDADADADA)
    assert version_names(versions) == ("v1", "v2", "draft-29", "0x51303530")


# Targets


@pytest.mark.parametrize(
    ("word", "target"),
    [
        ("192.0.2.1", Target("192.0.2.1", "192.0.2.1")),
        ("2001:DB8:0::1", Target("2001:db8::1", "2001:db8::1")),
        ("127.0.0.1", Target("127.0.0.1", "127.0.0.1")),
        ("DNS.example.", Target("dns.example", None)),
        ("bind9", Target("bind9", None)),
        ("1-2.example", Target("1-2.example", None)),
        ("xn--bcher-kva.example", Target("xn--bcher-kva.example", None)),
    ],
)
def test_addresses_and_names_are_targets(word: str, target: Target) -> None:
    assert parse_targets([word]) == [target]


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("192.0.2.0/24", "'192.0.2.0/24' is a network, and networks are not probed"),
        ("192.0.2.1/32", "is a network"),
        ("192.0.2.1/", "is a network"),
        ("2001:db8::/32", "is a network"),
        ("192.0.2.1/255.255.255.0", "is a network"),
        ("192.0.2.1-9", "is a range"),
        ("192.0.2.1-192.0.2.9", "is a range"),
        ("192.0.2.*", "is a range"),
        ("https://dns.example/dns-query", "is a URL"),
        ("dns.example:853", "has a port"),
        ("192.0.2.1:853", "has a port"),
        ("[2001:db8::1]:853", "has a port or brackets"),
        ("[2001:db8::1]", "has a port or brackets"),
        ("224.0.0.251", "is not the address of one host"),
        ("ff02::fb", "is not the address of one host"),
        ("0.0.0.0", "is not the address of one host"),
        ("::", "is not the address of one host"),
        ("255.255.255.255", "is not the address of one host"),
        ("fe80::1%eth0", "has a zone"),
        ("10.53", "is neither an address nor a host name"),
        ("3221225985", "is neither an address nor a host name"),
        ("1.2.3.4.5", "is neither an address nor a host name"),
        ("bücher.example", "is neither an address nor a host name"),
        ("-x.example", "is neither an address nor a host name"),
        ("a..example", "is neither an address nor a host name"),
        ("two words", "is neither an address nor a host name"),
        ("", "is neither an address nor a host name"),
        ("a" * 64, "is neither an address nor a host name"),
    ],
)
def test_anything_else_is_refused_by_its_kind(word: str, message: str) -> None:
    with pytest.raises(DiscoverError, match=message) as caught:
        parse_targets(["192.0.2.1", word])
    assert caught.value.next_step


def test_each_target_counts_once() -> None:
    assert [target.text for target in parse_targets(["b.example", "192.0.2.1", "B.example.", "192.0.2.1"])] == [
        "b.example",
        "192.0.2.1",
    ]


def test_a_file_has_one_target_a_line_and_comments(tmp_path: Path) -> None:
    file = tmp_path / "targets"
    file.write_text("# ours\n\n192.0.2.1  # the first\r\n  dns.example\n192.0.2.1\n", encoding="utf-8")
    assert read_targets(file) == [Target("192.0.2.1", "192.0.2.1"), Target("dns.example", None)]


def test_a_bad_line_is_named_by_its_number(tmp_path: Path) -> None:
    file = tmp_path / "targets"
    file.write_text("192.0.2.1\n\n192.0.2.0/24\n", encoding="utf-8")
    with pytest.raises(DiscoverError, match=r"targets, line 3: '192.0.2.0/24' is a network"):
        read_targets(file)


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\0")
    for path, message in (("missing", "is not a file"), (".", "is not a file"), ("binary", "not UTF-8")):
        with pytest.raises(DiscoverError, match=message):
            read_targets(tmp_path / path)


# The rate limit


def test_packets_are_paid_for_before_the_next_may_leave() -> None:
    pace = Pace(10)
    assert pace.reserve(1, 100.0) == 0
    assert pace.reserve(20, 100.0) == pytest.approx(0.1)
    assert pace.reserve(1, 100.5) == pytest.approx(1.6)  # 1 + 20 packets take until 102.1
    # Idle time is lost.
    assert pace.reserve(1, 200.0) == 0
    assert pace.reserve(1, 200.0) == pytest.approx(0.1)


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf")])
def test_a_rate_is_a_positive_number(rate: float) -> None:
    with pytest.raises(DiscoverError, match="is not a rate"):
        Pace(rate)


def test_who_waits_is_woken_when_nothing_more_may_leave() -> None:
    pace = Pace(1e-6)
    pace.wait(1)
    woken: list[DiscoverError] = []

    def wait() -> None:
        try:
            pace.wait(1)
        except DiscoverError as error:
            woken.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    pace.stop()
    waiting.join()
    assert [error.what for error in woken] == ["stopped"]


# DoQ and its drafts


def test_rfc_9250_is_preferred_to_the_latest_draft_and_that_to_earlier_ones() -> None:
    assert AnyDoQCore.alpns[:2] == ("doq", "doq-i11")
    assert AnyDoQCore.alpns[-1] == "doq-i00"
    assert len(DRAFTS) == 12


@pytest.mark.parametrize(
    ("spoken", "length"),
    [(["doq"], True), (["doq-i11"], True), (["doq-i03"], True), (["doq-i02"], False), (["doq-i00"], False)],
)
def test_a_query_goes_as_the_draft_agreed_on_has_it(tmp_path: Path, spoken: list[str], length: bool) -> None:
    make_certificates(tmp_path, ["dns.example"], [])
    configuration = QuicConfiguration(is_client=False, alpn_protocols=spoken)
    configuration.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    client = AnyDoQCore(
        Resolver("192.0.2.1", "dns.example", verify=False),
        ClientSettings(),
        session=Session(),
        early_data=False,
    )
    client.start(0.0)
    first = client.datagrams(0.0)
    header = pull_quic_header(Buffer(data=first[0]), host_cid_length=8)
    server = QuicConnection(configuration=configuration, original_destination_connection_id=header.destination_cid)
    query = build_query(Question("www.example.org"), Protocol.DOQ, ClientSettings(padding_block_bytes=0))
    good = dns.message.make_response(query.message).to_wire()
    received, to_server, stream = b"", first, None
    for now in range(1, 10):
        for datagram in to_server:
            server.receive_datagram(datagram, ("192.0.2.2", 1), now)
        while (event := server.next_event()) is not None:
            if isinstance(event, StreamDataReceived):
                received += event.data
                if event.end_stream:
                    server.send_stream_data(event.stream_id, framed(good) if length else good, end_stream=True)
        for datagram, _ in server.datagrams_to_send(now):
            client.receive(datagram, now)
        if client.handshake_complete and stream is None:
            stream = client.ask(query)
        to_server = client.datagrams(now)
    assert client.agreed_alpn == spoken[0]
    assert received == (framed(query.wire) if length else query.wire)
    assert stream is not None
    assert client.answer(stream) == good


def test_without_verification_no_ca_is_needed_and_with_it_one_is() -> None:
    client_for(Protocol.DOT, Resolver("192.0.2.1", "dns.example", verify=False)).close()
    with pytest.raises(DnsError, match="needs the name and the CA"):
        client_for(Protocol.DOT, Resolver("192.0.2.1", "dns.example"))


# The testbed's resolvers


def test_ports_that_wait_for_clients_are_read_as_the_kernel_writes_them() -> None:
    table_of_tcp = (
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
        "   0: 00000000:0355 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1\n"
        "   1: 0100007F:01BB 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 2\n"
    )
    table_of_udp6 = (
        "  sl  local_address                         remote_address                        st tx_queue rx_queue\n"
        " 1184: 00000000000000000000000000000000:0035 00000000000000000000000000000000:0000 07 00000000:00000000\n"
    )
    assert namespaces.bound_ports(table_of_tcp) == {853}
    assert namespaces.bound_ports(table_of_udp6) == {53}


def test_targets_inside_are_addresses_of_the_testbed_and_names_of_its_resolvers() -> None:
    population = Population({"bind9": "10.53.0.68"}, [Absent("knot-resolver", "there is no `kresd`", "Install it.")])
    assert [(host.target, host.address) for host in population.hosts([])] == [("bind9", "10.53.0.68")]
    hosts = population.hosts(parse_targets(["bind9", "10.53.0.200"]))
    assert [(host.target, host.address) for host in hosts] == [
        ("bind9", "10.53.0.68"),
        ("10.53.0.200", "10.53.0.200"),
    ]
    for word, message in (
        ("192.0.2.1", r"192.0.2.1 is not in the testbed \(10.53.0.0/16\), and hosts outside it are not probed"),
        ("2001:db8::1", "is not in the testbed"),
        ("dns.example", "no resolver 'dns.example' in the testbed"),
        ("knot-resolver", "there is no `kresd`. Install it"),
    ):
        with pytest.raises(DiscoverError, match=message):
            population.hosts(parse_targets([word]))


def test_every_kind_has_a_name_that_can_be_a_target() -> None:
    names = [kind.name for kind in IMPLEMENTATIONS]
    assert [target.text for target in parse_targets(names)] == names


# The matrix

ROW = Support(
    target="bind9", address="10.53.0.68", transport="DoT", port=853, supported=True, rcode="NOERROR", quic_versions=(),
    quic_version=None, tls_version="TLSv1.3", alpn=None, session_ticket=True, early_data_offered=None,
    retry_received=None, address_token=None, certificate_subject="CN=crosslayer server", error=None,
)  # fmt: skip
WEB = replace(
    ROW, target="web", address="10.53.0.67", transport="DoQ", supported=False, rcode=None, quic_versions=("v1", "v2"),
    tls_version=None, session_ticket=None, certificate_subject=None, error="another protocol",
)  # fmt: skip
SILENT = replace(WEB, target="10.53.0.200", address="10.53.0.200", quic_versions=(), error="timeout")


def test_the_table_shows_what_is_there_and_says_where_nothing_is() -> None:
    output = table.text([ROW, WEB, SILENT]).splitlines()
    assert output[0].split() == ["transport", "port", "TLS", "ALPN", "QUIC", "offered", "offers", "certificate"]
    assert output[1].split() == ["bind9", "(10.53.0.68)", "DoT", "853", "TLSv1.3", "ticket", "CN=crosslayer", "server"]
    assert output[2].split() == ["web", "(10.53.0.67)", "no", "DoQ", "853", "v1", "v2", "another", "protocol"]
    assert output[3:] == ["1 of 3 addresses answer DNS, 0 of them DoQ.", "Nothing at 10.53.0.200."]
    # Columns stand below their headings.
    assert output[1].index("DoT") == output[0].index("transport")


def test_text_of_a_server_is_escaped() -> None:
    evil = "\x1b]0;owned\x07\nbind9 (10.53.0.68)  DoQ \u202e 853"
    row = support._row(
        ProbedHost("evil", "10.53.0.67"), Protocol.DOQ, 853, quic_versions=("v1",), error=evil, certificate_subject=evil
    )
    output = table.text([row])
    assert len(output.splitlines()) == 3
    assert all(line.isprintable() for line in output.splitlines())
    assert r"\x1b]0;owned\x07\nbind9 (10.53.0.68)  DoQ \u202e 853" in output
    assert str(DiscoverError(evil, where="\x9b")) == printable(f"\x9b: {evil}")


def test_results_are_written_before_all_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "matrix.parquet"
    seen: list[int] = []

    def probed(*_hosts: object, **_options: object) -> Iterator[list[Support]]:
        yield [ROW]
        seen.append(pq.read_table(file).num_rows)
        yield [WEB]
        raise RuntimeError("a fault of our own")

    monkeypatch.setattr(discovery, "discover", probed)
    request = discovery.request(["192.0.2.1", "192.0.2.2"], **GOOD | {"outside": True, "out": file})
    hosts = [ProbedHost(row.target, row.address) for row in (ROW, WEB)]
    with pytest.raises(RuntimeError):
        discovery._probe_hosts(request, hosts)
    assert seen == [1]
    assert pq.read_table(file).to_pylist() == table.records([ROW, WEB])
    assert list(tmp_path.iterdir()) == [file]


def test_queries_over_encrypted_transports_are_padded(monkeypatch: pytest.MonkeyPatch) -> None:
    """RFC 9250, section 5.4."""
    asked: list[bytes] = []

    def examine(
        _host: ProbedHost, _offers: object, question: Question, settings: ClientSettings, _pace: Pace, _unanswered: bool
    ) -> list[Support]:
        asked.extend(build_query(question, protocol, settings).wire for protocol in (Protocol.DOQ, Protocol.DOT))
        return []

    monkeypatch.setattr(support, "negotiate", lambda *_args, **_options: {})
    monkeypatch.setattr(support, "examine", examine)
    host = ProbedHost("192.0.2.1", "192.0.2.1")
    list(support.discover([host], question=Question("www.example.org"), packets_per_s=1, timeout_s=1))
    assert [len(wire) for wire in asked] == [128, 128]


def test_a_table_of_nothing_is_a_sentence() -> None:
    assert table.text([SILENT]) == "0 of 1 addresses answer DNS, 0 of them DoQ.\nNothing at 10.53.0.200."


def test_parquet_keeps_every_value_with_a_description_of_each_column(tmp_path: Path) -> None:
    file = tmp_path / "matrix.parquet"
    table.write([ROW, WEB, SILENT], file)
    written = pq.read_table(file)
    assert written.to_pylist() == table.records([ROW, WEB, SILENT])
    assert all(column.metadata[b"description"] for column in written.schema)
    assert {column.name for column in written.schema if not column.nullable} == {
        "target", "address", "transport", "port", "supported", "quic_versions",
    }  # fmt: skip


def test_csv_has_the_same_columns(tmp_path: Path) -> None:
    file = tmp_path / "matrix.csv"
    table.write([ROW, WEB], file)
    with file.open(encoding="utf-8", newline="") as lines:
        first, second = csv.DictReader(lines)
    assert list(first) == list(Support.__dataclass_fields__)
    assert (first["tls_version"], first["alpn"], first["supported"]) == ("TLSv1.3", "", "True")
    assert second["quic_versions"] == "v1 v2"


def test_where_nothing_can_be_written_is_reported_beforehand(tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    for name, message in (
        ("matrix.json", "is neither Parquet nor CSV"),
        ("matrix", "is neither Parquet nor CSV"),
        ("missing/matrix.csv", "cannot be written"),
        ("folder.csv", "cannot be written"),
    ):
        with pytest.raises(DiscoverError, match=message):
            table.check_path(tmp_path / name)


# The call

GOOD: dict[str, Any] = {
    "file": None, "outside": False, "packets_per_s": 20.0, "timeout_s": 3.0, "name": "www.example.org", "out": None,
}  # fmt: skip


def test_outside_only_what_is_listed_is_looked_at() -> None:
    assert discovery.request([], **GOOD).targets == []
    with pytest.raises(DiscoverError, match="there is no target"):
        discovery.request([], **GOOD | {"outside": True})
    (host,) = discovery.resolve(parse_targets(["192.0.2.1"]))
    assert (host.target, host.address) == ("192.0.2.1", "192.0.2.1")


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"packets_per_s": 0.0}, "is not a rate"),
        ({"timeout_s": 0.0}, "is not a timeout"),
        ({"timeout_s": float("inf")}, "is not a timeout"),
        ({"name": "a..b"}, "not a DNS question"),
        ({"out": Path("matrix.txt")}, "neither Parquet nor CSV"),
        ({"file": Path("missing")}, "is not a file"),
    ],
    ids=lambda value: str(value),
)
def test_options_are_looked_at_before_anything_is_sent(option: dict[str, Any], message: str) -> None:
    with pytest.raises((DiscoverError, DnsError), match=message):
        discovery.request(["192.0.2.1"], **GOOD | option)


def test_an_empty_file_is_not_every_resolver(tmp_path: Path) -> None:
    (tmp_path / "targets").write_text("# none\n", encoding="utf-8")
    with pytest.raises(DiscoverError, match="there is no target"):
        discovery.request([], **GOOD | {"file": tmp_path / "targets"})
