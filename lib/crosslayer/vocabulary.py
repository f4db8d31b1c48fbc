"""Values of the columns of a dataset, shared by measurement and analysis: one enumeration per column."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Resumption(StrEnum):
    """What a new connection uses of an earlier session."""

    NONE = "none"
    """Full handshake, without ticket and without address-validation token."""
    TICKET = "ticket"
    """PSK from a session ticket; the query waits for the handshake."""
    EARLY_DATA = "early-data"
    """PSK from a session ticket; the query is sent in the first flight (0-RTT)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transport:
    """Properties of a DNS transport."""

    port: int
    """Default port."""
    alpn: str = ""
    """Application protocol that TLS handshakes of this transport negotiate by ALPN; empty without ALPN."""
    resumptions: tuple[Resumption, ...]
    """States of resumption that the project's clients can measure."""
    encrypted: bool
    """Whether clients verify a certificate and pad their queries."""
    over_quic: bool = False
    over_http: bool = False
    """Whether DNS messages are sent over HTTP, so that the resolver's URL has a path."""
    round_trips: int
    """Minimum number of round-trips of a lookup on a new connection, with TLS 1.3 (if encrypted) and no early data."""
    url_scheme: str
    """URL scheme of an upstream in the stub and in AdGuard's dnsproxy."""
    connection_packets: int
    """Packets that `crosslayer discover` reserves for a connection; without loss, a connection sends fewer."""


# Neither Python's ssl nor Go's crypto/tls supports early data over TCP, so DoT and DoH lack this condition.
_TLS_OVER_TCP = (Resumption.NONE, Resumption.TICKET)


class Protocol(StrEnum):
    """DNS transport."""

    DOUDP = "DoUDP"
    DOTCP = "DoTCP"
    DOT = "DoT"
    DOH = "DoH"
    DOH3 = "DoH3"
    DOQ = "DoQ"

    @property
    def transport(self) -> Transport:
        """Properties of the transport."""
        return _TRANSPORTS[self]


_TRANSPORTS = {
    Protocol.DOUDP: Transport(
        port=53,
        resumptions=(Resumption.NONE,),
        encrypted=False,
        round_trips=1,
        url_scheme="udp",
        connection_packets=2,
    ),
    Protocol.DOTCP: Transport(
        port=53,
        resumptions=(Resumption.NONE,),
        encrypted=False,
        round_trips=2,
        url_scheme="tcp",
        connection_packets=8,
    ),
    Protocol.DOT: Transport(
        port=853,
        resumptions=_TLS_OVER_TCP,
        encrypted=True,
        round_trips=3,
        url_scheme="tls",
        connection_packets=20,
    ),
    Protocol.DOH: Transport(
        port=443,
        alpn="h2",
        resumptions=_TLS_OVER_TCP,
        encrypted=True,
        over_http=True,
        round_trips=3,
        url_scheme="https",
        connection_packets=20,
    ),
    Protocol.DOH3: Transport(
        port=443,
        alpn="h3",
        resumptions=tuple(Resumption),
        encrypted=True,
        over_quic=True,
        over_http=True,
        round_trips=2,
        url_scheme="h3",
        connection_packets=10,
    ),
    Protocol.DOQ: Transport(
        port=853,
        alpn="doq",
        resumptions=tuple(Resumption),
        encrypted=True,
        over_quic=True,
        round_trips=2,
        url_scheme="quic",
        connection_packets=10,
    ),
}


class Http3(StrEnum):
    """HTTP/3 handshake that a page load is meant to use; the column `early_data_accepted` shows which one it used."""

    ONE_RTT = "1-rtt"
    ZERO_RTT = "0-rtt"


class Role(StrEnum):
    """Function of an observation in its round."""

    MEASURED = "measured"
    """A result of the study."""
    PRIMING = "priming"
    """An observation that prepares the next one; it is never analysed.

    It fetches the ticket and token that the next observation uses, or sets up the connection that it uses.
    """
    SELF_CHECK = "self-check"
    """A repetition of a measured observation in the same round (A/A)."""
    CONTROL = "control"
    """A negative control."""


class Direction(StrEnum):
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
    """Virtual time: the clock of a guest. This clock stands still while any process computes."""


class Browser(StrEnum):
    """Browser that loads a page."""

    CHROMIUM = "chromium"
    FIREFOX = "firefox"
    FIREFOX_HAPPY_EYEBALLS = "firefox-happy-eyeballs"
    """Firefox with the preference `network.http.happy_eyeballs_enabled`, which enables its Happy Eyeballs v3."""
    CURL = "curl"
    """libcurl, which loads only the document."""


@dataclass(frozen=True, slots=True)
class BrowserProgram:
    """Name of a browser, and data to locate its program."""

    title: str
    variable: str
    """Environment variable that names the program."""
    names: tuple[str, ...]
    """Usual names of the program."""
    driver: str = ""
    """Name of the required driver, which must have the browser's major version; empty if none is required."""


BROWSERS: dict[str, BrowserProgram] = {
    Browser.CHROMIUM.value: BrowserProgram(
        "Chromium",
        "CROSSLAYER_CHROMIUM",
        ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"),
        driver="chromedriver",
    ),
    Browser.FIREFOX.value: BrowserProgram("Firefox", "CROSSLAYER_FIREFOX", ("firefox-esr", "firefox")),
}
"""Browsers that a plan can name."""


