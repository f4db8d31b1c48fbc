"""Every built page in real Chromium over plain HTTP: it loads completely, without other requests, and React renders."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from crosslayer import pages
from crosslayer.browser import BrowserError, find_browser

SITES = Path(__file__).resolve().parents[2] / "sites"
NAMES = ("example.org", "instagram.com", "warmup", "wikipedia.org")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--disable-http-cache",
    "--window-size=1280,900",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)


class PageServer(ThreadingHTTPServer):
    """Serves one built page on the loopback interface, and records the requests."""

    daemon_threads = True

    def __init__(self, page: pages.BuiltPage) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.resources = {r.path: r for r in page.resources}
        self.requested: list[str] = []
        self.pictures_may_go = threading.Event()
        self.pictures_may_go.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: PageServer

    def do_GET(self) -> None:
        self.server.requested.append(self.path)
        resource = self.server.resources.get(self.path)
        if resource is None:
            self.send_error(404)
            return
        if resource.content_type == "image/png":
            self.server.pictures_may_go.wait(60)
        self.send_response(200)
        self.send_header("content-type", resource.content_type)
        if resource.content_encoding:
            self.send_header("content-encoding", resource.content_encoding)
        self.send_header("content-length", str(resource.wire_bytes))
        self.end_headers()
        self.wfile.write(resource.file.read_bytes())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pages.BuiltPage]:
    return pages.build(pages.load_pages(SITES), tmp_path_factory.mktemp("sites"))


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    try:
        programs = find_browser()
    except BrowserError as error:
        pytest.skip(str(error))
    options = Options()
    options.binary_location = programs.browser
    # Commands return at once, so that a test can inspect a page while it loads.
    options.page_load_strategy = "none"
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    chrome = webdriver.Chrome(service=Service(programs.driver), options=options)
    yield chrome
    chrome.quit()


@pytest.fixture
def serve(built: dict[str, pages.BuiltPage], request: pytest.FixtureRequest) -> Iterator[PageServer]:
    server = PageServer(built[request.param])
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.pictures_may_go.set()
    server.shutdown()
    thread.join()
    server.server_close()


def wait_for(driver: webdriver.Chrome, script: str) -> None:
    WebDriverWait(driver, 60, poll_frequency=0.02).until(lambda d: d.execute_script(f"return {script}"), script)


def load(driver: webdriver.Chrome, url: str) -> None:
    driver.get(url)
    wait_for(driver, f"location.href === '{url}' && performance.getEntriesByType('navigation')[0].loadEventEnd > 0")


@pytest.mark.parametrize("serve", NAMES, indirect=True)
def test_page_loads_whole_and_asks_for_nothing_else(driver: webdriver.Chrome, serve: PageServer) -> None:
    load(driver, serve.url)
    # Each resource of the manifest is requested once, the document first; there is no favicon.
    assert serve.requested[0] == "/"
    assert sorted(serve.requested) == sorted(serve.resources)

    entries = driver.execute_script(
        "return [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]"
        ".map(e => [new URL(e.name).pathname, e.encodedBodySize, e.responseEnd])"
    )
    assert {path: size for path, size, _ in entries} == {r.path: r.wire_bytes for r in serve.resources.values()}
    load_event = driver.execute_script("return performance.getEntriesByType('navigation')[0].loadEventStart")
    assert load_event >= max(end for _, _, end in entries)

    assert driver.execute_script("return [...document.images].every(i => i.complete && i.naturalWidth > 0)")
    assert driver.title
    assert driver.get_log("browser") == []


@pytest.mark.parametrize("width", [1280, 600])
@pytest.mark.parametrize("serve", NAMES, indirect=True)
def test_page_fits_its_window(driver: webdriver.Chrome, serve: PageServer, width: int) -> None:
    driver.set_window_size(width, 900)
    load(driver, serve.url)
    wide = driver.execute_script(
        "return [...document.body.querySelectorAll('*')].filter(e => !e.closest('.phones') && e.getClientRects().length"
        " && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))"
    )
    assert wide == []
    assert driver.execute_script("return document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("serve", ["wikipedia.org"], indirect=True)
def test_search_form_follows_its_language(driver: webdriver.Chrome, serve: PageServer) -> None:
    load(driver, serve.url)
    assert driver.switch_to.active_element.get_attribute("name") == "q"
    driver.execute_script(
        "const s = document.querySelector('select'); s.value = 'fr'; s.dispatchEvent(new Event('change'))"
    )
    assert driver.find_element(By.NAME, "q").get_attribute("placeholder") == "Chercher dans Commonlore"
    assert driver.execute_script("return new URL(document.forms[0].action).pathname") == "/fr/search"
    languages = driver.find_elements(By.CSS_SELECTOR, ".languages li a")
    assert len(languages) > 200


@pytest.mark.parametrize("serve", ["instagram.com"], indirect=True)
def test_react_builds_loading_screen_dialog_and_form(driver: webdriver.Chrome, serve: PageServer) -> None:
    serve.pictures_may_go.clear()
    driver.get(serve.url)
    wait_for(driver, f"location.href === '{serve.url}' && document.querySelector('.loading') !== null")
    # While pictures load, loading screen and dialog are visible, and the load event waits.
    assert driver.find_element(By.CSS_SELECTOR, "[role=progressbar]").is_displayed()
    assert driver.find_element(By.CSS_SELECTOR, "[role=dialog]").is_displayed()
    assert driver.execute_script("return document.readyState") != "complete"
    assert "/images/scene-1.png" not in Path(SITES / "instagram.com" / "index.html").read_text()

    serve.pictures_may_go.set()
    wait_for(driver, "document.readyState === 'complete' && document.querySelector('.loading') === null")
    by_react = driver.execute_script(
        "return ['[role=dialog]', 'form', 'input[name=username]', 'input[name=password]', '.phone img']"
        ".filter(s => Object.keys(document.querySelector(s)).some(k => k.startsWith('__reactFiber$')))"
    )
    assert len(by_react) == 5
    assert driver.execute_script("return React.version") == "18.3.1"

    # A part of the generated code ran; the rest was only parsed.
    counts = driver.execute_script("return framelight.counts()")
    assert counts["defined"] > 1000
    assert 0.1 < counts["ran"] / counts["defined"] < 0.9
    check = driver.find_element(By.ID, "app").get_attribute("data-check")
    assert check is not None
    assert int(check) > 0

    # The page works: the dialog closes and the form responds.
    driver.find_element(By.CSS_SELECTOR, "[role=dialog] .primary").click()
    wait_for(driver, "document.querySelector('[role=dialog]') === null")
    button = driver.find_element(By.CSS_SELECTOR, "form button")
    assert not button.is_enabled()
    driver.find_element(By.NAME, "username").send_keys("someone")
    driver.find_element(By.NAME, "password").send_keys("measured")
    assert button.is_enabled()
    button.click()
    wait_for(driver, "document.querySelector('.answer').textContent.includes('nothing has been sent')")
    assert sorted(serve.requested) == sorted(serve.resources)
    assert driver.get_log("browser") == []
