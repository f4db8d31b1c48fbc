"""The study `single-query`: its model of vantage points, its plan, figures and claims on made-up observations."""

from __future__ import annotations

import statistics
from collections import Counter
from typing import Any

import numpy as np
import polars as pl
import pytest

from charts import valid
from crosslayer import claims, published
from crosslayer.campaign import NoOptions
from crosslayer.campaign.tables import TABLES
from crosslayer.figures import Inputs, draw
from crosslayer.studies import STUDIES, owners, sized
from crosslayer.studies.single_query import vantage
from crosslayer.studies.single_query.claims import CLAIMS
from crosslayer.studies.single_query.measure import CONDITIONS, EVERYWHERE, FIRST_ONLY, RESOLVERS
from crosslayer.studies.single_query.metrics import single_queries
from crosslayer.vocabulary import SIZES_BY_PART, VANTAGE_POINTS

ROUNDS = 8
PLAN = sized("single-query", "quick")
RTT_MS = {name: profile.rtt_ms for name, profile in vantage.profiles(PLAN.links, PLAN.seed).items()}
ROUND_TRIPS = {"DoUDP": 0, "DoTCP": 1, "DoQ": 1, "DoH3": 1, "DoT": 2, "DoH": 2}
OWN = {figure.name: figure for figure in STUDIES["single-query"].figures}


# The model


def test_the_mixture_of_all_vantage_points_has_the_papers_median_handshake() -> None:
    levels = [(n + 0.5) / 200 for n in range(200)]
    everywhere = [vantage.rtt_ms(point, level) for point in VANTAGE_POINTS for level in levels]
    assert statistics.median(everywhere) == pytest.approx(183, abs=1)


def test_vantage_points_have_the_papers_order() -> None:
    medians = vantage.MEDIAN_MS
    assert medians["eu"] < min(medians["as"], medians["na"])
    assert max(medians["as"], medians["na"]) < min(medians[point] for point in ("af", "oc", "sa"))


def test_resolvers_are_drawn_from_the_seed_one_of_each_range() -> None:
    names = vantage.links(4)
    drawn = vantage.profiles(names, 1)
    assert drawn == vantage.profiles(names, 1)
    assert drawn != vantage.profiles(names, 2)
    for point in VANTAGE_POINTS:
        rtts = sorted(drawn[f"{point}-{number}"].rtt_ms for number in range(1, 5))
        bounds = [vantage.rtt_ms(point, level / 4) for level in range(5)]
        assert all(low - 0.001 <= rtt <= high + 0.001 for low, rtt, high in zip(bounds, rtts, bounds[1:], strict=False))


def test_a_plan_may_list_rtts_itself() -> None:
    plan = PLAN.resized(links=("rtt-50", "rtt-12.5", "rtt-0", "rtt-x", "fiber", "xx-1", "eu-0", "eu-1"))
    made = STUDIES["single-query"].profiles(plan)
    assert {name for name in plan.links if name in made} == {"rtt-50", "rtt-12.5", "fiber", "eu-1"}
    assert [made[name].rtt_ms for name in ("rtt-50", "rtt-12.5")] == [50.0, 12.5]


def test_links_of_the_model_have_nothing_but_an_rtt() -> None:
    for profile in vantage.profiles(["eu-1", "af-7"], 1).values():
        assert profile.shaped
        down, up = profile.qdiscs()
        assert (down.rate_mbit, up.rate_mbit, down.loss_percent) == (None, None, 0.0)
        assert down.delay_ms + up.delay_ms == pytest.approx(profile.rtt_ms)


# The plan


@pytest.mark.parametrize(("size", "cells"), [("smoke", 2), ("quick", 12), ("paper", 6 * 313)])
def test_sizes(size: str, cells: int) -> None:
    plan = sized("single-query", size)
    assert len(plan.cells) == cells
    assert set(plan.links) <= set(vantage.profiles(plan.links, plan.seed))
    assert plan.options == NoOptions()


def test_every_condition_asks_a_resolver_there_is_and_is_there_once() -> None:
    assert {condition.resolver for condition in CONDITIONS.values()} == set(RESOLVERS)
    assert len(CONDITIONS) == len(EVERYWHERE) + len(FIRST_ONLY)


# Figures and claims on observations that are whole round-trips and the published bytes


