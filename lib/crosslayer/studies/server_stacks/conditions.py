"""Conditions of the study by name, and the comparisons of visits that its answer uses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from crosslayer.vocabulary import Http3, Protocol, Resumption, Sharing

NAME, FIRST_BYTE, DOCUMENT = "name", "first byte", "document"
"""Events at which a time ends: the answer for the name, the response's header, the document's last byte."""

_FULL, _EARLY = Resumption.NONE, Resumption.EARLY_DATA
_ONE, _ZERO = Http3.ONE_RTT, Http3.ZERO_RTT
_STATES = {Resumption.NONE: "", Resumption.TICKET: " resumed", Resumption.EARLY_DATA: " 0-RTT"}
_EXTRAS = {
    "main": "",
    "no-token": ", no token",
    "settings": ", SETTINGS waited for",
    "at-once": ", page at once",
    "at-once-no-token": ", page at once, no token",
}


@dataclass(frozen=True, slots=True)
class ServerVisit:
    """A way to resolve a name and load its page.

    Each field has the value of the column of the same name in `resolved_loads`.
    """

    protocol: Protocol
    resumption: Resumption = _FULL
    connections: Sharing = Sharing.SEPARATE
    h3: Http3 = _ONE
    condition: str = "main"

    @property
    def name(self) -> str:
        """Name of the visit in figures."""
        lookup = f"{self.protocol}{_STATES[self.resumption]}"
        if self.connections is Sharing.SHARED:
            return f"{lookup} and page on one connection{_EXTRAS[self.condition]}"
        return f"{lookup}, then H3 {self.h3.upper()}{_EXTRAS[self.condition]}"


def _visits() -> Iterator[ServerVisit]:
    lookups = [(Protocol.DOUDP, _FULL), *product((Protocol.DOQ, Protocol.DOH3), (_FULL, _EARLY))]
    for protocol, resumption in lookups:
        for h3, condition in ((_ONE, "main"), (_ZERO, "main"), (_ZERO, "no-token")):
            yield ServerVisit(protocol, resumption, h3=h3, condition=condition)
    for h3 in Http3:
        yield ServerVisit(Protocol.DOUDP, h3=h3, condition="settings")
    for condition in ("main", "at-once", "settings"):
        yield shared(_FULL, condition)
    for condition in _EXTRAS:
        yield shared(_EARLY, condition)


def shared(resumption: Resumption, condition: str = "main") -> ServerVisit:
    """Visit in which one connection carries name and page; with `EARLY_DATA`, this connection is resumed."""
    return ServerVisit(Protocol.DOH3, resumption, Sharing.SHARED, _ZERO if resumption is _EARLY else _ONE, condition)


VISITS = {visit.name: visit for visit in _visits()}
"""Visits by name: the modes of the study `one-connection`."""

EXCHANGES = {
    f"exchange over {protocol}{_STATES[resumption]}": (protocol, resumption)
    for protocol in (Protocol.DOUDP, Protocol.DOQ, Protocol.DOH3)
    for resumption in protocol.transport.resumptions
}
"""DNS exchanges by name, each with transport and resumption."""

LOADS = {
    "H3 1-RTT in Chromium": (_ONE, "main"),
    "H3 0-RTT in Chromium": (_ZERO, "main"),
    "H3 0-RTT in Chromium, no token": (_ZERO, "no-token"),
}
"""Loads in Chromium by name, each with handshake and condition."""


@dataclass(frozen=True, slots=True)
class VisitComparison:
    """A comparison of two visits: time until the document of `visit` is complete, minus that of `other`."""

    name: str
    visit: ServerVisit
    other: ServerVisit


_PLAIN, _PLAIN_BACK = ServerVisit(Protocol.DOUDP), ServerVisit(Protocol.DOUDP, h3=_ZERO)
ANSWER = (
    VisitComparison("first visit: DoQ over plain DNS", ServerVisit(Protocol.DOQ), _PLAIN),
    VisitComparison("first visit: DoH3 over plain DNS", ServerVisit(Protocol.DOH3), _PLAIN),
    VisitComparison("first visit: one connection over plain DNS", shared(_FULL), _PLAIN),
    VisitComparison("first visit: one connection over DoQ", shared(_FULL), ServerVisit(Protocol.DOQ)),
    VisitComparison("returning: DoQ 0-RTT over plain DNS", ServerVisit(Protocol.DOQ, _EARLY, h3=_ZERO), _PLAIN_BACK),
    VisitComparison("returning: DoH3 0-RTT over plain DNS", ServerVisit(Protocol.DOH3, _EARLY, h3=_ZERO), _PLAIN_BACK),
    VisitComparison("returning: one connection over plain DNS", shared(_EARLY), _PLAIN_BACK),
    VisitComparison(
        "returning: no token over a token", ServerVisit(Protocol.DOUDP, h3=_ZERO, condition="no-token"), _PLAIN_BACK
    ),
)
"""Comparisons for the study's answer: time that a transport costs, and time that one connection or the token saves."""
