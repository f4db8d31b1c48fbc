"""The one exception of this room."""

from __future__ import annotations

from crosslayer.errors import CrosslayerError


class PageError(CrosslayerError):
    """A page specification is wrong, or a page cannot be built from it."""
