"""Each client sends no packet without consent, and none after a stop; packets are captured in a box.

The network of the box counts as outside. This file is also the program that runs in the box: `test_outside.py CLIENT`
prints, as JSON, how many packets each step sent.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import CROSSLAYER, Run

ROOT = Path(__file__).parents[2]
BOX = """
[zone]
name = "box.example"
[[origin]]
name = "www.shop.example"
rtt_ms = 20
[[resolver]]
name = "one"
rtt_ms = 20
[[resolver]]
name = "two"
rtt_ms = 30
"""
ONE = "198.18.1.53"
TWO = "198.18.2.53"
ORIGIN = "198.18.251.1"
NAME = "a.box.example"
HOST = "one.resolvers.test"
_ETH_P_ALL = 3
SETTLED_S = 12.0
"""Waiting time, s, after which packets in flight and packets of ending programs have been captured."""

# Inside a box


class Packets:
    """Packets that the client sends, captured on its only device with a packet socket (packet(7)).

    tcpdump is not used, because it drops its privileges, which a user namespace does not permit.
    """

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
        self._socket.bind(("eth0", _ETH_P_ALL))
        self._socket.setblocking(False)
        self.addresses: set[str] = set()
        """Destinations of all IPv4 packets so far."""

    def since_last(self, wait_s: float = 1.0) -> int:
        """Packets since the last call."""
        time.sleep(wait_s)
        count = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                frame, (_device, _protocol, kind, *_rest) = self._socket.recvfrom(65535)
                if kind == socket.PACKET_OUTGOING and frame[12:14] == b"\x08\x00":
                    self.addresses.add(socket.inet_ntoa(frame[30:34]))
                # Multicast packets, such as router solicitations, come from the kernel and are not counted.
                count += kind == socket.PACKET_OUTGOING and not frame[0] & 1
        return count

    def close(self) -> None:
        self._socket.close()


def refused(action: Callable[[], object]) -> bool:
    """Whether an action is refused because consent is missing."""
    from crosslayer.testbed.errors import OutsideError

    try:
        action()
    except OutsideError:
        return True
    return False


@contextlib.contextmanager
def running(*arguments: str, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A `crosslayer` command that runs until it is stopped."""
    with subprocess.Popen([*CROSSLAYER, *arguments], stdout=subprocess.DEVNULL, **options) as program:
        yield program


def status(*arguments: str, typed: str = "") -> int:
    """Exit status of a `crosslayer` command."""
    done = subprocess.run([*CROSSLAYER, *arguments], input=typed, capture_output=True, text=True, check=False)
    return done.returncode


def stopped(
    packets: Packets, program: subprocess.Popen[bytes], number: signal.Signals, ending_s: float = 0.0
) -> list[int]:
    """Numbers of packets before a program gets a signal (at least five) and after its end.

    Packets in the first `ending_s` after its end are not counted: the kernel may acknowledge ends of TCP connections.
    """
    before = 0
    while before < 5:
        before += packets.since_last(0.2)
        assert program.poll() is None, f"it ended too early, with status {program.returncode}"
    program.send_signal(number)
    program.wait()
    packets.since_last(ending_s)
    return [before, packets.since_last(SETTLED_S)]


def python(packets: Packets, folder: Path) -> dict[str, Any]:
    """Steps of the DNS clients, the probes, and the command `compare`."""
    from crosslayer.discover.negotiate import negotiate
    from crosslayer.discover.pace import Pace
    from crosslayer.dns import Asker, Protocol, Question, Resolver, exchange, tcp_rtt
    from crosslayer.testbed import outside

    server = Resolver(ONE, HOST, verify=False)
    actions: list[Callable[[], object]] = [
        *(lambda protocol=protocol: exchange(server, Question(NAME), protocol) for protocol in Protocol),
        lambda: tcp_rtt(server),
        lambda: Asker((ONE, 53)),
        lambda: negotiate([(ONE, 853)], Pace(20), timeout_s=0.3, progress=lambda _n: None),
    ]
    result: dict[str, Any] = {"refused": [refused(action) for action in actions], "before": packets.since_last()}
    outside.allow([TWO])
    result["another address"] = [all(refused(action) for action in actions), packets.since_last()]
    outside.allow([ONE])
    result["allowed"] = []
    for action in actions[:-2]:
        action()
        result["allowed"].append(packets.since_last())
    outside.withdraw()
    result["withdrawn"] = [all(refused(action) for action in actions), packets.since_last()]
    base = [f"udp://{ONE}", f"tls://{ONE}#{HOST}", f"quic://{ONE}#{HOST}", "--name", NAME]
    base = ["compare", *base, "--ca", os.environ["CROSSLAYER_CA"]]
    out = ["--dataset", str(folder / "c")]
    result["commands"] = {
        "dry run": [status(*base, *out, "--dry-run"), packets.since_last()],
        "no input": [status(*base, *out), packets.since_last()],
        "other sentence": [status(*base, *out, typed="yes\n"), packets.since_last()],
        "higher rate": [status(*base, *out, "--rate", "5", "--i-may-send-this"), packets.since_last()],
        "higher limit": [status(*base, *out, "--per-day", "5001", "--i-may-send-this"), packets.since_last()],
    }
    result["typed"] = [status(*base, *out, "--rounds", "1", typed="I may send this\n"), packets.since_last()]
    for number in (signal.SIGINT, signal.SIGKILL):
        arguments = [*base, "--i-may-send-this", "--dataset", str(folder / number.name)]
        with running(*arguments, stderr=subprocess.DEVNULL) as program:
            result[number.name] = stopped(packets, program, number)
    return result


