"""Link profiles: descriptions of access links, read from `emulation/profiles.toml` or a similar file, and checked.

Each direction of a profile becomes one `sch_netem` queueing discipline, or three stages in series. Three stages are
needed for a queue other than netem's own, and for a limited rate together with jitter that reorders packets. Both
backends of the testbed apply the same stages. docs/reference/links.md defines each effect.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import NormalDist
from typing import Annotated, Any, Final, Literal

from msgspec import Meta

from crosslayer import resources
from crosslayer.decode import FieldError, checked, choice, read_toml
from crosslayer.errors import CrosslayerError
from crosslayer.path_faults import PathFault, parse_fault
from crosslayer.traces import MOST_MBIT, MOST_RTT_MS, Course, Trace, from_text

FRAME_BYTES = 1514
"""Size of a full Ethernet frame as netem counts it: 1500 bytes of IP and a 14-byte header."""

_DEFAULT_LIMIT = 1000
_IN_ORDER_MBIT = 100_000.0
"""Rate that makes netem keep packets in order, while serialisation takes practically no time, Mbit/s."""
_LEAST_QUEUE_FRAMES = 2
_LEAST_MBIT = 0.001
"""Minimum rate, Mbit/s: a full frame then takes 12 s."""
_MOST_QUEUE_BYTES = 2**32 - 1
_BURST_MS = 1.0
_CODEL_FRAMES = 1.5
"""Minimum target delay of fq_codel, in transmission times of a full frame.

RFC 8290, section 5.2.1, requires at least one transmission time. The default target, 5 ms, is used if it exceeds this
minimum.
"""
_CODEL_TARGET_MS = 5.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")
"""Valid name of a link, which is also a folder name in a dataset and an element of lists separated by commas."""
_RTT_ALONE = re.compile(r"rtt-(\d{1,4}(?:\.\d+)?)")
_SWEPT = re.compile(r"(.+)-(?:(loss|rtt|jitter)-(\d{1,4}(?:\.\d+)?)|(queue)-(\d{1,3}bdp|fifo|fq_codel|cake))")

Distribution = Literal["normal", "pareto", "paretonormal"]
Delay = Annotated[float, Meta(ge=0, le=MOST_RTT_MS)]
Rate = Annotated[float, Meta(gt=0, le=MOST_MBIT)]
Percent = Annotated[float, Meta(ge=0, le=100)]


MADE: Final = (
    "; or an RTT alone (ms), like rtt-50; or one with one property changed, like 4g-loss-2, 4g-rtt-100 or "
    "4g-queue-10bdp"
)
"""Text after a list of link profiles in error messages and help: describes names of links that need no profile."""


class LinkError(CrosslayerError):
    """A link profile that cannot be used."""


@dataclass(frozen=True, slots=True)
class Qdisc:
    """A stage of one direction of a link: a `sch_netem` discipline. In most directions, it is the only stage."""

    delay_ms: float
    """One-way delay, ms."""
    rate_mbit: float | None
    """Serialisation rate, Mbit/s; None if the direction is not shaped."""
    limit_packets: int
    """Maximum number of packets in flight and queued; further packets are dropped."""
    jitter_ms: float = 0.0
    """Scale of the delay's distribution, ms."""
    jitter_distribution: str | None = None
    loss_percent: float = 0.0
    loss_burst_packets: float | None = None
    """Mean length of a loss burst, packets (Gilbert-Elliott); None for independent losses."""
    loss_in_burst_percent: float = 100.0
    """Probability that a packet is lost while a loss burst lasts, percent."""
    reorder_percent: float = 0.0

    def tc_arguments(self) -> list[str]:
        """Arguments of `tc` for the netem parameters of this stage.

        Times have a resolution of 1 ns and rates of 1 bit/s, so no value of a profile is rounded noticeably.
        """
        arguments = ["netem", "limit", str(self.limit_packets)]
        if self.delay_ms or self.jitter_ms:
            arguments += ["delay", f"{self.delay_ms * 1e3:.3f}us"]
        if self.jitter_ms:
            arguments += [f"{self.jitter_ms * 1e3:.3f}us"]
            if self.jitter_distribution:
                arguments += ["distribution", self.jitter_distribution]
        if self.loss_percent and self.loss_burst_packets is None:
            arguments += ["loss", "random", f"{self.loss_percent}%"]
        elif self.loss_percent and self.loss_burst_packets is not None:
            bad = self.loss_percent / self.loss_in_burst_percent  # share of the packets in the bad state
            leave = 1 / self.loss_burst_packets
            enter = leave * bad / (1 - bad)
            rates = (enter * 100, leave * 100, self.loss_in_burst_percent)
            arguments += ["loss", "gemodel", *(f"{rate:.7f}%" for rate in rates)]
        if self.reorder_percent:
            arguments += ["reorder", f"{self.reorder_percent}%"]
        if self.rate_mbit is not None:
            arguments += ["rate", f"{round(self.rate_mbit * 1e6)}bit"]
        return arguments

    def tc_commands(self) -> list[list[str]]:
        """Arguments after `tc qdisc add dev DEVICE`, one list per command."""
        return [["root", *self.tc_arguments()]]


