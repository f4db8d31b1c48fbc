"""Load a page in Chromium, which resolves names over DoH3 at the page's own server, and write a report of the load.

    python -m tests.integration.load_over_doh RESULT.json

Resolver and page have the same host name, address, port, certificate and server. So only the browser's own rules
prevent queries on the page's connection. `test_browser_doh` starts this program and checks the report.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

from crosslayer import pages
from crosslayer.browser import find_browser
from crosslayer.links import load_profiles
from crosslayer.testbed import namespaces
from crosslayer.testbed.server import ConnectionEvent, QueryEvent, RequestEvent, Server
from crosslayer.testbed.testbed import Testbed
from tests.integration.load_pages import FLAGS

PAGE = "social-network"


def start_browser(server: Server, page: pages.PageSpec, folder: Path, netlog: Path) -> webdriver.Chrome:
    """Chromium with the page's server as its only resolver; a flag gives it the address of the page's own name."""
    programs = find_browser()
    options = Options()
    options.binary_location = programs.browser
    for flag in (
        *(flag for flag in FLAGS if not flag.startswith("--host-resolver-rules")),
        f"--user-data-dir={folder}",
        f"--ignore-certificate-errors-spki-list={server.spki}",
        f"--origin-to-force-quic-on={','.join(f'{host}:443' for host in server.addresses)}",
        f"--host-resolver-rules=MAP {page.host}:443 {server.addresses[page.host]}:443",
        f"--log-net-log={netlog}",
    ):
        options.add_argument(flag)
    options.add_experimental_option("prefs", {"net.network_prediction_options": 2})
    template = f"https://{page.host}/dns-query{{?dns}}"
    options.add_experimental_option(
        "localState", {"dns_over_https.mode": "secure", "dns_over_https.templates": template}
    )
    return webdriver.Chrome(service=Service(programs.driver), options=options)


def sessions(netlog: Path) -> list[dict[str, Any]]:
    """Parameters of each QUIC session at its beginning, from Chromium's netlog."""
    log = json.loads(netlog.read_text(encoding="utf-8"))
    kind, begin = log["constants"]["logEventTypes"]["QUIC_SESSION"], log["constants"]["logEventPhase"]["PHASE_BEGIN"]
    return [event["params"] for event in log["events"] if (event["type"], event["phase"]) == (kind, begin)]


def main() -> None:
    """Load the page once."""
    namespaces.enter([sys.executable, "-m", "tests.integration.load_over_doh", *sys.argv[1:]])
    specs = pages.load_pages(pages.find_spec_dir())
    page = specs[PAGE]
    with Testbed("plain") as testbed, testbed.serve(specs, resolved=[PAGE]) as (server, _addresses):
        testbed.set_link(load_profiles()["local"])
        netlog = testbed.folder / "netlog.json"
        driver = start_browser(server, page, testbed.folder / "profile", netlog)
        try:
            driver.get(f"https://{page.host}/")
        finally:
            driver.quit()
        events = server.events()
        results = {
            "names": sorted({e.name.rstrip(".") for e in events if isinstance(e, QueryEvent)} & set(page.hosts)),
            "transports": sorted({e.listener for e in events if isinstance(e, QueryEvent)}),
            "queries": sorted({e.remote for e in events if isinstance(e, QueryEvent)}),
            "document": [e.remote for e in events if isinstance(e, RequestEvent) and e.path == "/"],
            "connections": [
                {"remote": e.remote, "host": e.server_name, "local": e.local}
                for e in events
                if isinstance(e, ConnectionEvent)
            ],
            "sessions": sessions(netlog),
        }
    Path(sys.argv[1]).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
