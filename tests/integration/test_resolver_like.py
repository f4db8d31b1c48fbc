"""An emulated resolver with measured times (`--resolver-like`)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import polars as pl
import pytest

from tests.integration.conftest import CROSSLAYER


def test_a_resolver_nearer_than_the_link_is_refused() -> None:
    done = subprocess.run(
        [*CROSSLAYER, "link", "4g", "--resolver-like", "data/raw/resolvers:north@here", "--", "true"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "measured with an RTT of 12.0 ms, less than the" in done.stderr
    assert "rtt-12" in done.stderr


def test_a_page_in_a_browser_has_lookups_of_the_measured_times(tmp_path: Path) -> None:
    plan, out = tmp_path / "plan.toml", tmp_path / "out"
    plan.write_text(
        'study = "web"\nlinks = ["rtt-10"]\npages = ["login-form"]\nrounds = 1\nclock = "virtual"\n'
        '[options]\nresolver_like = "data/raw/resolvers:wide@here"\n',
        encoding="utf-8",
    )
    subprocess.run([*CROSSLAYER, "measure", "--plan", str(plan), "--jobs", "1", "--out", str(out)], check=True)
    assert pl.read_parquet(out / "page_loads/**/*.parquet")["error"].drop_nulls().to_list() == []
    lookups = pl.read_parquet(out / "lookups/**/*.parquet")  # of two simultaneous ones, the second waits for the first
    round_trips = {"DoUDP": 1, "DoTCP": 2, "DoQ": 2, "DoH3": 2, "DoT": 3, "DoH": 3}
    assert set(lookups["dns_protocol"]) == set(round_trips)
    for protocol, total_ms in lookups.select("dns_protocol", "total_ms").iter_rows():
        assert total_ms == pytest.approx(25.0 * round_trips[protocol], abs=0.2)
