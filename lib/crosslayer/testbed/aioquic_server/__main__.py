"""The server's main program: opens the listeners, executes commands of the control socket, and ends on SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import selectors
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from crosslayer.errors import CrosslayerError
from crosslayer.testbed.aioquic_server.answers import DnsZone
from crosslayer.testbed.aioquic_server.configuration import Configuration, read
from crosslayer.testbed.aioquic_server.events import EventLog
from crosslayer.testbed.aioquic_server.listeners import (
    DoqProtocol,
    Http3Protocol,
    QuicListener,
    ServerState,
    UdpListener,
    configuration,
)
from crosslayer.testbed.aioquic_server.site import load_site

_PATIENCE_S = 3.0
"""Maximum wait for the end of a handshake before the connection is closed, s."""
_MOST_LINE_BYTES = 1 << 17


class ControlCommands:
    """The commands of the control socket: one JSON object per line, answered by one JSON object."""

    def __init__(self, shared: ServerState, listening: list[str]) -> None:
        self._shared, self._listening = shared, listening
        self._known: dict[str, Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]] = {
            "ready": self._ready,
            "close-connections": self._close_connections,
            "rotate-ticket-keys": self._refuse_tickets,
            "early-data": self._early_data,
            "stats": self._stats,
        }

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer commands until the socket is closed."""
        with contextlib.suppress(ConnectionError, asyncio.LimitOverrunError, ValueError):
            while line := await reader.readline():
                writer.write(json.dumps(await self.execute(line)).encode() + b"\n")
                await writer.drain()
        writer.close()

    async def execute(self, line: bytes) -> dict[str, Any]:
        """Execute the command of a line and return the answer.

        If the command is refused, `ok` of the answer is false, and `error` is the reason.
        """
        try:
            command = json.loads(line)
            name = command["command"]
        except (ValueError, KeyError, TypeError):
            return _refusal("not a JSON object with a command")
        if name not in self._known:
            return _refusal(f"unknown command {name!r}")
        return await self._known[name](command)

    async def _ready(self, command: dict[str, Any]) -> dict[str, Any]:
        return {"ok": True, "listeners": self._listening}

    async def _close_connections(self, command: dict[str, Any]) -> dict[str, Any]:
        listener = command.get("listener", "")
        if listener not in ("", DoqProtocol.listener, Http3Protocol.listener):
            return _refusal(f"unknown listener {listener!r}")
        closing = [one for one in self._shared.connections if not listener or one.listener == listener]
        await asyncio.gather(*(one.close_politely(_PATIENCE_S) for one in closing))
        return {"ok": True, "closed": len(closing)}

    async def _refuse_tickets(self, command: dict[str, Any]) -> dict[str, Any]:
        self._shared.tickets.clear()
        return {"ok": True}

    async def _early_data(self, command: dict[str, Any]) -> dict[str, Any]:
        if (mode := command.get("mode")) != "on":
            return _refusal(f"aioquic accepts early data of each ticket; it has no mode {mode!r}")
        return {"ok": True}

    async def _stats(self, command: dict[str, Any]) -> dict[str, Any]:
        listeners = [DoqProtocol.listener, Http3Protocol.listener]
        opened = {name: sum(one.listener == name for one in self._shared.connections) for name in listeners}
        kinds = {"connections": "connection", "requests": "request", "queries": "query", "tokens": "token"}
        return {"ok": True, "open": opened} | {key: self._shared.events.totals(event) for key, event in kinds.items()}


def _refusal(why: str) -> dict[str, Any]:
    return {"ok": False, "error": why}


async def serve(given: Configuration) -> None:
    """Serve until SIGTERM; `OSError` if an address cannot be bound."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    with Path(given.events).open("a", encoding="utf-8") as events:
        site = load_site(Path(given.pages)) if given.pages else {}
        shared = ServerState(DnsZone(Path(given.zone)), site, EventLog(events), given.initial_window)
        settings = {
            protocol: configuration(given.certificate, given.key, protocol.listener, given.idle_timeout_s)
            for protocol in (DoqProtocol, Http3Protocol)
        }

        def quic(protocol: type[DoqProtocol] | type[Http3Protocol]) -> Callable[[], QuicListener]:
            return lambda: QuicListener(settings[protocol], protocol, shared)

        wanted: list[tuple[str, int, Callable[[], asyncio.DatagramProtocol]]] = [
            (given.resolver, 53, lambda: UdpListener(shared)),
            (given.resolver, 853, quic(DoqProtocol)),
            *((address, 443, quic(Http3Protocol)) for address in (given.resolver, *given.hosts)),
        ]
        transports = []
        for address, port, made in wanted:
            transport, _ = await loop.create_datagram_endpoint(made, local_addr=(address, port))
            transports.append(transport)
        commands = ControlCommands(shared, [f"{address}:{port}" for address, port, _ in wanted])
        control = await _control(given.control, commands)
        await ended.wait()
        control.close()
        for connection in list(shared.connections):
            connection.leave(connection.no_error, "")
        for transport in transports:
            transport.close()


async def _control(path: str, commands: ControlCommands) -> asyncio.Server:
    """Bind the control socket for this user only; a socket left by another process is replaced."""
    before = os.umask(0o177)
    try:
        return await asyncio.start_unix_server(commands.converse, path, limit=_MOST_LINE_BYTES)
    finally:
        os.umask(before)


def main() -> None:
    """Run the server with the configuration file that is the program's only argument."""
    try:
        given = read(Path(sys.argv[1]))
        # select(2) has a resolution of microseconds; epoll would round every timer of aioquic up to milliseconds.
        with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())) as runner:
            runner.run(serve(given))
    except (CrosslayerError, OSError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
