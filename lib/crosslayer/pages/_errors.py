"""The exception of this package."""

from __future__ import annotations

from crosslayer.errors import CrosslayerError


class PageError(CrosslayerError):
    """A page specification is wrong, or a page cannot be built from it."""
