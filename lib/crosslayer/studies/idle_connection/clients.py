"""Clients that keep an idle connection: a forwarder, a program that uses `crosslayer.dns`, and a browser."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from crosslayer import dns
from crosslayer.campaign import tables
from crosslayer.campaign.tables import IdleRecoveries
from crosslayer.dns import Client, DnsError, Protocol, Query, Resolver, Resumption
from crosslayer.stub import Stub
from crosslayer.testbed.server import ConnectionEvent, Event, QueryEvent

RETRY_AFTER_S = 5.0
"""Time without an answer after which a client repeats its query, as the C library does (resolv.conf(5))."""
_MAX_QUERIES = 20
"""Maximum number of queries before a client gives up."""


@dataclass(frozen=True, slots=True)
class ClientAnswer:
    """Times of the first valid answer to a client, or the reason why no answer was valid."""

    asked: int
    """Number of queries up to the answer."""
    sent_ns: int
    """Time of the first query, Unix time in nanoseconds."""
    answered_ns: int | None = None
    """Time of the valid answer, Unix time in nanoseconds; None without a valid answer."""
    error: str | None = None


class IdleClient(ABC):
    """A client that keeps its connection to the server."""

    def __init__(self, events: Callable[[], list[Event]]) -> None:
        self._events = events

    @abstractmethod
    def ask(self) -> ClientAnswer:
        """Repeat a query until there is a valid answer, at most 20 times."""

    @abstractmethod
    def answer_columns(self) -> dict[str, Any]:
        """Columns of `idle_recoveries` that describe the connection of the last answer.

        A browser's columns come from the server log. Other clients report their columns themselves, except
        `early_data_accepted`, which also comes from the server log.
        """

    def discard_events(self) -> None:
        """Discard all events of the server log so far, because they do not belong to the next answer."""
        self._events()

    def _queries(self, protocol: Protocol) -> list[QueryEvent]:
        """Queries over a transport in the server log, since this client last read the log."""
        listener = protocol.value.lower()
        return [event for event in self._events() if isinstance(event, QueryEvent) and event.listener == listener]


def answer_error(asked: dns.Asked, query: Query) -> str | None:
    """Reason why an answer is not valid; None if it is valid."""
    if asked.answered_ns is None:
        return "no answer"
    return dns.check_answer(query.wire[:2] + asked.answer[2:], query).error


def query_once(asker: dns.Asker, query: Query, timeout_s: float) -> dns.Asked:
    """Send one query to a forwarder; return the query, with its answer if that came within `timeout_s`."""
    (asked,) = dns.ask_at_pace([asker], [dns.Due(0.0, 0)], query.wire, timeout_s=timeout_s)
    return asked


class ForwarderClient(IdleClient):
    """A forwarder that keeps the connection: our stub, or dnsproxy.

    The program that queries the forwarder repeats a query at once after SERVFAIL, or after 5 s without an answer.
    `stub` is None for dnsproxy, which does not report its queries.
    """

    def __init__(
        self, events: Callable[[], list[Event]], asker: dns.Asker, query: Query, stub: Stub | None = None
    ) -> None:
        super().__init__(events)
        self._asker, self._query, self._stub = asker, query, stub

    def ask(self) -> ClientAnswer:
        """Repeat a query to the forwarder until there is a valid answer, at most 20 times.

        The kernel takes the time at which the answer arrives.
        """
        asked = [query_once(self._asker, self._query, RETRY_AFTER_S)]
        while answer_error(asked[-1], self._query) is not None and len(asked) < _MAX_QUERIES:
            asked.append(query_once(self._asker, self._query, RETRY_AFTER_S))
        error = answer_error(asked[-1], self._query)
        return ClientAnswer(len(asked), asked[0].sent_ns, None if error else asked[-1].answered_ns, error)

    def discard_events(self) -> None:
        """Discard all events of the server log and all queries that the stub reported so far."""
        super().discard_events()
        if self._stub is not None:
            self._stub.metrics()

    def answer_columns(self) -> dict[str, Any]:
        """Columns of the last query as the stub reports them; empty for dnsproxy."""
        rows = self._stub.metrics() if self._stub is not None else []
        if not rows:
            return {}
        last = rows[-1]
        came = {int(event.remote.rpartition(":")[2]): event for event in self._queries(last.protocol)}
        query = came.get(last.local_port) if last.early_data else None
        early = None if query is None else not query.handshake_complete
        return IdleRecoveries.taken(tables.STUB, last) | {"early_data_accepted": early}


class LibraryClient(IdleClient):
    """A program that uses a client of `crosslayer.dns` and keeps its connection to the server.

    Between queries the program does not check the connection. After an error, or 5 s without an answer, it repeats the
    query on a new connection. The new connection resumes the session, with early data if the transport supports it.
    """

    def __init__(self, events: Callable[[], list[Event]], server: Resolver, protocol: Protocol, host: str) -> None:
        super().__init__(events)
        self._server, self._protocol = server, protocol
        self._settings = dns.ClientSettings(timeout_s=RETRY_AFTER_S, udp_retransmit_s=RETRY_AFTER_S)
        self._query = dns.build_query(dns.Question(host), protocol, self._settings)
        self._client: Client | None = None
        self._sessions = dns.SessionStore()
        self._new = False

    def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def ask(self) -> ClientAnswer:
        """Repeat a query until there is a valid answer, at most 20 times; the program itself takes the times."""
        sent_ns, error, self._new = time.time_ns(), None, False
        for asked in range(1, _MAX_QUERIES + 1):
            try:
                client = self._client or self._connected()
                checked = dns.check_answer(client.query(self._query), self._query)
                error = checked.error
            except DnsError as fault:
                error = fault.what
            answered_ns = time.time_ns()
            if error is None:
                self._sessions.put(self._server, self._protocol, client.session)
                return ClientAnswer(asked, sent_ns, answered_ns)
            self.close()
        return ClientAnswer(_MAX_QUERIES, sent_ns, error=error)

    def _connected(self) -> Client:
        most = self._protocol.transport.resumptions[-1]
        session = self._sessions.take(self._server, self._protocol)
        early = most is Resumption.EARLY_DATA and session.ticket is not None
        self._client = dns.client_for(self._protocol, self._server, self._settings, session=session, early_data=early)
        self._new = True
        self._client.connect(self._query)
        return self._client

    def answer_columns(self) -> dict[str, Any]:
        """Columns that describe the connection of the last answer; empty if this connection is closed."""
        if self._client is None:
            return {}
        came = {int(event.remote.rpartition(":")[2]): event for event in self._queries(self._protocol)}
        query = came.get(self._client.local_port or 0)
        return {
            "new_connection": self._new,
            "session_resumed": self._client.handshake.session_resumed,
            "early_data_accepted": not query.handshake_complete if query and self._new else None,
        }


class BrowserClient(IdleClient):
    """A browser that resolves names by itself and keeps the connection to the resolver.

    Each lookup has a new name, so that no cache has the answer. If the server received no query for the name, the
    browser looks up the next name at once.
    """

    def __init__(
        self,
        events: Callable[[], list[Event]],
        look_up: Callable[[str], tuple[float, float]],
        names: Callable[[], str],
        protocol: Protocol,
    ) -> None:
        super().__init__(events)
        self._look_up, self._names, self._listener = look_up, names, protocol.value.lower()
        self._opened: set[str] = set()
        self._last: QueryEvent | None = None

    def discard_events(self) -> None:
        """Discard all events of the server log so far; only connections opened after this call count as new."""
        super().discard_events()
        self._opened.clear()

    def ask(self) -> ClientAnswer:
        """Look up names until the server received a query, at most 20 times; the browser itself takes the times."""
        first_ns: int | None = None
        for asked in range(1, _MAX_QUERIES + 1):
            name = self._names()
            begin_ns, end_ns = (round(ms * 1e6) for ms in self._look_up(name))
            first_ns = begin_ns if first_ns is None else first_ns
            for event in self._events():
                if isinstance(event, ConnectionEvent) and not event.error:
                    self._opened.add(event.remote)
                elif isinstance(event, QueryEvent) and event.name.rstrip(".") == name:
                    self._last = event
            if self._last is not None and self._last.name.rstrip(".") == name:
                error = None if self._last.listener == self._listener else f"it asked over {self._last.listener}"
                return ClientAnswer(asked, first_ns, None if error else end_ns, error)
        return ClientAnswer(_MAX_QUERIES, first_ns or 0, error="no answer")

    def answer_columns(self) -> dict[str, Any]:
        """Columns that describe the connection of the last answer, from the server log.

        An old connection that the client migrated to another port still counts as old.
        """
        if self._last is None:
            return {}
        early = not self._last.handshake_complete  # the server logs a connection only after its handshake
        new = early or self._last.remote in self._opened
        return {
            "new_connection": new,
            "session_resumed": self._last.resumed,
            "early_data_accepted": early if new else None,
        }
