"""The real server in a private network namespace: every transport, early data, commands, events, faults."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crosslayer import resources
from crosslayer.errors import CrosslayerError
from crosslayer.process import ProcessDied
from crosslayer.testbed.server import ConnectionEvent, QueryEvent, RequestEvent, Server, ServerError, TokenEvent

pytestmark = pytest.mark.alone

ADDRESSES = {"www.example.org": "10.53.1.1", "alias-1.example.org": "10.53.1.2"}
DOCUMENT = gzip.compress(b"<!doctype html><title>Test</title>" + b"<p>text" * 500, mtime=0)


class Namespace:
    """User and network namespaces with the server's addresses on loopback; a sleeping process keeps them alive."""

    def __init__(self) -> None:
        script = "ip link set lo up"
        for address in ("10.53.0.2", *ADDRESSES.values()):
            script += f" && ip address add {address}/32 dev lo"
        self._keeper = subprocess.Popen(
            [
                "unshare",
                "--user",
                "--map-root-user",
                "--net",
                "sh",
                "-c",
                f"{script} && echo up && exec sleep infinity",
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._keeper.stdout is not None
        self.message = self._keeper.stdout.readline().strip()

    def spawn(self, arguments: list[str], **options: Any) -> subprocess.Popen[Any]:
        into = ["nsenter", f"--target={self._keeper.pid}", "--user", "--net", "--preserve-credentials"]
        return subprocess.Popen([*into, *arguments], **options)

    def run(self, *arguments: str) -> str:
        process = self.spawn(list(arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        output, _ = process.communicate(timeout=30)
        assert process.returncode == 0, output
        return str(output)

    def close(self) -> None:
        self._keeper.kill()
        self._keeper.communicate()


@pytest.fixture(scope="module")
def namespace() -> Iterator[Namespace]:
    try:
        resources.locate("server")
    except CrosslayerError as error:
        pytest.skip(str(error))
    space = Namespace()
    if space.message != "up":
        space.close()
        pytest.skip(f"no network namespace here: {space.message}")
    yield space
    space.close()


@pytest.fixture
def pages_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "sites" / "example.org"
    folder.mkdir(parents=True)
    (folder / "document").write_bytes(DOCUMENT)
    resource = {
        "path": "/",
        "file": "document",
        "content_type": "text/html; charset=utf-8",
        "content_encoding": "gzip",
        "wire_bytes": len(DOCUMENT),
    }
    manifest = {
        "page": "example.org",
        "host": "www.example.org",
        "aliases": ["alias-1.example.org"],
        "resources": [resource],
    }
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return folder.parent


@pytest.fixture
def server(namespace: Namespace, pages_dir: Path, tmp_path: Path) -> Iterator[Server]:
    with Server.start(
        namespace.spawn, pages_dir=pages_dir, addresses=ADDRESSES, folder=tmp_path / "private folder"
    ) as server:
        yield server


def ask(namespace: Namespace, server: Server, kind: str, address: str = "10.53.1.1") -> list[dict[str, Any]]:
    """Results of aioquic: a full handshake, a request as early data, and a resumed connection."""
    client = str(Path(__file__).with_name("early_client.py"))
    output = namespace.run(sys.executable, client, str(server.ca_file), address, "www.example.org", kind)
    return [json.loads(line) for line in output.splitlines()]


@pytest.mark.parametrize(("kind", "listener"), [("doq", "doq"), ("doh3", "h3"), ("h3", "h3")])
def test_early_data_is_answered_early(namespace: Namespace, server: Server, kind: str, listener: str) -> None:
    full, early, resumed = ask(namespace, server, kind)
    assert not full["resumed"]
    assert early["resumed"]
    assert early["accepted"]
    assert resumed["resumed"]
    size = {"doq": 470, "doh3": 468, "h3": len(DOCUMENT)}[kind]
    status = "" if kind == "doq" else "200"
    assert [(each["bytes"], each["status"]) for each in (full, early, resumed)] == [(size, status)] * 3

    events = server.events()
    # By the server log, the request of the second connection arrived before the handshake was complete.
    heard = [e for e in events if isinstance(e, RequestEvent if kind == "h3" else QueryEvent)]
    assert [(e.listener, e.handshake_complete, e.resumed) for e in heard] == [
        (listener if kind == "h3" else kind, True, False),
        (listener if kind == "h3" else kind, False, True),
        (listener if kind == "h3" else kind, True, True),
    ]
    # The client sends the token of the previous connection.
    assert [e.address_validated for e in heard] == [False, True, True]
    tokens = [e.remote for e in events if isinstance(e, TokenEvent)]
    assert tokens == ([] if kind == "doq" else [e.remote for e in heard])
    connections = [e for e in events if isinstance(e, ConnectionEvent)]
    assert [e.address_validated for e in connections] == [False, True, True]
    assert [(e.listener, e.resumed, e.local, e.error) for e in connections] == [
        (listener, resumed, "10.53.1.1:853" if kind == "doq" else "10.53.1.1:443", "")
        for resumed in (False, True, True)
    ]
    assert len({e.remote for e in connections}) == 3
    assert server.events() == []


def test_early_data_can_be_turned_off(namespace: Namespace, pages_dir: Path, tmp_path: Path) -> None:
    with Server.start(
        namespace.spawn, pages_dir=pages_dir, addresses=ADDRESSES, folder=tmp_path / "run", early_data=False, retry=True
    ) as server:
        _full, early, _resumed = ask(namespace, server, "doq")
        assert early["resumed"]
        assert not early["accepted"]
        assert all(e.handshake_complete for e in server.events() if isinstance(e, QueryEvent))


def test_a_host_name_resolves_and_another_does_not(namespace: Namespace, server: Server) -> None:
    # Each name is queried at another address; dnspython accepts answers only from that address.
    script = """
import dns.message, dns.query, dns.rcode
for name, address in ("www.example.org", "10.53.1.1"), ("alias-1.example.org", "10.53.1.2"), ("a.test", "10.53.0.2"):
    answer = dns.query.udp(dns.message.make_query(name, "A"), address, timeout=5)
    print(dns.rcode.to_text(answer.rcode()), *[record.to_text() for rrset in answer.answer for record in rrset])
"""
    assert namespace.run(sys.executable, "-c", script).splitlines() == [
        "NOERROR 10.53.1.1",
        "NOERROR 10.53.1.2",
        "NXDOMAIN",
    ]
    assert [e.listener for e in server.events() if isinstance(e, QueryEvent)] == ["udp"] * 3


def test_rotated_keys_refuse_old_tickets(namespace: Namespace, server: Server) -> None:
    client = f"""
import socket, ssl, sys
import dns.message
context = ssl.create_default_context(cafile={str(server.ca_file)!r})
query = dns.message.make_query("www.example.org", "A").to_wire()
def connect(session=None):
    raw = socket.create_connection(("10.53.1.1", 853))
    with context.wrap_socket(raw, server_hostname="www.example.org", session=session) as tls:
        tls.sendall(len(query).to_bytes(2, "big") + query)
        tls.recv(4096)
        return tls.session, tls.session_reused
session, _ = connect()
print(connect(session)[1], flush=True)
sys.stdin.readline()
print(connect(session)[1])
"""
    process = namespace.spawn(
        [sys.executable, "-c", client],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "True"
    server.rotate_ticket_keys()
    output, _ = process.communicate("\n", timeout=30)
    assert output.strip() == "False"
    assert [e.resumed for e in server.events() if isinstance(e, ConnectionEvent)] == [False, True, False]


def test_commands(namespace: Namespace, server: Server) -> None:
    assert server.close_connections() == 0
    assert server.close_connections("doq") == 0
    with pytest.raises(ServerError, match="unknown listener"):
        server.close_connections("dot")
    ask(namespace, server, "h3")
    stats = server.stats()
    assert stats["requests"] == {"h3": 3}
    assert stats["connections"] == {"h3": 3}
    assert server.control_path.stat().st_mode & 0o777 == 0o600


def test_a_server_that_died_says_so(server: Server) -> None:
    server._process.kill()
    server._process.wait()
    with pytest.raises(ProcessDied, match="the server ended with status -9") as caught:
        server.stats()
    assert (caught.value.program, caught.value.status) == ("the server", -9)
    with pytest.raises(ProcessDied):
        server.raise_if_dead()
    server.stop()
    with pytest.raises(ServerError, match="not running"):
        server.stats()


def test_stop_leaves_nothing(namespace: Namespace, pages_dir: Path, tmp_path: Path) -> None:
    with Server.start(namespace.spawn, pages_dir=pages_dir, addresses=ADDRESSES, folder=tmp_path / "run") as server:
        control = server.control_path
        process = server._process
        assert control.exists()
    assert process.returncode == 0
    assert not control.exists()


def refused(namespace: Namespace, pages_dir: Path, folder: Path) -> str:
    with pytest.raises(ServerError) as caught:
        Server.start(namespace.spawn, pages_dir=pages_dir, addresses=ADDRESSES, folder=folder)
    return str(caught.value)


def test_missing_and_broken_pages(namespace: Namespace, pages_dir: Path, tmp_path: Path) -> None:
    message = refused(namespace, tmp_path / "nowhere", tmp_path / "one")
    assert "ended with status 1" in message
    assert "plugin/coalesce: pages: stat" in message
    assert "nowhere: no such file or directory" in message
    (pages_dir / "example.org" / "document").write_bytes(b"short")
    message = refused(namespace, pages_dir, tmp_path / "two")
    assert "manifest.json: resource" in message
    assert f"has 5 bytes, the manifest says {len(DOCUMENT)}" in message


def test_a_port_in_use(namespace: Namespace, server: Server, pages_dir: Path, tmp_path: Path) -> None:
    message = refused(namespace, pages_dir, tmp_path / "second")
    assert "plugin/coalesce: https: listen tcp :443: bind: address already in use" in message
    assert server.stats()["open"] == {"h3": 0, "doq": 0}


def test_a_port_of_coredns_in_use(namespace: Namespace, pages_dir: Path, tmp_path: Path) -> None:
    script = (
        "import socket, sys; s = socket.socket(type=socket.SOCK_DGRAM); s.bind(('', 53)); print(flush=True); "
        "sys.stdin.read()"
    )
    holder = namespace.spawn([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    holder.stdout.readline()
    message = refused(namespace, pages_dir, tmp_path / "run")
    holder.communicate()
    assert "listen udp :53: bind: address already in use" in message


def test_a_control_path_that_cannot_be(namespace: Namespace, pages_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "run" / "control").mkdir(parents=True)
    message = refused(namespace, pages_dir, tmp_path / "run")
    assert "plugin/coalesce: control: " in message
    assert "control exists and is no socket; choose another path" in message


def test_a_folder_that_cannot_be_written(namespace: Namespace, pages_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    message = refused(namespace, pages_dir, tmp_path / "file" / "run")
    assert "cannot be written: Not a directory" in message
    assert str(tmp_path / "file") in message
