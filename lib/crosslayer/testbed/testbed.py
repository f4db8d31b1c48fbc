"""The testbed as one object: open it, choose a link, start programs at either end, close it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from crosslayer import pages
from crosslayer.links import Profile
from crosslayer.pages import PageSpec
from crosslayer.testbed import backends, network, private
from crosslayer.testbed.check import LinkCheck, Prober, calibrated_delays, check
from crosslayer.testbed.errors import TestbedError
from crosslayer.testbed.server import Server
from crosslayer.testbed.tap import Lateness, Rule, Tap
from crosslayer.testbed.traced import Playing, as_played

_PAUSES_S = (0.0, 0.5, 2.0, 5.0)
"""Times before a failed check is repeated, seconds."""
_CROSS = Path(__file__).with_name("cross.py")
_SETTLING_S = 1.0
"""Time that cross-traffic has to find its rate before something is measured beside it, seconds."""


class Testbed:
    """Client and server namespaces with an emulated link between them.

    Only inside private namespaces (`private.enter`). The opening process itself moves into the client's namespace, so
    everything it opens or starts from then on is the client's. The backend is `netem`, `uml` or `auto`; a profile
    without any shaping needs neither (`plain`). `congestion_control` is that of TCP at both ends, by default the
    machine's own. `TestbedError` where namespaces, the backend or the congestion control cannot be had.
    """

    __test__ = False

    def __init__(self, backend: str = "auto", *, congestion_control: str | None = None) -> None:
        if not private.inside():
            raise TestbedError(
                "the testbed runs in private namespaces only", next_step="Call it through the `crosslayer` command."
            )
        self._before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        network.build(congestion_control)
        self.backend = backends.open_backend(backend)
        self._prober = Prober()
        self._tap: Tap | None = None
        self._player: backends.Player | None = None
        self._trace_offset_ms = 0.0
        self._delays: dict[str, tuple[float, float]] = {}
        self._servers: list[Server] = []
        self._checks: list[LinkCheck] = []
        self.profile: Profile | None = None
        private.set_namespace(network.CLIENT)

    def __enter__(self) -> Testbed:
        return self

    def __exit__(self, *_fault: object) -> None:
        self.close()

    def close(self) -> None:
        """Take the link and the namespaces down; a testbed may be opened again afterwards.

        What still runs in the namespaces, the kernel removes with the process.
        """
        if self._tap is not None:
            self._tap.close()
        self._prober.close()
        if self._player is not None:
            self._player.stop()
        self.backend.close()
        private.return_to(self._before)
        network.remove()

    def raise_if_dead(self) -> None:
        """Raise `ProcessDied` where a program of the link or a server of `serve` has ended by itself.

        Then close this testbed and open a new one.
        """
        self.backend.raise_if_dead()
        if self._player is not None:
            self._player.raise_if_dead()
        for server in self._servers:
            server.raise_if_dead()

    def set_link(self, profile: Profile) -> LinkCheck:
        """Make the link that of `profile`, calibrate its delay the first time, and check RTT and rates.

        A check that fails is repeated after a new calibration, four times at most and later each time: the host may be
        busy. Where a program has ended, `ProcessDied` at once, not after the checks.
        """
        self.raise_if_dead()
        self.profile = profile
        self._stand_aside()
        if (course := profile.course) is not None:
            self._player = self._player or backends.Player()
            self._player.load(as_played(course, profile))
        if profile.name in self._delays:
            self._apply(self._delays[profile.name])
        else:
            self._calibrate(profile)
        result = self.check_link(rates=True)
        for pause_s in _PAUSES_S:
            if result.passed:
                break
            self.raise_if_dead()
            time.sleep(pause_s)
            self._calibrate(profile)
            result = self.check_link(rates=True)
        return result

    def check_link(self, *, rates: bool = False) -> LinkCheck:
        """Check the link as it is; without `rates` only its idle RTT (about 0.1 s and one RTT)."""
        assert self.profile is not None
        self.raise_if_dead()
        delays_ms, playing = self._delays[self.profile.name], None
        self._stand_aside()
        if self.profile.trace is not None and self._player is not None:
            playing = Playing(self._trace_offset_ms, self._player.play)
        self._checks.append(
            check(self._prober, self.profile, self.backend.name, delays_ms, rates=rates, playing=playing)
        )
        self.rewind()
        return self._checks[-1]

    def begin_trace_at(self, offset_ms: float) -> None:
        """From now on the trace of a link begins there, for its checks and at each `rewind`."""
        self._trace_offset_ms = offset_ms

    def rewind(self) -> None:
        """Have the trace of the link, where it has one, begin now."""
        if self.profile is not None and self.profile.trace is not None and self._player is not None:
            self._player.play(time.time_ns() - round(self._trace_offset_ms * 1e6))

    @contextlib.contextmanager
    def cross_traffic(self) -> Iterator[CrossTraffic]:
        """Cross-traffic of the link for the time of the block, where its profile has some.

        `TestbedError` where an end of it does not start, or has ended before the block.
        """
        cross = CrossTraffic()
        profile = self.profile
        if profile is None or profile.cross_traffic is None:
            yield cross
            return
        kind = "tcp" if profile.cross_traffic == "bulk" else "udp"
        ends = [(network.CLIENT, network.CLIENT_ADDRESS), (network.SERVER, network.SERVER_ADDRESS)]
        (near, address), (far, _) = ends if profile.cross_direction == "down" else reversed(ends)
        program = [sys.executable, "-I", str(_CROSS)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with contextlib.ExitStack() as stack:
            receiver = stack.enter_context(
                _ended(private.command_in(near, [*program, "receive", kind, address]), **pipes)
            )
            assert receiver.stdin is not None
            assert receiver.stdout is not None
            port = receiver.stdout.readline().strip()
            words = [*program, "send", kind, address, port, str(profile.cross_rate_mbit or 0)]
            sender = stack.enter_context(_ended(private.command_in(far, words)))
            time.sleep(_SETTLING_S)
            yield cross
            alive = sender.poll() is None
            receiver.stdin.close()
            told = receiver.stdout.readline().split()
            if not alive or len(told) != 2 or told[0] == "0":
                raise TestbedError(
                    "cross-traffic did not flow", where=f"link {profile.name}", next_step="Run `crosslayer doctor`."
                )
            cross.mbit = int(told[0]) * 8e3 / int(told[1])

    def confirm_link(self, before: int) -> LinkCheck:
        """Check after a measurement that the link is still what it was; nothing is calibrated.

        Its RTT and rates; and whether a cable was out meanwhile, by `before`, the `network.carrier_changes` of then.
        What a busy host may spoil is checked again, four times at most and later each time.
        """
        result = self.check_link(rates=True)
        for pause_s in _PAUSES_S:
            if result.passed:
                break
            time.sleep(pause_s)
            result = self.check_link(rates=True)
        if result.passed and network.carrier_changes() != before:
            result = self._checks[-1] = replace(result, verdict="an interface was down meanwhile")
        return result

    @contextlib.contextmanager
    def watched(self) -> Iterator[list[Lateness]]:
        """How late the wire is with what crosses it in the block; the list is filled at the end.

        It stays empty over netem in this kernel; where netem's rule does not say when a packet goes out (without
        shaping, with jitter, with a queue of its own or a trace); and beside cross-traffic, whose packets would be
        counted too.
        """
        found: list[Lateness] = []
        profile = self.profile
        stages = profile.stages() if profile is not None else ((), ())
        ruled = (
            profile is not None and not (profile.jitter_ms or profile.trace) and all(len(way) == 1 for way in stages)
        )
        # netem in this kernel has no process that must wake up.
        if self.backend.name != "uml" or profile is None or not ruled or profile.cross_traffic:
            yield found
            return
        tap = self._tap = self._tap or Tap()
        tap.start()
        yield found
        down_ms, up_ms = self._delays[profile.name]
        found += tap.lateness(Rule(down_ms, profile.download_mbit), Rule(up_ms, profile.upload_mbit))

    def take_checks(self) -> list[LinkCheck]:
        """Every check since the last call, those that failed and were repeated among them."""
        taken, self._checks = self._checks, []
        return taken

    def _stand_aside(self) -> None:
        if self._player is not None:
            self._player.stand_aside()

    def _calibrate(self, profile: Profile) -> None:
        self._stand_aside()
        half = profile.rtt_ms / 2
        self._delays[profile.name] = (half, half)
        if profile.rtt_ms:
            self._delays[profile.name] = calibrated_delays(self._prober, profile, self._apply)
        else:
            self._apply((half, half))

    def _apply(self, delays_ms: tuple[float, float]) -> None:
        assert self.profile is not None
        self.backend.apply(*self.profile.stages(down_delay_ms=delays_ms[0], up_delay_ms=delays_ms[1]))

    @contextlib.contextmanager
    def serve(
        self, specs: Iterable[PageSpec], *, spec_dir: Path, own: tuple[Path, ...] = (), **options: Any
    ) -> Iterator[tuple[Server, dict[str, str]]]:
        """Build and serve the pages of `spec_dir` and `own`, and DNS for their names and aliases, at the far end.

        Yields the running server, and the IPv4 address of every host name. `options` are further ones of
        `Server.start`.
        """
        # Pages of one's own stay out of what the checkout keeps for all.
        built = private.ROOT / "sites" if own else _built_sites(spec_dir)
        pages.build(spec_dir, built, *own)
        addresses = network.add_hosts([host for spec in specs for host in spec.hosts])
        with Server.start(
            partial(network.spawn, network.SERVER),
            pages_dir=built,
            addresses=addresses,
            folder=private.ROOT / "server",
            **options,
        ) as server:
            self._servers.append(server)
            yield server, addresses

    @property
    def folder(self) -> Path:
        """Private temporary folder (a tmpfs that goes with the namespaces)."""
        return private.ROOT


@dataclass(slots=True)
class CrossTraffic:
    """What else went over the link."""

    mbit: float | None = None
    """Payload that arrived, Mbit/s; None until it has ended, and where there was none."""


@contextlib.contextmanager
def _ended(words: list[str], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """A program that ends with the block."""
    with subprocess.Popen(words, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def _built_sites(spec_dir: Path) -> Path:
    """Where the built pages go: kept in a checkout, private to the run where the sources cannot be written beside."""
    beside = spec_dir.parent / "build"
    return beside / "sites" if beside.is_dir() and os.access(beside, os.W_OK) else private.ROOT / "sites"
