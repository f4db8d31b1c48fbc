"""The stub's settings as words, and its metrics as a type."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from crosslayer.dns import Protocol, Resolver, Resumption
from crosslayer.stub import Gateway, QueryMetrics, StubError, StubSettings, parse_metrics
from crosslayer.vocabulary import Sharing

ROW: dict[str, Any] = {
    "time": 1700000000000000000, "client": "127.0.0.1:40000", "client_protocol": "udp", "name": "www.example.org.",
    "type": "A", "protocol": "DoQ", "connection": 1, "new_connection": True, "local_port": 50000, "handshake_ms": 15.5,
    "query_ms": 15.1, "total_ms": 30.7, "resumed": False, "early_data": False, "early_data_accepted": None,
    "rcode": "NOERROR", "query_bytes": 128, "answer_bytes": 468, "retries": 0, "silence_ms": 0.0, "tcp_fallback": False,
    "error": "",
}  # fmt: skip


@pytest.mark.parametrize(
    ("protocol", "url"),
    [
        (Protocol.DOUDP, "udp://10.53.0.2:53"),
        (Protocol.DOTCP, "tcp://10.53.0.2:53"),
        (Protocol.DOT, "tls://10.53.0.2:853"),
        (Protocol.DOH, "https://10.53.0.2:443/dns-query"),
        (Protocol.DOH3, "h3://10.53.0.2:443/dns-query"),
        (Protocol.DOQ, "quic://10.53.0.2:853"),
    ],
)
def test_settings_towards_a_server(protocol: Protocol, url: str) -> None:
    server = Resolver("10.53.0.2", "www.example.org", Path("/ca.pem"))
    settings = StubSettings.towards(server, protocol, Resumption.NONE, listen="127.0.0.1:5353", timeout_s=2.5)
    arguments = settings.arguments()
    options = dict(zip(arguments[::2], arguments[1::2], strict=True))
    assert options == {
        "--upstream": url, "--listen": "127.0.0.1:5353", "--ca": "/ca.pem", "--server-name": "www.example.org",
        "--resumption": "none", "--timeout": "2500ms", "--idle-timeout": "30000ms", "--udp-retransmit": "1000ms",
        "--probe-idle-after": "1000ms",
    }  # fmt: skip


def test_what_is_not_set_is_left_to_the_stub() -> None:
    arguments = StubSettings("quic://192.0.2.1").arguments()
    assert not {"--ca", "--server-name", "--resumption"} & set(arguments)


def test_a_gateway_is_part_of_the_settings() -> None:
    gateway = Gateway("127.0.0.1:443", Path("/server.pem"), Path("/server.key"), Sharing.SHARED)
    arguments = StubSettings("h3://192.0.2.1", gateway=gateway).arguments()
    options = dict(zip(arguments[::2], arguments[1::2], strict=True))
    assert options | {
        "--gateway": "127.0.0.1:443", "--certificate": "/server.pem", "--key": "/server.key",
        "--page-connection": "shared",
    } == options  # fmt: skip


def test_an_ipv6_server_is_written_in_brackets() -> None:
    assert StubSettings.towards(Resolver("2001:db8::1"), Protocol.DOQ).upstream == "quic://[2001:db8::1]:853"


def test_metrics_are_read_as_they_are_written() -> None:
    row = parse_metrics(json.dumps(ROW))
    assert row.protocol is Protocol.DOQ
    assert (row.time_ns, row.handshake_ms, row.resumed, row.early_data_accepted) == (ROW["time"], 15.5, False, None)
    assert {field.name for field in dataclasses.fields(QueryMetrics)} - {"time_ns"} == set(ROW) - {"time"}


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{",
        "[]",
        json.dumps({k: v for k, v in ROW.items() if k != "client"}),
        json.dumps(ROW | {"more": 1}),
        json.dumps(ROW | {"protocol": "DoX"}),
    ],
    ids=["nothing", "half", "no object", "less", "more", "another protocol"],
)
def test_metrics_of_another_version_are_refused(line: str) -> None:
    with pytest.raises(StubError, match="Build the stub again"):
        parse_metrics(line)
