"""The requests of a copied page: host name, path and weight of each, and the resource that causes it.

The weight of a resource is the size of its body on the wire.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from crosslayer.pages._cold_load import ColdLoad, Resource
from crosslayer.pages._errors import PageError
from crosslayer.pages._spec import HOST, HOSTS_MOST
from crosslayer.pages._urls import Url, is_address, parse
from crosslayer.pages._wire import GZIP_PADDING, gzip_compress

CODE = {"document": ".html", "style": ".css", "script": ".js"}
_ENDINGS = CODE | {"drawing": ".svg"}
_IMPORTS = ("style", "image", "drawing", "font")
"""Kinds of resource that a style sheet can request."""
_DNS_PATH = "/dns-query"
"""Path at which the server answers DNS, on every host."""
_PATH_MOST = 1000
"""Maximum characters of a path. Longer paths are cut, because Chromium and servers limit header fields."""
_HEADER_MOST = 4096
"""Largest excess of a recorded size over Content-Length that is taken for the response's header fields, bytes."""
_PACKED = ("image", "font")
"""Kinds of resource that are already compressed; the server sends them unchanged."""


@dataclass(slots=True)
class Fetch:
    """A request of the copied page."""

    resource: Resource
    number: int
    host: str
    """Host name in the copy."""
    path: str
    wire_bytes: int
    """Bytes of the body on the wire; an empty body becomes one byte."""
    encoding: str
    """`gzip` if the server sends the body compressed by gzip, else `identity`."""
    recorded_bytes: int
    """Recorded size of the body on the wire; 0 if it was empty or is unknown."""
    initiator: Fetch | None = None
    children: list[Fetch] = field(default_factory=list)
    body: bytes = b""
    content_type: str = ""

    @property
    def kind(self) -> str:
        """Kind of the requested resource."""
        return self.resource.kind

    @property
    def name(self) -> str:
        """Name of the file that holds the body."""
        return f"{self.number}{_ENDINGS.get(self.kind, '.bin')}"

    @property
    def url(self) -> str:
        """URL in the copy."""
        return f"https://{self.host}{self.path}"

    def reference(self, base_host: str | None) -> str:
        """Reference to this resource in a file whose base URL has the host `base_host`.

        It is the path if this resource is on the same host, else the URL. For a path that begins with two slashes, it
        is also the URL, because browsers would read a host name after the slashes.
        """
        return self.path if self.host == base_host and not self.path.startswith("//") else self.url


@dataclass(slots=True)
class Fetches:
    """All requests of a copied page, the document first."""

    fetches: list[Fetch]
    notes: list[str]
    """Differences from the recording, as sentences without a full stop."""


def fetches_of(load: ColdLoad, where: str) -> Fetches:
    """Determine, from a recorded load, which requests the copy of the page makes.

    Raises
    ------
    PageError
        If the load has more hosts than the testbed has addresses.
    """
    notes: list[str] = []
    names = _host_names(load, notes)
    if len(set(names.values())) > HOSTS_MOST:
        raise PageError(
            f"has {len(set(names.values()))} host names; the testbed has addresses for {HOSTS_MOST}",
            where=where,
            next_step="Record the page with a content blocker, or record another page.",
        )
    taken: set[tuple[str, str]] = {(host, _DNS_PATH) for host in names.values()}
    fetches: list[Fetch] = []
    for resource in load.resources:
        host = names[resource.url.host]
        path = _path(resource.url, taken, host) if fetches else "/"
        taken.add((host, path))
        wire_bytes, encoding = _weight(resource)
        fetches.append(Fetch(resource, len(fetches), host, path, max(wire_bytes, 1), encoding, wire_bytes))
    _set_initiators(fetches)
    _note_caches(load, notes)
    return Fetches(fetches, notes)


def _host_names(load: ColdLoad, notes: list[str]) -> dict[str, str]:
    """Name of each recorded host in the copy: the same, or another one if the testbed cannot serve it."""
    names: dict[str, str] = {}
    ports: dict[str, set[str]] = {}
    hosts = list(dict.fromkeys(resource.url.host for resource in load.resources))
    taken = {host for host in hosts if HOST.fullmatch(host)}
    for host in hosts:
        if host in taken:
            names[host] = host
            continue
        plain = re.sub(r"[^a-z0-9.-]+", "-", host.lower()).strip("-.")
        if is_address(host):
            plain = "host-" + plain.replace(".", "-")
        base = next(
            (name for name in (plain, f"{plain}.test") if HOST.fullmatch(name) and name != host), "unnamed.test"
        )
        name, again = base, 1
        while name in taken:
            again += 1
            name = f"n{again}.{base}"
        taken.add(name)
        names[host] = name
        notes.append(f"{host} is served as {name}")
    for resource in load.resources:
        if resource.url.port is not None:
            ports.setdefault(names[resource.url.host], set()).add(str(resource.url.port))
    for host, numbers in ports.items():
        port = "ports" if len(numbers) > 1 else "port"
        notes.append(f"{port} {', '.join(sorted(numbers))} of {host} served on port 443")
    return names


