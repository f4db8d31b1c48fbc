"""Modes: ways in which a client resolves a name and loads its page, and the round-trips that each needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from crosslayer.vocabulary import Http3, Protocol, Resumption, Sharing

MAIN, NO_TOKEN, AT_ONCE, AT_ONCE_NO_TOKEN, SETTINGS = "main", "no-token", "at-once", "at-once-no-token", "settings"
WITHOUT_TOKEN = (NO_TOKEN, AT_ONCE_NO_TOKEN)

_FULL, _EARLY = Resumption.NONE, Resumption.EARLY_DATA
_EXTRAS = {
    MAIN: "",
    NO_TOKEN: ", no token",
    AT_ONCE: ", page at once",
    AT_ONCE_NO_TOKEN: ", page at once, no token",
    SETTINGS: ", SETTINGS waited for",
}


@dataclass(frozen=True, slots=True)
class Mode:
    """A way to resolve a name and load its page.

    Each field has the value of the column of the same name in `resolved_loads`.
    """

    protocol: Protocol
    resumption: Resumption = _FULL
    connections: Sharing = Sharing.SEPARATE
    h3: Http3 = Http3.ONE_RTT
    condition: str = MAIN

    @property
    def columns(self) -> dict[str, Any]:
        """Columns of `resolved_loads` with the values that identify this mode."""
        return {name: str(getattr(self, name)) for name in self.__dataclass_fields__}

    @property
    def name(self) -> str:
        """Name of the mode in figures."""
        resolving = f"{self.protocol} 0-RTT" if self.resumption is _EARLY else str(self.protocol)
        if self.connections is Sharing.SHARED:
            return f"{resolving} and page on one connection{_EXTRAS[self.condition]}"
        return f"{resolving}, then H3 {self.h3.upper()}{_EXTRAS[self.condition]}"

    @property
    def at_once(self) -> bool:
        """Whether the client requests the document at the same time as it queries the name."""
        return self.condition in (AT_ONCE, AT_ONCE_NO_TOKEN)

    @property
    def token(self) -> bool:
        """Whether a resumed connection uses the address-validation token of the earlier one."""
        return self.condition not in WITHOUT_TOKEN

    @property
    def waits_for_settings(self) -> bool:
        """Whether the client waits for the server's SETTINGS before any request on the page's connection."""
        return self.condition == SETTINGS

    @property
    def query_early(self) -> bool:
        """Whether the query leaves as early data, in the first flight of its QUIC connection."""
        waits = self.connections is Sharing.SHARED and self.waits_for_settings
        return self.resumption is _EARLY and not waits

    @property
    def request_early(self) -> bool:
        """Whether the request for the document leaves with the first flight of its connection."""
        if self.connections is Sharing.SHARED:
            return self.query_early and self.at_once
        return self.resumed and not self.waits_for_settings

    @property
    def resumed(self) -> bool:
        """Whether the page's connection resumes an earlier session."""
        return self.h3 is Http3.ZERO_RTT

    @property
    def name_round_trips(self) -> int:
        """Round-trips until the answer for the name."""
        return 1 if self.protocol is Protocol.DOUDP or self.query_early else 2

    @property
    def page_round_trips(self) -> int:
        """Round-trips until the first byte of the document."""
        if self.at_once:
            return self.name_round_trips
        own_handshake = self.connections is Sharing.SEPARATE and not self.request_early
        return self.name_round_trips + 1 + own_handshake


_RESOLVING = (
    (Protocol.DOUDP, _FULL),
    (Protocol.DOQ, _FULL),
    (Protocol.DOH3, _FULL),
    (Protocol.DOQ, _EARLY),
    (Protocol.DOH3, _EARLY),
)
_LOADING = (
    (Http3.ONE_RTT, MAIN),
    (Http3.ZERO_RTT, MAIN),
    (Http3.ZERO_RTT, NO_TOKEN),
)


def shared(resumption: Resumption, condition: str = MAIN) -> Mode:
    """Mode in which one connection carries name and page; with `EARLY_DATA`, this connection is resumed."""
    h3 = Http3.ZERO_RTT if resumption is _EARLY else Http3.ONE_RTT
    return Mode(Protocol.DOH3, resumption, Sharing.SHARED, h3, condition)


BASELINE = Mode(Protocol.DOUDP)
"""Mode of most visits today: unencrypted DNS, then HTTP/3 with a full handshake."""
FIRST_VISIT = shared(_FULL)
RETURNING = shared(_EARLY)

_ALL = (
    *(Mode(dns, how, Sharing.SEPARATE, h3, condition) for dns, how in _RESOLVING for h3, condition in _LOADING),
    *(Mode(Protocol.DOUDP, h3=h3, condition=SETTINGS) for h3 in Http3),
    *(shared(_FULL, condition) for condition in (MAIN, AT_ONCE, SETTINGS)),
    *(shared(_EARLY, condition) for condition in _EXTRAS),
)
MODES = {mode.name: mode for mode in _ALL}
"""Modes by name."""
