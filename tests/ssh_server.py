"""An SSH server (asyncssh) for tests: `python ssh_server.py ADDRESS PORT HOST_KEY AUTHORIZED_KEYS` prints its port.

The server runs each command as the user who started it. Port 0 means any free port.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import asyncssh


async def copy(source: asyncio.StreamReader, sink: Any) -> None:
    while data := await source.read(65536):
        sink.write(data)


async def run(process: Any) -> None:
    # Commands of the tests read no input.
    pipe, none = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    started = await asyncio.create_subprocess_shell(process.command, stdin=none, stdout=pipe, stderr=pipe)
    assert started.stdout is not None
    assert started.stderr is not None
    # Write the whole output before `exit` closes the channel, because writing to a closed channel ends the connection.
    await asyncio.gather(copy(started.stdout, process.stdout), copy(started.stderr, process.stderr))
    process.exit(await started.wait())


async def serve(address: str, port: int, host_key: str, authorized_keys: str) -> None:
    server = await asyncssh.listen(
        address,
        port,
        server_host_keys=[host_key],
        authorized_client_keys=authorized_keys,
        process_factory=run,
        encoding=None,
    )
    print(server.get_port(), flush=True)
    await server.wait_closed()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]))
