"""Lists of resolvers, consent, pace and the analysis of a comparison. Nothing here opens a socket to another host."""

from __future__ import annotations

import ast
import base64
import contextlib
import dataclasses
import json
import pickle
import random
import re
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner

from crosslayer.campaign import provenance
from crosslayer.campaign.tables import TABLES
from crosslayer.cli import cli
from crosslayer.discover import Support, table
from crosslayer.discover import run as discovering
from crosslayer.discover.support import ProbedHost
from crosslayer.dns import ClientSettings, Protocol, Question, Resolver, build_query, client_for
from crosslayer.errors import CrosslayerError
from crosslayer.resolvers import ResolversError, ResolverTarget, analysis, everywhere, ledger, manners, stamps
from crosslayer.resolvers.clocks import ClockReading
from crosslayer.resolvers.flags import FlagKind, flags
from crosslayer.resolvers.idle import forgetting
from crosslayer.resolvers.journal import Journal, read_campaign
from crosslayer.resolvers.listed import read, well_known
from crosslayer.resolvers.page import page
from crosslayer.resolvers.plan import (
    ComparePlan,
    Disturbance,
    Entry,
    IdleQuery,
    Measured,
    MissedRound,
    NetworkCheck,
    OperatorLimit,
    OperatorStop,
    Progress,
    TargetVisit,
    entries_of,
    rows_of,
)
from crosslayer.resolvers.run import vantages
from crosslayer.resolvers.schedule import RoundTimes, seconds
from crosslayer.stub import StubSettings
from crosslayer.testbed import outside, stop_list
from crosslayer.testbed.errors import OutsideError
from crosslayer.vocabulary import EventKind, Role

Row = dict[str, Any]
BOX_LIST = """
[[resolver]]
name = "city"
operator = "city"
address = ["198.18.2.53", "2001:db8:53:2::53"]
host = "city.resolvers.test"
transports = { doudp = 53, dotcp = 53, dot = 853, doh = 443, doh3 = 443, doq = 853 }
path = "/dns-query"
"""
HASH = bytes(range(200, 232))


def lp(data: bytes, more: bool = False) -> bytes:
    return bytes([len(data) | (0x80 if more else 0)]) + data


def stamp(*parts: bytes) -> str:
    return "sdns://" + base64.urlsafe_b64encode(b"".join(parts)).rstrip(b"=").decode()


OPTIONS = bytes(8)
DOH = stamp(b"\x02", OPTIONS, lp(b"9.9.9.9"), lp(HASH, True), lp(HASH), lp(b"dns.quad9.net:5053"), lp(b"/dns-query"))


def target(name: str = "a", protocol: Protocol = Protocol.DOUDP, address: str = "127.0.0.1") -> ResolverTarget:
    return ResolverTarget(name, name, address, protocol, 53, "a.example" if protocol.transport.encrypted else "", "")


# Lists


def test_a_list_of_the_box_has_a_target_for_each_address_and_transport(tmp_path: Path) -> None:
    path = tmp_path / "list.toml"
    path.write_text(BOX_LIST, encoding="utf-8")
    targets = read([str(path)]).targets
    assert len(targets) == 12
    assert {t.address for t in targets} == {"198.18.2.53", "2001:db8:53:2::53"}
    assert {t.operator for t in targets} == {"city"}
    assert targets[3] == ResolverTarget(
        "city", "city", "198.18.2.53", Protocol.DOH, 443, "city.resolvers.test", "/dns-query"
    )
    only = read([str(path)], [Protocol.DOQ]).targets
    assert [(t.protocol, t.port) for t in only] == [(Protocol.DOQ, 853)] * 2


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('host = "city.resolvers.test"\n', "", "key 'resolver[0].host': is missing, and dot needs it"),
        ("doudp = 53", "dodup = 53", "Did you mean 'doudp'?"),
        ("doudp = 53", "doudp = 70000", "key 'resolver[0].transports"),
        ('"198.18.2.53"', '"198.18.2"', "key 'resolver[0].address[0]': is not the address of one host"),
        ('"198.18.2.53"', '"224.0.0.1"', "is not the address of one host"),
        ('"2001:db8:53:2::53"', '"198.18.2.53"', "198.18.2.53 over DoUDP is listed twice"),
        ("operator =", "oprator =", "Did you mean 'operator'?"),
        ('path = "/', 'path = "', "key 'resolver[0].path': must be a path that begins with a slash"),
        ("[[resolver]]\n", "[[resolver", "is not TOML"),
    ],
)
def test_a_faulty_list_is_an_error_that_names_the_key(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "list.toml"
    assert old in BOX_LIST
    path.write_text(BOX_LIST.replace(old, new), encoding="utf-8")
    with pytest.raises(ResolversError) as caught:
        read([str(path)])
    assert str(path) in str(caught.value) or "listed twice" in str(caught.value)
    assert message in str(caught.value)


def test_a_name_occurs_once_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "list.toml"
    path.write_text(BOX_LIST + BOX_LIST.replace("198.18.2.", "198.18.3.").replace(":2::", ":3::"), encoding="utf-8")
    with pytest.raises(ResolversError, match="the name 'city' occurs twice"):
        read([str(path)])


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("udp://9.9.9.10", ("9.9.9.10", Protocol.DOUDP, 53, "", "")),
        ("tcp://[2620:fe::10]:5353", ("2620:fe::10", Protocol.DOTCP, 5353, "", "")),
        ("tls://9.9.9.10#dns10.quad9.net", ("9.9.9.10", Protocol.DOT, 853, "dns10.quad9.net", "")),
        ("https://192.0.2.1/q#a.example", ("192.0.2.1", Protocol.DOH, 443, "a.example", "/q")),
        ("h3://192.0.2.1", ("192.0.2.1", Protocol.DOH3, 443, "192.0.2.1", "/dns-query")),
        ("quic://192.0.2.1:8853#a.example", ("192.0.2.1", Protocol.DOQ, 8853, "a.example", "")),
    ],
)
def test_urls(url: str, expected: tuple[object, ...]) -> None:
    (one,) = read([url]).targets
    assert (one.address, one.protocol, one.port, one.host, one.path) == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "there is no resolver"),
        (["claudflare"], "Did you mean 'cloudflare'?"),
        (["tls://dns.google"], "Write tls://ADDRESS#dns.google."),
        (["htps://192.0.2.1"], "Did you mean 'https'?"),
        (["tls://192.0.2.1:99999"], "is not a URL"),
        (["tls://192.0.2.1/path"], "has a part that is not allowed in a resolver's URL"),
        (["https://user@192.0.2.1/"], "has a part that is not allowed in a resolver's URL"),
        (["tls://192.0.2.1#a_b"], "'a_b' is not a host name"),
        (["quad9", "tls://9.9.9.9#dns.quad9.net"], "9.9.9.9 over DoT is listed twice"),
        (["/nowhere/list.toml"], "cannot be read"),
        (["/nowhere/list.md"], "cannot be read"),
    ],
)
def test_faulty_arguments_are_errors_with_a_next_step(arguments: list[str], message: str) -> None:
    with pytest.raises(ResolversError) as caught:
        read(arguments)
    assert message in str(caught.value)


def test_names_have_both_families_and_an_operator_has_one_rate_limit() -> None:
    known = well_known()
    assert set(known) == {"cloudflare", "quad9", "google", "adguard", "mullvad"}
    assert all(len({":" in t.address for t in targets}) == 2 for targets in known.values())
    targets = read(["quad9", "udp://9.9.9.10#dns.quad9.net", "tls://149.112.112.112#dns.quad9.net"]).targets
    assert {t.operator for t in targets} == {"quad9.net"}
    assert {t.operator for t in read(["udp://9.9.9.9"]).targets} == {"quad9.net"}


