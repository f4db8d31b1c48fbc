"""Campaigns: plan, run, resume, store, export. `campaign.dataset` reads the exported datasets (polars)."""

from crosslayer.campaign.errors import CampaignError
from crosslayer.campaign.plan import Cell, NoOptions, Plan

__all__ = ["CampaignError", "Cell", "NoOptions", "Plan"]
