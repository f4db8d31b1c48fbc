"""Errors of this package, in a separate module that every module of the package can import."""

from crosslayer.errors import CrosslayerError
from crosslayer.testbed.errors import TestbedError


class BoxError(CrosslayerError):
    """The description of a box, or an output file of a box, cannot be used."""


class BoxStartError(TestbedError):
    """This machine cannot provide a part of the box, or that part failed."""
