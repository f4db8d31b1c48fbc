"""The exception of this package."""

from crosslayer.errors import CrosslayerError


class CampaignError(CrosslayerError):
    """A plan that cannot be run, or a campaign that cannot continue. Finished rounds stay in the store."""
