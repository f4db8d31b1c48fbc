"""Configuration of the aioquic server, read from a JSON file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from crosslayer.decode import checked, read_json
from crosslayer.testbed.errors import TestbedError

_AGAIN = "Start the server by `crosslayer.testbed.second_server`, which writes the file."


@dataclass(frozen=True, slots=True)
class Configuration:
    """Files, addresses and limits of a server; paths are strings, because JSON has no type for paths."""

    certificate: str
    """PEM file of the certificate."""
    key: str
    """PEM file of the certificate's private key."""
    zone: str
    """File of the DNS zone."""
    pages: str
    """Folder of the built pages; empty for none."""
    resolver: str
    """Address for DNS queries: DoUDP on port 53, DoQ on 853, DoH3 on 443."""
    hosts: tuple[str, ...]
    """Further addresses, which serve the pages over HTTP/3."""
    control: str
    """Path of the control socket."""
    events: str
    """File to which the server writes its events."""
    idle_timeout_s: float = 30.0
    initial_window: int = 0
    """Initial congestion window, datagrams. 0 selects aioquic's default, which is 10 (RFC 9002, section 7.2)."""


def read(file: Path) -> Configuration:
    """Read a configuration; if it is invalid, `TestbedError` names the file and the JSON key."""
    return checked(
        read_json(file, TestbedError, _AGAIN),
        Configuration,
        where=str(file),
        error=TestbedError,
        next_step=_AGAIN,
        json_file=True,
    )
