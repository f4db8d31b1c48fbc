"""The exception of this package."""

from crosslayer.errors import CrosslayerError


class CampaignError(CrosslayerError):
    """A plan cannot be run, or a campaign cannot continue. Finished rounds stay in the store."""