class Coupling(StrEnum):
    """Component that resolves the host names of a page."""

    DECOUPLED = "decoupled"
    """The browser receives the addresses from crosslayer."""
    COUPLED = "coupled"
    """The browser resolves the names itself."""


class Connection(StrEnum):
    """Connection on which a paced query is sent."""

    KEPT = "kept"
    NEW = "new"
    """A new connection for each query, closed afterwards."""
    ZERO_RTT = "0-rtt"
    """A new connection for each query, closed afterwards; the query is early data."""


class ClientKind(StrEnum):
    """Kind of client that keeps a connection to the server."""

    STUB = "stub"
    """The Go stub, which probes the path of an idle connection before it reuses it."""
    STUB_NO_IDLE_PROBE = "stub-no-idle-probe"
    """The Go stub without the probe of an idle connection (`--probe-idle-after 0`)."""
    DNSPROXY = "dnsproxy"
    """AdGuard's forwarder dnsproxy."""
    LIBRARY = "library"
    """A program that uses `crosslayer.dns`; after 5 s without an answer it opens a new connection."""
    CHROMIUM = "chromium"
    """Chromium's own DoH in secure mode, without any other resolver."""


class PathEvent(StrEnum):
    """Event on the path or at the server while a connection was idle."""

    NONE = "none"
    NAT_EXPIRED = "nat-expired"
    """The path drops the connection's packets, as a NAT with an expired mapping does; new connections pass."""
    CLIENT_MIGRATED = "client-migrated"
    """The client has a new address; the old one is removed."""
    SERVER_RESTARTED = "server-restarted"
    """The server was killed and started again; it has no state of earlier connections or tickets."""


class Sharing(StrEnum):
    """Connection on which a page is loaded."""

    SEPARATE = "separate"
    """A separate connection, opened after the page's name is resolved."""
    SHARED = "shared"
    """The connection on which the page's name is resolved."""


class QueryState(StrEnum):
    """State of the connection on which a resolver was queried."""

    COLD = "cold"
    """A new connection without a ticket; for DoUDP, a new socket."""
    KEPT = "kept"
    """The connection of the previous query."""
    RESUMED = "resumed"
    """A new connection with a session ticket."""
    EARLY_DATA = "early-data"
    """A new connection with a session ticket; the query is sent in the first flight (0-RTT)."""
    IDLE = "idle"
    """The connection of the previous query, after an idle time that the plan sets."""
    IDLE_SEARCH = "idle-search"
    """As `IDLE`, but the idle time is a step of the search for the time after which the network forgets the flow."""


class CacheUse(StrEnum):
    """Whether the resolver had the answer in its cache."""

    HIT = "hit"
    """An earlier query for the name filled the cache."""
    MISS = "miss"
    """The name was not queried before."""


class EventKind(StrEnum):
    """Kind of event during a comparison of resolvers."""

    STOPPED = "stopped"
    """An operator asked us to stop."""
    DAY_LIMIT = "day-limit"
    """The daily limit of queries to an operator was reached."""
    MISSED_ROUND = "missed-round"
    """A round could not be measured before the next one was due."""
    INTERCEPTED = "intercepted"
    """A query was answered although no host has the address to which it was sent."""
    NOT_INTERCEPTED = "not-intercepted"
    """A query was sent to an address that no host has. As expected, it was not answered."""
    ADDRESS_CHANGED = "address-changed"
    """The client got another address during a round."""
    CLOCK_STEPPED = "clock-stepped"
    """The clock of the measuring machine was set during a round."""
    SLEPT = "slept"
    """The measuring machine was suspended during a round."""


class LocatedKind(StrEnum):
    """Kind of object whose location is recorded."""

    RESOLVER = "resolver"
    """An address of a resolver."""
    VANTAGE_POINT = "vantage-point"


VANTAGE_POINTS = {
    "eu": "Europe",
    "na": "North America",
    "as": "Asia",
    "af": "Africa",
    "sa": "South America",
    "oc": "Oceania",
}
"""Vantage points of IMC 2022: full name by short name, in ascending order of the median RTT in our model."""


def vantage_title(link: str) -> str:
    """Title of a vantage point's link, e.g. `Europe, resolver 1` for `eu-1`; empty for other links."""
    point, _, resolver = link.partition("-")
    return f"{VANTAGE_POINTS[point]}, resolver {resolver}" if point in VANTAGE_POINTS and resolver.isdigit() else ""


PAPER_SERIES = ("DoUDP", "DoTCP", "DoQ", "DoH", "DoT")
"""Transports of IMC 2022, section 3.1, in the order of its Table 1.

In the measurements of this paper, encrypted transports resume sessions.
"""

DURATIONS_BY_PART = {"handshake": "handshake_ms", "resolve": "query_ms", "exchange": "total_ms"}
"""Parts of an exchange, and the columns with their durations."""

SIZES_BY_PART = {
    "handshake, client to resolver": "handshake_sent_bytes_by_record",
    "handshake, resolver to client": "handshake_received_bytes_by_record",
    "query": "query_sent_bytes_by_record",
    "response": "query_received_bytes_by_record",
}
"""Parts of an exchange in IMC22 Table 1, each with the column of our data that has the IP payload of this part, bytes.

These columns divide an exchange into the same parts as the table of the paper.
"""
