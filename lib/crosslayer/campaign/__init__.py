"""Campaigns: plan, run, resume, store, export. The dataset they leave is read by `campaign.dataset` (polars)."""

from crosslayer.campaign.errors import CampaignError
from crosslayer.campaign.plan import STUDIES, Cell, Plan, sized

__all__ = ["STUDIES", "CampaignError", "Cell", "Plan", "sized"]