# Stamps. The first five examples are from the tests of another implementation, python-dnsstamps 1.4.1. The others are
# built field by field as the specification lists them.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "sdns://AAAAAAAAAAAAGltmZTgwOjo2ZDZkOmY3MmM6M2FkOjYwYjhd",
            stamps.Stamp(Protocol.DOUDP, "[fe80::6d6d:f72c:3ad:60b8]"),
        ),
        ("sdns://AAcAAAAAAAAACTEyNy4wLjAuMQ", stamps.Stamp(Protocol.DOUDP, "127.0.0.1")),
        (
            "sdns://AgYAAAAAAAAACTEyNy4wLjAuMSA-GhoPbFPz6XpJLVcIS1uYBwWe4FerFQWHb9g_2j24OA9kb2guZXhhbXBsZS5jb20KL2Rucy1xdWVyeQ",
            stamps.Stamp(Protocol.DOH, "127.0.0.1", "doh.example.com", "/dns-query"),
        ),
        (
            "sdns://AgAAAAAAAAAACTEyNy4wLjAuMSA-GhoPbFPz6XpJLVcIS1uYBwWe4FerFQWHb9g_2j24OA9kb2guZXhhbXBsZS5jb20KL2Rucy1xdWVyeQcxLjEuMS4x",
            stamps.Stamp(Protocol.DOH, "127.0.0.1", "doh.example.com", "/dns-query"),
        ),
        (
            "sdns://AwEAAAAAAAAACTEyNy4wLjAuMSA-GhoPbFPz6XpJLVcIS1uYBwWe4FerFQWHb9g_2j24OA9kb3QuZXhhbXBsZS5jb20",
            stamps.Stamp(Protocol.DOT, "127.0.0.1", "dot.example.com"),
        ),
        (DOH, stamps.Stamp(Protocol.DOH, "9.9.9.9", "dns.quad9.net:5053", "/dns-query")),
        (
            stamp(b"\x04", OPTIONS, lp(b"[2620:fe::9]:8853"), lp(b""), lp(b"a.example")),
            stamps.Stamp(Protocol.DOQ, "[2620:fe::9]:8853", "a.example"),
        ),
    ],
)
def test_stamps(text: str, expected: stamps.Stamp) -> None:
    assert stamps.decode(text, where="stamp") == expected


def test_a_stamp_that_is_cut_off_anywhere_is_an_error() -> None:
    data = base64.urlsafe_b64decode(DOH.removeprefix("sdns://") + "==")
    for size in range(len(data)):
        with pytest.raises(ResolversError):
            stamps.decode(stamp(data[:size]), where="stamp")
    with pytest.raises(ResolversError):
        stamps.decode(stamp(data, b"\x01a", b"more"), where="stamp")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sdns://!", "is not Base64url text"),
        ("sdns://", "is empty"),
        (stamp(b"\x07", OPTIONS), "has the unknown protocol 0x07"),
        (stamp(b"\x01", OPTIONS), "is a stamp of a DNSCrypt server, for which crosslayer has no client"),
        (stamp(b"\x00", OPTIONS, lp("ä".encode())), "has text that is not ASCII"),
        (stamp(b"\x00", OPTIONS, lp(b"dns.example")), "has 'dns.example' in place of an address"),
        (stamp(b"\x03", OPTIONS, lp(b""), lp(b""), lp(b"a.example")), "the stamp has no address"),
        (stamp(b"\x00", OPTIONS, lp(b"192.0.2.1:0")), "port is 0"),
    ],
)
def test_stamps_that_cannot_be_used(text: str, message: str) -> None:
    with pytest.raises(ResolversError) as caught:
        read([text])
    assert message in str(caught.value)


def test_the_list_of_dnscrypt_resolvers(tmp_path: Path) -> None:
    path = tmp_path / "public-resolvers.md"
    no_address = stamp(b"\x02", OPTIONS, lp(b""), lp(b""), lp(b"a.example"), lp(b"/dns-query"))
    crypt = stamp(b"\x01", OPTIONS, lp(b"192.0.2.9"), lp(HASH), lp(b"2.dnscrypt-cert.example"))
    path.write_text(
        f"# public-resolvers\n\nText.\n\n--\n\n## quad9-doh\n\nQuad9.\n\n{DOH}\n\n## old\n\n{crypt}\n\n"
        f"## nowhere\n\n{no_address}\n",
        encoding="utf-8",
    )
    listed = read([str(path)])
    assert listed.targets == [
        ResolverTarget("quad9-doh", "quad9.net", "9.9.9.9", Protocol.DOH, 5053, "dns.quad9.net", "/dns-query")
    ]
    assert [entry.partition(":")[0] for entry in listed.left_out] == ["old", "nowhere"]
    path.write_text(f"{DOH}\n", encoding="utf-8")
    with pytest.raises(ResolversError, match="line 1: a stamp has no name"):
        read([str(path)])


# Consent and pace