def stub(packets: Packets, folder: Path) -> dict[str, Any]:
    """Steps of `crosslayer stub` and of a stub that a study starts."""
    from crosslayer.dns import Protocol, Question, Resolver, exchange
    from crosslayer.stub import Stub, StubSettings

    listen = "127.0.0.1:5353"
    base = ["stub", "--upstream", f"quic://{ONE}", "--server-name", HOST, "--ca", os.environ["CROSSLAYER_CA"]]
    base += ["--listen", listen, "--metrics", str(folder / "m.jsonl")]
    command = ["--", "kdig", "@127.0.0.1", "-p", "5353", NAME]
    settings = StubSettings(f"quic://{ONE}", listen=listen)
    result: dict[str, Any] = {
        "refused": refused(lambda: Stub.start(subprocess.Popen, settings, folder / "stub")),
        "before": packets.since_last(),
    }
    result["commands"] = {
        "no input": [status(*base, *command), packets.since_last()],
        "other sentence": [status(*base, *command, typed="yes\n"), packets.since_last()],
        "until stopped": [status(*base), packets.since_last()],
        "name": [status("stub", "--upstream", f"quic://{HOST}", "--i-may-send-this", *command), packets.since_last()],
        "other form": [
            status("stub", "--upstream", f"quic://a@{ONE}", "--i-may-send-this", *command), packets.since_last()
        ],
    }  # fmt: skip
    result["typed"] = [status(*base, *command, typed="I may send this\n"), packets.since_last()]
    with running(*base, "--i-may-send-this", stderr=subprocess.DEVNULL) as program:
        local = Resolver("127.0.0.1", ports={Protocol.DOUDP: 5353})
        while exchange(local, Question(NAME), Protocol.DOUDP).error is not None:
            time.sleep(0.1)
        result["SIGTERM"] = stopped(packets, program, signal.SIGTERM)
        result["after"] = [exchange(local, Question(NAME), Protocol.DOUDP).error, packets.since_last()]
    return result


def discover(packets: Packets, folder: Path) -> dict[str, Any]:
    """Steps of `crosslayer discover`."""
    stop = folder / "config/crosslayer/stop_list.toml"
    stop.parent.mkdir(parents=True)
    stop.write_text(f'[[stop]]\nreason = "asked"\nnetworks = ["{TWO}"]\n', encoding="utf-8")
    result: dict[str, Any] = {"commands": {"without": [status("discover", ONE), packets.since_last()]}}
    result["commands"]["stop list"] = [status("discover", TWO, "--allow-external"), packets.since_last()]
    arguments = ["discover", ONE, "--allow-external", "--name", NAME]
    result["option"] = [status(*arguments), packets.since_last()]
    with running(*arguments, "--rate", "2", stderr=subprocess.DEVNULL) as program:
        result["SIGINT"] = stopped(packets, program, signal.SIGINT)
    return result


def sites(packets: Packets, folder: Path) -> dict[str, Any]:
    """Steps of `crosslayer measure --sites`."""
    pages = folder / "pages.txt"
    pages.write_text("https://www.shop.example/\n", encoding="utf-8")
    base = ["measure", "--study", "web", "--sites", str(pages), "--resolver", f"udp://{ONE}", "--rounds", "1"]
    base += ["--out", str(folder / "live")]
    result: dict[str, Any] = {
        "commands": {
            "dry run": [status(*base, "--dry-run"), packets.since_last()],
            "no input": [status(*base), packets.since_last()],
            "other sentence": [status(*base, typed="yes\n"), packets.since_last()],
        }
    }
    result["typed"] = [status(*base, typed="I may send this\n"), packets.since_last(SETTLED_S)]
    result["addresses"] = sorted(packets.addresses)
    more = [*base[:-1], str(folder / "more"), "--rounds", "9", "--i-may-send-this"]
    with running(*more, stderr=subprocess.DEVNULL) as program:
        result["SIGINT"] = stopped(packets, program, signal.SIGINT, ending_s=0.2)
    return result