@dataclass(frozen=True, slots=True)
class Queue:
    """A stage of one direction of a link: the queue of the bottleneck."""

    discipline: Literal["fifo", "fq_codel", "cake"]
    rate_mbit: float
    limit_bytes: int
    """Maximum length of a FIFO, bytes; fq_codel and cake manage their length themselves."""

    @property
    def longest_ms(self) -> float | None:
        """Maximum wait in the queue, ms: the wait in a full FIFO; None for fq_codel and cake."""
        return self.limit_bytes * 8e-3 / self.rate_mbit if self.discipline == "fifo" else None

    def tc_commands(self) -> list[list[str]]:
        """Arguments after `tc qdisc add dev DEVICE`, one list per command.

        The token bucket of `fifo` and `fq_codel` allows bursts of the bytes that its rate sends in 1 ms, but at least
        of two frames. With bursts, a late timer does not reduce the rate. The next stage of the link has the rate of
        the bucket and spaces packets exactly.
        """
        rate = f"{round(self.rate_mbit * 1e6)}bit"
        if self.discipline == "cake":
            return [["root", "cake", "bandwidth", rate, "besteffort", "raw"]]
        burst = max(2 * FRAME_BYTES, round(self.rate_mbit * 1e6 * _BURST_MS / 8e3))
        limit = self.limit_bytes if self.discipline == "fifo" else _DEFAULT_LIMIT * FRAME_BYTES * 100
        bucket = ["root", "handle", "1:", "tbf", "rate", rate, "burst", str(burst), "limit", str(limit)]
        if self.discipline == "fifo":
            return [bucket]
        target = max(_CODEL_TARGET_MS, _CODEL_FRAMES * FRAME_BYTES * 8e-3 / self.rate_mbit)
        return [bucket, ["parent", "1:1", "fq_codel", "target", f"{target * 1e3:.0f}us"]]


Stage = Qdisc | Queue


