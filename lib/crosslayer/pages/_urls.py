"""The normal form of a URL, the same for recordings, page specifications, the server and a browser's events.

It follows RFC 3986, section 6.2.2, and the changes that browsers make before a request (WHATWG URL). Scheme and host
are in lower case, host names in ASCII (IDNA) and without a final dot. Backslashes before the query become slashes.
Default port, user name, fragment and dot segments are removed. In the path, an escape of an unreserved character is
decoded, and every other escape is in upper case. Characters that a path cannot contain are escaped; so are quotes,
parentheses and &, which have a meaning in documents, style sheets and scripts. The server changes escapes and
characters in the path of a request in the same way (`emulation/plugin/coalesce/pages.go`, `normalPath`).
"""

from __future__ import annotations

import ipaddress
import re
import string
from dataclasses import dataclass
from urllib.parse import urljoin, urlsplit

_UNRESERVED = frozenset((string.ascii_letters + string.digits + "-._~").encode())
_IN_PATH = _UNRESERVED | frozenset(b"!$*+,;=:@/")
_DEFAULT_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}
_OF_THE_WEB = re.compile(r"(https?|wss?):", re.IGNORECASE)
_BEFORE_QUERY = re.compile(r"[^?#]*")
_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})|(.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Url:
    """A URL in normal form."""

    scheme: str
    host: str
    """Host name in lower case, or IP address (IPv6 without brackets); empty if the URL has no host."""
    port: int | None
    """Port; None for the default port of the scheme."""
    path: str
    query: str
    """Query without its question mark; empty if the URL has none."""

    def __str__(self) -> str:
        return f"{self.address}?{self.query}" if self.query else self.address

    @property
    def address(self) -> str:
        """The URL without its query."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}{'' if self.port is None else f':{self.port}'}{self.path}"


def parse(text: str, base: Url | None = None) -> Url | None:
    """The normal form of a URL, or of a reference relative to `base`; None for any other text."""
    try:
        text = re.sub(r"[\t\n\r]", "", text).strip()
        if base is not None or _OF_THE_WEB.match(text):
            text = _BEFORE_QUERY.sub(lambda match: match[0].replace("\\", "/"), text, count=1)
        parts = urlsplit(urljoin(str(base), text) if base else text)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return None
    scheme = parts.scheme.lower()
    if not scheme:
        return None
    return Url(
        scheme=scheme,
        host=_host(host),
        port=None if port == _DEFAULT_PORTS.get(scheme) else port,
        path=normal_path(parts.path),
        query=parts.query,
    )


def normal_path(path: str) -> str:
    """The normal form of a URL's path."""
    escaped = b"".join(_escaped(*match.groups()) for match in _ESCAPE.finditer(_utf8(path))).decode("ascii")
    return _without_dots(escaped) or "/"


def normal_url(text: str) -> str:
    """The normal form of a URL; a text that is no URL is returned unchanged."""
    url = parse(text)
    return text if url is None else str(url)


def is_address(host: str) -> bool:
    """Whether a host is an IP address."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _escaped(escape: bytes | None, other: bytes | None) -> bytes:
    if other is not None:
        return other if other[0] in _IN_PATH else b"%%%02X" % other[0]
    value = int(escape or b"0", 16)
    return bytes((value,)) if value in _UNRESERVED else b"%%%02X" % value


def _without_dots(path: str) -> str:
    """A path without dot segments (RFC 3986, section 5.2.4)."""
    if "/." not in path:
        return path
    kept: list[str] = []
    segments = path.split("/")
    for number, segment in enumerate(segments):
        if segment == "..":
            del kept[max(len(kept) - 1, 1) :]
        elif segment != ".":
            kept.append(segment)
        if segment in (".", "..") and number == len(segments) - 1:
            kept.append("")
    return "/".join(kept)


def _host(host: str) -> str:
    host = host.rstrip(".").lower()
    if host.isascii():
        return host
    try:
        return host.encode("idna").decode("ascii")
    except UnicodeError:
        return host


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "replace" if any("\ud800" <= c <= "\udfff" for c in text) else "strict")
