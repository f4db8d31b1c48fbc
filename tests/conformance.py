"""Requirements of RFCs and the tests that show conformance.

`python -m tests.conformance` writes docs/development/conformance.md from the rows in `conformance.toml`. The rows name
tests as MODULE.test_NAME (pytest) or PACKAGE.TestName (Go). `missing` finds names for which there is no test.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[1]
ROWS = Path(__file__).with_name("conformance.toml")
DOCUMENT = ROOT / "docs" / "development" / "conformance.md"
NAME = re.compile(r"\b\w+\.(?:test_|Test|Fuzz)\w+")
"""Regular expression of a test's name: MODULE.test_NAME, PACKAGE.TestName or PACKAGE.FuzzName."""

_PYTHON = re.compile(r"^(?:async )?def (test_\w+)\(", re.MULTILINE)
_GO = re.compile(r"^func ((?:Test|Fuzz)\w+)\(", re.MULTILINE)


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A requirement, the component that must meet it, and whether it does."""

    section: str
    level: str
    """Requirement level of the RFC: MUST, SHOULD and so on."""
    what: str
    who: str
    verdict: str
    """Whether the component meets the requirement: yes, partly, no, or n/a (does not apply)."""
    tests: list[str] = []
    why: str = ""
    """Reason for a verdict other than yes; for the verdict yes without a test, the evidence."""


class _Rows(msgspec.Struct, forbid_unknown_fields=True):
    rows: list[Row]


def read() -> dict[str, list[Row]]:
    """Read `conformance.toml`: rows by the title of their table; `msgspec.ValidationError` for an invalid row."""
    tables = msgspec.toml.decode(ROWS.read_bytes(), type=dict[str, _Rows])
    return {title: table.rows for title, table in tables.items()}


@cache
def names() -> dict[str, Path]:
    """Source file of every test by the test's name: MODULE.test_NAME of pytest, PACKAGE.TestName of Go."""
    python = {
        f"{file.stem}.{name}": file for file in ROOT.glob("tests/**/test_*.py") for name in _matches(_PYTHON, file)
    }
    go = {
        f"{file.parent.name}.{name}": file
        for file in ROOT.glob("emulation/**/*_test.go")
        for name in _matches(_GO, file)
    }
    return python | go


def _matches(pattern: re.Pattern[str], file: Path) -> list[str]:
    return pattern.findall(file.read_text(encoding="utf-8"))


def missing(named: Iterable[str]) -> list[str]:
    """Those of the names `named` for which there is no test, sorted."""
    return sorted(set(named) - names().keys())


def to_markdown() -> str:
    """The text of `docs/development/conformance.md`."""
    tables = read()
    counts = Counter(row.verdict for rows in tables.values() for row in rows)
    tested = sum(bool(row.tests) for rows in tables.values() for row in rows)
    lines = [
        "# Conformance",
        "",
        "This page lists what the RFCs require of our server, our stub, our clients and `crosslayer discover`,",
        "whether they comply, and which tests show it.",
        "MODULE.test_NAME is a test of pytest, PACKAGE.TestName a test of Go. `python -m tests.conformance` writes",
        "this page from `tests/conformance.toml`. `make test` runs the tests, and checks that each named test exists.",
        "",
        f"Of {sum(counts.values())} rows, {counts['yes']} have the verdict yes, {counts['partly']} partly,",
        f"{counts['no']} no, and {counts['n/a']} n/a (does not apply). {tested} rows name a test.",
        "Each row with another verdict than yes states the reason.",
    ]
    for title, rows in tables.items():
        lines += [
            "",
            f"## {title}",
            "",
            "| section | level | what | who | | tests, and why |",
            "|---|---|---|---|---|---|",
        ]
        for row in rows:
            shown = "; ".join(filter(None, [", ".join(f"`{test}`" for test in row.tests), row.why]))
            cells = [row.section, row.level, row.what, row.who, row.verdict, shown]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    DOCUMENT.write_text(to_markdown(), encoding="utf-8")
