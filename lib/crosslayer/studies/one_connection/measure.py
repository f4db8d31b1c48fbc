"""Name and page on one connection or on two, by our own clients: Chromium never puts DoH on a page's connection."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, TypeVar

from cryptography import x509

from crosslayer import dns
from crosslayer.campaign.measurer import Measurer
from crosslayer.campaign.plan import Cell
from crosslayer.campaign.store import Rows
from crosslayer.dns.exchange import CLIENTS
from crosslayer.dns.quic import QuicClient
from crosslayer.dns.timing import PhaseName, collector_paused
from crosslayer.h3 import PageClient
from crosslayer.pages import PageSpec
from crosslayer.studies.one_connection.modes import BASELINE, MODES, Mode
from crosslayer.testbed import network
from crosslayer.testbed.server import Event, QueryEvent, RequestEvent
from crosslayer.words import Resumption, Sharing

SETTINGS = dns.ClientSettings(timeout_s=60.0)
"""The largest page takes longer than a query may, on the slowest link."""

QUIET_S = 0.2
"""Time before each load in which the link falls idle: on DSL the last, padded datagram of a connection that was closed
takes a third of an RTT from whoever comes next."""

_Client = TypeVar("_Client", bound=dns.Client)


class OneConnection(Measurer):
    """Loads by modes; before each resumed one, a connection that leaves its ticket, and the token or not."""

    def conditions(self, cell: Cell) -> list[str]:
        """Every mode."""
        return list(MODES)

    def place(self, condition: str) -> tuple[str, dict[str, Any]]:
        """Table and columns of a condition."""
        return "resolved_loads", MODES[condition].columns

    def warm_up(self) -> None:
        """One load."""
        self._load(BASELINE, self.bench.pages[self.bench.plan.pages[0]])

    def close(self) -> None:
        """Nothing is kept between loads."""

    def measure(self, condition: str, cell: Cell, round_number: int, position: int) -> Rows:
        """One load."""
        row = self.row(condition, cell, round_number, position) | {"started_s": time.time()}
        try:
            found = self._load(MODES[condition], self.bench.pages[cell.page])
        except dns.DnsError as fault:
            found = {"error": str(fault)}
        return {"resolved_loads": [row | found]}

    def _load(self, mode: Mode, page: PageSpec) -> dict[str, Any]:
        """Columns of a load, from times to evidence; `DnsError` where a part of it does not come."""
        address, ca_file = self.bench.addresses[page.host], self.bench.server.ca_file
        resolving: dns.Client
        if mode.connections is Sharing.SHARED:
            # The resolver at the page's own address: what the answer names is what the connection is to.
            resolver = dns.Resolver(address, "localhost", ca_file)
            resolving = loading = _client(PageClient, resolver, page, resumed=mode.resumed, token=mode.token)
        else:
            resolver = dns.Resolver(network.SERVER_ADDRESS, "localhost", ca_file)
            early = mode.resumption is Resumption.EARLY_DATA
            resolving = _client(CLIENTS[mode.protocol], resolver, page, resumed=early, token=mode.token)
            site = dns.Resolver(address, page.host, ca_file)
            loading = _client(PageClient, site, page, resumed=mode.resumed, token=mode.token)
        time.sleep(QUIET_S)
        self.bench.server.events()  # what came before is not of this load
        with collector_paused(), resolving, loading:
            found = _visit(mode, page, resolving, loading)
            found["error"] = found["error"] or _uncovered(loading, page)
        evidence = told(self.bench.server.events(), mode, page, (resolving.local_port, loading.local_port))
        return evidence | found | {"error": found["error"] or evidence["error"]}


def _client(of: type[_Client], server: dns.Resolver, page: PageSpec, *, resumed: bool, token: bool) -> _Client:
    """A client; where it resumes, after a connection that left its ticket, and the token where it is to have one."""
    session = None
    if resumed:
        query = dns.build_query(dns.Question(page.host), of.protocol, SETTINGS)
        with of(server, SETTINGS) as earlier:
            earlier.connect(query)
            earlier.query(query)
            earlier.wait_for_ticket()
            session = earlier.session if token else dns.Session(earlier.session.ticket)
    return of(server, SETTINGS, session=session, early_data=resumed)


def _visit(mode: Mode, page: PageSpec, resolving: dns.Client, loading: PageClient) -> dict[str, Any]:
    """Resolve and load; the clock starts with the first packet."""
    query = dns.build_query(dns.Question(page.host), mode.protocol, SETTINGS)
    shared = resolving is loading
    waits = shared and mode.waits_for_settings
    # What leaves with the first flight is made before: the query, unless something else comes first.
    resolving.connect(None if waits or mode.at_once else query)
    handshake = resolving.timeline.phases.get(PhaseName.HANDSHAKE)
    start_s = handshake.started_ns / 1e9 if handshake else time.perf_counter()
    if waits:
        loading.wait_for_settings()
    fetch = loading.begin(page) if mode.at_once else None
    wire = resolving.query(query)
    named_s = time.perf_counter()
    if not shared:
        loading.beside = (resolving,) if isinstance(resolving, QuicClient) else ()
        loading.connect()
        if mode.waits_for_settings:
            loading.wait_for_settings()
    fetch = fetch or loading.begin(page)
    loading.finish(fetch)
    answer = dns.check_answer(wire, query)
    error = answer.error
    if not error and answer.records != (loading.server.address,):
        error = f"the name's address is {', '.join(answer.records)}, the page's connection goes to another"

    def ms(moment_s: float | None) -> float | None:
        return None if moment_s is None else (moment_s - start_s) * 1e3

    return {
        "name_ms": ms(named_s),
        "settings_ms": ms(loading.settings_s),
        "response_start_ms": ms(fetch.document.started_s),
        "document_ms": ms(fetch.document.ended_s),
        "page_ms": ms(fetch.complete_s),
        "arrived_ms": [(more.when_s - start_s) * 1e3 for more in fetch.document.arrivals],
        "arrived_bytes": [float(more.bytes) for more in fetch.document.arrivals],
        "received_bytes": [float(more.received_bytes) for more in fetch.document.arrivals],
        "first_flight_bytes": loading.first_flight_bytes,
        "error": error,
    }


def _uncovered(client: PageClient, page: PageSpec) -> str | None:
    """What is wrong where the certificate that the client was shown is not the page's too (RFC 9114, section 3.3)."""
    if client.certificate is None:  # a resumed session's was checked when its ticket was issued
        return None
    names = client.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    if page.host in names.get_values_for_type(x509.DNSName):
        return None
    return f"the connection's certificate does not name {page.host}"


