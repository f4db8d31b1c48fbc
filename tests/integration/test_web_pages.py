"""The pages of the web study in real Chromium through the testbed: lookups, dependencies, and no other requests."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from crosslayer import pages

ROOT = Path(__file__).resolve().parents[2]
SPECS = {name: page for name, page in pages.load_pages(ROOT / "sites").items() if not page.aliases}
"""Pages whose names the browser resolves itself."""
CLOCK_STEP_MS = 0.2
"""Tolerance for differences of times, which Chromium rounds to 0.1 ms each."""


@pytest.fixture(scope="module")
def loads(browser_machine: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Report of one load of each page, by the page's name."""
    result = tmp_path_factory.mktemp("loads") / "result.json"
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.load_pages", str(result)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    loads: dict[str, dict[str, Any]] = json.loads(result.read_text())
    return loads


def url(page: pages.PageSpec, resource: pages.ResourceSpec) -> str:
    return f"https://{resource.origin or page.host}{resource.path}"


@pytest.mark.parametrize("page", SPECS.values(), ids=SPECS)
def test_lookups_of_a_load_are_those_of_the_specification(
    loads: dict[str, dict[str, Any]], page: pages.PageSpec
) -> None:
    load = loads[page.name]
    assert Counter(name for name, kind in load["queries"] if kind == "A") == dict.fromkeys(page.hosts, 1)
    assert {name for name, _ in load["queries"]} == set(page.hosts)
    assert len(page.hosts) == page.lookups
    # Each name has its own connection; no connection is shared because of the same address or certificate.
    assert Counter(load["connections"]) == dict.fromkeys(page.hosts, 1)


@pytest.mark.parametrize("page", SPECS.values(), ids=SPECS)
def test_every_resource_is_fetched_once_and_nothing_else(
    loads: dict[str, dict[str, Any]], page: pages.PageSpec
) -> None:
    load = loads[page.name]
    assert sorted(load["requests"]) == sorted([url(page, r), 200] for r in page.resources)
    assert {e["url"]: e["bytes"] for e in load["entries"]} == {url(page, r): r.wire_bytes for r in page.resources}
    assert {e["protocol"] for e in load["entries"]} == {"h3"}
    assert load["broken_images"] == []
    assert all(status == "loaded" for status in load["fonts"])
    assert len(load["fonts"]) == sum(r.content_type == "font/ttf" for r in page.resources)
    assert load["log"] == []
    assert load["title"]


@pytest.mark.parametrize("page", SPECS.values(), ids=SPECS)
def test_the_browser_finds_each_resource_where_the_specification_says(
    loads: dict[str, dict[str, Any]], page: pages.PageSpec
) -> None:
    load = loads[page.name]
    times = {e["url"]: e for e in load["entries"]}
    urls = {r.key: url(page, r) for r in page.resources}
    for resource in page.resources:
        entry = times[urls[resource.key]]
        if resource.after not in ("", "/"):  # the document is parsed while it is received
            assert entry["start_ms"] >= times[urls[resource.after]]["end_ms"] - CLOCK_STEP_MS, resource.key
        # Every resource belongs to the load, so it is part of PLT.
        assert entry["end_ms"] <= load["load_ms"] + CLOCK_STEP_MS, resource.key
    assert load["fcp_ms"] > 0


@pytest.mark.parametrize("page", SPECS.values(), ids=SPECS)
def test_page_fits_its_window(loads: dict[str, dict[str, Any]], page: pages.PageSpec) -> None:
    assert loads[page.name]["too_wide"] == {"1280": [], "600": []}
