"""The testbed as one object: open it, set a link, start programs at either end, close it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from crosslayer import pages
from crosslayer.links import Profile
from crosslayer.pages import PageSpec
from crosslayer.testbed import backends, namespaces, network
from crosslayer.testbed.check import LinkCheck, Prober, calibrated_delays, check
from crosslayer.testbed.errors import TestbedError
from crosslayer.testbed.fault_check import verify as verify_faults
from crosslayer.testbed.link_delay import DelayMeter, ExtraDelay, NetemRule
from crosslayer.testbed.server import Server
from crosslayer.testbed.trace_check import Playing, replay_format

_PAUSES_S = (0.0, 0.5, 2.0, 5.0)
"""Pauses before a failed check is repeated, seconds."""
_CROSS = Path(__file__).with_name("cross_traffic.py")
_SETTLING_S = 1.0
"""Time for cross-traffic to reach its rate before a measurement starts, seconds."""


class Testbed:
    """Client and server namespaces with an emulated link between them.

    A testbed works only inside private namespaces (`namespaces.enter`). The constructor moves the calling thread into
    the client's namespace. Sockets that the thread opens from then on, and programs that it starts, are in this
    namespace too. The backend is `netem`, `uml` or `auto`; `plain` is for profiles without shaping.
    `congestion_control` is the TCP algorithm at both ends, by default the machine's. `TestbedError` if namespaces,
    backend or congestion control are unavailable.
    """

    __test__ = False

    def __init__(self, backend: str = "auto", *, congestion_control: str | None = None) -> None:
        if not namespaces.inside():
            raise TestbedError(
                "the testbed runs in private namespaces only", next_step="Call it through the `crosslayer` command."
            )
        self._before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        with contextlib.ExitStack() as undo:
            undo.callback(network.remove)
            undo.callback(namespaces.return_to, self._before)
            network.build(congestion_control)
            self.backend = backends.open_backend(backend)
            undo.callback(self.backend.close)
            self._prober = Prober()
            undo.pop_all()
        self._delay_meter: DelayMeter | None = None
        self._replay: backends.TraceReplay | None = None
        self._trace_offset_ms = 0.0
        self._middlebox: backends.Middlebox | None = None
        self._delays: dict[str, tuple[float, float]] = {}
        self._servers: list[Server] = []
        self._checks: list[LinkCheck] = []
        self.profile: Profile | None = None
        namespaces.set_namespace(network.CLIENT)

    def __enter__(self) -> Testbed:
        return self

    def __exit__(self, *_fault: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the link and the namespaces; a testbed may be opened again afterwards.

        Processes that still run in the namespaces stay until this process ends; then the kernel kills them.
        """
        if self._delay_meter is not None:
            self._delay_meter.close()
        self._prober.close()
        for program in self._inline:
            program.stop()
        self.backend.close()
        namespaces.return_to(self._before)
        network.remove()

    def raise_if_dead(self) -> None:
        """Raise `ProcessDied` if a program of the link or a server of `serve` has ended by itself.

        The caller should then close this testbed and open a new one.
        """
        self.backend.raise_if_dead()
        for program in self._inline:
            program.raise_if_dead()
        for server in self._servers:
            server.raise_if_dead()

    def set_link(self, profile: Profile) -> LinkCheck:
        """Apply a profile to the link, calibrate its delay the first time, and check RTT and rates.

        A failed check is repeated after a new calibration, up to four times with growing pauses, because the host may
        be busy. If a program has ended, `ProcessDied` is raised at once.
        """
        self.raise_if_dead()
        self.profile = profile
        self._bypass()
        if profile.blocks_ipv6:
            network.enable_ipv6()
        if (course := profile.course) is not None:
            self._replay = self._replay or backends.TraceReplay()
            self._replay.load(replay_format(course, profile))
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
        """Check the link without calibrating it.

        Without `rates`, only the idle RTT is checked; this takes about 0.1 s plus one RTT.
        """
        assert self.profile is not None
        self.raise_if_dead()
        delays_ms, playing = self._delays[self.profile.name], None
        self._bypass()
        if self.profile.trace is not None and self._replay is not None:
            playing = Playing(self._trace_offset_ms, self._replay.play)
        result = check(self._prober, self.profile, self.backend.name, delays_ms, rates=rates, playing=playing)
        if self.profile.faults and rates:
            result = self._with_faults(result)
        self._checks.append(result)
        self.rewind()
        return self._checks[-1]

    def begin_trace_at(self, offset_ms: float) -> None:
        """Set the position in the trace, ms, from which checks and `rewind` replay it."""
        self._trace_offset_ms = offset_ms

    def rewind(self) -> None:
        """Restart the link's trace, and count `PathFault.after_s` of the path's faults from now.

        The trace restarts from the position that `begin_trace_at` sets.
        """
        if self.profile is not None and self.profile.trace is not None and self._replay is not None:
            self._replay.play(time.time_ns() - round(self._trace_offset_ms * 1e6))
        if self.profile is not None and self.profile.faults:
            self.middlebox.begin(time.time_ns())

    @property
    def middlebox(self) -> backends.Middlebox:
        """The middlebox of the path, created on first use.

        Packets pass through it after a call of its `begin`, until its `bypass` is called.
        """
        self._middlebox = self._middlebox or backends.Middlebox()
        return self._middlebox

    def _with_faults(self, result: LinkCheck) -> LinkCheck:
        """Verify the path's faults; returns `result` with the results of this verification added."""
        assert self.profile is not None
        counts = verify_faults(self.middlebox, self.profile.path_faults, self.profile.rtt_ms)
        verdicts = [*([] if result.passed else [result.verdict]), *counts.deviations]
        return replace(
            result,
            nominal_faults="; ".join(self.profile.faults),
            fault_probes=counts.probes,
            fault_probes_passed=counts.passed,
            verdict="; ".join(verdicts) or "pass",
        )

    @contextlib.contextmanager
    def cross_traffic(self) -> Iterator[CrossTraffic]:
        """Run the cross-traffic of the link's profile, if it has any, for the duration of the block.

        Raises `TestbedError` if the sender or receiver does not start, or ends during the block.
        """
        traffic = CrossTraffic()
        profile = self.profile
        if profile is None or profile.cross_traffic is None:
            yield traffic
            return
        kind = "tcp" if profile.cross_traffic == "bulk" else "udp"
        ends = [(network.CLIENT, network.CLIENT_ADDRESS), (network.SERVER, network.SERVER_ADDRESS)]
        (near, address), (far, _) = ends if profile.cross_direction == "down" else reversed(ends)
        program = [sys.executable, "-I", str(_CROSS)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with contextlib.ExitStack() as stack:
            receiver = stack.enter_context(
                _running(namespaces.command_in(near, [*program, "receive", kind, address]), **pipes)
            )
            assert receiver.stdin is not None
            assert receiver.stdout is not None
            port = receiver.stdout.readline().strip()
            command = [*program, "send", kind, address, port, str(profile.cross_rate_mbit or 0)]
            sender = stack.enter_context(_running(namespaces.command_in(far, command)))
            time.sleep(_SETTLING_S)
            yield traffic
            alive = sender.poll() is None
            receiver.stdin.close()
            report = receiver.stdout.readline().split()
            if not alive or len(report) != 2 or report[0] == "0":
                raise TestbedError(
                    "cross-traffic did not flow", where=f"link {profile.name}", next_step="Run `crosslayer doctor`."
                )
            traffic.mbit = int(report[0]) * 8e3 / int(report[1])

    def confirm_link(self, before: int) -> LinkCheck:
        """Check after a measurement that the link still matches its profile; nothing is calibrated.

        Checks RTT and rates, and that no network device lost its carrier. `before` is the result of
        `network.carrier_changes` before the measurement. A failed check is repeated up to four times with growing
        pauses, because the host may be busy.
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
    def measuring_delay(self) -> Iterator[list[ExtraDelay]]:
        """Measure the additional delay of the link during the block; when the block ends, the yielded list is filled.

        The list stays empty with netem of the host's kernel, which has no process that must wake up. With cross-traffic
        it stays empty because packets of the cross-traffic would be counted too. It also stays empty if netem's
        rule does not give a packet's departure: without shaping, with jitter, with a separate queue, or with a trace.
        """
        delays: list[ExtraDelay] = []
        profile = self.profile
        stages = profile.stages() if profile is not None else ((), ())
        has_rule = (
            profile is not None
            and not (profile.jitter_ms or profile.trace)
            and all(len(stage) == 1 for stage in stages)
        )
        # netem of this kernel has no process that must wake up.
        if self.backend.name != "uml" or profile is None or not has_rule or profile.cross_traffic:
            yield delays
            return
        meter = self._delay_meter = self._delay_meter or DelayMeter()
        meter.start()
        yield delays
        down_ms, up_ms = self._delays[profile.name]
        delays += meter.extra_delays_ms(
            NetemRule(down_ms, profile.download_mbit), NetemRule(up_ms, profile.upload_mbit)
        )

    def take_checks(self) -> list[LinkCheck]:
        """All checks since the last call, including failed ones that were repeated."""
        taken, self._checks = self._checks, []
        return taken

    def _bypass(self) -> None:
        for program in self._inline:
            program.bypass()

    @property
    def _inline(self) -> list[backends.InlineProgram]:
        """Programs that forward packets between the client's veth pair and the client's bridge."""
        return [program for program in (self._replay, self._middlebox) if program is not None]

    def _calibrate(self, profile: Profile) -> None:
        self._bypass()
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
        self, specs: Mapping[str, PageSpec], *, resolved: Iterable[str] | None = None, **options: Any
    ) -> Iterator[tuple[Server, dict[str, str]]]:
        """Build the pages and serve them at the far end.

        The server also answers DNS queries for every host name of the pages `resolved`, by default of all pages. Yields
        the running server and the IPv4 address of every host name. `options` are passed to `Server.start`.
        """
        built = _build_sites(specs)
        hosts = [host for name in (specs if resolved is None else resolved) for host in specs[name].hosts]
        addresses = network.add_hosts(hosts)
        with Server.start(
            partial(network.spawn, network.SERVER),
            pages_dir=built,
            addresses=addresses,
            folder=namespaces.ROOT / "server",
            **options,
        ) as server:
            self._servers.append(server)
            yield server, addresses

    @property
    def folder(self) -> Path:
        """Private temporary folder, a tmpfs that is removed with the namespaces."""
        return namespaces.ROOT


@dataclass(slots=True)
class CrossTraffic:
    """Result of the cross-traffic on the link."""

    mbit: float | None = None
    """Payload rate of the cross-traffic, Mbit/s; None until it has ended, and if there was none."""


@contextlib.contextmanager
def _running(command: list[str], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """Start a program that is killed at the end of the block."""
    with subprocess.Popen(command, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def _build_sites(specs: Mapping[str, PageSpec]) -> Path:
    """Build the pages if they are not built, and return their folder: that of the checkout, or one private to the run.

    It is private if a page is not in the checkout, or if the checkout is read-only and its built pages are not current.
    """
    (folder, *others) = {spec.folder.parent for spec in specs.values()}
    build = folder.parent / "build"
    shared, private = build / "sites", namespaces.ROOT / "sites"
    if not others and pages.is_built(specs, shared):
        return shared
    built = shared if not others and build.is_dir() and os.access(build, os.W_OK) else private
    pages.build(specs, built)
    return built
