"""Exchanges and visits with server certificates of several sizes, and searches for the size that adds a round-trip.

The server's chain is one certificate of the run's CA, and every client verifies it. An extension pads the certificate
to the set size (`testbed.certificates`). The content of the padding does not matter, because packets depend only on the
size. No client offers certificate compression.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from crosslayer import dns
from crosslayer.campaign.evidence import exchange_columns, mismatch
from crosslayer.campaign.measurer import Measurer, RoundContext
from crosslayer.campaign.plan import Cell
from crosslayer.campaign.store import Rows
from crosslayer.campaign.visit import quiet
from crosslayer.dns import Protocol, Resumption
from crosslayer.studies.certificates import STUDY
from crosslayer.studies.certificates.conditions import CERTIFICATE, CERTIFICATE_AND_TOKEN, SEARCH
from crosslayer.studies.certificates.visits import Visit, visited
from crosslayer.testbed import network
from crosslayer.vocabulary import Sharing

SIZES = (736, 1248, 2500, 3500, 5113, 9000, 12000, 14724, 18000, 22000)
"""Sizes of TLS Certificate messages, bytes.

736: a Merkle-tree certificate (23 hashes). 1,248: today's certificates. 5,113: a large certificate of Mücke et al. (IMC
2024). 14,724: ML-DSA-44 (2 keys of 1,312 bytes, 5 signatures of 2,420 bytes).
"""

_FEW_SIZES = (SIZES[0], 14724, SIZES[-1])
"""Sizes that are measured with resumed sessions. Three suffice: a resumed session has no Certificate message."""
_VISIT_SIZES = tuple(size for size in SIZES if size not in (9000, 18000))
_STEP_WITHIN_BYTES = 16
_STEP_RTT = 0.5
"""Limit, multiples of the RTT.

