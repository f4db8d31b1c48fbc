"""One round of each study that answers an open question: every row has its evidence."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from crosslayer.campaign.dataset import Dataset
from tests.integration.conftest import CROSSLAYER


@pytest.mark.parametrize(
    ("study", "links", "conditions"),
    [
        ("serialisation", "dsl,dsl-uplink-x4", {"main", "datagram-1400-padding-128", "datagram-1200-padding-512"}),
        ("early-data", "fiber", {"main", "resumed", "late"}),
        ("key-share", "fiber", {"x25519", "x25519mlkem768"}),
        ("address-token", "fiber", {"main", "no-token"}),
        ("one-connection", "fiber", {"main", "no-token", "at-once", "at-once-no-token", "settings"}),
        ("server-stacks", "fiber", {"main", "aioquic: main", "aioquic: no-token", "aioquic-window: main"}),
        ("combinations", "fiber", {"main", "before ticket", "before early-data"}),
        ("gateway", "fiber", {"main", "gateway-two", "gateway-one"}),
        ("composition", "fiber", {"main"}),
        ("path-quality", "4g-rtt-20", {"main"}),
        # Firefox does not run in every guest (docs/findings/browsers.md).
        pytest.param("browsers", "fiber", {"main"}, marks=pytest.mark.alone),
    ],
)
def test_a_question_is_measured_with_the_evidence_it_needs(
    request: pytest.FixtureRequest, tmp_path: Path, study: str, links: str, conditions: set[str]
) -> None:
    exact = study != "browsers"
    options = request.getfixturevalue("virtual_clock") if exact else []
    request.getfixturevalue("browser_machine" if exact else "firefox_machine")
    command = ["measure", "--study", study, "--links", links, "--rounds", "1", "--out", str(tmp_path / study)]
    command += [
        "--pages",
        "wikipedia.org" if study in ("one-connection", "server-stacks", "path-quality") else "example.org",
    ]
    subprocess.run([*CROSSLAYER, *command, *options], check=True, capture_output=True, timeout=900)
    dataset = Dataset.open(tmp_path / study, every_round=True)
    loads = dict.fromkeys(("early-data", "address-token", "gateway", "composition", "browsers"), "page_loads")
    loads |= dict.fromkeys(("one-connection", "server-stacks"), "resolved_loads")
    rows = dataset.table(loads.get(study, "dns_exchanges")).collect()
    assert rows["error"].null_count() == rows.height
    assert conditions <= set(rows["condition"])
