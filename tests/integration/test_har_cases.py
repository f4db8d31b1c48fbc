"""Pages made from small recordings load in Chromium as recorded: same requests, no failures, same bytes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from crosslayer.campaign.dataset import Dataset
from tests.har_cases import HARS, PAGES
from tests.integration.conftest import CROSSLAYER

CASES = (
    "pct_one.har", "pct_slash.har", "path_space_quote.har", "css_other_host.har", "css_other_host_nobody.har",
    "frame_other_host.har", "frame_other_host_nobody.har", "empty_js.har", "empty_doc_body.har", "gz_tiny.har",
    "truncated_text.har", "memory_cache.har", "ports.har", "scheme.har", "localhost.har", "xhtml.har", "sjis_b64.har",
    "sri_rewritten.har", "srcset_other.har", "jsonp_relative_base.har", "no_response.har",
)  # fmt: skip
"""One or two recordings of each kind; `setup/test-long recordings` loads all."""


def loaded(folder: Path, names: tuple[str, ...]) -> dict[str, dict[str, object]]:
    """Comparison of each recording with a load of its page."""
    result = folder / "result.json"
    command = [sys.executable, "-m", "tests.integration.load_cases", str(result), *names]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1500)
    assert done.returncode == 0, done.stdout + done.stderr
    outcomes: dict[str, dict[str, object]] = json.loads(result.read_text())
    return outcomes


def test_pages_load_as_recorded(browser_machine: None, tmp_path: Path) -> None:
    assert set(CASES) <= PAGES.keys()
    outcomes = loaded(tmp_path, CASES)
    assert set(outcomes) == set(CASES)
    unlike = {name: outcome["report"] for name, outcome in outcomes.items() if not outcome["like"]}
    assert not unlike


def from_har(name: str, page: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [*CROSSLAYER, "page", "from-har", str(HARS / name), "--out", str(page), *more]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


def test_a_page_is_loaded_before_it_is_kept(browser_machine: None, tmp_path: Path) -> None:
    done = from_har("secret_in_path_and_body.har", tmp_path / "page")
    assert done.returncode == 0, done.stderr
    assert "synthesised, since the recorded code does not load as recorded" in done.stdout
    assert "missing  https://www.syn.test/reset/SECRETTOKEN/a.js" in done.stderr
    assert "requests   the same" in done.stdout
    assert "studies that can use it: coalescing" in done.stdout


def test_the_studies_that_cannot_use_a_page_of_several_hosts_are_named(tmp_path: Path) -> None:
    done = from_har("css_other_host.har", tmp_path / "page", "--no-check")
    assert done.returncode == 0, done.stderr
    can = next(line for line in done.stdout.splitlines() if "studies that can use it" in line)
    cannot = next(line for line in done.stdout.splitlines() if line.startswith("  not address-token"))
    assert "web" in can
    assert "browsers" in can
    assert "address-token: it has 2 host names; it controls only the token of the page's own host" in cannot
    names = "--study", "address-token", "--pages", str(tmp_path / "page"), "--out", str(tmp_path / "data")
    refused = subprocess.run([*CROSSLAYER, "measure", *names], capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "page 'page' cannot be loaded as the study 'address-token' does: it has 2 host names" in refused.stderr


def test_a_page_of_three_hosts_is_measured_in_both_browsers(browser_machine: None, tmp_path: Path) -> None:
    page, data = tmp_path / "page", tmp_path / "data"
    assert from_har("chain_hosts.har", page, "--no-check").returncode == 0
    names = "--study", "browsers", "--links", "local", "--rounds", "1", "--pages", str(page)
    done = subprocess.run([*CROSSLAYER, "measure", *names, "--out", str(data)], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = Dataset.open(data, every_round=True).table("page_loads").collect()
    assert set(rows["error"]) == {None}
    assert {(row["browser"], row["h3"], row["session_resumed"]) for row in rows.iter_rows(named=True)} == {
        (browser, h3, h3 == "0-rtt") for browser in ("chromium", "firefox") for h3 in ("1-rtt", "0-rtt")
    }


@pytest.mark.parametrize(
    ("source", "requested", "error"),
    [
        (
            "/a%20c.png",
            {"https://www.syn.test/a%20c.png"},
            "1 resource failed, the first is https://www.syn.test/a%20c.png (404)",
        ),
        ("data:,", set(), "1 resource not requested, the first is https://www.syn.test/a%20b.png"),
    ],
)
def test_a_load_with_a_missing_resource_is_a_failed_row(
    browser_machine: None, tmp_path: Path, source: str, requested: set[str], error: str
) -> None:
    page = tmp_path / "page"
    assert from_har("pct_one.har", page, "--no-check").returncode == 0
    document = page / "0.html"
    written = document.read_text()
    # The document keeps its length, since `page.toml` states its weight.
    document.write_text(written.replace("/a%20b.png", source).ljust(len(written)))
    names = "--study", "browsers", "--links", "local", "--rounds", "1", "--pages", str(page)
    command = [*CROSSLAYER, "measure", *names, "--out", str(tmp_path / "data")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    dataset = Dataset.open(tmp_path / "data", every_round=True)
    rows = dataset.table("page_loads").collect()
    assert sorted(rows["browser"]) == ["chromium", "chromium", "firefox", "firefox"], done.stderr
    assert set(rows["error"]) == {error}
    # There is no request for an icon: it might take the ticket of the measured load, or use TCP.
    assert set(dataset.table("resources").collect()["url"]) == requested


def test_a_page_with_the_name_of_another_is_not_kept(tmp_path: Path) -> None:
    done = from_har("pct_one.har", tmp_path / "wikipedia.org", "--no-check")
    assert done.returncode == 1
    assert "is the name of another page" in done.stderr
    assert not list(tmp_path.iterdir())
