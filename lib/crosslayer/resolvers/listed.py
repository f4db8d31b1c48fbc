"""Read and check lists of resolvers: names, URLs, stamps and files. No network access.

Every address is a separate target. Host names are never looked up, so the list must give the addresses.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from msgspec import Meta

from crosslayer.decode import FieldError, checked, choice, read_text, read_toml
from crosslayer.dns.model import is_host_name
from crosslayer.resolvers import stamps
from crosslayer.resolvers.errors import ResolversError
from crosslayer.resolvers.locations import AddressLocation
from crosslayer.resolvers.target import DNS_PATH, ResolverTarget
from crosslayer.vocabulary import Protocol

_BY_SCHEME = {protocol.transport.url_scheme: protocol for protocol in Protocol}
_URL_PATH = re.compile(r"/(?:[\w.~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})*", re.ASCII)
"""Path of a URL (RFC 3986, section 3.3)."""
_SECTION = re.compile(r"^## +(.+?) *$")
_BY_KEY = {protocol.value.lower(): protocol for protocol in Protocol}
_Port = Annotated[int, Meta(ge=1, le=65535)]


@dataclass(frozen=True, slots=True)
class ResolverEntry:
    """A `[[resolver]]` of a TOML file, as `crosslayer box --resolvers-out` writes it."""

    name: Annotated[str, Meta(min_length=1)]
    address: list[str]
    transports: dict[str, _Port]
    operator: str = ""
    host: str = ""
    path: str = DNS_PATH
    asn: Annotated[int, Meta(ge=1, le=2**32 - 1)] | None = None
    as_name: str = ""
    latitude: Annotated[float, Meta(ge=-90, le=90)] | None = None
    longitude: Annotated[float, Meta(ge=-180, le=180)] | None = None

    def __post_init__(self) -> None:
        if not self.address:
            raise FieldError("has no address", key="address", next_step="Give at least one address.")
        for number, address in enumerate(self.address):
            if _canonical(address) is None:
                raise FieldError(
                    f"is not the address of one host: {address!r}",
                    key=f"address[{number}]",
                    next_step="Give an IPv4 or IPv6 address, without a port.",
                )
        if (self.latitude is None) != (self.longitude is None):
            raise FieldError("needs both", key="latitude, longitude", next_step="Give both, or none.")
        if not self.transports:
            raise FieldError("is empty", key="transports", next_step=f"Transports are: {', '.join(_BY_KEY)}.")
        for key in self.transports:
            if key not in _BY_KEY:
                raise FieldError(f"has the unknown transport '{key}'", key="transports", next_step=choice(key, _BY_KEY))
        encrypted = [key for key in self.transports if _BY_KEY[key].transport.encrypted]
        if encrypted and not self.host:
            raise FieldError(
                f"is missing, and {encrypted[0]} needs it", key="host", next_step="Give the name in the certificate."
            )
        if self.host and not _is_certificate_name(self.host):
            raise FieldError(f"is not a host name: {self.host!r}", key="host", next_step="Give the ASCII form.")
        if not _URL_PATH.fullmatch(self.path):
            step = "Write it as in the URL, in ASCII, without query, fragment and template, like /dns-query."
            raise FieldError(f"must be a path that begins with a slash, is {self.path!r}", key="path", next_step=step)

    def targets(self) -> list[ResolverTarget]:
        """The targets of this entry: every transport of every address."""
        return [
            _target(self.name, address, _BY_KEY[key], port, self.host, self.path, self.operator)
            for address in self.address
            for key, port in self.transports.items()
        ]

    @property
    def location(self) -> AddressLocation:
        """Autonomous system and position of the entry's addresses."""
        return AddressLocation(self.asn, self.as_name, self.latitude, self.longitude)


@dataclass(frozen=True, slots=True)
class _ListFile:
    """The keys of a TOML file of resolvers."""

    resolver: list[ResolverEntry]


@dataclass(frozen=True, slots=True)
class Listed:
    """The targets that result from the arguments of a call, and what the lists say about them."""

    targets: list[ResolverTarget]
    left_out: list[str] = field(default_factory=list)
    """Entries of stamp lists and files of `crosslayer discover` that cannot be measured, each with its reason."""
    locations: dict[str, AddressLocation] = field(default_factory=dict)
    """Location of each address for which a list gives one."""


