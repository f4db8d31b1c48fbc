"""The error of this package, in a module of its own so that every module can import it."""

from crosslayer.testbed.errors import TestbedError


class BoxError(TestbedError):
    """The description of a box cannot be used, or a part of the box failed."""