@pytest.fixture
def own_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Folders of a user without files."""
    for kind in ("CONFIG", "STATE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))
    (tmp_path / "config/crosslayer").mkdir(parents=True)
    return tmp_path


@pytest.fixture
def unsent(monkeypatch: pytest.MonkeyPatch, own_folders: Path) -> None:
    """Fail a test that would send, before it does."""
    monkeypatch.setattr("crosslayer.resolvers.run.run", lambda *_a, **_k: pytest.fail("it would send"))


def test_consent_is_for_the_named_addresses_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outside, "_allowed", set())
    outside.allow(["2001:db8:0::1", "::ffff:192.0.2.9"])
    outside.check("2001:db8::1")
    outside.check("192.0.2.9")
    outside.check("127.0.0.1")
    outside.check("::1")
    with pytest.raises(OutsideError):
        outside.check("2001:db8::2")
    outside.withdraw()
    with pytest.raises(OutsideError):
        outside.check("2001:db8::1")


def plan_of_names(*names: str, rounds: int = 6, resumed: bool = False) -> ComparePlan:
    return ComparePlan("a.example", rounds, 1, 5.0, read(names).targets, resumed)


def test_the_budget_counts_each_query_by_operator() -> None:
    shares = manners.budget(plan_of_names("cloudflare", "quad9", rounds=10, resumed=True))
    # 3 queries with a ticket, 1 more in early data over QUIC, 2 over DoTCP, 1 over DoUDP, for two addresses; a query
    # to fill the cache in 5 rounds.
    assert {share.operator: share.queries for share in shares} == {
        "cloudflare-dns.com": 2 * (10 * (1 + 2 + 3 + 3 + 4) + 5),
        "quad9.net": 2 * (10 * (1 + 2 + 3 + 3) + 5),
    }
    visited = {(round_, number) for round_ in range(10) for number in range(10)}
    (rest,) = manners.budget(plan_of_names("cloudflare", "quad9", rounds=10), visited=visited)
    assert (rest.operator, rest.queries) == ("quad9.net", 2 * (10 * (1 + 2 + 2 + 2) + 5))
    assert manners.budget(plan_of_names("quad9"), not_asked=range(8)) == []
    # With --everywhere, a machine does not know in a round what the round before put into the caches.
    (apart,) = manners.budget(plan_of_names("cloudflare", "quad9", rounds=10), visited=visited, apart=True)
    assert apart.queries == 2 * (10 * (1 + 2 + 2 + 2) + 10)


def test_dry_run_prints_the_budget_and_sends_nothing(unsent: None, tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["compare", "quad9", "--dry-run", "--dataset", str(tmp_path / "c")])
    assert done.exit_code == 0, done.output
    assert "at most 34 queries" in done.output
    assert "9.9.9.9\n" in done.output
    assert "MANY QUERIES" not in done.output
    done = CliRunner().invoke(cli, ["compare", "quad9", "--all", "--dry-run", "--dataset", str(tmp_path / "c")])
    # An idle time, and one more of UDP that narrows down when the network forgets a flow.
    assert f"at most {2 * (6 * (3 + 3 + 4 + 4) + 6) + 1} queries" in done.output
    assert "It takes at least 16.0 minutes" in done.output
    assert "at most 2 rounds, " in done.output
    assert "9.9.9.9 2620:fe::fe" in done.output
    assert not (tmp_path / "c").exists()


def test_five_resolvers_need_300_queries_and_more_are_pointed_out(unsent: None, tmp_path: Path) -> None:
    text = "".join(
        BOX_LIST.replace("city", f"r{number}").replace(".2.", f".{number}.").replace(":2:", f":{number}:")
        for number in range(1, 7)
    )
    path = tmp_path / "list.toml"
    path.write_text(text[: text.index('name = "r6"') - len("[[resolver]]\n")], encoding="utf-8")
    done = CliRunner().invoke(cli, ["compare", str(path), "--dry-run"])
    assert "at most 286 queries" in done.output
    assert "It takes at least 57 s." in done.output
    assert "MANY QUERIES" not in done.output
    path.write_text(text, encoding="utf-8")
    done = CliRunner().invoke(cli, ["compare", str(path), "--dry-run"])
    assert "MANY QUERIES: 343 are more than 300" in done.output
    done = CliRunner().invoke(cli, ["compare", str(path), "--dry-run", "--per-day", "50"])
    assert "it ends after 50 queries" in done.output


@pytest.mark.parametrize("typed", ["", "yes\n", "i may send this\n"])
def test_without_the_sentence_nothing_is_sent(unsent: None, tmp_path: Path, typed: str) -> None:
    arguments = ["compare", "udp://192.0.2.1", "--dataset", str(tmp_path / "c")]
    done = CliRunner().invoke(cli, arguments, input=typed)
    assert isinstance(done.exception, outside.OutsideError)
    assert "you did not consent; nothing was sent" in str(done.exception)
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(("option", "message"), [("--rate=2", "1 query/s"), ("--per-day=5001", "5000 queries a day")])
def test_an_address_outside_gets_no_higher_limit(unsent: None, option: str, message: str) -> None:
    done = CliRunner().invoke(cli, ["compare", "udp://192.0.2.1", option, "--dry-run"])
    assert f"192.0.2.1 is outside, and gets at most {message}" in str(done.exception)


# Stop list


def test_the_stop_list_has_addresses_networks_and_operators(own_folders: Path) -> None:
    own = own_folders / "config/crosslayer/stop_list.toml"
    assert stop_list.user_file() == own
    own.write_text(
        '[[stop]]\nreason = "they asked"\nnetworks = ["192.0.2.0/24", "2001:db8::5"]\noperators = ["Quad9.net"]\n',
        encoding="utf-8",
    )
    stops = stop_list.load()
    assert stops.reason("192.0.2.77") == "they asked"
    assert stops.reason("2001:db8::5") == "they asked"
    assert stops.reason("2001:db8::6", "other.net", "notquad9.net") is None
    assert stops.reason("198.51.100.1", "a", "DNS11.quad9.net") == "they asked"
    assert stops.reason("198.51.100.1", "quad9.net") == "they asked"
    assert "root server" in str(stops.reason("199.7.83.42"))
    assert "AS112" in str(stops.reason("2620:4f:8000::42"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[[stop]]\nnetworks = ["192.0.2.1"]\n', "reason"),
        ('[[stop]]\nreason = "x"\n', "key 'stop[0].networks': is missing, and so is operators"),
        ('[[stop]]\nreason = "x"\nnetworks = ["192.0.2.1/24"]\n', "key 'stop[0].networks[0]': is no network"),
        ('[[stop]]\nreason = "x"\nnetwork = ["192.0.2.1"]\n', "Did you mean 'networks'?"),
        ("stop", "is not TOML"),
    ],
)
def test_nothing_is_sent_with_a_faulty_stop_list(own_folders: Path, text: str, message: str) -> None:
    (own_folders / "config/crosslayer/stop_list.toml").write_text(text, encoding="utf-8")
    with pytest.raises(OutsideError) as caught:
        stop_list.load()
    assert message in str(caught.value)
    done = CliRunner().invoke(cli, ["compare", "quad9", "--dry-run"])
    assert isinstance(done.exception, OutsideError)


def test_a_stopped_address_gets_no_packet_whatever_the_consent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outside, "_allowed", set())
    outside.allow(["192.33.4.12", "192.0.2.1"])
    outside.check("192.0.2.1")
    for address in ("192.33.4.12", "::ffff:192.33.4.12"):
        with pytest.raises(OutsideError, match="is on the stop list"):
            outside.check(address)


def test_an_operator_on_the_stop_list_is_left_out_by_every_client(
    monkeypatch: pytest.MonkeyPatch, own_folders: Path
) -> None:
    (own_folders / "config/crosslayer/stop_list.toml").write_text(
        '[[stop]]\nreason = "they asked"\noperators = ["quad9", "example.net"]\n', encoding="utf-8"
    )
    monkeypatch.setattr(outside, "_allowed", set())
    outside._stops.cache_clear()
    outside.allow(["9.9.9.9", "2620:fe::fe", "192.0.2.1"])
    try:
        for upstream in ("udp://9.9.9.9", "quic://[2620:fe::fe]"):  # no name is given
            with pytest.raises(OutsideError, match=r"is on the stop list \(they asked\)"):
                StubSettings(upstream).check_consent()
        with pytest.raises(OutsideError, match="is on the stop list"):
            StubSettings("tls://192.0.2.1", server_name="dns.example.net").check_consent()
        StubSettings("tls://192.0.2.1", server_name="dns.example.org").check_consent()
        with pytest.raises(OutsideError, match="is on the stop list"):
            client_for(Protocol.DOT, Resolver("192.0.2.1", "dns.example.net", verify=False), ClientSettings()).connect(
                build_query(Question("a.example"), Protocol.DOT, ClientSettings())
            )
    finally:
        outside._stops.cache_clear()
    lines: list[str] = []
    hosts = [ProbedHost("9.9.9.9", "9.9.9.9"), ProbedHost("192.0.2.1", "192.0.2.1")]
    assert [host.address for host in discovering._not_stopped(hosts, lines.append)] == ["192.0.2.1"]
    assert lines == ["not asked: 9.9.9.9 9.9.9.9: stop list: they asked"]


def test_stopped_targets_are_no_part_of_the_budget(unsent: None, own_folders: Path) -> None:
    (own_folders / "config/crosslayer/stop_list.toml").write_text(
        '[[stop]]\nreason = "they asked"\noperators = ["quad9.net"]\n', encoding="utf-8"
    )
    done = CliRunner().invoke(cli, ["compare", "quad9", "mullvad", "--dry-run"])
    assert "not asked: quad9 9.9.9.9: stop list: they asked" in done.output
    assert "at most 27 queries" in done.output
    assert "quad9.net" not in done.output
    done = CliRunner().invoke(cli, ["compare", "quad9", "--dry-run"])
    assert "sends nothing more" in done.output


# Pace


class FakeClock:
    """A clock that stands still."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_800_000_000.0
        monkeypatch.setattr("crosslayer.resolvers.ledger.time.time", lambda: self.now)


