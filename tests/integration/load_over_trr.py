"""Load a page in Firefox, which resolves names with its own DoH at the page's server, and write a report of the load.

    python -m tests.integration.load_over_trr doh|doh3 RESULT.json

`test_firefox` starts this program and checks the report.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from crosslayer import pages
from crosslayer.browser import WARM_UP_HOST, SecureDns, find_browser, launch
from crosslayer.links import load_profiles
from crosslayer.testbed import namespaces
from crosslayer.testbed.server import QueryEvent, RequestEvent
from crosslayer.testbed.testbed import Testbed

PAGE = "social-network"


def main() -> None:
    """Load the warm-up page and then the page, each once."""
    transport, result = sys.argv[1:]
    namespaces.enter([sys.executable, "-m", "tests.integration.load_over_trr", *sys.argv[1:]])
    specs = pages.load_pages(pages.find_spec_dir())
    page = specs[PAGE]
    with Testbed("plain") as testbed, testbed.serve(specs, resolved=[PAGE, "warmup"]) as (server, addresses):
        testbed.set_link(load_profiles()["local"])
        asks = SecureDns(page.host, server.addresses[page.host], over_h3=transport == "doh3")
        with (
            launch(
                find_browser("firefox"),
                folder=testbed.folder / "browser",
                addresses={},
                certificates=server.certificates,
                resolves=addresses,
                secure_dns=asks,
            ) as browser,
            browser._context(),
        ):
            for host in (WARM_UP_HOST, page.host):
                browser._open(f"https://{host}/")
            events = server.events()
    queries = [event for event in events if isinstance(event, QueryEvent)]
    requests = [event for event in events if isinstance(event, RequestEvent)]
    results = {
        "expected": sorted({WARM_UP_HOST, *page.origins} - {page.host}),
        "names": sorted({event.name.rstrip(".") for event in queries}),
        "transports": [event.listener for event in queries],
        "queries": [event.remote for event in queries],
        "document": [event.remote for event in requests if (event.host, event.path) == (page.host, "/")],
    }
    Path(result).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
