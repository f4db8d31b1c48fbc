"""Procedures of a measured page load, the same in every browser.

*Decoupled*: the browser is given the addresses. Every load uses a new user context: a fresh profile with its own QUIC
session cache. The browser loads a *priming* page in this context, and the server closes the connections. Then the
browser loads a warm-up page on another site, and then the measured page. For a 0-RTT load the priming page is on the
host of the measured page, so the browser holds that host's ticket. For a 1-RTT load the priming page is on an alias,
another name of this host with the same page. The two kinds of load differ in nothing else.

Whether a browser stores the token of a connection can depend on chance. As soon as the connection is set up, the
server's events show whether the browser stored the token. So the browser opens the priming connection with a small
request, for a resource that does not exist. It loads the priming page only if it has the right state after this
request. If the browser has the wrong state after this request or after the close, the procedure starts again in another
context.

*Coupled*: the browser resolves names itself. A first load in a separate context fills the caches on the path. If the
browser queries a stub, the stub then also has a session with its upstream resolver. Then a function of the caller
prepares the measured load; for example, it closes the upstream connections of the stub. The measured load uses a new
context without host cache, QUIC sessions and connections. So every lookup reaches the resolver, and every web handshake
is full.
"""

from __future__ import annotations

import contextlib
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self
from urllib.parse import urlsplit

from crosslayer.browser.programs import BrowserError
from crosslayer.cpu_load import ticks_used

WARM_UP_HOST = "www.warmup.example"
"""Host of the warm-up page, which is on another site than the measured page.

So the measured load is a cross-site navigation, for which the browser uses a new renderer.
"""

ICON = "/favicon.ico"
"""Path of the icon that a browser requests if the document names none."""

COLLECT = """
wait => new Promise(done => {
  function report() {
    const nav = performance.getEntriesByType('navigation')[0];
    done(JSON.stringify({
      navigation: nav.toJSON(), timeOrigin: performance.timeOrigin,
      paint: performance.getEntriesByType('paint').map(p => p.toJSON()),
      resources: performance.getEntriesByType('resource').map(r => r.toJSON())}));
  }
  function ready() {
    const nav = performance.getEntriesByType('navigation')[0];
    return nav && nav.loadEventEnd > 0 && performance.getEntriesByName('first-contentful-paint').length > 0;
  }
  if (ready()) report(); else {
    const limit = performance.now() + wait;
    (function again() { if (ready() || performance.now() > limit) report(); else setTimeout(again, 2); })();
  }
})
"""
"""JavaScript: a function that runs in the page and returns a promise of the page's timing entries, as JSON."""
_RESOLVE = """
host => {
  const at = () => performance.timeOrigin + performance.now(), begin = at();
  const both = () => JSON.stringify([begin, at()]);
  return fetch(`https://${host}/`, {mode: 'no-cors'}).then(both, both);
}
"""
"""JavaScript: a function that requests the page of a host and returns a promise of two times, as JSON.

These are the start of the request, and its end or failure, in ms since the Unix epoch.
"""
_BLANK_PAGE = "about:blank"
_MISSING_PATH = "/robots.txt"
"""A path that no page has; the response to it is a small document."""
PAINT_WAIT_MS = 1500
"""Argument of `COLLECT`: maximum wait for the page's first paint after its load event, ms."""
_SETTLE_WINDOW_S = 0.04
_SETTLE_MOST_S = 0.6
_PRIMINGS_MOST = 16


@dataclass(frozen=True, slots=True)
class PageLoad:
    """One measured load as the browser's W3C timing entries; their times are in ms after the navigation start."""

    started_s: float
    """Start of the measured navigation, seconds since the Unix epoch."""
    setup_ms: float
    """Time taken by context, priming, connection close and warm-up before the load, ms."""
    browser_idle: bool
    """Whether the browser was idle before the load; False if it was not idle within the maximum wait."""
    navigation: Mapping[str, Any]
    """The PerformanceNavigationTiming entry (Navigation Timing Level 2)."""
    paint: Mapping[str, float | None]
    """Start of each PerformancePaintTiming entry by name; `first-contentful-paint` is None if there was none."""
    resources: tuple[Mapping[str, Any], ...]
    """The PerformanceResourceTiming entries, without that of the page's icon."""
    raw: str
    """The navigation and paint entries as JSON."""


@dataclass(frozen=True, slots=True)
class SecureDns:
    """The only resolver of a browser, queried over HTTPS (RFC 8484) without fallback."""

    host: str
    address: str
    """IP address of `host`."""
    over_h3: bool
    """True: HTTP/3 from the first query on (DoH3). False: HTTP/2 (DoH)."""

    @property
    def url(self) -> str:
        """URL of the resolver's resource, without the query."""
        return f"https://{self.host}/dns-query"


