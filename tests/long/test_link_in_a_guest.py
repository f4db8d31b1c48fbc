"""The tests of the link in a guest by the wall clock: where a system call takes ten times as long, they take minutes.

Not of `make test`: `make test-long` runs it.
"""

from collections.abc import Iterator

import pytest

from tests.integration.conftest import Run
from tests.integration.test_link import *  # noqa: F403 - the same tests
from tests.integration.test_link import in_a_guest

del globals()["test_kill_9_leaves_nothing_behind"]  # of a testbed on the host


@pytest.fixture(scope="module")
def crosslayer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Run the `crosslayer` command with some arguments in one guest for all tests."""
    with in_a_guest("wall", tmp_path_factory.getbasetemp()) as run:
        yield run
