"""What the server log shows about an observation, and whether this is what the observation's condition requires."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from crosslayer import dns
from crosslayer.browser import ICON, PageLoad
from crosslayer.campaign import tables
from crosslayer.campaign.tables import DnsExchanges
from crosslayer.pages import PageSpec, normal_path
from crosslayer.testbed.server import Event, QueryEvent, RequestEvent, Server, TokenEvent


def mismatch(evidence: Mapping[str, Any], expected: Mapping[str, Any]) -> str | None:
    """Describe how evidence differs from the expected values, for the column `error`; None if it does not differ.

    Parameters
    ----------
    evidence
        Columns of the row, or other facts by name.
    expected
        Required values, by the names in `evidence`.
    """
    wrong = [
        f"{name} is {evidence[name]} instead of {value}" for name, value in expected.items() if evidence[name] != value
    ]
    return f"not as expected: {', '.join(wrong)}" if wrong else None


def keeps_token(events: Iterable[Event], host: str, needs_ticket: bool) -> bool | None:
    """Whether a browser has kept the token of its last connection to a host; None if the server sent no token.

    `needs_ticket` is whether the browser keeps a token only if it already has a session ticket of the server, as
    Chromium does. quic-go puts ticket and token into one packet, in random order. So on half of the connections the
    token comes first, and Chromium discards it; this function detects that. If the packet is retransmitted, the token
    arrives again, after the ticket, and Chromium keeps it.
    """
    kept: dict[str | None, bool] = {}
    to_host = None
    for event in events:
        if isinstance(event, TokenEvent):
            kept[event.remote] = kept.get(event.remote, False) or event.behind_ticket or not needs_ticket
        elif isinstance(event, RequestEvent) and event.listener == "h3" and event.host == host:
            to_host = event.remote
    return kept.get(to_host)


class TokenWatch:
    """Observes in the server log whether a browser keeps the token of its last connection to a host.

    Parameters
    ----------
    server
        The server of the host. `kept` consumes its events.
    host, needs_ticket
        As for `keeps_token`.
    """

    def __init__(self, server: Server, host: str, needs_ticket: bool) -> None:
        self._server, self._host, self._needs_ticket = server, host, needs_ticket
        self._events: list[Event] = []

    def kept(self) -> bool | None:
        """Whether the browser has kept the token, according to all events so far; see `keeps_token`."""
        self._events += self._server.events()
        return keeps_token(self._events, self._host, self._needs_ticket)


def load_evidence(
    events: Iterable[Event], page: PageSpec, *, early_data: bool, resumed: bool, validated: bool
) -> dict[str, Any]:
    """Columns of `page_loads` with the server log's evidence on the measured load, which is the page's last load.

    Parameters
    ----------
    events
        Events in the server log; they begin before the load.
    page
        The page that was loaded.
    early_data, resumed, validated
        Expected evidence: whether the request is early data, whether the handshake is resumed, and whether a token
        proves the client's address. `error` is set if the evidence differs. The log must also have a request over
        HTTP/3 to each of the page's other origins, and the connections of these requests must agree with `resumed`.
    """
    requests = [event for event in events if isinstance(event, RequestEvent) and event.listener == "h3"]
    documents = [event for event in requests if event.path == "/" and event.host == page.host]
    if not documents:
        return {"error": "the server saw no request of this load over HTTP/3"}
    document = documents[-1]
    evidence = document_columns(document)
    expected = {"early_data_accepted": early_data, "session_resumed": resumed, "address_validated": validated}
    others = [event for event in requests if event.time_ns >= document.time_ns and event.host in page.origins]
    error = mismatch(evidence, expected) or _other_hosts(others, page, resumed)
    return evidence | ({"error": error} if error else {})


def _other_hosts(requests: Sequence[RequestEvent], page: PageSpec, resumed: bool) -> str | None:
    """Error of a load if a request to the page's other origins is missing or not as expected; else None."""
    missing = sorted(set(page.origins) - {event.host for event in requests})
    if missing:
        return f"the server saw no request of this load over HTTP/3 for {', '.join(missing)}"
    wrong = sorted({event.host for event in requests if event.resumed is not resumed})
    if not wrong:
        return None
    return f"not as expected: session_resumed is {not resumed} instead of {resumed} for {', '.join(wrong)}"


