"""Other programs with our server, stub and clients: correct answers over every transport that each supports.

`docs/findings/clients.md` has further observations of these programs.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import dns.message
import pytest

from crosslayer import resources
from crosslayer.dns import Protocol
from crosslayer.errors import CrosslayerError
from crosslayer.testbed.server import QueryEvent, Server
from tests.integration.conftest import CROSSLAYER
from tests.integration.test_server import ADDRESSES, DOCUMENT, Namespace, ask, namespace, pages_dir, server

__all__ = ["namespace", "pages_dir", "server"]  # the fixtures

NAME = "www.example.org"
ADDRESS = ADDRESSES[NAME]
SERVER = "10.53.0.2"
FRONT = "127.0.0.1"
"""Address of the forwarder, which answers on other ports than the server."""
PORTS = {"DoUDP": 5300, "DoTCP": 5300, "DoT": 5301, "DoH": 5302, "DoH3": 5302, "DoQ": 5303}
LISTENERS = {"DoUDP": "udp", "DoTCP": "tcp", "DoT": "dot", "DoH": "doh", "DoH3": "doh3", "DoQ": "doq"}
SCHEMES = {"DoUDP": "udp", "DoTCP": "tcp", "DoT": "tls", "DoH": "https", "DoH3": "h3", "DoQ": "quic"}

ASK = """
import json, sys
from pathlib import Path
from crosslayer.dns import Protocol, Question, Resolver, exchange
ports = {Protocol(name): port for name, port in json.loads(sys.argv[1]).items()}
for protocol in ports:
    row = exchange(Resolver(sys.argv[2], sys.argv[3], Path(sys.argv[4]), ports), Question("www.example.org"), protocol)
    print(json.dumps([protocol, row.error, row.answers]))
"""
"""Program that queries with our clients; its arguments are PORTS ADDRESS NAME CA."""


def program(name: str) -> str:
    """Path of a program; the test is skipped without it."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


def built_program(name: str) -> str:
    """Path of a program that the project builds; the test is skipped without it."""
    try:
        return str(resources.locate(name).path)
    except CrosslayerError as error:
        pytest.skip(str(error))


@contextmanager
def running(namespace: Namespace, log: Path, *arguments: str) -> Iterator[None]:
    """Run a program that answers unencrypted DNS at `FRONT`; yields when it answers."""
    with log.open("w") as output:
        process = namespace.spawn(list(arguments), stdout=output, stderr=subprocess.STDOUT)
    try:
        probe = (
            f"import dns.query, dns.message; dns.query.udp(dns.message.make_query('{NAME}', 'A'), '{FRONT}', 1, 5300)"
        )
        deadline = time.monotonic() + 20
        while namespace.spawn([sys.executable, "-c", probe], stderr=subprocess.DEVNULL).wait():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
        yield
    finally:
        process.kill()
        process.wait()


def ours(namespace: Namespace, server: Server, protocols: list[str], ports: dict[str, int], address: str) -> None:
    """Check that our clients get the correct answer over the given transports."""
    wanted = json.dumps({protocol: ports[protocol] for protocol in protocols})
    output = namespace.run(sys.executable, "-c", ASK, wanted, address, NAME, str(server.ca_file))
    assert [json.loads(line) for line in output.splitlines()] == [[protocol, None, [ADDRESS]] for protocol in protocols]


def last_query(server: Server) -> QueryEvent:
    """The last query for `NAME` in the server log."""
    return [event for event in server.events() if isinstance(event, QueryEvent) and event.name == f"{NAME}."][-1]


# kdig, dig, curl, aioquic as clients of our server.

# The transport comes last: kdig 3.2.6 interprets a TLS option after +quic as +tls, and crashes.
KDIG: dict[str, list[str]] = {
    "DoUDP": [],
    "DoTCP": ["+tcp"],
    "DoT": ["+tls"],
    "DoH": ["+https"],
    "DoQ": ["+quic"],
}


