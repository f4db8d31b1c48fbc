"""HTTP requests and checks of responses, common to DoH and DoH3 (RFC 8484). No I/O."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass, field

from crosslayer.dns.message import MAX_MESSAGE_BYTES, Query
from crosslayer.dns.model import ClientSettings, Protocol, Resolver

CONTENT_TYPE = "application/dns-message"
MAX_HEADER_BYTES = 65536
"""Maximum size of a response's header fields, bytes; the default of the h2 library."""

_FIELD_OVERHEAD_BYTES = 32
"""Bytes that count for each header field, in addition to its name and value, in the size of all fields.

See RFC 9113, section 6.5.2, and RFC 9114, section 4.2.2.
"""

_HTTPS_PORT = 443


def request(
    query: Query, server: Resolver, settings: ClientSettings, protocol: Protocol
) -> tuple[list[tuple[str, str]], bytes]:
    """Header fields and body of the request for a query (RFC 8484, section 4.1)."""
    port = server.ports[protocol]
    host = f"[{server.server_name}]" if ":" in server.server_name else server.server_name
    authority = host if port == _HTTPS_PORT else f"{host}:{port}"
    get = settings.http_method == "GET"
    encoded = base64.urlsafe_b64encode(query.wire).rstrip(b"=").decode()
    headers = [
        (":method", settings.http_method),
        (":scheme", "https"),
        (":authority", authority),
        (":path", f"{server.path}?dns={encoded}" if get else server.path),
        ("accept", CONTENT_TYPE),
    ]
    if get:
        return headers, b""
    headers += [("content-type", CONTENT_TYPE), ("content-length", str(len(query.wire)))]
    return headers, query.wire


@dataclass(slots=True)
class Response:
    """A response that is being received."""

    headers: dict[bytes, bytes] = field(default_factory=dict)
    header_bytes: int = 0
    """Size of all header fields (RFC 9114, section 4.2.2)."""
    body: bytearray = field(default_factory=bytearray)
    ended: bool = False

    def take_headers(self, fields: Iterable[tuple[bytes, bytes]]) -> None:
        """Add a field section of the response."""
        for name, value in fields:
            self.header_bytes += len(name) + len(value) + _FIELD_OVERHEAD_BYTES
            self.headers[name] = value

    @property
    def done(self) -> bool:
        """Whether to stop receiving: the response has ended, or is too large to carry a DNS message."""
        return self.ended or len(self.body) > MAX_MESSAGE_BYTES or self.header_bytes > MAX_HEADER_BYTES

    @property
    def age_s(self) -> int:
        """Time that the response spent in HTTP caches, s; 0 without a valid Age (RFC 9111, section 5.1)."""
        age = self.headers.get(b"age", b"0").strip()
        return int(age) if age.isdigit() else 0

    def message(self) -> bytes:
        """The DNS message; `ValueError` with the fault if the response is invalid."""
        if self.header_bytes > MAX_HEADER_BYTES:
            raise ValueError(f"http header fields of {self.header_bytes} bytes")
        status = self.headers.get(b":status", b"").decode("latin-1")
        if status != "200":
            raise ValueError(f"http status {status}")
        content_type = self.headers.get(b"content-type", b"").decode("latin-1").partition(";")[0].strip().lower()
        if content_type != CONTENT_TYPE:
            raise ValueError(f"content type {content_type or 'missing'}")
        encoding = self.headers.get(b"content-encoding", b"identity").decode("latin-1").strip().lower()
        if encoding != "identity":  # the request accepts no other (RFC 9110, section 12.5.3)
            raise ValueError(f"content encoding {encoding}")
        return bytes(self.body)
