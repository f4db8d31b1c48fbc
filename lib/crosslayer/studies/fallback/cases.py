"""Cases of the study: what the path blocks, what announces HTTP/3, and which visit is measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

FIRST: Final = "first"
SECOND: Final = "second"
RETURN: Final = "return"
Visit = Literal["first", "second", "return"]
PUBLIC = "{public}"
"""Stands for the public name of the page's ECH key."""


@dataclass(frozen=True, slots=True)
class Case:
    """One condition."""

    about: str
    """The fault, for readers."""
    visit: Visit
    """`first`: the browser knows nothing. `second`: it loaded the page on the same path. `return`: on a good path."""
    faults: tuple[str, ...] = ()
    """Faults of the path to the page's host, see `path_faults`."""
    record: Literal["none", "h3", "h3-ech"] = "h3"
    """HTTPS record of the host; without one, only Alt-Svc announces HTTP/3."""
    of_resolver: bool = False
    """Whether the faults are those of the path to the resolver instead."""


_DROPPED, _REJECTED = ("drop udp/443",), ("reject udp/443",)

CASES: Final[Mapping[str, Case]] = {
    "first": Case("nothing blocked", FIRST),
    "first-udp-dropped": Case("UDP 443 dropped", FIRST, _DROPPED),
    "first-udp-rejected": Case("UDP 443 rejected", FIRST, _REJECTED),
    "first-initial-dropped": Case("Initials of 1,200 bytes dropped", FIRST, ("drop quic-initial:1200",)),
    "first-version-dropped": Case("QUIC v1 dropped", FIRST, ("drop quic-version:1",)),
    "first-syn-dropped": Case("TCP SYN dropped", FIRST, ("drop syn/443",)),
    "first-both-dropped": Case("UDP 443 and TCP SYN dropped", FIRST, ("drop udp/443", "drop syn/443")),
    "first-ech-dropped": Case(
        "UDP 443 and hello with ECH dropped", FIRST, ("drop udp/443", f"drop ech:{PUBLIC}"), "h3-ech"
    ),
    "first-ech-rejected": Case(
        "UDP 443 dropped, hello with ECH reset", FIRST, ("drop udp/443", f"reject ech:{PUBLIC}"), "h3-ech"
    ),
    "first-dns-dropped": Case("DNS dropped", FIRST, ("drop udp/53", "drop tcp/53"), of_resolver=True),
    "first-dns-truncated": Case("DNS truncated", FIRST, ("truncate udp/53",), of_resolver=True),
    "first-no-record": Case("nothing blocked", FIRST, record="none"),
    "first-no-record-udp-dropped": Case("UDP 443 dropped", FIRST, _DROPPED, "none"),
    "second-udp-dropped": Case("UDP 443 dropped", SECOND, _DROPPED),
    "second-udp-rejected": Case("UDP 443 rejected", SECOND, _REJECTED),
    "second-alt-svc-udp-dropped": Case("UDP 443 dropped", SECOND, _DROPPED, "none"),
    "return": Case("nothing blocked", RETURN),
    "return-udp-dropped": Case("UDP 443 dropped", RETURN, _DROPPED),
    "return-udp-rejected": Case("UDP 443 rejected", RETURN, _REJECTED),
    "return-0-rtt-dropped": Case("0-RTT packets dropped", RETURN, ("drop quic-0rtt",)),
    "return-alt-svc": Case("nothing blocked", RETURN, record="none"),
    "return-alt-svc-udp-dropped": Case("UDP 443 dropped", RETURN, _DROPPED, "none"),
    "return-alt-svc-udp-rejected": Case("UDP 443 rejected", RETURN, _REJECTED, "none"),
}
"""By name, which is the column `condition`."""
