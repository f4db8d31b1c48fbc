"""Five numbers of the reference campaign's claims table, computed again with pyarrow and numpy alone.

Nothing of `crosslayer.metrics` or `crosslayer.claims` takes part on this side: which rows count, how they are paired,
normalised and reduced is written down here a second time, from the descriptions of the columns.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from tests import committed

REFERENCE = Path(__file__).parents[2] / "data/raw/coalescing"
pytestmark = pytest.mark.skipif(not REFERENCE.is_dir(), reason="there is no data/raw/coalescing here")

Observations = dict[tuple[str, str, int], float]
"""A value by link, page and round."""


@pytest.fixture(scope="module")
def table() -> pl.DataFrame:
    """The claims table, as `crosslayer claims data/raw/coalescing` makes it."""
    return committed.verdicts("coalescing")


def rows(name: str, *columns: str) -> list[dict[str, Any]]:
    files = sorted((REFERENCE / name).glob("link=*/*.parquet"))
    assert files
    return [row for path in files for row in pq.read_table(path, columns=list(columns), partitioning=None).to_pylist()]


def nominal_rtts_ms() -> dict[str, float]:
    return {row["link"]: row["nominal_rtt_ms"] for row in rows("link_checks", "link", "nominal_rtt_ms")}


def exchanges(protocol: str, column: str) -> Observations:
    """A column of the exchanges on new connections that succeeded."""
    key = ("link", "page", "round")
    asked = ("study", "protocol", "resumption", "role", "error")
    return {
        (row["link"], row["page"], row["round"]): row[column]
        for row in rows("dns_exchanges", *key, *asked, column)
        if row["study"] == "coalescing"
        and row["protocol"] == protocol
        and row["resumption"] == "none"
        and row["role"] == "measured"
        and row["error"] is None
    }


def loads(h3: str, *columns: str) -> list[dict[str, Any]]:
    """The study's own loads that succeeded; 0-RTT only where the server saw early data."""
    needed = ("link", "page", "round", "study", "condition", "role", "h3", "early_data_accepted", "error")
    return [
        row
        for row in rows("page_loads", *needed, *columns)
        if row["study"] == "coalescing"
        and row["condition"] == "main"
        and row["role"] == "measured"
        and row["h3"] == h3
        and row["error"] is None
        and (h3 == "1-rtt" or row["early_data_accepted"])
    ]


def same(table: pl.DataFrame, claim: str, value: float, n: int) -> None:
    """The claim's number, and how many observations it rests on."""
    row = table.row(by_predicate=pl.col("claim_id") == claim, named=True)
    assert row["ours"] == pytest.approx(value, rel=1e-9)
    assert row["n"] == n > 0


def same_median(table: pl.DataFrame, claim: str, values: list[float]) -> None:
    same(table, claim, float(np.median(values)), len(values))


def test_doq_exchange_over_all_links(table: pl.DataFrame) -> None:
    rtt_ms = nominal_rtts_ms()
    total = exchanges("DoQ", "total_ms")
    same_median(table, "T079", [value / rtt_ms[link] for (link, _, _), value in total.items()])


def test_doq_query_on_dsl(table: pl.DataFrame) -> None:
    rtt_ms = nominal_rtts_ms()
    query = exchanges("DoQ", "query_ms")
    same_median(table, "T100", [value / rtt_ms["dsl"] for (link, _, _), value in query.items() if link == "dsl"])


def test_when_0_rtt_loads_send_their_request_over_all_links(table: pl.DataFrame) -> None:
    rtt_ms = nominal_rtts_ms()
    early = loads("0-rtt", "connect_start_ms", "request_start_ms")
    waits = [(row["request_start_ms"] - row["connect_start_ms"]) / rtt_ms[row["link"]] for row in early]
    same_median(table, "T049", waits)


def test_doh_minus_doq_within_the_rounds(table: pl.DataFrame) -> None:
    rtt_ms = nominal_rtts_ms()
    doh, doq = exchanges("DoH", "total_ms"), exchanges("DoQ", "total_ms")
    both = doh.keys() & doq.keys()
    same_median(table, "T085", [(doh[key] - doq[key]) / rtt_ms[key[0]] for key in both])


def test_plt_increase_of_doh_on_fiber_with_example_org(table: pl.DataFrame) -> None:
    browser = {
        (row["link"], row["page"], row["round"]): row["plt_ms"]
        for row in loads("1-rtt", "plt_ms")
        if (row["link"], row["page"]) == ("fiber", "example.org")
    }
    doh, udp = (
        [total[key] + browser[key] for key in browser.keys() & total.keys()]
        for total in (exchanges("DoH", "total_ms"), exchanges("DoUDP", "total_ms"))
    )
    same(table, "T253", (float(np.median(doh)) / float(np.median(udp)) - 1) * 100, min(len(doh), len(udp)))
