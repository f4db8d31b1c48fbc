"""The description of a box: the TOML file, read and checked. docs/reference/box.md has every key."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, Literal

from msgspec import Meta

from crosslayer.box.errors import BoxError
from crosslayer.decode import FieldError, checked, read_toml
from crosslayer.vocabulary import Protocol

Rtt = Annotated[float, Meta(ge=0, le=2000)]
Seconds = Annotated[float, Meta(ge=0)]
Name = Annotated[str, Meta(pattern=r"^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$")]
Domain = Annotated[str, Meta(pattern=r"^([a-z0-9_]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]{2,}$")]
Transport = Literal["doudp", "dotcp", "dot", "doh", "doh3", "doq"]
Make = Literal["crosslayer", "bind9", "knot-resolver", "unbound", "dnsdist", "dnsproxy"]

TRANSPORTS: Final[dict[Transport, Protocol]] = {
    "doudp": Protocol.DOUDP,
    "dotcp": Protocol.DOTCP,
    "dot": Protocol.DOT,
    "doh": Protocol.DOH,
    "doh3": Protocol.DOH3,
    "doq": Protocol.DOQ,
}
"""DNS transports, by the names that the description of a box and a list of resolvers use for them."""
_OVER_TLS: Final[tuple[Transport, ...]] = ("doudp", "dotcp", "dot", "doh")
MAKES: Final[dict[Make, tuple[Transport, ...]]] = {
    "crosslayer": tuple(TRANSPORTS),
    "bind9": _OVER_TLS,
    "knot-resolver": _OVER_TLS,
    "unbound": ("doudp", "dotcp", "dot"),
    "dnsdist": _OVER_TLS,
    "dnsproxy": tuple(TRANSPORTS),
}
"""Transports that each make (resolver software) offers in a box."""
MOST_HOSTS: Final = 200
"""Maximum number of hosts, limited by the addresses of a box."""
MOST_VANTAGES: Final = 16
_EXPLAINED = "docs/reference/box.md explains every key."


@dataclass(frozen=True, slots=True)
class PathChange:
    """A change of the RTT of a resolver's path at a set time."""

    at_s: Seconds
    """Time from the start of the user's command to the change, s."""
    rtt_ms: Rtt


@dataclass(frozen=True, slots=True)
class Site:
    """One of several hosts at different locations that share a resolver's addresses (anycast)."""

    name: Name
    rtt_ms: Rtt


@dataclass(frozen=True, slots=True)
class Route:
    """A rule that directs packets to a site of a resolver; the first matching rule applies."""

    site: str
    transports: list[Transport] = field(default_factory=list)
    """Transports of the packets that the rule directs; empty for all transports."""
    family: Literal[4, 6] | None = None
    from_s: Seconds = 0.0
    until_s: Seconds | None = None


@dataclass(frozen=True, slots=True)
class RateLimit:
    """A rate limit of a resolver for all clients together; a burst of one second's queries is allowed."""

    queries_per_s: Annotated[float, Meta(ge=1)]
    answer: Literal["503", "refused", "silence", "escalate"] = "refused"
    """Answer above the limit: HTTP status 503 (REFUSED on transports without HTTP), REFUSED, or no answer.

    `escalate`: 503 for as many queries as one second allows, then REFUSED for the same number, then no more answers.
    """


@dataclass(frozen=True, slots=True)
class StopRequest:
    """An operator's request that clients stop: `answer` is the only answer after the first `after_queries` queries."""

    after_queries: Annotated[int, Meta(ge=0)]
    answer: Literal["403", "451", "prohibited"] = "403"
    """Answer: an HTTP status (REFUSED on transports without HTTP), or REFUSED with the extended error Prohibited."""