@dataclass(frozen=True, slots=True)
class Profile:
    """An access link ("access technology").

    Raises
    ------
    FieldError
        For values that contradict each other. `load_profiles` raises `LinkError` with file, profile and key instead.
    """

    name: str
    rtt_ms: Delay
    """Two-way delay, ms; each direction has half of it."""
    title: str = ""
    """Title of the link in figures and pages; by default its name."""
    download_mbit: Rate | None = None
    """Rate towards the client, Mbit/s; None if it is not shaped."""
    upload_mbit: Rate | None = None
    """Rate towards the server, Mbit/s; None if it is not shaped."""
    queue_packets: Annotated[int, Meta(ge=1, le=1_000_000)] = _DEFAULT_LIMIT
    """Maximum number of packets in the bottleneck's queue. Packets in flight do not count."""
    queue: Literal["fifo", "fq_codel", "cake"] | None = None
    """Discipline of the bottleneck's queue; None for netem's own FIFO.

    netem's limit also counts packets in flight. It is therefore set to `queue_packets` plus the packets in flight at
    full rate.
    """
    queue_bdp: Annotated[float, Meta(gt=0)] | None = None
    """Length of the bottleneck's FIFO in bandwidth-delay products, instead of `queue_packets`."""
    jitter_ms: Delay = 0.0
    """Scale of the one-way delay's distribution in each direction, ms."""
    jitter_distribution: Distribution | None = None
    """Distribution table of netem for the delay; None for a uniform distribution within ±`jitter_ms`.

    With a table, the standard deviation of the delay is about `jitter_ms`.
    """
    jitter_reorders: bool = True
    """Whether packets with a shorter delay overtake others. If False, each packet waits for the previous one."""
    loss_percent: Percent = 0.0
    """Loss in each direction, percent."""
    loss_burst_packets: Annotated[float, Meta(ge=1, le=1e6)] | None = None
    """Mean length of a loss burst, packets (Gilbert-Elliott); None for independent losses."""
    loss_in_burst_percent: Annotated[float, Meta(gt=0, le=100)] = 100.0
    """Probability that a packet is lost while a loss burst lasts, percent."""
    reorder_percent: Percent = 0.0
    """Share of packets that netem sends without delay, so that they overtake others, percent."""
    cross_traffic: Literal["bulk", "paced"] | None = None
    """Cross-traffic in the queue of the measured traffic: `bulk`, a TCP flow, or `paced`, UDP at a fixed rate."""
    cross_mbit: Rate | None = None
    """Rate of paced cross-traffic, Mbit/s; by default half of the link's rate in the direction `cross_direction`."""
    cross_direction: Literal["down", "up"] = "down"
    faults: tuple[str, ...] = ()
    """Faults of the path in the notation of `path_faults`, e.g. `drop udp/443`, `reject udp/443@2s`."""
    trace: Trace | None = None
    """Rates and RTT over time; None for a link without a trace.

    If the trace has RTTs, `rtt_ms` must not exceed their minimum, which is its default. If the trace has the rate of a
    direction, at most `queue_packets` packets wait in the queue of this direction.
    """
    source: str = ""
    """Source of the values."""

    def __post_init__(self) -> None:
        if not self.title:
            object.__setattr__(self, "title", self.name)
        for key in ("download_mbit", "upload_mbit", "cross_mbit"):
            if (rate := getattr(self, key)) is not None and rate < _LEAST_MBIT:
                step = f"Give at least {_LEAST_MBIT:g}."
                raise FieldError(f"must be at least {_LEAST_MBIT:g}, is {rate:g}", key=key, next_step=step)
        if self.queue is not None or self.queue_bdp is not None:
            self._check_queue_of_trace()
        if self.queue_bdp and not (self.rtt_ms and (self.download_mbit or self.upload_mbit)):
            raise FieldError("has no bandwidth-delay product", key="queue_bdp", next_step="Give rtt_ms and a rate.")
        if self.queue and not (self.download_mbit or self.upload_mbit):
            raise FieldError("has a queue but no rate", key="queue", next_step="Give download_mbit or upload_mbit.")
        longest = max((self._queue_bytes(rate) for rate in (self.download_mbit, self.upload_mbit) if rate), default=0)
        if longest > _MOST_QUEUE_BYTES:
            raise FieldError(
                f"makes a queue of {longest} bytes, and tc takes at most {_MOST_QUEUE_BYTES}",
                key="queue_bdp",
                next_step="Give less of it, of rtt_ms or of the rate.",
            )
        if self.queue in ("fq_codel", "cake") and self.queue_bdp:
            raise FieldError("has no length: it manages its queue itself", key="queue_bdp", next_step="Leave it out.")
        if self.loss_burst_packets and not self.loss_percent:
            raise FieldError("has bursts but no loss", key="loss_burst_packets", next_step="Give loss_percent.")
        if self.loss_in_burst_percent < 100 and not self.loss_burst_packets:
            raise FieldError(
                "has a loss in bursts but no bursts", key="loss_in_burst_percent", next_step="Give loss_burst_packets."
            )
        if self.loss_burst_packets and self.loss_percent >= self.loss_in_burst_percent:
            raise FieldError(
                "is not below loss_in_burst_percent",
                key="loss_percent",
                next_step="Give less than loss_in_burst_percent.",
            )
        if self.cross_traffic == "paced" and not (self.cross_mbit or self.cross_rate_mbit):
            raise FieldError(
                "has a rate of half the link's, but the link has none",
                key="cross_traffic",
                next_step="Give cross_mbit.",
            )
        if self.jitter_distribution and not self.jitter_ms:
            raise FieldError(
                "has a distribution but no jitter", key="jitter_distribution", next_step="Give jitter_ms too."
            )
        if self.reorder_percent and not self.rtt_ms:
            raise FieldError(
                "reorders packets, which needs a delay", key="reorder_percent", next_step="Give an rtt_ms above 0."
            )
        if self.faults and self.trace:
            raise FieldError("cannot be set together with a trace", key="faults", next_step="Remove one of them.")
        for text in self.faults:
            parse_fault(text)
        if (course := self.course) is not None:
            for key, line, rate in (
                ("download_mbit", course.down, self.download_mbit),
                ("upload_mbit", course.up, self.upload_mbit),
            ):
                if line is not None and rate is not None:
                    raise FieldError("is determined by the trace", key=key, next_step="Leave it out.")
            if not self.rtt_ms or (course.least_rtt_ms is not None and course.least_rtt_ms < self.rtt_ms):
                least = f"at most {course.least_rtt_ms:g}" if course.least_rtt_ms else "an RTT above 0"
                raise FieldError(
                    "is not the minimum RTT of the trace", key="rtt_ms", next_step=f"Give {least}, or none."
                )

    def _check_queue_of_trace(self) -> None:
        """Raise `FieldError` if traces have the rates of both directions: then no direction has another queue."""
        course = self.course
        if course is not None and course.down is not None and course.up is not None:
            raise FieldError(
                "cannot be set: each direction of the trace has a FIFO of its own",
                key="queue" if self.queue_bdp is None else "queue_bdp",
                next_step="Leave it out; `queue_packets = 100`, or `--queue 100`, sets the length of the FIFO.",
            )

    @property
    def course(self) -> Course | None:
        """Rates and RTT of the link's trace over time; None for a link without a trace."""
        return None if self.trace is None else self.trace.course()

    @property
    def shaped(self) -> bool:
        """Whether the link has stages: it has a delay, rate, jitter, loss, reordering or a trace.

        A link with only faults or cross-traffic has no stages.
        """
        return bool(
            self.rtt_ms
            or self.download_mbit
            or self.upload_mbit
            or self.jitter_ms
            or self.loss_percent
            or self.reorder_percent
            or self.trace
        )

    @property
    def arriving(self) -> float:
        """Share of packets that arrive, in each direction, from 0 to 1."""
        return 1 - self.loss_percent / 100

    @property
    def path_faults(self) -> tuple[PathFault, ...]:
        """The parsed faults of the path."""
        return tuple(map(parse_fault, self.faults))

    @property
    def blocks_ipv6(self) -> bool:
        """Whether a fault blocks IPv6.

        For such a link, the testbed adds IPv6 addresses, so that clients try IPv6 and fail. A study can also add IPv6
        addresses to other links.
        """
        return any(fault.selector == "ipv6" for fault in self.path_faults)

    @property
    def cross_rate_mbit(self) -> float | None:
        """Rate of paced cross-traffic, Mbit/s; None if the profile gives no rate.

        It is `cross_mbit` or, without this key, half of the link's rate in the direction `cross_direction`.
        """
        rate = self.download_mbit if self.cross_direction == "down" else self.upload_mbit
        return self.cross_mbit or (rate / 2 if rate else None)

    def quantile_ms(self, level: float) -> float:
        """Quantile of the delay that jitter adds in one direction, ms; `level` is from 0 to 1."""
        if self.jitter_distribution is None:
            return self.jitter_ms * (2 * level - 1)
        return self.jitter_ms * _TABLES[self.jitter_distribution](level)

    def queues(self) -> tuple[Queue | None, Queue | None]:
        """Queue stages of downlink and uplink; None for a direction with netem's own queue or without a rate."""
        discipline = self.queue or ("fifo" if self.queue_bdp else None)
        if discipline is None:
            return None, None
        down, up = (
            None if rate is None else Queue(discipline, rate, self._queue_bytes(rate))
            for rate in (self.download_mbit, self.upload_mbit)
        )
        return down, up

    def _queue_bytes(self, rate_mbit: float) -> int:
        if self.queue_bdp is None:
            return self.queue_packets * FRAME_BYTES
        return max(_LEAST_QUEUE_FRAMES * FRAME_BYTES, round(self.queue_bdp * rate_mbit * self.rtt_ms * 1e3 / 8))

    def stages(
        self, *, down_delay_ms: float | None = None, up_delay_ms: float | None = None
    ) -> tuple[tuple[Stage, ...], tuple[Stage, ...]]:
        """Stages of downlink and uplink in the order in which packets pass them; empty for a link without emulation.

        A direction has one stage or three stages. Of three, the first applies delay, jitter, loss and reordering. The
        second is the queue, and the third serialises packets at the rate.
        """
        if not self.shaped:
            return (), ()
        down, up = (
            self._stages(qdisc, queue)
            for qdisc, queue in zip(
                self.qdiscs(down_delay_ms=down_delay_ms, up_delay_ms=up_delay_ms), self.queues(), strict=True
            )
        )
        return down, up

    def _stages(self, whole: Qdisc, queue: Queue | None) -> tuple[Stage, ...]:
        reorders = whole.jitter_ms and self.jitter_reorders
        if not reorders and whole.jitter_ms and whole.rate_mbit is None:
            return (replace(whole, rate_mbit=_IN_ORDER_MBIT),)
        if whole.rate_mbit is None or not (queue or reorders):
            return (whole,)
        ordered = None if reorders or not whole.jitter_ms else _IN_ORDER_MBIT
        path = replace(whole, rate_mbit=ordered, limit_packets=100 * _DEFAULT_LIMIT)
        queue = queue or Queue("fifo", whole.rate_mbit, self._queue_bytes(whole.rate_mbit))
        return path, queue, Qdisc(0.0, whole.rate_mbit, 100 * _DEFAULT_LIMIT)

    def qdiscs(self, *, down_delay_ms: float | None = None, up_delay_ms: float | None = None) -> tuple[Qdisc, Qdisc]:
        """Downlink and uplink as one netem discipline each.

        `down_delay_ms` and `up_delay_ms` are the delays of a calibration; by default, each is half the RTT.
        """
        half = self.rtt_ms / 2
        return (
            self._qdisc(self.download_mbit, half if down_delay_ms is None else down_delay_ms),
            self._qdisc(self.upload_mbit, half if up_delay_ms is None else up_delay_ms),
        )

    def _qdisc(self, rate_mbit: float | None, delay_ms: float) -> Qdisc:
        # Packets in flight occupy netem's queue too, so its default of 1000 packets is too small for long fat links.
        in_flight = 0 if rate_mbit is None else math.ceil(rate_mbit * 1e6 * delay_ms / 1e3 / 8 / FRAME_BYTES)
        limit = in_flight + self.queue_packets if rate_mbit is not None else 100 * _DEFAULT_LIMIT
        return Qdisc(
            delay_ms=delay_ms,
            rate_mbit=rate_mbit,
            limit_packets=limit,
            jitter_ms=self.jitter_ms,
            jitter_distribution=self.jitter_distribution,
            loss_percent=self.loss_percent,
            loss_burst_packets=self.loss_burst_packets,
            loss_in_burst_percent=self.loss_in_burst_percent,
            reorder_percent=self.reorder_percent,
        )


