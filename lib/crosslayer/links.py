"""Link profiles: what an access link is, read from `emulation/profiles.toml` (or a file like it) and checked.

A profile becomes two queueing disciplines, one per direction, in the terms of `sch_netem`. Both
backends of the testbed apply the same description. No network and no clock here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from crosslayer import places
from crosslayer.checked import FieldError, checked, read_toml
from crosslayer.errors import CrosslayerError

FRAME_BYTES = 1514
"""A full Ethernet frame as netem counts it: 1500 bytes of IP and the 14-byte header."""

_DEFAULT_LIMIT = 1000
_RTT_ALONE = re.compile(r"rtt-(\d{1,4}(?:\.\d+)?)")

Amount = Annotated[float, Meta(ge=0)]
Rate = Annotated[float, Meta(gt=0)]
Percent = Annotated[float, Meta(ge=0, le=100)]


class LinkError(CrosslayerError):
    """A link profile that cannot be used."""


@dataclass(frozen=True, slots=True)
class Qdisc:
    """One direction of a link, as `sch_netem` applies it."""

    delay_ms: float
    """One-way delay, ms."""
    rate_mbit: float | None
    """Serialisation rate, Mbit/s; None where the direction is not shaped."""
    limit_packets: int
    """Packets in flight and queued before the tail is dropped."""
    jitter_ms: float = 0.0
    """Standard deviation of the delay, ms."""
    jitter_distribution: str | None = None
    loss_percent: float = 0.0
    reorder_percent: float = 0.0

    def tc_arguments(self) -> list[str]:
        """Every netem parameter as `tc` words; all of them each time, since `replace` keeps what is not said.

        Times are given to the nanosecond and rates in bit/s, so nothing is rounded on the way.
        """
        words = ["netem", "limit", str(self.limit_packets)]
        if self.delay_ms or self.jitter_ms:
            words += ["delay", f"{self.delay_ms * 1e3:.3f}us"]
        if self.jitter_ms:
            words += [f"{self.jitter_ms * 1e3:.3f}us"]
            if self.jitter_distribution:
                words += ["distribution", self.jitter_distribution]
        if self.loss_percent:
            words += ["loss", "random", f"{self.loss_percent}%"]
        if self.reorder_percent:
            words += ["reorder", f"{self.reorder_percent}%"]
        if self.rate_mbit is not None:
            words += ["rate", f"{round(self.rate_mbit * 1e6)}bit"]
        return words


@dataclass(frozen=True, slots=True)
class Profile:
    """An access link ("access technology").

    Raises
    ------
    FieldError
        For values that contradict each other; from `load_profiles` a `LinkError` that names file, profile and key.
    """

    name: str
    rtt_ms: Amount
    """Two-way delay, ms; half of it on each direction."""
    title: str = ""
    """How figures and pages write the link; its name where nothing is given."""
    download_mbit: Rate | None = None
    """Rate towards the client, Mbit/s; None where it is not shaped."""
    upload_mbit: Rate | None = None
    """Rate towards the server, Mbit/s; None where it is not shaped."""
    queue_packets: Annotated[int, Meta(ge=1)] = _DEFAULT_LIMIT
    """Packets the bottleneck queues beyond the bandwidth-delay product."""
    jitter_ms: Amount = 0.0
    """Standard deviation of the one-way delay, ms, on each direction."""
    jitter_distribution: Literal["normal", "pareto", "paretonormal"] | None = None
    loss_percent: Percent = 0.0
    """Independent loss on each direction, percent."""
    reorder_percent: Percent = 0.0
    """Share of packets that overtake the delayed ones, percent."""
    source: str = ""
    """Where the values are from."""

    def __post_init__(self) -> None:
        if not self.title:
            object.__setattr__(self, "title", self.name)
        if self.jitter_distribution and not self.jitter_ms:
            raise FieldError("has no jitter to distribute", key="jitter_distribution", next_step="Give jitter_ms too.")
        if self.reorder_percent and not self.rtt_ms:
            raise FieldError("needs a delay to overtake", key="reorder_percent", next_step="Give an rtt_ms above 0.")

    @property
    def shaped(self) -> bool:
        """False for a link that adds nothing: it then needs no emulation at all."""
        return bool(
            self.rtt_ms
            or self.download_mbit
            or self.upload_mbit
            or self.jitter_ms
            or self.loss_percent
            or self.reorder_percent
        )

    def qdiscs(self, *, down_delay_ms: float | None = None, up_delay_ms: float | None = None) -> tuple[Qdisc, Qdisc]:
        """Downlink and uplink discipline; the delays are half the RTT unless a calibration gives others."""
        half = self.rtt_ms / 2
        return (
            self._qdisc(self.download_mbit, half if down_delay_ms is None else down_delay_ms),
            self._qdisc(self.upload_mbit, half if up_delay_ms is None else up_delay_ms),
        )

    def _qdisc(self, rate_mbit: float | None, delay_ms: float) -> Qdisc:
        # What is in flight occupies netem's queue too; its default of 1000 packets is wrong for long fat links.
        in_flight = 0 if rate_mbit is None else math.ceil(rate_mbit * 1e6 * delay_ms / 1e3 / 8 / FRAME_BYTES)
        limit = in_flight + self.queue_packets if rate_mbit is not None else 100 * _DEFAULT_LIMIT
        return Qdisc(
            delay_ms=delay_ms,
            rate_mbit=rate_mbit,
            limit_packets=limit,
            jitter_ms=self.jitter_ms,
            jitter_distribution=self.jitter_distribution,
            loss_percent=self.loss_percent,
            reorder_percent=self.reorder_percent,
        )


def find_profiles_file() -> Path:
    """The file of link profiles; `places.PlaceError` where there is none."""
    return places.find("profiles").path


def load_profiles(path: Path | None = None) -> dict[str, Profile]:
    """Read and check every profile of a file.

    Parameters
    ----------
    path
        A TOML file; the project's own `emulation/profiles.toml` by default.

    Raises
    ------
    LinkError
        Naming file, profile and key, for anything that is not a usable link.
    """
    path = path or find_profiles_file()
    tables = read_toml(path, LinkError, "Work in a checkout, or set CROSSLAYER_PROFILES to a profiles.toml.")
    return {name: _profile(table, name, f"{path}, profile '{name}'") for name, table in tables.items()}


def _profile(table: object, name: str, where: str) -> Profile:
    profile = checked(
        {"name": name, **table} if isinstance(table, dict) else table,
        Profile,
        where=where,
        error=LinkError,
        next_step="emulation/profiles.toml explains every key at its head.",
    )
    if profile.name != name:
        raise LinkError(
            f"is {profile.name!r}", where=f"{where}, key 'name'", next_step=f"Leave it out: [{name}] names it."
        )
    return profile


def rtt_alone(name: str) -> Profile | None:
    """The link with an RTT and nothing else that `name` describes, as `rtt-50` does (ms); None for other names."""
    found = _RTT_ALONE.fullmatch(name)
    if found is None or not float(found[1]):
        return None
    return Profile(name, float(found[1]), f"RTT {found[1]} ms", source="an RTT alone")


def choose(profiles: Mapping[str, Profile], name: str) -> Profile:
    """The profile of that name, or of that RTT alone.

    Raises
    ------
    LinkError
        With the names there are.
    """
    profile = profiles.get(name) or rtt_alone(name)
    if profile is None:
        raise LinkError(
            f"there is no link profile '{name}'",
            next_step=f"Choose one of: {', '.join(profiles)}; or an RTT alone in ms, like rtt-50.",
        )
    return profile