def _path(url: Url, taken: set[tuple[str, str]], host: str) -> str:
    """Path of a resource in the copy, without query.

    A number is added if another resource of the host has the same path.
    """
    base = url.path
    if len(base) > _PATH_MOST:
        base = re.sub(r"%.?$", "", base[:_PATH_MOST])
    path, again = base, 1
    while (host, path) in taken:
        again += 1
        path = f"{base}~{again}"
    return path


def _set_initiators(fetches: list[Fetch]) -> None:
    by_url = {fetch.resource.url.address: fetch for fetch in reversed(fetches)}
    by_url |= {str(fetch.resource.url): fetch for fetch in fetches}
    document = fetches[0]
    for fetch in fetches[1:]:
        named = parse(fetch.resource.entry.initiator)
        by = (by_url.get(str(named)) or by_url.get(named.address) if named else None) or document
        able = by.kind in ("document", "script") or (by.kind == "style" and fetch.kind in _IMPORTS)
        by = by if able and by.number < fetch.number else document
        fetch.initiator = _script_before(fetch, fetches) if by is document else by
        fetch.initiator.children.append(fetch)


def _script_before(fetch: Fetch, fetches: list[Fetch]) -> Fetch:
    """Initiator of a request that the recording attributes to the document.

    It is the last script whose transfer ended after that of the document and before the start of the request. Without
    such a script, it is the document. Chromium names the document even if a script wrote the requesting element into
    it. What the document itself names is requested earlier, by the preload scanner.
    """
    begin_ms = fetch.resource.entry.started_ms
    document_ms = fetches[0].resource.entry.ended_ms
    scripts = [
        other
        for other in fetches[: fetch.number]
        if other.kind == "script" and document_ms < other.resource.entry.ended_ms <= begin_ms
    ]
    return max(scripts, key=lambda other: other.resource.entry.ended_ms, default=fetches[0])


def _weight(resource: Resource) -> tuple[int, str]:
    """Best estimate of the bytes of a body on the wire, and the encoding of the body.

    For HTTP/2 and later, browsers report header and body as one number: Chromium as the transfer size, Firefox as the
    body size. If this number exceeds Content-Length by at most `_HEADER_MOST` bytes, Content-Length is the weight. For
    a response from a cache, or without a recorded size, the weight is the size of the decoded body. If its header names
    a content coding, the weight is instead the size of the decoded body after compression by gzip. A body whose weight
    is below its decoded size was compressed, even if its header names no content coding.
    """
    entry = resource.entry
    compressed = entry.received.get("content-encoding", "").lower() not in ("", "identity")
    plain = entry.plain_bytes
    if entry.cached or (entry.body_bytes is None and entry.transfer_bytes is None):
        if compressed and entry.body and resource.kind not in _PACKED:
            return len(gzip_compress(entry.body)) + GZIP_PADDING[0], "gzip"
        return plain, "identity"
    wire = entry.transfer_bytes or 0 if entry.body_bytes is None else entry.body_bytes
    length = entry.received.get("content-length", "")
    if length.isascii() and length.isdigit() and int(length) > 0 and 0 < wire - int(length) <= _HEADER_MOST:
        wire = int(length)
    compressed = compressed or 0 < wire < plain
    if not compressed and entry.body is not None:
        return plain, "identity"
    return wire, "gzip" if compressed and wire and resource.kind not in _PACKED else "identity"


def _note_caches(load: ColdLoad, notes: list[str]) -> None:
    cached = sum(resource.entry.cached for resource in load.resources)
    if cached:
        notes.append(
            f"{cached} of {len(load.resources)} responses recorded with a warm cache; their weight is that of the "
            "decoded body"
        )
    cut = sum(resource.entry.cut for resource in load.resources)
    if cut:
        notes.append(f"{cut} cut by the recorder: bodies made to their weight")
