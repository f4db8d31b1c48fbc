"""Make pages from recordings of `tests/data/har`, load them in one Chromium, and compare each with its recording.

    python -m tests.integration.load_cases RESULT.json NAME ...

Many recordings have the same host, so three letters of each host name are replaced to make it unique. This is a
separate program because it re-executes itself in private namespaces; `test_har_cases` starts it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from crosslayer import pages
from crosslayer.browser import WARM_UP_HOST, find_browser, launch
from crosslayer.browser.recorded import likeness, read_recorded
from crosslayer.links import load_profiles
from crosslayer.testbed import namespaces
from crosslayer.testbed.server import RequestEvent
from crosslayer.testbed.testbed import Testbed
from tests.har_cases import MADE_ONLY, contents


def main() -> None:
    """Make, load and compare the pages."""
    namespaces.enter([sys.executable, "-m", "tests.integration.load_cases", *sys.argv[1:]])
    result, *names = sys.argv[1:]
    outcomes: dict[str, dict[str, object]] = {}
    with Testbed("plain") as testbed:
        sites, file = testbed.folder / "cases", testbed.folder / "site.har"
        sites.mkdir()
        for number, name in enumerate(names):
            text = (
                json.dumps(json.loads(contents(name))).replace("syn", f"s{number:02}").replace("SYN", f"S{number:02}")
            )
            file.write_text(text, encoding="utf-8")
            pages.from_har(file, sites / name.replace(".", "-"), synthesise=name in MADE_ONLY)
        (sites / pages.WARMUP).symlink_to(pages.find_spec_dir() / pages.WARMUP)
        specs = pages.load_pages(sites)
        with testbed.serve(specs) as (server, addresses):
            testbed.set_link(load_profiles()["local"])
            with launch(
                find_browser(), folder=testbed.folder / "browser", addresses=addresses, certificates=server.certificates
            ) as browser:
                for name in names:
                    page = specs[name.replace(".", "-")]
                    server.events()
                    load = browser.load(
                        page.host, prime_host=WARM_UP_HOST, close_connections=lambda: server.close_connections("h3")
                    )
                    events = [e for e in server.events() if isinstance(e, RequestEvent) and e.host in page.hosts]
                    compared = likeness(read_recorded(page.folder), events, load.navigation["loadEventStart"])
                    outcomes[name] = {"like": compared.like, "report": str(compared)}
    Path(result).write_text(json.dumps(outcomes, indent=1))


if __name__ == "__main__":
    main()
