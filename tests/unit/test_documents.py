"""README, ARTIFACT.md and docs: links, commands, derived content, and no history in instructions."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from crosslayer.cli import cli

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\(([^)\s#]*)(?:#[^)]*)?\)")
MENTIONED = re.compile(r"(?<![\w/.])docs/[\w/]+\.(?:md|svg)")


def tracked(*patterns: str) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def prose(path: Path) -> str:
    """A document, or the Markdown cells of a notebook, without blocks of code."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("path", tracked("*.md", "notebooks/*.ipynb"), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_between_documents_leads_to_a_file(path: Path) -> None:
    targets = [target for target in LINK.findall(prose(path)) if target and "://" not in target]
    inside = [target for target in targets if (path.parent / target).resolve().is_relative_to(ROOT)]
    assert set(targets) - set(inside) <= {"../../commits"}, "only the history on the hosting site lies outside"
    missing = [target for target in inside if not (path.parent / target).exists()]
    assert not missing, "repair the links, relative to the document"


def test_every_document_that_code_and_messages_name_exists() -> None:
    files = tracked(
        "lib", "tests", "setup", "nix", "emulation", "notebooks", "Makefile", "Containerfile", "pyproject.toml"
    )
    named = {}
    for path in files:
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for document in MENTIONED.findall(text):
            named.setdefault(document, path)
    assert len(named) > 5
    assert [f"{path.relative_to(ROOT)}: {name}" for name, path in named.items() if not (ROOT / name).is_file()] == []


def test_the_length_of_the_readme_is_limited() -> None:
    """The table of the answer is data."""
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(" ".join(line for line in lines if not line.startswith("|")).split()) <= 500


def test_the_readme_names_targets_of_make_and_commands_that_exist() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"\bmake ([a-z-]+)", readme))
    assert {"reproduce", "test"} <= targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target
    commands = set(re.findall(r"\bcrosslayer ([a-z]+)\b", readme))
    assert "doctor" in commands
    assert commands <= set(cli.list_commands(None))  # type: ignore[arg-type]
    assert "nix develop -c papermill notebooks/run_all.ipynb" in readme
    assert (ROOT / "notebooks" / "run_all.ipynb").is_file()


def test_the_readme_shows_the_figure_of_the_answer_and_the_testbed() -> None:
    pictures = re.findall(r"!\[([^\]]+)\]\(([^)]+)\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert [target for _, target in pictures] == ["figures/combinations/visits.png", "docs/testbed.svg"]
    assert all(len(alternative) > 30 for alternative, _ in pictures)


def made() -> dict[str, object]:
    spec = importlib.util.spec_from_file_location("docs_make", ROOT / "docs" / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {name: write() for name, write in module.WRITTEN.items()}


@pytest.mark.slow
def test_what_documents_derive_from_code_and_data_is_renewed() -> None:
    for name, content in made().items():
        assert (ROOT / "docs" / name).read_text(encoding="utf-8") == content, "run `python docs/make.py`"


def test_the_drawing_of_the_testbed_stays_in_its_frame_and_has_an_alternative_text() -> None:
    drawing = ET.parse(ROOT / "docs" / "testbed.svg").getroot()
    name = "{http://www.w3.org/2000/svg}"
    width, height = (float(drawing.attrib[side]) for side in ("width", "height"))
    for box in drawing.iter(f"{name}rect"):
        x, y, wide, high = (float(box.attrib[side]) for side in ("x", "y", "width", "height"))
        assert 0 <= x < x + wide <= width
        assert 0 <= y < y + high <= height
    description = drawing.find(f"{name}desc")
    assert description is not None
    assert len(description.text or "") > 100


HISTORY = re.compile(
    r"\b20\d\d-\d\d-\d\d\b"
    r"|\b\d{1,2} (?:January|February|March|April|May|June|July|August|September|October|November|December)\b"
    r"|\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7}\b"
    r"|before this was|the campaign before|[Ss]ince the campaign",
)
"""Days, revisions and comparisons with earlier states: they belong to LABBOOK.md."""


INSTRUCTIONS = tracked("README.md", "docs/howto/*.md")


@pytest.mark.parametrize("path", INSTRUCTIONS, ids=lambda path: str(path.relative_to(ROOT)))
def test_instructions_have_no_history(path: Path) -> None:
    text = re.sub(r"<!-- answer -->.*<!-- /answer -->", "", prose(path), flags=re.DOTALL)
    assert HISTORY.findall(text) == [], "move it to LABBOOK.md, dated"


def test_what_history_is_matched() -> None:
    assert HISTORY.search("measured on 2026-11-24")
    assert HISTORY.search("on 24 November 2026")
    assert HISTORY.search("revision 754fd3f")
    assert not HISTORY.search("the first 1234567 bytes, decade, effaced")
