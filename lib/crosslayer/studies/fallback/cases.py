"""Cases of the study: what the path blocks, what announces HTTP/3, and which visit is measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from crosslayer.vocabulary import Browser

FIRST: Final = "first"
SECOND: Final = "second"
RETURN: Final = "return"
Visit = Literal["first", "second", "return"]
QueryType = Literal["A", "AAAA", "HTTPS"]
SECTIONS: Final[Mapping[str, str]] = {
    "first": "First visit",
    "first-ipv6": "First visit, host with IPv4 and IPv6",
    "second": "Second visit, same path",
    "return": "Return after a visit on a good path",
}
"""Titles of the kinds of visit."""
LATE_MS: Final = 600
"""Delay of a late DNS answer, ms.

It is longer than every client's resolution delay, but so short that no client repeats its lookup before the answer.
"""
PUBLIC = "{public}"
"""Placeholder in the text of a fault; it stands for the public name of the page's ECH key."""


@dataclass(frozen=True, slots=True)
class Case:
    """A case. It becomes a condition of the study together with a client."""

    about: str
    """Text that names the fault."""
    visit: Visit
    """`first`: no earlier visit. `second`: after a visit with these faults. `return`: after a visit without faults."""
    faults: tuple[str, ...] = ()
    """Faults of the path to the page's host, see `path_faults`."""
    record: Literal["none", "h3", "h3-ech", "h3-hints"] = "h3"
    """HTTPS record of the host. `h3-ech`: with ECH key. `h3-hints`: with address hints. `none`: Alt-Svc instead."""
    ipv6: bool = False
    """Whether the host has an IPv6 address too."""
    late: tuple[QueryType, ...] = ()
    """Query types. The resolver delays its answers to queries of these types for the host by `LATE_MS`."""
    pause_s: float = 1.0
    """Pause between the earlier visit and the measured one, s.

    In 1 s, the packets that close the connections of the earlier visit arrive.
    """
    of_resolver: bool = False
    """Whether the faults are on the path to the resolver instead of the host."""

    private: bool = False
    """Whether the host has a private address (RFC 1918)."""

    @property
    def section(self) -> str:
        """Name of the kind of visit, see `SECTIONS`."""
        return "first-ipv6" if self.ipv6 else self.visit

    @property
    def label(self) -> str:
        """Label in figures: the text `about`. If the host has no HTTPS record, a word in brackets follows.

        It is HTTP/2 on a first visit and Alt-Svc on a later visit.
        """
        if self.record != "none":
            return self.about
        return f"{self.about} (HTTP/2)" if self.visit == FIRST else f"{self.about} (Alt-Svc)"

    @property
    def for_curl(self) -> bool:
        """Whether curl can measure the case. curl requests no HTTPS record, and keeps only Alt-Svc from earlier visits.

        On a first visit, the option `--http3` replaces a plain HTTPS record.
        """
        later = self.visit != FIRST and self.record == "none"
        return later or (self.visit == FIRST and self.record in ("none", "h3") and "HTTPS" not in self.late)


_DROPPED, _REJECTED = ("drop udp/443",), ("reject udp/443",)
_NO_IPV6, _REJECTED_IPV6 = ("drop ipv6",), ("reject ipv6",)

CASES: Final[Mapping[str, Case]] = {
    "first": Case("nothing blocked", FIRST),
    "first-udp-dropped": Case("UDP 443 dropped", FIRST, _DROPPED),
    "first-udp-rejected": Case("UDP 443 rejected", FIRST, _REJECTED),
    "first-private-udp-dropped": Case("UDP 443 dropped, private address", FIRST, _DROPPED, private=True),
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
    "first-ipv6": Case("IPv6: nothing blocked", FIRST, ipv6=True),
    "first-ipv6-dropped": Case("IPv6 dropped", FIRST, _NO_IPV6, ipv6=True),
    "first-ipv6-rejected": Case("IPv6 rejected", FIRST, _REJECTED_IPV6, ipv6=True),
    "first-ipv6-udp-dropped": Case("UDP 443 dropped in both families", FIRST, _DROPPED, ipv6=True),
    "first-ipv6-late-a": Case("A answer late", FIRST, ipv6=True, late=("A",)),
    "first-ipv6-late-aaaa": Case("AAAA answer late", FIRST, ipv6=True, late=("AAAA",)),
    "first-ipv6-late-https": Case("HTTPS answer late", FIRST, ipv6=True, late=("HTTPS",)),
    "first-ipv6-late-hints": Case(
        "A and AAAA answers late, hints at once", FIRST, record="h3-hints", ipv6=True, late=("A", "AAAA")
    ),
    "first-ipv6-no-record": Case("IPv6: nothing blocked", FIRST, record="none", ipv6=True),
    "first-ipv6-no-record-dropped": Case("IPv6 dropped", FIRST, _NO_IPV6, "none", ipv6=True),
    "first-ipv6-no-record-rejected": Case("IPv6 rejected", FIRST, _REJECTED_IPV6, "none", ipv6=True),
    "first-ipv6-no-record-late-a": Case("A answer late", FIRST, record="none", ipv6=True, late=("A",)),
    "first-ipv6-no-record-late-aaaa": Case("AAAA answer late", FIRST, record="none", ipv6=True, late=("AAAA",)),
    "second-udp-dropped": Case("UDP 443 dropped", SECOND, _DROPPED),
    "second-later-udp-dropped": Case("UDP 443 dropped, 20 s later", SECOND, _DROPPED, pause_s=20.0),
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
"""Cases by name. The column `condition` has this name."""

IN_EVERY_ROUND: Final[Mapping[Browser, tuple[str, ...]]] = {
    Browser.CHROMIUM: (
        "first",
        "first-udp-dropped",
        "first-udp-rejected",
        "first-ipv6-no-record-dropped",
        "first-ipv6-no-record-late-a",
        "first-ipv6-no-record-late-aaaa",
        "second-udp-dropped",
        "second-udp-rejected",
        "return",
        "return-udp-dropped",
        "return-udp-rejected",
        "return-0-rtt-dropped",
    ),
    Browser.FIREFOX: (
        "first-udp-dropped",
        "first-udp-rejected",
        "first-ipv6-no-record-dropped",
        "first-ipv6-no-record-late-a",
        "first-ipv6-no-record-late-aaaa",
        "return-udp-dropped",
        "return-alt-svc-udp-dropped",
    ),
    Browser.FIREFOX_HAPPY_EYEBALLS: (
        "first-udp-dropped",
        "first-ipv6-no-record-late-a",
        "first-ipv6-no-record-late-aaaa",
    ),
    Browser.CURL: tuple(name for name, case in CASES.items() if case.for_curl),
}
"""Cases that every round measures, by client: those that claims need, and all cases of curl, which take little time."""
