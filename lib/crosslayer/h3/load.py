"""One load of a page: what is asked for when, and whether what came is the page. No I/O, no clock.

What the document names is asked for as its bytes arrive, in its order, as a preload scanner does. What the rest of the
page names, its specification knows (`after`), which is tested against Chromium. It is asked for when the one that names
it is there and, of a script, has been run: when the document, the scripts before it and, since they stop scripts, the
style sheets before it are there too (HTML, sections 4.2.6 and 4.12.1).
"""

from __future__ import annotations

from crosslayer.h3.core import PageCore, PageResponse
from crosslayer.h3.scanner import PRIORITIES, SCRIPTS, Kind, Named, Scanner
from crosslayer.pages import PageSpec

_KINDS = {"text/css": Kind.STYLE, "text/javascript": Kind.DEFERRED}


class PageFetch:
    """A page on its way; the request for its document is queued when this is made.

    Parameters
    ----------
    page
        What is loaded; it has no other origins.
    now
        Time on the scale of the core's, seconds.
    """

    def __init__(self, core: PageCore, page: PageSpec, now: float) -> None:
        self.page = page
        self._core = core
        self._specs = {resource.path: resource for resource in page.resources}
        self._scanner: Scanner | None = None
        self._scanned = 0
        self._named: list[Named] = []
        self.responses: dict[str, PageResponse] = {}
        """By path, in the order they were asked for."""
        self._get(Named("/", Kind.DOCUMENT), now)

    @property
    def document(self) -> PageResponse:
        """The document's response."""
        return self.responses["/"]

    @property
    def done(self) -> bool:
        """Everything that was asked for is there, and names nothing more."""
        return all(response.ended for response in self.responses.values()) and set(self.responses) >= set(self._specs)

    @property
    def complete_s(self) -> float:
        """When the last byte of the page was there, on the scale of the core's time; of a load that is done."""
        return max(response.ended_s or 0.0 for response in self.responses.values())

    def advance(self, now: float) -> None:
        """Ask for what may be asked for by now; `ValueError` where the document cannot be read."""
        self._scan(now)
        for resource in self.page.resources:
            if resource.path not in self.responses and resource.after and self._has_run(resource.after):
                self._get(Named(resource.path, _KINDS.get(resource.content_type.partition(";")[0], Kind.IMAGE)), now)

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
        """Whether a resource is there and, of a script, has been run."""
        if not self.responses["/"].ended or path not in self.responses or not self.responses[path].ended:
            return False
        place = next((n for n, named in enumerate(self._named) if named.path == path), None)
        if place is None or self._named[place].kind not in SCRIPTS:
            return True
        before = (named for named in self._named[:place] if named.kind is not Kind.IMAGE)
        return all(self.responses[named.path].ended for named in before)

    def _get(self, named: Named, now: float) -> None:
        priority = PRIORITIES[named.kind]
        self.responses[named.path] = self._core.get(self.page.host, named.path, priority, now)