def document_columns(request: RequestEvent) -> dict[str, Any]:
    """Columns of `page_loads` with the evidence on the request for a load's document."""
    return {
        "early_data_accepted": not request.handshake_complete,
        "session_resumed": request.resumed,
        "address_validated": request.address_validated,
        "ech_accepted": request.ech,
        "server_ms": server_ms(request),
        "key_share": request.key_share or None,
        "initial_packets": request.initials or None,
    }


def server_ms(request: RequestEvent) -> float:
    """Time that the server took to answer a request, ms."""
    return (request.done_ns - request.time_ns) / 1e6


def exchange_columns(result: dns.ExchangeResult, events: Iterable[Event]) -> dict[str, Any]:
    """Columns of `dns_exchanges` from the client's result of an exchange and, over QUIC, from the server log.

    The server logs whether a query over QUIC was early data, and whether the client's address was validated. `error` is
    set if early data is not as requested, or if the server logged no query of this exchange.
    """
    columns = DnsExchanges.taken(tables.EXCHANGE, result)
    if not result.protocol.transport.over_quic:
        return columns
    queries = [
        event
        for event in events
        if isinstance(event, QueryEvent)
        and event.listener == result.protocol.lower()
        and event.remote.endswith(f":{result.local_port}")
    ]
    if not queries:
        return columns | {
            "early_data_accepted": None,
            "error": result.error or "the server saw no query of this exchange",
        }
    query = queries[-1]
    columns |= {
        "early_data_accepted": not query.handshake_complete,
        "address_validated": query.address_validated,
        "key_share": query.key_share or None,
        "initial_packets": query.initials or None,
    }
    expected = {"early_data_accepted": result.resumption is dns.Resumption.EARLY_DATA}
    columns["error"] = result.error or mismatch(columns, expected)
    return columns


def incomplete(events: Iterable[Event], page: PageSpec, load: PageLoad) -> dict[str, str]:
    """Check that every resource of the page was requested and answered in the measured load.

    Returns the column `error` of `page_loads` if a resource failed or was not requested, else an empty dictionary.

    Parameters
    ----------
    events
        Events in the server log; they begin before the load. Events before the last request for the document do not
        count.
    page
        The page that was loaded.
    load
        The browser's report of the load, with the HTTP status of each response.
    """
    requests = [event for event in events if isinstance(event, RequestEvent) and event.host in page.looked_up]
    begins = [event.time_ns for event in requests if event.path == "/" and event.host == page.host]
    if not begins:
        return {}  # `load_evidence` reports this error
    measured = [event for event in requests if event.time_ns >= begins[-1] and event.path != ICON]
    answered = {(event.host, event.path) for event in measured if event.status == HTTPStatus.OK}
    failed = {
        f"https://{event.host}{event.path}": event.status
        for event in measured
        if (event.host, event.path) not in answered
    }
    for entry in load.resources:
        url, status = urlsplit(str(entry.get("name", ""))), entry.get("responseStatus") or 0
        if url.hostname in page.looked_up and status >= HTTPStatus.BAD_REQUEST and url.path != ICON:
            failed.setdefault(f"https://{url.hostname}{normal_path(url.path)}", status)
    if failed:
        first = next(iter(failed))
        return {"error": f"{_counted(len(failed), 'resource')} failed, the first is {first} ({failed[first]})"}
    missing = [
        f"https://{host}{path}"
        for resource in page.resources
        if (host := resource.origin or page.host, path := normal_path(resource.path)) not in answered
    ]
    if missing:
        return {"error": f"{_counted(len(missing), 'resource')} not requested, the first is {missing[0]}"}
    return {}


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