@pytest.mark.parametrize("protocol", KDIG)
def test_kdig(namespace: Namespace, server: Server, protocol: str) -> None:
    kdig = program("kdig")
    if protocol == "DoQ" and "+[no]quic" not in subprocess.run([kdig, "-h"], capture_output=True, text=True).stdout:
        pytest.skip("this kdig was built without QUIC")
    encrypted = protocol not in ("DoUDP", "DoTCP")
    trust = [f"+tls-ca={server.ca_file}", f"+tls-hostname={NAME}"] if encrypted else []
    for extra in ([], ["+nocookie", "+padding"] if encrypted else ["+bufsize=512"]):
        arguments = [f"@{SERVER}", NAME, "A", "+short", "+retry=0", *trust, *KDIG[protocol], *extra]
        assert namespace.run(kdig, *arguments).split() == [ADDRESS]
        assert last_query(server).listener == LISTENERS[protocol]


@pytest.mark.parametrize(
    ("protocol", "options"), {"DoUDP": [], "DoTCP": ["+tcp"], "DoT": ["+tls"], "DoH": ["+https"]}.items()
)
def test_dig(namespace: Namespace, server: Server, protocol: str, options: list[str]) -> None:
    trust = [f"+tls-ca={server.ca_file}", f"+tls-hostname={NAME}"] if protocol in ("DoT", "DoH") else []
    output = namespace.run(program("dig"), f"@{SERVER}", NAME, "A", "+short", "+tries=1", *options, *trust)
    assert output.split() == [ADDRESS]
    assert last_query(server).listener == LISTENERS[protocol]


def test_curl(namespace: Namespace, server: Server, tmp_path: Path) -> None:
    """A page, a query with GET and POST, and a page whose name curl resolves over DoH, all over HTTP/2."""
    curl = [program("curl"), "--silent", "--show-error", "--fail", "--cacert", str(server.ca_file)]
    here = ["--resolve", f"{NAME}:443:{ADDRESS}"]
    namespace.run(*curl, *here, "--output", str(tmp_path / "page"), f"https://{NAME}/")
    assert (tmp_path / "page").read_bytes() == DOCUMENT
    (tmp_path / "query").write_bytes(dns.message.make_query(NAME, "A", id=0).to_wire())
    posted = ["--header", "content-type: application/dns-message", "--data-binary", f"@{tmp_path / 'query'}"]
    for query, url in ((posted, "/dns-query"), ([], "/dns-query?dns=AAABAAABAAAAAAAAA3d3dwdleGFtcGxlA29yZwAAAQAB")):
        namespace.run(*curl, *here, *query, "--output", str(tmp_path / "answer"), f"https://{NAME}{url}")
        answer = dns.message.from_wire((tmp_path / "answer").read_bytes())
        assert [rdata.to_text() for rrset in answer.answer for rdata in rrset] == [ADDRESS]
    over_doh = ["--doh-url", f"https://{SERVER}/dns-query", "--ipv4", "--output", str(tmp_path / "page")]
    namespace.run(*curl, *over_doh, f"https://{NAME}/")
    assert (tmp_path / "page").read_bytes() == DOCUMENT


RTT_MS = 200
QUERY = "/dns-query?dns=AAABAAABAAAAAAAAA3d3dwdleGFtcGxlA29yZwAAAQAB"
PYCURL = f"""
import json, os, pycurl
ca, server = os.environ["CROSSLAYER_CA"], os.environ["CROSSLAYER_SERVER"]
for version in (31, pycurl.CURL_HTTP_VERSION_2):  # 31: HTTP/3 alone, without another connection
    for path in ("/", "{QUERY}"):
        curl, body = pycurl.Curl(), bytearray()
        for option, value in {{
            "URL": "https://{NAME}" + path, "CAINFO": ca, "RESOLVE": ["{NAME}:443:" + server], "TIMEOUT": 20,
            "WRITEFUNCTION": body.extend, "HTTP_VERSION": version,
        }}.items():
            curl.setopt(getattr(pycurl, option), value)
        curl.perform()
        print(json.dumps([curl.getinfo(pycurl.RESPONSE_CODE), curl.getinfo(pycurl.TOTAL_TIME), body.hex()]))
"""
"""Program with libcurl (ngtcp2): a page and a query, each on a new connection, over HTTP/3 and then over HTTP/2."""


