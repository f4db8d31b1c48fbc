"""Campaigns: plan, run, resume, store, export; the dataset they leave."""

from crosslayer.campaign.dataset import Dataset, DatasetError
from crosslayer.campaign.errors import CampaignError
from crosslayer.campaign.plan import PROFILES, Cell, Plan

__all__ = ["PROFILES", "CampaignError", "Cell", "Dataset", "DatasetError", "Plan"]
