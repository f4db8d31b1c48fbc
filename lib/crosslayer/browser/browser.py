"""The procedures of a measured page load, the same in every browser.

*Decoupled*, where the browser is told the addresses. Every load is the same: a new user context (a fresh profile with a
QUIC session cache of its own), a *priming* load, the server closes its connections, a warm-up page on another site,
then the page, measured. A 0-RTT load primes the page's own host, so the browser holds its ticket; a 1-RTT load primes
an alias of the host that serves the same page. The two differ in nothing else. Whether a browser keeps the token of a
connection can be chance, and is known as soon as that stands: so it is set up for something that is not there, before
the page comes over it, and where it does not leave what the load is to begin with, another context starts over.

*Coupled*, where the browser resolves by itself. A load of the page in a context of its own warms caches along the way
and leaves the resolver a session, which is then reset; the page is measured from a new context, whose host cache, QUIC
sessions and connections are empty, so every lookup reaches the resolver and every web handshake is full.
"""

from __future__ import annotations

import contextlib
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from crosslayer.browser.programs import BrowserError
from crosslayer.machine import ticks_used

WARM_UP_HOST = "www.warmup.example"
"""Another site than every page under test: the measured load is a cross-site navigation into a fresh renderer."""

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
"""JavaScript: a function that is called in the page and promises its timing entries as JSON."""
_RESOLVE = """
host => {
  const at = () => performance.timeOrigin + performance.now(), begin = at();
  const both = () => JSON.stringify([begin, at()]);
  return fetch(`https://${host}/`, {mode: 'no-cors'}).then(both, both);
}
"""
"""JavaScript: asks for a page and promises when it began and when it came or failed, ms since the Unix epoch, JSON."""
_NOWHERE = "about:blank"
_ABSENT = "/robots.txt"
"""What no page has, and any server is asked for: a few bytes say so, in a document of their own."""
PAINT_WAIT_MS = 1500
"""What `COLLECT` is called with: how long a page may take to paint after its load event."""
_SETTLE_WINDOW_S = 0.04
_SETTLE_MOST_S = 0.6
_PRIMINGS_MOST = 16


@dataclass(frozen=True, slots=True)
class PageLoad:
    """One measured load as the browser tells it, by the names of the W3C; times in ms after the navigation start."""

    started_s: float
    """Start of the measured navigation, seconds since the Unix epoch."""
    setup_ms: float
    """Context, priming, connection close and warm-up before it."""
    settled: bool
    """All our processes came to rest before it; otherwise it was not waited for any longer."""
    navigation: Mapping[str, Any]
    """The PerformanceNavigationTiming entry (Navigation Timing Level 2)."""
    paint: Mapping[str, float | None]
    """Start of each PerformancePaintTiming entry by its name; `first-contentful-paint` is None where there was none."""
    resources: tuple[Mapping[str, Any], ...]
    """The PerformanceResourceTiming entries."""
    raw: str
    """The navigation and paint entries, JSON."""


@dataclass(frozen=True, slots=True)
class SecureDns:
    """The only resolver of a browser: it asks over HTTPS (RFC 8484) by itself, and nobody where that fails."""

    host: str
    address: str
    """Where that host is."""
    over_h3: bool
    """HTTP/3 from the first query on (DoH3); else HTTP/2 (DoH)."""

    @property
    def url(self) -> str:
        """Of its resource, without the query."""
        return f"https://{self.host}/dns-query"