def test_pauses_double_and_end_with_a_success(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock(monkeypatch)
    paced = ledger.QueryLedger(1000.0, 5000, None)
    pauses = []
    for error in ("timeout", "rcode REFUSED", "http status 503", "http status 429", None, "timeout", "certificate: x"):
        assert paced.heed("a", error) is None
        pauses.append(max(0.0, paced.take("a") - clock.now))
        clock.now += pauses[-1] + 1
    assert pauses == [5, 10, 20, 40, 0, 5, 0]
    for _ in range(20):
        paced.heed("a", "timeout")
    assert paced.take("a") - clock.now == ledger.LONGEST_PAUSE_S


def test_rate_pauses_and_counts_hold_across_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clock, path = FakeClock(monkeypatch), tmp_path / "state/operators.json"
    assert ledger.QueryLedger(1.0, 5, path).take("a") == 0
    assert ledger.QueryLedger(1.0, 5, path).take("a") == clock.now + 1
    assert ledger.QueryLedger(1.0, 5, path).take("b") == 0
    clock.now += 1
    assert ledger.QueryLedger(1.0, 5, path).take("a") == 0
    ledger.QueryLedger(1.0, 5, path).heed("a", "timeout")
    ledger.QueryLedger(1.0, 5, path).heed("a", "timeout")
    again = ledger.QueryLedger(1.0, 5, path)
    assert again.take("a") == clock.now + 10
    assert again.left("a") == 3
    assert [file.name for file in path.parent.iterdir() if file.suffix == ".new"] == []
    # The clock is set back: no pause gets longer by that.
    clock.now -= 3600
    assert again.take("a") == clock.now + 10


def test_the_limit_of_a_day_holds_across_runs_until_the_next_day(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clock, path = FakeClock(monkeypatch), tmp_path / "operators.json"
    for _ in range(3):
        assert ledger.QueryLedger(1.0, 3, path).take("a") == 0
        clock.now += 1
    with pytest.raises(ledger.DayLimitError, match="Continue tomorrow with --resume"):
        ledger.QueryLedger(1.0, 3, path).take("a")
    assert ledger.QueryLedger(1.0, 3, path).left("b") == 3
    clock.now += 86_400
    assert ledger.QueryLedger(1.0, 3, path).left("a") == 3
    assert ledger.QueryLedger(1.0, 3, path).take("a") == 0


@pytest.mark.parametrize(
    ("outcomes", "reason"),
    [
        ([("http status 403", None)], "http status 403"),
        ([("http status 451", None)], "http status 451"),
        ([("rcode REFUSED", 18)], "extended error Prohibited"),
        ([(None, 18)], "extended error Prohibited"),
        ([("rcode REFUSED", None)] * 3, "refused 3 queries in succession"),
    ],
)
def test_an_operator_asks_to_stop(outcomes: list[tuple[str | None, int | None]], reason: str) -> None:
    paced = ledger.QueryLedger(1.0, 5000, None)
    *before, last = [paced.heed("a", *outcome) for outcome in outcomes]
    assert not any(before)
    assert reason in str(last)


def test_other_failures_do_not_ask_to_stop() -> None:
    paced = ledger.QueryLedger(1.0, 5000, None)
    errors = ["rcode REFUSED", "rcode REFUSED", None, "rcode REFUSED", "timeout", "rcode REFUSED", "http status 503"]
    assert [paced.heed("a", error) for error in errors] == [None] * 7
    assert paced.heed("a", None, 3) is None
    # A filter that blocks the name says nothing about the client (RFC 8914, section 4.16).
    assert paced.heed("a", "rcode NXDOMAIN", 15) is None


def test_nothing_is_sent_without_a_usable_state(tmp_path: Path) -> None:
    path = tmp_path / "operators.json"
    for text, message in (("{", "is not JSON"), ('{"operators": {"a": {"queries": "1"}}}', "operators")):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ResolversError, match=message):
            ledger.QueryLedger(1.0, 5, path)
        assert path.read_text(encoding="utf-8") == text
    with pytest.raises(ResolversError, match="cannot be used"):
        ledger.QueryLedger(1.0, 5, path / "below" / "a-file")


# The file


def plan_of(count: int = 2, rounds: int = 10) -> ComparePlan:
    return ComparePlan("a.example", rounds, 1, 5.0, [target(f"r{number}") for number in range(count)])


def kept(folder: Path) -> list[Row]:
    """Rows of the store of a comparison, read as another program reads it."""
    with contextlib.closing(sqlite3.connect(folder / "campaign.sqlite")) as database:
        database.row_factory = sqlite3.Row
        return [dict(row) for row in database.execute("SELECT * FROM resolver_queries ORDER BY rowid")]


def test_every_visit_is_kept_and_a_comparison_resumes(tmp_path: Path) -> None:
    folder, plan = tmp_path / "c", plan_of()
    visit = TargetVisit(0, 1, 1.0, first_ms=5.0, handshake_ms=0.0)
    with Journal.create(folder, plan) as journal:
        journal.progress["host-1"].add(visit)
        journal.finish("host-1", 0)
    with Journal.resume(folder, ComparePlan("a.example", 12, 99, 5.0, plan.targets)) as again:
        assert (again.plan.rounds, again.plan.seed) == (12, 1)
        assert again.entries("host-1") == [visit]
        assert again.finished("host-1", 0)
        assert not again.finished("host-1", 1)
        again.progress["host-1"].add(TargetVisit(0, 0, 2.0, error="timeout"))
    assert [(row["target"], row["total_ms"], row["error"]) for row in kept(folder)] == [
        (1, 5.0, None), (0, None, "timeout"),
    ]  # fmt: skip


def test_a_comparison_that_ended_before_its_first_visit_has_a_result(tmp_path: Path) -> None:
    plan = plan_of()
    with Journal.create(tmp_path / "c", plan) as journal:
        journal.export()
        comparison = analysis.of(journal.measured, {0: "stop list: asked by mail"})
    assert comparison.advice == "No resolver answered, so there is no advice."
    assert "not asked: r0 127.0.0.1: stop list: asked by mail" in analysis.text(comparison, plan)


def test_rows_contain_what_was_measured(tmp_path: Path) -> None:
    path = tmp_path / "list.toml"
    path.write_text(BOX_LIST, encoding="utf-8")
    plan = ComparePlan("a.example", 6, 1, 5.0, read([str(path)]).targets, vantages=("one", "two"))
    entries = [
        NetworkCheck("192.0.2.53", True, "box", 0.5),
        TargetVisit(0, 0, 1.0, 5.0, 0.0, miss_ms=90.0, site="x", vantage="one"),
        TargetVisit(
            0, 3, 2.0, 60.0, 40.0, 20.0, 45.0, 25.0, True, 100.0, 20.5, "x", vantage="one",
        ),
        TargetVisit(1, 3, 3.0, 60.0, 40.0, next_error="timeout", vantage="one"),
        TargetVisit(1, 4, 4.0, 60.0, 40.0, 20.0, resumed_error="no ticket", miss_error="rcode REFUSED", vantage="one"),
        TargetVisit(1, 5, 5.0, error="timeout", rtt_ms=20.0, vantage="one"),
        OperatorStop("city", "it asked", 6.0),
        OperatorLimit("city", "it got its queries", 7.0),
        MissedRound(3, "the machine does not answer", 8.0),
    ]  # fmt: skip
    rows: dict[str, list[Row]] = {"resolver_queries": [], "resolver_events": []}
    for entry in entries:
        for name, some in rows_of(plan, entry).items():
            rows[name] += [row | {"link": "one"} for row in some]
    frames = (pl.LazyFrame(some, schema=TABLES[name].polars_schema()) for name, some in rows.items())
    read_again = entries_of(*frames)["one"]
    assert sorted(map(repr, read_again)) == sorted(map(repr, entries))
    cold, kept_hit, kept_miss, resumed = rows["resolver_queries"][2:6]
    assert [row["state"] for row in (cold, kept_hit, kept_miss, resumed)] == ["cold", "kept", "kept", "resumed"]
    assert [row["cache"] for row in (cold, kept_hit, kept_miss, resumed)] == ["hit", "hit", "miss", "hit"]
    assert [row["session_resumed"] for row in (cold, resumed)] == [False, True]
    assert (cold["handshake_ms"], cold["query_ms"], cold["total_ms"]) == (40.0, 20.0, 60.0)


def test_a_dataset_of_another_comparison_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    Journal.create(folder, plan_of()).close()
    for other, message in (
        (plan_of(3), "is of another comparison"),
        (ComparePlan("b.example", 10, 1, 5.0, []), "another"),
    ):
        with pytest.raises(ResolversError, match=message):
            Journal.resume(folder, other)
    with pytest.raises(ResolversError, match="has a campaign already"):
        Journal.create(folder, plan_of())
    with pytest.raises(CrosslayerError, match="there is no campaign here"):
        Journal.resume(tmp_path / "none", plan_of())
    (folder / "campaign.sqlite").write_text("text\n", encoding="utf-8")
    with pytest.raises(CrosslayerError, match="is damaged"):
        Journal.resume(folder, plan_of())


def test_a_target_that_keeps_failing_is_left_alone() -> None:
    progress = Progress(plan_of())
    for round_, error in enumerate(["timeout", None, "timeout", "timeout", "timeout"]):
        assert not progress.left_alone(0)
        progress.add(TargetVisit(round_, 0, 1.0, error=error))
    assert progress.left_alone(0)
    assert not progress.left_alone(1)


def test_an_address_that_never_answers_is_left_alone_over_all_transports(tmp_path: Path) -> None:
    path = tmp_path / "list.toml"
    path.write_text(BOX_LIST, encoding="utf-8")
    plan = ComparePlan("a.example", 6, 1, 5.0, read([str(path)]).targets)
    kinds = [target.protocol for target in plan.targets[:6]]
    progress = Progress(plan)
    for protocol in (Protocol.DOQ, Protocol.DOH3, Protocol.DOUDP):
        progress.add(TargetVisit(0, kinds.index(protocol), 1.0, error="timeout"))
    assert not progress.left_alone(kinds.index(Protocol.DOT)), "the network may block UDP"
    progress.add(TargetVisit(0, kinds.index(Protocol.DOT), 1.0, error="timeout"))
    assert [progress.left_alone(number) for number in range(12)] == [True] * 6 + [False] * 6


@pytest.mark.slow
def test_who_is_left_alone_is_known_without_reading_all_visits_again() -> None:
    """313 resolvers, 5 transports, 84 rounds: linear; reading all visits for each question would take hours."""
    plan = ComparePlan("a.example", 84, 1, 5.0, [target(f"r{number}") for number in range(313 * 5)])
    progress = Progress(plan)
    began = time.process_time()
    for round_ in range(84):
        for number in range(len(plan.targets)):
            assert not progress.left_alone(number)
            progress.add(TargetVisit(round_, number, 1.0, first_ms=1.0))
    assert time.process_time() - began < 10


def test_an_operator_that_asked_to_stop_is_left_alone_after_a_resume(tmp_path: Path) -> None:
    folder, plan = tmp_path / "c", plan_of()
    with Journal.create(folder, plan) as journal:
        journal.progress["host-1"].add(TargetVisit(0, 0, 1.0, error="http status 403"))
        journal.progress["host-1"].add(OperatorStop("r0", "it answered with http status 403", 1.0))
    with Journal.resume(folder, plan) as again:
        assert again.progress["host-1"].left_alone(0)
        assert not again.progress["host-1"].left_alone(1)
        comparison = analysis.of(read_campaign(again.export()))
    shown = analysis.text(comparison, plan)
    assert "not asked: r0 127.0.0.1: left alone: it answered" in shown


# Over time and from several machines


@pytest.mark.parametrize(
    ("text", "expected"), [("90s", 90), ("15m", 900), ("15min", 900), ("2h", 7200), ("1.5 h", 5400), ("7d", 604_800)]
)
def test_times_of_people(text: str, expected: float) -> None:
    assert seconds(text, "--every") == expected
    assert seconds(manners.span(expected), "--every") == expected


@pytest.mark.parametrize("text", ["", "2", "2 weeks", "0h", "-1h", "h"])
def test_what_is_no_time_is_an_error(text: str) -> None:
    with pytest.raises(ResolversError, match="Write 90s, 15m, 2h or 7d"):
        seconds(text, "--every")


def test_rounds_are_due_at_their_times_and_missed_when_the_next_one_is(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("crosslayer.resolvers.schedule.time.time", lambda: now[0])

    def sleep(duration_s: float) -> None:
        now[0] += duration_s

    schedule = RoundTimes(1000.0, 7200.0)
    begun = []
    for round_ in range(6):
        if schedule.wait(round_, sleep):
            begun.append((round_, now[0] - 1000))
            now[0] += 16_000 if round_ == 2 else 300  # round 2 takes longer than two rounds are apart
    assert begun == [(0, 0), (1, 7200), (2, 14400), (4, 30400), (5, 36000)]
    assert RoundTimes(1000.0, 0.0).wait(5, sleep), "without a schedule all are due"


def test_a_target_that_the_starting_machine_excludes_is_not_queried_elsewhere(own_folders: Path) -> None:
    plan = plan_of_names("quad9")
    over_tcp = next(target for target in plan.targets if target.protocol is Protocol.DOTCP)
    plan = dataclasses.replace(plan, targets=(dataclasses.replace(over_tcp, address="192.0.2.1"),))

    def measured(not_asked: frozenset[int]) -> list[Entry]:
        code = provenance.code_sha256()
        request = everywhere.RoundRequest(Progress(plan, "oslo"), 0, 1.0, 100, (), None, code, not_asked)
        return everywhere.measure_round(pickle.dumps(request)).entries

    assert measured(frozenset({0})) == []
    with pytest.raises(OutsideError):  # without the exclusion: no consent, so nothing is sent
        measured(frozenset())


def test_vantage_points_have_names_that_rows_can_have() -> None:
    assert vantages("one,me@two") == {"host-1": "one", "host-2": "me@two"}
    assert vantages("oslo=me@one, lima=two") == {"oslo": "me@one", "lima": "two"}
    for text, message in (("a_b=one", "is no vantage point"), ("oslo=", "is no vantage point"), ("a,a", "twice")):
        with pytest.raises(ResolversError, match=message):
            vantages(text)
    with pytest.raises(ResolversError, match="twice"):
        vantages("oslo=one,oslo=two")


def test_the_budget_of_a_schedule_has_all_rounds_and_vantage_points(unsent: None, tmp_path: Path) -> None:
    base = ["compare", "quad9", "--dry-run", "--transport", "doudp", "--dataset", str(tmp_path / "c")]
    done = CliRunner().invoke(cli, [*base, "--every", "2h", "--for", "7d", "--everywhere", "oslo=one,lima=two"])
    assert done.exit_code == 0, done.output
    # 84 rounds with a query and one that fills the cache, from two machines; two queries to an address of nobody.
    assert f"at most {2 * 84 * 2 + 2} queries" in done.output
    assert "A round begins every 2 h, 84 times: 7 d." in done.output
    assert "2 vantage points share them" in done.output
    assert "more than one day allows" not in done.output
    done = CliRunner().invoke(cli, [*base, "--for", "7d"])
    assert "--for needs --every" in done.output
    done = CliRunner().invoke(cli, [*base, "--every", "2h", "--for", "7d", "--rounds", "3"])
    assert done.exit_code == 2


def test_a_copy_of_the_progress_goes_on_elsewhere() -> None:
    progress = Progress(plan_of())
    for round_ in range(2):
        progress.add(TargetVisit(round_, 0, 1.0, error="timeout"))
    progress.add(OperatorStop("r1", "it asked", 1.0))
    copy = pickle.loads(pickle.dumps(progress.copy(1)))
    assert copy.visited(1, 0)
    assert not copy.visited(0, 0)
    assert copy.left_alone(1)
    assert not copy.left_alone(0)
    entries: list[Entry] = []
    copy.record = entries.extend
    copy.add(TargetVisit(2, 0, 2.0, error="timeout"))
    assert copy.left_alone(0)
    assert entries == [TargetVisit(2, 0, 2.0, error="timeout")]
    assert not progress.left_alone(0)


def test_intervals_resample_vantage_points() -> None:
    """Three vantage points at 20, 60 and 100 ms: their number, and not that of rounds, makes the interval."""
    vantages = {"a": 20.0, "b": 60.0, "c": 100.0}
    plan = dataclasses.replace(plan_of(2, 30), vantages=tuple(vantages))
    visits = [
        TargetVisit(round_, target, 1.0, first_ms=ms + 0.01 * round_ + 5 * target, vantage=vantage)
        for vantage, ms in vantages.items()
        for round_ in range(30)
        for target in range(2)
    ]
    comparison = analysis.compare(plan, visits)
    first = comparison.lines[0].times["first_ms"]
    assert first.rounds == 90
    assert first.low is not None
    assert first.high is not None
    assert first.low < 21
    assert first.high > 99
    # Within a round and a vantage point the difference is 5 ms everywhere.
    assert [line.group for line in comparison.lines] == [1, 2]
    assert "from these 3 vantage points" in comparison.advice


def test_a_flag_names_its_vantage_point(tmp_path: Path) -> None:
    plan, visits = measured(tmp_path, lambda _target, _round: {})
    plan = dataclasses.replace(plan, vantages=("oslo", "lima"))
    both = [dataclasses.replace(visit, vantage=vantage) for vantage in plan.vantages for visit in visits]
    assert flags(plan, both, {}) == []
    (flag,) = flags(plan, both, {"lima": NetworkCheck("192.0.2.53", True, None, 1.0)})
    assert flag.vantage == "lima"
    assert str(flag).startswith("interception of UDP port 53: lima: this network:")


def test_a_resolver_measured_twice_is_compared_with_itself(tmp_path: Path) -> None:
    plan, visits = measured(tmp_path, lambda _target, _round: {})
    copies = [dataclasses.replace(one, role=Role.SELF_CHECK) for one in plan.targets if one.name == "a"]
    plan = dataclasses.replace(plan, targets=[*plan.targets, *copies])
    numbers = {number: len(plan.targets) - len(copies) + number for number in range(len(copies))}
    twice = [
        dataclasses.replace(visit, target=numbers[visit.target], first_ms=(visit.first_ms or 0) + 0.5)
        for visit in visits
        if visit.target in numbers
    ]
    comparison = analysis.compare(plan, [*visits, *twice])
    assert len(comparison.lines) == len(plan.targets) - len(copies), "copies are not ranked"
    first = [check for check in comparison.self_checks if check.measure == "first query"]
    assert [check.difference.median for check in first] == [0.5] * len(copies)
    assert str(first[0]) == "A/A: a 198.18.1.53 DoUDP: first query: 0.5 [0.5, 0.5] ms (8 rounds)"
    shown = analysis.text(comparison, plan)
    count = len(comparison.self_checks)
    assert f"A/A: a was measured twice: 0 of {count} differences exceed 1 ms; the largest is 0.5 ms (DoUDP," in shown
    late = [dataclasses.replace(visit, first_ms=(visit.first_ms or 0) + 2) for visit in twice]
    shown = analysis.text(analysis.compare(plan, [*visits, *late]), plan)
    assert (
        f"A/A: a was measured twice: {len(copies)} of {count} differences exceed 1 ms; the largest is 2.5 ms" in shown
    )
    assert "A/A: a 198.18.1.53 DoUDP: first query: 2.5 [2.5, 2.5] ms (8 rounds)" in shown


# Analysis


def drawn(centre_ms: float, rounds: int, source: random.Random, shared: list[float]) -> list[float]:
    """Times of a target: what a round has in common, and a long tail of its own."""
    return [centre_ms + shared[round_] + source.expovariate(1) for round_ in range(rounds)]


def comparison_of(centres: list[float], seed: int, rounds: int = 10) -> analysis.ResolverComparison:
    source = random.Random(seed)
    shared = [source.gauss(0, 3) for _ in range(rounds)]
    times = [drawn(centre, rounds, source, shared) for centre in centres]
    rows = [
        TargetVisit(r, number, 0.0, first_ms=values[r]) for number, values in enumerate(times) for r in range(rounds)
    ]
    return analysis.compare(plan_of(len(centres), rounds), rows)


def test_equal_resolvers_are_not_ordered_and_different_ones_are() -> None:
    one_group = sum(comparison_of([20, 20], seed).lines[1].group == 1 for seed in range(100))
    assert one_group >= 95
    ordered = sum(
        [(line.target.name, line.group) for line in comparison_of([24, 20], seed).lines] == [("r1", 1), ("r0", 2)]
        for seed in range(100)
    )
    assert ordered >= 95


def test_advice_names_all_that_do_not_differ_and_its_condition() -> None:
    plan = ComparePlan("a.example", 6, 1, 5.0, [target("x"), target("y", Protocol.DOQ), target("z", Protocol.DOT)])
    centres = {0: 10.0, 1: 20.0, 2: 20.5}
    rows = [TargetVisit(r, number, 0.0, first_ms=ms + 0.1 * r) for number, ms in centres.items() for r in range(6)]
    comparison = analysis.compare(plan, rows)
    assert [line.group for line in comparison.lines] == [1, 2, 2]
    assert comparison.advice == (
        "Fastest from here at this time, for the first query on a new connection and a name in the resolver's cache "
        "('a.example'). Encrypted: y 127.0.0.1 DoQ or z 127.0.0.1 DoT (difference: at most 0.5 ms). "
        "Unencrypted: x 127.0.0.1 DoUDP."
    )
    assert json.loads(json.dumps(comparison.record(plan)))["lines"][0]["first_ms"]["median"] == pytest.approx(10.25)


def test_advice_names_one_target_if_the_data_cannot_distinguish_others() -> None:
    plan = ComparePlan("a.example", 8, 1, 5.0, [target("y", Protocol.DOQ), target("z", Protocol.DOT)])
    scatter = [-30.0, 40.0, -20.0, 35.0, -10.0, 25.0, 1.0, 2.0]
    times = {0: [50.0] * 8, 1: [52.0 + ms for ms in scatter]}
    rows = [TargetVisit(r, number, 0.0, first_ms=ms) for number, some in times.items() for r, ms in enumerate(some)]
    comparison = analysis.compare(plan, rows)
    assert [line.group for line in comparison.lines] == [1, 1]
    slower = r"\(lowest median; equally fast or up to [\d.]+ ms slower: z 127.0.0.1 DoT\)"
    named = rf"Encrypted: y 127.0.0.1 DoQ {slower}"
    assert re.search(named, comparison.advice), comparison.advice


def test_few_rounds_have_no_interval_no_group_and_no_advice() -> None:
    comparison = comparison_of([20, 30], seed=1, rounds=5)
    assert [line.group for line in comparison.lines] == [None, None]
    assert comparison.lines[0].times["first_ms"].low is None
    assert "Advice needs 6 successful rounds" in comparison.advice


def test_failures_are_rows_with_their_reason() -> None:
    plan = plan_of(4, 1)
    errors = ["timeout", "certificate: certificate has expired", "quic: tls alert no_application_protocol", None]
    rows = [
        TargetVisit(0, number, 0.0, first_ms=None if error else 5.0, error=error) for number, error in enumerate(errors)
    ]
    shown = analysis.text(analysis.compare(plan, rows), plan)
    assert "failed: r0 127.0.0.1 DoUDP: no answer (1 of 1 rounds)" in shown
    assert "wrong certificate (certificate has expired)" in shown
    assert "other application protocol, such as a draft's" in shown


# Flags


RESOLVERS = """
[[resolver]]
name = "a"
address = ["198.18.1.53", "2001:db8::1"]
host = "a.example"
transports = { doudp = 53, dot = 853, doh3 = 443 }
[[resolver]]
name = "b"
address = ["198.18.2.53"]
host = "b.example"
transports = { doudp = 53, dot = 853, doh3 = 443 }
"""


def measured(tmp_path: Path, change: Callable[[ResolverTarget, int], Row]) -> tuple[ComparePlan, list[TargetVisit]]:
    """Eight visits of each target of `RESOLVERS`; `change` gives values that differ from those without a flag."""
    path = tmp_path / "list.toml"
    path.write_text(RESOLVERS, encoding="utf-8")
    plan = ComparePlan("a.example", 8, 1, 5.0, read([str(path)]).targets)
    visits = []
    for round_ in range(8):
        for number, one in enumerate(plan.targets):
            kept = None if one.protocol is Protocol.DOUDP else 20.0
            values = {"first_ms": 20.0 if kept is None else 60.0, "handshake_ms": 0.0 if kept is None else 40.0}
            values |= {"next_ms": kept, "rtt_ms": 20.0 + 0.1 * (round_ % 2), "site": "x"} | change(one, round_)
            if values.get("error"):
                values = {"error": values["error"]}
            visits.append(TargetVisit(round_, number, float(10 * round_ + number), **values))
    return plan, visits


def kinds(tmp_path: Path, change: Callable[[ResolverTarget, int], Row]) -> list[tuple[str, str]]:
    plan, visits = measured(tmp_path, change)
    return [(flag.kind.name, flag.subject) for flag in flags(plan, visits, {})]


def test_a_clean_comparison_has_no_flag(tmp_path: Path) -> None:
    plan, visits = measured(tmp_path, lambda _target, _round: {})
    assert flags(plan, visits, {"host-1": NetworkCheck("192.0.2.53", False, None, 1.0)}) == []
    (flag,) = flags(plan, visits, {"host-1": NetworkCheck("192.0.2.53", True, "box", 1.0)})
    assert flag.kind is FlagKind.INTERCEPTED
    assert {plan.targets[number].protocol for number in flag.targets} == {Protocol.DOUDP}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            lambda one, _round: {"error": "timeout"} if one.protocol is Protocol.DOH3 else {},
            [("BLOCKED", "UDP port 443")],
        ),
        (lambda one, _round: {"error": "timeout"} if one.name == "b" else {}, [("DEAD", "b 198.18.2.53")]),
        (lambda one, _round: {"error": "timeout"} if ":" in one.address else {}, [("BROKEN_IPV6", "a 2001:db8::1")]),
        (
            lambda one, _round: {"site": "y"} if one.protocol is Protocol.DOH3 and one.name == "b" else {},
            [("SITES", "b 198.18.2.53")],
        ),
        (lambda one, round_: {"site": "y"} if round_ > 3 and one.name == "b" else {}, [("SITES", "b 198.18.2.53")]),
        (lambda one, round_: {"site": str(round_ % 3)} if one.name == "b" else {}, [("CACHES", "b 198.18.2.53")]),
        (
            lambda one, round_: {"rtt_ms": 45.0} if round_ > 4 and one.name == "b" else {},
            [("PATH_CHANGE", "b 198.18.2.53")],
        ),
        (
            lambda one, round_: {"first_ms": 140.0} if round_ == 1 and one.protocol is Protocol.DOT else {},
            [("PARTLY_MISSED", f"{name} DoT") for name in ("a 198.18.1.53", "a 2001:db8::1", "b 198.18.2.53")],
        ),
        (
            lambda _one, round_: {"first_ms": 60.0 + (13.0 if round_ == 1 else round_ % 3)},
            [],  # the typical jitter is 1 ms
        ),
        (
            lambda one, round_: {"error": "http status 503"} if round_ == 1 and one.name == "b" else {},
            [("RATE_LIMIT", f"b 198.18.2.53 {name}") for name in ("DoUDP", "DoT", "DoH3")],
        ),
        (
            lambda one, _round: {"error": "rcode NXDOMAIN"} if one.label == "b 198.18.2.53 DoT" else {},
            [("OTHER_ANSWER", "b 198.18.2.53 DoT")],
        ),
        (
            lambda one, _round: {"error": "certificate: expired"} if one.label == "b 198.18.2.53 DoT" else {},
            [("CERTIFICATE", "b 198.18.2.53 DoT")],
        ),
    ],
)
def test_flags(tmp_path: Path, change: Callable[[ResolverTarget, int], Row], expected: list[tuple[str, str]]) -> None:
    assert kinds(tmp_path, change) == expected


