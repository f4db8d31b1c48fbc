"""DNS clients, one for each transport and all with the same interface; and `exchange`, which measures one resolution.

Clients resolve names and measure times; they do not depend on campaigns, links or pages. `exchange` resolves one name
on a new connection and measures it. `Client` is for several queries on one connection.

    server = Resolver("10.53.0.2", "www.example.org", ca_file)
    sessions = SessionStore()
    with Capture() as capture:
        exchange(server, Question("www.example.org"), Protocol.DOQ, sessions=sessions, capture=capture, priming=True)
        row = exchange(
            server, Question("www.example.org"), Protocol.DOQ, Resumption.EARLY_DATA, sessions=sessions, capture=capture
        )
"""

from crosslayer.dns.capture import Capture
from crosslayer.dns.client import Client
from crosslayer.dns.errors import DnsError
from crosslayer.dns.exchange import client_for, exchange, sizes, tcp_rtt
from crosslayer.dns.message import Answer, Query, build_query, check_answer
from crosslayer.dns.model import (
    DEFAULT_PORTS,
    ClientSettings,
    ExchangeResult,
    KeyShareGroup,
    Protocol,
    Question,
    Resolver,
    Resumption,
    Sizes,
)
from crosslayer.dns.paced import Asked, Asker, Due, ask_at_pace
from crosslayer.dns.sessions import Session, SessionStore

__all__ = [
    "DEFAULT_PORTS",
    "Answer",
    "Asked",
    "Asker",
    "Capture",
    "Client",
    "ClientSettings",
    "DnsError",
    "Due",
    "ExchangeResult",
    "KeyShareGroup",
    "Protocol",
    "Query",
    "Question",
    "Resolver",
    "Resumption",
    "Session",
    "SessionStore",
    "Sizes",
    "ask_at_pace",
    "build_query",
    "check_answer",
    "client_for",
    "exchange",
    "sizes",
    "tcp_rtt",
]
