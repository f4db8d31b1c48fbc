"""The command that measures a job in a guest or in a subprocess of a Dask worker.

It reads the job from standard input and prints a line of JSON for each finished part. Messages for the user go to
standard error. `campaign.guests` and `campaign.dask_worker` start it and read its output.
"""

from __future__ import annotations

import base64
import json
import pickle
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from crosslayer.campaign.errors import CampaignError
from crosslayer.campaign.plan import Cell
from crosslayer.errors import CrosslayerError
from crosslayer.testbed import namespaces
from crosslayer.testbed.errors import TestbedError

if TYPE_CHECKING:
    from crosslayer.campaign.rounds import FinishedRound, Job

COMMAND: Final = [sys.executable, "-m", "crosslayer.campaign.guest_main"]


def main() -> None:
    """Read a job from standard input and measure it; if this fails, the last line of output has the fault."""
    try:
        namespaces.enter(COMMAND)
        from crosslayer.campaign.rounds import local_executor  # imported late: `enter` starts this program again

        job: Job = pickle.load(sys.stdin.buffer)  # trusted: written by the process that started this guest
        for part in local_executor(job, lambda line: print(line, file=sys.stderr, flush=True)):
            _write(to_json(part))
    except CrosslayerError as error:
        _write({"fault": error.what, "where": error.where, "next_step": error.next_step} | _kind(error))
        sys.exit(1)


def _kind(error: CrosslayerError) -> dict[str, bool]:
    return {"cannot_measure": isinstance(error, TestbedError)}


def _write(value: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def to_json(part: FinishedRound) -> dict[str, Any]:
    """Convert a finished part of the job to JSON values."""
    cell = None if part.cell is None else [part.cell.link, part.cell.page]
    return {
        "cell": cell,
        "number": part.number,
        "rows": {table: [dict(row) for row in rows] for table, rows in part.rows.items()},
        "failures": part.failures,
        "backend": part.backend,
        "versions": part.versions,
        "captured": [
            [load.condition, {end: base64.b64encode(content).decode() for end, content in load.files.items()}]
            for load in part.captured
        ],
    }


def from_json(line: bytes | bytearray) -> FinishedRound:
    """Read the finished part from a line of this command's output.

    Raises
    ------
    TestbedError, CampaignError
        If the line has the fault that ended the command.
    """
    from crosslayer.campaign.captures import CaptureFiles
    from crosslayer.campaign.rounds import FinishedRound

    value = json.loads(line)
    if "fault" in value:
        kind = TestbedError if value["cannot_measure"] else CampaignError
        raise kind(value["fault"], where=value["where"], next_step=value["next_step"])
    cell = None if value["cell"] is None else Cell(*value["cell"])
    captured = tuple(
        CaptureFiles(condition, {end: base64.b64decode(content) for end, content in files.items()})
        for condition, files in value["captured"]
    )
    return FinishedRound(
        cell, value["number"], value["rows"], value["failures"], value["backend"], value["versions"], captured=captured
    )


if __name__ == "__main__":
    main()
