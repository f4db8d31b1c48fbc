"""The emulated Internet (box): every property that can mislead a tool is present, by packets and by the box's record.

This file is also the program that queries inside a box: `test_box.py SCENARIO` prints its observations as JSON. All
scenarios run in virtual time, so their times are exact; `test_in_real_time` runs one of them in real time.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import ssl
import statistics
import struct
import subprocess
import sys
import time
import tomllib
from base64 import urlsafe_b64encode
from collections.abc import Callable
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import dns.message
import dns.rcode
import pytest

from crosslayer import resources
from crosslayer.box.description import load_box
from crosslayer.box.hosts import NOBODY
from tests import box_tools
from tests.integration.conftest import Run, run_here

Row = dict[str, Any]
ROOT = Path(__file__).parents[2]
BOXES = ROOT / "emulation/boxes"
PATIENCE_S = 2.0
ZONE = "box.example"
MAKES = {"bind9": "named", "knot-resolver": "kresd", "unbound": "unbound", "dnsdist": "dnsdist", "dnsproxy": "dnsproxy"}

# Inside a box


def wire(name: str, kind: str = "A") -> bytes:
    return dns.message.make_query(name, kind).to_wire()


def answered(reply: bytes | None, start_ns: int) -> Row:
    """Time since the start, ms, and response code; both None without a reply."""
    if reply is None:
        return {"ms": None, "rcode": None}
    code = dns.rcode.to_text(dns.message.from_wire(reply).rcode())
    return {"ms": (time.monotonic_ns() - start_ns) / 1e6, "rcode": code}


def udp(address: str, name: str, asking: socket.socket | None = None) -> Row:
    """Query over UDP, from a new socket unless one is given."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with contextlib.ExitStack() as stack:
        one = asking or stack.enter_context(socket.socket(family, socket.SOCK_DGRAM))
        one.settimeout(PATIENCE_S)
        start = time.monotonic_ns()
        one.sendto(wire(name), (address, 53))
        try:
            reply = one.recv(4096)
        except TimeoutError:
            reply = None
        return answered(reply, start)


def tls(address: str, host: str, port: int) -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=os.environ["CROSSLAYER_CA"])
    return context.wrap_socket(socket.create_connection((address, port), PATIENCE_S), server_hostname=host)


def handshake(address: str, host: str, port: int) -> str:
    """Result of a TLS handshake: `ok`, or the name of the error."""
    try:
        tls(address, host, port).close()
    except ssl.SSLCertVerificationError as error:
        return error.verify_message
    except OSError as error:
        return type(error).__name__
    return "ok"


def doh_status(address: str, host: str, name: str) -> int:
    connection = HTTPSConnection(host)
    connection.sock = tls(address, host, 443)
    query = urlsafe_b64encode(wire(name)).rstrip(b"=").decode()
    connection.request("GET", f"/dns-query?dns={query}", headers={"Accept": "application/dns-message"})
    status = connection.getresponse().status
    connection.close()
    return status


