"""Check that a smoke campaign has the shape its plan asks for, and that 0-RTT happened, by the server's word.

    check_smoke_campaign.py FOLDER

The NixOS test of the flake (nix/vm-test.nix) runs this after `crosslayer-reproduce -p size smoke`.
Exits with 1 and one line per fault.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from crosslayer.campaign.dataset import Dataset
from crosslayer.errors import CrosslayerError
from crosslayer.studies import sized

PLAN = sized("coalescing", "smoke")
PROTOCOLS = {"DoUDP", "DoH", "DoQ"}
BACKEND = "netem"


def faults(dataset: Dataset) -> Iterator[str]:
    """Every way in which the dataset is not what the plan asks for; nothing for a good one."""
    campaign = dataset.campaign
    if campaign.backend != BACKEND:
        yield f"measured over {campaign.backend}, not {BACKEND}"
    if (campaign.links, campaign.pages, campaign.rounds) != (PLAN.links, PLAN.pages, PLAN.rounds):
        yield f"links {campaign.links}, pages {campaign.pages}, {campaign.rounds} rounds are not those of smoke"
    if not campaign.ended:
        yield "the campaign did not end"

    checks = dataset.table("link_checks").filter(pl.col("verdict") != "pass").collect()
    for check in checks.iter_rows(named=True):
        yield f"link {check['link']} before round {check['round']}: {check['verdict']}"
    for table in ("dns_exchanges", "tcp_rtts", "page_loads"):
        failed = dataset.table(table).filter(pl.col("error").is_not_null()).collect()
        for row in failed.iter_rows(named=True):
            yield f"{table}, link {row['link']}, round {row['round']}: {row['error']}"

    exchanges = dataset.table("dns_exchanges").filter(pl.col("resumption") == "none").collect()
    loads = dataset.table("page_loads").filter(role="measured").collect()
    for link in PLAN.links:
        for protocol in sorted(PROTOCOLS):
            result = exchanges.filter(pl.col("link") == link, pl.col("protocol") == protocol).height
            if result != PLAN.rounds * len(PLAN.pages):
                yield f"link {link}: {result} {protocol} exchanges"
        for h3, early in (("1-rtt", False), ("0-rtt", True)):
            some = loads.filter(pl.col("link") == link, pl.col("h3") == h3)
            if some.height != PLAN.rounds * len(PLAN.pages):
                yield f"link {link}: {some.height} H3 {h3} loads"
            if some.filter(pl.col("early_data_accepted") == early).height != some.height:
                yield f"link {link}: not every H3 {h3} load {'was' if early else 'went without'} early data"


def main(folder: Path) -> int:
    """Print the faults of the campaign in `folder`; the exit status says whether there are any."""
    try:
        result = list(faults(Dataset.open(folder)))
    except CrosslayerError as error:
        result = [str(error)]
    print("\n".join(result) or f"{folder}: a whole smoke campaign, with 0-RTT where it was asked for")
    return 1 if result else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
