"""The exception of this package."""

from crosslayer.errors import CrosslayerError


class DiscoverError(CrosslayerError):
    """Targets cannot be probed, or a request is not supported."""
