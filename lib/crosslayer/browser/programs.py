"""Locate the programs of a browser: the browser and, if it needs one, a driver of the same version."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from crosslayer.errors import CrosslayerError
from crosslayer.resources import find_program
from crosslayer.vocabulary import BROWSERS


class BrowserError(CrosslayerError):
    """A browser or its driver is missing, has the wrong version, or failed."""


@dataclass(frozen=True, slots=True)
class BrowserPrograms:
    """A browser and, if it needs one, its driver."""

    name: str
    """Name of the browser in a plan."""
    browser: str
    browser_version: str
    driver: str = ""
    driver_version: str = ""

    @property
    def versions(self) -> dict[str, str]:
        """Versions by program name."""
        driver = {"chromedriver": self.driver_version} if self.driver else {}
        return {self.name: self.browser_version} | driver


def find_browser(name: str = "chromium") -> BrowserPrograms:
    """Locate a browser of `vocabulary.BROWSERS`, and the driver of the same major version if it needs one.

    Environment variables, such as `CROSSLAYER_CHROMIUM`, override the PATH; `CROSSLAYER_CHROMEDRIVER` names the driver.
    `BrowserError` if a program is missing, if the browser is Ubuntu's snap, or if the major versions differ.
    """
    browser = _path_of_browser(name)
    if not BROWSERS[name].driver:
        return BrowserPrograms(name, browser, _version(browser))
    driver = find_program(os.environ.get("CROSSLAYER_CHROMEDRIVER", BROWSERS[name].driver))
    if driver is None:
        raise BrowserError(
            "there is no ChromeDriver on this machine",
            where=os.environ.get("CROSSLAYER_CHROMEDRIVER", ""),
            next_step="Run `make setup` (package chromium-driver), use `nix develop`, or set CROSSLAYER_CHROMEDRIVER.",
        )
    versions = (_version(browser), _version(driver))
    if versions[0].split(".")[0] != versions[1].split(".")[0]:
        raise BrowserError(
            f"ChromeDriver {versions[1]} does not match Chromium {versions[0]}",
            where=driver,
            next_step=f"Install ChromeDriver {versions[0].split('.')[0]}, or set CROSSLAYER_CHROMEDRIVER.",
        )
    return BrowserPrograms(name, browser, versions[0], driver, versions[1])


def _path_of_browser(name: str) -> str:
    """Path of the first of a browser's possible programs that exists and is not a snap."""
    refused_snap = None
    program_of = BROWSERS[name]
    variable = program_of.variable
    setting = os.environ.get(variable)
    for program in (setting,) if setting else program_of.names:
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
            next_step=f"Install another package of it, use `nix develop`, or set {variable}.",
        )
    raise BrowserError(
        f"there is no {program_of.title} on this machine",
        where=setting or "",
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
    output = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    if (match := re.search(r"\d+(\.\d+)+", output)) is None:
        raise BrowserError(f"prints no version ({output.strip()!r})", where=program, next_step="Reinstall it.")
    return match.group()
