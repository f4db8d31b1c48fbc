"""IMC 2022, section 3.1, judged from queries to a list of resolvers: population, clusters, and whose verdict counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from crosslayer import claims, published, report
from crosslayer.campaign.dataset import EMULATED, Dataset
from crosslayer.campaign.tables import TABLES
from crosslayer.claims.data import Observed
from crosslayer.claims.measures import median
from crosslayer.metrics.resampling import drawn_crossed
from crosslayer.studies import STUDIES, owners
from crosslayer.studies.resolvers.claims import CLAIMS
from crosslayer.studies.resolvers.metrics import single_queries
from crosslayer.vocabulary import PAPER_SERIES, SIZES_BY_PART

ROUND_TRIPS = {"DoUDP": 1, "DoTCP": 2, "DoQ": 2, "DoH3": 2, "DoT": 3, "DoH": 3}
RTTS = {"eu": 90.0, "na": 161.0, "as": 173.0, "af": 213.0, "sa": 237.0, "oc": 251.0}
RESOLVERS, ROUNDS = 8, 6
COMMITTED = Path("data/raw/resolvers")
Row = dict[str, Any]


def queries(without: tuple[tuple[str, str], ...] = (), seed: int = 1) -> list[Row]:
    """Whole round-trips, and the bytes of the paper; RTTs of pairs scatter by 3 %."""
    noise = np.random.default_rng(seed)
    table1 = {(row["series"], row["part"]): row["table1"] for row in published.load().sizes.iter_rows(named=True)}
    rows: list[Row] = []
    for vantage, centre in RTTS.items():
        for number in range(RESOLVERS):
            rtt = centre * float(np.exp(noise.normal(0, 0.03)))
            for protocol, trips in ROUND_TRIPS.items():
                if (protocol, f"r{number}") in without:
                    continue
                state = "cold" if protocol in ("DoUDP", "DoTCP") else "resumed"
                for round_ in range(ROUNDS):
                    total = trips * rtt + noise.uniform(0, 1)
                    row = {"campaign": "c", "round": round_, "link": vantage, "study": "resolvers", "page": "a.example"}
                    row |= {"resolver": f"r{number}", "address": f"198.18.{number + 1}.53", "protocol": protocol}
                    row |= {"state": state, "cache": "hit", "role": "measured", "rtt_ms": rtt, "error": None}
                    row |= {"total_ms": total, "handshake_ms": (trips - 1) * rtt, "query_ms": total - (trips - 1) * rtt}
                    row |= {column: table1.get((protocol, part), 1) for part, column in SIZES_BY_PART.items()}
                    rows.append(row | {"session_resumed": True if state == "resumed" else None, "host": vantage})
                    rows.append(row | {"state": "kept", "handshake_ms": 0.0, "query_ms": rtt, "total_ms": rtt})
    return rows


def frame(rows: list[Row]) -> pl.LazyFrame:
    schema = TABLES["resolver_queries"].polars_schema()
    return pl.DataFrame(rows, schema_overrides={name: schema[name] for name in rows[0] if name in schema}).lazy()


class Campaign:
    """A dataset that has one table."""

    def __init__(self, rows: list[Row]) -> None:
        self._rows = frame(rows)

    def table(self, name: str) -> pl.LazyFrame:
        assert name == "resolver_queries"
        return self._rows


def verdicts(rows: list[Row]) -> dict[str, Row]:
    table = claims.check(Campaign(rows), CLAIMS, published.load().claims, elsewhere={})
    return {row["claim_id"]: row for row in table.iter_rows(named=True)}


def test_whole_round_trips_and_the_papers_bytes_reproduce_section_3_1() -> None:
    judged = verdicts(queries())
    for claim in ("I006", "I048", "I052", "I060", "I074", "I093", "I097", "I098", "I100", "I101", "I104", "I105"):
        assert judged[claim]["verdict"] == "reproduced", judged[claim]["why"]
    assert judged["I134"]["ours"] == judged["I098"]["ours"]


def test_a_resolver_counts_only_if_it_has_each_transport_of_the_paper() -> None:
    some = queries(without=(("DoT", "r3"), ("DoH3", "r4")))
    counted = single_queries(frame(some)).collect()
    assert set(counted["resolver"]) == {f"r{number}" for number in range(RESOLVERS)} - {"r3"}
    assert set(counted["series"]) == {*PAPER_SERIES, "DoH3"}
    assert set(counted.filter(pl.col("series").is_in(["DoUDP", "DoTCP"]))["state"]) == {"cold"}
    none = queries(without=tuple(("DoQ", f"r{number}") for number in range(RESOLVERS)))
    assert verdicts(none)["I006"]["verdict"] == "not measured"


def test_what_was_not_captured_has_no_bytes_and_says_so() -> None:
    rows = [row | dict.fromkeys(SIZES_BY_PART.values()) for row in queries()]
    judged = verdicts(rows)
    assert judged["I093"]["verdict"] == "reproduced"
    assert judged["I052"]["verdict"] == "not measured"
    assert judged["I052"]["why"].startswith("No DoUDP handshake, client to resolver on ")


def test_pairs_are_drawn_by_both_of_their_clusters() -> None:
    first, second = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])  # of four hosts
    hosts = np.repeat(np.arange(4), 3)
    drawn = drawn_crossed(hosts, (first, second), resamples=4000)
    by_host = drawn.reshape(4000, 4, 3).sum(axis=2) / 3
    assert by_host.mean(axis=0) == pytest.approx(np.ones(4), abs=0.05)
    # A pair is drawn as often as the product of its clusters: with two clusters of each kind 0, 1, 2 or 4 times.
    assert set(np.unique(by_host)) == {0.0, 1.0, 2.0, 4.0}
    assert np.array_equal(by_host[:, 0] * by_host[:, 3], by_host[:, 1] * by_host[:, 2])
    assert np.array_equal(drawn, drawn_crossed(hosts, (first, second), resamples=4000))


def test_an_interval_contains_the_scatter_between_vantage_points_and_between_resolvers() -> None:
    noise = np.random.default_rng(1)
    rows = [
        {"campaign": "c", "round": round_, "host": f"v{v} r{r}", "link": f"v{v} r{r}", "page": "p", "series": "x",
         "value": 100.0 * v + r + noise.normal(0, 0.01)}
        for v in range(6) for r in range(10) for round_ in range(6)
    ]  # fmt: skip
    table = pl.DataFrame(rows).lazy()
    names = {row["link"]: 1.0 for row in rows}
    pairs = {name: (name.partition(" ")[0], name.partition(" ")[2]) for name in names}
    crossed = median("x")(Observed(table, rtts_ms=names, pairs=pairs)).interval
    by_round = median("x")(Observed(table, rtts_ms=names)).interval
    assert crossed is not None
    assert by_round is not None
    assert crossed[1] - crossed[0] > 200
    assert crossed[1] - crossed[0] > by_round[1] - by_round[0]


def test_cells_of_unequal_size_are_pooled_only_where_clusters_are_drawn() -> None:
    rows = [row for row in queries() if not (row["resolver"] == "r1" and row["round"] > 1)]
    assert verdicts(rows)["I093"]["verdict"] == "reproduced"


def test_a_claim_counts_by_the_first_study_that_judges_it() -> None:
    assert owners()["I006"] == "single-query"
    own = STUDIES["resolvers"].claims
    assert own is not None
    assert "I006" in own.checks


def test_the_committed_campaign_says_that_it_describes_a_box() -> None:
    dataset = Dataset.open(COMMITTED)
    assert dataset.caption.endswith(EMULATED)
    judged = report.check_claims(dataset)
    by_claim = {row["claim_id"]: row for row in judged.iter_rows(named=True)}
    assert by_claim["I006"]["verdict"] == "reproduced"
    assert by_claim["I091"]["verdict"] == "not reproduced"
    assert "183 ms in the paper" in by_claim["I091"]["cause"]