def _normal(level: float) -> float:
    """Quantile of the normal distribution, cut at ±4 like netem's table."""
    return 4.0 * (2 * level - 1) if level in (0, 1) else max(-4.0, min(4.0, NormalDist().inv_cdf(level)))


def _pareto(level: float) -> float:
    """Quantile of a Pareto distribution with shape 3 and mean 0, cut at 4 like netem's table (netem/pareto.c)."""
    return 4.0 if level == 1 else min(4.0, ((1 - level) ** (-1 / 3) - 1.5) * 4 / 3)


def _paretonormal(level: float) -> float:
    return 0.25 * _normal(level) + 0.75 * _pareto(level)


_TABLES: Final = {"normal": _normal, "pareto": _pareto, "paretonormal": _paretonormal}
"""Quantile functions of iproute2's distribution tables, in multiples of the scale."""


def find_profiles_file() -> Path:
    """The file of link profiles; `resources.ResourceError` if there is none."""
    return resources.locate("profiles").path


def load_profiles(path: Path | None = None) -> dict[str, Profile]:
    """Read and check every profile of a file.

    Parameters
    ----------
    path
        A TOML file; the project's own `emulation/profiles.toml` by default.

    Raises
    ------
    LinkError
        If the file has no link or an invalid one; the error names file, profile and key.
    """
    step = (
        "Name a TOML file of links, as in docs/howto/links.md."
        if path
        else "Work in a checkout, or set CROSSLAYER_PROFILES."
    )
    path = path or find_profiles_file()
    tables = read_toml(path, LinkError, step)
    if not tables:
        raise LinkError("has no link", where=str(path), next_step="Add one: a table [NAME] with rtt_ms.")
    return {name: _profile(table, name, path) for name, table in tables.items()}