class Browser(ABC):
    """A browser in the client's namespace. As a context manager, it ends at the end of the block.

    Raises `BrowserError` if the browser does not start.

    Parameters
    ----------
    programs
        The browser and its driver.
    folder
        Private folder for profile, home and logs; it is removed with the namespaces.
    addresses
        IPv4 address of each host name that the browser need not resolve. It uses QUIC for each of these hosts.
    certificates
        Certificates of the server, the only ones that the browser accepts. None: it accepts those of its default CAs.
    resolves
        Host names that the browser resolves itself (coupled loads). `*.example.org` means all names below
        `example.org`. `*` means every name except those that the browser looks up in the background. Lookups of names
        that are neither in `resolves` nor in `addresses` fail, including the browser's background lookups.
    force_h3
        Use QUIC also for the hosts that the browser resolves, whatever DNS says about them. If False, their HTTPS
        records (RFC 9460) decide: without records the browser uses HTTP/2.
    few_processes
        Start no process before a page needs it. Chromium then loads no internal page, and its network service is a
        thread of the browser. For a user, additional processes save time and isolate pages. In virtual time they save
        no time, because the clock stands still while programs compute.
    page_timeout_s
        Timeout of a page load or a lookup, s.
    secure_dns
        The resolver that the browser queries over HTTPS; None for the resolver of resolv.conf.
    """

    title: ClassVar[str]
    """Name of the browser in errors."""
    token_needs_ticket: ClassVar[bool]
    """Whether the browser stores an address-validation token only if the session ticket arrived first."""
    faults: ClassVar[tuple[type[Exception], ...]]
    """Exceptions that `_open` and `_timings` raise: those of the driver and of a killed program."""
    late: ClassVar[type[Exception]]
    """Exception that means a timeout, a subclass of one of `faults`."""

    def __init__(self) -> None:
        self.loads = 0
        """Number of measured loads so far; callers use it to start a fresh process from time to time."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_fault: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """End the browser with all its processes. It raises no error, even if the browser has crashed."""

    @abstractmethod
    def _context(self) -> contextlib.AbstractContextManager[None]:
        """A new user context with one tab, which `_open` uses. It is removed with all its state after the block."""

    @abstractmethod
    def _open(self, url: str) -> None:
        """Load a page in the tab, up to the end of its load event."""

    @abstractmethod
    def _run(self, function: str, argument: object) -> str:
        """Call a JavaScript function with an argument in the tab and return its promised result."""

    def _timings(self) -> str:
        """Result of `COLLECT` in the tab."""
        return self._run(COLLECT, PAINT_WAIT_MS)

    def load(
        self,
        host: str,
        *,
        prime_host: str,
        close_connections: Callable[[], object],
        primed: Callable[[], bool] = lambda: True,
    ) -> PageLoad:
        """Measure one load of `https://HOST/` with the decoupled procedure.

        Raises `BrowserError` if a page does not load in time or the browser fails. The caller should then start a new
        browser.

        Parameters
        ----------
        prime_host
            Host of the priming page: the page's own host for a 0-RTT load, another host such as an alias for a 1-RTT
            load.
        close_connections
            Function that makes the server close its connections, so that the measured load needs a new one.
        primed
            Function that returns whether the priming connection left the state that the measured load needs. It is
            called when the connection is established, and again after it is closed.
        """
        begin = time.perf_counter()
        for _ in range(_PRIMINGS_MOST):
            with self._failing(host), self._context():
                self._open(f"https://{prime_host}{_MISSING_PATH}")
                enough = primed()
                if enough:
                    self._open(f"https://{prime_host}/")
                close_connections()
                # Until the connection is closed, a retransmitted token can still change the browser's stored token.
                if enough and primed():
                    return self._measured(f"https://{host}/", begin, close_connections)
        raise BrowserError(
            f"was primed {_PRIMINGS_MOST} times without reaching the required state",
            where=host,
            next_step="See the server's events.",
        )

    def load_resolving(
        self, host: str, *, reset_sessions: Callable[[], object], close_connections: Callable[[], object]
    ) -> PageLoad:
        """Measure one load of `https://HOST/` with the coupled procedure; the browser resolves the host itself.

        `reset_sessions` is called between the cache-filling load and the measured load. It brings the resolver into the
        state that the measured load needs, e.g. it makes the stub close its upstream connections. `close_connections`
        and errors are as in `load`.
        """
        begin = time.perf_counter()
        with self._failing(host):
            with self._context():
                self._open(f"https://{host}/")
                close_connections()
            reset_sessions()
            with self._context():
                return self._measured(f"https://{host}/", begin, close_connections)

    def load_url(self, url: str, *, reset_sessions: Callable[[], object]) -> PageLoad:
        """Measure one load of a page on a server outside the testbed, with the coupled procedure.

        There is no parameter `close_connections`, because the browser closes its connections when their user context is
        removed. Before the load the tab shows an empty document, because there is no warm-up site. `reset_sessions` and
        errors are as in `load_resolving`.
        """
        begin = time.perf_counter()
        with self._failing(url):
            with self._context():
                self._open(url)
            reset_sessions()
            with self._context():
                return self._measured(url, begin, lambda: None, before=_BLANK_PAGE)

    @contextlib.contextmanager
    def asking(self) -> Iterator[Callable[[str], tuple[float, float]]]:
        """Open a user context for several lookups.

        Between the lookups, the browser keeps the state of its resolver, e.g. connections. This method yields a
        function that makes the browser request the page of a host name that has no address. So the request fails as
        soon as the lookup has ended. The function returns the times at which the request began and failed, ms since the
        Unix epoch. It raises `BrowserError` if the browser fails; the caller should then start a new browser.
        """
        with contextlib.ExitStack() as stack:
            with self._failing(_BLANK_PAGE):
                stack.enter_context(self._context())
                self._open(_BLANK_PAGE)
            self.loads += 1
            yield self._look_up

    def _look_up(self, host: str) -> tuple[float, float]:
        with self._failing(host):
            begin, end = json.loads(self._run(_RESOLVE, host))
        return float(begin), float(end)

    def _measured(
        self,
        url: str,
        begin: float,
        close_connections: Callable[[], object],
        *,
        before: str = f"https://{WARM_UP_HOST}/",
    ) -> PageLoad:
        """Load the warm-up page `before`, then measure the page at `url`.

        `begin` is the start of the procedure by `time.perf_counter`, s.
        """
        self._open(before)
        browser_idle = self._wait_until_idle()
        setup_ms = (time.perf_counter() - begin) * 1e3
        self._open(url)
        raw = json.loads(self._timings())
        close_connections()  # otherwise the server would continue to send to a removed context
        self.loads += 1
        return _page_load(raw, setup_ms, browser_idle)

    def _wait_until_idle(self) -> bool:
        """Wait until all activity before the load has ended; False if it has not ended within the maximum wait."""
        return _settle()

    @contextlib.contextmanager
    def _failing(self, host: str) -> Iterator[None]:
        """Convert the browser's exceptions during a load to `BrowserError`."""
        try:
            yield
        except self.late as error:
            raise BrowserError(
                "did not load in time", where=host, next_step="See the server's events and the link's rate."
            ) from error
        except self.faults as error:
            raise BrowserError(
                f"failed in {self.title}: {first_line(error)}",
                where=host,
                next_step="The load is repeated in a new process.",
            ) from error


