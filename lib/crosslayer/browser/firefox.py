"""The installed, unmodified Firefox, driven over WebDriver BiDi without a driver.

A user context is one of Firefox's containers: sessions, tickets and tokens are separate for each container.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import websocket

from crosslayer import vocabulary
from crosslayer.browser.bidi import Bidi, BidiError
from crosslayer.browser.browser import WARM_UP_HOST, Browser, SecureDns, first_line
from crosslayer.browser.programs import BrowserError, BrowserPrograms
from crosslayer.process import Process
from crosslayer.testbed import namespaces
from crosslayer.testbed.certificates import Certificates

_NO_RACE_MS = 600_000

_PREFERENCES: Mapping[str, object] = {
    # Like Chromium's switches: no caches, no speculative loads, no reduced timer precision.
    "browser.cache.disk.enable": False,
    "browser.cache.memory.enable": False,
    "image.cache.size": 0,
    "browser.sessionhistory.max_total_viewers": 0,
    # The default value; a BiDi session sets 0. With 0, Firefox repeats a timer without delay until the tab in front is
    # drawn, and the virtual clock stands still meanwhile.
    "browser.tabs.remote.unloadDelayMs": 300,
    "network.dns.disablePrefetch": True,
    "network.http.speculative-parallel-limit": 0,
    "privacy.reduceTimerPrecision": False,
    # No icons: Firefox repeats an icon's request if the server's close interrupts it. The measured load would then use
    # the connection of that request, over TCP, or lack the ticket that the request used.
    "browser.chrome.site_icons": False,
    # The far end has no IPv6, and its certificate is from a private CA.
    "network.dns.disableIPv6": True,
    "network.http.http3.disable_when_third_party_roots_found": False,
    # These background requests are not disabled by a BiDi session.
    "browser.newtabpage.enabled": False,
    "browser.startup.page": 0,
    "extensions.systemAddon.update.enabled": False,
    "media.gmp-manager.updateEnabled": False,
    "network.trr.mode": 5,
    "security.OCSP.enabled": 0,
    "toolkit.telemetry.enabled": False,
    "toolkit.telemetry.unified": False,
}
_FORCED: Mapping[str, object] = {
    # Firefox must not open a TCP connection in competition with a slow QUIC connection. No HTTPS record announces
    # HTTP/3 here.
    "network.dns.httpssvc.http3_fast_fallback_timeout": _NO_RACE_MS,
    "network.http.http3.backup_timer_delay": _NO_RACE_MS,
}
_HTTPS_RECORDS: Mapping[str, object] = {
    # Query HTTPS records at the resolver of resolv.conf, even if the connectivity check of Mozilla's name has failed.
    "network.dns.native_https_query": True,
    "network.dns.native_https_query_in_automation": True,
    "network.dns.force_use_https_rr": True,
}
_MAPPING = "network.http.http3.alt-svc-mapping-for-testing"

_ENVIRONMENT = {
    # No sandbox: Firefox is root of a private user namespace, as Chromium is, and loads only pages of the testbed.
    **{f"MOZ_DISABLE_{of}_SANDBOX": "1" for of in ("CONTENT", "GMP", "RDD", "SOCKET_PROCESS", "UTILITY")},
    "MOZ_CRASHREPORTER_DISABLE": "1",
    "MOZ_REMOTE_SETTINGS_DEVTOOLS": "1",  # otherwise Mozilla's server overrides preferences
}

_TRUST = """
ca => {
  Cc["@mozilla.org/security/x509certdb;1"].getService(Ci.nsIX509CertDB).addCertFromBase64(JSON.parse(ca), "CT,,");
}
"""
"""JavaScript with the browser's privileges: adds the CA to Firefox's trust store."""

_ADDRESSES = """
addresses => {
  const names = Cc["@mozilla.org/network/native-dns-override;1"].getService(Ci.nsINativeDNSResolverOverride);
  for (const [host, address] of Object.entries(JSON.parse(addresses))) names.addIPOverride(host, address);
}
"""
"""JavaScript with the browser's privileges: sets hosts' addresses. Firefox then sends no queries for HTTPS records."""

_WAIT_FOR_CLOSED = """
argument => new Promise(done => {
  const {but, wait_ms} = JSON.parse(argument), limit = Date.now() + wait_ms;
  const dashboard = Cc["@mozilla.org/network/dashboard;1"].getService(Ci.nsIDashboard);
  (function again() {
    dashboard.requestHttpConnections(({connections}) => {
      const left = connections.filter(({host, active, idle}) =>
        !but.includes(host) && [...active, ...idle].some(each => !each.protocolVersion.endsWith("2")));
      if (!left.length || Date.now() > limit) done(left.length); else setTimeout(again, 5);
    });
  })();
})
"""
"""JavaScript with the browser's privileges: waits until Firefox has connections only to the hosts in `but`.

