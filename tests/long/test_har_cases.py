"""Every small recording loaded in Chromium, and a thousand damaged ones read."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from har_cases import PAGES
from tests.integration.conftest import browser_machine
from tests.integration.test_har_cases import loaded
from tests.unit.test_har_cases import try_damaged

__all__ = ["browser_machine"]


def test_every_page_loads_as_recorded(browser_machine: None, tmp_path: Path) -> None:
    # Two of the recordings have one host, since they differ in how they write it.
    names = tuple(sorted(PAGES.keys() - {"idn_puny.har"}))
    outcomes = loaded(tmp_path, names)
    unlike = {name: outcome["report"] for name, outcome in outcomes.items() if not outcome["like"]}
    assert len(outcomes) == len(names)
    assert not unlike


@given(st.sampled_from(sorted(PAGES)), st.integers(0, 2**32), st.integers(1, 12), st.booleans())
@settings(max_examples=1000)
def test_a_thousand_damaged_recordings(name: str, seed: int, changes: int, anew: bool) -> None:
    try_damaged(name, seed, changes, anew)
