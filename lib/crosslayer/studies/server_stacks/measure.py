"""Measures the conditions of each server in every round; each aioquic server runs on a far host of its own."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

from crosslayer.campaign.conditions import FULL_HANDSHAKE, Exchange, Load, measuring
from crosslayer.campaign.measurer import Measurer, RoundContext
from crosslayer.campaign.plan import Cell, Plan
from crosslayer.campaign.store import Rows
from crosslayer.dns import Protocol
from crosslayer.studies import one_connection
from crosslayer.studies.server_stacks.stacks import FIRST, SECOND, WIDE, WINDOW, labelled
from crosslayer.testbed.second_server import AioquicServer, second_server_version, serving

_QUIC = (Protocol.DOH3, Protocol.DOQ)
CONDITIONS = {
    "DoUDP": Exchange(Protocol.DOUDP),
    **{f"{p}, {r}": Exchange(p, r) for p in _QUIC for r in p.transport.resumptions},
    "H3 1-RTT": FULL_HANDSHAKE,
    "H3 0-RTT": Load("0-rtt"),
    "H3 0-RTT without token": Load("0-rtt", "no-token", token=False),
}
"""Conditions of the study `combinations` that use QUIC, and the baseline of that study."""


class ServerStacks(Measurer):
    """Measures visits as in `one-connection`, DNS exchanges, and loads in Chromium, with each server.

    With the third server, aioquic with the window of quic-go, it measures visits only.
    """

    def __init__(self, context: RoundContext) -> None:
        super().__init__(context)
        self._kinds: list[Measurer] = []
        self._parts: dict[str, tuple[str, Measurer, str]] = {}
        self._others: list[AioquicServer] = []
        with contextlib.ExitStack() as stack:
            benches = {FIRST: context}
            for number, (name, window) in enumerate({SECOND: 0, WIDE: WINDOW}.items()):
                folder = context.folder / f"aioquic-{number}"
                server = stack.enter_context(
                    serving(context.server, context.addresses, folder / "server", number=number, initial_window=window)
                )
                self._others.append(server)
                benches[name] = replace(context, server=server, addresses=server.addresses, folder=folder)
            visits, others = one_connection.STUDY.measurer, measuring(CONDITIONS)
            for name, bench_of in benches.items():
                for kind in (visits,) if name == WIDE else (visits, others):
                    part = stack.enter_context(kind(bench_of))
                    self._kinds.append(part)
                    cell = context.plan.cells[0]  # these measurers have the same conditions in each cell
                    self._parts |= {f"{one}, {name}": (name, part, one) for one in part.conditions(cell)}
            self._stack = stack.pop_all()

    @staticmethod
    def versions(plan: Plan) -> dict[str, str]:
        """Version of the aioquic servers."""
        return {"second_server": second_server_version()}

    def conditions(self, cell: Cell) -> list[str]:
        """Names of all conditions with each server: condition, then server, e.g. `DoUDP, aioquic`."""
        return list(self._parts)

    def table_and_columns(self, condition: str) -> tuple[str, dict[str, Any]]:
        """Table and columns of a condition."""
        stack, part, name = self._parts[condition]
        table, columns = part.table_and_columns(name)
        return table, columns | {"condition": labelled(stack, columns["condition"])}

    def warm_up(self) -> None:
        """Warm up the measurers of each server."""
        for part in self._kinds:
            part.warm_up()

    def close(self) -> None:
        """Close browsers and captures, and stop the aioquic servers."""
        self._stack.close()

    def measure(self, condition: str, cell: Cell, round_number: int, position: int) -> Rows:
        """Make one observation; a prefix in the column `condition` of its rows names the server (`PREFIXES`)."""
        stack, part, name = self._parts[condition]
        rows = part.measure(name, cell, round_number, position)
        for server in self._others:
            server.raise_if_dead()
        return {
            table: [{**row, "condition": labelled(stack, row["condition"])} for row in some]
            for table, some in rows.items()
        }


MEASURER = ServerStacks
