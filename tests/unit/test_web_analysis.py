"""Figures and claims of the web study on loads whose cost per transport is known."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
import pytest
import vl_convert

from charts import valid
from crosslayer import claims, published
from crosslayer.campaign.tables import TABLES
from crosslayer.figures import MAX_ROWS, Inputs, draw
from crosslayer.studies import STUDIES
from crosslayer.studies.web import figures as web
from crosslayer.studies.web.claims import CLAIMS

RTT_MS = {"fiber": 14.77, "4g": 91.85}
LOOKUPS = {"login-form": 1, "search-engine": 5, "software-maker": 8}
BASE_MS = {"login-form": 150.0, "search-engine": 700.0, "software-maker": 1100.0}
"""PLT over DoUDP on a link without delay."""
ROUND_TRIPS = 4
"""That a page takes at the least."""
ROUNDS = 30
FIGURES = {figure.name: figure for figure in STUDIES["web"].figures}


def table(name: str, rows: list[dict[str, Any]]) -> pl.LazyFrame:
    return pl.LazyFrame(rows, schema=TABLES[name].polars_schema()).with_columns(host=pl.lit(""))


def loads(
    *,
    protocols: Mapping[str, int] = web.ROUND_TRIPS,
    pages: Mapping[str, int] = LOOKUPS,
    rounds: int = ROUNDS,
    browser_ms: float = 0.6,
) -> list[dict[str, Any]]:
    """Loads that take what the first lookup takes beyond DoUDP's round-trip, and noise of 0.5 ms."""
    noise = np.random.default_rng(1)
    rows = []
    for link, rtt_ms in RTT_MS.items():
        for page in pages:
            for protocol, trips in protocols.items():
                for number in range(rounds):
                    plt_ms = BASE_MS[page] + (ROUND_TRIPS + trips - 1) * rtt_ms + noise.normal(0, 0.5)
                    lookup_ms = trips * rtt_ms + 0.5
                    rows.append(
                        {"campaign": "c", "round": number, "link": link, "study": "web", "page": page, "h3": "1-rtt"}
                        | {
                            "coupling": "coupled",
                            "dns_protocol": protocol,
                            "condition": "main",
                            "role": "measured",
                            "position": 0,
                        }
                        | {"plt_ms": plt_ms, "fcp_ms": plt_ms - 0.8 * BASE_MS[page], "lookup_count": pages[page]}
                        | {"stub_lookup_ms": lookup_ms, "domain_lookup_start_ms": 3.0}
                        | {"domain_lookup_end_ms": 3.0 + lookup_ms + browser_ms}
                        | {"early_data_accepted": False, "session_resumed": False}
                    )
    return rows


def inputs(rows: list[dict[str, Any]]) -> Inputs:
    checks = [
        {"campaign": "c", "round": 0, "link": link, "nominal_rtt_ms": rtt_ms, "rtt_ms": rtt_ms}
        for link, rtt_ms in RTT_MS.items()
    ]
    return Inputs(
        dns_exchanges=table("dns_exchanges", []),
        tcp_rtts=table("tcp_rtts", []),
        page_loads=table("page_loads", rows),
        link_checks=table("link_checks", checks),
        published=published.load(),
        links=tuple(RTT_MS),
        pages=tuple(LOOKUPS),
    )


WHOLE = inputs(loads())
PARTS = {
    "nothing": inputs([]),
    "no baseline": inputs(loads(protocols={"DoQ": 2, "DoH": 3})),
    "one round": inputs(loads(rounds=1)),
    "one page": inputs(loads(pages={"login-form": 1})),
}


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_draws_within_its_limits(name: str) -> None:
    drawing = draw(FIGURES[name], WHOLE, "Campaign c.")
    assert 0 < drawing.rows.height <= MAX_ROWS
    assert "<svg" in vl_convert.vegalite_to_svg(json.dumps(valid(drawing)))


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_draws_what_there_is(name: str, part: str) -> None:
    drawing = draw(FIGURES[name], PARTS[part], "Campaign c.")
    vl_convert.vegalite_to_vega(json.dumps(drawing.vega_lite()))


