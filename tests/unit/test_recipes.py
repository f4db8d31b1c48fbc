"""The recipes of CONTRIBUTING.md for link, page, figure and transport, performed on a copy of the tree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tree_copy import ROOT, Run, copied, runner

CONTRIBUTING = ROOT / "CONTRIBUTING.md"

pytestmark = pytest.mark.skipif(not CONTRIBUTING.is_file(), reason="the tests are not in a checkout")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What the recipes touch, and what reads it."""
    return copied(tmp_path / "tree", "data/raw/key-share")


@pytest.fixture
def run(tree: Path) -> Run:
    """Run Python on the library of the copy."""
    return runner(tree)


def recipe(heading: str, language: str) -> str:
    """The block of code under a heading of CONTRIBUTING.md."""
    section = CONTRIBUTING.read_text(encoding="utf-8").partition(f"## {heading}\n")[2].partition("\n## ")[0]
    match = re.search(rf"```{language}\n(.*?)```", section, re.DOTALL)
    assert match, heading
    return match[1]


def test_a_link(tree: Path, run: Run) -> None:
    with (tree / "emulation" / "profiles.toml").open("a", encoding="utf-8") as profiles:
        profiles.write(recipe("A link", "toml"))
    program = "from crosslayer.links import *; print(choose(load_profiles(), 'satellite').qdiscs()[0].tc_arguments())"
    assert "'rate', '50000000bit'" in run("-c", program)


def test_a_page(tree: Path, run: Run) -> None:
    folder = tree / "sites" / "my-page"
    folder.mkdir()
    (folder / "page.toml").write_text(recipe("A page", "toml"), encoding="utf-8")
    (folder / "index.html").write_text(
        "<!doctype html><html lang=en><title>Mine</title><p>A page of my own, to be loaded twice.", encoding="utf-8"
    )
    program = """
from pathlib import Path
from crosslayer.campaign.plan import check_names
from crosslayer.pages import build, load_pages
from crosslayer.studies import STUDIES, sized
pages = load_pages(Path("sites"))
plan = sized("coalescing", "smoke").resized(pages=("my-page",))
check_names(plan, links=STUDIES["coalescing"].profiles(plan), pages=pages, primes_alias=True)
build(pages, Path("built"))
"""
    run("-c", program)
    assert any((tree / "built").rglob("*"))


@pytest.mark.slow
def test_a_figure(tree: Path, run: Run) -> None:
    figures = tree / "lib" / "crosslayer" / "studies" / "key_share" / "figures.py"
    named = 'name="slowest", title="S", notebook="question_key_share", caption="C."'
    entry = f"Figure({named}, data=slowest_data, chart=slowest)"
    text = figures.read_text(encoding="utf-8")
    head, _, rest = text.partition("\nFIGURES = (\n")
    figures.write_text(f"{head}\n{recipe('A figure', 'python')}\n\nFIGURES = (\n    {entry},\n{rest}", encoding="utf-8")
    run("-m", "crosslayer", "figures", "data/raw/key-share", "--out", "out")
    assert (tree / "out" / "key-share" / "slowest.png").stat().st_size > 1000
    assert 'id="slowest"' in (tree / "out" / "key-share" / "index.html").read_text(encoding="utf-8")


_CONDITIONS = """
from crosslayer import discover
from crosslayer.discover import behaviour, support
from crosslayer.dns import DEFAULT_PORTS, Protocol
from crosslayer.figures.style import TRANSPORTS
from crosslayer.stub import StubSettings
from crosslayer.dns import Resolver
from crosslayer.studies import authoritative, combinations, loss, web
from crosslayer.studies.authoritative.measure import STREAMS
from crosslayer.studies.combinations.measure import CONDITIONS
from crosslayer.studies.combinations.metrics import COMBINATIONS
from crosslayer.studies.loss.measure import CONDITIONS as LOOKUPS
from crosslayer.studies.web.measure import SIX_TRANSPORTS

assert set(TRANSPORTS) == set(Protocol) == set(DEFAULT_PORTS)
newest = list(Protocol)[-1]
assert (newest, DEFAULT_PORTS[newest]) in support.ENDPOINTS
assert newest in behaviour.CHECKS[0].transports
print(StubSettings.towards(Resolver("192.0.2.1"), newest).upstream)
print(*STREAMS, *CONDITIONS, *COMBINATIONS, *LOOKUPS, *SIX_TRANSPORTS, sep="\\n")
"""


@pytest.mark.slow
def test_a_seventh_transport_is_known_by_its_rows_and_adds_no_condition_to_a_study(tree: Path, run: Run) -> None:
    url, *before = run("-c", _CONDITIONS).splitlines()
    assert url == "quic://192.0.2.1:853"
    vocabulary = tree / "lib" / "crosslayer" / "vocabulary.py"
    row = (
        "    Protocol.DOX: Transport(port=8853, resumptions=(Resumption.NONE,), encrypted=False, round_trips=2, "
        'url_scheme="dox", connection_packets=5),\n'
    )
    text = vocabulary.read_text(encoding="utf-8").replace('    DOQ = "DoQ"\n', '    DOQ = "DoQ"\n    DOX = "DoX"\n')
    vocabulary.write_text(text.replace("_TRANSPORTS = {\n", "_TRANSPORTS = {\n" + row), encoding="utf-8")
    style = tree / "lib" / "crosslayer" / "figures" / "style.py"
    text = style.read_text(encoding="utf-8")
    style.write_text(text.replace("TRANSPORTS = {\n", 'TRANSPORTS = {\n    "DoX": Style(SKY, "square", SOLID),\n', 1))
    url, *after = run("-c", _CONDITIONS).splitlines()
    assert url == "dox://192.0.2.1:8853"
    assert after == before
