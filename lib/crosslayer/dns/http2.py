"""DoH: DNS over HTTPS on HTTP/2 (RFC 8484, RFC 9113)."""

from __future__ import annotations

from contextlib import suppress

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings

from crosslayer.dns.errors import DnsError
from crosslayer.dns.http import Response, request
from crosslayer.dns.message import Query
from crosslayer.dns.model import Protocol
from crosslayer.dns.sessions import Session
from crosslayer.dns.tls import TlsClient


class DoHClient(TlsClient):
    """Client of DoH. It sends connection preface and settings with the first request, in one TLS record."""

    protocol = Protocol.DOH
    alpn = Protocol.DOH.transport.alpn
    _age_s = 0

    def _prepare(self, session: Session) -> None:
        super()._prepare(session)
        self._http = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding=None))
        self._http.local_settings = h2.settings.Settings(
            client=True, initial_values={h2.settings.SettingCodes.ENABLE_PUSH: 0}
        )
        self._http.initiate_connection()
        self._requested: tuple[Query, int] | None = None

    @property
    def age_s(self) -> int:
        """Time that the last answer spent in HTTP caches, s."""
        return self._age_s

    def close(self) -> None:
        """Send pending HTTP/2 frames, e.g. the acknowledgement of the server's SETTINGS, then close."""
        if self._connection is not None and self._secured:
            with suppress(DnsError), self._faults():
                self._flush_http()
        super().close()

    def _open(self, first: Query | None) -> None:
        super()._open(first)
        if first is not None:
            with self.timeline.preparation():
                self._requested = first, self._request(first)

    def _request(self, query: Query) -> int:
        """Queue the HTTP/2 request for a query; returns the ID of its stream."""
        headers, body = request(query, self.server, self.settings, self.protocol)
        stream: int = self._http.get_next_available_stream_id()
        self._http.send_headers(stream, headers, end_stream=not body)
        if body:
            self._http.send_data(stream, body, end_stream=True)
        return stream

    def _ask(self, query: Query) -> bytes:
        requested, self._requested = self._requested, None
        stream = requested[1] if requested is not None and requested[0] is query else self._request(query)
        self._flush_http()
        response = Response()
        while not response.done:
            data = self._receive()
            try:
                for event in self._http.receive_data(data):
                    self._handle(event, stream, response)
            except h2.exceptions.ProtocolError as error:
                raise self._fault(f"http/2: {error}") from error
            # Send replies to the server's frames, e.g. acknowledge its SETTINGS, only when no received data is left.
            if not response.done and not self._readable():
                self._flush_http()
        try:
            message = response.message()
        except ValueError as error:
            raise self._fault(str(error)) from None
        self._age_s = response.age_s
        return message

    def _handle(self, event: h2.events.Event, stream: int, response: Response) -> None:
        if isinstance(event, h2.events.ConnectionTerminated):
            raise self._fault(f"http/2: connection closed by the server, code {int(event.error_code or 0)}")
        if getattr(event, "stream_id", None) != stream:
            return
        if isinstance(event, h2.events.ResponseReceived):
            response.take_headers(event.headers or ())
        elif isinstance(event, h2.events.DataReceived):
            response.body += event.data or b""
            self._http.acknowledge_received_data(event.flow_controlled_length or 0, stream)
        elif isinstance(event, h2.events.StreamReset):
            raise self._fault(f"http/2: stream reset by the server, code {int(event.error_code or 0)}")
        elif isinstance(event, h2.events.StreamEnded):
            response.ended = True

    def _flush_http(self) -> None:
        data = self._http.data_to_send()
        if data:
            self._send(data)
