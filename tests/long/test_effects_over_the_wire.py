"""The tests of effects over the User-Mode Linux wire, by the wall clock: 20,000 packets take their time there.

Not of `make test`: `make test-long` runs it.
"""

from typing import Any

import pytest

from tests.integration.test_effects import *  # noqa: F403 - the same tests
from tests.integration.test_effects import run


@pytest.fixture(scope="module")
def seen(testbed_machine: None) -> dict[str, Any]:
    """What was seen over the wire."""
    return run("uml", "here")
