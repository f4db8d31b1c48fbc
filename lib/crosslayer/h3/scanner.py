"""A browser's preload scanner: as a document's bytes arrive, it finds the resources named in them. No I/O, no clock."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from enum import StrEnum
from html.parser import HTMLParser

_GZIP = 31
"""Window bits of zlib for a gzip header (zlib.h, inflateInit2)."""


class ResourceKind(StrEnum):
    """Role of a resource in its document.

    The role determines the priority of the request, and whether later scripts wait for the resource.
    """

    DOCUMENT = "document"
    STYLE = "style"
    SCRIPT = "script"
    """A script in the head, which blocks the parser."""
    LATE_SCRIPT = "late script"
    """A script in the body, which blocks the parser."""
    DEFERRED = "deferred script"
    IMAGE = "image"


PRIORITIES = {
    ResourceKind.DOCUMENT: "u=0, i",
    ResourceKind.STYLE: "u=0",
    ResourceKind.SCRIPT: "u=1",
    ResourceKind.LATE_SCRIPT: "u=2",
    ResourceKind.DEFERRED: "",
    ResourceKind.IMAGE: "i",
}
"""Value of the field `priority` (RFC 9218, section 5) that Chromium 156 sends for each kind; empty if it sends none."""

SCRIPTS = frozenset({ResourceKind.SCRIPT, ResourceKind.LATE_SCRIPT, ResourceKind.DEFERRED})


@dataclass(frozen=True, slots=True)
class Named:
    """A resource that a document names."""

    path: str
    """Path as written in the document."""
    kind: ResourceKind


class Scanner(HTMLParser):
    """While a document arrives, finds the resources that it names, in the order of the document.

    Parameters
    ----------
    encoding
        The document's `content-encoding`: `gzip`, or empty.
    """

    def __init__(self, encoding: str = "") -> None:
        super().__init__()
        self._inflate = zlib.decompressobj(_GZIP) if encoding == "gzip" else None
        self._resources: list[Named] = []
        self._in_body = False

    def take(self, chunk: bytes) -> list[Named]:
        """Scan the document's next bytes, compressed as received; returns the resources that they name.

        `ValueError` if the encoding is `gzip` and the bytes are no gzip stream.
        """
        try:
            plain = self._inflate.decompress(chunk) if self._inflate else chunk
        except zlib.error as error:
            raise ValueError(f"the document is no gzip stream: {error}") from None
        self._resources = []
        # Names are ASCII, so a chunk may end within a character.
        self.feed(plain.decode("latin-1"))
        return self._resources

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record the style sheet, script or image that a tag names."""
        at = dict(attrs)
        self._in_body = self._in_body or tag == "body"
        if tag == "link" and at.get("rel") == "stylesheet":
            self._name(at.get("href"), ResourceKind.STYLE)
        elif tag == "script":
            deferred = "defer" in at or "async" in at or at.get("type") == "module"
            self._name(
                at.get("src"),
                ResourceKind.DEFERRED
                if deferred
                else ResourceKind.LATE_SCRIPT
                if self._in_body
                else ResourceKind.SCRIPT,
            )
        elif tag == "img" and at.get("loading") != "lazy":
            self._name(at.get("src"), ResourceKind.IMAGE)

    def _name(self, path: str | None, kind: ResourceKind) -> None:
        if path and path.startswith("/") and not path.startswith("//"):
            self._resources.append(Named(path, kind))
