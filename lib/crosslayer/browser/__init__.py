"""Page loads in installed, unmodified browsers: Chromium through Selenium, Firefox over WebDriver BiDi.

This package is independent of campaigns. It returns plain values and the browsers' timing entries.
"""

from typing import Any

from crosslayer.browser.browser import ICON, WARM_UP_HOST, Browser, PageLoad, SecureDns
from crosslayer.browser.chromium import Chromium
from crosslayer.browser.firefox import Firefox
from crosslayer.browser.programs import BrowserError, BrowserPrograms, find_browser
from crosslayer.testbed import outside

__all__ = [
    "ICON",
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
"""Classes of browsers, by the name of the browser in a plan; `vocabulary.BROWSERS` has the browsers' programs."""


def launch(programs: BrowserPrograms, **options: Any) -> Browser:
    """Start a browser; `options` are the parameters of `Browser`.

    Raises
    ------
    OutsideError
        If the browser would send packets to an address outside this machine, or resolve names there, without the user's
        consent. Firefox resolves names when it starts, so it runs only in private namespaces.
    """
    if KINDS[programs.name] is Firefox:
        outside.check_private("Firefox")
    secure_dns: SecureDns | None = options.get("secure_dns")
    for address in {*options["addresses"].values(), *([secure_dns.address] if secure_dns else [])}:
        outside.check(address)
    outside.check_names(options.get("resolves", ()), "a browser")
    return KINDS[programs.name](programs, **options)
