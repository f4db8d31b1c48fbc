"""Every notebook as a user opens it: in JupyterLab in a real browser, its figures looked for.

That their outputs are what comes of their cells is nbval's to say; cells are run here of one notebook of each kind.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

from crosslayer.browser import find_browser
from crosslayer.errors import CrosslayerError
from crosslayer.studies import STUDIES
from tests.notebooks.conftest import WholeRun

ROOT = Path(__file__).parents[2]
OF_STUDIES = {section.notebook: study for study in STUDIES.values() for section in study.sections}
RUN_HERE = "question_key_share"
RUN_TIMEOUT_S = 600


@dataclass(frozen=True)
class Lab:
    """A JupyterLab on loopback, in a copy of the notebooks."""

    url: str
    token: str
    checkout: Path
    """A folder like the checkout: notebooks copied, since running saves them, data and library linked."""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    if find_spec("jupyterlab") is None:
        pytest.skip("no JupyterLab: it is in the extra `lab`")
    folder = tmp_path_factory.mktemp("lab")
    shutil.copytree(ROOT / "notebooks", folder / "notebooks")
    for name in ("data", "lib", "tests"):
        (folder / name).symlink_to(ROOT / name)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = secrets.token_hex(16)
    settings = folder / "settings"
    user = {"HOME": str(folder), "JUPYTERLAB_SETTINGS_DIR": str(settings), "JUPYTER_PREFER_ENV_PATH": "1"}
    log = folder / "lab.log"
    options = [f"--ServerApp.port={port}", "--ServerApp.ip=127.0.0.1", f"--IdentityProvider.token={token}"]
    options += ["--no-browser", "--allow-root", "--ServerApp.port_retries=0", f"--ServerApp.root_dir={folder}"]
    options += [
        "--LabApp.expose_app_in_browser=True",
        "--LabApp.news_url=None",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    ]
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", *options],
            cwd=folder,
            env=os.environ | user,
            stdout=output,
            stderr=output,
            start_new_session=True,
        ) as server,
    ):
        started = Lab(f"http://127.0.0.1:{port}", token, folder)
        try:
            _wait_for(started, server, log)
            yield started
        finally:
            server.terminate()  # it stops its kernels
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                server.kill()


def _wait_for(lab: Lab, server: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + 60
    while True:
        assert server.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(f"{lab.url}/api/status?token={lab.token}", timeout=5):
                return
        except OSError:
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.2)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    try:
        programs = find_browser()
    except CrosslayerError as error:
        pytest.skip(f"no browser: {error}")
    options = Options()
    options.binary_location = str(programs.browser)
    for flag in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        "--window-size=1400,1000",
        f"--user-data-dir={tmp_path_factory.mktemp('profile')}",
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(programs.driver)))
    driver.set_script_timeout(60)
    yield driver
    driver.quit()


# The current widget of the shell follows the keyboard focus, which a browser without a window may not give.
OPEN = """
const done = arguments[arguments.length - 1], path = arguments[0], app = window.jupyterapp, before = window.panel;
(async () => {
  await app.restored;
  if (before) {
    await before.sessionContext.shutdown();
    before.dispose();
  }
  window.panel = await app.commands.execute('docmanager:open', { path, factory: 'Notebook' });
  await window.panel.context.ready;
  await window.panel.sessionContext.ready;
})().then(() => done(''), error => done(String(error)));
"""
RUN = """
window.ran = null;
const ran = text => { window.ran = String(text); };
window.jupyterapp.commands.execute('notebook:run-all-cells').then(ran, ran);
"""
SHOWN = """
return window.panel.content.widgets.filter(cell => cell.model.type === 'code').map(cell => ({
  source: cell.model.sharedModel.getSource(),
  outputs: cell.model.outputs.toJSON(),
}));
"""
SEEN = """
const done = arguments[arguments.length - 1], panel = window.panel;
const cell = panel.content.widgets.filter(cell => cell.model.type === 'code')[arguments[0]];
(async () => {
  await panel.content.scrollToItem(panel.content.widgets.indexOf(cell));
  for (let i = 0; i < 100; i++) {
    const found = cell.node.querySelector('.vega-embed svg.marks, .vega-embed canvas, .jp-OutputArea-output img');
    if (found && (found.tagName !== 'IMG' || found.naturalWidth > 0)) return found.tagName.toLowerCase();
    await new Promise(done => setTimeout(done, 100));
  }
  return '';
})().then(done, error => done(String(error)));
"""


def open_in_lab(lab: Lab, browser: webdriver.Chrome, name: str) -> list[dict[str, Any]]:
    """Open a notebook in place of the one before; source and outputs of each code cell."""
    if not browser.current_url.startswith(lab.url):
        browser.get(f"{lab.url}/lab?token={lab.token}&reset")
        WebDriverWait(browser, 120).until(lambda driver: driver.execute_script("return Boolean(window.jupyterapp)"))
    assert browser.execute_async_script(OPEN, f"notebooks/{name}.ipynb") == ""
    cells: list[dict[str, Any]] = browser.execute_script(SHOWN)
    return cells


def run_in_lab(lab: Lab, browser: webdriver.Chrome, name: str) -> list[dict[str, Any]]:
    """The same with all cells run."""
    open_in_lab(lab, browser, name)
    browser.execute_script(RUN)
    ran = WebDriverWait(browser, RUN_TIMEOUT_S).until(lambda driver: driver.execute_script("return window.ran"))
    cells: list[dict[str, Any]] = browser.execute_script(SHOWN)
    errors = [out for cell in cells for out in cell["outputs"] if out["output_type"] == "error"]
    assert not errors, errors
    assert ran == "true"
    return cells


def seen(browser: webdriver.Chrome, cells: list[dict[str, Any]], asked: str) -> list[str]:
    """What is drawn in each cell whose source has some text: an element's name, empty where nothing is."""
    chosen = [index for index, cell in enumerate(cells) if asked in cell["source"]]
    return [browser.execute_async_script(SEEN, index) for index in chosen]


