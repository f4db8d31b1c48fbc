"""Vocabulary of the rows, shared by measurement and analysis: each enumeration lists the values of a column."""

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
    """Intended HTTP/3 handshake of a page load; the evidence is in the column `early_data_accepted`."""

    ONE_RTT = "1-rtt"
    ZERO_RTT = "0-rtt"


class Way(StrEnum):
    """Direction in which packets cross the link."""

    UP = "up"
    """To the server."""
    DOWN = "down"
    """To the client."""


class Clock(StrEnum):
    """Clock of a measurement."""

    WALL = "wall"
    """Real time: the machine's clock."""
    VIRTUAL = "virtual"
    """Virtual time: the clock of a guest, which stands still while any process computes."""


class Browser(StrEnum):
    """Browser that loads a page."""

    CHROMIUM = "chromium"
    FIREFOX = "firefox"


class Coupling(StrEnum):
    """Who resolves the host names of a page."""

    DECOUPLED = "decoupled"
    """The browser receives the addresses from crosslayer."""
    COUPLED = "coupled"
    """The browser resolves the names itself."""


class Connection(StrEnum):
    """Connection that a paced query is sent on."""

    KEPT = "kept"
    NEW = "new"
    """A new connection for each query, closed afterwards."""
    ZERO_RTT = "0-rtt"
    """A new connection for each query, closed afterwards; the query is early data."""


class Keeper(StrEnum):
    """Kind of client that keeps a connection to the server."""

    STUB = "stub"
    """The Go stub, which probes the path of an idle connection before it reuses it."""
    PATIENT_STUB = "patient-stub"
    """The same, without that probe (`--rested-after 0`)."""
    DNSPROXY = "dnsproxy"
    """AdGuard's forwarder."""
    LIBRARY = "library"
    """A program with a client of `crosslayer.dns`: it waits 5 s for an answer, then makes a new connection."""
    CHROMIUM = "chromium"
    """Chromium's own DoH in secure mode, without any other resolver."""


class Mishap(StrEnum):
    """Event on the path or at the server while a connection was idle."""

    NOTHING = "nothing"
    FORGOTTEN = "forgotten"
    """The path drops the connection's packets, as a NAT with an expired mapping does; new connections pass."""
    MOVED = "moved"
    """The client has a new address; the old one is removed."""
    RESTARTED = "restarted"
    """The server was killed and started again; it has no state of earlier connections or tickets."""


class Sharing(StrEnum):
    """Which connection a page is loaded on."""

    SEPARATE = "separate"
    """A connection of its own, opened after its name is resolved."""
    SHARED = "shared"
    """The connection on which its name is resolved."""