def _settle() -> bool:
    """Wait until background work of the warm-up (prestarted renderers, closing the old tab) no longer uses the CPU.

    The browser counts as idle if all processes of this PID namespace together use at most one clock tick of CPU time
    within `_SETTLE_WINDOW_S`, s. The wait ends after at most `_SETTLE_MOST_S`, s. Returns whether the browser is idle.
    """
    deadline = time.monotonic() + _SETTLE_MOST_S
    used = ticks_used()
    while time.monotonic() < deadline:
        time.sleep(_SETTLE_WINDOW_S)
        before, used = used, ticks_used()
        if used - before <= 1:
            return True
    return False


def _is_icon(entry: Mapping[str, Any]) -> bool:
    """Whether a resource is the page's icon, which a browser requests at an arbitrary time or never."""
    return entry.get("initiatorType") == "other" and urlsplit(str(entry.get("name", ""))).path == ICON


def _page_load(raw: dict[str, Any], setup_ms: float, browser_idle: bool) -> PageLoad:
    return PageLoad(
        started_s=raw["timeOrigin"] / 1e3,
        setup_ms=setup_ms,
        browser_idle=browser_idle,
        navigation=raw["navigation"],
        paint={"first-contentful-paint": None} | {entry["name"]: entry["startTime"] for entry in raw["paint"]},
        resources=tuple(entry for entry in raw["resources"] if not _is_icon(entry)),
        raw=json.dumps({"navigation": raw["navigation"], "paint": raw["paint"], "time_origin": raw["timeOrigin"]}),
    )


def first_line(error: Exception) -> str:
    """First line of an error's message."""
    text = str(getattr(error, "msg", None) or error).strip() or type(error).__name__
    return text.splitlines()[0]
