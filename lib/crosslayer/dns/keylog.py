"""Write the TLS keys and the qlogs of our QUIC clients to files.

The environment variables SSLKEYLOGFILE and QLOGDIR enable this; browsers, curl and quic-go use the same variables.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TextIO


def key_log() -> TextIO | None:
    """File of SSLKEYLOGFILE, for TLS keys; None if the variable is not set or the file cannot be opened."""
    name = os.environ.get("SSLKEYLOGFILE")
    return _opened(name) if name else None


@cache
def _opened(name: str) -> TextIO | None:
    with suppress(OSError):  # ignored, as by curl and browsers
        return Path(name).open("a", encoding="ascii")  # open until the process ends
    return None


def wants_qlog() -> bool:
    """Whether QLOGDIR is set, so that qlogs are written."""
    return bool(os.environ.get("QLOGDIR"))


def keep_qlog(qlog: dict[str, Any] | None) -> None:
    """Write the qlog of a connection to QLOGDIR, unless it is None or has no trace."""
    if qlog is None or not qlog["traces"]:
        return
    connection = qlog["traces"][0]["common_fields"]["ODCID"]
    with suppress(OSError):
        Path(os.environ["QLOGDIR"], f"{connection}_client.qlog").write_text(json.dumps(qlog), encoding="utf-8")
