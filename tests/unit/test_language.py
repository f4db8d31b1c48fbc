"""One language: names say what they are, one name is one class, and the glossary has short entries."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import crosslayer

LIBRARY = Path(crosslayer.__file__).parent
GLOSSARY = LIBRARY.parents[1] / "docs" / "reference" / "glossary.md"

PACKAGES = (
    "__init__.py",
    "__main__.py",
    "box",
    "browser",
    "commands/box.py",
    "commands/link.py",
    "commands/measure.py",
    "commands/show.py",
    "commands/stub.py",
    "decode.py",
    "doctor.py",
    "cli.py",
    "discover",
    "errors.py",
    "guest",
    "h3",
    "links.py",
    "cpu_load.py",
    "metrics",
    "notebooks",
    "packets",
    "path_faults.py",
    "process.py",
    "published.py",
    "stub",
    "study.py",
    "timestamps.py",
    "traces.py",
    "testbed",
    "claims",
    "figures",
    "report/answer.py",
    "report/drawing.py",
    "report/facts.py",
    "report/files.py",
    "report/loads.py",
    "report/made.py",
    "report/page.py",
    "report/pdf.py",
    "report/waterfall.py",
    "dns/__init__.py",
    "dns/capture.py",
    "dns/certificates.py",
    "dns/client.py",
    "dns/errors.py",
    "dns/exchange.py",
    "dns/handshake_bytes.py",
    "dns/http.py",
    "dns/http2.py",
    "dns/keylog.py",
    "dns/message.py",
    "dns/paced.py",
    "dns/quic.py",
    "dns/quic_core.py",
    "dns/sessions.py",
    "dns/tcp.py",
    "dns/timing.py",
    "dns/tls.py",
    "dns/udp.py",
    "studies/__init__.py",
    "studies/address_token",
    "studies/authoritative/__init__.py",
    "studies/authoritative/claims.py",
    "studies/authoritative/figures.py",
    "studies/browsers",
    "studies/certificates/__init__.py",
    "studies/certificates/claims.py",
    "studies/certificates/figures.py",
    "studies/certificates/metrics.py",
    "studies/certificates/visits.py",
    "studies/coalescing",
    "studies/combinations",
    "studies/composition/__init__.py",
    "studies/composition/claims.py",
    "studies/composition/figures.py",
    "studies/early_data",
    "studies/fallback/__init__.py",
    "studies/fallback/cases.py",
    "studies/fallback/claims.py",
    "studies/fallback/curl.py",
    "studies/fallback/figures.py",
    "studies/fallback/timers.py",
    "studies/gateway/__init__.py",
    "studies/gateway/claims.py",
    "studies/gateway/figures.py",
    "studies/gateway/kinds.py",
    "studies/https_records/__init__.py",
    "studies/https_records/claims.py",
    "studies/https_records/figures.py",
    "studies/https_records/records.py",
    "studies/key_share",
    "studies/loss/__init__.py",
    "studies/loss/claims.py",
    "studies/loss/figures.py",
    "studies/one_connection/__init__.py",
    "studies/one_connection/answer.py",
    "studies/one_connection/claims.py",
    "studies/one_connection/figures.py",
    "studies/one_connection/metrics.py",
    "studies/one_connection/modes.py",
    "studies/path_quality/__init__.py",
    "studies/path_quality/claims.py",
    "studies/path_quality/figures.py",
    "studies/path_quality/visits.py",
    "studies/rest/__init__.py",
    "studies/rest/claims.py",
    "studies/rest/figures.py",
    "studies/rest/keepers.py",
    "studies/serialisation",
    "studies/single_query/__init__.py",
    "studies/single_query/claims.py",
    "studies/single_query/figures.py",
    "studies/single_query/metrics.py",
    "studies/single_query/vantage.py",
    "studies/web/__init__.py",
    "studies/web/claims.py",
    "studies/web/figures.py",
)
"""Packages and modules whose names are plain; the list grows until it is the whole library."""

FORBIDDEN = frozenset(
    {
        "beside", "found", "keepsake", "keepsakes", "luggage", "mishap", "parted", "place", "places", "said", "taking",
        "theirs", "told", "words",
    }
)  # fmt: skip
"""Words that no identifier may be or contain, as one of its words between underscores or capitals."""

SHARED_NAMES = {
    "Answer": 2,  # of a message, of a client of a study
    "Browser": 2,
    "Certificates": 2,
    "Condition": 5,
    "Exchange": 2,
    "Group": 2,
    "Host": 2,
    "Kind": 3,
    "Load": 2,
    "Recording": 2,
    "Tables": 2,
    "Text": 2,
}
"""Names of several classes that have nothing to do with each other, with their number.

The numbers may only fall. Rename a class, then reduce its number, or remove its name, here.
"""

STUDY_CLASSES = frozenset({"Options"})
"""Classes that each study has under the same name, because they have the same function in each."""


def sources(parts: tuple[str, ...]) -> Iterator[Path]:
    for part in parts:
        path = LIBRARY / part
        assert path.exists(), f"{part} is not in the library: correct PACKAGES"
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]


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


@pytest.mark.parametrize("part", PACKAGES)
def test_identifiers_are_plain(part: str) -> None:
    faults = [
        f"{path.relative_to(LIBRARY)}:{line}: {name}"
        for path in sources((part,))
        for name, line in forbidden_in(path.read_text(encoding="utf-8"))
    ]
    assert faults == []


def test_module_names_are_plain() -> None:
    assert [path for path in sources(PACKAGES) if FORBIDDEN & parts_of(path.stem)] == []


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


def test_terms_inside_others_are_allowed() -> None:
    assert forbidden_in("foundation = placeholder = replace = password = besides = 1\nx.find().found\nf(told=1)") == []


def classes() -> dict[str, set[str]]:
    """Modules of each class of the library, by its name."""
    modules: dict[str, set[str]] = defaultdict(set)
    for path in LIBRARY.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                modules[node.name].add(str(path.relative_to(LIBRARY)))
    return modules


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