def kdig(*arguments: str) -> str:
    """Output of kdig with one attempt and a timeout of 2 s."""
    command = ["kdig", "+timeout=2", "+retry=0", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def quic_works(address: str) -> bool:
    return "NOERROR" in kdig(f"@{address}", "+quic", f"q.{ZONE}")


def distances() -> Row:
    """A miss and hits at each of five resolvers."""
    result = {}
    for number in range(1, 6):
        address, name = f"198.18.{number}.53", f"a{number}.{ZONE}"
        result[str(number)] = [udp(address, name) for _ in range(10)]
    result["v6"] = [udp("2001:db8:53:2::53", f"v6.{ZONE}") for _ in range(2)]
    result["host"] = [socket.gethostbyname("city.resolvers.test")]
    return result


def peculiar() -> Row:
    """Observations of each resolver of `PECULIAR`, by kind of query."""
    result: Row = {}
    address = {name: f"198.18.{number}.53" for number, name in enumerate(NAMES, start=1)}
    host = {name: f"{name}.resolvers.test" for name in NAMES}
    result["anycast"] = [udp(address["anycast"], f"any.{ZONE}") for _ in range(2)]
    result["anycast-quic"] = quic_works(address["anycast"])
    result["anycast-v6"] = [udp("2001:db8:53:1::53", f"any.{ZONE}") for _ in range(2)]
    result["balanced"] = [udp(address["balanced"], f"many.{ZONE}") for _ in range(24)]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        result["one flow"] = [udp(address["balanced"], f"flow.{ZONE}", one) for _ in range(6)]
    result["refuses"] = [udp(address["refuses"], f"a.{ZONE}") for _ in range(8)]
    time.sleep(2)
    result["refuses later"] = udp(address["refuses"], f"a.{ZONE}")
    result["silent"] = [udp(address["silent"], f"a.{ZONE}") for _ in range(3)]
    result["unavailable"] = [doh_status(address["unavailable"], host["unavailable"], f"a.{ZONE}") for _ in range(3)]
    result["escalating"] = []
    for _ in range(4):
        try:
            result["escalating"].append(doh_status(address["escalating"], host["escalating"], f"a.{ZONE}"))
        except TimeoutError:
            result["escalating"].append(None)
    result["filtering"] = [udp(address["filtering"], name) for name in (f"x.ads.{ZONE}", f"x.{ZONE}")]
    result["half"] = [
        udp(address["half"], f"a.{ZONE}"),
        udp(f"2001:db8:53:{NAMES.index('half') + 1:x}::53", f"a.{ZONE}"),
    ]
    for name in ("other-name", "other-ca", "expired", "plain"):
        result[name] = [handshake(address[name], host[name], 853), handshake(address[name], host[name], 443)]
    result["draft"] = quic_works(address["draft"])
    result["plain-quic"] = quic_works(address["plain"])
    result["dead"] = [udp(address["dead"], f"a.{ZONE}"), handshake(address["dead"], host["dead"], 853)]
    result["no-quic"] = [handshake(address["no-quic"], host["no-quic"], 853), quic_works(address["no-quic"])]
    result["site"] = kdig(f"@{address['anycast']}", "CH", "TXT", "id.server", "+short").strip()
    result["nsid"] = kdig(f"@{address['anycast']}", "+nsid", f"any.{ZONE}")
    udp(address["moving"], f"m.{ZONE}")
    result["before"] = udp(address["moving"], f"m.{ZONE}")
    time.sleep(100)
    result["after"] = udp(address["moving"], f"m.{ZONE}")
    result["flipped"] = udp(address["anycast"], f"any.{ZONE}")
    return result


def hotel() -> Row:
    """Observations of the two resolvers of the box `hotel.toml`."""
    result: Row = {"nobody": [udp(NOBODY, f"n.{ZONE}") for _ in range(2)], "udp": udp("198.18.1.53", f"n.{ZONE}")}
    for number, name in (("1", "open"), ("2", "victim")):
        host = f"{name}.resolvers.test"
        result[name] = [handshake(f"198.18.{number}.53", host, 853), handshake(f"198.18.{number}.53", host, 443)]
    result["doq"] = quic_works("198.18.1.53")
    # QUIC version negotiation (RFC 9000, section 6): a server answers an unknown version over an open port.
    result["udp/443"], result["udp/853"] = (greeted("198.18.1.53", port) for port in (443, 853))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as idle:
        result["idle"] = []
        for pause_s in (0, 29, 31, 0):
            time.sleep(pause_s)
            result["idle"].append(udp("198.18.1.53", f"n.{ZONE}", idle))
    return result


def greeted(address: str, port: int) -> bool:
    unknown = bytes([0xC0]) + b"\x1a\x2a\x3a\x4a" + b"\x08" + os.urandom(8) + b"\x08" + os.urandom(8)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.settimeout(PATIENCE_S)
        one.sendto(unknown.ljust(1200, b"\0"), (address, port))
        with contextlib.suppress(TimeoutError):
            return bool(one.recv(2048))
    return False


def home() -> Row:
    """Observations behind a NAT that changes its address at 60 s.

    Idle UDP flows expire after 30 s; later packets are forwarded.
    """
    result: Row = {}

    def over_tcp(kept: socket.socket) -> str:
        query = wire(f"t.{ZONE}")
        try:
            kept.sendall(struct.pack("!H", len(query)) + query)
            return "answer" if kept.recv(4096) else "end"
        except OSError as error:
            return type(error).__name__

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as idle:
        result["first"] = udp("198.18.1.53", f"i.{ZONE}", idle)
        time.sleep(35)
        result["forgotten"] = udp("198.18.1.53", f"i.{ZONE}", idle)
    time.sleep(22)
    with socket.create_connection(("198.18.1.53", 53), PATIENCE_S) as kept:
        result["before"] = over_tcp(kept)
        time.sleep(5)
        result["after"] = [udp("198.18.1.53", f"i.{ZONE}"), over_tcp(kept)]
    return result


def origins() -> Row:
    """Load the page of a web origin over HTTP/2."""
    command = ["curl", "-sS", "--http2", "--cacert", os.environ["CROSSLAYER_CA"], "https://www.shop.example/"]
    return {"page": subprocess.run(command, capture_output=True, text=True, check=False).stdout}


def makes() -> Row:
    """A miss and a hit at every resolver of the box, over UDP and TLS."""
    count = int(os.environ["RESOLVERS"])
    udp_rows = {str(n): [udp(f"198.18.{n}.53", f"u{n}.{ZONE}") for _ in range(2)] for n in range(1, count + 1)}
    hosts = os.environ["HOSTS"].split()
    return {"udp": udp_rows, "tls": [handshake(f"198.18.{n}.53", host, 853) for n, host in enumerate(hosts, start=1)]}


def world() -> Row:
    """Transports of each listed resolver that answer with DNS, TLS or QUIC."""
    result: Row = {}
    for one in tomllib.loads(Path(os.environ["CROSSLAYER_RESOLVERS"]).read_text(encoding="utf-8"))["resolver"]:
        address, host, transports = one["address"][0], one["host"], one["transports"]
        reached = {
            "doudp": lambda address=address: udp(address, f"w.{ZONE}")["rcode"] == "NOERROR",
            "dot": lambda address=address, host=host: handshake(address, host, 853) == "ok",
            "doh": lambda address=address, host=host: handshake(address, host, 443) == "ok",
            "doh3": lambda address=address: greeted(address, 443),
            "doq": lambda address=address: greeted(address, 853),
        }
        result[one["name"]] = [transport for transport in transports if transport in reached and reached[transport]()]
    return result


SCENARIOS: dict[str, Callable[[], Row]] = {
    scenario.__name__: scenario for scenario in (distances, peculiar, hotel, home, origins, makes, world)
}


# Outside a box


PECULIAR = """
[zone]
name = "box.example"
rtt_ms = 80

[[resolver]]
name = "anycast"
ipv6 = true
site = [{ name = "close", rtt_ms = 10 }, { name = "distant", rtt_ms = 70 }, { name = "six", rtt_ms = 40 }]
route = [
    { site = "distant", transports = ["doq", "doh3"] },
    { site = "six", family = 6 },
    { site = "distant", from_s = 90 },
]
[[resolver]]
name = "balanced"
rtt_ms = 15
caches = 4
[[resolver]]
name = "refuses"
rtt_ms = 10
rate_limit = { queries_per_s = 5 }
[[resolver]]
name = "silent"
rtt_ms = 10
rate_limit = { queries_per_s = 1, answer = "silence" }
[[resolver]]
name = "unavailable"
rtt_ms = 10
rate_limit = { queries_per_s = 1, answer = "503" }
[[resolver]]
name = "escalating"
rate_limit = { queries_per_s = 1, answer = "escalate" }
[[resolver]]
name = "filtering"
rtt_ms = 10
filter = ["ads.box.example"]
[[resolver]]
name = "half"
rtt_ms = 10
broken_ipv6 = true
[[resolver]]
name = "other-name"
certificate = "other-name"
[[resolver]]
name = "other-ca"
certificate = "other-ca"
[[resolver]]
name = "expired"
certificate = "expired"
[[resolver]]
name = "plain"
[[resolver]]
name = "draft"
doq_alpn = "doq-i02"
[[resolver]]
name = "dead"
dead = true
[[resolver]]
name = "no-quic"
transports = ["doudp", "dotcp", "dot", "doh"]
[[resolver]]
name = "moving"
rtt_ms = 35
path_change = [{ at_s = 60, rtt_ms = 60 }]
"""
NAMES = [line.split('"')[1] for line in PECULIAR.splitlines() if line.startswith("name =")][1:]
HOME = """
[[resolver]]
name = "only"
rtt_ms = 10
[network.nat]
udp_timeout_s = 30
address_changes_s = [60]
"""
SHOP = """
[[resolver]]
name = "only"
[[origin]]
name = "www.shop.example"
rtt_ms = 40
"""


def ask(run: Run, box: Path, scenario: str, folder: Path, clock: str, **environment: str) -> tuple[Row, list[Row]]:
    """Run a scenario in a box; returns its observations and the box's record."""
    truth = folder / f"{scenario}-{clock}.jsonl"
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    options = ["--clock", clock, "--truth", str(truth), "--packets"]
    done = run(
        "box", str(box), *options, "--", sys.executable, str(Path(__file__)), scenario,
        env=os.environ | {"PYTHONPATH": path} | environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), [json.loads(line) for line in truth.read_text(encoding="utf-8").splitlines()]


def described(text: str, folder: Path) -> Path:
    box = folder / "box.toml"
    box.write_text(text, encoding="utf-8")
    return box


def answers(truth: list[Row], resolver: str, **values: object) -> list[Row]:
    rows = [
        row | {"name": row["name"].lower()} for row in truth if row["event"] == "answer" and row["resolver"] == resolver
    ]
    return [row for row in rows if all(row[key] == value for key, value in values.items())]


def drops(truth: list[Row], reason: str) -> list[Row]:
    return [row for row in truth if row["event"] == "drop" and row["reason"] == reason]


@pytest.fixture(scope="module")
def peculiar_run(virtual_clock: list[str], tmp_path_factory: pytest.TempPathFactory) -> tuple[Row, list[Row]]:
    folder = tmp_path_factory.mktemp("box")
    return ask(run_here, described(PECULIAR, folder), "peculiar", folder, "virtual")


@pytest.fixture(scope="module")
def distances_run(
    testbed_machine: None, virtual_clock: list[str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Row, list[Row]]:
    return ask(run_here, BOXES / "five.toml", "distances", tmp_path_factory.mktemp("box"), "virtual")


RTT_MS = {"1": 5, "2": 30, "3": 32, "4": 100, "5": 300}


def test_paths_and_caches_are_as_described(distances_run: tuple[Row, list[Row]]) -> None:
    saw, truth = distances_run
    for number, rtt_ms in RTT_MS.items():
        miss, *hits = [row["ms"] for row in saw[number]]
        assert statistics.median(hits) == pytest.approx(rtt_ms, abs=0.1)
        rows = [row for row in truth if row["event"] == "answer" and row["name"] == f"a{number}.{ZONE}."]
        sources = [row["source"] for row in rows if row["resolver"] != "authority"]
        assert sources == ["miss", *["hit"] * 9]
        own_ms = [row["own_ms"] for row in rows if row["source"] == "miss"]
        assert own_ms == [pytest.approx(80, abs=0.2)]
        assert miss == pytest.approx(rtt_ms + own_ms[0], abs=0.2)
    assert saw["v6"][1]["ms"] == pytest.approx(30, abs=0.1)
    assert saw["host"] == ["198.18.2.53"]
    late = [row["late_max_ms"] for row in truth if row["event"] == "path"]
    assert len(late) == 6
    assert max(late) < 0.05


@pytest.mark.alone
def test_in_real_time(crosslayer: Run, tmp_path: Path) -> None:
    """By the box's packets, the path has its delay. The client's times are longer, because both ends must wake up."""
    saw, truth = ask(crosslayer, BOXES / "five.toml", "distances", tmp_path, "wall")
    for number, rtt_ms in RTT_MS.items():
        host = NEAR_TO_FAR[int(number) - 1]
        packets = [row for row in truth if row["event"] == "packet" and row["host"] == host and row["way"] != "across"]
        half_ms = {
            way: statistics.median((row["left_ns"] - row["time_ns"]) / 1e6 for row in packets if row["way"] == way)
            for way in ("up", "down")
        }
        assert half_ms == pytest.approx({"up": rtt_ms / 2, "down": rtt_ms / 2}, abs=0.25)
        assert min(row["ms"] for row in saw[number][1:]) >= rtt_ms
        assert answers(truth, host)[0]["source"] == "miss"


NEAR_TO_FAR = ["near", "city", "country", "continent", "antipode"]


def test_truth_by_packets_agrees_with_truth_by_server(peculiar_run: tuple[Row, list[Row]]) -> None:
    _, truth = peculiar_run
    for answer in answers(truth, "moving"):
        port = int(answer["remote"].rpartition(":")[2])
        up, down = (
            [
                row
                for row in truth
                if row["event"] == "packet" and row["host"] == "moving" and row["way"] == way and row[end] == port
            ]
            for way, end in (("up", "source_port"), ("down", "destination_port"))
        )
        arrived_ns, left_ns = up[0]["left_ns"], down[0]["time_ns"]
        assert arrived_ns <= answer["time_ns"] <= answer["done_ns"] <= left_ns
        assert (left_ns - arrived_ns) / 1e6 == pytest.approx(answer["own_ms"], abs=0.2)


def test_anycast_by_transport_family_and_time(peculiar_run: tuple[Row, list[Row]]) -> None:
    saw, truth = peculiar_run
    assert [row["site"] for row in answers(truth, "anycast", transport="udp", name=f"any.{ZONE}.")] == [
        *["close"] * 2, *["six"] * 2, "close", "distant",
    ]  # fmt: skip
    assert saw["anycast"][1]["ms"] == pytest.approx(10, abs=0.2)
    assert saw["anycast-v6"][1]["ms"] == pytest.approx(40, abs=0.2)
    assert saw["anycast-quic"]
    assert {row["site"] for row in answers(truth, "anycast", transport="doq")} == {"distant"}
    assert saw["flipped"]["ms"] > 70
    assert saw["site"] == '"close"'
    assert '"close"' in saw["nsid"]


def test_caches_behind_a_balancer(peculiar_run: tuple[Row, list[Row]]) -> None:
    saw, truth = peculiar_run
    rows = answers(truth, "balanced", name=f"many.{ZONE}.")
    sites = {row["site"] for row in rows}
    assert sites == {"0", "1", "2", "3"}
    assert [row["source"] for row in rows].count("miss") == 4
    slow = [row["ms"] > 90 for row in saw["balanced"]]
    assert slow == [row["source"] == "miss" for row in rows]
    assert len({row["site"] for row in answers(truth, "balanced", name=f"flow.{ZONE}.")}) == 1


def test_rate_limits(peculiar_run: tuple[Row, list[Row]]) -> None:
    saw, truth = peculiar_run
    codes = [row["rcode"] for row in saw["refuses"]]
    assert codes[:5] == ["NOERROR"] * 5
    assert codes[-1] == "REFUSED"
    assert saw["refuses later"]["rcode"] == "NOERROR"
    assert [row["rcode"] for row in saw["silent"]] == ["NOERROR", None, "NOERROR"]
    assert [row["source"] for row in answers(truth, "silent")] == ["miss", "limited", "hit"]
    assert saw["unavailable"] == [200, 503, 503]
    assert saw["escalating"] == [200, 503, 200, None]  # REFUSED is a DNS answer, whose status is 200
    assert [row["rcode"] for row in answers(truth, "escalating")] == ["NOERROR", "", "REFUSED", ""]


def test_a_filtering_resolver_answers_nxdomain_at_once(peculiar_run: tuple[Row, list[Row]]) -> None:
    saw, truth = peculiar_run
    filtered, usual = saw["filtering"]
    assert (filtered["rcode"], usual["rcode"]) == ("NXDOMAIN", "NOERROR")
    assert filtered["ms"] == pytest.approx(10, abs=0.2)
    assert [row["source"] for row in answers(truth, "filtering")] == ["filtered", "miss"]


def test_broken_ipv6(peculiar_run: tuple[Row, list[Row]]) -> None:
    saw, truth = peculiar_run
    assert [row["rcode"] for row in saw["half"]] == ["NOERROR", None]
    assert drops(truth, "broken-ipv6")


def test_certificates(peculiar_run: tuple[Row, list[Row]]) -> None:
    saw, _ = peculiar_run
    assert saw["plain"] == ["ok", "ok"]
    for name, expected in (("other-name", "ostname mismatch"), ("other-ca", "unable to get"), ("expired", "expired")):
        assert all(expected in outcome for outcome in saw[name]), saw[name]


def test_another_draft_of_doq(peculiar_run: tuple[Row, list[Row]]) -> None:
    saw, truth = peculiar_run
    assert saw["plain-quic"]
    assert not saw["draft"]
    assert not answers(truth, "draft")
    up = [row for row in truth if row["event"] == "packet" and row["host"] == "draft"]
    assert {row["way"] for row in up} == {"up", "down"}  # the server answers, with a TLS alert


def test_a_dead_resolver_and_missing_transports(peculiar_run: tuple[Row, list[Row]]) -> None:
    saw, truth = peculiar_run
    assert saw["dead"] == [{"ms": None, "rcode": None}, "TimeoutError"]
    assert {row["protocol"] for row in drops(truth, "dead")} == {"udp", "tcp"}
    assert saw["no-quic"] == ["ok", False]
    assert {(row["protocol"], row["destination_port"]) for row in drops(truth, "not-offered")} == {("udp", 853)}


def test_a_path_that_changes(peculiar_run: tuple[Row, list[Row]]) -> None:
    saw, _ = peculiar_run
    assert saw["before"]["ms"] == pytest.approx(35, abs=0.2)
    assert saw["after"]["ms"] == pytest.approx(60, abs=0.2)


def test_a_network_that_interferes(crosslayer: Run, virtual_clock: list[str], tmp_path: Path) -> None:
    saw, truth = ask(crosslayer, BOXES / "hotel.toml", "hotel", tmp_path, "virtual")
    assert [row["rcode"] for row in saw["nobody"]] == ["NOERROR", "NOERROR"]
    assert saw["nobody"][1]["ms"] == pytest.approx(2, abs=0.2)
    assert len(answers(truth, "interceptor-0", transport="udp")) == 5
    assert not [row for name in ("open", "victim") for row in answers(truth, name, transport="udp")]
    assert saw["open"] == ["ok", "ok"]
    assert all("unable to get" in outcome for outcome in saw["victim"])
    assert saw["doq"]
    assert (saw["udp/443"], saw["udp/853"]) == (False, True)
    assert drops(truth, "blocked-udp-443")
    assert [row["rcode"] for row in saw["idle"]] == ["NOERROR", "NOERROR", None, None]
    assert len(drops(truth, "nat-forgot")) == 2


def test_a_nat_that_renumbers(crosslayer: Run, virtual_clock: list[str], tmp_path: Path) -> None:
    saw, truth = ask(crosslayer, described(HOME, tmp_path), "home", tmp_path, "virtual")
    assert saw["before"] == "answer"
    assert saw["forgotten"]["rcode"] == saw["after"][0]["rcode"] == "NOERROR"
    remotes = [row["remote"] for row in answers(truth, "only", transport="udp")]
    addresses = [remote.rpartition(":")[0] for remote in remotes]
    assert addresses == ["198.19.0.1", "198.19.0.1", "198.19.0.2"]
    assert remotes[0] != remotes[1]  # the NAT's mapping expired, so the flow got another port
    assert saw["after"][1] != "answer"
    assert [row["event"] for row in truth].count("address-change") == 1


def test_a_web_origin(crosslayer: Run, virtual_clock: list[str], tmp_path: Path) -> None:
    saw, _ = ask(crosslayer, described(SHOP, tmp_path), "origins", tmp_path, "virtual")
    assert "www.shop.example" in saw["page"]


def test_other_makes(crosslayer: Run, virtual_clock: list[str], tmp_path: Path) -> None:
    here = [make for make in MAKES if make not in missing_makes()]
    if not here:
        pytest.skip(f"none of {', '.join(MAKES)} is installed")
    text = "".join(f'[[resolver]]\nname = "{make}"\nmake = "{make}"\nrtt_ms = 20\n' for make in here)
    environment = {"RESOLVERS": str(len(here)), "HOSTS": " ".join(f"{make}.resolvers.test" for make in here)}
    saw, truth = ask(crosslayer, described(text, tmp_path), "makes", tmp_path, "virtual", **environment)
    for number in range(1, len(here) + 1):
        miss, hit = saw["udp"][str(number)]
        assert (miss["rcode"], hit["rcode"]) == ("NOERROR", "NOERROR")
        assert miss["ms"] == pytest.approx(100, abs=1)
        assert hit["ms"] == pytest.approx(20, abs=1)
        assert len(answers(truth, "authority", name=f"u{number}.{ZONE}.")) == 1
    assert saw["tls"] == ["ok"] * len(here)


def missing_makes() -> list[str]:
    missing = []
    for make, program in MAKES.items():
        try:
            resources.locate(program)
        except resources.ResourceError:
            missing.append(make)
    return missing


def test_thirty_resolvers_start_soon_and_answer(crosslayer: Run, virtual_clock: list[str], tmp_path: Path) -> None:
    used = {resolver.make for resolver in load_box(BOXES / "world.toml").resolver}
    if missing := used & set(missing_makes()):
        pytest.skip(f"not installed: {', '.join(sorted(missing))}")
    start = time.monotonic()
    saw, truth = ask(crosslayer, BOXES / "world.toml", "world", tmp_path, "virtual")
    assert time.monotonic() - start < 120  # including the queries, on a busy machine
    assert len(saw) == 30
    assert saw.pop("dead") == []
    assert saw.pop("wrong-name") == ["doudp", "doh3", "doq"]
    for resolver in load_box(BOXES / "world.toml").resolver:
        if resolver.name in saw:
            assert saw[resolver.name] == [name for name in resolver.transports if name != "dotcp"], resolver.name
    assert (
        len([row for row in truth if row["event"] == "host"]) == 3 + 28 + 2 + 3
    )  # dead has none, anycast 2, balanced 4


@pytest.mark.parametrize("clock", ["wall", "virtual"])
def test_exit_status(clock: str, crosslayer: Run, virtual_clock: list[str], tmp_path: Path) -> None:
    box = str(BOXES / "five.toml")
    full = tmp_path / "full.jsonl"
    full.write_text("{}", encoding="utf-8")
    for options, command, status, message in (
        ([], ["sh", "-c", "exit 7"], 7, ""),
        ([], ["no-such-program"], 127, "command not found"),
        (["--truth", str(tmp_path / "none/t.jsonl")], ["true"], 1, "folder that does not exist"),
        (["--truth", str(full)], ["true"], 1, "is not empty"),
        (["--resolvers-out", str(tmp_path / "none/r.toml")], ["true"], 1, "folder that does not exist"),
    ):
        done = crosslayer("box", box, "--clock", clock, *options, "--", *command)
        assert done.returncode == status, done.stderr
        assert message in done.stderr
    assert full.read_text(encoding="utf-8") == "{}"


def test_a_killed_command_leaves_its_truth(crosslayer: Run, virtual_clock: list[str], tmp_path: Path) -> None:
    truth, resolvers = tmp_path / "truth.jsonl", tmp_path / "resolvers.toml"
    files = ["--truth", str(truth), "--resolvers-out", str(resolvers)]
    command = ["sh", "-c", f"kdig @198.18.1.53 a.{ZONE} +short; kill -9 $$"]
    done = crosslayer("box", str(BOXES / "five.toml"), "--clock", "virtual", *files, "--", *command)
    assert done.returncode == 128 + 9
    rows = [json.loads(line) for line in truth.read_text(encoding="utf-8").splitlines()]
    assert [row["source"] for row in answers(rows, "near")] == ["miss"]
    listed = tomllib.loads(resolvers.read_text(encoding="utf-8"))["resolver"]
    assert [one["name"] for one in listed] == NEAR_TO_FAR
    assert listed[1]["address"] == ["198.18.2.53", "2001:db8:53:2::53"]
    assert listed[1]["transports"] == {"doudp": 53, "dotcp": 53, "dot": 853, "doh": 443, "doh3": 443, "doq": 853}


def test_tools_against_truth(crosslayer: Run, virtual_clock: list[str]) -> None:
    """kdig measures a lookup from the first packet of its connection, dig from the query on the open connection."""
    if shutil.which("kdig") is None:
        pytest.skip("there is no kdig")
    measured = box_tools.measure(BOXES / "five.toml")
    assert {(one.transport, one.source) for one in measured if one.tool == "kdig"} == {
        (transport, source) for transport in box_tools.TOOLS["kdig"] for source in ("hit", "miss")
    }
    for one in measured:
        if one.tool == "kdig" or one.transport == "udp":
            assert one.reported_ms == pytest.approx(one.true_ms, abs=0.1), one
        else:
            rtt_ms = RTT_MS[str(NEAR_TO_FAR.index(one.resolver) + 1)]
            handshakes_ms = {"tcp": 1, "dot": 2, "doh": 2}[one.transport] * rtt_ms
            assert one.reported_ms == pytest.approx(one.true_ms - handshakes_ms, abs=0.2), one
    assert len(box_tools.table(measured).splitlines()) > 10


def test_the_same_seed_gives_the_same_truth(
    distances_run: tuple[Row, list[Row]], tmp_path: Path, crosslayer: Run
) -> None:
    assert ask(crosslayer, BOXES / "five.toml", "distances", tmp_path, "virtual")[1] == distances_run[1]


@pytest.mark.parametrize("box", sorted(BOXES.glob("*.toml")), ids=lambda box: box.stem)
def test_the_boxes_list_what_they_contain(box: Path) -> None:
    done = run_here("box", str(box), "--list")
    assert done.returncode == 0, done.stderr
    assert f"{box.read_text(encoding='utf-8').count('[[resolver]]')}" == str(done.stdout.count("198.18."))


if __name__ == "__main__":
    print(json.dumps(SCENARIOS[sys.argv[1]]()))
