"""Run a user's command on an emulated link with the server at the far end."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path

from crosslayer import pages
from crosslayer.links import Profile
from crosslayer.packets import ABOUT, PACKETS, About, PacketsError, Ring, kept_files, of_lines
from crosslayer.process import run_command
from crosslayer.testbed import namespaces, network
from crosslayer.testbed.like import LikeResolver, MeasuredTimes
from crosslayer.testbed.testbed import Testbed


def run_on_link(
    profile: Profile,
    command: list[str],
    *,
    backend: str,
    with_server: bool,
    retry: bool,
    clock: str,
    capture: Path | None = None,
    like: MeasuredTimes | None = None,
    seed: int = 1,
) -> int:
    """Run a command in the client's namespace and return its exit status (128 + signal if a signal ended it).

    `clock` is the clock of this machine: `virtual` in a guest in virtual time, else `wall`. `capture` is a file for the
    command's packets, with the TLS keys of the server and of clients that support SSLKEYLOGFILE. A JSON file next to it
    describes the capture.

    With `like`, the command's resolver is a `LikeResolver` with these times; the server still serves the pages. The
    resolver's RTT, constant during the run, and the time of each answer are drawn with `seed`.

    Raises `CrosslayerError` if the testbed, the pages or the server is unavailable. A link that fails its check only
    causes a warning.
    """
    keys, events = namespaces.ROOT / "keys.log", None
    if capture is not None:
        keys.touch(mode=0o600)
        os.environ["SSLKEYLOGFILE"] = str(keys)
    environment = dict(os.environ, CROSSLAYER_SERVER=network.SERVER_ADDRESS)
    addresses: dict[str, str] = {}
    if capture is None:
        os.environ.pop("SSLKEYLOGFILE", None)  # a value from the user's shell is for the command, not for the server
    del environment[namespaces.MARK]  # so that a `crosslayer` started by the command creates its own namespaces
    with contextlib.ExitStack() as stack:
        testbed = stack.enter_context(Testbed(backend if profile.shaped else "plain"))
        if with_server:
            specs = pages.load_pages(pages.find_spec_dir())
            server, addresses = stack.enter_context(testbed.serve(specs, retry=retry))
            events = server.events_file
            environment["CROSSLAYER_CA"] = str(server.ca_file)
            if profile.blocks_ipv6:
                for name, address in network.enable_ipv6(list(addresses)).items():
                    server.set_answer(name, "AAAA", ipaddress.ip_address(address).packed)
        namespaces.use_resolver(network.SERVER_ADDRESS)
        if like is not None:
            resolver = stack.enter_context(LikeResolver(like, addresses, testbed.folder / "like", seed=seed))
            resolver.set_rtt(like.drawn_rtt_ms(str(seed)), profile.rtt_ms)
            namespaces.use_resolver(resolver.address)
            environment["CROSSLAYER_RESOLVER"] = resolver.address
            environment["CROSSLAYER_CA"] = str(_joined(environment["CROSSLAYER_CA"], resolver.server.ca_file))
        check = testbed.set_link(profile)
        if not check.passed:
            print(f"crosslayer: the link is not what its profile says: {check.verdict}", file=sys.stderr)
        ring = None if capture is None else Ring()
        arguments = [_expanded(argument, environment) for argument in command]
        # If the clock is below one second, ping treats it as never read and does not keep its interval.
        time.sleep(max(0.0, 1.0 - time.clock_gettime(time.CLOCK_MONOTONIC_RAW)))
        with testbed.cross_traffic() as cross:
            if ring is not None:
                ring.start()
            testbed.rewind()
            status = run_command(arguments, environment)
        if ring is not None and capture is not None:
            frames, missing = ring.take()
            about = About(
                condition=" ".join(command),
                clock=clock,
                profile=asdict(profile),
                missing=missing,
                server=[] if events is None else of_lines(events.read_text(encoding="utf-8")),
            )
            _keep(capture, kept_files(about, frames, keys.read_text(encoding="ascii")))
        if cross.mbit is not None:
            print(f"crosslayer: cross-traffic delivered {cross.mbit:.2f} Mbit/s meanwhile", file=sys.stderr)
        return status


def _joined(*certificates: str | Path) -> Path:
    """Write a file with the CA certificates of several servers and return its path."""
    joined = namespaces.ROOT / "cas.pem"
    joined.write_bytes(b"".join(Path(file).read_bytes() for file in certificates))
    return joined


def _keep(capture: Path, files: dict[str, bytes]) -> None:
    try:
        capture.write_bytes(files[PACKETS])
        capture.with_suffix(ABOUT).write_bytes(files[ABOUT])
    except OSError as error:
        raise PacketsError(
            f"cannot be written ({error.strerror})", where=str(capture), next_step="Name another file with --capture."
        ) from error


def _expanded(argument: str, environment: dict[str, str]) -> str:
    """Expand crosslayer's three variables in an argument, because the user's own shell does not have them.

    DNS clients take their server as `@ADDRESS`. If the user does not quote `@$CROSSLAYER_SERVER`, the shell passes `@`
    without an address. This function adds the server's address to such an `@`.
    """
    if argument == "@":
        return f"@{environment['CROSSLAYER_SERVER']}"
    for name in ("CROSSLAYER_SERVER", "CROSSLAYER_RESOLVER", "CROSSLAYER_CA"):
        value = environment.get(name, "")
        argument = argument.replace(f"${{{name}}}", value).replace(f"${name}", value)
    return argument
