"""What a document names, as its bytes arrive: a browser's preload scanner. No I/O, no clock."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from enum import StrEnum
from html.parser import HTMLParser

_GZIP = 31
"""Window bits of zlib for a gzip header (zlib.h, inflateInit2)."""


class Kind(StrEnum):
    """What a resource is to its document: decides on its priority and on what waits for it."""

    DOCUMENT = "document"
    STYLE = "style"
    SCRIPT = "script"
    """Stops the parser, in the head."""
    LATE_SCRIPT = "late script"
    """The same, in the body."""
    DEFERRED = "deferred script"
    IMAGE = "image"


PRIORITIES = {
    Kind.DOCUMENT: "u=0, i",
    Kind.STYLE: "u=0",
    Kind.SCRIPT: "u=1",
    Kind.LATE_SCRIPT: "u=2",
    Kind.DEFERRED: "",
    Kind.IMAGE: "i",
}
"""Value of the `priority` field (RFC 9218, section 5), as Chromium 156 sends it; empty for the default, not sent."""

SCRIPTS = frozenset({Kind.SCRIPT, Kind.LATE_SCRIPT, Kind.DEFERRED})


@dataclass(frozen=True, slots=True)
class Named:
    """A resource that a document names."""

    path: str
    """As it is written there."""
    kind: Kind


class Scanner(HTMLParser):
    """Finds what a document names while it arrives, in its order.

    Parameters
    ----------
    encoding
        Its `content-encoding`: `gzip`, or empty.
    """

    def __init__(self, encoding: str = "") -> None:
        super().__init__()
        self._inflate = zlib.decompressobj(_GZIP) if encoding == "gzip" else None
        self._found: list[Named] = []
        self._in_body = False

    def take(self, chunk: bytes) -> list[Named]:
        """The next bytes as they were on the wire; returns what they name. `ValueError` where they are no gzip."""
        try:
            plain = self._inflate.decompress(chunk) if self._inflate else chunk
        except zlib.error as error:
            raise ValueError(f"the document is no gzip stream: {error}") from None
        self._found = []
        # Names are ASCII, so it does not matter that a chunk may end within a character.
        self.feed(plain.decode("latin-1"))
        return self._found

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """A tag: a style sheet, script or image that it names."""
        at = dict(attrs)
        self._in_body = self._in_body or tag == "body"
        if tag == "link" and at.get("rel") == "stylesheet":
            self._name(at.get("href"), Kind.STYLE)
        elif tag == "script":
            deferred = "defer" in at or "async" in at or at.get("type") == "module"
            self._name(at.get("src"), Kind.DEFERRED if deferred else Kind.LATE_SCRIPT if self._in_body else Kind.SCRIPT)
        elif tag == "img" and at.get("loading") != "lazy":
            self._name(at.get("src"), Kind.IMAGE)

    def _name(self, path: str | None, kind: Kind) -> None:
        if path and path.startswith("/") and not path.startswith("//"):
            self._found.append(Named(path, kind))
