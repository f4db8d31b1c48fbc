"""Page loads in the environment's stock browsers: Chromium driven by Selenium, Firefox over WebDriver BiDi itself.

Nothing here knows of campaigns; what is measured comes back as plain values and raw timing entries.
"""

from typing import Any

from crosslayer.browser.browser import WARM_UP_HOST, Browser, PageLoad, SecureDns
from crosslayer.browser.chromium import Chromium
from crosslayer.browser.firefox import Firefox
from crosslayer.browser.programs import BrowserError, BrowserPrograms, find_browser

__all__ = [
    "KINDS",
    "WARM_UP_HOST",
    "Browser",
    "BrowserError",
    "BrowserPrograms",
    "PageLoad",
    "SecureDns",
    "find_browser",
    "launch",
]

KINDS: dict[str, type[Chromium] | type[Firefox]] = {"chromium": Chromium, "firefox": Firefox}
"""By the word of a plan."""


def launch(programs: BrowserPrograms, **options: Any) -> Browser:
    """Start a browser; `options` are the parameters of `Browser`."""
    return KINDS[programs.name](programs, **options)