@dataclass(frozen=True, slots=True)
class BoxResolver:
    """A resolver of the box."""

    name: Name
    rtt_ms: Rtt = 0.0
    """RTT between client and resolver, ms."""
    jitter_ms: Annotated[float, Meta(ge=0, le=1000)] = 0.0
    """Mean of the random delay of each packet towards a client, ms.

    The delay has an exponential distribution. Packets stay in order.
    """
    operator: str = ""
    """Name of the operator. If it is empty, the operator has the name of the resolver."""
    make: Make = "crosslayer"
    transports: list[Transport] = field(default_factory=list)
    """Transports that clients can use; empty for all transports of the make."""
    ipv6: bool = False
    """Whether the resolver also has an IPv6 address."""
    broken_ipv6: bool = False
    """Whether the resolver has an IPv6 address, but every packet to this address is lost."""
    caches: Annotated[int, Meta(ge=1, le=8)] = 1
    """Number of servers, each with its own cache. A balancer in front of them chooses one server for each flow."""
    site: list[Site] = field(default_factory=list)
    route: list[Route] = field(default_factory=list)
    path_change: list[PathChange] = field(default_factory=list)
    certificate: Literal["good", "other-name", "other-ca", "expired"] = "good"
    idle_timeout_s: Annotated[float, Meta(gt=0)] = 30.0
    """Idle time after which the resolver closes a QUIC or HTTP connection, s."""
    doq_alpn: Annotated[str, Meta(min_length=1, max_length=32)] = "doq"
    """ALPN of DoQ; drafts of RFC 9250 had `doq-i00` to `doq-i11`."""
    filter: list[Domain] = field(default_factory=list)
    """Filtered zones: the resolver answers queries for names in them with NXDOMAIN."""
    rate_limit: RateLimit | None = None
    asks_to_stop: StopRequest | None = None
    dead: bool = False
    """Whether the resolver has no server, so that every packet to it is lost."""

    def __post_init__(self) -> None:
        for transport in self.transports:
            if transport not in MAKES[self.make]:
                step = f"In a box it speaks: {', '.join(MAKES[self.make])}."
                raise FieldError(
                    f"has '{transport}', which {self.make} does not speak", key="transports", next_step=step
                )
        if not self.transports:
            object.__setattr__(self, "transports", list(MAKES[self.make]))
        names = [site.name for site in self.site]
        if len(set(names)) < len(names):
            raise FieldError("has a name twice", key="site", next_step="Give each site its own name.")
        for number, route in enumerate(self.route):
            if route.site not in names:
                step = f"Sites are: {', '.join(names)}." if names else "Describe the sites first."
                raise FieldError(f"is '{route.site}', which is no site", key=f"route[{number}].site", next_step=step)
        if self.site and self.caches > 1:
            raise FieldError("excludes site", key="caches", next_step="Use one of both.")
        if self.site and self.path_change:
            raise FieldError("excludes site", key="path_change", next_step="Use route with from_s instead.")
        if self.make != "crosslayer":
            own = {
                "caches": self.caches > 1, "idle_timeout_s": self.idle_timeout_s != 30.0,
                "doq_alpn": self.doq_alpn != "doq", "filter": bool(self.filter),
                "asks_to_stop": self.asks_to_stop is not None, "ipv6": self.has_ipv6,
                "rate_limit": self.rate_limit is not None, "site": bool(self.site),
            }  # fmt: skip
            for key, used in own.items():
                if used:
                    step = "Leave make out, or leave this key out."
                    raise FieldError('needs make = "crosslayer"', key=key, next_step=step)

    @property
    def by_operator(self) -> str:
        """Name of the resolver's operator, by default the resolver's name."""
        return self.operator or self.name

    @property
    def has_ipv6(self) -> bool:
        """Whether the resolver has an IPv6 address."""
        return self.ipv6 or self.broken_ipv6


@dataclass(frozen=True, slots=True)
class Zone:
    """The authoritative zone behind the resolvers; every name in it exists."""

    name: Domain = "box.example"
    rtt_ms: Rtt = 80.0
    """RTT between each resolver and the authoritative server, ms."""
    ttl_s: Annotated[int, Meta(ge=0, le=86400)] = 300


@dataclass(frozen=True, slots=True)
class Origin:
    """A web origin, which offers one page over HTTP/2 and HTTP/3."""

    name: Domain
    rtt_ms: Rtt


@dataclass(frozen=True, slots=True)
class NatBehaviour:
    """A NAT in front of the client, for IPv4 only."""

    udp_timeout_s: Annotated[float, Meta(gt=0)] | None = None
    """Idle time after which the NAT forgets a UDP flow, s; None for never."""
    forgotten: Literal["new-port", "drop"] = "new-port"
    """Treatment of the client's later packets of a forgotten flow: they get a new port, or are dropped."""
    address_changes_s: list[Seconds] = field(default_factory=list)
    """Times at which the NAT gets another address and forgets all flows, s after the start of the user's command."""


