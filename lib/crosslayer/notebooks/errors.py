"""The one error of this room."""

from crosslayer.errors import CrosslayerError


class NotebookError(CrosslayerError):
    """A notebook that cannot go on: an unknown parameter, a failed measurement or a failed notebook."""
