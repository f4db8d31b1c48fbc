"""The exception of this package."""

from crosslayer.errors import CrosslayerError


class StubError(CrosslayerError):
    """The stub failed to start, refused or did not answer a command, or wrote metrics that cannot be read."""
