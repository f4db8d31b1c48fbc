"""The session store, the stopwatch, and what an exchange refuses before it touches the network."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from crosslayer.dns import (
    ClientSettings,
    DnsError,
    Protocol,
    Question,
    Resolver,
    Resumption,
    Session,
    SessionStore,
    client_for,
    exchange,
)
from crosslayer.dns.timing import PhaseName, Timeline, collector_paused

SERVER = Resolver("127.0.0.1", "www.example.org", Path("ca.pem"))


def test_a_session_is_used_once_and_only_by_its_transport_server_and_name() -> None:
    store = SessionStore()
    store.put(SERVER, Protocol.DOQ, Session(token=b"token"))
    assert store.take(SERVER, Protocol.DOH3) == Session()
    assert store.take(Resolver("127.0.0.2", "www.example.org"), Protocol.DOQ) == Session()
    assert store.take(Resolver("127.0.0.1", "other.example.org"), Protocol.DOQ) == Session()
    assert store.take(SERVER, Protocol.DOQ) == Session(token=b"token")
    assert store.take(SERVER, Protocol.DOQ) == Session()


def test_a_connection_without_a_new_token_does_not_lose_the_old_one() -> None:
    store = SessionStore()
    store.put(SERVER, Protocol.DOQ, Session(token=b"old"))
    store.put(SERVER, Protocol.DOQ, Session())
    assert store.take(SERVER, Protocol.DOQ).token == b"old"
    store.put(SERVER, Protocol.DOQ, Session(token=b"old"))
    store.put(SERVER, Protocol.DOQ, Session(token=b"new"))
    assert store.take(SERVER, Protocol.DOQ).token == b"new"
    store.put(SERVER, Protocol.DOQ, Session(token=b"new"))
    store.clear()
    assert store.take(SERVER, Protocol.DOQ) == Session()


def test_a_phase_that_fails_has_begun_but_has_no_duration() -> None:
    timeline = Timeline()
    with pytest.raises(ValueError, match="fault"), timeline.phase(PhaseName.HANDSHAKE):
        raise ValueError("fault")
    assert timeline.phases[PhaseName.HANDSHAKE].started_ns > 0
    assert timeline.duration_ms(PhaseName.HANDSHAKE) is None
    assert timeline.duration_ms(PhaseName.QUERY) is None


def test_cpu_time_adds_up_over_preparation_and_phases() -> None:
    timeline = Timeline()
    with timeline.preparation():
        sum(range(100_000))
    prepared_ms = timeline.cpu_ms
    assert prepared_ms > 0
    with timeline.phase(PhaseName.QUERY):
        sum(range(100_000))
    duration_ms = timeline.duration_ms(PhaseName.QUERY)
    assert duration_ms is not None
    assert prepared_ms < timeline.cpu_ms <= prepared_ms + duration_ms + 1


def test_the_collector_is_paused_and_left_as_it_was() -> None:
    assert gc.isenabled()
    with collector_paused():
        assert not gc.isenabled()
        with collector_paused():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


@pytest.mark.parametrize(
    ("protocol", "resumption", "settings", "priming", "what"),
    [
        (Protocol.DOUDP, Resumption.TICKET, ClientSettings(), False, "no such resumption"),
        (Protocol.DOT, Resumption.EARLY_DATA, ClientSettings(), False, "no such resumption"),
        (Protocol.DOH3, Resumption.EARLY_DATA, ClientSettings(http_method="POST"), False, "safe methods only"),
        (Protocol.DOTCP, Resumption.NONE, ClientSettings(), True, "a priming exchange"),
        (Protocol.DOQ, Resumption.TICKET, ClientSettings(), True, "a priming exchange"),
    ],
)
def test_conditions_that_cannot_exist_are_refused(
    protocol: Protocol, resumption: Resumption, settings: ClientSettings, priming: bool, what: str
) -> None:
    with pytest.raises(DnsError, match=what):
        exchange(
            SERVER,
            Question("example.org"),
            protocol,
            resumption,
            sessions=SessionStore(),
            settings=settings,
            priming=priming,
        )


def test_resuming_and_priming_need_a_store() -> None:
    with pytest.raises(DnsError, match="nothing to resume from"):
        exchange(SERVER, Question("example.org"), Protocol.DOQ, Resumption.TICKET)
    with pytest.raises(DnsError, match="a priming exchange"):
        exchange(SERVER, Question("example.org"), Protocol.DOQ, priming=True)


@pytest.mark.parametrize("protocol", [Protocol.DOT, Protocol.DOH, Protocol.DOH3, Protocol.DOQ])
def test_encrypted_transports_need_a_name_and_a_ca(protocol: Protocol, tmp_path: Path) -> None:
    with pytest.raises(DnsError, match="needs the name and the CA"):
        client_for(protocol, Resolver("127.0.0.1", "www.example.org"))
    with pytest.raises(DnsError, match="needs the name and the CA"):
        client_for(protocol, Resolver("127.0.0.1", ca_file=tmp_path / "ca.pem"))
    with pytest.raises(DnsError, match="cannot be read: No such file"):
        client_for(protocol, Resolver("127.0.0.1", "www.example.org", tmp_path / "ca.pem"))
    (tmp_path / "ca.pem").write_text("not a certificate")
    with pytest.raises(DnsError, match="cannot be read"):
        client_for(protocol, Resolver("127.0.0.1", "www.example.org", tmp_path / "ca.pem"))


def test_a_server_is_an_address() -> None:
    with pytest.raises(DnsError, match="not an IP address"):
        Resolver("dns.example.org")


@pytest.mark.parametrize("name", [".", "a..b", "-a.example", "a b", "exämple.org", "a" * 64, "a." * 127 + "a"])
def test_a_server_name_is_a_host_name(name: str) -> None:
    with pytest.raises(DnsError, match="not a host name"):
        Resolver("127.0.0.1", name)


@pytest.mark.parametrize("name", ["", "localhost", "WWW.Example.org", "xn--exmple-cua.org", "10.53.0.2", "::1"])
def test_server_names(name: str) -> None:
    assert Resolver("127.0.0.1", name).server_name == name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("timeout_s", 0),
        ("udp_retransmit_s", -1),
        ("udp_payload_bytes", 511),
        ("padding_block_bytes", -1),
        ("http_method", "PUT"),
        ("quic_datagram_bytes", 1199),
        ("ticket_wait_s", -1),
    ],
)
def test_settings_out_of_range_are_refused(name: str, value: object) -> None:
    with pytest.raises(DnsError, match=f"{name} cannot be {value!r}"):
        ClientSettings(**{name: value})  # type: ignore[arg-type]
