"""The study `authoritative`: its pace is an open loop, its numbers follow the rows, its claims follow the numbers."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
import pytest

from charts import valid
from crosslayer import claims, dns, metrics, published
from crosslayer.campaign.errors import CampaignError
from crosslayer.campaign.plan import changed, check_names
from crosslayer.campaign.tables import TABLES
from crosslayer.figures import Inputs, draw
from crosslayer.metrics.resampling import ROUNDS_OF_MOMENTS
from crosslayer.pages import find_spec_dir, load_pages
from crosslayer.studies import STUDIES, sized
from crosslayer.studies.authoritative.claims import CLAIMS
from crosslayer.studies.authoritative.measure import NAME, ORIGIN, STREAMS, ZONE, check_pace, schedule, streams
from crosslayer.testbed.bind import BindError, find_named

RTT_MS = {"twente-local": 0.0, "twente-eu": 5.0, "twente-us": 83.9, "twente-au": 248.0}
VARIED = {"twente-us-jitter": 83.9, "twente-us-loss": 83.9}
PROCESSING_MS = {"DoUDP": 0.5, "DoTCP": 0.55, "DoT": 0.6, "DoH": 0.9, "DoH3": 1.0, "DoQ": 0.8}
ROUNDS = 16
PLAN = sized("authoritative", "quick")
ORDER = range(len(STREAMS) + 1)
FIGURES = {figure.name: figure for figure in STUDIES["authoritative"].figures}

# --- the load --------------------------------------------------------------------------------------------------------


def test_a_round_asks_as_often_as_the_plan_says() -> None:
    plan = changed(PLAN, {"options": {"queries": 3}})
    rows = schedule(plan, ORDER)
    for number, stream in enumerate(STREAMS):
        measured = [(client, count) for _, s, client, count in rows if s == number and count > 0]
        assert len(measured) == len(set(measured)) == 3 * (4 if stream.connection == "kept" else 1)
        assert [client for _, s, client, count in rows if s == number and count == 0] == [0]
    assert sum(stream is None for _, stream, _, _ in rows) == 1 + 3


def test_phases_are_even_and_a_client_keeps_its_interval() -> None:
    plan = changed(PLAN, {"options": {"queries": 3, "interval_ms": 2000}})
    rows = schedule(plan, reversed(ORDER))
    times = sorted(due.at_ms for due, _, _, number in rows if number == 1)
    assert np.allclose(np.diff(times), 2000 / len(times))
    for asker in {due.asker for due, *_ in rows}:
        own = [due.at_ms for due, *_ in rows if due.asker == asker]
        assert all(after - before == pytest.approx(2000) for before, after in pairwise(own))


def test_paper_has_6000_queries_of_each_kept_transport_and_link() -> None:
    plan = sized("authoritative", "paper")
    assert plan.rounds * plan.options.clients * plan.options.queries == 6000
    assert sized("authoritative", "quick").rounds >= ROUNDS_OF_MOMENTS


def test_dnsproxy_is_loaded_on_kept_connections_only() -> None:
    plan = changed(sized("authoritative", "smoke"), {"options": {"proxy": "dnsproxy"}})
    kept = [stream for stream in STREAMS if stream.connection == "kept"]
    assert list(streams(plan)) == kept
    assert {stream for _, stream, _, _ in schedule(plan, range(len(kept) + 1))} == {None, *range(len(kept))}
    check_names(plan, links=plan.links, pages=load_pages(find_spec_dir()), primes_alias=True)
    with pytest.raises(CampaignError, match="key 'proxy': is an unknown key"):
        changed(sized("coalescing", "smoke"), {"options": {"proxy": "dnsproxy"}})


@pytest.mark.parametrize("key", ["clients", "interval_ms", "queries"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True])
def test_a_pace_that_is_none_is_refused(key: str, value: object) -> None:
    with pytest.raises(CampaignError, match=key):
        changed(PLAN, {"options": {key: value}})


def test_a_rate_that_was_not_held_is_an_error_and_a_few_late_queries_are_none() -> None:
    due = dns.Due(0.0, 0)
    check_pace([dns.Asked(due, 0, late) for late in (0.1, 0.2, 40.0)], "link x, round 1")
    with pytest.raises(CampaignError, match=r"cannot hold its rate.* 30\.0 ms late") as caught:
        check_pace([dns.Asked(due, 0, late) for late in (0.1, 30.0, 40.0)], "link x, round 1")
    assert "Finished rounds are kept" in str(caught.value.next_step)


class Echo:
    """A server that answers with what it got, after a time, or never."""

    def __init__(self, delay_s: float, *, every: int = 1) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.address: tuple[str, int] = self.socket.getsockname()
        self._delay_s, self._every = delay_s, every
        self._timers: list[threading.Timer] = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        number = 0
        while True:
            wire, sender = self.socket.recvfrom(512)
            if not wire:
                return
            number += 1
            if number % self._every == 0:
                timer = threading.Timer(self._delay_s, self.socket.sendto, (wire, sender))
                self._timers.append(timer)
                timer.start()

    def close(self) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
            last.sendto(b"", self.address)
        self._thread.join()
        for timer in self._timers:
            timer.join()
        self.socket.close()


@pytest.fixture
def slow() -> Iterator[Echo]:
    server = Echo(0.3)
    yield server
    server.close()


def test_a_slow_answer_does_not_delay_the_next_query(slow: Echo) -> None:
    asker = dns.Asker(slow.address)
    heard: list[int] = []
    due = [dns.Due(20.0 * number, 0) for number in range(10)]
    asked = dns.ask_at_pace([asker], due, bytes(12), timeout_s=5, answered=heard.append)
    asker.close()
    assert [query.due for query in asked] == due
    # All have left before the first answer is there: what closes the loop would take ten times as long.
    assert asked[0].answered_ns is not None
    assert asked[-1].sent_ns < asked[0].answered_ns
    assert len(heard) == 10
    for query in asked:
        assert query.response_ms is not None
        assert query.response_ms >= 300
        assert query.send_delay_ms >= 0
    assert len({query.answer[:2] for query in asked}) == 10


def test_a_query_without_an_answer_is_waited_for_and_reported() -> None:
    server = Echo(0.0, every=2)
    askers = [dns.Asker(server.address), dns.Asker(server.address)]
    begun = time.monotonic()
    asked = dns.ask_at_pace(askers, [dns.Due(0, 0), dns.Due(10, 1)], bytes(12), timeout_s=0.2)
    assert time.monotonic() - begun >= 0.2
    for asker in askers:
        asker.close()
    server.close()
    assert [query.response_ms is None for query in asked] == [True, False]


def test_the_pace_follows_a_monotonic_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Echo(0.0)
    asker, unix_ns, looks = dns.Asker(server.address), time.time_ns, iter(range(10**9))
    monkeypatch.setattr(time, "time_ns", lambda: unix_ns() + (3600 * 10**9 if next(looks) > 1 else 0))
    asked = dns.ask_at_pace([asker], [dns.Due(10.0 * number, 0) for number in range(5)], bytes(12), timeout_s=5)
    asker.close()
    server.close()
    assert all(query.answer and query.send_delay_ms < 3600e3 / 2 for query in asked)


def test_the_name_has_the_length_that_makes_the_papers_sizes() -> None:
    query = dns.build_query(dns.Question(NAME), dns.Protocol.DOUDP, dns.ClientSettings())
    assert 14 + 20 + 8 + len(query.wire) == 99
    two_records = 2 * (2 + 2 + 2 + 4 + 2 + 4)
    assert ZONE.count("www IN A") == 2
    assert 14 + 20 + 8 + len(query.wire) + two_records == 131
    assert NAME.endswith(ORIGIN)


def test_a_missing_bind_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CROSSLAYER_NAMED", "/nonexistent/named")
    with pytest.raises(BindError, match="no BIND 9") as caught:
        find_named()
    assert "bind9" in caught.value.next_step


# --- numbers ---------------------------------------------------------------------------------------------------------


def frame(name: str, rows: list[dict[str, Any]]) -> pl.LazyFrame:
    return pl.LazyFrame(rows, schema=TABLES[name].polars_schema()).with_columns(host=pl.lit(""))


def queries(*, authority_ms: float = 0.3, noise_ms: float = 0.1) -> pl.LazyFrame:
    """A campaign in which every response takes one RTT, the transport's processing and BIND's time."""
    random = np.random.default_rng(1)
    rows = []
    for link, rtt in (RTT_MS | VARIED).items():
        for stream in STREAMS:
            protocol = stream.protocol.value
            trips = 1 if stream.connection == "kept" or stream.connection == "0-rtt" else 3
            for number in range(ROUNDS * 16):
                took = trips * rtt + PROCESSING_MS[protocol] + authority_ms + random.normal(0, noise_ms)
                rows.append(
                    {"campaign": "c", "round": number // 16, "link": link, "study": "authoritative"}
                    | {"protocol": protocol, "connection_mode": stream.connection, "client": 0, "number": number % 16}
                    | {
                        "role": "priming" if number % 16 == 0 else "measured",
                        "position": 0,
                        "started_s": 1.0,
                        "send_delay_ms": 0.1,
                    }
                    | {"response_ms": 1e3 if number % 16 == 0 else took, "authority_ms": authority_ms}
                    | {"query_ms": took, "handshake_ms": 0.0, "new_connection": stream.connection != "kept"}
                    | {"early_data_accepted": stream.connection == "0-rtt"}
                )
    return frame("paced_queries", rows)


def inputs(paced: pl.LazyFrame) -> Inputs:
    checks = [
        {"campaign": "c", "round": 0, "link": link, "nominal_rtt_ms": rtt} for link, rtt in (RTT_MS | VARIED).items()
    ]
    made = {name: frame(name, []) for name in ("dns_exchanges", "tcp_rtts", "page_loads")}
    return Inputs(
        **made,
        link_checks=frame("link_checks", checks),
        published=published.load(),
        links=tuple(RTT_MS)[1:],
        pages=(),
        paced_queries=paced,
    )


def test_means_and_variances_are_those_of_the_rows_within_their_intervals() -> None:
    random = np.random.default_rng(5)
    values = random.normal(248, 2, 640)
    rows = pl.LazyFrame(
        {"campaign": "c", "host": "", "round": [n // 20 for n in range(640)], "group": ["g"] * 640, "value": values}
    )
    for statistic, true, exact in (("mean", 248, values.mean()), ("variance", 4, values.var(ddof=1))):
        actual = metrics.moments(rows, "value", ["group"], statistic).row(0, named=True)
        assert (actual["n"], actual["rounds"]) == (640, 32)
        assert actual["value"] == pytest.approx(exact)
        assert actual["low"] < true < actual["high"]
        assert actual["high"] - actual["low"] < 0.35 * true
    few = metrics.moments(rows.filter(pl.col("round") < 5), "value", ["group"], "mean").row(0, named=True)
    assert few["low"] is None


def test_only_queries_that_were_what_they_were_meant_to_be_count() -> None:
    rows = queries().collect()
    spoilt = rows.with_columns(
        new_connection=pl.when(pl.col("round") == 0).then(~pl.col("new_connection")).otherwise("new_connection"),
        early_data_accepted=pl.when(pl.col("round") == 1).then(False).otherwise("early_data_accepted"),
        error=pl.when(pl.col("round") == 2).then(pl.lit("no answer")).otherwise("error"),
    ).lazy()
    # A kept connection that was lost and made anew counts, with what that took.
    for connection, lost in (("kept", {2}), ("new", {0, 2}), ("0-rtt", {1, 2})):
        actual = metrics.paced(spoilt, connection).collect()
        assert set(actual["round"]) == set(range(ROUNDS)) - lost
        assert set(actual["role"]) == {"measured"}
        assert set(actual["connection_mode"]) == {connection}


@pytest.mark.slow
def test_every_figure_draws_and_the_deviation_from_rtt_and_processing_is_nothing() -> None:
    of = inputs(queries())
    assert len(FIGURES) == 6
    for figure in FIGURES.values():
        drawing = draw(figure, of, "Campaign synthetic.")
        valid(drawing)
        assert drawing.rows.height
        if drawing.table is not None:
            assert drawing.table.height
    pace = FIGURES["paced-link"]
    verdict = pace.verdict(pace.data(of)) if pace.verdict else ""
    assert verdict.startswith("18 of 18 means")
    means = FIGURES["table1-means"].data(of)
    doq = means.filter(link="twente-au", protocol="DoQ", source="measured").row(0, named=True)
    assert doq["value"] == pytest.approx(248.8, abs=0.05)
    assert means.filter(link="twente-au", protocol="DoQ", source="published")["value"].to_list() == [248.51]
    shares = FIGURES["fig3-histograms"].data(of).group_by("link", "protocol").agg(pl.col("percent").sum())
    assert shares["percent"].to_list() == pytest.approx([100.0] * 24)


def test_a_transport_that_is_too_slow_is_reported() -> None:
    slow = pl.col("response_ms") + pl.when(pl.col("link") == "twente-eu", pl.col("protocol") == "DoT").then(
        3
    ).otherwise(0)
    pace = FIGURES["paced-link"]
    assert pace.verdict is not None
    verdict = pace.verdict(pace.data(inputs(queries().with_columns(response_ms=slow))))
    assert verdict.startswith("17 of 18 means")
    assert "DoT on the link EU deviates most from RTT plus processing: by +3.0" in verdict


def test_a_dataset_without_this_study_gives_figures_that_say_so() -> None:
    of = inputs(frame("paced_queries", []))
    for figure in FIGURES.values():
        valid(draw(figure, of, "Campaign synthetic."))


# --- claims ----------------------------------------------------------------------------------------------------------


def verdicts(paced: pl.LazyFrame) -> dict[str, dict[str, Any]]:
    class Paced:
        def table(self, name: str) -> pl.LazyFrame:
            return {"paced_queries": paced, "link_checks": inputs(paced).link_checks}[name]

    table = claims.check(Paced(), CLAIMS, published.load().claims, elsewhere={})
    return {row["claim_id"]: row for row in table.iter_rows(named=True)}


def test_every_result_of_the_paper_has_its_check() -> None:
    results = published.load().claims.filter(paper="BATENBURG22", kind="result")["claim_id"]
    assert set(results) == set(CLAIMS.checks)
    table = verdicts(queries())
    for identifier in CLAIMS.checks:
        assert table[identifier]["verdict"] != "not measured"
    assert table["T079"]["verdict"] == "not measured"


def test_checks_ask_for_what_the_claims_name() -> None:
    table = verdicts(queries(noise_ms=0.01))
    for row in (row for row in table.values() if row["paper"] == "BATENBURG22"):
        if row["section_or_figure"] == "Table 1":
            protocol, location = row["scope"].split("; ")
            link = {"Local": "twente-local", "EU": "twente-eu", "US": "twente-us", "AU": "twente-au"}[location]
            assert row["ours"] == pytest.approx(RTT_MS[link] + PROCESSING_MS[protocol], abs=0.01)
        if row["section_or_figure"] == "Table 2":
            assert row["ours"] == pytest.approx(0.0001, rel=0.5)


@pytest.mark.slow
def test_orderings_follow_the_numbers() -> None:
    table = verdicts(queries())
    assert table["B053"]["verdict"] == "reproduced"
    assert table["B062"]["verdict"] == "reproduced"
    assert table["B054"]["verdict"] == "not reproduced"
    assert "treated UDP port 53 differently" in table["B054"]["cause"]
    away = pl.col("link").is_in(["twente-eu", "twente-us", "twente-au"])
    faster = pl.when(away, pl.col("protocol") == "DoQ").then(pl.col("query_ms") - 0.7).otherwise("query_ms")
    table = verdicts(queries().with_columns(query_ms=faster))
    for identifier in ("B054", "B061"):
        assert table[identifier]["verdict"] == "reproduced"
    peak = pl.when(pl.col("link") == "twente-au", pl.col("protocol") == "DoT", pl.col("number") < 4)
    second = peak.then(252.3 + pl.col("query_ms") - 248).otherwise("query_ms")
    assert table["B058"]["verdict"] == "not reproduced"
    assert verdicts(queries().with_columns(query_ms=second))["B058"]["verdict"] == "reproduced"
    # One broad peak around 252 ms is no second one, whatever share of the queries takes as long.
    around = pl.col("query_ms") + pl.when(pl.col("link") == "twente-au", pl.col("protocol") == "DoT").then(3).otherwise(
        0
    )
    assert verdicts(queries().with_columns(query_ms=around))["B058"]["verdict"] == "not reproduced"


@pytest.mark.slow
def test_times_are_those_between_the_proxies_and_wait_for_a_connection() -> None:
    slow_client = verdicts(queries().with_columns(response_ms=pl.col("response_ms") + 5))
    assert slow_client["B021"]["ours"] == pytest.approx(PROCESSING_MS["DoUDP"], abs=0.05)
    anew = queries().with_columns(
        handshake_ms=pl.when(pl.col("number") == 1).then(30.0).otherwise(0.0), new_connection=pl.col("number") == 1
    )
    table = verdicts(anew)
    assert table["B026"]["ours"] == pytest.approx(5 + PROCESSING_MS["DoT"] + 30 / 15, abs=0.1)
    assert table["B042"]["ours"] == pytest.approx(30**2 * 14 / 15**2, rel=0.05)
    # Of a dnsproxy nothing but the client's time is known.
    alone = queries().with_columns(pl.lit(None, pl.Float64).alias("query_ms"), response_ms=pl.col("response_ms") + 1)
    assert verdicts(alone)["B021"]["ours"] == pytest.approx(PROCESSING_MS["DoUDP"] + 1, abs=0.05)


def test_few_rounds_give_no_verdict() -> None:
    table = verdicts(queries().filter(pl.col("round") < 2))
    assert table["B021"]["verdict"] == "not measured"
    assert "Only 2 rounds" in table["B021"]["why"]
