"""No test is quarantined: none is skipped whatever the machine, expected to fail, deselected or run until it passes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MARKERS = {"skip", "xfail", "flaky", "repeat", "rerun"}
"""Markers of pytest and its plugins that quarantine a test; `skipif` needs a reason that not every machine has."""
RUNNERS = [
    ROOT / "Makefile",
    ROOT / "pyproject.toml",
    *(
        path
        for folder in (".ci", ".github", "nix", "setup")
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    ),
]


def quarantined_python(source: str) -> Iterator[str]:
    """Each expression of a test module that quarantines tests, as source."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute(value=ast.Attribute(value=ast.Name("pytest"), attr="mark"), attr=marker):
                if marker in MARKERS:
                    yield marker
            case ast.Call(func=ast.Attribute(attr="skipif"), args=[ast.Constant(), *_]):
                yield ast.unparse(node)
            case ast.Name(("collect_ignore" | "collect_ignore_glob") as name):
                yield name
            case ast.Module(body=statements):
                yield from _skips(statements)
            case ast.FunctionDef(name=name, body=statements) if name.startswith("test_"):
                yield from _skips(statements)


def _skips(statements: list[ast.stmt]) -> Iterator[str]:
    """The statements that call `pytest.skip` or `pytest.xfail`; those below a condition are not among them."""
    for statement in statements:
        match statement:
            case ast.Expr(ast.Call(func=ast.Attribute(value=ast.Name("pytest"), attr="skip" | "xfail"))):
                yield ast.unparse(statement)


def quarantined_go(source: str) -> list[str]:
    """Each statement of a Go test that skips it without a condition."""
    return re.findall(r"^\t[tbf]\.Skip(?:f|Now)?\(.*", source, re.MULTILINE)


def quarantined_run(source: str) -> list[str]:
    """Each option of a test runner that leaves tests out or runs them again."""
    return re.findall(r"--deselect\b|--reruns\b|--last-failed\b|--flake-finder\b|\bgo\"? test [^|]*-skip\b", source)


@pytest.mark.slow
def test_the_quarantine_is_empty() -> None:
    results = {
        str(path.relative_to(ROOT)): results
        for files, search in (
            ((ROOT / "tests").rglob("*.py"), quarantined_python),
            ((ROOT / "emulation").rglob("*_test.go"), quarantined_go),
            (RUNNERS, quarantined_run),
        )
        for path in files
        if (results := list(search(path.read_text(encoding="utf-8"))))
    }
    assert results == {}


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("@pytest.mark.skip\ndef test_a(): pass", 1),
        ("@pytest.mark.xfail(reason='now and then')\ndef test_a(): pass", 1),
        ("@pytest.mark.skipif(True, reason='later')\ndef test_a(): pass", 1),
        ("@pytest.mark.skipif(not FILE.is_dir(), reason='no file')\ndef test_a(): pass", 0),
        ("def test_a():\n    pytest.skip('later')", 1),
        ("def test_a():\n    if missing:\n        pytest.skip('no program')", 0),
        ("collect_ignore = ['test_a.py']", 1),
    ],
)
def test_a_quarantined_test_is_detected(source: str, count: int) -> None:
    assert len(list(quarantined_python(source))) == count


def test_quarantined_go_and_options_of_runners_are_detected() -> None:
    assert quarantined_go('func TestA(t *testing.T) {\n\tt.Skip("later")\n}') == ['\tt.Skip("later")']
    assert quarantined_go('\tif missing {\n\t\tt.Skip("no program")\n\t}') == []
    assert quarantined_run("pytest --deselect tests/unit/test_a.py") == ["--deselect"]
    assert quarantined_run('"$go" test ./... -skip TestA') == ['go" test ./... -skip']
