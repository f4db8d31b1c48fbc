"""The exception of this package."""

from crosslayer.errors import CrosslayerError


class NotebookError(CrosslayerError):
    """A notebook cannot continue, e.g. because a parameter is unknown, or a measurement or another notebook failed."""