def exchanges(links: dict[str, float], seed: int = 1, *, own_bytes: float = 1.0) -> list[dict[str, Any]]:
    """Observations in which a handshake is whole round-trips and 1 to 3 ms."""
    noise = np.random.default_rng(seed)
    sizes = published.load().sizes
    table1 = {(row["series"], row["part"]): row["table1"] for row in sizes.iter_rows(named=True)}
    rows = []
    for (link, rtt), number, condition in (
        (item, number, condition)
        for item in links.items()
        for number in range(ROUNDS)
        for condition in CONDITIONS.values()
        if condition in EVERYWHERE or item[0].startswith("eu")
    ):
        protocol = condition.protocol.value
        trips = ROUND_TRIPS[protocol]
        full = condition.resumption == "none"
        trips += full and condition.resolver in ("tls-1.2", "retry", "large-certificate")
        trips = 0 if condition.resumption == "early-data" else trips
        handshake = trips * rtt + (noise.uniform(1, 3) if trips else 0.0)
        query = rtt + noise.uniform(0.5, 1)
        row = {"campaign": "c", "round": number, "link": link, "study": "single-query", "page": "google.com"}
        row |= {"protocol": protocol, "resumption": condition.resumption.value, "condition": condition.resolver}
        row |= {"role": "measured", "handshake_ms": handshake, "query_ms": query, "total_ms": handshake + query}
        row |= {
            column: round(table1.get((protocol, part), 1000) * own_bytes) + int(noise.integers(0, 2)) * 0
            for part, column in SIZES_BY_PART.items()
        }
        rows.append(row | {"handshake_received_packets": 2})
        if condition.resumption != "none":
            rows.append(row | {"role": "priming", "resumption": "none", "handshake_ms": 9999.0})
    return rows


def table(name: str, rows: list[dict[str, Any]]) -> pl.LazyFrame:
    return pl.LazyFrame(rows, schema=TABLES[name].polars_schema()).with_columns(host=pl.lit(""))


def tables(rows: list[dict[str, Any]], links: dict[str, float]) -> dict[str, pl.LazyFrame]:
    checks = [{"campaign": "c", "round": 0, "link": link, "nominal_rtt_ms": rtt} for link, rtt in links.items()]
    made = {name: table(name, []) for name in ("tcp_rtts", "page_loads")}
    return made | {"dns_exchanges": table("dns_exchanges", rows), "link_checks": table("link_checks", checks)}


@pytest.fixture(scope="module")
def whole() -> dict[str, pl.LazyFrame]:
    return tables(exchanges(RTT_MS), RTT_MS)


class Tables:
    """What claims know of a dataset."""

    def __init__(self, frames: dict[str, pl.LazyFrame]) -> None:
        self.table = frames.__getitem__


def check(frames: dict[str, pl.LazyFrame]) -> pl.DataFrame:
    return claims.check(Tables(frames), CLAIMS, published.load().claims, elsewhere={"T001": "it is of coalescing"})


@pytest.fixture(scope="module")
def verdicts(whole: dict[str, pl.LazyFrame]) -> pl.DataFrame:
    return check(whole)


def inputs(frames: dict[str, pl.LazyFrame], links: dict[str, float]) -> Inputs:
    return Inputs(**frames, published=published.load(), links=tuple(links), pages=("google.com",))


def test_series_are_the_papers_conditions_and_leave_priming_and_other_resolvers_out(
    whole: dict[str, pl.LazyFrame],
) -> None:
    rows = single_queries(whole["dns_exchanges"]).collect()
    assert set(rows["role"]) == {"measured"}
    counts = dict(rows.filter(pl.col("series").is_not_null()).group_by("series").len().iter_rows())
    assert counts == dict.fromkeys(
        ("DoUDP", "DoTCP", "DoT", "DoH", "DoH3", "DoQ", "DoQ 0-RTT", "DoH3 0-RTT"), len(RTT_MS) * ROUNDS
    )
    assert set(rows["vantage"]) == set(VANTAGE_POINTS)


@pytest.mark.parametrize("name", OWN)
def test_figures_draw_what_there_is_and_say_where_there_is_nothing(name: str, whole: dict[str, pl.LazyFrame]) -> None:
    drawing = draw(OWN[name], inputs(whole, RTT_MS), "Campaign c.")
    valid(drawing)
    assert drawing.table is not None
    assert drawing.table.height
    empty = tables([], RTT_MS)
    assert "no single queries" in str(valid(draw(OWN[name], inputs(empty, RTT_MS), "")))


def test_fig2_has_every_vantage_point_all_of_them_and_the_published_medians(whole: dict[str, pl.LazyFrame]) -> None:
    frame = OWN["imc22-fig2"].data(inputs(whole, RTT_MS))
    handshakes = {
        (row["vantage_point"], row["series"]): row["median"]
        for row in frame.filter(measure="handshake").iter_rows(named=True)
    }
    assert handshakes["All, published", "DoQ"] == 187
    assert handshakes["All, published", "DoT"] == 377
    in_europe = [RTT_MS[link] for link in RTT_MS if link.startswith("eu")]
    assert min(in_europe) < handshakes["Europe", "DoTCP"] < max(in_europe) + 3
    assert frame.filter(vantage_point="All, measured", measure="resolve").height == 5