def test_flagged_targets_are_not_ranked(tmp_path: Path) -> None:
    plan, visits = measured(
        tmp_path, lambda one, _round: {"site": "y"} if one.protocol is Protocol.DOH3 and one.name == "b" else {}
    )
    comparison = analysis.compare(plan, visits)
    assert {line.target.name for line in comparison.lines if line.group is None} == {"b"}
    assert "b 198" not in comparison.advice
    assert "flag: several sites: b 198.18.2.53: answers came from x, y" in analysis.text(comparison, plan)


# Files for people and notebooks


def test_the_report_is_one_file_and_escapes_what_it_shows(tmp_path: Path) -> None:
    plan, visits = measured(tmp_path, lambda _target, round_: {"site": f"<b>{round_ % 2}"})
    shown = page(analysis.compare(plan, visits, {0: "left alone: <script>"}), plan)
    assert "&lt;b&gt;0, &lt;b&gt;1" in shown
    assert "<script" not in shown
    assert "http" not in re.sub(r"xmlns(:xlink)?=\"[^\"]+\"|http-equiv", "", shown), "nothing is loaded"
    assert shown.count("<svg") == 1
    for text in ("first query, ms", "next query, ms", "path RTT, ms", "several servers behind one address"):
        assert text in shown
    empty = analysis.compare(plan, [TargetVisit(0, 0, 1.0, error="timeout")])
    assert "No resolver answered" in page(empty, plan)


