"""The second server of the testbed: aioquic serves pages and DNS on a separate host at the far end of the link."""

from __future__ import annotations

import contextlib
import json
import platform
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from importlib import metadata
from pathlib import Path

from crosslayer.testbed import network
from crosslayer.testbed.certificates import make_certificates
from crosslayer.testbed.server import Server, zone_text

_CONFIGURATION = "aioquic.json"


class AioquicServer(Server):
    """The running program `aioquic_server`. It refuses commands that only the first server has."""

    name = "the second server"
    ready_timeout_s = 20.0

    @classmethod
    def command_line(cls, folder: Path) -> list[str]:
        """Command line of the program, with the configuration file that `serving` wrote in `folder`."""
        return [sys.executable, "-m", "crosslayer.testbed.aioquic_server", str(folder / _CONFIGURATION)]


@contextlib.contextmanager
def serving(
    first: Server, names: Iterable[str], folder: Path, *, number: int = 0, initial_window: int = 0
) -> Iterator[AioquicServer]:
    """Run an aioquic server with the same pages as the first server, for the duration of the block.

    Works only in the client's namespace of a testbed.

    Parameters
    ----------
    first
        The server whose pages are served.
    names
        Host names; each gets an address of its own.
    folder
        Private folder for keys, zone, control socket and events.
    number
        Number of the second server's host (`network.far_host`).
    initial_window
        Initial congestion window, datagrams; 0 selects aioquic's default.
    """
    with (
        network.far_host(number) as (namespace, resolver),
        network.far_names(list(names), number, namespace, resolver) as addresses,
    ):
        network.wait_for_carrier([network.LINK, namespace])
        with AioquicServer.writing(folder):
            certificates = make_certificates(
                folder, [*addresses, "localhost"], [resolver, *addresses.values(), "127.0.0.1"]
            )
            (folder / "zone").write_text(zone_text(addresses), encoding="utf-8")
            (folder / "events.jsonl").touch(mode=0o600)
            configuration = {
                "certificate": str(certificates.certificate_file),
                "key": str(certificates.key_file),
                "zone": str(folder / "zone"),
                "pages": str(first.pages_dir or ""),
                "resolver": resolver,
                "hosts": list(addresses.values()),
                "control": str(folder / "control"),
                "events": str(folder / "events.jsonl"),
                "initial_window": initial_window,
            }
            (folder / _CONFIGURATION).write_text(json.dumps(configuration, indent=2) + "\n", encoding="utf-8")
        spawn = partial(network.spawn, namespace)
        with AioquicServer.launch(spawn, folder, certificates, addresses, first.pages_dir, resolver) as server:
            yield server


def second_server_version() -> str:
    """Versions of aioquic and of the Python that runs it."""
    return f"aioquic-{metadata.version('aioquic')} python-{platform.python_version()}"
