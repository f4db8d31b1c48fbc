"""Events of the server, one JSON object per line in the first server's format, and their counts."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Any, TextIO


class EventLog:
    """Log of events. An event is written before its answer is sent, so it exists when the client has the answer."""

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
