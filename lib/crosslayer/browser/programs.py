"""Which Chromium and which ChromeDriver: found, checked against each other, refused with a reason."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from crosslayer.errors import CrosslayerError


class BrowserError(CrosslayerError):
    """Chromium or ChromeDriver is missing, does not fit, or failed."""


@dataclass(frozen=True, slots=True)
class BrowserPrograms:
    """The pair that is used."""

    browser: str
    browser_version: str
    driver: str
    driver_version: str


_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_browser() -> BrowserPrograms:
    """Chromium and the ChromeDriver of the same major version.

    `CROSSLAYER_CHROMIUM` and `CROSSLAYER_CHROMEDRIVER` name others than those on the PATH. `BrowserError` where one is
    missing, is Ubuntu's snap, or their versions differ.
    """
    refused_snap = None
    told = os.environ.get("CROSSLAYER_CHROMIUM")
    for name in (told,) if told else _BROWSERS:
        browser = shutil.which(name)
        if browser is None:
            continue
        if _is_snap(browser):
            refused_snap = browser
            continue
        break
    else:
        if refused_snap:
            raise BrowserError(
                "is Ubuntu's snap, which does not run in private namespaces",
                where=refused_snap,
                next_step="Install a Chrome package beside it, use `nix develop`, or set CROSSLAYER_CHROMIUM.",
            )
        raise BrowserError(
            "there is no Chromium on this machine",
            where=told or "",
            next_step="Run `make setup`, use `nix develop`, or set CROSSLAYER_CHROMIUM.",
        )
    driver = shutil.which(os.environ.get("CROSSLAYER_CHROMEDRIVER", "chromedriver"))
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
    return BrowserPrograms(browser, versions[0], driver, versions[1])


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