def own_profiles(path: Path) -> dict[str, Profile]:
    """Read the links of a user's file, none of which may have the name of a built-in link.

    Raises
    ------
    LinkError
        For an invalid link, or one with the name of a built-in link.
    """
    own = load_profiles(path)
    for name in load_profiles().keys() & own.keys():
        raise LinkError(
            "is the name of a built-in link", where=f"{path}, profile '{name}'", next_step="Choose another name."
        )
    return own


def _profile(table: object, name: str, path: Path) -> Profile:
    where, explained = f"{path}, profile '{name}'", "emulation/profiles.toml explains every key at its head."
    if not _NAME.fullmatch(name):
        step = "Use at most 60 letters, digits, '.', '_' and '-', the first a letter or digit."
        raise LinkError("is not the name of a link", where=where, next_step=step)
    if _RTT_ALONE.fullmatch(name) or _SWEPT.fullmatch(name):
        step = "Choose another name."
        raise LinkError("has a reserved name, which describes a link by itself", where=where, next_step=step)
    if isinstance(table, dict) and isinstance(table.get("trace"), dict):
        match = checked(table["trace"], Trace, where=f"{where}, trace", error=LinkError, next_step=explained).at(
            path.parent
        )
        table = _least(match) | table | {"trace": match}
    profile = checked(
        {"name": name, **table} if isinstance(table, dict) else table,
        Profile,
        where=where,
        error=LinkError,
        next_step=explained,
    )
    if profile.name != name:
        raise LinkError(
            f"is {profile.name!r}", where=f"{where}, key 'name'", next_step=f"Leave it out: [{name}] names it."
        )
    return profile