@pytest.mark.slow
def test_a_notebook_gets_frames_a_chart_and_advice(tmp_path: Path) -> None:
    import crosslayer

    plan, visits = measured(tmp_path, lambda _target, _round: {})
    with Journal.create(tmp_path / "c", plan) as journal:
        for visit in visits:
            journal.progress["host-1"].add(visit)
        journal.describe("host-1", provenance.this_host(""), {})
        journal.export()
    assert read_campaign(tmp_path / "c") == Measured(plan, {"host-1": visits})
    view = crosslayer.compare(tmp_path / "c")
    assert view.visits.height == len(visits)
    assert view.visits["transport"].unique().sort().to_list() == ["DoH3", "DoT", "DoUDP"]
    first = view.results.filter(measure="first query", transport="DoT", address="198.18.2.53").row(0, named=True)
    assert (first["median"], first["n"], first["group"], first["flags"]) == (60.0, 8, 2, "")
    assert view.advice.startswith("Fastest from here at this time")
    assert view.flags == []
    assert view.chart.to_dict(validate=False)["vconcat"]
    assert view._repr_mimebundle_()["text/plain"] == view.text()
    assert view.save(tmp_path / "r.html").read_text(encoding="utf-8").count("<svg") == 1


def test_a_notebook_sends_nothing_without_consent(unsent: None, tmp_path: Path, capsys: Any) -> None:
    import crosslayer

    with pytest.raises(outside.OutsideError, match="you did not consent; nothing was sent"):
        crosslayer.compare(["quad9"], dataset=tmp_path / "c")
    assert "at most 34 queries" in capsys.readouterr().out
    with pytest.raises(ResolversError, match="is no transport: 'DOH'"):
        crosslayer.compare(["quad9"], transports=["DOH"])


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_a_file_of_discover_is_a_list(tmp_path: Path, ending: str) -> None:
    def row(target: str, address: str, transport: str, port: int, supported: bool, alpn: str | None = None) -> Support:
        unknown: dict[str, Any] = {field.name: None for field in dataclasses.fields(Support)} | {"quic_versions": ()}
        own = {"target": target, "address": address, "transport": transport, "port": port, "supported": supported}
        return Support(**(unknown | own | {"alpn": alpn}))

    path = tmp_path / f"support.{ending}"
    rows = [
        row("dns.example.net", "192.0.2.1", "DoUDP", 53, True),
        row("dns.example.net", "192.0.2.1", "DoT", 853, True),
        row("dns.example.net", "192.0.2.1", "DoH", 443, False),
        row("dns.example.net", "192.0.2.1", "DoQ", 8853, True, "doq"),
        row("dns.example.net", "192.0.2.1", "DoQ", 784, True, "doq-i02"),
        row("192.0.2.2", "192.0.2.2", "DoH3", 443, True, "h3"),
    ]
    table.write(rows, path)
    listed = read([str(path)])
    assert [(t.name, t.operator, t.protocol.value, t.port, t.host) for t in listed.targets] == [
        ("dns.example.net", "example.net", "DoUDP", 53, ""),
        ("dns.example.net", "example.net", "DoT", 853, "dns.example.net"),
        ("dns.example.net", "example.net", "DoQ", 8853, "dns.example.net"),
        ("192.0.2.2", "192.0.2.2", "DoH3", 443, "192.0.2.2"),
    ]
    assert listed.left_out == ["dns.example.net 192.0.2.1 DoQ: it speaks doq-i02 of DoQ"]
    path.write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(ResolversError, match="is no file of `crosslayer discover --out`"):
        read([str(path)])
    table.write([dataclasses.replace(rows[0], transport="DoX")], path)
    with pytest.raises(ResolversError, match="has a row without"):
        read([str(path)])


