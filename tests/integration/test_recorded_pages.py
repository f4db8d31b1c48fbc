"""Pages made from recordings of three of our own pages, over H2 and H3, load in Chromium like their recordings."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.integration.conftest import CROSSLAYER

HARS = Path(__file__).resolve().parents[1] / "data" / "hars"
SWAPPED_PERCENT = 25.0
"""Limit for swapped requests: the order of simultaneous requests of a browser varies."""


@pytest.mark.parametrize("name", ["encyclopedia", "news-portal", "wikipedia.org"])
def test_a_page_made_from_a_recording_is_like_it(browser_machine: None, tmp_path: Path, name: str) -> None:
    page = tmp_path / "pages" / "copy"
    subprocess.run([*CROSSLAYER, "page", "from-har", HARS / f"{name}.har", "--out", page, "--no-check"], check=True)
    done = subprocess.run(
        [*CROSSLAYER, "page", "check", page, "--link", "local"],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "requests   the same" in done.stdout
    swapped = re.search(r"order +([0-9.]+)%", done.stdout)
    assert swapped
    assert float(swapped[1]) < SWAPPED_PERCENT, done.stdout
