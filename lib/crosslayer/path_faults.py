"""Faults of a path that blocks packets: parse and check their notation.

A fault has an action, a selector of packets and, after `@`, the time from which it applies:
`drop udp/443`, `reject udp/443`, `drop quic-initial:1250@2s`. docs/howto/faults.md explains all actions and selectors.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal

from crosslayer.decode import FieldError

Action = Literal["drop", "reject", "truncate"]
Selector = Literal["udp", "tcp", "syn", "quic-initial", "quic-0rtt", "quic-version", "ech", "ipv6"]

ACTIONS: Final = ("drop", "reject", "truncate")
SELECTORS: Final = (
    "udp/PORT, tcp/PORT, syn/PORT, quic-initial[:BYTES], quic-0rtt, quic-version:NUMBER, ech[:NAME] or ipv6"
)
_FAULT = re.compile(
    r"(?P<action>drop|reject|truncate) "
    r"(?:(?P<transport>udp|tcp|syn)/(?P<port>\d{1,5})"
    r"|(?P<initial>quic-initial)(?::(?P<bytes>\d{1,5}))?"
    r"|(?P<early>quic-0rtt)"
    r"|(?P<by_version>quic-version):(?P<version>\d+|0x[0-9a-f]{1,8})"
    r"|(?P<ech>ech)(?::(?P<name>[a-z0-9.-]+))?"
    r"|(?P<ipv6>ipv6))"
    r"(?:@(?P<after>\d+(?:\.\d+)?)s)?"
)
_QUIC_V2 = 0x6B3343CF


@dataclass(frozen=True, slots=True, kw_only=True)
class PathFault:
    """Packets that a path does not forward, and the reaction of the path to them."""

    action: Action
    """Reaction of the path: `drop`, `reject` or `truncate`.

    `drop`: none. `reject`: for UDP, ICMP "port unreachable"; for TCP, a reset; for the selector `ipv6`, ICMPv6 "no
    route to destination". `truncate`: a DNS answer with TC.
    """
    selector: Selector
    port: int | None = None
    """Port at the server; None for selectors without a port."""
    least_bytes: int = 0
    """Minimum UDP payload of the selected QUIC Initials, bytes."""
    version: int | None = None
    """QUIC version in the long header of the selected packets."""
    name: str = ""
    """Cleartext (outer) server name of the selected ClientHellos with ECH; empty for any name."""
    after_s: float = 0.0
    """Time at which the fault starts, seconds.

    It counts from the start of the command, or in a campaign from the start of each observation, e.g. a page load.
    """

    def __str__(self) -> str:
        match self.selector:
            case "udp" | "tcp" | "syn":
                selected = f"{self.selector}/{self.port}"
            case "quic-initial":
                selected = f"quic-initial:{self.least_bytes}" if self.least_bytes else "quic-initial"
            case "quic-version":
                selected = f"quic-version:0x{self.version:08x}"
            case "ech":
                selected = f"ech:{self.name}" if self.name else "ech"
            case _:
                selected = self.selector
        return f"{self.action} {selected}" + (f"@{self.after_s:g}s" if self.after_s else "")

    def command(self, addresses: Iterable[str] = ()) -> dict[str, Any]:
        """The fault as a rule for `testbed/middlebox.py`.

        `addresses` are the server addresses to which the rule applies; if empty, it applies to all addresses.
        """
        return {
            "action": self.action,
            "selector": self.selector,
            "port": self.port,
            "least_bytes": self.least_bytes,
            "version": self.version,
            "name": self.name,
            "after_ns": round(self.after_s * 1e9),
            "addresses": list(addresses),
        }


def parse_fault(text: str, key: str = "faults") -> PathFault:
    """Parse the notation of a fault.

    Raises
    ------
    FieldError
        If the text is not a fault, or its selector does not allow the action. The error names `key`.
    """
    match = _FAULT.fullmatch(text)
    if match is None:
        raise FieldError(
            f"has {text!r}, which is not a fault of a path",
            key=key,
            next_step=f"Write {', '.join(ACTIONS[:-1])} or {ACTIONS[-1]}, then {SELECTORS}, then @2s for a moment.",
        )
    part = match.groupdict()
    selector = (
        part["transport"] or part["initial"] or part["early"] or part["by_version"] or part["ech"] or part["ipv6"]
    )
    port = None if part["port"] is None else int(part["port"])
    if port is not None and not 0 < port < 65536:
        raise FieldError(f"has port {port}", key=key, next_step="Ports are 1 to 65535.")
    if part["action"] == "truncate" and (selector, port) != ("udp", 53):
        raise FieldError(f"has {text!r}", key=key, next_step="Only DNS over UDP is truncated: truncate udp/53.")
    version = None if part["version"] is None else int(part["version"], 0)
    return PathFault(
        action=part["action"],  # type: ignore[arg-type]
        selector=selector,  # type: ignore[arg-type]
        port=port,
        least_bytes=int(part["bytes"] or 0),
        version=_QUIC_V2 if version == 2 else version,
        name=part["name"] or "",
        after_s=float(part["after"] or 0),
    )
