"""The report in a real browser: all charts are drawn, claims can be filtered, nothing is fetched, and it prints."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

import synthetic
from crosslayer import report
from crosslayer.browser import BrowserPrograms, find_browser
from crosslayer.campaign.dataset import Dataset
from crosslayer.claims import Verdict
from crosslayer.errors import CrosslayerError
from crosslayer.packets import About, kept_files
from crosslayer.report.pdf import write_pdf
from crosslayer.studies import DEFAULT, STUDIES

CAPTURED = {("fiber", "0-rtt"): 60.0, ("fiber", "1-rtt"): 75.0, ("4g", "0-rtt"): 300.0}
"""PLT of the captured loads, ms."""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return Dataset.open(synthetic.write(tmp_path_factory.mktemp("measured") / "dataset", rounds=7))


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory, dataset: Dataset) -> Path:
    folder = tmp_path_factory.mktemp("report")
    for (link, h3), plt_ms in CAPTURED.items():
        row = {
            "link": link,
            "page": "example.org",
            "round": 0,
            "h3": h3,
            "condition": "main",
            "role": "measured",
            "plt_ms": plt_ms,
        }
        about = About(
            condition=h3, profile={"rtt_ms": 14.8}, clock="wall", table="page_loads", rows={"page_loads": [row]}
        )
        path = dataset.folder / "captures" / link / "example.org" / "0"
        path.mkdir(parents=True, exist_ok=True)
        for ending, content in kept_files(about, [], "").items():
            (path / f"h3-{h3}{ending}").write_bytes(content)
    return report.write_report(dataset, folder / "figures").page


@pytest.fixture(scope="module")
def page(index: Path) -> Path:
    """The page of the study, with its charts."""
    return index.parent / DEFAULT / "index.html"


@pytest.fixture(scope="module")
def programs() -> BrowserPrograms:
    try:
        return find_browser()
    except CrosslayerError as error:
        pytest.skip(f"no browser: {error}")


@pytest.fixture(scope="module")
def browser(programs: BrowserPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    options = Options()
    options.binary_location = str(programs.browser)
    profile = tmp_path_factory.mktemp("profile")
    for flag in (
        "--headless=new",
        "--no-sandbox",
        "--disable-background-networking",
        "--host-resolver-rules=MAP * ~NOTFOUND",
        "--window-size=1400,1000",
        "--force-prefers-reduced-motion",  # no element moves during a click
        f"--user-data-dir={profile}",
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(programs.driver)))
    yield driver
    driver.quit()


@pytest.fixture
def opened(page: Path, browser: webdriver.Chrome) -> webdriver.Chrome:
    """The page with all its charts, freshly loaded."""
    browser.get(page.as_uri())
    WebDriverWait(browser, 120).until(
        lambda driver: driver.execute_script("return document.documentElement.dataset.drawn")
    )
    return browser


@pytest.fixture
def claims(index: Path, browser: webdriver.Chrome) -> webdriver.Chrome:
    """The page of all claims, freshly loaded."""
    browser.get("about:blank")
    browser.get(index.with_name("claims.html").as_uri())
    return browser


def shown(browser: webdriver.Chrome) -> list[tuple[str, str]]:
    """Claim and verdict (CSS class) of the visible rows, in order."""
    rows = browser.execute_script(
        "return [...document.querySelectorAll('table.claims tbody tr')].filter(row => row.offsetParent !== null)"
        ".map(row => [row.id, row.className])"
    )
    return [(claim, verdict) for claim, verdict in rows]


def test_every_chart_draws_without_a_network(page: Path, browser: webdriver.Chrome) -> None:
    browser.get_log("performance")
    browser.get(page.as_uri())
    drawn = WebDriverWait(browser, 120).until(
        lambda driver: driver.execute_script("return document.documentElement.dataset.drawn")
    )
    figures = STUDIES[DEFAULT].figures
    assert int(drawn) == len(figures)
    assert len(browser.find_elements("css selector", ".chart svg.marks")) == len(figures)
    assert browser.execute_script("return [...document.fonts].map(font => font.status)") == ["loaded", "loaded"]
    assert [entry for entry in browser.get_log("browser") if entry["level"] != "INFO"] == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    requests = [event["params"] for event in events if event["method"] == "Network.requestWillBeSent"]
    asked = [request["request"]["url"] for request in requests if request["documentURL"] == page.as_uri()]
    assert page.as_uri() in asked
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []


@pytest.mark.parametrize("name", ["index.html", "claims.html", f"{DEFAULT}/index.html"])
@pytest.mark.parametrize("width", [390, 1400])
def test_axe_finds_no_barrier(index: Path, browser: webdriver.Chrome, name: str, width: int) -> None:
    """axe checks WCAG 2.1 A and AA (contrast, names, alternative texts) and its best practices."""
    axe = resources.files("axe_core_python") / "axe.min.js"
    browser.set_window_size(width, 1000)
    try:
        browser.get("about:blank")
        browser.get((index.parent / name).as_uri())
        WebDriverWait(browser, 120).until(
            lambda driver: driver.execute_script(
                "return document.documentElement.dataset.drawn || !document.querySelector('.chart')"
            )
        )
        browser.execute_script(axe.read_text(encoding="utf-8"))
        browser.set_script_timeout(300)
        violations, passed = browser.execute_async_script(
            "const done = arguments[0]; axe.run(document).then(of => done([of.violations, of.passes.length]));"
        )
    finally:
        browser.set_window_size(1400, 1000)
    assert passed > 10
    assert [(violation["id"], violation["nodes"][0]["html"]) for violation in violations] == []


def test_a_click_on_a_figure_offers_the_loads_behind_it(opened: webdriver.Chrome, page: Path) -> None:
    """The dialog offers the loads of the clicked link and page; each has a waterfall."""
    listed = opened.find_elements("css selector", "#loads details a")
    assert len(listed) == len(CAPTURED)
    offered = opened.execute_script(
        "const chart = document.querySelector('#fig08-heatmap .chart svg');"
        "for (const mark of chart.querySelectorAll('.mark-rect path, .mark-text text')) {"
        "  const { datum } = mark.__data__ ?? {};"
        "  if (datum?.link !== 'fiber' || datum.page !== 'example.org') continue;"
        "  mark.dispatchEvent(new MouseEvent('click', { bubbles: true, clientX: 1, clientY: 1 }));"
        "  break; }"
        "const dialog = document.querySelector('#loads dialog');"
        "return [dialog.open, ...[...dialog.querySelectorAll('a')].map(link => link.getAttribute('href'))];"
    )
    assert offered[0]
    assert sorted(offered[1:]) == [f"loads/fiber-example.org-0-h3-{h3}.html" for h3 in ("0-rtt", "1-rtt")]
    for href in offered[1:]:
        assert "<svg" in (page.parent / href).read_text(encoding="utf-8")


def test_the_page_may_not_fetch_even_on_request(opened: webdriver.Chrome) -> None:
    refused = opened.execute_async_script(
        "const done = arguments[0];"
        "document.addEventListener('securitypolicyviolation', event => done(event.effectiveDirective), { once: true });"
        "fetch('http://192.0.2.1/').catch(() => {});"
    )
    assert refused == "connect-src"
    opened.get_log("browser")  # the violation is in it


def test_the_claims_table_has_every_claim_and_can_be_filtered(claims: webdriver.Chrome, index: Path) -> None:
    table = dict(shown(claims))
    text = (index.parent / "coalescing" / "claims.md").read_text()
    listed = re.findall(r"^\| ([A-Z]\d{3}) \|", text, flags=re.MULTILINE)
    assert list(table) == listed
    counter = claims.find_element("css selector", ".filter output")
    assert counter.text == f"{len(listed)} of {len(listed)} claims"

    claims.find_element("name", "verdict").send_keys("reproduced")
    some = shown(claims)
    assert {verdict for _, verdict in some} == {"reproduced"}
    # A claim that follows from another is counted separately, independent of its own verdict.
    counted = claims.execute_script(
        "return [...document.querySelectorAll('table.claims tbody tr')].map(row => row.dataset.counted)"
    )
    assert 0 < len(some) == counted.count("reproduced") < list(table.values()).count("reproduced")
    assert counter.text == f"{len(some)} of {len(listed)} claims"

    claims.find_element("name", "words").send_keys("mobile dOq")
    fewer = [claim for claim, _ in shown(claims)]
    assert 0 < len(fewer) < len(some)
    for claim in fewer:
        row = claims.find_element("id", claim).get_attribute("textContent") or ""
        assert "mobile" in row.lower()
        assert "doq" in row.lower()

    claims.find_element("css selector", ".filter button[type=reset]").click()
    WebDriverWait(claims, 10).until(lambda driver: len(shown(driver)) == len(listed))
    claims.find_element("name", "contradiction").click()
    assert {"T003", "T145", "S007"} <= {claim for claim, _ in shown(claims)}
    assert len(shown(claims)) == len(claims.find_elements("css selector", "tr[data-contradiction]"))


def test_a_count_on_top_filters_the_table_and_a_headline_shows_its_claim(
    browser: webdriver.Chrome, index: Path
) -> None:
    browser.get(index.as_uri())
    link = browser.find_element("css selector", '.counts a[data-paper="TNSM24"][data-verdict="reproduced"]')
    count = int(link.text)
    browser.execute_script("arguments[0].click()", link)
    WebDriverWait(browser, 10).until(lambda driver: len(driver.find_elements("name", "verdict")))
    assert len(shown(browser)) == count
    assert {verdict for _, verdict in shown(browser)} == {"reproduced"}
    browser.find_element("name", "verdict").send_keys("not measured")
    assert {verdict for _, verdict in shown(browser)} == {"not-measured"}
    browser.execute_script("location.hash = '#T077'")
    WebDriverWait(browser, 10).until(lambda driver: driver.find_element("id", "T077").is_displayed())
    browser.get(index.as_uri())
    assert browser.find_elements("css selector", ".headlines a[href='claims.html#T077']")


def test_the_claims_can_be_sorted_by_verdict_and_back(claims: webdriver.Chrome) -> None:
    before = shown(claims)
    heads = {head.text: head for head in claims.find_elements("css selector", "table.claims th")}
    button = heads["Verdict"].find_element("css selector", "[role=button]")
    rank = [verdict.replace(" ", "-") for verdict in Verdict]
    button.click()
    assert [rank.index(verdict) for _, verdict in shown(claims)] == sorted(rank.index(v) for _, v in before)
    assert heads["Verdict"].get_attribute("aria-sort") == "ascending"
    button.send_keys(" ")
    assert shown(claims)[0][1] == "not-measured"
    heads["Claim"].find_element("css selector", "[role=button]").click()
    assert shown(claims) == before


def test_a_chart_gives_its_rows_back_as_the_file_has_them(opened: webdriver.Chrome, page: Path) -> None:
    """The page stores the rows by column."""
    opened.execute_script(
        "HTMLAnchorElement.prototype.click = () => {};"
        "URL.createObjectURL = blob => { window.given = blob; return 'blob:'; };"
    )
    for name in ("failures", "fig05-dns-exchange"):
        rows = opened.execute_async_script(
            "document.querySelector(`[data-csv='${arguments[0]}']`).click(); window.given.text().then(arguments[1]);",
            name,
        )
        saved = (page.parent / f"{name}.csv").read_text()
        assert rows.count("\n") == saved.count("\n")
        assert set(rows.partition("\n")[0].split(",")) >= set(saved.partition("\n")[0].split(","))


@pytest.mark.parametrize("name", ["index.html", "claims.html", f"{DEFAULT}/index.html"])
def test_nothing_is_cut_on_a_phone(index: Path, browser: webdriver.Chrome, name: str) -> None:
    size = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        browser.get((index.parent / name).as_uri())
        if name != "index.html" and "/" in name:
            WebDriverWait(browser, 120).until(
                lambda driver: driver.execute_script("return document.documentElement.dataset.drawn")
            )
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
        beyond = browser.execute_script(
            "const scrolled = part => { for (let one = part.parentElement; one; one = one.parentElement)"
            " if (getComputedStyle(one).overflowX === 'auto') return true; return false; };"
            "return [...document.querySelectorAll('header *, nav *, main *')].filter(part => !part.closest('svg, pre')"
            " && !scrolled(part) && part.getBoundingClientRect().right > innerWidth + 1)"
            ".map(part => part.outerHTML.slice(0, 80))"
        )
        assert beyond == []
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_the_first_screen_has_the_answer_its_figure_and_the_verdicts(index: Path, browser: webdriver.Chrome) -> None:
    size = {"width": 1280, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        browser.get(index.as_uri())
        for part in (".first-answer", ".first-figure img", ".bar"):
            box = browser.find_element("css selector", part).rect
            assert box["height"] > 0
            assert box["y"] + box["height"] <= 900, part
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_every_picture_has_an_alternative_text(opened: webdriver.Chrome) -> None:
    described = opened.execute_script(
        "return [...document.querySelectorAll('.chart svg.marks, main img')]"
        ".map(picture => picture.getAttribute('aria-label') ?? picture.alt ?? '')"
    )
    assert described
    assert all(len(text) > 20 for text in described)


CONTRAST = """
const channel = value => { value /= 255; return value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4; };
const parsed = colour => colour.match(/[\\d.]+/g).map(Number);
const luminance = ([red, green, blue]) => 0.2126 * channel(red) + 0.7152 * channel(green) + 0.0722 * channel(blue);
const behind = part => {
  for (let one = part; one; one = one.parentElement) {
    const colour = parsed(getComputedStyle(one).backgroundColor);
    if (colour.length < 4 || colour[3] > 0) return colour;
  }
  return [255, 255, 255];
};
return [...document.querySelectorAll('body *')].filter(part => part.checkVisibility() && !part.closest('svg')
    && [...part.childNodes].some(node => node.nodeType === Node.TEXT_NODE && node.data.trim())).map(part => {
  const [one, other] = [luminance(parsed(getComputedStyle(part).color)), luminance(behind(part))].sort((a, b) => b - a);
  return [part.outerHTML.slice(0, 80), (one + 0.05) / (other + 0.05)];
});
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["index.html", "claims.html", f"{DEFAULT}/index.html"])
def test_text_has_the_contrast_of_wcag_aa(index: Path, browser: webdriver.Chrome, name: str, scheme: str) -> None:
    """Success criterion 1.4.3: at least 4.5:1 for text of usual size."""
    features = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", features)
    try:
        browser.get((index.parent / name).as_uri())
        actual = browser.execute_script(CONTRAST)
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert len(actual) > 20
    assert [(text, ratio) for text, ratio in actual if ratio < 4.5] == []


def test_the_report_prints_as_a4_with_text_on_every_page(
    index: Path, dataset: Dataset, programs: BrowserPrograms, tmp_path: Path
) -> None:
    pdf = write_pdf(dataset, index.parent, tmp_path / "folder" / "report.pdf").read_bytes()
    objects = {int(n): body for n, body in re.findall(rb"(?s)\n(\d+) 0 obj\n(.*?)\nendobj", pdf)}
    pages = [body for body in objects.values() if re.search(rb"/Type /Page\b", body)]
    assert len(pages) > 10
    for body in pages:
        width, height = (float(x) for x in re.search(rb"/MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", body).groups())  # type: ignore[union-attr]
        assert (width, height) == pytest.approx((595.28, 841.89), abs=1.5)
        content = objects[int(re.search(rb"/Contents (\d+) 0 R", body)[1])]  # type: ignore[index]
        drawn = zlib.decompressobj().decompress(content[content.index(b"stream\n") + 7 :])
        assert len(re.findall(rb"\bT[jJ]\b", drawn)) > 1  # more than the page's number
    titles = {title.decode() for title in re.findall(rb"/Title \(([^)]*)\)", pdf)}
    assert {"Summary", "Claims", "Provenance"} <= titles