def test_increases_are_over_the_median_of_doudp_in_the_cell() -> None:
    frame = web.fig4_data(WHOLE)
    assert frame["link"].unique(maintain_order=True).to_list() == ["fiber", "4g"]
    assert frame.filter(link="fiber")["page"].unique(maintain_order=True).to_list() == list(LOOKUPS)
    for row in frame.iter_rows(named=True):
        base = BASE_MS[row["page"]] + ROUND_TRIPS * RTT_MS[row["link"]]
        expected = 100 * (web.ROUND_TRIPS[row["series"]] - 1) * RTT_MS[row["link"]] / base
        assert row["median"] == pytest.approx(expected, abs=0.2)
        assert row["low"] <= row["median"] <= row["high"]
        assert row["lookups"] == LOOKUPS[row["page"]]


def test_fig3_has_the_printed_values_of_its_claims() -> None:
    printed = web.fig3_data(WHOLE).filter(source="published")
    values = {
        row["claim_id"]: float(row["value"])
        for row in WHOLE.published.claims.iter_rows(named=True)
        if row["claim_id"] in ("I108", "I109", "I110", "I118", "I119")
    }
    at = {(row["panel"], row["series"], row["x"]): row["cdf"] for row in printed.iter_rows(named=True)}
    assert at["(a) FCP", "DoQ", 10.0] == pytest.approx(values["I108"] / 100)
    assert at["(a) FCP", "DoQ", 20.0] == pytest.approx(1 - values["I110"] / 100)
    assert ("(a) FCP", "DoT", values["I109"]) in at
    assert at["(b) PLT", "DoQ", 15.0] == pytest.approx(1 - values["I118"] / 100)
    assert at["(b) PLT", "DoH", 15.0] == pytest.approx(1 - values["I119"] / 100)


@pytest.mark.slow
def test_the_cost_in_round_trips_does_not_depend_on_the_lookups() -> None:
    frame = web.amortisation_data(WHOLE).filter(measure="round-trips")
    for row in frame.iter_rows(named=True):
        assert row["median"] == pytest.approx(web.ROUND_TRIPS[row["series"]] - 1, abs=0.06)
    verdict = web.amortisation_verdict(web.amortisation_data(WHOLE))
    assert re.search(r"1 lookup: DoQ [\d.]+ to [\d.]+ %, DoH .* 8 lookups: DoQ ", verdict)
    assert web.amortisation_verdict(web.amortisation_data(PARTS["one page"])).startswith("Not answered")


@pytest.mark.parametrize(("browser_ms", "agrees"), [(0.6, 100.0), (2.5, 0.0)])
def test_the_browsers_lookup_is_held_against_the_stubs(browser_ms: float, agrees: float) -> None:
    frame = web.first_lookup_data(inputs(loads(browser_ms=browser_ms)))
    assert frame["series"].unique(maintain_order=True).to_list() == list(web.ROUND_TRIPS)
    assert frame["agrees_percent"].unique().to_list() == [agrees]
    assert frame["differs_ms"].to_list() == pytest.approx([browser_ms] * frame.height)
    assert (frame["median"] - frame["expected"]).abs().max() < 0.1  # type: ignore[operator]


def lookups(rows: list[dict[str, Any]], *, of_first: bool = False) -> list[dict[str, Any]]:
    """The lookups of loads as the stub told them: each on a connection of its own, or all on that of the first."""
    return [
        {name: row[name] for name in ("campaign", "round", "link", "study", "page", "dns_protocol", "condition")}
        | {"number": number, "retries": 0, "new_connection": number == 0 or not of_first}
        | {"total_ms": RTT_MS[row["link"]] + 0.5 if number and of_first else row["stub_lookup_ms"]}
        for row in rows
        for number in range(row["lookup_count"])
    ]


def check(rows: list[dict[str, Any]], *, of_first: bool = False) -> dict[str, dict[str, Any]]:
    made = inputs(rows)
    rows_of_lookups = table("lookups", lookups(rows, of_first=of_first))

    class Made:
        def table(self, name: str) -> pl.LazyFrame:
            frame: pl.LazyFrame = rows_of_lookups if name == "lookups" else getattr(made, name)
            return frame

    verdicts = claims.check(Made(), CLAIMS, made.published.claims, elsewhere={})
    return {row["claim_id"]: row for row in verdicts.iter_rows(named=True)}


