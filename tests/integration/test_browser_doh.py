"""Chromium's own DoH shares no connection with a page, although only Chromium's own rules prevent this."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from crosslayer import pages
from tests.integration.load_over_doh import PAGE

pytestmark = pytest.mark.alone

ROOT = Path(__file__).resolve().parents[2]


def test_dns_and_page_have_connections_of_their_own(browser_machine: None, tmp_path: Path) -> None:
    page, result = pages.load_pages(ROOT / "sites")[PAGE], tmp_path / "result.json"
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.load_over_doh", str(result)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(result.read_text())
    # Chromium queried the page's names over HTTP/3 at the host of the document.
    assert results["names"] == sorted(page.origins)
    assert results["transports"] == ["doh3"]
    assert len(results["document"]) == 1
    to_host = {c["remote"]: c["local"] for c in results["connections"] if c["host"] == page.host}
    assert set(results["queries"]) <= set(to_host)
    assert len(set(to_host.values())) == 1
    # By the server log, no query arrived on the document's connection.
    assert results["document"][0] not in results["queries"]
    # By Chromium's netlog, sessions for DNS have a separate partition and privacy mode.
    of_host = [s for s in results["sessions"] if s["host"] == page.host]
    partitions = {(s["network_anonymization_key"], s["privacy_mode"]) for s in of_host}
    assert len(partitions) == 2
    assert ("null (dns over https)", "enabled") in partitions
