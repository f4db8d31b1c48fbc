"""How like its recording a page is that was made from one (`pages.from_har`): loaded in Chromium and compared."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from crosslayer import pages
from crosslayer.browser.browser import WARM_UP_HOST
from crosslayer.browser.chromium import Chromium
from crosslayer.browser.programs import find_browser
from crosslayer.checked import checked, read_json
from crosslayer.links import Profile
from crosslayer.pages import RECORDED, PageError
from crosslayer.testbed import Testbed
from crosslayer.testbed.server import RequestEvent

BYTES_TOLERANCE = 0.01
"""Share that the bytes of a page may be off."""
_ICON = "/favicon.ico"
_TIE_MS = 1.0
"""Requests closer to each other in the recording have no order."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request of a recorded page."""

    url: str
    start_ms: float | None
    """After the page's first request; None where the recording has no times."""
    wire_bytes: int
    """Of the body, as the recording says."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a page's recording says."""

    requests: tuple[Request, ...]
    load_ms: float | None = None
    """The load event, after the first request; None where the recording does not say."""


@dataclass(frozen=True, slots=True)
class Likeness:
    """A page beside its recording."""

    missing: tuple[str, ...]
    """URLs that were recorded and not asked for."""
    extra: tuple[str, ...]
    """URLs that were asked for and not recorded."""
    recorded_bytes: int
    bytes: int
    """Of the bodies that the server sent."""
    swapped: float | None
    """Share of the pairs of requests that came in the other order, ties left out; None where no times were recorded."""
    recorded_ms: float | None
    load_ms: float
    apart_ms: float | None
    """Median of how far a request's start is from the recorded one; None likewise."""

    @property
    def like(self) -> bool:
        """The same requests, and bytes within `BYTES_TOLERANCE`."""
        off = abs(self.bytes - self.recorded_bytes)
        return not self.missing and not self.extra and off <= BYTES_TOLERANCE * self.recorded_bytes

    def __str__(self) -> str:
        requests = "the same" if not self.missing and not self.extra else "not the same"
        before = "" if self.recorded_ms is None else f", recorded {self.recorded_ms:.0f} ms"
        order, apart = "the recording has no times", ""
        if self.swapped is not None and self.apart_ms is not None:
            order, apart = (
                f"{self.swapped:.1%} of the pairs the other way round",
                f"starts {self.apart_ms:.0f} ms apart (median); ",
            )
        return "\n".join(
            [
                f"requests   {requests}",
                *(f"  missing  {url}" for url in self.missing),
                *(f"  extra    {url}" for url in self.extra),
                f"bytes      {self.bytes:,} of {self.recorded_bytes:,} ({self.bytes / self.recorded_bytes - 1:+.2%})",
                f"order      {order}",
                f"waterfall  {apart}load event {self.load_ms:.0f} ms{before}",
            ]
        )


def read_recorded(folder: Path) -> Recorded:
    """What the recording of a page says; `PageError` where the folder has none."""
    file = folder / RECORDED
    return checked(
        read_json(file, PageError, "Name a folder that `crosslayer page` made."),
        Recorded,
        where=str(file),
        error=PageError,
    )


def compare(folder: Path, recorded: Recorded, profile: Profile, *, backend: str = "auto") -> Likeness:
    """Load a page once over a link and set it beside its recording; only inside private namespaces.

    Raises
    ------
    PageError
        For a folder that is no page.
    TestbedError
        Where there is no testbed.
    BrowserError
        Where Chromium is missing or the page does not load.
    """
    programs = find_browser()
    with Testbed(backend if profile.shaped else "plain") as testbed:
        specs = _beside_warm_up(folder.resolve(), testbed.folder / "recorded")
        page = next(spec for spec in specs.values() if WARM_UP_HOST not in spec.hosts)
        with testbed.serve(specs.values(), spec_dir=testbed.folder / "recorded") as (server, addresses):
            testbed.set_link(profile)
            folder, certificates = testbed.folder / "browser", server.certificates
            with Chromium(programs, folder=folder, addresses=addresses, certificates=certificates) as browser:
                load = browser.load(
                    page.host, prime_host=WARM_UP_HOST, close_connections=lambda: server.close_connections("h3")
                )
                events = [event for event in server.events() if isinstance(event, RequestEvent)]
    return likeness(recorded, [e for e in events if e.host in page.hosts], load.navigation["loadEventStart"])


def _beside_warm_up(folder: Path, specs: Path) -> dict[str, pages.PageSpec]:
    """The page of a folder and the one that is loaded before it, as specifications of one folder."""
    specs.mkdir()
    for source in (folder, pages.find_spec_dir() / pages.WARMUP):
        (specs / source.name).symlink_to(source)
    return pages.load_pages(specs)


def likeness(recorded: Recorded, events: Sequence[RequestEvent], load_ms: float) -> Likeness:
    """A load of a page, as the server saw it, beside the page's recording; `load_ms` is its load event."""
    urls = {request.url for request in recorded.requests}
    came = {f"https://{event.host}{event.path}": event for event in reversed(events)}
    # Of a document that names no icon the browser asks for one by itself, and no recording has that.
    came = {url: event for url, event in came.items() if url in urls or event.path != _ICON}
    begin_ns = min((event.time_ns for event in events), default=0)
    there = sorted(
        (request.start_ms, (came[request.url].time_ns - begin_ns) / 1e6)
        for request in recorded.requests
        if request.url in came and request.start_ms is not None
    )
    pairs = [here > now for (begin, here), (then, now) in combinations(there, 2) if then - begin > _TIE_MS]
    return Likeness(
        missing=tuple(request.url for request in recorded.requests if request.url not in came),
        extra=tuple(url for url in came if url not in urls),
        recorded_bytes=sum(request.wire_bytes for request in recorded.requests),
        bytes=sum(event.bytes for event in came.values()),
        swapped=sum(pairs) / max(len(pairs), 1) if there else None,
        recorded_ms=recorded.load_ms,
        load_ms=load_ms,
        apart_ms=statistics.median([abs(here - begin) for begin, here in there]) if there else None,
    )
