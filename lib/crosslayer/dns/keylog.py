"""TLS keys and qlogs of our QUIC clients, for the environment variables that browsers, curl and quic-go also use."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TextIO


def key_log() -> TextIO | None:
    """The file that SSLKEYLOGFILE names, for the keys of connections; None if it names none."""
    name = os.environ.get("SSLKEYLOGFILE")
    return _opened(name) if name else None


@cache
def _opened(name: str) -> TextIO | None:
    with suppress(OSError):  # as curl and browsers do
        return Path(name).open("a", encoding="ascii")  # for the life of the process
    return None


def wants_qlog() -> bool:
    """Whether QLOGDIR asks for qlogs."""
    return bool(os.environ.get("QLOGDIR"))


def keep_qlog(qlog: dict[str, Any] | None) -> None:
    """Write the qlog of a connection to QLOGDIR; None is no qlog."""
    if qlog is None or not qlog["traces"]:
        return
    connection = qlog["traces"][0]["common_fields"]["ODCID"]
    with suppress(OSError):
        Path(os.environ["QLOGDIR"], f"{connection}_client.qlog").write_text(json.dumps(qlog), encoding="utf-8")
