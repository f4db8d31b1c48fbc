"""Page loads in the environment's stock Chromium, driven by Selenium over WebDriver BiDi.

Nothing here knows of campaigns; what is measured comes back as plain values and raw timing entries.
"""

from crosslayer.browser.browser import WARM_UP_HOST, Browser, PageLoad
from crosslayer.browser.programs import BrowserError, BrowserPrograms, find_browser

__all__ = ["WARM_UP_HOST", "Browser", "BrowserError", "BrowserPrograms", "PageLoad", "find_browser"]
