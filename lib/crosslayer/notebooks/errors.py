"""The exception of this package."""

from crosslayer.errors import CrosslayerError


class NotebookError(CrosslayerError):
    """A notebook cannot continue: unknown parameter, failed measurement, or failed other notebook."""
