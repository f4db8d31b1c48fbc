"""An independent QUIC client (aioquic) for the server's tests: `early_client.py CA ADDRESS SERVER_NAME KIND`.

KIND is doq, doh3 or h3. The client makes three connections. The first obtains a ticket and an address-validation token,
the second sends its request as early data, the third resumes without early data. It prints one JSON object for each.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import struct
import sys

import dns.message
from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.events import ConnectionTerminated, HandshakeCompleted, QuicEvent, StreamDataReceived
from aioquic.tls import SessionTicket


class Client(QuicConnectionProtocol):
    """A client that sends one request and stores the response."""

    def __init__(self, connection: QuicConnection, stream_handler: None = None) -> None:
        super().__init__(connection, stream_handler)
        self.handshake: HandshakeCompleted | None = None
        self.status = ""
        self.body = b""
        self.answered = asyncio.get_running_loop().create_future()
        self.complete = asyncio.get_running_loop().create_future()
        # Created at once, because the server's settings arrive before the first request.
        self.http = H3Connection(connection) if connection.configuration.alpn_protocols == ["h3"] else None

    def ask(self, kind: str, name: str) -> None:
        """Send the request."""
        query = dns.message.make_query(name, "A", id=0, use_edns=0, pad=128).to_wire()
        stream = self._quic.get_next_available_stream_id()
        if self.http is None:
            self._quic.send_stream_data(stream, struct.pack("!H", len(query)) + query, end_stream=True)
        else:
            encoded = base64.urlsafe_b64encode(query).rstrip(b"=")
            path = b"/dns-query?dns=" + encoded if kind == "doh3" else b"/"
            headers = [(b":method", b"GET"), (b":scheme", b"https"), (b":authority", name.encode()), (b":path", path)]
            self.http.send_headers(stream, headers, end_stream=True)
        self.transmit()

    def quic_event_received(self, event: QuicEvent) -> None:
        if isinstance(event, HandshakeCompleted):
            self.handshake = event
            self.complete.set_result(None)
        elif isinstance(event, ConnectionTerminated) and not self.answered.done():
            self.answered.set_exception(ConnectionError(event.reason_phrase))
        elif self.http is None and isinstance(event, StreamDataReceived):
            self.body += event.data
            if event.end_stream:
                self.answered.set_result(None)
        elif self.http is not None:
            for http_event in self.http.handle_event(event):
                if isinstance(http_event, HeadersReceived):
                    self.status = dict(http_event.headers)[b":status"].decode()
                elif isinstance(http_event, DataReceived):
                    self.body += http_event.data
                if getattr(http_event, "stream_ended", False):
                    self.answered.set_result(None)


async def main(ca_file: str, address: str, name: str, kind: str) -> None:
    tickets: list[SessionTicket] = []
    tokens: list[bytes] = []
    for early in (False, True, False):
        configuration = QuicConfiguration(
            alpn_protocols=["doq" if kind == "doq" else "h3"],
            cafile=ca_file,
            verify_mode=ssl.CERT_REQUIRED,
            server_name=name,
            session_ticket=tickets[-1] if tickets else None,
            token=tokens[-1] if tokens else b"",
        )
        async with connect(
            address,
            853 if kind == "doq" else 443,
            configuration=configuration,
            create_protocol=Client,
            session_ticket_handler=tickets.append,
            token_handler=tokens.append,
            wait_connected=False,
        ) as client:
            assert isinstance(client, Client)
            async with asyncio.timeout(10):
                if not early:
                    client.transmit()
                    await client.complete
                client.ask(kind, name)
                await client.answered
                await client.complete
                await client.ping()  # after it, all data that follows the handshake has arrived, including the ticket
        assert client.handshake is not None
        print(
            json.dumps(
                {
                    "early": early,
                    "accepted": client.handshake.early_data_accepted,
                    "resumed": client.handshake.session_resumed,
                    "status": client.status,
                    "bytes": len(client.body),
                }
            )
        )


asyncio.run(main(*sys.argv[1:]))
