"""Campaigns: plan, run, resume, store, export. The dataset they leave is read by `campaign.dataset` (polars)."""

from crosslayer.campaign.errors import CampaignError
from crosslayer.campaign.plan import Cell, NoOptions, Plan

__all__ = ["CampaignError", "Cell", "NoOptions", "Plan"]
