"""The page of figures in a real browser: every chart draws, nothing is fetched, nothing is wider than a phone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

import synthetic
from crosslayer import report
from crosslayer.browser import find_browser
from crosslayer.campaign.dataset import Dataset
from crosslayer.errors import CrosslayerError
from crosslayer.figures import FIGURES


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    dataset = Dataset.open(synthetic.write(folder / "dataset", rounds=7))
    return report.write_figures(dataset, folder / "figures")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    try:
        programs = find_browser()
    except CrosslayerError as error:
        pytest.skip(f"no browser: {error}")
    options = Options()
    options.binary_location = str(programs.browser)
    profile = tmp_path_factory.mktemp("profile")
    for flag in ("--headless=new", "--no-sandbox", "--disable-background-networking", f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(programs.driver)))
    yield driver
    driver.quit()


def test_every_chart_draws_without_a_network(page: Path, browser: webdriver.Chrome) -> None:
    browser.get(page.as_uri())
    drawn = WebDriverWait(browser, 120).until(
        lambda driver: driver.execute_script("return document.documentElement.dataset.drawn")
    )
    assert int(drawn) == len(FIGURES)
    assert len(browser.find_elements("css selector", ".chart svg.marks")) == len(FIGURES)
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
    fetched = browser.execute_script("return performance.getEntriesByType('resource').map(entry => entry.name)")
    assert [name for name in fetched if not name.startswith(("data:", "blob:"))] == []


def test_the_page_fits_a_phone(page: Path, browser: webdriver.Chrome) -> None:
    size = {"width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        browser.get(page.as_uri())
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 360
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
