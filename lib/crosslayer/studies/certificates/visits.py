"""Visits: a client with or without ticket and token resolves a name and loads its page, on two connections or one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from crosslayer import dns
from crosslayer.campaign.evidence import mismatch
from crosslayer.campaign.visit import client_bringing, quiet, visit
from crosslayer.dns.quic import DoQClient, QuicClient
from crosslayer.dns.timing import collector_paused
from crosslayer.h3 import PageClient
from crosslayer.pages import PageSpec
from crosslayer.studies.certificates.conditions import CERTIFICATE, CERTIFICATE_AND_TOKEN, CERTIFICATE_NO_TOKEN
from crosslayer.testbed import network
from crosslayer.testbed.server import ConnectionEvent, Event, QueryEvent, RequestEvent, Server
from crosslayer.vocabulary import Http3, Protocol, Resumption, Sharing

_Client = TypeVar("_Client", bound=QuicClient)


@dataclass(frozen=True, slots=True)
class Visit:
    """A kind of visit: its connections, and what the client brings to each of them."""

    connections: Sharing
    ticket: bool
    """Whether the client has session tickets. It then resumes its sessions and sends early data."""
    token: bool
    """Whether the first packet of each connection has an address-validation token."""

    def __str__(self) -> str:
        brought = [name for name, has in (("ticket", self.ticket), ("token", self.token)) if has]
        return f"page, {self.connections}, {' and '.join(brought) or 'neither'}"

    @property
    def protocol(self) -> Protocol:
        """DNS transport of the lookup: DoH3 on one connection, DoQ on two."""
        return Protocol.DOH3 if self.connections is Sharing.SHARED else Protocol.DOQ

    def columns(self, size: int) -> dict[str, Any]:
        """Columns of `resolved_loads` that describe the visit. `size`: certificate size, bytes."""
        other = CERTIFICATE_NO_TOKEN if self.ticket else CERTIFICATE_AND_TOKEN
        return {
            "protocol": self.protocol.value,
            "resumption": (Resumption.EARLY_DATA if self.ticket else Resumption.NONE).value,
            "connections": self.connections.value,
            "h3": (Http3.ZERO_RTT if self.ticket else Http3.ONE_RTT).value,
            "condition": CERTIFICATE if self.token is self.ticket else other,
            "server_certificate_bytes": size,
        }


def visited(kind: Visit, size: int, page: PageSpec, server: Server, address: str) -> dict[str, Any]:
    """Make one visit; returns its times and evidence as columns. Raises `DnsError` without an answer.

    Parameters
    ----------
    kind
        Kind of the visit.
    size
        Size of the server's Certificate message, bytes.
    page, address
        Page that is loaded, and the IP address of its host.
    server
        Server of both DNS and page.
    """
    server.set_certificate(size)

    def bringing(of: type[_Client], to: dns.Resolver) -> _Client:
        return client_bringing(of, to, page.host, ticket=kind.ticket, token=kind.token)

    resolving: QuicClient
    if kind.connections is Sharing.SHARED:
        # The resolver has the page's own address, so the connection already goes to the address in the answer.
        resolving = loading = bringing(PageClient, dns.Resolver(address, page.host, server.ca_file))
    else:
        resolver = dns.Resolver(network.SERVER_ADDRESS, "localhost", server.ca_file)
        resolving = bringing(DoQClient, resolver)
        loading = bringing(PageClient, dns.Resolver(address, page.host, server.ca_file))
    quiet(server)
    with collector_paused(), resolving, loading:
        columns = visit(page, resolving, loading)
        shown = [client.handshake.certificate_bytes for client in (resolving, loading)]
    evidence = _evidence(server.events(), kind, page, (resolving.local_port, loading.local_port))
    sent = 0 if kind.ticket else size
    error = columns["error"] or evidence["error"] or mismatch({"certificates": shown}, {"certificates": [sent, sent]})
    return evidence | columns | {"certificate_bytes": shown[1], "error": error}


def _evidence(
    events: Sequence[Event], kind: Visit, page: PageSpec, ports: tuple[int | None, int | None]
) -> dict[str, Any]:
    """Columns of a visit from the server log. `error` describes what contradicts the kind of the visit, or is None."""

    def of(port: int | None, what: type[Event]) -> Iterable[Any]:
        return [event for event in events if isinstance(event, what) and event.remote.endswith(f":{port}")]

    connections = {event.remote for port in ports for event in of(port, ConnectionEvent)}
    queries = list(of(ports[0], QueryEvent))
    documents = [event for event in of(ports[1], RequestEvent) if (event.host, event.path) == (page.host, "/")]
    if len(queries) != 1 or len(documents) != 1:
        return {"error": f"the server saw {len(queries)} queries and {len(documents)} requests of the document"}
    shared = kind.connections is Sharing.SHARED
    evidence = {
        "connection_count": len(connections),
        "query_early": not queries[0].handshake_complete,
        "early_data_accepted": not documents[0].handshake_complete,
        "session_resumed": documents[0].resumed,
        "address_validated": documents[0].address_validated,
    }
    meant = {
        "connection_count": 1 if shared else 2,
        "query_early": kind.ticket,
        "early_data_accepted": kind.ticket and not shared,  # on one connection, the request follows the DNS answer
        "session_resumed": kind.ticket,
        "address_validated": kind.token,
    }
    of_resolver = {"the resolver's address_validated": queries[0].address_validated}
    meant_there = {"the resolver's address_validated": kind.token}
    return evidence | {"error": mismatch(evidence | of_resolver, meant | meant_there)}
