"""Lists of resolvers, consent, pace and the analysis of a comparison. Nothing here opens a socket to another host."""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path

import pytest
from click.testing import CliRunner

from crosslayer.cli import cli
from crosslayer.dns import Protocol
from crosslayer.errors import CrosslayerError
from crosslayer.resolvers import ResolversError, ResolverTarget, analysis, manners, read, stamps, well_known
from crosslayer.resolvers.visits import ComparePlan, Journal, TargetVisit
from crosslayer.testbed import outside
from crosslayer.testbed.errors import OutsideError

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
        (stamp(b"\x01", OPTIONS), "a DNSCrypt, for which crosslayer has no client"),
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
def unsent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail a test that would send, before it does."""
    monkeypatch.setattr("crosslayer.resolvers.run.run", lambda *_a, **_k: pytest.fail("it would send"))


def test_consent_is_for_the_named_addresses_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outside, "_allowed", set())
    outside.allow(["2001:db8:0::1"])
    outside.check("2001:db8::1")
    outside.check("127.0.0.1")
    outside.check("::1")
    with pytest.raises(OutsideError):
        outside.check("2001:db8::2")


def test_the_budget_counts_each_query_by_operator() -> None:
    shares = manners.budget(read(["cloudflare", "quad9"]).targets, rounds=10)
    # 4 queries with a ticket and 3 without, for two addresses.
    assert {share.operator: share.queries for share in shares} == {
        "cloudflare-dns.com": 10 * 2 * (3 + 3 + 4 + 4 + 4),
        "quad9.net": 10 * 2 * (3 + 3 + 4 + 4),
    }


def test_dry_run_prints_the_budget_and_sends_nothing(unsent: None, tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["compare", "quad9", "--dry-run", "--out", str(tmp_path / "c.jsonl")])
    assert done.exit_code == 0, done.output
    assert "at most 168 queries" in done.output
    assert "9.9.9.9 2620:fe::fe" in done.output
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("typed", ["", "yes\n", "i may send this\n"])
def test_without_the_sentence_nothing_is_sent(unsent: None, tmp_path: Path, typed: str) -> None:
    arguments = ["compare", "udp://192.0.2.1", "--out", str(tmp_path / "c.jsonl")]
    done = CliRunner().invoke(cli, arguments, input=typed)
    assert isinstance(done.exception, ResolversError)
    assert "you did not consent; nothing was sent" in str(done.exception)
    assert not list(tmp_path.iterdir())


def test_an_address_outside_gets_no_higher_rate(unsent: None) -> None:
    done = CliRunner().invoke(cli, ["compare", "udp://192.0.2.1", "--rate", "2", "--dry-run"])
    assert "192.0.2.1 is outside this machine and gets at most 1 query/s" in str(done.exception)


def test_pauses_double_and_end_with_a_success(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    slept: list[float] = []
    monkeypatch.setattr(manners.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(manners.time, "sleep", slept.append)
    turn = manners.Turn(1000.0)
    pauses = []
    for error in ("timeout", "rcode REFUSED", "http status 503", "http status 429", None, "timeout", "certificate: x"):
        before = turn.ready_s
        turn.heed(error)
        pauses.append(turn.ready_s - 100 if turn.ready_s != before else None)
    assert pauses == [5, 10, 20, 40, None, 5, None]
    turn.wait()
    assert slept == [5]
    for _ in range(20):
        turn.heed("timeout")
    assert turn.ready_s == 100 + manners.LONGEST_PAUSE_S


# The file


def plan_of(count: int = 2, rounds: int = 10) -> ComparePlan:
    return ComparePlan("a.example", rounds, 1, 5.0, [target(f"r{number}") for number in range(count)])


def test_a_file_is_whole_after_every_visit_and_resumes(tmp_path: Path) -> None:
    path, plan = tmp_path / "c.jsonl", plan_of()
    journal = Journal.create(path, plan)
    journal.add(TargetVisit(0, 1, 1.0, first_ms=5.0))
    assert len(path.read_text(encoding="utf-8").splitlines()) == 2
    journal.close()
    with path.open("a", encoding="utf-8") as stream:
        stream.write('{"round": 0, "tar')
    again = Journal.resume(path, ComparePlan("a.example", 12, 99, 5.0, plan.targets))
    assert (again.plan.rounds, again.plan.seed) == (12, 1)
    assert again.visits == [TargetVisit(0, 1, 1.0, first_ms=5.0)]
    again.add(TargetVisit(0, 0, 2.0, error="timeout"))
    again.close()
    assert [json.loads(line)["round"] for line in path.read_text(encoding="utf-8").splitlines()[1:]] == [0, 0]


def test_a_file_of_another_comparison_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    Journal.create(path, plan_of()).close()
    for other, message in (
        (plan_of(3), "is of another comparison"),
        (ComparePlan("b.example", 10, 1, 5.0, []), "another"),
    ):
        with pytest.raises(ResolversError, match=message):
            Journal.resume(path, other)
    with pytest.raises(ResolversError, match="exists already"):
        Journal.create(path, plan_of())
    path.write_text("text\n", encoding="utf-8")
    with pytest.raises(CrosslayerError, match="is not a file of"):
        Journal.resume(path, plan_of())
    with pytest.raises(ResolversError, match="cannot be used"):
        Journal.resume(tmp_path / "none.jsonl", plan_of())


def test_a_target_that_keeps_failing_is_left_alone(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path / "c.jsonl", plan_of())
    for round_, error in enumerate(["timeout", None, "timeout", "timeout", "timeout"]):
        assert not journal.left_alone(0)
        journal.add(TargetVisit(round_, 0, 1.0, error=error))
    assert journal.left_alone(0)
    assert not journal.left_alone(1)
    journal.close()


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
        "Take encrypted any of y 127.0.0.1 DoQ, z 127.0.0.1 DoT (they differ by 0.5 ms at most); "
        "unencrypted x 127.0.0.1 DoUDP: their first queries are the fastest from here and now, "
        "on a new connection and for a name in the resolver's cache ('a.example')."
    )
    assert json.loads(json.dumps(comparison.record(plan)))["lines"][0]["first_ms"]["median"] == pytest.approx(10.25)


def test_few_rounds_have_no_interval_no_group_and_no_advice() -> None:
    comparison = comparison_of([20, 30], seed=1, rounds=5)
    assert [line.group for line in comparison.lines] == [None, None]
    assert comparison.lines[0].times["first_ms"].low is None
    assert "no advice under 6 successful rounds" in comparison.advice


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
