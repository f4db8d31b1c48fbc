"""DoH3 and pages on one connection, as a protocol core: no I/O and no clock; times are arguments."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from aioquic.quic.events import QuicEvent

from crosslayer.dns.http import Response
from crosslayer.dns.model import ClientSettings, Resolver
from crosslayer.dns.quic_core import DoH3Core
from crosslayer.dns.sessions import Session


class Arrival(NamedTuple):
    """Arrival of a part of a body."""

    when_s: float
    """Time of arrival, on the scale of the argument `now` of `PageCore`'s methods, seconds."""
    bytes: int
    """Bytes of the body received so far."""
    received_bytes: int
    """UDP payload that the connection has received so far, bytes."""


@dataclass(slots=True)
class PageResponse(Response):
    """The response to one request of a page load; its values are set as its parts arrive.

    Times are on the scale of the argument `now` of `PageCore`'s methods, seconds.
    """

    path: str = ""
    asked_s: float = 0.0
    """Time of the request."""
    started_s: float | None = None
    """Arrival of the response's header; None before."""
    ended_s: float | None = None
    arrivals: list[Arrival] = field(default_factory=list)
    """Arrivals of the parts of the body, in order."""


class PageCore(DoH3Core):
    """DoH3 and other HTTP requests on the same connection."""

    def __init__(self, server: Resolver, settings: ClientSettings, *, session: Session, early_data: bool) -> None:
        super().__init__(server, settings, session=session, early_data=early_data)
        self._pages: dict[int, PageResponse] = {}
        self._now = 0.0
        self.settings_s: float | None = None
        """Arrival of the server's SETTINGS (RFC 9114, section 7.2.4.2), on the scale of `now`, seconds."""
        self.first_flight_bytes = 0
        """UDP payload sent before any packet was received, bytes."""
        self.received_bytes = 0
        """UDP payload received, bytes."""

    def get(self, authority: str, path: str, priority: str, now: float) -> PageResponse:
        """Queue a GET request; `priority` is the value of its priority field (RFC 9218), empty for no such field."""
        assert self._http is not None, "get before start"
        stream = self._quic.get_next_available_stream_id()
        response = PageResponse(path=path, asked_s=now)
        self._responses[stream] = self._pages[stream] = response
        headers = {":method": "GET", ":scheme": "https", ":authority": authority, ":path": path}
        headers |= {"accept-encoding": "gzip"} | ({"priority": priority} if priority else {})
        encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
        self._http.send_headers(stream, encoded, end_stream=True)
        return response

    def receive(self, datagram: bytes, now: float) -> None:
        """Process a received datagram."""
        self._now = now
        self.received_bytes += len(datagram)
        super().receive(datagram, now)

    def datagrams(self, now: float) -> list[bytes]:
        """Datagrams to send now."""
        datagrams = super().datagrams(now)
        if not self.received_bytes:
            self.first_flight_bytes += sum(map(len, datagrams))
        return datagrams

    def _handle(self, event: QuicEvent) -> None:
        super()._handle(event)
        if self.settings_s is None and self._http is not None and self._http.received_settings is not None:
            self.settings_s = self._now
        # Check all streams: an update of QPACK's table may complete the header of any of them.
        for stream, response in list(self._pages.items()):
            if response.started_s is None and response.headers:
                response.started_s = self._now
            if len(response.body) > (response.arrivals[-1].bytes if response.arrivals else 0):
                response.arrivals.append(Arrival(self._now, len(response.body), self.received_bytes))
            if response.ended:
                response.ended_s = self._now
            if stream in self._reset:
                code = f"{self._reset[stream]:#x}"
                self.error = self.error or f"http/3: {response.path}: stream reset by the server, code {code}"
            if response.ended:
                del self._pages[stream]
