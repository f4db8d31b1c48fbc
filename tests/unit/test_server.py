"""What the server is given and what it says, without running it."""

from __future__ import annotations

import json

import dns.zone
import pytest

from crosslayer.testbed.server import (
    ConnectionEvent,
    QueryEvent,
    RequestEvent,
    ServerError,
    TokenEvent,
    parse_event,
    zone_text,
)

QUERY = {
    "event": "query", "time": 1, "listener": "doq", "remote": "10.53.0.1:4000", "name": "www.example.org.", "type": "A",
    "rcode": "NOERROR", "handshake_complete": False, "resumed": True, "address_validated": True,
}  # fmt: skip
REQUEST = {
    "event": "request", "time": 1, "done": 2, "listener": "h3", "remote": "10.53.0.1:4000", "server_name": "a",
    "host": "a", "method": "GET", "path": "/", "status": 200, "bytes": 650, "handshake_complete": True,
    "resumed": False, "address_validated": False,
}  # fmt: skip
CONNECTION = {
    "event": "connection", "time": 1, "listener": "h3", "remote": "10.53.0.1:4000", "local": "10.53.1.1:443",
    "alpn": "h3", "server_name": "a", "resumed": True, "early_data": True, "quic_version": "v1",
    "address_validated": True, "tls_version": "TLSv1.3", "error": "",
}  # fmt: skip
TOKEN = {"event": "token", "time": 1, "listener": "h3", "remote": "10.53.0.1:4000", "behind_ticket": True}


def test_zone_has_an_address_for_every_name() -> None:
    addresses = {"www.example.org": "10.53.1.1", "alias-1.example.org": "10.53.1.2"}
    zone = dns.zone.from_text(zone_text(addresses), origin=".", relativize=False)
    assert {name: zone.find_rdataset(f"{name}.", "A")[0].address for name in addresses} == addresses


def test_zone_tells_of_http3_where_it_is_asked_to() -> None:
    zone = dns.zone.from_text(
        zone_text({"www.example.org": "10.53.1.1"}, https_records=True), origin=".", relativize=False
    )
    (record,) = zone.find_rdataset("www.example.org.", "HTTPS")
    assert str(record) == '1 . alpn="h3,h2"'
    assert zone.get_rdataset("ns.crosslayer.", "HTTPS") is None


def test_events_become_their_classes() -> None:
    query, request, connection, token = (
        parse_event(json.dumps(event)) for event in (QUERY, REQUEST, CONNECTION, TOKEN)
    )
    assert isinstance(query, QueryEvent)
    assert isinstance(request, RequestEvent)
    assert isinstance(connection, ConnectionEvent)
    assert token == TokenEvent(1, "h3", "10.53.0.1:4000", True)
    assert (query.address_validated, request.address_validated, connection.address_validated) == (True, False, True)
    assert (query.time_ns, query.name, query.handshake_complete) == (1, "www.example.org.", False)
    assert (request.done_ns, request.bytes) == (2, 650)
    assert (connection.local, connection.early_data) == ("10.53.1.1:443", True)


@pytest.mark.parametrize(
    "line",
    ['{"event": "que', "[]", "{}", '{"event": "dance"}', json.dumps({**QUERY, "more": 1}), '{"event": "query"}'],
)
def test_an_event_of_another_version_is_an_error(line: str) -> None:
    with pytest.raises(ServerError, match="cannot be read"):
        parse_event(line)
