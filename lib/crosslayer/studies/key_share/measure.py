"""What a post-quantum key share in the client's hello, as browsers send it today, costs."""

from __future__ import annotations

import subprocess
import time
from dataclasses import asdict
from typing import Any

from crosslayer import dns
from crosslayer.campaign.measurer import Bench, Measurer
from crosslayer.campaign.plan import Cell
from crosslayer.campaign.store import Rows
from crosslayer.dns.capture import measure as count_packets
from crosslayer.dns.exchange import CLIENTS
from crosslayer.stub import Stub, StubSettings
from crosslayer.testbed import network

_QUESTION_TIMEOUT_S = 10.0
_KEY_SHARES = {
    f"{protocol}, {variant}": (protocol, variant)
    for protocol in (dns.Protocol.DOQ, dns.Protocol.DOT)
    for variant in ("x25519", "x25519mlkem768")
}


class KeyShare(Measurer):
    """Full handshakes with and without the post-quantum key share, by four stubs on loopback addresses.

    Chromium has no switch for its key share any more; Go's TLS and quic-go, which the stub uses, let it be chosen.
    """

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self._capture = dns.Capture()
        self._stubs: dict[str, Stub] = {}
        upstream = dns.Resolver(network.SERVER_ADDRESS, server_name="localhost", ca_file=bench.server.ca_file)
        try:
            for number, (condition, (protocol, variant)) in enumerate(_KEY_SHARES.items(), 1):
                settings = StubSettings.towards(
                    upstream,
                    protocol,
                    dns.Resumption.NONE,
                    listen=f"127.0.0.{number}:53",
                    post_quantum=variant == "x25519mlkem768",
                )
                folder = bench.folder / f"stub-{number}"
                self._stubs[condition] = Stub.start(subprocess.Popen, settings, folder)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop the stubs."""
        for stub in self._stubs.values():
            stub.stop()
        self._capture.close()

    def conditions(self, cell: Cell) -> list[str]:
        """DoQ and DoT with either key share."""
        return list(_KEY_SHARES)

    def place(self, condition: str) -> tuple[str, dict[str, Any]]:
        """Table and columns of a condition."""
        protocol, variant = _KEY_SHARES[condition]
        return "dns_exchanges", {
            "protocol": protocol.value,
            "resumption": "none",
            "warming": False,
            "variant": variant,
        }

    def warm_up(self) -> None:
        """One exchange of each kind."""
        page = self.bench.pages[self.bench.plan.pages[0]]
        for condition in _KEY_SHARES:
            self._exchange(condition, page.host)

    def measure(self, condition: str, cell: Cell, round_number: int, position: int) -> Rows:
        """One exchange on a new connection."""
        row = self.row(condition, cell, round_number, position)
        return {"dns_exchanges": [row | self._exchange(condition, self.bench.pages[cell.page].host)]}

    def _exchange(self, condition: str, name: str) -> dict[str, Any]:
        stub = self._stubs[condition]
        stub.forget()
        stub.metrics()  # what came before is not of this exchange
        address = stub.listen.rpartition(":")[0]
        settings = dns.ClientSettings(timeout_s=_QUESTION_TIMEOUT_S, udp_retransmit_s=_QUESTION_TIMEOUT_S)
        started = time.time()
        with self._capture.record() as recording:
            asked = dns.exchange(dns.Resolver(address), dns.Question(name), dns.Protocol.DOUDP, settings=settings)
        told = stub.metrics()
        if asked.error or len(told) != 1:
            return {"started_s": started, "error": asked.error or f"the stub told of {len(told)} queries, not of one"}
        query = told[0]
        found: dict[str, Any] = {"started_s": query.time_ns / 1e9, "error": query.error or None}
        if not query.new_connection:
            found["error"] = found["error"] or "the stub had a connection left"
        sizes: dict[str, int | None] = {}
        if recording.complete:
            counted = count_packets(
                recording.packets,
                ip_protocol=CLIENTS[query.protocol].ip_protocol,
                local_port=query.local_port,
                server=(network.SERVER_ADDRESS, dns.DEFAULT_PORTS[query.protocol]),
                query_at_ns=query.time_ns + round(query.handshake_ms * 1e6),
                answered_at_ns=query.time_ns + round(query.total_ms * 1e6),
                closed_at_ns=time.time_ns(),
            )
            sizes = asdict(counted)
        return (
            found
            | sizes
            | {
                "handshake_ms": query.handshake_ms,
                "query_ms": query.query_ms,
                "total_ms": query.total_ms,
                "session_resumed": query.resumed,
            }
        )


MEASURER = KeyShare