# One place opens sockets to others


CLIENT_PACKAGES = (
    "dns",
    "discover",
    "resolvers",
    "stub",
    "h3",
    "browser",
    "campaign",
    "studies",
    "notebooks",
    "commands",
)
LOCAL = {"AF_UNIX", "AF_PACKET"}
"""Families of sockets that lead to no other host."""


def sockets_opened(source: str) -> list[int]:
    """Lines that open a socket which may lead to another host."""
    lines = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        module = node.func.value.id if isinstance(node.func.value, ast.Name) else ""
        families = {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}
        opens = module == "socket" and node.func.attr in ("socket", "create_connection", "create_server")
        if opens and not families & LOCAL:
            lines.append(node.lineno)
    return lines


@pytest.mark.slow
def test_every_client_opens_its_sockets_where_consent_is_checked() -> None:
    library = Path(outside.__file__).parents[1]
    opened = {
        f"{path.relative_to(library)}:{line}"
        for package in CLIENT_PACKAGES
        for path in (library / package).rglob("*.py")
        for line in sockets_opened(path.read_text(encoding="utf-8"))
    }
    assert opened == set()
    assert sockets_opened("import socket\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM)") == [2]
    assert sockets_opened("socket.create_connection(('192.0.2.1', 53))") == [1]
    assert sockets_opened("socket.socket(socket.AF_UNIX)") == []