@pytest.mark.parametrize("name", ["handshake-round-trips", "amplification-limit"])
def test_round_trips_come_out_as_expected(name: str, whole: dict[str, pl.LazyFrame]) -> None:
    frame = OWN[name].data(inputs(whole, RTT_MS))
    for row in frame.iter_rows(named=True):
        if "TLS 1.2, resumed" not in row["label"]:
            assert row["expected"] == pytest.approx(row["median"], abs=0.06), row["label"]
            assert row["beyond_ms"] <= 3


def test_published_bytes_are_reproduced_and_a_tenth_more_is_not(verdicts: pl.DataFrame) -> None:
    bytes_claims = [f"I{number:03}" for number in range(52, 75)]
    result = verdicts.filter(pl.col("claim_id").is_in(bytes_claims))
    assert result.height == len(bytes_claims)
    assert result["verdict"].unique().to_list() == ["reproduced"]
    more = tables(exchanges(RTT_MS, own_bytes=1.1), RTT_MS)
    other = check(more)
    result = other.filter(pl.col("claim_id").is_in(bytes_claims))
    assert result["verdict"].unique().to_list() == ["not reproduced"]


@pytest.mark.parametrize("claim", ["I006", "I093", "I097", "I100", "I101", "I102", "I103", "I104", "I105", "I106"])
def test_round_trips_alone_reproduce_the_papers_comparisons(claim: str, verdicts: pl.DataFrame) -> None:
    row = verdicts.row(by_predicate=pl.col("claim_id") == claim, named=True)
    assert row["verdict"] == "reproduced", row["why"]


def test_what_the_model_of_the_vantage_points_gives_is_no_evidence(verdicts: pl.DataFrame) -> None:
    given = verdicts.filter(pl.col("claim_id").is_in(["I089", "I090", "I091", "I092", "I098", "I134"]))
    assert given["verdict"].to_list() == ["follows"] * 6
    assert given["follows_from"].str.starts_with("the vantage points").all()


def test_what_a_reused_connection_pays_back_is_judged_in_bytes(verdicts: pl.DataFrame) -> None:
    row = verdicts.row(by_predicate=pl.col("claim_id") == "I133", named=True)
    assert (row["verdict"], row["unit"]) == ("reproduced", "bytes")
    assert row["ours"] == pytest.approx(579 + 804 - 190 - 386, abs=1)
    assert "from query 4 on" in row["note"]  # (3868 - 780) / 807


def test_medians_over_all_vantage_points_need_all_of_them() -> None:
    links = {name: rtt for name, rtt in RTT_MS.items() if not name.startswith("oc")}
    judged = check(tables(exchanges(links), links))
    row = judged.row(by_predicate=pl.col("claim_id") == "I092", named=True)
    assert (row["verdict"], row["why"]) == ("not measured", "This campaign has no vantage point in Oceania.")
    assert judged.row(by_predicate=pl.col("claim_id") == "I054", named=True)["verdict"] == "reproduced"


def test_checks_are_those_of_sections_1_to_3_1_and_no_others(verdicts: pl.DataFrame) -> None:
    results = published.load().claims.filter(kind="result", paper="IMC22")
    other_half = pl.col("section_or_figure").str.starts_with("3.2") | pl.col("claim_id").is_in(["I001", "I002"])
    assert sorted(CLAIMS.checks) == sorted(results.filter(~other_half)["claim_id"])


def test_a_claim_belongs_to_one_study_and_others_say_so(verdicts: pl.DataFrame) -> None:
    judged = Counter(claim for study in STUDIES.values() if study.claims for claim in study.claims.checks)
    again = {claim for claim, times in judged.items() if times > 1}
    field = STUDIES["resolvers"].claims
    assert field is not None
    assert again == set(field.checks) & set(CLAIMS.checks)
    assert {owners()[claim] for claim in again} == {"single-query"}
    row = verdicts.row(by_predicate=pl.col("claim_id") == "T001", named=True)
    assert row["why"] == "It is of coalescing."


def test_a_study_without_claims_measures_none(whole: dict[str, pl.LazyFrame]) -> None:
    judged = claims.check(Tables(whole), STUDIES["serialisation"].claims, published.load().claims, elsewhere={})
    assert judged["verdict"].unique().to_list() == ["not measured"]
