"""The exception of this package."""

from crosslayer.errors import CrosslayerError


class StubError(CrosslayerError):
    """The stub did not start, it refused a command or did not answer it, or it wrote metrics that cannot be read."""