It waits at most `wait_ms`. It returns a promise of the number of other hosts to which Firefox then still has
connections (about:networking). HTTP/2 connections (`h2`, `http/2`) are ignored because they do not delay new ones. The
function does not search for HTTP/3 connections, because a draining connection no longer reports HTTP/3 as its protocol.
"""
_FORGET_FAILURES = """
() => {
  Services.obs.notifyObservers(null, "network:reset-http3-excluded-list");
  Services.dns.clearCache(true);
}
"""
"""JavaScript with the browser's privileges: clears the list of hosts where HTTP/3 failed, and the DNS cache."""
_CLOSED_WAIT_MS = 20_000
_TRIES = 10


class _Program(Process):
    name = "Firefox"
    fault = BrowserError
    ready_timeout_s = 60.0
    log_lines = 2

    def websocket_url(self) -> str:
        """URL of Firefox's WebSocket; empty until Firefox has logged it."""
        match = re.search(r"WebDriver BiDi listening on (ws://\S+)\n", self.log.read_text(errors="replace"))
        return match[1] if match else ""


class Firefox(Browser):
    """Firefox without a driver; parameters as in `Browser`.

    Parameters
    ----------
    preferences
        Further preferences of about:config by name; they override those that crosslayer sets.
    """

    title = vocabulary.BROWSERS[vocabulary.Browser.FIREFOX].title
    token_needs_ticket = False  # neqo waits for the token and stores it with the ticket
    faults = (BidiError, websocket.WebSocketException, OSError)
    late = websocket.WebSocketTimeoutException

    def __init__(
        self,
        programs: BrowserPrograms,
        *,
        folder: Path,
        addresses: Mapping[str, str],
        certificates: Certificates,
        resolves: Collection[str] = (),
        force_h3: bool = True,
        few_processes: bool = False,
        page_timeout_s: float = 60.0,
        secure_dns: SecureDns | None = None,
        preferences: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__()
        self.returns_at_once = False
        """Whether a load may begin while earlier connections are still being discarded, see `_wait_until_idle`."""
        self._in_use = [WARM_UP_HOST, *([secure_dns.host] if secure_dns is not None else [])]
        profile, home = folder / "profile", folder / "home"
        for directory in (profile, home):
            directory.mkdir(parents=True, exist_ok=True)
        over_h3 = [*addresses, *(host for host in resolves if force_h3 and not host.startswith("*"))]
        prefs = {**_PREFERENCES, _MAPPING: ",".join(f"{host};h3=:443" for host in over_h3)}
        prefs |= _FORCED if force_h3 else _HTTPS_RECORDS
        prefs |= _secure_dns_preferences(secure_dns) if secure_dns is not None else {}
        prefs["dom.ipc.processPrelaunch.enabled"] = not few_processes
        prefs |= preferences or {}
        lines = (f"user_pref({json.dumps(name)}, {json.dumps(value)});\n" for name, value in prefs.items())
        (profile / "user.js").write_text("".join(lines), encoding="utf-8")
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("MOZ_", "XDG_", "DBUS_"))}
        self._program = _Program(
            subprocess.Popen,
            [
                *(programs.browser, "--headless", "--no-remote", "--profile", str(profile)),
                *("--remote-debugging-port", "0", "--remote-allow-system-access"),
            ],
            folder / "firefox.log",
            env={**environment, **_ENVIRONMENT, "HOME": str(home)},
            start_new_session=True,
        )
        try:
            self._program.wait_until(lambda: bool(self._program.websocket_url()))
            self._bidi = Bidi(f"{self._program.websocket_url()}/session", page_timeout_s)
            own = self._bidi.call("browsingContext.getTree", **{"moz:scope": "chrome"})["contexts"][0]["context"]
            ca = "".join(certificates.ca_file.read_text(encoding="ascii").strip().splitlines()[1:-1])
            self._bidi.run(_TRUST, ca, context=own)
            if force_h3:
                self._bidi.run(_ADDRESSES, dict(addresses), context=own)
            else:
                namespaces.use_hosts(addresses)
            self._own = own
            if WARM_UP_HOST in addresses:
                self._ask_over_h3()
        except self.faults as error:
            self.close()
            raise BrowserError(
                f"Firefox does not start: {first_line(error)}",
                where=programs.browser,
                next_step=f"Run `crosslayer doctor`; its log is {self._program.log}.",
            ) from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End Firefox with its content processes."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._program.pid, signal.SIGKILL)  # its state is not kept
        self._program.stop()

    def forget_failures(self) -> None:
        """Make Firefox forget all looked-up addresses and all hosts where HTTP/3 failed, for all user contexts."""
        with self._failing(""):
            self._bidi.run(_FORGET_FAILURES, 0, context=self._own)

    def _ask_over_h3(self) -> None:
        """Load the warm-up page until it is loaded over HTTP/3; `BidiError` if all `_TRIES` loads use TCP.

        At its first request Firefox starts to read its list of HTTP/3 hosts from a file of its profile. Firefox uses
        TCP until it has read the file. A pause between the loads does not help: during a pause Firefox does not read
        the file.
        """
        for _ in range(_TRIES):
            with self._context():
                self._open(f"https://{WARM_UP_HOST}/")
                if json.loads(self._timings())["navigation"]["nextHopProtocol"] == "h3":
                    return
        raise BidiError(f"{WARM_UP_HOST} comes over TCP each of {_TRIES} times")

    @contextlib.contextmanager
    def _context(self) -> Iterator[None]:
        context = self._bidi.call("browser.createUserContext")["userContext"]
        try:
            self._tab = self._bidi.call("browsingContext.create", type="tab", userContext=context)["context"]
            yield
        finally:
            with contextlib.suppress(*self.faults):
                self._bidi.call("browser.removeUserContext", userContext=context)  # closes its tabs too

    def _open(self, url: str) -> None:
        self._bidi.call("browsingContext.navigate", context=self._tab, url=url, wait="complete")

    def _wait_until_idle(self) -> bool:
        """Wait until Firefox is idle and has discarded its closed connections.

        Firefox waits three PTOs for a closed QUIC connection to drain (RFC 9000, section 10.2) before it reconnects to
        the same host. On 4G, three PTOs are half a second, and no user returns to a host that soon. If no packet comes
        back on the path, Firefox waits until the connection's idle timeout. `returns_at_once` disables the wait for
        closed connections.
        """
        if self.returns_at_once:
            return super()._wait_until_idle()
        remaining = self._bidi.run(
            _WAIT_FOR_CLOSED, {"but": self._in_use, "wait_ms": _CLOSED_WAIT_MS}, context=self._own
        )
        return super()._wait_until_idle() and not remaining

    def _run(self, function: str, argument: object) -> str:
        return str(self._bidi.run(function, argument, context=self._tab))


def _secure_dns_preferences(resolver: SecureDns) -> dict[str, object]:
    """Preferences for a Firefox that uses only this resolver (TRR only), without a confirmation query."""
    return {
        "network.trr.mode": 3,
        "network.trr.uri": resolver.url,
        "network.trr.bootstrapAddr": resolver.address,
        "network.trr.force_http3_first": resolver.over_h3,
        "network.trr.allow-rfc1918": True,
        "network.trr.confirmationNS": "skip",
    }