@pytest.mark.parametrize(
    ("url", "refusal"),
    [
        ("quic://192.0.2.1", "there is no consent"),
        ("udp://[2001:db8::1]:5353", "there is no consent"),
        ("https://dns.example.net/dns-query", "would be looked up by the stub"),
        ("quic://a@127.0.0.1", "would be looked up by the stub"),
        ("https://127.0.0.1\\@192.0.2.1/", "would be looked up by the stub"),
        ("udp://198.41.0.4", "is on the stop list"),
        ("udp://127.0.0.1:53", ""),
        ("tls://localhost", ""),
    ],
)
def test_a_stub_needs_consent_to_its_upstream(own_folders: Path, url: str, refusal: str) -> None:
    settings = StubSettings(url)
    if refusal:
        with pytest.raises(OutsideError, match=refusal):
            settings.check_consent()
    else:
        settings.check_consent()


# Clocks, idle times, disturbed rounds


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        ((10.0, 10.0, 10.0), None),
        ((10.0, 10.0, 10.005), None),
        ((1000.0, 1000.0, 1000.5), None),  # NTP corrects by at most 500 ppm
        ((10.0, 70.0, 70.0), (EventKind.SLEPT, "the machine slept for 60.0 s")),
        ((10.0, 10.0, 3610.0), (EventKind.CLOCK_STEPPED, "the time of day was set by +3600.0 s")),
        ((10.0, 10.0, 9.0), (EventKind.CLOCK_STEPPED, "the time of day was set by -1.0 s")),
    ],
)
def test_what_happened_to_the_clocks(later: tuple[float, float, float], expected: tuple[EventKind, str] | None) -> None:
    assert ClockReading(0.0, 0.0, 0.0).disturbed(ClockReading(*later)) == expected


def answered(measured_idle_s: float, *, moved: bool | None = False) -> IdleQuery:
    return IdleQuery(measured_idle_s, measured_idle_s, 20.0, moved=moved)


def silent(measured_idle_s: float) -> IdleQuery:
    return IdleQuery(measured_idle_s, measured_idle_s, error="timeout")


@pytest.mark.parametrize(
    ("queries", "expected"),
    [
        ([answered(20), answered(45)], None),
        ([answered(20), silent(45)], (20, 45, False, 32.5)),
        ([answered(20), silent(45), answered(29.6), answered(30.4, moved=True)], (29.6, 30.4, True, None)),
        ([silent(45), silent(20)], (0, 20, True, 10)),
        ([answered(20), silent(20), answered(45)], None),  # a lost packet
        ([IdleQuery(45, 45, error="idle timeout"), IdleQuery(45, 45, error="connection reset")], None),
    ],
)
def test_idle_queries_narrow_down_when_a_flow_is_forgotten(
    queries: list[IdleQuery], expected: tuple[float, float, bool, float | None] | None
) -> None:
    known = forgetting(queries)
    measured_as = known and (known.kept_s, known.forgotten_s, known.shown, known.next_s)
    assert measured_as == expected


def test_a_disturbed_round_is_measured_again_and_its_first_attempt_does_not_count(tmp_path: Path) -> None:
    folder, plan = tmp_path / "c", plan_of()
    idle = (IdleQuery(20.0, 20.1, 5.0), IdleQuery(40.0, 40.0, error="connection reset", search=True))
    kept_visits = [
        TargetVisit(0, 0, 1.0, first_ms=5.0, handshake_ms=0.0),
        TargetVisit(0, 1, 4.0, first_ms=7.0, handshake_ms=0.0, moved=False, attempt=1, idle=idle, early_ms=3.0),
    ]
    event = Disturbance(EventKind.SLEPT, 0, "the machine slept for 60.0 s", 3.0, voids=0)
    with Journal.create(folder, plan) as journal:
        progress = journal.progress["host-1"]
        progress.add(kept_visits[0])
        assert progress.voids(0) == 0
        progress.add(event)
        assert not progress.visited(0, 0)
        progress.add(kept_visits[1])
        assert progress.visited(0, 1)
        copy = pickle.loads(pickle.dumps(progress.copy(0)))
        assert (copy.attempt(0), copy.visited(0, 0), copy.visited(0, 1)) == (1, False, True)
        progress.add(Disturbance(EventKind.SLEPT, 1, "again", 3.0, voids=0))
        assert progress.voids(0) is None, "two of ten rounds are measured again"
    with Journal.resume(folder, plan) as again:
        assert again.entries("host-1")[:2] == kept_visits
        assert event in again.entries("host-1")
        measured = read_campaign(again.export())
        assert measured.visits == [kept_visits[1]]
        comparison = analysis.of(measured)
        assert {(str(flag.kind), flag.subject) for flag in comparison.flags} == {
            ("sleep of the machine", "round 0"), ("sleep of the machine", "round 1"),
        }  # fmt: skip
        again.export()
    assert [visit.first_ms for visit in read_campaign(folder).visits] == [7.0]
