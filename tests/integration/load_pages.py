"""Load every page that has no aliases in Chromium through the testbed, and write a report of each load.

    python -m tests.integration.load_pages RESULT.json [SCREENSHOTS]

Chromium resolves names itself over DoUDP, as in the study `web`; the link has no delay and no rate limit. This is a
separate program because it re-executes itself in private namespaces; `test_web_pages` starts it and checks the report.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

from crosslayer import pages
from crosslayer.browser import find_browser
from crosslayer.links import load_profiles
from crosslayer.testbed import namespaces, network
from crosslayer.testbed.server import ConnectionEvent, QueryEvent, RequestEvent, Server
from crosslayer.testbed.testbed import Testbed

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-http-cache",
    "--enable-quic",
    "--window-size=1280,900",
    # Names that Chromium queries by itself do not exist; all other names go to the resolver.
    "--host-resolver-rules=MAP *.google.com ~NOTFOUND, MAP *.googleapis.com ~NOTFOUND",
)
REPORT = """
return {
  load_ms: performance.getEntriesByType('navigation')[0].loadEventStart,
  fcp_ms: performance.getEntriesByName('first-contentful-paint').map(p => p.startTime)[0],
  entries: [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')].map(
    e => ({url: e.name, start_ms: e.startTime, end_ms: e.responseEnd, bytes: e.encodedBodySize,
           protocol: e.nextHopProtocol})),
  broken_images: [...document.images].filter(i => !i.complete || !i.naturalWidth).map(i => i.src),
  fonts: [...document.fonts].map(f => f.status),
  title: document.title,
}
"""
TOO_WIDE = """
return [...document.body.querySelectorAll('*')].filter(
  e => e.getClientRects().length && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))
"""
WIDTHS = (1280, 600)


def start_browser(server: Server, folder: Path) -> webdriver.Chrome:
    """Chromium in the client's namespace, with a profile in `folder`."""
    programs = find_browser()
    options = Options()
    options.binary_location = programs.browser
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for flag in (
        *FLAGS,
        f"--user-data-dir={folder / 'profile'}",
        f"--ignore-certificate-errors-spki-list={server.spki}",
        f"--origin-to-force-quic-on={','.join(f'{host}:443' for host in server.addresses)}",
    ):
        options.add_argument(flag)
    options.add_experimental_option("prefs", {"net.network_prediction_options": 2})
    return webdriver.Chrome(service=Service(programs.driver), options=options)


def load(driver: webdriver.Chrome, server: Server, page: pages.PageSpec) -> dict[str, Any]:
    """Load a page once; returns the browser's report and the events in the server log."""
    driver.set_window_size(WIDTHS[0], 900)
    server.events()
    driver.get(f"https://{page.host}/")
    WebDriverWait(driver, 60, poll_frequency=0.02).until(
        lambda d: d.execute_script(
            "return performance.getEntriesByType('navigation')[0].loadEventEnd > 0"
            " && performance.getEntriesByName('first-contentful-paint').length > 0"
        )
    )
    report: dict[str, Any] = driver.execute_script(REPORT)
    report["too_wide"] = {}
    for width in WIDTHS:
        driver.set_window_size(width, 900)
        report["too_wide"][width] = driver.execute_script(TOO_WIDE)
    report["log"] = driver.get_log("browser")
    # Read last, to include requests after the load event.
    events = server.events()
    report["queries"] = [[e.name.rstrip("."), e.type] for e in events if isinstance(e, QueryEvent)]
    report["requests"] = [[f"https://{e.host}{e.path}", e.status] for e in events if isinstance(e, RequestEvent)]
    report["connections"] = [e.server_name for e in events if isinstance(e, ConnectionEvent) and e.listener == "h3"]
    return report


def main() -> None:
    """Load the pages one after the other in one browser. No two share a host name, so no name is cached."""
    namespaces.enter([sys.executable, "-m", "tests.integration.load_pages", *sys.argv[1:]])
    result = Path(sys.argv[1])
    screenshots = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    every = pages.load_pages(pages.find_spec_dir())
    specs = [page for page in every.values() if not page.aliases]
    with (
        Testbed("plain") as testbed,
        testbed.serve(every, resolved=[page.name for page in specs]) as (server, _addresses),
    ):
        namespaces.use_resolver(network.SERVER_ADDRESS)
        testbed.set_link(load_profiles()["local"])
        driver = start_browser(server, testbed.folder)
        try:
            results = {}
            for page in specs:
                results[page.name] = load(driver, server, page)
                if screenshots:
                    for width in WIDTHS:
                        driver.set_window_size(width, 900)
                        height = driver.execute_script("return document.documentElement.scrollHeight + 150")
                        driver.set_window_size(width, height)
                        time.sleep(0.5)  # wait for transitions, for a clean screenshot
                        driver.save_screenshot(str(screenshots / f"{page.name}-{width}.png"))
        finally:
            driver.quit()
    result.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
