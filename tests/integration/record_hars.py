"""Record pages of `sites/` in Chromium as HAR files, in the format that its developer tools export.

    python -m tests.integration.record_hars FOLDER NAME[:h2|:bare] ...

This program made the files in `tests/data/hars`. Bodies of pictures and fonts are omitted; with `bare`, all bodies.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

from crosslayer import pages
from crosslayer.browser import find_browser
from crosslayer.guest import inside, run_attached
from crosslayer.links import load_profiles
from crosslayer.testbed import namespaces, network
from crosslayer.testbed.server import Server
from crosslayer.testbed.testbed import Testbed
from tests.integration.load_pages import FLAGS


def browser(server: Server, folder: Path, *, h3: bool) -> webdriver.Chrome:
    """Chromium with a log of its network events."""
    programs = find_browser()
    options = Options()
    options.binary_location = programs.browser
    options.set_capability("goog:loggingPrefs", {"performance": "ALL"})
    quic = [f"--origin-to-force-quic-on={','.join(f'{host}:443' for host in server.addresses)}"] if h3 else []
    for flag in (*FLAGS, f"--user-data-dir={folder}", f"--ignore-certificate-errors-spki-list={server.spki}", *quic):
        options.add_argument(flag)
    return webdriver.Chrome(service=Service(programs.driver), options=options)


def record(driver: webdriver.Chrome, host: str, *, bare: bool) -> dict[str, Any]:
    """Load a page once; returns the load as HAR."""
    driver.get_log("performance")
    driver.get(f"https://{host}/")
    results: dict[str, dict[str, Any]] = {}
    load_s = 0.0
    for line in driver.get_log("performance"):
        message = json.loads(line["message"])["message"]
        parameters, method = message["params"], message["method"]
        if method == "Network.requestWillBeSent" and parameters["request"]["url"].startswith("https:"):
            results[parameters["requestId"]] = {"sent": parameters}
        elif method == "Network.responseReceived" and parameters["requestId"] in results:
            results[parameters["requestId"]]["response"] = parameters["response"]
        elif method == "Network.loadingFinished" and parameters["requestId"] in results:
            results[parameters["requestId"]] |= {
                "bytes": parameters["encodedDataLength"],
                "end": parameters["timestamp"],
            }
        elif method == "Page.loadEventFired":
            load_s = parameters["timestamp"]
    entries = [_entry(driver, number, parts, bare=bare) for number, parts in results.items()]
    first = min((parts["sent"] for parts in results.values()), key=lambda sent: sent["timestamp"])
    page = {
        "startedDateTime": _date(first["wallTime"]),
        "id": "page_1",
        "title": host,
        "pageTimings": {"onLoad": round((load_s - first["timestamp"]) * 1e3, 3)},
    }
    creator = {"name": "crosslayer", "version": "1"}
    return {"log": {"version": "1.2", "creator": creator, "pages": [page], "entries": entries}}


def _entry(driver: webdriver.Chrome, number: str, parts: dict[str, Any], *, bare: bool) -> dict[str, Any]:
    sent, response = parts["sent"], parts["response"]
    content = {"size": 0, "mimeType": response["mimeType"]}
    body = driver.execute_cdp_cmd("Network.getResponseBody", {"requestId": number})
    if body["base64Encoded"]:
        content["size"] = len(body["body"]) * 3 // 4
    else:
        content |= {"size": len(body["body"].encode())} | ({} if bare else {"text": body["body"]})
    return {
        "_initiator": sent["initiator"],
        "_resourceType": sent["type"].lower(),
        "pageref": "page_1",
        "startedDateTime": _date(sent["wallTime"]),
        "time": round((parts["end"] - sent["timestamp"]) * 1e3, 3),
        "request": {
            "method": sent["request"]["method"],
            "url": sent["request"]["url"],
            "httpVersion": response["protocol"],
            "headers": _fields(sent["request"]["headers"]),
        },
        "response": {
            "status": response["status"],
            "httpVersion": response["protocol"],
            "headers": _fields(response["headers"]),
            "content": content,
            "bodySize": -1,
            "_transferSize": round(parts["bytes"]),
        },
    }


def _fields(headers: dict[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in headers.items()]


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds")


def main() -> None:
    """Record the pages that the command line names."""
    folder, wanted = Path(sys.argv[1]), [name.partition(":") for name in sys.argv[2:]]
    command = [sys.executable, "-m", "tests.integration.record_hars", *sys.argv[1:]]
    if inside() is None:  # in virtual time, so the recorded times do not depend on the machine
        sys.exit(run_attached(command, clock="virtual", writable=[folder]))
    namespaces.enter(command)
    specs = pages.load_pages(pages.find_spec_dir())
    with (
        Testbed() as testbed,
        testbed.serve(specs, resolved=[name for name, _, _ in wanted]) as (server, _),
    ):
        namespaces.use_resolver(network.SERVER_ADDRESS)
        testbed.set_link(load_profiles()["fiber"])
        for name, _, version in wanted:
            driver = browser(server, testbed.folder / f"profile-{name}", h3=version != "h2")
            try:
                har = record(driver, specs[name].host, bare=version == "bare")
            finally:
                driver.quit()
            (folder / f"{name}.har").write_text(json.dumps(har, indent=1) + "\n")


if __name__ == "__main__":
    main()
