"""Which browser: Chromium and its ChromeDriver, checked against each other, or Firefox; refused with a reason."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from crosslayer.errors import CrosslayerError
from crosslayer.places import find_program


class BrowserError(CrosslayerError):
    """A browser or its driver is missing, does not fit, or failed."""


@dataclass(frozen=True, slots=True)
class BrowserPrograms:
    """The browser that is used, and what drives it where that is another program."""

    name: str
    """chromium or firefox."""
    browser: str
    browser_version: str
    driver: str = ""
    driver_version: str = ""

    @property
    def versions(self) -> dict[str, str]:
        """By the names of the programs."""
        driver = {"chromedriver": self.driver_version} if self.driver else {}
        return {self.name: self.browser_version} | driver


_NAMES = {
    "chromium": ("CROSSLAYER_CHROMIUM", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"),
    "firefox": ("CROSSLAYER_FIREFOX", "firefox-esr", "firefox"),
}
"""What may name it, and what it may be called."""


def find_browser(name: str = "chromium") -> BrowserPrograms:
    """Chromium and the ChromeDriver of the same major version, or Firefox, which needs no driver.

    `CROSSLAYER_CHROMIUM`, `CROSSLAYER_CHROMEDRIVER` and `CROSSLAYER_FIREFOX` name others than those on the PATH.
    `BrowserError` where one is missing, is Ubuntu's snap, or their versions differ.
    """
    browser = _found(name)
    if name == "firefox":
        return BrowserPrograms(name, browser, _version(browser))
    driver = find_program(os.environ.get("CROSSLAYER_CHROMEDRIVER", "chromedriver"))
    if driver is None:
        raise BrowserError(
            "there is no ChromeDriver on this machine",
            where=os.environ.get("CROSSLAYER_CHROMEDRIVER", ""),
            next_step="Run `make setup` (package chromium-driver), use `nix develop`, or set CROSSLAYER_CHROMEDRIVER.",
        )
    versions = (_version(browser), _version(driver))
    if versions[0].split(".")[0] != versions[1].split(".")[0]:
        raise BrowserError(
            f"ChromeDriver {versions[1]} does not fit Chromium {versions[0]}",
            where=driver,
            next_step=f"Install ChromeDriver {versions[0].split('.')[0]}, or set CROSSLAYER_CHROMEDRIVER.",
        )
    return BrowserPrograms(name, browser, versions[0], driver, versions[1])


def _found(name: str) -> str:
    """The first that is there and is no snap."""
    refused_snap = None
    variable, *usual = _NAMES[name]
    told = os.environ.get(variable)
    for program in (told,) if told else usual:
        browser = find_program(program)
        if browser is None:
            continue
        if not _is_snap(browser):
            return browser
        refused_snap = browser
    if refused_snap:
        raise BrowserError(
            "is Ubuntu's snap, which does not run in private namespaces",
            where=refused_snap,
            next_step=f"Install another package beside it, use `nix develop`, or set {variable}.",
        )
    raise BrowserError(
        f"there is no {name.capitalize()} on this machine",
        where=told or "",
        next_step=f"Run `make setup`, use `nix develop`, or set {variable}.",
    )


def _is_snap(browser: str) -> bool:
    real = Path(browser).resolve()
    if "snap" in real.parts:
        return True
    # Ubuntu's transitional package is a shell script that starts the snap.
    with real.open("rb") as program:
        head = program.read(4096)
    return head.startswith(b"#!") and b"/snap/" in head


def _version(program: str) -> str:
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    if (found := re.search(r"\d+(\.\d+)+", said)) is None:
        raise BrowserError(f"does not tell its version ({said.strip()!r})", where=program, next_step="Reinstall it.")
    return found.group()
