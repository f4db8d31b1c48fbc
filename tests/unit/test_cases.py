"""The table of inputs that were handled wrongly once: every case has tests, and each of them is there."""

from __future__ import annotations

import pytest

from cases import CASES, command
from har_cases import HARS


def test_every_case_is_in_the_table() -> None:
    assert list(CASES) == list(range(1, 56))


@pytest.mark.parametrize("number", CASES)
def test_a_case_has_tests(number: int) -> None:
    title, tests = CASES[number]
    assert title
    assert tests
    assert all(command(test) for test in tests)


def test_recordings_that_cases_name_are_tried() -> None:
    named = [
        file
        for title, tests in CASES.values()
        if any(test.startswith("test_har_cases.") for test in tests) and ": " in title
        for file in title.partition(": ")[2].split()
    ]
    assert len(named) == len(set(named)) > 35
    there = {file.name.removesuffix(".har") for file in HARS.iterdir()}
    assert set(named) <= there


def test_a_test_that_is_not_there_is_noticed() -> None:
    for name in (
        "test_cases_table.test_nothing",
        "test_nothing.test_nothing",
        "stub.TestNothing",
        "nothing.TestNothing",
    ):
        with pytest.raises(LookupError, match=name):
            command(name)
    assert command("stub.TestMemoryOfQueriesInFlight").endswith("'^TestMemoryOfQueriesInFlight$' ./internal/stub)")
