"""Events of the server, one JSON object a line, as the first server writes them; and their counts."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Any, TextIO


class EventLog:
    """Log of events. An event is written before its answer is sent, so a client that has the answer finds the event."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._counts: dict[str, Counter[str]] = {"connection": Counter(), "request": Counter(), "query": Counter()}
        self._counts["token"] = Counter()

    def write(self, event: str, listener: str, **values: Any) -> None:
        """Write an event of a listener; its time is now, unless `values` have one."""
        self._counts[event][listener] += 1
        line = {"event": event, "time": time.time_ns(), "listener": listener} | values
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()

    def totals(self, event: str) -> dict[str, int]:
        """Number of events by listener."""
        return dict(self._counts[event])
