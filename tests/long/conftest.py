"""Reasons to skip, as for the integration tests."""

from tests.integration.conftest import testbed_machine

__all__ = ["testbed_machine"]