def in_virtual_time(*command: str) -> str:
    """Output of a command on a link with `RTT_MS` in virtual time, so that times contain only the link."""
    arguments = [*CROSSLAYER, "link", "--clock", "virtual", f"rtt-{RTT_MS}", "--", *command]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_pycurl_takes_the_round_trips_of_each_transport(virtual_clock: list[str]) -> None:
    pycurl = pytest.importorskip("pycurl")
    if not pycurl.version_info()[4] & 1 << 25:
        pytest.skip("this libcurl has no HTTP/3")
    rows = [json.loads(line) for line in in_virtual_time(sys.executable, "-c", PYCURL).splitlines()]
    trips = [trips for protocol in (Protocol.DOH3, Protocol.DOH) for trips in [protocol.transport.round_trips] * 2]
    assert [row[0] for row in rows] == [200] * 4
    assert [round(1e3 * row[1] / RTT_MS, 2) for row in rows] == trips
    assert rows[0][2] == rows[2][2]
    assert len(rows[0][2]) > 1000
    for row in rows[1::2]:
        answer = dns.message.from_wire(bytes.fromhex(row[2]))
        assert [rdata.to_text().rpartition(".")[0] for rrset in answer.answer for rdata in rrset] == ["10.53.1"]


def test_kdig_takes_the_round_trips_of_each_transport(virtual_clock: list[str]) -> None:
    """Over DoQ, kdig takes one more, because it sends the query after the server has confirmed the handshake."""
    plain = f"{program('kdig')} @$CROSSLAYER_SERVER {NAME} A +retry=0"
    trust = f"+tls-ca=$CROSSLAYER_CA +tls-hostname={NAME}"
    asked = [f"{plain} {option}" for option in ("+notcp", "+tcp", f"{trust} +tls", f"{trust} +https", f"{trust} +quic")]
    output = in_virtual_time("sh", "-c", " && ".join(asked))
    assert output.count(f"{NAME}.") == 2 * len(asked)  # question and answer
    trips = [float(ms) / RTT_MS for ms in re.findall(r" in ([\d.]+) ms", output)]
    *others, doq = trips
    protocols = (Protocol.DOUDP, Protocol.DOTCP, Protocol.DOT, Protocol.DOH)
    assert others == [protocol.transport.round_trips for protocol in protocols]
    assert Protocol.DOQ.transport.round_trips + 1 <= doq < Protocol.DOQ.transport.round_trips + 1.2


@pytest.mark.parametrize("kind", ["doq", "doh3", "h3"])
def test_aioquic(namespace: Namespace, server: Server, kind: str) -> None:
    """aioquic's own client, without our QUIC code."""
    for connection in ask(namespace, server, kind):
        assert connection["bytes"] > 0
        assert connection["status"] == ("" if kind == "doq" else "200")


# dnsproxy and dnsdist as forwarders between our clients and our server.


def dnsproxy(namespace: Namespace, server: Server, log: Path, upstream: str) -> AbstractContextManager[None]:
    """dnsproxy with a listener for every transport and one upstream."""
    certificates = server.certificates
    return running(
        namespace, log, "env", f"SSL_CERT_FILE={server.ca_file}", built_program("dnsproxy"), f"--listen={FRONT}",
        f"--port={PORTS['DoUDP']}", f"--tls-port={PORTS['DoT']}", f"--https-port={PORTS['DoH']}",
        f"--quic-port={PORTS['DoQ']}", "--http3", f"--tls-crt={certificates.certificate_file}",
        f"--tls-key={certificates.key_file}", f"--upstream={upstream}",
    )  # fmt: skip


def test_dnsproxy_answers_our_clients(namespace: Namespace, server: Server, tmp_path: Path) -> None:
    with dnsproxy(namespace, server, tmp_path / "log", f"{SERVER}:53"):
        ours(namespace, server, list(PORTS), PORTS, FRONT)


