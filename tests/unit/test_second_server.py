"""Parts of the aioquic server that need no network: answers, checks of RFC 9250 and RFC 8484, tokens, tickets."""

from __future__ import annotations

import base64
import dataclasses
import datetime
import json
from pathlib import Path

import dns.edns
import dns.flags
import dns.message
import dns.rcode
import dns.update
import pytest
from aioquic.tls import CipherSuite, SessionTicket

from crosslayer.testbed.aioquic_server.answers import DnsZone, MalformedError, doh_query, doq_query
from crosslayer.testbed.aioquic_server.configuration import Configuration, read
from crosslayer.testbed.aioquic_server.connection import Tickets, Tokens
from crosslayer.testbed.aioquic_server.site import load_site
from crosslayer.testbed.errors import TestbedError
from crosslayer.testbed.server import zone_text

NAME, ADDRESS = "www.example.org.", "10.53.2.1"


@pytest.fixture
def zone(tmp_path: Path) -> DnsZone:
    file = tmp_path / "zone"
    file.write_text(zone_text({NAME.removesuffix("."): ADDRESS}), encoding="utf-8")
    return DnsZone(file)


def query(name: str = NAME, rdtype: str = "A", *, pad: int = 128) -> dns.message.QueryMessage:
    return dns.message.make_query(name, rdtype, use_edns=0, payload=1232, id=0, pad=pad)


def test_a_name_is_answered_and_padded_only_where_it_is_encrypted(zone: DnsZone) -> None:
    answer = zone.answer(query().to_wire(), encrypted=True)
    message = dns.message.from_wire(answer.wire)
    assert [rdata.to_text() for rrset in message.answer for rdata in rrset] == [ADDRESS]
    assert message.flags & dns.flags.AA
    assert len(answer.wire) == 468
    assert (answer.name, answer.type, answer.rcode, answer.ttl_s) == (NAME, "A", "NOERROR", 300)
    assert len(zone.answer(query().to_wire(), encrypted=False).wire) < 100
    assert len(zone.answer(query(pad=0).to_wire(), encrypted=True).wire) < 100


@pytest.mark.parametrize(
    ("name", "rdtype", "rcode"), [("www.nowhere.example.", "A", "NXDOMAIN"), (NAME, "AAAA", "NOERROR")]
)
def test_what_the_zone_lacks_has_no_answer(zone: DnsZone, name: str, rdtype: str, rcode: str) -> None:
    answer = zone.answer(query(name, rdtype).to_wire(), encrypted=True)
    assert answer.rcode == rcode
    assert not dns.message.from_wire(answer.wire).answer


def test_an_update_is_never_executed_and_refused_as_early_data(zone: DnsZone) -> None:
    update = dns.update.UpdateMessage(".", id=0)
    update.add(NAME, 300, "TXT", "replayed")
    assert zone.answer(update.to_wire(), encrypted=True, early=True).rcode == "REFUSED"
    assert zone.answer(update.to_wire(), encrypted=True).rcode == "NOTIMP"
    assert not dns.message.from_wire(zone.answer(query(rdtype="TXT").to_wire(), encrypted=True).wire).answer


def response() -> bytes:
    message = query()
    message.flags |= dns.flags.QR
    return message.to_wire()


@pytest.mark.parametrize("wire", [b"", b"\0" * 11, b"\xff" * 40, b"\0" * 12, response()])
def test_what_is_no_query_is_malformed(zone: DnsZone, wire: bytes) -> None:
    with pytest.raises(MalformedError):
        zone.answer(wire, encrypted=True)


def framed(wire: bytes) -> bytes:
    return len(wire).to_bytes(2) + wire


def test_a_stream_has_one_query_with_message_id_0() -> None:
    wire = query().to_wire()
    assert doq_query(framed(wire)) == wire
    keepalive = dns.message.make_query(
        NAME, "A", id=0, use_edns=0, options=[dns.edns.GenericOption(dns.edns.OptionType.KEEPALIVE, b"")]
    )
    other = query()
    other.id = 7
    for stream in (
        b"",
        b"\0",
        framed(wire)[:-1],
        framed(wire) * 2,
        framed(b""),
        framed(other.to_wire()),
        framed(keepalive.to_wire()),
    ):
        with pytest.raises(MalformedError):
            doq_query(stream)