def read(arguments: Iterable[str], protocols: Iterable[Protocol] = ()) -> Listed:
    """Read the targets that the arguments (names, URLs, stamps and files) give, in the order of the arguments.

    An argument is a file if it ends in `.toml`, `.md`, `.parquet` or `.csv`. `protocols` restricts the transports; by
    default, targets of all transports are read. Raises `ResolversError` for the first invalid argument, if a target
    occurs twice, and if there is no target.
    """
    listed = Listed([])
    for argument in arguments:
        part = _read_one(argument)
        listed.targets.extend(part.targets)
        listed.left_out.extend(part.left_out)
        listed.locations.update(part.locations)
    if not listed.targets:
        raise ResolversError("there is no resolver", where="LIST|NAMES", next_step=_forms())
    # An operator has one rate limit, even if lists give its addresses different names.
    operators = {target.address: target.operator for targets in well_known().values() for target in targets}
    listed = Listed(
        [replace(target, operator=operators.setdefault(target.address, target.operator)) for target in listed.targets],
        listed.left_out,
        listed.locations,
    )
    seen: dict[tuple[str, Protocol, int, str, str], ResolverTarget] = {}
    for target in listed.targets:
        key = (target.address, target.protocol, target.port, target.host, target.path)
        if (first := seen.setdefault(key, target)) is not target:
            raise ResolversError(
                f"{target.address} over {target.protocol} is listed twice",
                where=f"{first.name}, {target.name}" if first.name != target.name else target.name,
                next_step="List it once.",
            )
    if wanted := set(protocols):
        kept = [target for target in listed.targets if target.protocol in wanted]
        if not kept:
            offered = ", ".join(dict.fromkeys(target.protocol for target in listed.targets))
            raise ResolversError(
                "no resolver has such a transport", where="--transport", next_step=f"They have: {offered}."
            )
        return Listed(kept, listed.left_out, listed.locations)
    return listed


def well_known() -> dict[str, list[ResolverTarget]]:
    """Targets of the well-known resolvers, by name."""
    with as_file(files("crosslayer.testbed") / "well_known.toml") as path:
        return {entry.name: entry.targets() for entry in _entries(path)}


def _read_one(argument: str) -> Listed:
    if argument.startswith(stamps.SCHEME):
        return Listed([_of_stamp(argument, where=argument)])
    if "://" in argument:
        return Listed([_of_url(argument)])
    if argument.endswith(".toml"):
        entries = _entries(Path(argument))
        known_of = {target.address: entry.location for entry in entries for target in entry.targets()}
        located = {address: one for address, one in known_of.items() if one != AddressLocation()}
        return Listed([target for entry in entries for target in entry.targets()], locations=located)
    if argument.endswith(".md"):
        return _stamp_list(Path(argument))
    if argument.endswith((".parquet", ".csv")):
        return _support_table(Path(argument))
    known = well_known()
    if argument.casefold() in known:
        return Listed(known[argument.casefold()])
    raise ResolversError(
        "is not the name of a known resolver",
        where=argument or "''",
        next_step=f"{choice(argument, known)} {_forms()}",
    )


def _forms() -> str:
    schemes = " ".join(f"{scheme}://" for scheme in _BY_SCHEME)
    kinds = "a .toml file, a .md list of stamps, a file of `discover --out`"
    return f"Else give {kinds}, an sdns:// stamp, or a URL of {schemes}."


def _entries(path: Path) -> list[ResolverEntry]:
    entries = checked(read_toml(path, ResolversError), _ListFile, where=str(path), error=ResolversError).resolver
    names = [entry.name for entry in entries]
    for name in names:
        if names.count(name) > 1:
            raise ResolversError(f"the name '{name}' occurs twice", where=str(path), next_step="Rename one of them.")
    return entries


def _stamp_list(path: Path) -> Listed:
    """Targets of a list in the layout of dnscrypt-resolvers' `public-resolvers.md`: `## NAME`, text, stamps."""
    lines = read_text(path, ResolversError).splitlines()
    listed, name = Listed([]), ""
    for number, line in enumerate(lines, start=1):
        where = f"{path}, line {number}"
        if match := _SECTION.match(line):
            name = match[1]
        elif line.startswith(stamps.SCHEME):
            if not name:
                raise ResolversError("a stamp has no name", where=where, next_step="Write `## NAME` above it.")
            try:
                listed.targets.append(_of_stamp(line.strip(), where=where, name=name))
            except (stamps.UnsupportedStampError, _NoAddressError) as error:
                listed.left_out.append(f"{name}: {error.what}")
    return listed


def _support_table(path: Path) -> Listed:
    """Targets of a file of `crosslayer discover --out`: the supported transports of each address."""
    from crosslayer.discover import table  # it imports the clients, which other lists do not need

    listed = Listed([])
    for row in table.read(path, ResolversError):
        label = f"{row['target']} {row['address']} {row['transport']}"
        if not row["supported"]:
            continue
        protocol = Protocol(row["transport"])
        if protocol is Protocol.DOQ and row["alpn"] != "doq":
            listed.left_out.append(f"{label}: it speaks {row['alpn'] or 'a draft'} of DoQ")
            continue
        address = _canonical(row["address"])
        host = row["target"]
        if address is None or not _is_certificate_name(host):
            raise ResolversError(
                f"has no usable address and name: {label}",
                where=str(path),
                next_step="Name a file of `crosslayer discover --out`.",
            )
        listed.targets.append(_target(host, address, protocol, row["port"], host, DNS_PATH))
    return listed