@dataclass(frozen=True, slots=True)
class ClockStep:
    """A jump of the time of day (CLOCK_REALTIME) on all machines of the box; needs a guest (User-Mode Linux)."""

    at_s: Seconds
    """Time from the start of the user's command to the step, s."""
    by_s: float
    """Time added to the clock, s."""


@dataclass(frozen=True, slots=True)
class Vantage:
    """A client besides the first one, in a namespace of its own."""

    name: Name
    rtt_ms: Rtt = 0.0
    """Time added to the RTT of every path that is not in `paths`, ms."""
    paths: dict[str, Rtt] = field(default_factory=dict)
    """RTT between this client and a resolver, ms, by the resolver's name; replaces the RTT of the resolver's path."""


@dataclass(frozen=True, slots=True)
class Interception:
    """A middlebox that answers clients' IPv4 queries in place of the resolvers to which the queries are addressed."""

    transports: list[Transport]
    rtt_ms: Rtt = 1.0
    resolvers: list[str] = field(default_factory=list)
    """Names of the resolvers in whose place the middlebox answers; empty for every address."""
    from_s: Seconds = 0.0


@dataclass(frozen=True, slots=True)
class Network:
    """The clients' network: blocked ports, interceptions and NAT."""

    blocked: list[Annotated[str, Meta(pattern=r"^(tcp|udp)/[0-9]{1,5}$")]] = field(default_factory=list)
    """Protocols and destination ports, such as `udp/443`: the router drops packets of clients to these ports."""
    interception: list[Interception] = field(default_factory=list)
    nat: NatBehaviour | None = None

    def __post_init__(self) -> None:
        for number, blocked in enumerate(self.blocked):
            if not 0 < int(blocked.partition("/")[2]) < 65536:
                step = "Ports are 1 to 65535."
                raise FieldError(f"is '{blocked}', whose port does not exist", key=f"blocked[{number}]", next_step=step)


@dataclass(frozen=True, slots=True)
class Description:
    """Description of a box; the fields are the keys of its TOML file."""

    resolver: Annotated[list[BoxResolver], Meta(min_length=1)]
    title: str = ""
    zone: Zone = field(default_factory=Zone)
    origin: list[Origin] = field(default_factory=list)
    network: Network = field(default_factory=Network)
    clock_step: list[ClockStep] = field(default_factory=list)
    vantage: Annotated[list[Vantage], Meta(max_length=MOST_VANTAGES)] = field(default_factory=list)
    """Clients besides the first one."""
    system_resolver: str = ""
    """Name of the resolver in the client's resolv.conf; empty for the first resolver."""

    def __post_init__(self) -> None:
        names = [resolver.name for resolver in self.resolver]
        for name in names:
            if names.count(name) > 1:
                raise FieldError(f"has '{name}' twice", key="resolver", next_step="Give each its own name.")
            if re.fullmatch(r"authority|origin-\d+|interceptor-\d+", name):
                raise FieldError(f"has '{name}', a name of the box itself", key="resolver", next_step="Rename it.")
        known = f"Resolvers are: {', '.join(names)}."
        if self.system_resolver and self.system_resolver not in names:
            raise FieldError(
                f"is '{self.system_resolver}', which is no resolver", key="system_resolver", next_step=known
            )
        for number, interception in enumerate(self.network.interception):
            for name in interception.resolvers:
                if name not in names:
                    key = f"network.interception[{number}].resolvers"
                    raise FieldError(f"has '{name}', which is no resolver", key=key, next_step=known)
        vantages = [vantage.name for vantage in self.vantage]
        for number, vantage in enumerate(self.vantage):
            if vantages.count(vantage.name) > 1:
                raise FieldError(f"has '{vantage.name}' twice", key="vantage", next_step="Give each its own name.")
            for name in vantage.paths:
                if name not in names:
                    key = f"vantage[{number}].paths"
                    raise FieldError(f"has '{name}', which is no resolver", key=key, next_step=known)
        hosts = sum(max(resolver.caches, len(resolver.site)) for resolver in self.resolver) + len(self.origin)
        if hosts > MOST_HOSTS:
            raise FieldError(f"need {hosts} hosts", key="resolver", next_step=f"A box has at most {MOST_HOSTS}.")


def load_box(path: Path) -> Description:
    """Read the description of a box from a TOML file and check it.

    Raises
    ------
    BoxError
        If the file cannot be read or a value cannot be used; the error names the file and the key.
    """
    return checked(read_toml(path, BoxError), Description, where=str(path), error=BoxError, next_step=_EXPLAINED)