def _least(trace: Trace) -> dict[str, float]:
    """Minimum RTT of a trace, as a dictionary with the key `rtt_ms`; empty if the trace has no RTTs."""
    least = trace.course().least_rtt_ms
    return {} if least is None else {"rtt_ms": least}


_PERCENT = re.compile(r"(\d+(?:\.\d+)?)%?")
_MS = re.compile(r"(\d+(?:\.\d+)?)(?:ms)?")
_BDP = re.compile(r"(\d+(?:\.\d+)?)bdp")
_CROSS = re.compile(r"(bulk|paced)(?::(\d+(?:\.\d+)?))?(?:,(down|up))?")


def varied(
    profile: Profile,
    *,
    loss: str | None = None,
    jitter: str | None = None,
    queue: str | None = None,
    cross: str | None = None,
    trace: str | None = None,
    faults: Sequence[str] = (),
) -> Profile:
    """Copy of a profile with further effects, given as on the command line; the name of the copy lists the effects.

    Parameters
    ----------
    loss
        `1%`, or `1%,3` with a mean burst length of 3 packets.
    jitter
        `5ms`, or `5ms,normal` with a distribution; with `,ordered`, packets keep their order.
    queue
        `10bdp`, `100` (packets), `fifo`, `fq_codel` or `cake`.
    cross
        `bulk`, `paced` or `paced:20` (Mbit/s): cross-traffic towards the client; with `,up`, cross-traffic from the
        client.
    trace
        `FILE.down` or `FILE.down,FILE.up` (Mahimahi), or `FILE.csv` (steps). Its rates and RTT replace those of the
        link.
    faults
        Faults of the path in addition to those of the link, see `path_faults`.

    Raises
    ------
    LinkError
        For an invalid notation, or an effect that the link cannot have.
    TraceError
        For a file that is not a trace.
    """
    values: dict[str, Any] = {}
    if loss is not None:
        share, _, burst = loss.partition(",")
        values["loss_percent"] = _number(_PERCENT, share, "--loss", "a percentage, like 1% or 1%,3")
        if burst:
            values["loss_burst_packets"] = _number(_MS, burst, "--loss", "a length of bursts in packets, like 1%,3")
    if jitter is not None:
        scale, *arguments = jitter.split(",")
        values["jitter_ms"] = _number(_MS, scale, "--jitter", "a time, like 5ms or 5ms,normal or 5ms,normal,ordered")
        values["jitter_reorders"] = "ordered" not in arguments
        if named := [word for word in arguments if word != "ordered"]:
            values["jitter_distribution"] = ",".join(named)
    if queue is not None:
        if match := _BDP.fullmatch(queue):
            values["queue_bdp"] = float(match[1])
        elif queue.isdigit():
            values |= {"queue": "fifo", "queue_packets": int(queue)}
        else:
            values["queue"] = queue
    if cross is not None:
        if (steps := _CROSS.fullmatch(cross)) is None:
            raise LinkError(
                f"is {cross!r}", where="--cross-traffic", next_step="Write bulk, paced or paced:20; upwards bulk,up."
            )
        values |= {"cross_traffic": steps[1], "cross_mbit": steps[2] and float(steps[2])}
        values["cross_direction"] = steps[3] or "down"
    if trace is not None:
        values["trace"] = chosen_trace = from_text(trace)
        course = chosen_trace.course()
        values |= _least(chosen_trace)
        values |= {"download_mbit": None} if course.down else {}
        values |= {"upload_mbit": None} if course.up else {}
        trace = "+".join(Path(word).name for word in trace.split(","))
    traced = values["trace"].course() if "trace" in values else profile.course
    if "queue_packets" in values and traced is not None and traced.down is not None and traced.up is not None:
        values |= {"queue": None, "queue_bdp": None}  # the length of the trace's own FIFO
    if faults:
        values["faults"] = (*profile.faults, *faults)
    if not values:
        return profile
    given = (loss, jitter, queue, cross, trace)
    known = {name: getattr(profile, name) for name in profile.__slots__}
    description = [f"{option} {word}" for option, word in zip(_OPTIONS, given, strict=True) if word]
    description += faults
    title = f"{profile.title}, {', '.join(description)}"
    return checked(
        known
        | values
        | {"name": f"{profile.name}+{'+'.join(word for word in (*given, *faults) if word)}", "title": title},
        Profile,
        where=f"link {profile.name} with {', '.join(description)}",
        error=LinkError,
        next_step="docs/howto/links.md has examples.",
    )