@pytest.mark.parametrize("name", OF_STUDIES)
def test_a_notebook_shows_its_figures(lab: Lab, browser: webdriver.Chrome, name: str) -> None:
    figures = [figure.name for figure in OF_STUDIES[name].figures if figure.notebook == name]
    cells = (run_in_lab if name == RUN_HERE else open_in_lab)(lab, browser, name)
    drawn = seen(browser, cells, "study.figure(")
    assert len(drawn) == len(figures)
    assert set(drawn) <= {"svg", "canvas"}, drawn  # with tooltips, not only a picture
    kept = lab.checkout / "build" / "figures" / OF_STUDIES[name].name
    assert {path.stem for path in kept.glob("*.svg")} == (set(figures) if name == RUN_HERE else set())


def test_exploring_shows_a_chart_of_ones_own(lab: Lab, browser: webdriver.Chrome) -> None:
    cells = run_in_lab(lab, browser, "explore")
    assert [kind for kind in seen(browser, cells, "alt.Chart(") if kind not in ("svg", "canvas")] == []


def test_the_cost_of_a_server_is_shown(lab: Lab, browser: webdriver.Chrome) -> None:
    cells = run_in_lab(lab, browser, "server_cost")
    assert seen(browser, cells, "server_cost(") == ["img"]


def test_run_all_shows_every_figure(lab: Lab, browser: webdriver.Chrome, whole_run: WholeRun) -> None:
    shutil.copy(whole_run.notebook, lab.checkout / "notebooks" / "run_all.ipynb")
    cells = open_in_lab(lab, browser, "run_all")
    pictures = [out for cell in cells for out in cell["outputs"] if "image/png" in out.get("data", {})]
    assert len(pictures) == sum(len(study.figures) for study in STUDIES.values())
    assert set(seen(browser, cells, "run.notebook(")) == {"img"}


def test_no_notebook_asks_the_network(lab: Lab, browser: webdriver.Chrome) -> None:
    """All requests of the notebooks above went to this machine."""
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
    assert any(url.startswith(lab.url) for url in asked)
    assert [url for url in asked if url.startswith(("http", "ws")) and not url.startswith(lab.url)] == []