def browser(kind: str, packets: Packets, folder: Path) -> dict[str, Any]:
    """Steps of a browser that the project starts."""
    from crosslayer.browser import SecureDns, find_browser, launch
    from crosslayer.testbed import outside
    from crosslayer.testbed.certificates import make_certificates

    host = "www.shop.example"
    programs, certificates = find_browser(kind), make_certificates(folder, [host], [])
    common = {"folder": folder, "certificates": certificates}
    secure_dns = SecureDns(HOST, ONE, over_h3=False)
    result: dict[str, Any] = {
        "refused": [
            refused(lambda: launch(programs, addresses={host: ORIGIN}, **common)),
            refused(lambda: launch(programs, addresses={}, resolves=[host], **common)),
            refused(lambda: launch(programs, addresses={}, secure_dns=secure_dns, **common)),
        ],
        "before": packets.since_last(),
    }

    def load(**addresses: str) -> None:
        with launch(programs, addresses=addresses, **common) as started, contextlib.suppress(Exception):
            started.load(host, prime_host=host, close_connections=lambda: None)

    if kind == "firefox":  # Firefox looks up names at its start; this control runs in a box that counts as private
        del os.environ[outside.BOX_IS_OUTSIDE]
    else:
        load()
        result["no address"] = packets.since_last(SETTLED_S)
        outside.allow([ORIGIN])
    load(**{host: ORIGIN})
    result["allowed"] = packets.since_last(0.0)
    result["after"] = packets.since_last(SETTLED_S)
    return result


CLIENTS: dict[str, Callable[[Packets, Path], dict[str, Any]]] = {
    "python": python,
    "stub": stub,
    "discover": discover,
    "sites": sites,
    "chromium": lambda packets, folder: browser("chromium", packets, folder),
    "firefox": lambda packets, folder: browser("firefox", packets, folder),
}

# Outside a box


def sent(run: Run, client: str, folder: Path, clock: str = "virtual") -> dict[str, Any]:
    """Results of a client's steps in a box."""
    box = folder / "box.toml"
    box.write_text(BOX, encoding="utf-8")
    options = ["--clock", clock, "--writable", str(folder)]
    environment = os.environ | {
        "CROSSLAYER_BOX_IS_OUTSIDE": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        "XDG_STATE_HOME": str(folder / "state"),
        "XDG_CONFIG_HOME": str(folder / "config"),
    }
    done = run("box", str(box), *options, "--", sys.executable, __file__, client, str(folder), env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def check_commands(result: dict[str, Any], *without_error: str) -> None:
    for name, (code, count) in result.pop("commands").items():
        assert (count, code == 0) == (0, name in without_error), name


def test_clients_in_python(crosslayer: Run, virtual_clock: list[str], tmp_path: Path) -> None:
    result = sent(crosslayer, "python", tmp_path)
    assert result.pop("refused") == [True] * 9
    assert result.pop("before") == 0
    assert result.pop("another address") == result.pop("withdrawn") == [True, 0]
    assert min(result.pop("allowed")) >= 1
    check_commands(result, "dry run")
    code, count = result.pop("typed")
    assert code == 0
    assert count > 10
    for name in ("SIGINT", "SIGKILL"):
        before, after = result.pop(name)
        assert before >= 5
        assert after == 0, name
    assert not result


def test_the_stub(crosslayer: Run, virtual_clock: list[str], tmp_path: Path) -> None:
    result = sent(crosslayer, "stub", tmp_path)
    assert result["refused"]
    assert result["before"] == 0
    check_commands(result)
    code, count = result["typed"]
    assert code == 0
    assert count >= 3
    assert result["SIGTERM"][1] == 0
    assert result["after"] == ["connection refused", 0]


def test_discover(crosslayer: Run, virtual_clock: list[str], tmp_path: Path) -> None:
    result = sent(crosslayer, "discover", tmp_path)
    check_commands(result, "stop list")
    code, count = result["option"]
    assert code == 0
    assert count >= 10
    assert result["SIGINT"][1] == 0


@pytest.mark.usefixtures("browser_machine")
def test_live_pages(crosslayer: Run, virtual_clock: list[str], tmp_path: Path) -> None:
    result = sent(crosslayer, "sites", tmp_path)
    check_commands(result, "dry run")
    code, count = result["typed"]
    assert code == 0
    assert count >= 10
    assert result["addresses"] == [ONE, ORIGIN]  # no background request of the browser
    assert result["SIGINT"][1] == 0


@pytest.mark.parametrize("kind", ["chromium", "firefox"])
def test_browsers(request: pytest.FixtureRequest, crosslayer: Run, tmp_path: Path, kind: str) -> None:
    request.getfixturevalue({"chromium": "browser_machine", "firefox": "firefox_machine"}[kind])
    result = sent(crosslayer, kind, tmp_path, clock="wall")
    assert result["refused"] == [True] * 3
    assert result["before"] == 0
    assert result.get("no address", 0) == 0
    assert result["allowed"] >= 3
    assert result["after"] == 0


if __name__ == "__main__":
    target = Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as name:
        capture = Packets()
        print(
            json.dumps(CLIENTS[sys.argv[1]](capture, Path(name) if sys.argv[1] in ("chromium", "firefox") else target))
        )
        capture.close()
