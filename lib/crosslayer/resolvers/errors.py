"""The exception of this package."""

from __future__ import annotations

from crosslayer.errors import CrosslayerError


class ResolversError(CrosslayerError):
    """A list of resolvers, a request or a file that cannot be used."""
