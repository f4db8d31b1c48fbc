"""Errors of the guest."""

from crosslayer.testbed.errors import TestbedError


class GuestError(TestbedError):
    """This machine cannot run a guest."""


class GuestDied(GuestError):  # noqa: N818 - the name states what happened
    """A guest ended unexpectedly."""