def test_claims_follow_the_numbers() -> None:
    judged = check(loads())
    assert set(CLAIMS.checks) <= set(judged)
    reproduced = ("I113", "I117", "I126", "I128", "I135", "I138")
    assert judged["I124"]["verdict"] == "follows"
    assert {name: judged[name]["verdict"] for name in reproduced} == dict.fromkeys(reproduced, "reproduced")
    assert (judged["I113"]["ours"], judged["I124"]["ours"]) == (pytest.approx(2.02, abs=0.02), 1.0)
    maximum = 100 * RTT_MS["4g"] / (BASE_MS["login-form"] + (ROUND_TRIPS + 2) * RTT_MS["4g"])
    assert judged["I001"]["ours"] == pytest.approx(maximum, abs=0.2)
    # DoT and DoH take as many round-trips here: the paper's difference was its proxy's.
    assert judged["I121"]["verdict"] != "reproduced"
    assert judged["I127"]["verdict"] == "not measured"
    assert judged["I006"]["verdict"] == "not measured"


def test_shares_have_intervals_of_their_rounds() -> None:
    row = check(loads())["I108"]
    at_most_10 = [
        link
        for link, rtt_ms in RTT_MS.items()
        for page in LOOKUPS
        if rtt_ms <= 0.1 * (0.2 * BASE_MS[page] + ROUND_TRIPS * rtt_ms)
    ]
    assert row["ours"] == pytest.approx(100 * len(at_most_10) / (len(RTT_MS) * len(LOOKUPS)))
    assert row["low"] == row["high"] == pytest.approx(row["ours"])  # no round differs from another


@pytest.mark.parametrize("rows", [[], loads(protocols={"DoQ": 2}), loads(pages={"login-form": 1}, rounds=1)])
def test_what_a_campaign_lacks_is_not_measured(rows: list[dict[str, Any]]) -> None:
    judged = check(rows)
    for name in CLAIMS.checks:
        assert judged[name]["verdict"] == "not measured" or judged[name]["n"]
    assert judged["I126"]["verdict"] == "not measured"


@pytest.mark.slow
def test_second_connections_are_those_of_a_stub_that_has_more_than_one() -> None:
    several = sum(count > 1 for count in LOOKUPS.values())
    assert check(loads())["I122"]["ours"] == pytest.approx(100 * several / len(LOOKUPS))
    row = check(loads(), of_first=True)["I122"]
    assert (row["verdict"], "connections" in row["why"]) == ("not measured", True)


def elsewhere(rows: list[dict[str, Any]], link: str, page: str, **faster: float) -> list[dict[str, Any]]:
    """The loads of one page on fiber as those of another link and page, by protocol so many ms faster."""
    return [
        row | {"link": link, "page": page, "plt_ms": row["plt_ms"] - faster.get(row["dns_protocol"], 0.0)}
        for row in rows
        if (row["link"], row["page"]) == ("fiber", "login-form")
    ]


@pytest.mark.slow
def test_the_vantage_point_in_asia_is_the_link_of_that_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RTT_MS, "asia", 173.0)
    rows = [row for row in loads() if row["link"] != "asia"]
    assert check(rows)["I127"]["verdict"] == "not measured"
    for gain_ms, verdict in ((0.0, "not reproduced"), (1000.0, "reproduced")):
        judged = check([*rows, *elsewhere(rows, "asia", "professional-network", DoQ=gain_ms / 10, DoH=-gain_ms)])
        assert judged["I127"]["verdict"] == verdict, gain_ms


@pytest.mark.slow
def test_links_with_loss_decide_how_often_udp_is_slower_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    before = check(loads())
    monkeypatch.setitem(RTT_MS, "fiber-loss", RTT_MS["fiber"])
    judged = check(loads())
    assert "fiber-loss" in judged["I137"]["why"]
    assert judged["I002"]["ours"] == pytest.approx(before["I002"]["ours"], abs=0.2)
    assert judged["I113"]["n"] == before["I113"]["n"]