An exchange has a further round-trip if its duration minus that with the smallest certificate exceeds this limit.
"""


class Brought(StrEnum):
    """What a client brings from an earlier connection."""

    NEITHER = "neither"
    TOKEN = "token"
    """Address-validation token (RFC 9000, section 8.1.3)."""
    TICKET = "ticket"
    """TLS session ticket, with which the server sends no certificate."""


@dataclass(frozen=True, slots=True)
class CertificateKind:
    """A kind of exchange: its transport, and what the client brings."""

    protocol: Protocol
    brought: Brought

    def __str__(self) -> str:
        return f"{self.protocol}, {self.brought}"

    @property
    def resumption(self) -> Resumption:
        """Resumption of the exchange: by ticket if the client brings one, otherwise none."""
        return Resumption.TICKET if self.brought is Brought.TICKET else Resumption.NONE

    def columns(self, size: int | None) -> dict[str, Any]:
        """Columns of a row. `size`: certificate size, bytes; None for a search, which tries several sizes."""
        with_token = self.brought is Brought.TOKEN
        condition = SEARCH if size is None else CERTIFICATE_AND_TOKEN if with_token else CERTIFICATE
        return {
            "protocol": self.protocol.value,
            "resumption": self.resumption.value,
            "condition": condition,
            "server_certificate_bytes": size,
        }


_ON_TCP, _ON_QUIC = (Protocol.DOT, Protocol.DOH), (Protocol.DOQ, Protocol.DOH3)
KINDS = (
    *(CertificateKind(protocol, brought) for protocol in _ON_TCP for brought in (Brought.NEITHER, Brought.TICKET)),
    *(CertificateKind(protocol, brought) for protocol in _ON_QUIC for brought in Brought),
)
_EXCHANGES = {
    f"{kind}, {size}": (kind, size)
    for kind in KINDS
    for size in (_FEW_SIZES if kind.brought is Brought.TICKET else SIZES)
}
_SEARCHES = {f"{kind}, search": kind for kind in KINDS if kind.brought is Brought.NEITHER}
_VISITS = {
    f"{kind}, {size}": (kind, size)
    for kind in (
        Visit(sharing, ticket, token) for sharing in Sharing for ticket in (False, True) for token in (False, True)
    )
    for size in (_FEW_SIZES if kind.ticket else _VISIT_SIZES)
}


class CertificateSizes(Measurer):
    """DNS exchanges and visits with a server whose certificate has a set size."""

    def __init__(self, context: RoundContext) -> None:
        super().__init__(context)
        self._resolver = dns.Resolver(network.SERVER_ADDRESS, server_name="localhost", ca_file=context.server.ca_file)
        self._capture = dns.Capture()

    def close(self) -> None:
        """Close the capture."""
        self._capture.close()

    def conditions(self, cell: Cell) -> list[str]:
        """Every kind of exchange and of visit with its sizes, and the searches."""
        return [*_EXCHANGES, *_SEARCHES, *_VISITS]

    def table_and_columns(self, condition: str) -> tuple[str, dict[str, Any]]:
        """Table and columns of a condition."""
        if condition in _SEARCHES:
            return "dns_exchanges", _SEARCHES[condition].columns(None)
        if condition in _VISITS:
            visit, size = _VISITS[condition]
            return "resolved_loads", visit.columns(size)
        kind, size = _EXCHANGES[condition]
        return "dns_exchanges", kind.columns(size)

    def warm_up(self) -> None:
        """Make one exchange and one visit of each kind."""
        page = self.context.pages[self.context.plan.pages[0]]
        for kind in KINDS:
            self._exchange(kind, SIZES[0], page.host)
        for visit, size in _VISITS.values():
            if size == SIZES[0]:
                visited(visit, size, page, self.context.server, self.context.addresses[page.host])

    def measure(self, condition: str, cell: Cell, round_number: int, position: int) -> Rows:
        """Make one exchange or one visit, or all exchanges of a search."""
        row = self.row(condition, cell, round_number, position)
        page = self.context.pages[cell.page]
        name = page.host
        if condition in _VISITS:
            row["started_s"] = time.time()
            try:
                columns = visited(*_VISITS[condition], page, self.context.server, self.context.addresses[name])
            except dns.DnsError as fault:
                columns = {"error": str(fault)}
            return {"resolved_loads": [row | columns]}
        if condition in _SEARCHES:
            kind = _SEARCHES[condition]
            rtt_ms = STUDY.profiles(self.context.plan)[cell.link].rtt_ms
            return {"dns_exchanges": [row | asked for asked in self._search(kind, name, rtt_ms)]}
        kind, size = _EXCHANGES[condition]
        return {"dns_exchanges": [row | self._exchange(kind, size, name)]}

    def _search(self, kind: CertificateKind, name: str, rtt_ms: float) -> Iterator[dict[str, Any]]:
        """Search by bisection for the certificate size that adds a round-trip; yields the exchanges.

        The search ends if the size lies between two tried sizes that differ by at most `_STEP_WITHIN_BYTES`, or if an
        exchange fails. If the largest size adds no round-trip, it ends after two exchanges.
        """
        low, high = SIZES[0], SIZES[-1]
        totals: dict[int, float] = {}
        size = low
        while True:
            exchange = self._exchange(kind, size, name) | {"server_certificate_bytes": size}
            yield exchange
            if exchange["error"]:
                return
            totals[size] = exchange["total_ms"]
            if len(totals) == 1:
                size = high
                continue
            if totals[size] - totals[SIZES[0]] > _STEP_RTT * rtt_ms:
                high = size
            else:
                low = size
            if high - low <= _STEP_WITHIN_BYTES:
                return
            size = (low + high) // 2

    def _exchange(self, kind: CertificateKind, size: int, name: str) -> dict[str, Any]:
        """Make one exchange with a certificate of this size, after a priming exchange if it needs ticket or token."""
        server, sessions = self.context.server, dns.SessionStore()
        server.set_certificate(size)
        asked = self._resolver, dns.Question(name), kind.protocol
        if kind.brought is not Brought.NEITHER:
            dns.exchange(*asked, sessions=sessions, priming=True)
        quiet(server)
        token = kind.brought is Brought.TOKEN
        result = dns.exchange(*asked, kind.resumption, sessions=sessions, capture=self._capture, token=token)
        columns = exchange_columns(result, server.events())
        expected = {"certificate_bytes": 0 if kind.brought is Brought.TICKET else size}
        if kind.protocol.transport.over_quic:
            expected["address_validated"] = token
        columns["error"] = columns["error"] or mismatch(columns, expected)
        return columns


MEASURER = CertificateSizes
