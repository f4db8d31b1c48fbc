"""Log of the server's events: one JSON object per line.

The format is that of the testbed's first server (`testbed.server`).
"""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Any, TextIO


class EventLog:
    """Writes events to a file and counts them.

    The event of a query or request is written before the answer is sent. So it is in the file when the client has the
    answer.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._counts: dict[str, Counter[str]] = {"connection": Counter(), "request": Counter(), "query": Counter()}
        self._counts["token"] = Counter()

    def write(self, event: str, listener: str, **values: Any) -> None:
        """Write an event of a listener; its time is the current time unless `values` contain `time`."""
        self._counts[event][listener] += 1
        line = {"event": event, "time": time.time_ns(), "listener": listener} | values
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()

    def totals(self, event: str) -> dict[str, int]:
        """Number of events by listener."""
        return dict(self._counts[event])
