"""Compare a page made from a recording (`pages.from_har`) with that recording, by loading it in Chromium."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from crosslayer import pages
from crosslayer.browser.browser import ICON, WARM_UP_HOST
from crosslayer.browser.chromium import Chromium
from crosslayer.browser.programs import find_browser
from crosslayer.decode import checked, read_json
from crosslayer.links import Profile
from crosslayer.pages import RECORDED, PageError, normal_url
from crosslayer.testbed.server import RequestEvent
from crosslayer.testbed.testbed import Testbed

BYTES_TOLERANCE = 0.01
"""Tolerance of a page's bytes, as a share of the recorded bytes."""
_TIE_MS = 1.0
"""Requests closer to each other in the recording than this are treated as simultaneous, ms."""


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """A request of a recorded page."""

    url: str
    start_ms: float | None
    """Start of the request, ms after the start of the page's first request; None if the recording has no times."""
    wire_bytes: int
    """Size of the body in the recording, bytes."""


@dataclass(frozen=True, slots=True)
class PageRecording:
    """The recording of a page."""

    requests: tuple[RecordedRequest, ...]
    load_ms: float | None = None
    """Time from the first request to the load event, ms; None if the recording lacks this event."""


@dataclass(frozen=True, slots=True)
class Likeness:
    """Comparison of a page with its recording."""

    missing: tuple[str, ...]
    """URLs that were recorded but not requested."""
    extra: tuple[str, ...]
    """URLs that were requested but not recorded."""
    failed: tuple[str, ...]
    """URLs with a status other than 200, and the status."""
    recorded_bytes: int
    bytes: int
    """Bytes of the bodies that the server sent."""
    swapped: float | None
    """Share of the pairs of requests that were made in the opposite of the recorded order.

    Pairs that the recording treats as simultaneous (`_TIE_MS`) do not count. None if the recording has no times.
    """
    recorded_ms: float | None
    load_ms: float
    apart_ms: float | None
    """Median distance between the start of a request and its recorded start, ms; None if the recording has no times."""

    @property
    def like(self) -> bool:
        """Whether the requests are the same, none failed, and the bytes are within `BYTES_TOLERANCE`."""
        off = abs(self.bytes - self.recorded_bytes)
        same = not self.missing and not self.extra and not self.failed
        return same and off <= BYTES_TOLERANCE * self.recorded_bytes

    def __str__(self) -> str:
        requests = "the same" if not self.missing and not self.extra else "not the same"
        share = f" ({self.bytes / self.recorded_bytes - 1:+.2%})" if self.recorded_bytes else ""
        before = "" if self.recorded_ms is None else f", recorded {self.recorded_ms:.0f} ms"
        order, apart = "the recording has no times", ""
        if self.swapped is not None and self.apart_ms is not None:
            order, apart = (
                f"{self.swapped:.1%} of the pairs of requests are in reverse order",
                f"median difference of a request's start {self.apart_ms:.0f} ms; ",
            )
        return "\n".join(
            [
                f"requests   {requests}",
                *(f"  missing  {url}" for url in self.missing),
                *(f"  extra    {url}" for url in self.extra),
                *(f"  failed   {url}" for url in self.failed),
                f"bytes      {self.bytes:,} of {self.recorded_bytes:,}{share}",
                f"order      {order}",
                f"waterfall  {apart}load event {self.load_ms:.0f} ms{before}",
            ]
        )


def read_recorded(folder: Path) -> PageRecording:
    """Read the recording of a page; `PageError` if the folder has none."""
    file = folder / RECORDED
    return checked(
        read_json(file, PageError, "Name a folder that `crosslayer page` made."),
        PageRecording,
        where=str(file),
        error=PageError,
        json_file=True,
    )


def compare(folder: Path, recorded: PageRecording, profile: Profile, *, backend: str = "auto") -> Likeness:
    """Load a page once over a link and compare it with its recording; only inside private namespaces.

    Raises
    ------
    PageError
        If the folder is not a page.
    TestbedError
        If there is no testbed.
    BrowserError
        If Chromium is missing or the page does not load.
    """
    programs = find_browser()
    with Testbed(backend if profile.shaped else "plain") as testbed:
        specs = _with_warm_up(folder.resolve(), testbed.folder / "recorded")
        page = next(spec for spec in specs.values() if WARM_UP_HOST not in spec.hosts)
        with testbed.serve(specs) as (server, addresses):
            testbed.set_link(profile)
            folder, certificates = testbed.folder / "browser", server.certificates
            with Chromium(programs, folder=folder, addresses=addresses, certificates=certificates) as browser:
                load = browser.load(
                    page.host, prime_host=WARM_UP_HOST, close_connections=lambda: server.close_connections("h3")
                )
                events = [event for event in server.events() if isinstance(event, RequestEvent)]
    return likeness(recorded, [e for e in events if e.host in page.hosts], load.navigation["loadEventStart"])


def _with_warm_up(folder: Path, specs: Path) -> dict[str, pages.PageSpec]:
    """Create the folder `specs` with links to `folder`, which is a page, and to the warm-up page.

    Returns the specifications of both pages, by name.
    """
    specs.mkdir()
    for source in (folder, pages.find_spec_dir() / pages.WARMUP):
        (specs / source.name).symlink_to(source)
    return pages.load_pages(specs)


def likeness(recorded: PageRecording, events: Sequence[RequestEvent], load_ms: float) -> Likeness:
    """Compare a load of a page, as logged by the server, with the page's recording.

    `load_ms` is the time of the load event of this load, ms after the navigation start.
    """
    urls = {request.url for request in recorded.requests}
    requested = {f"https://{event.host}{event.path}": event for event in reversed(events)}
    # The server reports paths in normal form; a hand-written page may have paths in other forms.
    others = {normal_url(url): url for url in urls}
    requested = {others.get(url, url): event for url, event in requested.items()}
    # The browser requests an icon if the document names none; recordings omit that request.
    requested = {url: event for url, event in requested.items() if url in urls or event.path != ICON}
    begin_ns = min((event.time_ns for event in events), default=0)
    starts_ms = sorted(
        (request.start_ms, (requested[request.url].time_ns - begin_ns) / 1e6)
        for request in recorded.requests
        if request.url in requested and request.start_ms is not None
    )
    swapped = [
        here > now for (recorded_ms, here), (then, now) in combinations(starts_ms, 2) if then - recorded_ms > _TIE_MS
    ]
    return Likeness(
        missing=tuple(request.url for request in recorded.requests if request.url not in requested),
        extra=tuple(url for url in requested if url not in urls),
        failed=tuple(f"{url} ({event.status})" for url, event in requested.items() if event.status != 200),
        recorded_bytes=sum(request.wire_bytes for request in recorded.requests),
        bytes=sum(event.bytes for event in requested.values()),
        swapped=sum(swapped) / max(len(swapped), 1) if starts_ms else None,
        recorded_ms=recorded.load_ms,
        load_ms=load_ms,
        apart_ms=statistics.median([abs(here - recorded_ms) for recorded_ms, here in starts_ms]) if starts_ms else None,
    )
