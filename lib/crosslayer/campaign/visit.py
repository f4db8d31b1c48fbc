"""A visit by our own clients: they resolve a name and load its page, on two connections or on one.

A study chooses the clients, with their tickets and tokens. All visits are made and timed in the same way.
"""

from __future__ import annotations

import time
from typing import Any, TypeVar

from crosslayer import dns
from crosslayer.dns.quic import QuicClient
from crosslayer.dns.timing import PhaseName
from crosslayer.h3 import PageClient
from crosslayer.pages import PageSpec
from crosslayer.testbed.server import Server

SETTINGS = dns.ClientSettings(timeout_s=60.0)
"""Client settings for all visits, with a long timeout.

On the slowest link, the largest page takes longer than the default timeout of a query.
"""

_QUIET_S = 0.2
"""Wait after which the link is idle, s.

On DSL, the last, padded datagrams of a closed connection delay the next packets by up to a third of an RTT. The pause
of one RTT before each observation does not help: the connection that fetches ticket and token is opened and closed
after this pause.
"""

_Client = TypeVar("_Client", bound=dns.Client)


def client_bringing(of: type[_Client], server: dns.Resolver, host: str, *, ticket: bool, token: bool) -> _Client:
    """Make a client with the ticket or the token of an earlier connection, with both, or with neither.

    With a ticket, the client sends early data. If ticket or token is needed, this function first makes the earlier
    connection, which resolves `host`; `DnsError` if this fails.
    """
    session = dns.Session()
    if ticket or token:
        query = dns.build_query(dns.Question(host), of.protocol, SETTINGS)
        with of(server, SETTINGS) as earlier:
            earlier.connect(query)
            earlier.query(query)
            earlier.wait_for_ticket()
            left = earlier.session
        session = dns.Session(left.ticket if ticket else None, left.token if token else b"")
    return of(server, SETTINGS, session=session, early_data=ticket)


def quiet(server: Server) -> None:
    """Wait until the link is idle, and discard the server's events so far."""
    time.sleep(_QUIET_S)
    server.events()


def visit(
    page: PageSpec,
    resolving: dns.Client,
    loading: PageClient,
    *,
    waits_for_settings: bool = False,
    at_once: bool = False,
) -> dict[str, Any]:
    """Resolve the name of a page and load the page; `DnsError` if this fails.

    Returns columns of `resolved_loads`; times are counted from the first packet.

    Parameters
    ----------
    page
        The page to load.
    resolving, loading
        Client that resolves the page's name and client that loads the page, not yet connected. If both are the same
        client, name and page use one connection.
    waits_for_settings
        Whether requests on the page's connection wait for the server's SETTINGS (RFC 9114, section 7.2.4).
    at_once
        Whether the document is requested together with the query for its name. This requires one connection.
    """
    query = dns.build_query(dns.Question(page.host), resolving.protocol, SETTINGS)
    shared = resolving is loading
    waits = shared and waits_for_settings
    # The first flight has the query, prepared in advance, unless SETTINGS or a request must come first.
    resolving.connect(None if waits or at_once else query)
    handshake = resolving.timeline.phases.get(PhaseName.HANDSHAKE)
    start_s = handshake.started_ns / 1e9 if handshake else time.monotonic()
    if waits:
        loading.wait_for_settings()
    fetch = loading.begin(page) if at_once else None
    wire = resolving.query(query)
    named_s = time.monotonic()
    if not shared:
        loading.companions = (resolving,) if isinstance(resolving, QuicClient) else ()
        loading.connect()
        if waits_for_settings:
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
        "started_s": time.time() - (time.monotonic() - start_s),
        "resolved_ms": ms(named_s),
        "settings_ms": ms(loading.settings_s),
        "response_start_ms": ms(fetch.document.started_s),
        "document_ms": ms(fetch.document.ended_s),
        "load_complete_ms": ms(fetch.complete_s),
        "arrived_ms": [(more.when_s - start_s) * 1e3 for more in fetch.document.arrivals],
        "arrived_bytes": [float(more.bytes) for more in fetch.document.arrivals],
        "received_bytes": [float(more.received_bytes) for more in fetch.document.arrivals],
        "first_flight_bytes": loading.first_flight_bytes,
        "error": error,
    }
