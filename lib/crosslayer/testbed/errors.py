"""The exceptions of the package `testbed`, in a separate module so that every other module can import them."""

from crosslayer.errors import CrosslayerError


class TestbedError(CrosslayerError):
    """The machine cannot provide the testbed, or a part of it failed."""

    __test__ = False


class OutsideError(CrosslayerError):
    """A packet must not leave the machine: the user has not consented, or its destination is on the stop list."""