def told(events: Sequence[Event], mode: Mode, page: PageSpec, ports: tuple[int | None, int | None]) -> dict[str, Any]:
    """What the server says of a load; columns of `resolved_loads`, `error` where it was not what it was meant to be.

    Parameters
    ----------
    events
        What the server reported since the load began.
    mode, page
        What it was meant to be.
    ports
        The client's ports, of the name and of the page.
    """
    of_name, of_page = ([event for event in events if event.remote.endswith(f":{port}")] for port in ports)
    queries = [event for event in of_name if isinstance(event, QueryEvent)]
    requests = [event for event in of_page if isinstance(event, RequestEvent) and event.host == page.host]
    documents = [event for event in requests if event.path == "/"]
    if len(queries) != 1 or len(documents) != 1 or len(requests) != len(page.resources):
        return {
            "error": f"the server saw {len(queries)} queries, {len(documents)} requests of the document and "
            f"{len(requests)} of the page instead of 1, 1 and {len(page.resources)}"
        }
    query, document = queries[0], documents[0]
    over_quic = mode.protocol in (dns.Protocol.DOQ, dns.Protocol.DOH3)
    expected = 1 if mode.connections is Sharing.SHARED else 1 + over_quic
    over = (
        {query.remote, *(request.remote for request in requests)}
        if over_quic
        else {request.remote for request in requests}
    )
    evidence = {
        # Not by the reports of connections: a small page is there before the server has seen the handshake's end.
        "connection_count": len(over),
        "query_early": not query.handshake_complete if over_quic else None,
        "early_data_accepted": not document.handshake_complete,
        "session_resumed": document.resumed,
        "address_validated": document.address_validated,
    }
    meant = {
        "connection_count": expected,
        "query_early": mode.query_early if over_quic else None,
        "early_data_accepted": mode.request_early,
        "session_resumed": mode.resumed,
        "address_validated": mode.resumed and mode.token,
    }
    otherwise = [
        f"{name} is {evidence[name]} instead of {meant[name]}" for name in meant if evidence[name] != meant[name]
    ]
    return evidence | {"error": f"by the server's word {', '.join(otherwise)}" if otherwise else None}


MEASURER = OneConnection
