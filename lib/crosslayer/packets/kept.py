"""A stored capture: a pcapng file, and a JSON file that describes it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from crosslayer.decode import checked, read_json
from crosslayer.packets.pcapng import Frame, PacketCapture, PacketsError, read_pcapng, write_pcapng

PACKETS, ABOUT = ".pcapng", ".json"
"""Suffixes of the names of a capture's two files: packets and description."""

_WHOLE_BYTES, _MOST_BYTES, _HEADERS_BYTES = 800_000, 980_000, 64
"""Limits that keep a capture's file below 1 MB.

Frames are whole in the first `_WHOLE_BYTES` of the file. Further frames are cut to `_HEADERS_BYTES` each, until the
file has `_MOST_BYTES`; later frames are dropped.
"""
_BLOCK_BYTES = 60
"""Maximum overhead of a frame in the file, bytes."""
_READ_MOST_BYTES = 50_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """Description of a capture."""

    condition: str
    """Name of the condition in its study; if a user's command was captured, the text of this command."""
    profile: dict[str, Any]
    """The link's profile."""
    table: str = ""
    """Table that contains the observation; empty for a command."""
    clock: str
    """`virtual` or `wall`."""
    missing: int = 0
    """Number of frames that were not stored because the ring or the file was full."""
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """Rows of the observation, by table."""
    server: list[dict[str, Any]] = field(default_factory=list)
    """The server's events during the capture (`testbed.server`)."""


def kept_files(about: About, frames: list[Frame] | None, keys: str) -> dict[str, bytes]:
    """Contents of a capture's two files, by suffix; without the pcapng file if `frames` is None."""
    files = {}
    if frames is not None:
        kept = _within(frames)
        about = About(**asdict(about) | {"missing": about.missing + len(frames) - len(kept)})
        comment = f"crosslayer: {about.condition}, on {about.profile.get('name')}"
        files[PACKETS] = write_pcapng(kept, keys=keys, comment=comment)
    return files | {ABOUT: json.dumps(asdict(about)).encode()}


def read_kept(file: Path) -> tuple[About | None, PacketCapture]:
    """Read a capture and, if it has one, its description.

    Raises
    ------
    PacketsError
        If a file is missing, too large or invalid.
    """
    try:
        if file.stat().st_size > _READ_MOST_BYTES:
            raise PacketsError(f"has more than {_READ_MOST_BYTES} bytes", where=str(file))
        recorded = read_pcapng(file.read_bytes(), where=str(file))
    except OSError as fault:
        raise PacketsError(
            f"cannot be read ({fault.strerror})",
            where=str(file),
            next_step="`crosslayer show DATASET` lists the loads that were captured.",
        ) from None
    return read_about(file), recorded


def read_about(file: Path) -> About | None:
    """Read a capture's description; None if there is none, `PacketsError` if it is invalid."""
    description = file.with_name(file.name.removesuffix(PACKETS) + ABOUT)
    if not description.exists():
        return None
    return checked(
        read_json(description, PacketsError), About, where=str(description), error=PacketsError, json_file=True
    )


def of_lines(lines: str) -> list[dict[str, Any]]:
    """Parse the text of a file of JSON lines, one object per line."""
    return [json.loads(line) for line in lines.splitlines()]


def _within(frames: list[Frame]) -> list[Frame]:
    """Fit frames into the limits: the first stay whole, the next are cut to their headers, and the last are dropped."""
    stored, total = [], 0
    for frame in frames:
        data = frame.data if total < _WHOLE_BYTES else frame.data[:_HEADERS_BYTES]
        total += len(data) + _BLOCK_BYTES
        if total > _MOST_BYTES:
            break
        stored.append(Frame(frame.at_ns, frame.interface, frame.sent, data, frame.bytes))
    return stored
