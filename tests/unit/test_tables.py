"""The tables: what follows from a column's line is what measures, stores, reads and documents it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import polars as pl
import pytest

from crosslayer import dns
from crosslayer.browser import PageLoad
from crosslayer.campaign import instruments, tables
from crosslayer.campaign.tables import TABLES, DnsExchanges, LinkChecks, Lookups, PacedQueries, PageLoads, Resources
from crosslayer.stub import QueryMetrics
from crosslayer.testbed.check import LinkCheck
from crosslayer.vocabulary import Protocol


def test_the_documented_columns_are_the_columns() -> None:
    """Written again by `python -m crosslayer.campaign.tables > docs/reference/columns.md`."""
    file = Path(__file__).parents[2] / "docs" / "reference" / "columns.md"
    assert file.read_text(encoding="utf-8") == tables.to_markdown()


def test_types_are_those_of_the_frames() -> None:
    schema = TABLES["link_checks"].polars_schema()
    assert list(schema) == [column.name for column in LinkChecks.columns]
    kinds = (schema["round"], schema["rtt_ms"], schema["verdict"], schema["rtt_samples_ms"])
    assert kinds == (pl.Int64(), pl.Float64(), pl.String(), pl.List(pl.Float64()))
    assert DnsExchanges.polars_schema()["protocol"] == pl.String()
    assert DnsExchanges.polars_schema()["early_data_accepted"] == pl.Boolean()


def test_units_follow_from_names() -> None:
    units = {column.name: column.unit for column in (*PageLoads.columns, *LinkChecks.columns)}
    assert (units["plt_ms"], units["when_s"], units["transfer_bytes"]) == ("ms", "s", "bytes")
    assert (units["down_mbit"], units["probes"], units["verdict"]) == ("Mbit/s", "count", "")


def test_a_transport_is_a_word_of_every_table_once_it_is_one() -> None:
    columns = [column for table in TABLES.values() for column in table.columns if column.type is Protocol]
    assert len(columns) == 7
    assert all(column.values == tuple(Protocol) for column in columns)


@pytest.mark.parametrize(
    ("table", "source", "result"),
    [
        (DnsExchanges, tables.EXCHANGE, dns.ExchangeResult),
        (Lookups, tables.STUB, QueryMetrics),
        (PacedQueries, tables.STUB, QueryMetrics),
        (PacedQueries, tables.ASKED, dns.Asked),
        (PageLoads, tables.LOAD, PageLoad),
        (LinkChecks, tables.CHECK, LinkCheck),
    ],
)
def test_what_is_taken_from_a_result_is_there(table: type[tables.Table], source: str, result: type) -> None:
    taken = table.sources(source)
    assert taken
    assert set(taken.values()) <= {field.name for field in fields(result)} | set(vars(result))


def test_a_load_becomes_rows_by_the_names_of_the_w3c() -> None:
    times = PageLoads.sources(tables.NAVIGATION)
    assert len(times) == 15
    assert times["plt_ms"] == "loadEventStart"
    navigation = {key: float(number) for number, key in enumerate(times.values())}
    entry = dict.fromkeys(Resources.sources(tables.RESOURCE).values(), 1) | {"name": "https://www.example.org/a.js"}
    reported = navigation | {"type": "navigate", "responseStatus": 200}
    load = PageLoad(1.5, 2.5, True, reported, {"first-contentful-paint": None}, (entry,), "{}")
    row = {"campaign": "c", "round": 0, "link": "fiber", "study": "web", "page": "p", "h3": "1-rtt"}
    row |= {"condition": "main", "role": "measured", "position": 3, "dns_protocol": "DoQ"} | instruments.load_columns(
        load
    )
    assert {name: row[name] for name in times} == {name: navigation[key] for name, key in times.items()}
    assert (row["started_s"], row["setup_ms"], row["fcp_ms"]) == (1.5, 2.5, None)
    assert (row["resource_count"], row["navigation"]) == (1, "{}")
    assert set(row) <= {column.name for column in PageLoads.columns}
    (resource,) = instruments.resource_rows(row, load, [])
    assert set(resource) | {"clock", "host"} == {column.name for column in Resources.columns}  # which the engine knows
    assert (resource["url"], resource["position"]) == ("https://www.example.org/a.js", 3)
    assert Lookups.identity(row) == {
        "campaign": "c",
        "round": 0,
        "link": "fiber",
        "study": "web",
        "page": "p",
        "dns_protocol": "DoQ",
        "condition": "main",
        "role": "measured",
        "position": 3,
        "started_s": 1.5,
    }


@pytest.mark.parametrize("begin_ms", [0.0, 0.1])
def test_a_load_without_a_response_has_no_times_of_the_browsers_error_page(begin_ms: float) -> None:
    """As Chromium 156 reports a navigation whose connections were reset: times of its error page, and status 0."""
    navigation = dict.fromkeys(PageLoads.sources(tables.NAVIGATION).values(), begin_ms)
    navigation |= {"loadEventStart": 4094.1, "domComplete": 4094.1, "responseEnd": 4094.1, "responseStatus": 0}
    load = PageLoad(1.5, 2.5, True, navigation, {"first-contentful-paint": 4112.0}, (), "raw")
    assert instruments.load_columns(load) == {
        "started_s": 1.5,
        "setup_ms": 2.5,
        "browser_idle": True,
        "navigation": "raw",
    }


def test_analysis_of_rows_opens_no_socket_and_no_browser() -> None:
    """The words are those of the DNS clients, which are not imported for them."""
    script = (
        "import sys, crosslayer.campaign.dataset; print([m for m in ('aioquic', 'selenium', 'h2') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
