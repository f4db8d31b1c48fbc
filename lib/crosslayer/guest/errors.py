"""The guest's faults."""

from crosslayer.testbed.errors import TestbedError


class GuestError(TestbedError):
    """This machine cannot run a guest."""


class GuestDied(GuestError):  # noqa: N818 - it says what happened
    """A guest ended that nobody had asked to."""
