"""The installed, unmodified Chromium, driven by Selenium over WebDriver BiDi."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import urllib3.exceptions
import websocket
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from selenium import webdriver
from selenium.common.exceptions import TimeoutException, WebDriverException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

from crosslayer import vocabulary
from crosslayer.browser.browser import Browser, SecureDns, first_line
from crosslayer.browser.programs import BrowserError, BrowserPrograms
from crosslayer.testbed import namespaces
from crosslayer.testbed.certificates import Certificates

_FLAGS = (
    "--headless=new",
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
    "--disable-renderer-backgrounding",  # a user's page is in the foreground
    "--disable-backgrounding-occluded-windows",
    "--metrics-recording-only",
    "--mute-audio",
    "--enable-quic",
)
_NO_SANDBOX = "--no-sandbox"
"""Chromium requires this switch if it runs as root. In a testbed, it is root only inside a private user namespace."""
_BACKGROUND = (
    "accounts.google.com", "clients2.google.com", "optimizationguide-pa.googleapis.com", "update.googleapis.com",
)  # fmt: skip
"""Names that Chromium looks up in the background."""
_POLICIES = Path("/etc/chromium")
_SPECULATIVE = ("SpareRendererForSitePerProcess", "WebUIOmniboxPopup", "WebUIOmniboxAimPopup")
"""Features that load content ahead of demand; the drop-down list of the address bar alone has 250 scripts."""
_FEW_PROCESSES = (
    f"--disable-features={','.join(_SPECULATIVE)}",
    "--enable-features=NetworkServiceInProcess2",
    # While another thread sweeps concurrently, the main thread repeats a task without delay until that thread is done.
    # In virtual time the clock stands still while the main thread computes, so the other thread never gets the
    # processor.
    "--js-flags=--single-threaded-gc",
)
_QUIC_PORT, _UNUSED_PORT = 443, 1
_ANSWER_INTERVAL_S = 0.001
_ANSWER_TIMEOUT_S = 5.0
_END_MOST_S, _END_POLL_S = 2.0, 0.01
_CALLED = "({})(arguments[0]).then(arguments[arguments.length - 1])"


class Chromium(Browser):
    """Chromium and its ChromeDriver; parameters as in `Browser`."""

    title = vocabulary.BROWSERS[vocabulary.Browser.CHROMIUM].title
    token_needs_ticket = True  # QuicClientSessionCache::OnNewTokenReceived
    faults = (WebDriverException, urllib3.exceptions.HTTPError, websocket.WebSocketException, OSError)
    late = TimeoutException

    def __init__(
        self,
        programs: BrowserPrograms,
        *,
        folder: Path,
        addresses: Mapping[str, str],
        certificates: Certificates | None,
        resolves: Collection[str] = (),
        force_h3: bool = True,
        few_processes: bool = False,
        page_timeout_s: float = 60.0,
        secure_dns: SecureDns | None = None,
    ) -> None:
        super().__init__()
        self._profile = folder / "profile"
        home = folder / "home"
        home.mkdir(parents=True, exist_ok=True)
        rules = [f"MAP {host}:443 {address}:443" for host, address in addresses.items()] + ["MAP * ~NOTFOUND"]
        if "*" in resolves:
            rules[-1:] = [f"MAP {host} ~NOTFOUND" for host in _BACKGROUND]
        else:
            rules += [f"EXCLUDE {host}" for host in resolves]
        # Over QUIC, Chromium accepts the certificate of a private CA only for hosts in this list, on any port. The list
        # forces QUIC only on the given port.
        quic = [f"{host}:{_QUIC_PORT}" for host in addresses]
        quic += [f"{host}:{_QUIC_PORT if force_h3 else _UNUSED_PORT}" for host in resolves if not host.startswith("*")]
        if secure_dns is not None:
            rules.insert(0, f"MAP {secure_dns.host}:443 {secure_dns.address}:443")
            quic += [f"{secure_dns.host}:{_QUIC_PORT}"] if secure_dns.over_h3 else []
        options = Options()
        options.binary_location = programs.browser
        options.enable_bidi = True
        for flag in (
            *_FLAGS,
            f"--user-data-dir={self._profile}",
            *([f"--ignore-certificate-errors-spki-list={certificates.spki}"] if certificates else []),
            f"--origin-to-force-quic-on={','.join(quic)}",
            f"--host-resolver-rules={','.join(rules)}",
            *(_FEW_PROCESSES if few_processes else ()),
            *_netlog(folder),
            *([_NO_SANDBOX] if os.geteuid() == 0 else []),
        ):
            options.add_argument(flag)
        # No speculative preconnect, so that the handshake is part of the navigation, which reports its timing.
        options.add_experimental_option("prefs", {"net.network_prediction_options": 2})
        if secure_dns is not None:
            local_state = {"dns_over_https.mode": "secure", "dns_over_https.templates": f"{secure_dns.url}{{?dns}}"}
            options.add_experimental_option("localState", local_state)
        service = Service(
            programs.driver, env={**os.environ, "HOME": str(home)}, log_output=str(folder / "chromedriver.log")
        )
        try:
            self._driver = webdriver.Chrome(service=service, options=options)
            # By default Selenium polls for the answer to a BiDi command every 100 ms; a load has four such commands.
            self._driver.command_executor.client_config.websocket_interval = _ANSWER_INTERVAL_S
            self._driver.command_executor.client_config.websocket_timeout = _ANSWER_TIMEOUT_S
            self._driver.set_page_load_timeout(page_timeout_s)
            self._driver.set_script_timeout(page_timeout_s)
            self._base = self._driver.current_window_handle
        except self.faults as error:
            self.close()
            raise BrowserError(
                f"Chromium does not start: {first_line(error)}",
                where=programs.browser,
                next_step="Run `crosslayer doctor`; the log is printed with CROSSLAYER_DEBUG=1.",
            ) from error

    def close(self) -> None:
        """End Chromium and ChromeDriver."""
        with contextlib.suppress(Exception):
            if not _pids(self._profile):  # otherwise ChromeDriver waits 10 s for Chromium
                self._driver.service.process.kill()
            self._driver.quit()
        until = time.monotonic() + _END_MOST_S
        while (remaining := _pids(self._profile)) and time.monotonic() < until:  # if ChromeDriver was killed
            for pid in remaining:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(_END_POLL_S)

    @contextlib.contextmanager
    def _context(self) -> Iterator[None]:
        context = self._driver.browser.create_user_context()
        try:
            tab = self._driver.browsing_context.create(type="tab", user_context=context)
            self._driver.switch_to.window(tab)
            yield
        finally:
            with contextlib.suppress(*self.faults):
                self._driver.switch_to.window(self._base)
            with contextlib.suppress(*self.faults):
                self._driver.browser.remove_user_context(context)  # closes its tabs too

    def _open(self, url: str) -> None:
        self._driver.get(url)

    def _run(self, function: str, argument: object) -> str:
        return str(self._driver.execute_async_script(_CALLED.format(function), argument))


def trust(ca_file: Path) -> None:
    """Make Chromium accept certificates of further CAs (PEM), only in this process's mount namespace.

    `BrowserError` if the file has no certificates, or if the machine lacks the folder of Chromium's settings.
    """
    try:
        certificates = x509.load_pem_x509_certificates(ca_file.read_bytes())
    except (OSError, ValueError) as error:
        raise BrowserError(
            f"has no certificates ({error})", where=str(ca_file), next_step="Name a PEM file of CAs."
        ) from error
    if not _POLICIES.is_dir():
        raise BrowserError(
            "does not exist, and Chromium reads further CAs from it",
            where=str(_POLICIES),
            next_step="Create it, or leave --ca out.",
        )
    namespaces.mount("tmpfs", str(_POLICIES), "tmpfs")
    managed = _POLICIES / "policies" / "managed"
    managed.mkdir(parents=True)
    accepted = [base64.b64encode(one.public_bytes(Encoding.DER)).decode() for one in certificates]
    (managed / "ca.json").write_text(json.dumps({"CACertificates": accepted}), encoding="utf-8")


def _netlog(folder: Path) -> tuple[str, ...]:
    """The switch that makes Chromium write its netlog to the folder that the environment variable NETLOGDIR names.

    Empty if the variable is not set.
    """
    logs = os.environ.get("NETLOGDIR")
    return (f"--log-net-log={Path(logs, folder.name)}.netlog",) if logs else ()


def _pids(profile: Path) -> list[int]:
    """Process IDs of the Chromium that uses this profile."""
    flag, pids = f"--user-data-dir={profile}".encode(), []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # the process has ended meanwhile
            if flag in (entry / "cmdline").read_bytes():
                pids.append(int(entry.name))
    return pids
