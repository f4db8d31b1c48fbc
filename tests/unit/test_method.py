"""By what a campaign was measured: one record, and the report of each committed campaign shows it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from committed import CAMPAIGNS
from crosslayer.campaign.dataset import Campaign, Dataset
from crosslayer.campaign.method import method_of
from crosslayer.report import facts


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_every_committed_campaign_says_by_what_it_was_measured(name: str) -> None:
    campaign = Campaign.read(CAMPAIGNS[name] / "campaign.json")
    raw = json.loads((CAMPAIGNS[name] / "campaign.json").read_text(encoding="utf-8"))
    method = campaign.method
    assert method["code"] == raw["git"]["revision"]
    assert method["clock"] == {"virtual": "virtual time", "wall": "real time"}[raw["plan"]["clock"]]
    assert method["kernel"].startswith("Linux ")
    assert method["kernel"].endswith(raw["host"]["kernel"]) == ("guest_kernel" not in raw["versions"])
    assert method["link"].startswith(raw["backend"])
    assert ("browser" in method) == ("navigation" in method) == (raw["rows"]["page_loads"] > 0)
    assert ("server" in method) == ("server" in raw["versions"])


def test_the_browsers_and_what_navigates_them_are_named() -> None:
    chromium = Campaign.read(CAMPAIGNS["combinations"] / "campaign.json").method
    assert chromium["browser"] == "Chromium 156.0.8078.79"
    assert chromium["navigation"] == "Chromium: ChromeDriver 156.0.8078.79"
    both = Campaign.read(CAMPAIGNS["browsers"] / "campaign.json").method
    assert both["browser"].count(",") == 1
    assert both["navigation"].endswith("Firefox: WebDriver BiDi")


def test_a_recorded_method_is_read_as_it_is(tmp_path: Path) -> None:
    path = CAMPAIGNS["key-share"] / "campaign.json"
    campaign = Campaign.read(path)
    assert method_of(campaign) == campaign.method
    assert "browser" not in campaign.method
    recorded = json.loads(path.read_text(encoding="utf-8")) | {"method": {"code": "another"}}
    (tmp_path / "campaign.json").write_text(json.dumps(recorded), encoding="utf-8")
    assert Campaign.read(tmp_path / "campaign.json").method == {"code": "another"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [("key-share-virtual", "2026-11-28, revision "), ("key-share", "real time: not comparable")],
)
def test_the_report_shows_the_method_and_the_last_confirmation(name: str, expected: str) -> None:
    rows = facts.overview(Dataset.open(CAMPAIGNS[name]))
    assert {"Code", "Clock", "Kernel", "Server"} <= rows.keys()
    assert rows["Last confirmed"].startswith(expected)