class Browser(ABC):
    """A browser in the client's namespace; a context manager that ends it. `BrowserError` where it does not start.

    Parameters
    ----------
    programs
        What is started.
    folder
        Private folder for profile, home and logs; goes with the namespaces.
    addresses
        Host name -> IPv4 address: what the browser is told. Each host is spoken to over QUIC.
    certificates
        Of the server, the ones that are accepted.
    resolves
        Host names that the browser resolves by itself (coupled loads); `*.example.org`: all below that name. Every name
        but these and those of `addresses`, its own background lookups among them, comes to nothing.
    force_h3
        Speak QUIC to the hosts it resolves too, whatever DNS says of them. False leaves it to their HTTPS records (RFC
        9460): where there are none, it stays with HTTP/2.
    few_processes
        No process is started before a page needs it; Chromium loads no page of its own, and its network service is a
        thread of the browser. Users have more processes, to save time and to be safe from what they load;
        where computing takes no time they save none, and cost what is computed to start them and to talk to them.
    page_timeout_s
        How long a page or a lookup may take.
    secure_dns
        Whom it asks by itself; None: the resolver of resolv.conf.
    """

    title: ClassVar[str]
    """What it is called in errors."""
    token_needs_ticket: ClassVar[bool]
    """Of a connection's token and session ticket, it keeps the token only where the ticket came first."""
    faults: ClassVar[tuple[type[Exception], ...]]
    """What raises out of `_open` and `_timings`: its own, and what is let through where a program has been killed."""
    late: ClassVar[type[Exception]]
    """Which of them says that the time was up."""

    def __init__(self) -> None:
        self.loads = 0
        """Measured loads so far, for whoever wants a fresh process now and then."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_fault: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """End it with all its processes; never raises, since a crashed browser has nothing left to close."""

    @abstractmethod
    def _context(self) -> contextlib.AbstractContextManager[None]:
        """A new user context with one tab, which is the one used; removed again with all its state."""

    @abstractmethod
    def _open(self, url: str) -> None:
        """Load a page in the tab, to the end of its load event."""

    @abstractmethod
    def _run(self, function: str, argument: object) -> str:
        """What a function of JavaScript, called with an argument in the tab, promises."""

    def _timings(self) -> str:
        """What `COLLECT` promises in the tab."""
        return self._run(COLLECT, PAINT_WAIT_MS)

    def load(
        self,
        host: str,
        *,
        prime_host: str,
        close_connections: Callable[[], object],
        primed: Callable[[], bool] = lambda: True,
    ) -> PageLoad:
        """One measured load of `https://HOST/` by the decoupled procedure.

        Where a page does not load in time or the browser fails, `BrowserError`; the browser should then be made anew.

        Parameters
        ----------
        prime_host
            The page's own host for a load whose request can go as early data (0-RTT), an alias for a 1-RTT load.
        close_connections
            Makes the server close its connections, so that the measured load needs one of its own.
        primed
            Whether the priming connection has left the browser in the state that the measured load starts from. It is
            called when the connection is established, and again after it is closed.
        """
        begin = time.perf_counter()
        for _ in range(_PRIMINGS_MOST):
            with self._failing(host), self._context():
                self._open(f"https://{prime_host}{_ABSENT}")
                enough = primed()
                if enough:
                    self._open(f"https://{prime_host}/")
                close_connections()
                # Until the connection is closed, a retransmitted token can still change what the browser has kept.
                if enough and primed():
                    return self._measured(host, begin, close_connections)
        raise BrowserError(
            f"was primed {_PRIMINGS_MOST} times without the state asked for",
            where=host,
            next_step="See the server's events.",
        )

    def load_resolving(
        self, host: str, *, reset_sessions: Callable[[], object], close_connections: Callable[[], object]
    ) -> PageLoad:
        """One measured load of `https://HOST/`, a host that the browser resolves, by the coupled procedure.

        `reset_sessions` makes the resolver close its upstream connection and keep what the next one can resume with; it
        is called between the cache-warming load and the measured one. All else is as for `load`.
        """
        begin = time.perf_counter()
        with self._failing(host):
            with self._context():
                self._open(f"https://{host}/")
                close_connections()
            reset_sessions()
            with self._context():
                return self._measured(host, begin, close_connections)

    @contextlib.contextmanager
    def asking(self) -> Iterator[Callable[[str], tuple[float, float]]]:
        """A user context whose lookups share what its resolver keeps between them, as those of a user do.

        What is given looks a name up, one that has no address: when it was asked for and when that was known, ms since
        the Unix epoch. `BrowserError` where the browser fails; the browser should then be made anew.
        """
        with contextlib.ExitStack() as stack:
            with self._failing(_NOWHERE):
                stack.enter_context(self._context())
                self._open(_NOWHERE)
            self.loads += 1
            yield self._looked_up

    def _looked_up(self, host: str) -> tuple[float, float]:
        with self._failing(host):
            begin, end = json.loads(self._run(_RESOLVE, host))
        return float(begin), float(end)

    def _measured(self, host: str, begin: float, close_connections: Callable[[], object]) -> PageLoad:
        """The warm-up page, then the page, measured; `begin` is when the procedure began."""
        self._open(f"https://{WARM_UP_HOST}/")
        settled = self._rests()
        setup_ms = (time.perf_counter() - begin) * 1e3
        self._open(f"https://{host}/")
        raw = json.loads(self._timings())
        close_connections()  # or the server would go on sending to a context that is gone
        self.loads += 1
        return _page_load(raw, setup_ms, settled)

    def _rests(self) -> bool:
        """Wait until nothing of the priming is left, and tell whether that was so."""
        return _settle()

    @contextlib.contextmanager
    def _failing(self, host: str) -> Iterator[None]:
        """Turns what the browser raises during a load into this room's error."""
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
                next_step="It is tried again in a new process.",
            ) from error


def _settle() -> bool:
    """Wait until what the warm-up set off (renderers started ahead, the old tab's end) no longer takes the CPU.

    Idle is at most one clock tick of CPU time in all our processes during a window; a browser that never rests is
    not waited for longer than `_SETTLE_MOST_S`. Returns whether it rested.
    """
    deadline = time.monotonic() + _SETTLE_MOST_S
    used = ticks_used()
    while time.monotonic() < deadline:
        time.sleep(_SETTLE_WINDOW_S)
        before, used = used, ticks_used()
        if used - before <= 1:
            return True
    return False


def _page_load(raw: dict[str, Any], setup_ms: float, settled: bool) -> PageLoad:
    return PageLoad(
        started_s=raw["timeOrigin"] / 1e3,
        setup_ms=setup_ms,
        settled=settled,
        navigation=raw["navigation"],
        paint={"first-contentful-paint": None} | {entry["name"]: entry["startTime"] for entry in raw["paint"]},
        resources=tuple(raw["resources"]),
        raw=json.dumps({"navigation": raw["navigation"], "paint": raw["paint"], "time_origin": raw["timeOrigin"]}),
    )


def first_line(error: Exception) -> str:
    """What an error says, without what follows."""
    text = str(getattr(error, "msg", None) or error).strip() or type(error).__name__
    return text.splitlines()[0]
