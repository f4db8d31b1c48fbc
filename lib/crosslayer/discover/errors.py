"""The one exception of this room."""

from crosslayer.errors import CrosslayerError


class DiscoverError(CrosslayerError):
    """Targets that cannot be probed, or a request for something discovery does not do."""