@pytest.mark.parametrize("protocol", SCHEMES)
def test_dnsproxy_asks_our_server(namespace: Namespace, server: Server, tmp_path: Path, protocol: str) -> None:
    path = "/dns-query" if protocol in ("DoH", "DoH3") else ""
    with dnsproxy(namespace, server, tmp_path / "log", f"{SCHEMES[protocol]}://{SERVER}{path}"):
        ours(namespace, server, ["DoUDP", "DoTCP"], PORTS, FRONT)
        wanted = {LISTENERS[protocol]} | ({LISTENERS["DoH3"]} if protocol == "DoH" else set())  # the faster of the two
        assert last_query(server).listener in wanted


def dnsdist(namespace: Namespace, server: Server, folder: Path, backend: str) -> AbstractContextManager[None]:
    """dnsdist with a listener for every transport that version 1.7 supports, and one backend."""
    pair = f'"{server.certificates.certificate_file}", "{server.certificates.key_file}"'
    configuration = folder / "dnsdist.conf"
    configuration.write_text(
        f'setLocal("{FRONT}:{PORTS["DoUDP"]}")\n'
        f'addTLSLocal("{FRONT}:{PORTS["DoT"]}", {pair})\n'
        f'addDOHLocal("{FRONT}:{PORTS["DoH"]}", {pair}, "/dns-query")\n'
        f"newServer({{{backend}, healthCheckMode='up'}})\n",
        encoding="utf-8",
    )
    return running(
        namespace, folder / "log", program("dnsdist"), "--supervised", "--disable-syslog", "-C", str(configuration)
    )


BACKENDS = {
    "DoUDP": f"address='{SERVER}:53'",
    "DoTCP": f"address='{SERVER}:53', tcpOnly=true",
    "DoT": f"address='{SERVER}:853', tls='openssl', subjectName='{NAME}', caStore='CA'",
    "DoH": f"address='{SERVER}:443', tls='openssl', subjectName='{NAME}', caStore='CA', dohPath='/dns-query'",
}


@pytest.mark.parametrize("protocol", BACKENDS)
def test_dnsdist_between_our_clients_and_our_server(
    namespace: Namespace, server: Server, tmp_path: Path, protocol: str
) -> None:
    with dnsdist(namespace, server, tmp_path, BACKENDS[protocol].replace("CA", str(server.ca_file))):
        ours(namespace, server, ["DoUDP", "DoTCP", "DoT", "DoH"], PORTS, FRONT)
        assert last_query(server).listener == LISTENERS[protocol]


# Our stub, between kdig and the forwarders.


@pytest.mark.parametrize("protocol", SCHEMES)
def test_the_stub_asks_dnsproxy(namespace: Namespace, server: Server, tmp_path: Path, protocol: str) -> None:
    kdig = program("kdig")
    arguments = ["--upstream", f"{SCHEMES[protocol]}://{FRONT}:{PORTS[protocol]}", "--listen", "127.0.0.2:5310"]
    trust = ["--ca", str(server.ca_file), "--server-name", NAME, "--metrics", str(tmp_path / "rows")]
    with dnsproxy(namespace, server, tmp_path / "log", f"{SERVER}:53"):
        stub = namespace.spawn([built_program("stub"), *arguments, *trust], stderr=subprocess.PIPE, text=True)
        try:
            assert stub.stderr is not None
            assert "answering on" in stub.stderr.readline()
            for transport in ("+notcp", "+tcp"):
                output = namespace.run(kdig, "@127.0.0.2", "-p", "5310", NAME, "A", "+short", transport)
                assert output.split() == [ADDRESS]
        finally:
            stub.kill()
            stub.communicate()
    rows = [json.loads(line) for line in (tmp_path / "rows").read_text(encoding="utf-8").splitlines()]
    assert [(row["error"], row["protocol"]) for row in rows] == [("", protocol)] * 2
