"""The exception of this package."""

from crosslayer.errors import CrosslayerError


class NotebookError(CrosslayerError):
    """A notebook that cannot continue: an unknown parameter, a failed measurement or a failed notebook."""
