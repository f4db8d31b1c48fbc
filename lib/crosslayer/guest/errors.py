"""Errors of the guest."""

from crosslayer.testbed.errors import TestbedError


class GuestError(TestbedError):
    """This machine cannot run a guest, or a guest could not run its command."""


class GuestDied(GuestError):  # noqa: N818 - the name states what happened
    """A guest ended unexpectedly."""
