"""The rows of the web study: lookups that are accounted for, and those that are not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crosslayer.campaign import CampaignError
from crosslayer.campaign.plan import changed, check_names
from crosslayer.campaign.tables import TABLES
from crosslayer.dns import Protocol
from crosslayer.links import load_profiles
from crosslayer.pages import find_spec_dir, load_pages
from crosslayer.stub import QueryMetrics
from crosslayer.studies import sized
from crosslayer.studies.web.measure import lookup_columns, lookup_summary, unaccounted

PAGES = load_pages(find_spec_dir())
PAGE = PAGES["social-network"]
LINKS = load_profiles()


def query(number: int, name: str, kind: str = "A") -> QueryMetrics:
    return QueryMetrics(
        time_ns=1_700_000_000_000_000_000 + number * 1_000_000, client="127.0.0.1:4000", client_protocol="udp",
        name=f"{name}.", type=kind, protocol=Protocol.DOT, connection=2, new_connection=number == 0, local_port=5000,
        handshake_ms=0.0 if number else 30.0, query_ms=15.0, total_ms=15.5 if number else 45.5, resumed=True,
        early_data=False, early_data_accepted=None, rcode="NOERROR", query_bytes=128, answer_bytes=468, retries=0,
        silence_ms=0.0, tcp_fallback=False, error="",
    )  # fmt: skip


LOAD = [query(2 * n + k, host, kind) for n, host in enumerate(PAGE.hosts) for k, kind in enumerate(("A", "HTTPS"))]


def test_a_load_whose_lookups_are_all_there_is_accounted_for() -> None:
    assert unaccounted(LOAD, PAGE, Protocol.DOT) is None
    assert unaccounted([*LOAD, query(9, PAGE.host)], PAGE, Protocol.DOT) is None  # asked again by the browser


def test_aliases_that_a_load_never_asks_for_are_no_fault() -> None:
    page = PAGES["example.org"]
    assert page.aliases
    assert unaccounted([query(0, page.host), query(1, page.host, "HTTPS")], page, Protocol.DOT) is None
    alias = query(2, page.aliases[0])
    assert page.aliases[0] in str(unaccounted([query(0, page.host), alias], page, Protocol.DOT))


def test_the_browsers_cache_must_not_answer() -> None:
    assert unaccounted(LOAD[2:], PAGE, Protocol.DOT) == f"the stub was not asked for {PAGE.host}"


def test_a_name_that_is_not_the_pages_is_a_fault() -> None:
    stray = query(9, "update.googleapis.com")
    assert "update.googleapis.com" in str(unaccounted([*LOAD, stray], PAGE, Protocol.DOT))


@pytest.mark.parametrize("change", [{"rcode": "SERVFAIL"}, {"error": "timeout", "rcode": ""}])
def test_a_lookup_without_an_address_is_a_fault(change: dict[str, str]) -> None:
    spoiled = [replace(LOAD[0], **change), *LOAD[1:]]
    assert unaccounted(spoiled, PAGE, Protocol.DOT) == f"the stub had no address for {PAGE.host}"


def test_a_session_that_was_not_resumed_is_a_fault() -> None:
    full = [replace(LOAD[0], resumed=False), *LOAD[1:]]
    assert "did not resume" in str(unaccounted(full, PAGE, Protocol.DOT))
    never_reset = [replace(LOAD[0], new_connection=False), *LOAD[1:]]
    assert "did not resume" in str(unaccounted(never_reset, PAGE, Protocol.DOT))
    without_tls = [replace(row, resumed=None, protocol=Protocol.DOTCP) for row in LOAD]
    assert unaccounted(without_tls, PAGE, Protocol.DOTCP) is None


def test_lookups_are_numbered_as_they_arrived() -> None:
    rows = lookup_columns(reversed(LOAD))  # the stub writes them as they are answered
    assert [row["number"] for row in rows] == list(range(len(LOAD)))
    assert rows[0]["started_s"] == pytest.approx(1_700_000_000, abs=1e-6)
    assert (rows[0]["handshake_ms"], rows[0]["error"]) == (30.0, None)
    assert set(rows[0]) <= {column.name for column in TABLES["lookups"].columns}


def test_the_summary_has_the_lookup_of_the_pages_own_host() -> None:
    summary = lookup_summary([*LOAD, query(9, PAGE.host)], PAGE.host)
    assert summary["lookup_count"] == PAGE.lookups
    assert summary["stub_lookup_ms"] == pytest.approx(45.5)  # the first query's answer is the last one
    assert lookup_summary(LOAD[2:], PAGE.host)["stub_lookup_ms"] is None


@pytest.mark.parametrize("size", ["smoke", "quick", "paper"])
def test_sizes_name_pages_of_the_study(size: str) -> None:
    plan = sized("web", size)
    check_names(plan, links=LINKS, pages=PAGES, primes_alias=False)
    web = [page for page in PAGES.values() if not page.aliases and page.name != "warmup"]
    names = [page.name for page in sorted(web, key=lambda page: (page.lookups, page.wire_bytes))]
    assert set(plan.pages) <= set(names)
    if size == "paper":
        assert list(plan.pages) == names


def test_https_records_are_for_a_browser_that_resolves() -> None:
    plan = changed(sized("web", "smoke"), {"options": {"https_records": True}})
    check_names(plan, links=LINKS, pages=PAGES, primes_alias=False)
    with pytest.raises(CampaignError, match="key 'https_records': is an unknown key"):
        changed(sized("coalescing", "smoke"), {"options": {"https_records": True}})
    with pytest.raises(CampaignError, match="must be true or false"):
        changed(plan, {"options": {"https_records": "yes"}})
