"""One language: names say what they are, one name is one class, and the glossary has short entries."""

from __future__ import annotations

import ast
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import crosslayer

LIBRARY = Path(crosslayer.__file__).parent
ROOT = Path(__file__).parents[2]
GLOSSARY = ROOT / "docs" / "reference" / "glossary.md"

PYTHON = ("lib", "tests", "setup", "sites", "docs", "notebooks")
"""Folders whose Python is checked, notebooks too."""

FORBIDDEN = frozenset(
    {
        "abandoned", "beside", "found", "hands", "keepsake", "keepsakes", "luggage", "mishap", "mishaps", "parted",
        "place", "places", "said", "taking", "theirs", "told", "vain", "words",
    }
)  # fmt: skip
"""Words that no identifier may be or contain, as one of its words between underscores or capitals."""

OF_OTHERS = frozenset({"StatusNotFound"})
"""Names of other libraries that Go code mentions."""

SHARED_NAMES = {"Browser": 2}  # of a program, and of a value in the column `browser`
"""Names of several classes that have nothing to do with each other, with their number, which may only fall."""

STUDY_CLASSES = frozenset({"Options"})
"""Classes that each study has under the same name, because they have the same function in each."""


def sources() -> Iterator[tuple[str, str]]:
    """Path from the root, and Python code, of every module and every notebook's cells."""
    for folder in PYTHON:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
        for path in sorted((ROOT / folder).rglob("*.ipynb")):
            cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
            yield from (
                (f"{path.relative_to(ROOT)}, cell {number}", "".join(cell["source"]))
                for number, cell in enumerate(cells)
                if cell["cell_type"] == "code"
            )


def bound_names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Names that a module binds itself, with their lines: not those of imported modules and of their attributes."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name, node.lineno
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, node.lineno
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.ExceptHandler(name=str(name)):
                yield name, node.lineno
            case ast.alias(asname=str(name)):
                yield name, node.lineno


def parts_of(identifier: str) -> set[str]:
    """The words of an identifier, in lower case, and the identifier itself without leading underscores."""
    plain = identifier.strip("_")
    return {plain.lower(), *(word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", plain))}


def forbidden_in(source: str) -> list[tuple[str, int]]:
    return [(name, line) for name, line in bound_names(ast.parse(source)) if FORBIDDEN & parts_of(name)]


def go_names(source: str) -> set[str]:
    """Identifiers of Go code, without its comments and texts."""
    literals = r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|`[^`]*`|\'(?:\\.|[^\'\\])*\''
    return set(re.findall(r"\b[A-Za-z_]\w*\b", re.sub(literals, " ", source, flags=re.DOTALL)))


@pytest.mark.slow
def test_identifiers_are_plain() -> None:
    faults = [f"{path}:{line}: {name}" for path, source in sources() for name, line in forbidden_in(source)]
    assert faults == []


def test_identifiers_of_go_are_plain() -> None:
    faults = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sorted((ROOT / "emulation").rglob("*.go"))
        for name in sorted(go_names(path.read_text(encoding="utf-8")) - OF_OTHERS)
        if FORBIDDEN & parts_of(name)
    ]
    assert faults == []


def test_module_names_are_plain() -> None:
    files = [path for folder in (*PYTHON, "emulation") for path in (ROOT / folder).rglob("*.[pg]*") if path.is_file()]
    assert len(files) > 500
    assert [path for path in files if FORBIDDEN & parts_of(path.stem)] == []


@pytest.mark.parametrize(
    "source",
    [
        "found = 1",
        "def said(): ...",
        "class Luggage: ...",
        "def f(words): ...",
        "def f(*, modules_told=0): ...",
        "lambda place: 0",
        "self._found = 1",
        "class LuggageOfWorker: ...",
        "class _Beside: ...",
        "for beside in (): ...",
        "import os as told",
        "with f() as found: ...",
        "try: ...\nexcept OSError as said: ...",
        "match x:\n    case {'a': told}: ...",
        "[found for found in ()]",
        "(told := 1)",
        "PARTED_BYTES = 1",
    ],
)
def test_each_way_to_bind_a_forbidden_name_is_noticed(source: str) -> None:
    assert forbidden_in(source)


def test_comments_and_texts_of_go_are_not_names() -> None:
    code = "package a // found\n/* told */ var said = \"place\" + `words` + string('x')\nfunc (p *pool) placeOf() {}"
    assert {name for name in go_names(code) if FORBIDDEN & parts_of(name)} == {"said", "placeOf"}


def test_terms_inside_others_are_allowed() -> None:
    assert forbidden_in("foundation = placeholder = replace = password = besides = 1\nx.find().found\nf(told=1)") == []


@cache
def classes() -> dict[str, set[str]]:
    """Modules of each class of the library, by its name."""
    modules: dict[str, set[str]] = defaultdict(set)
    for path in LIBRARY.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                modules[node.name].add(str(path.relative_to(LIBRARY)))
    return modules


@pytest.mark.slow
def test_no_two_unrelated_classes_share_a_name() -> None:
    shared = {name: modules for name, modules in classes().items() if len(modules) > 1 and name not in STUDY_CLASSES}
    assert {name: sorted(modules) for name, modules in shared.items() if len(modules) > SHARED_NAMES.get(name, 1)} == {}
    assert {name: len(shared.get(name, ())) for name in SHARED_NAMES} == SHARED_NAMES


def test_classes_that_each_study_has_are_in_studies_only() -> None:
    assert {module.split("/")[0] for name in STUDY_CLASSES for module in classes()[name]} == {"studies"}


def entries() -> list[tuple[str, str]]:
    rows = (
        line.strip("|").split("|") for line in GLOSSARY.read_text(encoding="utf-8").splitlines() if line[:2] == "| "
    )
    return [(row[0].strip(), row[1].strip()) for row in rows if row[0].strip() != "term"]


def test_the_glossary_has_each_term_once() -> None:
    terms = [term.lower() for term, _ in entries()]
    assert len(terms) == len(set(terms)) >= 60


@pytest.mark.parametrize(("term", "meaning"), entries())
def test_an_entry_of_the_glossary_is_short(term: str, meaning: str) -> None:
    sentences = re.split(r"(?<=[.?!])(?<!e\.g\.)(?<!i\.e\.)\s+(?=[A-Z])", meaning)
    assert len(sentences) <= 2, term
    assert max(len(sentence.split()) for sentence in sentences) <= 25, term
    assert meaning.endswith("."), term