class _NoAddressError(ResolversError):
    """A stamp without an address."""


def _of_stamp(text: str, *, where: str, name: str = "") -> ResolverTarget:
    stamp = stamps.decode(text, where=where)
    default = stamp.protocol.transport.port
    host, host_port = _split_port(stamp.host, default, where)
    address, port = _split_port(stamp.address, host_port, where)
    if not address:
        raise _NoAddressError(
            "the stamp has no address, and names are not looked up",
            where=where,
            next_step="Use a stamp with an address.",
        )
    if _canonical(address) is None:
        raise ResolversError(
            f"the stamp has '{address}' in place of an address", where=where, next_step="Use another stamp."
        )
    if stamp.protocol.transport.encrypted and not _is_certificate_name(host):
        raise ResolversError(f"the stamp has no host name but '{host}'", where=where, next_step="Use another stamp.")
    path = stamp.path or DNS_PATH
    if not _URL_PATH.fullmatch(path):
        raise ResolversError(f"the stamp's path is '{path}'", where=where, next_step="Use another stamp.")
    return _target(name or host or address, address, stamp.protocol, port, host, path)


def _of_url(text: str) -> ResolverTarget:
    """The target of `scheme://ADDRESS[:PORT][/PATH][#NAME]`.

    NAME is the name that the server's certificate must have; its default is ADDRESS.
    """
    try:
        url = urlsplit(text)
        host, port = url.hostname or "", url.port
    except ValueError as error:
        raise ResolversError(
            f"is not a URL ({error})",
            where=text,
            next_step="Write IPv6 addresses in brackets, and a port of 1 to 65535.",
        ) from None
    if url.scheme not in _BY_SCHEME:
        raise ResolversError(
            f"has the unknown scheme '{url.scheme}'", where=text, next_step=choice(url.scheme, _BY_SCHEME)
        )
    protocol = _BY_SCHEME[url.scheme]
    if _canonical(host) is None:
        raise ResolversError(
            f"has '{host}' in place of an address, and names are not looked up",
            where=text,
            next_step=f"Write {url.scheme}://ADDRESS{url.path}#{host or 'NAME'}.",
        )
    if url.query or url.username or (url.path.strip("/") and not protocol.transport.over_http) or port == 0:
        raise ResolversError(
            "has a part that is not allowed in a resolver's URL",
            where=text,
            next_step="Write SCHEME://ADDRESS:PORT#NAME; https and h3 have a path before #.",
        )
    name = url.fragment or host
    if not _is_certificate_name(name):
        raise ResolversError(f"'{name}' is not a host name", where=text, next_step="Give the name in the certificate.")
    path = url.path if url.path.strip("/") else DNS_PATH
    return _target(name, host, protocol, port or protocol.transport.port, name, path)


def _target(
    name: str, address: str, protocol: Protocol, port: int, host: str, path: str, operator: str = ""
) -> ResolverTarget:
    canonical = _canonical(address)
    assert canonical is not None, "addresses are checked before"
    encrypted = protocol.transport.encrypted
    return ResolverTarget(
        name,
        operator or _operator(host or canonical, name),
        canonical,
        protocol,
        port,
        host if encrypted else "",
        path if protocol.transport.over_http else "",
    )


def _operator(host: str, name: str) -> str:
    """Default operator of a resolver: the last two labels of its host name, or `name` if the host is an address."""
    if _canonical(host) is not None:
        return name
    return ".".join(host.lower().split(".")[-2:])


def _split_port(text: str, default: int, where: str) -> tuple[str, int]:
    """Split `HOST[:PORT]` into host and port; HOST is a name or an address, with brackets around an IPv6 address.

    Without a port, the port is `default`. A text of another form is returned whole as the host. `ResolversError` for an
    invalid port.
    """
    match = re.fullmatch(r"\[([^\]]*)\](?::(\d+))?|([^:]*)(?::(\d+))?", text)
    if match is None:
        return text, default
    digits = match[2] or match[4]
    port = int(digits) if digits else default
    if not 1 <= port <= 65535:
        raise ResolversError(f"the stamp's port is {port}", where=where, next_step="Use another stamp.")
    return match[1] or match[3] or "", port


def _canonical(text: str) -> str | None:
    """The canonical form of `text` if it is the IP address of a single host; None for any other text."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    address = getattr(address, "ipv4_mapped", None) or address
    if address.is_multicast or address.is_unspecified or "%" in text or str(address) == "255.255.255.255":
        return None
    return str(address)


def _is_certificate_name(text: str) -> bool:
    return _canonical(text) is not None or is_host_name(text)
