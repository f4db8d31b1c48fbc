"""Link profiles: what an access link is, read from `emulation/profiles.toml` and validated.

A profile becomes two queueing disciplines, one per direction, in the terms of `sch_netem`. Both
backends of the testbed apply the same description. No network and no clock here.
"""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path

from crosslayer import places
from crosslayer.errors import CrosslayerError

FRAME_BYTES = 1514
"""A full Ethernet frame as netem counts it: 1500 bytes of IP and the 14-byte header."""

DISTRIBUTIONS = ("normal", "pareto", "paretonormal")

_DEFAULT_LIMIT = 1000


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
    LinkError
        From `load_profiles`, naming file, profile and key.
    """

    name: str
    rtt_ms: float
    """Two-way delay, ms; half of it on each direction."""
    title: str
    download_mbit: float | None = None
    """Rate towards the client, Mbit/s; None where it is not shaped."""
    upload_mbit: float | None = None
    """Rate towards the server, Mbit/s; None where it is not shaped."""
    queue_packets: int = _DEFAULT_LIMIT
    """Packets the bottleneck queues beyond the bandwidth-delay product."""
    jitter_ms: float = 0.0
    """Standard deviation of the one-way delay, ms, on each direction."""
    jitter_distribution: str | None = None
    loss_percent: float = 0.0
    """Independent loss on each direction, percent."""
    reorder_percent: float = 0.0
    """Share of packets that overtake the delayed ones, percent."""
    source: str = ""

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


_NUMBERS = {f.name for f in fields(Profile)} - {"name", "title", "source", "jitter_distribution"}
_TEXTS = {"title", "source", "jitter_distribution"}
_PERCENT = {"loss_percent", "reorder_percent"}
_POSITIVE = {"download_mbit", "upload_mbit"}


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
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise LinkError(
            f"cannot be read ({error.strerror})",
            where=str(path),
            next_step="Work in a checkout, or set CROSSLAYER_PROFILES to a profiles.toml.",
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise LinkError(f"is not TOML: {error}", where=str(path), next_step="Mend that line.") from error
    return {name: _profile(path, name, table) for name, table in tables.items()}


def choose(profiles: dict[str, Profile], name: str) -> Profile:
    """The profile of that name, or a `LinkError` that lists the names there are."""
    try:
        return profiles[name]
    except KeyError:
        raise LinkError(
            f"there is no link profile '{name}'", next_step=f"Choose one of: {', '.join(profiles)}."
        ) from None


def _profile(path: Path, name: str, table: object) -> Profile:
    def fail(key: str, what: str, next_step: str) -> LinkError:
        return LinkError(
            what, where=f"{path}, profile '{name}', key '{key}'" if key else f"{path}, '{name}'", next_step=next_step
        )

    if not isinstance(table, dict):
        raise fail("", "is not a table", f"Write [{name}] above the profile's keys.")
    allowed = {f.name for f in fields(Profile)} - {"name"}
    values: dict[str, object] = {}
    for key, value in table.items():
        if key not in allowed:
            raise fail(key, "is not a key of a link profile", f"Keys are: {', '.join(sorted(allowed))}.")
        if key in _NUMBERS:
            values[key] = _number(fail, key, value)
        elif not isinstance(value, str):
            raise fail(key, f"must be text, is {value!r}", "Put it in quotes.")
        else:
            values[key] = value
    if "rtt_ms" not in values:
        raise fail("rtt_ms", "is missing", "Every profile needs its RTT in ms.")
    distribution = values.get("jitter_distribution")
    if distribution is not None and distribution not in DISTRIBUTIONS:
        raise fail("jitter_distribution", f"is {distribution!r}", f"Choose one of: {', '.join(DISTRIBUTIONS)}.")
    if distribution is not None and not values.get("jitter_ms"):
        raise fail("jitter_distribution", "has no jitter to distribute", "Give jitter_ms too.")
    if values.get("reorder_percent") and not values["rtt_ms"]:
        raise fail("reorder_percent", "needs a delay to overtake", "Give an rtt_ms above 0.")
    values.setdefault("title", name)
    return Profile(name=name, **values)  # type: ignore[arg-type]


def _number(fail, key: str, value: object) -> float | int:  # type: ignore[no-untyped-def]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise fail(key, f"must be a number, is {value!r}", "Write it without quotes or unit.")
    if key in _POSITIVE and value <= 0:
        raise fail(key, f"must be above 0, is {value}", "Leave the key out where the direction is not shaped.")
    if value < 0:
        raise fail(key, f"must not be negative, is {value}", "Give it as a positive number.")
    if key in _PERCENT and value > 100:
        raise fail(key, f"must be at most 100, is {value}", "It is a percentage.")
    if key == "queue_packets":
        if not isinstance(value, int) or value < 1:
            raise fail(key, f"must be a whole number of at least 1, is {value}", "It is a count of packets.")
        return value
    return float(value)
