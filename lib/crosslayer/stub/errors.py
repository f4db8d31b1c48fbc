"""The exception of this package."""

from crosslayer.errors import CrosslayerError


class StubError(CrosslayerError):
    """The stub did not start, ended, refused a command, or wrote metrics that cannot be read."""
