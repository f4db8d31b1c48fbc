"""Which browser is taken, and why one is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from crosslayer.browser.programs import BrowserError, find_browser


def _program(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    file.chmod(0o755)
    return file


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with nothing but what the test puts there (and the shell it needs)."""
    monkeypatch.setenv("PATH", str(tmp_path))
    for program in ("CHROMIUM", "CHROMEDRIVER", "FIREFOX"):
        monkeypatch.delenv(f"CROSSLAYER_{program}", raising=False)
    return tmp_path


def test_a_pair_of_one_version_is_taken(path: Path) -> None:
    browser = _program(path, "chromium", "echo Chromium 156.0.1.2 built on Debian")
    driver = _program(path, "chromedriver", "echo 'ChromeDriver 156.0.9.9 (abc)'")
    actual = find_browser()
    assert (actual.browser, actual.browser_version) == (str(browser), "156.0.1.2")
    assert (actual.driver, actual.driver_version) == (str(driver), "156.0.9.9")
    assert actual.versions == {"chromium": "156.0.1.2", "chromedriver": "156.0.9.9"}


def test_firefox_needs_no_driver(path: Path) -> None:
    with pytest.raises(BrowserError, match="there is no Firefox"):
        find_browser("firefox")
    browser = _program(path, "firefox", "echo Mozilla Firefox 153.7.0esr")
    actual = find_browser("firefox")
    assert (actual.browser, actual.versions) == (str(browser), {"firefox": "153.7.0"})


def test_the_snap_is_passed_over_for_chrome_and_refused_alone(path: Path) -> None:
    _program(path, "chromedriver", "echo ChromeDriver 156.0.9.9")
    _program(path, "chromium-browser", "exec /snap/bin/chromium")
    with pytest.raises(BrowserError, match="snap, which does not run in private namespaces"):
        find_browser()
    chrome = _program(path, "google-chrome", "echo Google Chrome 156.0.3.4")
    assert find_browser().browser == str(chrome)


def test_a_linked_snap_is_refused(path: Path, tmp_path: Path) -> None:
    inside = tmp_path / "snap" / "bin"
    inside.mkdir(parents=True)
    _program(inside, "chromium", "echo Chromium 156.0.1.2")
    (path / "chromium").symlink_to(inside / "chromium")
    with pytest.raises(BrowserError, match="snap"):
        find_browser()


def test_another_major_version_of_the_driver_is_refused(path: Path) -> None:
    _program(path, "chromium", "echo Chromium 156.0.1.2")
    _program(path, "chromedriver", "echo ChromeDriver 155.0.9.9")
    with pytest.raises(BrowserError, match=r"155\.0\.9\.9 does not match Chromium 156") as caught:
        find_browser()
    assert "ChromeDriver 156" in caught.value.next_step


@pytest.mark.parametrize(("present", "missing"), [((), "no Chromium"), (("chromium",), "no ChromeDriver")])
def test_what_is_missing_is_named(path: Path, present: tuple[str, ...], missing: str) -> None:
    for name in present:
        _program(path, name, "echo Chromium 156.0.1.2")
    with pytest.raises(BrowserError, match=missing) as caught:
        find_browser()
    assert "make setup" in caught.value.next_step


def test_a_program_without_a_version_is_refused(path: Path) -> None:
    _program(path, "chromium", "echo broken")
    _program(path, "chromedriver", "echo ChromeDriver 156.0.9.9")
    with pytest.raises(BrowserError, match="prints no version"):
        find_browser()