def test_a_request_has_one_query_or_a_status() -> None:
    wire = query().to_wire()
    text = base64.urlsafe_b64encode(wire).decode().rstrip("=")
    kind = {b"content-type": b"application/dns-message; charset=x"}
    assert doh_query("GET", f"dns={text}", {}, b"") == wire
    assert doh_query("POST", "", kind, wire) == wire
    assert doh_query("POST", "", {}, wire) == 415
    assert doh_query("PUT", "", kind, wire) == 405
    for bad in ("", "dns=!", f"dns={text}&dns={text}", "name=x"):
        assert doh_query("GET", bad, {}, b"") == 400


def test_a_token_proves_its_address_for_a_day() -> None:
    now = 1000.0
    tokens = Tokens(lambda: now)
    token = tokens.issue("10.53.0.1")
    assert tokens.proves("10.53.0.1", token)
    assert not tokens.proves("10.53.0.2", token)
    assert not tokens.proves("10.53.0.1", token[:-1] + bytes([token[-1] ^ 1]))
    assert not tokens.proves("10.53.0.1", b"")
    assert not Tokens(lambda: now).proves("10.53.0.1", token)
    now += 24 * 3600 + 1
    assert not tokens.proves("10.53.0.1", token)


def ticket(identity: bytes) -> SessionTicket:
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    return SessionTicket(
        age_add=0,
        cipher_suite=CipherSuite.AES_128_GCM_SHA256,
        not_valid_after=now,
        not_valid_before=now,
        resumption_secret=b"",
        server_name="",
        ticket=identity,
    )


def test_a_ticket_is_used_once_and_for_its_own_protocol() -> None:
    tickets = Tickets()
    tickets.add("doq", ticket(b"a"))
    assert tickets.take("h3", b"a") is None
    assert tickets.take("doq", b"unknown") is None
    assert tickets.take("doq", b"a") is not None
    assert tickets.take("doq", b"a") is None
    tickets.add("h3", ticket(b"b"))
    tickets.clear()
    assert tickets.take("h3", b"b") is None


def test_old_tickets_go_where_there_are_too_many() -> None:
    tickets = Tickets()
    for number in range(5000):
        tickets.add("h3", ticket(str(number).encode()))
    assert tickets.take("h3", b"0") is None
    assert tickets.take("h3", b"4999") is not None


def test_pages_are_read_by_host_and_path_and_a_wrong_one_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "page"
    folder.mkdir()
    (folder / "0").write_bytes(b"body")
    resource = {"path": "/a b", "file": "0", "content_type": "text/html", "wire_bytes": 4, "content_encoding": "gzip"}
    manifest = {"host": "www.Example.org", "aliases": ["alias.example.org"], "resources": [resource]}
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    site = load_site(tmp_path)
    assert set(site) == {"www.example.org", "alias.example.org"}
    assert site["www.example.org"]["/a%20b"].body == b"body"
    assert ("content-encoding", "gzip") in site["www.example.org"]["/a%20b"].headers
    (folder / "0").write_bytes(b"longer body")
    with pytest.raises(TestbedError, match="11 bytes, not 4"):
        load_site(tmp_path)
    with pytest.raises(TestbedError, match=r"no PAGE/manifest\.json"):
        load_site(folder)


def test_a_configuration_of_another_form_is_refused(tmp_path: Path) -> None:
    given = Configuration("c", "k", "z", "", "10.53.0.64", ("10.53.2.1",), "s", "e")
    file = tmp_path / "aioquic.json"
    file.write_text(json.dumps(dataclasses.asdict(given)), encoding="utf-8")
    assert read(file) == given
    file.write_text(json.dumps(dataclasses.asdict(given) | {"retry": True}), encoding="utf-8")
    with pytest.raises(TestbedError, match="retry"):
        read(file)
