"""The words that rows are told apart by, for those who measure and those who analyse: a new one is one member here."""

from __future__ import annotations

from enum import StrEnum


class Protocol(StrEnum):
    """DNS transport."""

    DOUDP = "DoUDP"
    DOTCP = "DoTCP"
    DOT = "DoT"
    DOH = "DoH"
    DOH3 = "DoH3"
    DOQ = "DoQ"


class Resumption(StrEnum):
    """How much of an earlier session a new connection may use."""

    NONE = "none"
    """Full handshake, without ticket and without address-validation token."""
    TICKET = "ticket"
    """PSK from a session ticket; the query waits for the handshake."""
    EARLY_DATA = "early-data"
    """PSK from a session ticket; the query leaves with the first flight (0-RTT)."""


class Http3(StrEnum):
    """How the HTTP/3 handshake of a page load was meant to be; the evidence is in `early_data_accepted`."""

    ONE_RTT = "1-rtt"
    ZERO_RTT = "0-rtt"


class Way(StrEnum):
    """Which way packets cross the link."""

    UP = "up"
    """To the server."""
    DOWN = "down"
    """To the client."""


class Clock(StrEnum):
    """By which clock was measured."""

    WALL = "wall"
    """The machine's."""
    VIRTUAL = "virtual"
    """A guest's that stands still while anything computes."""


class Browser(StrEnum):
    """In which a page is loaded."""

    CHROMIUM = "chromium"
    FIREFOX = "firefox"


class Coupling(StrEnum):
    """Who resolves the host names of a page."""

    DECOUPLED = "decoupled"
    """The browser is told the addresses."""
    COUPLED = "coupled"
    """The browser resolves by itself."""


class Connection(StrEnum):
    """What a paced query is sent on."""

    KEPT = "kept"
    NEW = "new"
    """Closed after every query."""
    ZERO_RTT = "0-rtt"
    """Closed after every query, and the query is early data."""


class Keeper(StrEnum):
    """Who asks the server, on a connection that it keeps."""

    STUB = "stub"
    """Our forwarder: of a connection that has rested it doubts the path."""
    PATIENT_STUB = "patient-stub"
    """The same, told to doubt none (`--rested-after 0`)."""
    DNSPROXY = "dnsproxy"
    """AdGuard's forwarder."""
    LIBRARY = "library"
    """A program with a client of `crosslayer.dns`, which waits 5 s for an answer and then makes a new connection."""
    CHROMIUM = "chromium"
    """The browser's own DoH, and nobody else (secure mode)."""


class Mishap(StrEnum):
    """What befell a connection while it rested."""

    NOTHING = "nothing"
    FORGOTTEN = "forgotten"
    """The path drops its packets, as a NAT or firewall that has forgotten it; new connections pass."""
    MOVED = "moved"
    """The client has another address; the one before is gone."""
    RESTARTED = "restarted"
    """The server was killed and started again; it knows neither connections nor tickets."""


class Sharing(StrEnum):
    """Which connection a page is loaded on."""

    SEPARATE = "separate"
    """One of its own, after its name was resolved."""
    SHARED = "shared"
    """The one its name is resolved on."""
