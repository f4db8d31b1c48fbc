"""Measures loads with name and page on one connection or on two.

crosslayer's own clients make the loads, because Chromium never resolves the name on the page's connection.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, TypeVar

from cryptography import x509

from crosslayer import dns
from crosslayer.campaign.evidence import mismatch
from crosslayer.campaign.measurer import Measurer
from crosslayer.campaign.plan import Cell
from crosslayer.campaign.store import Rows
from crosslayer.campaign.visit import client_bringing, quiet, visit
from crosslayer.dns.exchange import CLIENTS
from crosslayer.dns.timing import collector_paused
from crosslayer.h3 import PageClient
from crosslayer.pages import PageSpec
from crosslayer.studies.one_connection.modes import BASELINE, MODES, Mode
from crosslayer.testbed.server import Event, QueryEvent, RequestEvent
from crosslayer.vocabulary import Resumption, Sharing

_Client = TypeVar("_Client", bound=dns.Client)


class OneConnection(Measurer):
    """Measures a load in each mode.

    Before a resumed load, an earlier connection fetches the ticket and, if the mode uses it, the token.
    """

    def conditions(self, cell: Cell) -> list[str]:
        """All modes."""
        return list(MODES)

    def table_and_columns(self, condition: str) -> tuple[str, dict[str, Any]]:
        """Table and columns of a condition."""
        return "resolved_loads", MODES[condition].columns

    def warm_up(self) -> None:
        """Make one load."""
        self._load(BASELINE, self.context.pages[self.context.plan.pages[0]])

    def close(self) -> None:
        """Do nothing: no connection is kept between loads."""

    def measure(self, condition: str, cell: Cell, round_number: int, position: int) -> Rows:
        """Make one load; return its row."""
        row = self.row(condition, cell, round_number, position) | {"started_s": time.time()}
        try:
            columns = self._load(MODES[condition], self.context.pages[cell.page])
        except dns.DnsError as fault:
            columns = {"error": str(fault)}
        return {"resolved_loads": [row | columns]}

    def _load(self, mode: Mode, page: PageSpec) -> dict[str, Any]:
        """Make a load; return the columns of its times and its evidence. `DnsError` if lookup or page fails."""
        address, ca_file = self.context.addresses[page.host], self.context.server.ca_file

        def bringing(of: type[_Client], to: dns.Resolver, *, early: bool = mode.resumed) -> _Client:
            return client_bringing(of, to, page.host, ticket=early, token=early and mode.token)

        resolving: dns.Client
        if mode.connections is Sharing.SHARED:
            # The resolver has the page's address, so the connection already leads to the address in the answer.
            resolver = dns.Resolver(address, "localhost", ca_file)
            resolving = loading = bringing(PageClient, resolver)
        else:
            resolver = dns.Resolver(self.context.server.address, "localhost", ca_file)
            resolving = bringing(CLIENTS[mode.protocol], resolver, early=mode.resumption is Resumption.EARLY_DATA)
            loading = bringing(PageClient, dns.Resolver(address, page.host, ca_file))
        quiet(self.context.server)
        with collector_paused(), resolving, loading:
            columns = visit(page, resolving, loading, waits_for_settings=mode.waits_for_settings, at_once=mode.at_once)
            columns["error"] = columns["error"] or _uncovered(loading, page)
        evidence = evidence_columns(
            self.context.server.events(), mode, page, (resolving.local_port, loading.local_port)
        )
        return evidence | columns | {"error": columns["error"] or evidence["error"]}


def _uncovered(client: PageClient, page: PageSpec) -> str | None:
    """Error if the certificate of the connection does not cover the page's host (RFC 9114, section 3.3), else None."""
    if client.certificate is None:  # resumed session: the server sends no certificate
        return None
    names = client.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    if page.host in names.get_values_for_type(x509.DNSName):
        return None
    return f"the connection's certificate does not name {page.host}"


def evidence_columns(
    events: Sequence[Event], mode: Mode, page: PageSpec, ports: tuple[int | None, int | None]
) -> dict[str, Any]:
    """Columns of `resolved_loads` from the server log. `error` says how the load differs from its mode, or is None.

    Parameters
    ----------
    events
        Events of the server log since the start of the load.
    mode, page
        Mode and page of the load.
    ports
        The client's port of the connection on which it queries the name, and of that on which it loads the page.
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
    over_quic = mode.protocol.transport.over_quic
    expected = 1 if mode.connections is Sharing.SHARED else 1 + over_quic
    over = (
        {query.remote, *(request.remote for request in requests)}
        if over_quic
        else {request.remote for request in requests}
    )
    evidence = {
        # Not from connection events: a small page may arrive before the server has completed and logged the handshake.
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
    return evidence | {"error": mismatch(evidence, meant)}


MEASURER = OneConnection
