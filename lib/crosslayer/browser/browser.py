"""One Chromium process and the procedures of a measured page load.

*Decoupled*, where Chromium is told the addresses. Every load is the same: a new user context (a fresh profile with a
QUIC session cache of its own), a *priming* load, the server closes its connections, a warm-up page on another site,
then the page, measured. A 0-RTT load primes the page's own host, so Chromium holds its ticket; a 1-RTT load primes an
alias of the host that serves the same page. The two differ in nothing else. Priming starts over, in another context,
where it did not leave what the load is to begin with: whether a browser keeps the token of a connection can be chance.

*Coupled*, where Chromium resolves by itself. A load of the page in a context of its own warms caches along the way and
leaves the resolver a session, which is then reset; the page is measured from a new context, whose host cache, QUIC
sessions and connections are empty, so every lookup reaches the resolver and every web handshake is full.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import urllib3.exceptions
import websocket
from selenium import webdriver
from selenium.common.exceptions import TimeoutException, WebDriverException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

from crosslayer.browser.programs import BrowserError, BrowserPrograms
from crosslayer.machine import ticks_used

WARM_UP_HOST = "www.warmup.example"
"""Another site than every page under test: the measured load is a cross-site navigation into a fresh renderer."""

_FLAGS = (
    "--headless=new",
    "--no-sandbox",  # root of a private user namespace; nothing but our own pages is loaded
    "--disable-gpu",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--disable-domain-reliability",
    "--disable-client-side-phishing-detection",
    "--dns-prefetch-disable",
    "--disable-http-cache",
    "--disable-back-forward-cache",
    "--disable-renderer-backgrounding",  # a page under measurement is in the foreground for its user
    "--disable-backgrounding-occluded-windows",
    "--metrics-recording-only",
    "--mute-audio",
    "--enable-quic",
)
_NO_SPARE_RENDERERS = "--disable-features=SpareRendererForSitePerProcess"

_COLLECT = """
const done = arguments[arguments.length - 1], wait = arguments[0];
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
"""
_PAINT_WAIT_MS = 1500
_QUIC_PORT, _UNUSED_PORT = 443, 1
_ANSWER_INTERVAL_S = 0.001
_ANSWER_TIMEOUT_S = 5.0
_SETTLE_WINDOW_S = 0.04
_SETTLE_MOST_S = 0.6
_PRIMINGS_MOST = 16
_END_MOST_S, _END_POLL_S = 2.0, 0.01

_FAULTS = (WebDriverException, urllib3.exceptions.HTTPError, websocket.WebSocketException, OSError)
"""What Selenium raises: its own, and what it lets through where Chromium or ChromeDriver has been killed."""


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


class Browser:
    """A Chromium process in the client's namespace; `BrowserError` where it does not start.

    Parameters
    ----------
    folder
        Private folder for profile, home and logs; goes with the namespaces.
    addresses
        Host name -> IPv4 address: what Chromium is told. Each host is spoken to over QUIC.
    resolves
        Host names that Chromium resolves by itself (coupled loads). Every name but these and those of `addresses`, its
        own background lookups among them, is refused at once.
    force_h3
        Speak QUIC to the hosts it resolves too, whatever DNS says of them. False leaves it to their HTTPS records (RFC
        9460): where there are none, Chromium stays with HTTP/2.
    spki
        Base64 SHA-256 of the server's public key, the one certificate that is accepted.
    spare_renderers
        Chromium starts renderers before a page needs them, as it does for its users. Where computing takes no time they
        save none, and are a third of what a load computes.
    extra_flags
        Further command-line switches, e.g. a netlog.
    """

    def __init__(
        self,
        programs: BrowserPrograms,
        *,
        folder: Path,
        addresses: Mapping[str, str],
        spki: str,
        resolves: Collection[str] = (),
        force_h3: bool = True,
        spare_renderers: bool = True,
        extra_flags: tuple[str, ...] = (),
        page_timeout_s: float = 60.0,
    ) -> None:
        self._profile = folder / "profile"
        home = folder / "home"
        home.mkdir(parents=True, exist_ok=True)
        rules = [f"MAP {host}:443 {address}:443" for host, address in addresses.items()] + ["MAP * ~NOTFOUND"]
        rules += [f"EXCLUDE {host}" for host in resolves]
        # Over QUIC, Chromium takes the certificate of a private CA only for hosts named here, on whatever port; it is
        # forced to speak QUIC only on the port named.
        quic = [f"{host}:{_QUIC_PORT}" for host in addresses]
        quic += [f"{host}:{_QUIC_PORT if force_h3 else _UNUSED_PORT}" for host in resolves]
        options = Options()
        options.binary_location = programs.browser
        options.enable_bidi = True
        for flag in (
            *_FLAGS,
            f"--user-data-dir={self._profile}",
            f"--ignore-certificate-errors-spki-list={spki}",
            f"--origin-to-force-quic-on={','.join(quic)}",
            f"--host-resolver-rules={','.join(rules)}",
            *(() if spare_renderers else (_NO_SPARE_RENDERERS,)),
            *_netlog(folder),
            *extra_flags,
        ):
            options.add_argument(flag)
        # No speculative preconnect: the handshake then lies within the navigation, where its timing is reported.
        options.add_experimental_option("prefs", {"net.network_prediction_options": 2})
        service = Service(
            programs.driver, env={**os.environ, "HOME": str(home)}, log_output=str(folder / "chromedriver.log")
        )
        try:
            self._driver = webdriver.Chrome(service=service, options=options)
            # Selenium looks for the answer to a BiDi command every 100 ms by default; four of them go to every load.
            self._driver.command_executor.client_config.websocket_interval = _ANSWER_INTERVAL_S
            self._driver.command_executor.client_config.websocket_timeout = _ANSWER_TIMEOUT_S
            self._driver.set_page_load_timeout(page_timeout_s)
            self._driver.set_script_timeout(page_timeout_s)
            self._base = self._driver.current_window_handle
        except _FAULTS as error:
            self.close()
            raise BrowserError(
                f"Chromium does not start: {_first_line(error)}",
                where=programs.browser,
                next_step="Run `crosslayer doctor`; the log is printed with CROSSLAYER_DEBUG=1.",
            ) from error
        self.loads = 0
        """Measured loads so far, for whoever wants a fresh process now and then."""

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_fault: object) -> None:
        self.close()

    def close(self) -> None:
        """End Chromium and ChromeDriver; never raises, since a crashed browser has nothing left to close."""
        with contextlib.suppress(Exception):
            if not _pids(self._profile):  # ChromeDriver would wait 10 s for it
                self._driver.service.process.kill()
            self._driver.quit()
        until = time.monotonic() + _END_MOST_S
        while (left := _pids(self._profile)) and time.monotonic() < until:  # after a ChromeDriver that was killed
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(_END_POLL_S)

    def load(
        self,
        host: str,
        *,
        prime_host: str,
        close_connections: Callable[[], object],
        primed: Callable[[], bool] = lambda: True,
    ) -> PageLoad:
        """One measured load of `https://HOST/` by the decoupled procedure.

        Where a page does not load in time or Chromium fails, `BrowserError`; the browser should then be made anew.

        Parameters
        ----------
        prime_host
            The page's own host for a load whose request can go as early data (0-RTT), an alias for a 1-RTT load.
        close_connections
            Makes the server close its connections, so that the measured load needs one of its own.
        primed
            Tells after a priming load whether it left what the measured load is to begin with.
        """
        begin = time.perf_counter()
        for _ in range(_PRIMINGS_MOST):
            with self._failing(host), self._context():
                self._driver.get(f"https://{prime_host}/")
                enough = primed()
                close_connections()
                if enough:
                    return self._measured(host, begin, close_connections)
        raise BrowserError(
            f"was primed {_PRIMINGS_MOST} times without the state asked for",
            where=host,
            next_step="See the server's events.",
        )

    def load_resolving(
        self, host: str, *, reset_sessions: Callable[[], object], close_connections: Callable[[], object]
    ) -> PageLoad:
        """One measured load of `https://HOST/`, a host that Chromium resolves, by the coupled procedure.

        `reset_sessions` makes the resolver close its upstream connection and keep what the next one can resume with; it
        is called between the cache-warming load and the measured one. All else is as for `load`.
        """
        begin = time.perf_counter()
        with self._failing(host):
            with self._context():
                self._driver.get(f"https://{host}/")
                close_connections()
            reset_sessions()
            with self._context():
                return self._measured(host, begin, close_connections)

    def _measured(self, host: str, begin: float, close_connections: Callable[[], object]) -> PageLoad:
        """The warm-up page, then the page, measured; `begin` is when the procedure began."""
        self._driver.get(f"https://{WARM_UP_HOST}/")
        settled = _settle()
        setup_ms = (time.perf_counter() - begin) * 1e3
        self._driver.get(f"https://{host}/")
        raw = json.loads(self._driver.execute_async_script(_COLLECT, _PAINT_WAIT_MS))
        close_connections()  # or the server would go on sending to a context that is gone
        self.loads += 1
        return _page_load(raw, setup_ms, settled)

    @contextlib.contextmanager
    def _failing(self, host: str) -> Iterator[None]:
        """Turns what Selenium raises during a load into this room's error."""
        try:
            yield
        except TimeoutException as error:
            raise BrowserError(
                "did not load in time", where=host, next_step="See the server's events and the link's rate."
            ) from error
        except _FAULTS as error:
            raise BrowserError(
                f"failed in Chromium: {_first_line(error)}", where=host, next_step="It is tried again in a new process."
            ) from error

    def screenshot(self, host: str, file: Path, *, settle_s: float = 1.0) -> None:
        """Save a picture of a loaded page, for a look at it; not part of any measurement."""
        self._driver.get(f"https://{host}/")
        time.sleep(settle_s)
        self._driver.save_screenshot(str(file))

    @contextlib.contextmanager
    def _context(self) -> Iterator[None]:
        """A new user context with one tab; removed again with all its state."""
        context = self._driver.browser.create_user_context()
        try:
            tab = self._driver.browsing_context.create(type="tab", user_context=context)
            self._driver.switch_to.window(tab)
            yield
        finally:
            with contextlib.suppress(*_FAULTS):
                self._driver.switch_to.window(self._base)
            with contextlib.suppress(*_FAULTS):
                self._driver.browser.remove_user_context(context)  # closes its tabs too


def _netlog(folder: Path) -> tuple[str, ...]:
    """The switch that has Chromium write its log to the folder that NETLOGDIR names; none where it names none."""
    logs = os.environ.get("NETLOGDIR")
    return (f"--log-net-log={Path(logs, folder.name)}.netlog",) if logs else ()


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


def _first_line(error: Exception) -> str:
    text = str(getattr(error, "msg", None) or error).strip() or type(error).__name__
    return text.splitlines()[0]


def _pids(profile: Path) -> list[int]:
    """The processes of the Chromium that has this profile."""
    flag, found = f"--user-data-dir={profile}".encode(), []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # a process that has ended meanwhile
            if flag in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found
