"""One load of a page: requests each resource at its time. No I/O, no clock.

While the document arrives, the resources that it names are requested in their order, as by a preload scanner. All other
dependencies are in the page's specification (`after`). A test compares the requests with those of Chromium. A resource
with `after = Y` is requested once the document and Y are complete and, if Y is a script, Y has run. A script runs once
the document, the scripts before it, and the style sheets before it are complete: style sheets block scripts (HTML,
sections 4.2.6 and 4.12.1).
"""

from __future__ import annotations

from crosslayer.h3.core import PageCore, PageResponse
from crosslayer.h3.scanner import PRIORITIES, SCRIPTS, Named, ResourceKind, Scanner
from crosslayer.pages import PageSpec

_KINDS = {"text/css": ResourceKind.STYLE, "text/javascript": ResourceKind.DEFERRED}


class PageFetch:
    """A load of a page in progress; the constructor queues the request for its document.

    Parameters
    ----------
    page
        The page to load; it must have no resources of other origins.
    now
        Current time, on the scale of the core's times, seconds.
    """

    def __init__(self, core: PageCore, page: PageSpec, now: float) -> None:
        self.page = page
        self._core = core
        self._specs = {resource.path: resource for resource in page.resources}
        self._scanner: Scanner | None = None
        self._scanned = 0
        self._named: list[Named] = []
        self.responses: dict[str, PageResponse] = {}
        """Responses by path, in the order of the requests."""
        self._get(Named("/", ResourceKind.DOCUMENT), now)

    @property
    def document(self) -> PageResponse:
        """The document's response."""
        return self.responses["/"]

    @property
    def done(self) -> bool:
        """Whether all resources of the page have been requested and all responses are complete."""
        return all(response.ended for response in self.responses.values()) and set(self.responses) >= set(self._specs)

    @property
    def complete_s(self) -> float:
        """Arrival of the page's last byte, on the scale of the core's times, seconds; valid once the load is `done`."""
        return max(response.ended_s or 0.0 for response in self.responses.values())

    def advance(self, now: float) -> None:
        """Send the requests that are due; `ValueError` if the document cannot be decoded."""
        self._scan(now)
        for resource in self.page.resources:
            if resource.path not in self.responses and resource.after and self._has_run(resource.after):
                self._get(
                    Named(resource.path, _KINDS.get(resource.content_type.partition(";")[0], ResourceKind.IMAGE)), now
                )

    def _scan(self, now: float) -> None:
        document = self.document
        if len(document.body) == self._scanned:
            return
        if self._scanner is None:
            self._scanner = Scanner(document.headers.get(b"content-encoding", b"").decode("latin-1"))
        chunk, self._scanned = bytes(document.body[self._scanned :]), len(document.body)
        for named in self._scanner.take(chunk):
            if named.path not in self.responses:
                self._named.append(named)
                self._get(named, now)

    def _has_run(self, path: str) -> bool:
        """Whether document and resource are complete and, if the resource is a script, it has run."""
        if not self.responses["/"].ended or path not in self.responses or not self.responses[path].ended:
            return False
        position = next((n for n, named in enumerate(self._named) if named.path == path), None)
        if position is None or self._named[position].kind not in SCRIPTS:
            return True
        before = (named for named in self._named[:position] if named.kind is not ResourceKind.IMAGE)
        return all(self.responses[named.path].ended for named in before)

    def _get(self, named: Named, now: float) -> None:
        priority = PRIORITIES[named.kind]
        self.responses[named.path] = self._core.get(self.page.host, named.path, priority, now)
