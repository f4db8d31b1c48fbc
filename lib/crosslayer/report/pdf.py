"""Print the report to PDF with a Chromium that runs outside the namespaces and guests of the measurements."""

from __future__ import annotations

import base64
import os
import tempfile
from pathlib import Path

from selenium import webdriver
from selenium.common.exceptions import TimeoutException, WebDriverException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

from crosslayer.browser import find_browser
from crosslayer.campaign.dataset import Dataset
from crosslayer.report.files import ReportError, write
from crosslayer.report.page import whole

_FLAGS = (
    "--headless=new",
    "--no-sandbox",  # root and containers have no sandbox; only our own page is opened
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)

_DRAW_TIMEOUT_S = 300.0

_PRINT = {
    "printBackground": True,
    "preferCSSPageSize": True,  # size and margins come from the style sheet
    "generateTaggedPDF": True,
    "generateDocumentOutline": True,
}
"""Parameters of Page.printToPDF (Chrome DevTools Protocol); WebDriver's print command has no option for bookmarks."""


def write_pdf(dataset: Dataset, folder: Path, file: Path) -> Path:
    """Print answer, verdicts, figures, claims and provenance of a campaign to an A4 PDF.

    Parameters
    ----------
    dataset, folder
        As for `write_index`. The PDF is made from the same saved figures, claims and answers.
    file
        Path of the PDF; its folder is created if it is missing.

    Returns
    -------
    Path
        `file`.

    Raises
    ------
    BrowserError
        If there is no Chromium.
    ReportError
        As for `write_index`. Also if Chromium does not start or does not print, or the PDF cannot be written.
    """
    programs = find_browser()
    other_way = f"Open {folder / 'index.html'} in any browser and print it from there."
    with tempfile.TemporaryDirectory(prefix="crosslayer-", ignore_cleanup_errors=True) as temporary:
        page = Path(temporary) / "paper.html"
        write(page, whole(dataset, folder).encode())
        options = Options()
        options.binary_location = programs.browser
        for flag in (*_FLAGS, f"--user-data-dir={temporary}/profile"):
            options.add_argument(flag)
        try:
            driver = webdriver.Chrome(
                options=options,
                service=Service(
                    programs.driver, env={**os.environ, "HOME": temporary}, log_output=f"{temporary}/chromedriver.log"
                ),
            )
        except WebDriverException as error:
            raise ReportError(
                f"Chromium does not start ({_first_line(error)})", where=programs.browser, next_step=other_way
            ) from error
        try:
            driver.get(page.absolute().as_uri())
            WebDriverWait(driver, _DRAW_TIMEOUT_S).until(
                lambda driver: driver.execute_script("return document.documentElement.dataset.drawn")
            )
            printed = driver.execute_cdp_cmd("Page.printToPDF", _PRINT)["data"]
        except TimeoutException as error:
            raise ReportError(
                f"the charts were not drawn within {_DRAW_TIMEOUT_S:.0f} s", where=str(page), next_step=other_way
            ) from error
        except WebDriverException as error:
            raise ReportError(
                f"Chromium cannot print the page ({_first_line(error)})", where=str(page), next_step=other_way
            ) from error
        finally:
            driver.quit()
    write(file, base64.b64decode(printed))
    return file


def _first_line(error: WebDriverException) -> str:
    return (error.msg or str(error)).strip().splitlines()[0]
