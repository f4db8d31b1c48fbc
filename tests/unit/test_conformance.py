"""Documents that name tests: docs/development/conformance.md and tests/README.md."""

from __future__ import annotations

import pytest

import conformance
from conformance import NAME, ROOT, Row, missing, names

ROWS = [
    pytest.param(row, id=f"{title.split(':')[0]}-{row.section}-{row.who}".replace(" ", ""))
    for title, rows in conformance.read().items()
    for row in rows
]


@pytest.mark.parametrize("row", ROWS)
def test_a_row_has_a_verdict_and_what_shows_it(row: Row) -> None:
    assert row.verdict in {"yes", "partly", "no", "n/a"}
    assert row.tests or row.why
    assert row.why or row.verdict == "yes"
    assert all(NAME.fullmatch(test) for test in row.tests)
    assert missing(row.tests) == []


def test_the_page_is_what_the_rows_make() -> None:
    """Written again by `python -m tests.conformance`."""
    assert conformance.DOCUMENT.read_text(encoding="utf-8") == conformance.to_markdown()


def test_tests_named_in_the_readme_exist() -> None:
    named = NAME.findall((ROOT / "tests" / "README.md").read_text(encoding="utf-8"))
    assert len(named) > 20
    assert missing(named) == []


def test_a_name_that_is_none_is_noticed() -> None:
    assert missing(["early.TestEDNS", "early.TestNothing", "test_conformance.test_nothing"]) == [
        "early.TestNothing",
        "test_conformance.test_nothing",
    ]
    assert "test_conformance.test_a_name_that_is_none_is_noticed" in names()