_OPTIONS: Final = ("loss", "jitter", "queue", "with", "trace")


def _number(pattern: re.Pattern[str], word: str, option: str, expected: str) -> float:
    if (match := pattern.fullmatch(word)) is None:
        raise LinkError(f"is {word!r}", where=option, next_step=f"Write {expected}.")
    return float(match[1])


def rtt_alone(name: str) -> Profile | None:
    """For a name such as `rtt-50`, the link that has only this RTT (ms); None for names of another form."""
    match = _RTT_ALONE.fullmatch(name)
    if match is None or not float(match[1]):
        return None
    return Profile(name, float(match[1]), f"RTT {match[1]} ms", source="an RTT alone")


def sweep(name: str) -> tuple[str, str, str] | None:
    """Split a name such as `4g-loss-2` into link, parameter and value; None for names of another form.

    Parameters are `loss` (percent in each direction), `rtt` (ms), `jitter` (ms) and `queue` (length, as in `10bdp`, or
    discipline). With `jitter`, delays are normally distributed, and packets keep their order. With `queue`, a TCP
    download fills the queue.
    """
    match = _SWEPT.fullmatch(name)
    return None if match is None else (match[1], match[2] or match[4], match[3] or match[5])


def swept(profiles: Mapping[str, Profile], name: str) -> Profile | None:
    """The link of a name that `sweep` parses; None for other names and for unknown links.

    Raises
    ------
    LinkError
        If the link cannot have this variation.
    """
    steps = sweep(name)
    base = steps and (profiles.get(steps[0]) or swept(profiles, steps[0]))
    if not steps or base is None:
        return None
    _, kind, value = steps
    match kind:
        case "loss":
            made, description = varied(base, loss=f"{value}%"), f"{float(value):g} % loss"
        case "rtt":
            made, description = replace(base, rtt_ms=float(value)), f"RTT {float(value):g} ms"
        case "jitter":
            made, description = varied(base, jitter=f"{value}ms,normal,ordered"), f"jitter {float(value):g} ms"
        case _:
            made, description = (
                varied(base, queue=value, cross="bulk"),
                f"queue of {value.replace('bdp', ' BDP')}, loaded",
            )
    return replace(made, name=name, title=f"{base.title}, {description}", source=f"{base.name}, varied")


def choose(profiles: Mapping[str, Profile], name: str) -> Profile:
    """The profile of a name: a known link, a link with only an RTT, or a variation such as `4g-loss-2`.

    Raises
    ------
    LinkError
        For an unknown name; the error lists the known names.
    """
    profile = profiles.get(name) or rtt_alone(name) or swept(profiles, name)
    if profile is None:
        raise LinkError(
            f"there is no link profile '{name}'",
            next_step=choice(name, profiles, MADE),
        )
    return profile
