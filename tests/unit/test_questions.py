"""The open questions: verdicts follow the numbers, lines have their slope, and what is missing is said."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import dns.exception
import dns.rdata
import numpy as np
import polars as pl
import pytest

from charts import valid
from crosslayer import metrics, published
from crosslayer.campaign.tables import TABLES
from crosslayer.figures import Inputs, draw
from crosslayer.studies import STUDIES
from crosslayer.studies.https_records.records import KINDS
from crosslayer.studies.path_quality.visits import PAIRS
from crosslayer.testbed.ech import EchKey

RTT_MS = {"fiber": 14.77, "dsl": 42.36, "dsl-uplink-x4": 42.36, "4g": 91.85, "4g-loss-0": 91.85, "4g-loss-5": 91.85}
SWEPT = {"4g-rtt-20": 20.0, "4g-jitter-20": 91.85, "4g-queue-10bdp": 91.85}
RTT_MS |= SWEPT
UP_MBIT = {
    "fiber": 109.1,
    "dsl": 0.842152,
    "dsl-uplink-x4": 3.368608,
    "4g": 21.18,
    "4g-loss-0": 21.18,
    "4g-loss-5": 21.18,
    **dict.fromkeys(SWEPT, 21.18),
}
FIGURES = {figure.name: figure for study in STUDIES.values() for figure in study.figures}
QUESTIONS = {
    "serialisation": "dsl-serialisation",
    "early-data": "early-data-mechanism",
    "key-share": "key-share-cost",
    "address-token": "token-worth",
    "one-connection": "one-connection-worth",
    "server-stacks": "server-answer",
    "gateway": "gateway-worth",
    "loss": "loss-early-data",
    "path-quality": "path-early-data",
    "idle-connection": "idle-next-answer",
    "browsers": "browsers-compared",
    "https-records": "https-records",
}
ROUNDS = 30


def table(name: str, rows: list[dict[str, Any]]) -> pl.LazyFrame:
    return pl.LazyFrame(rows, schema=TABLES[name].polars_schema()).with_columns(host=pl.lit(""))


def inputs(links: list[str], **tables: list[dict[str, Any]]) -> Inputs:
    checks = [
        {"campaign": "c", "round": 0, "link": link, "nominal_rtt_ms": RTT_MS[link], "nominal_up_mbit": UP_MBIT[link]}
        | {"nominal_down_mbit": 10 * UP_MBIT[link]}
        for link in links
    ]
    made = {
        name: table(name, tables.get(name, []))
        for name in ("dns_exchanges", "tcp_rtts", "page_loads", "resolved_loads", "paced_queries", "idle_recoveries")
    }
    return Inputs(
        **made, link_checks=table("link_checks", checks), published=published.load(), links=tuple(links), pages=("p",)
    )


def row(study: str, link: str, number: int) -> dict[str, Any]:
    return {"campaign": "c", "host": "", "round": number, "link": link, "study": study, "page": "p"}


def doq(links: list[str], ms_per_ms: float, constant_ms: float = 0.0) -> Inputs:
    """DoQ queries that wait for a second flight of one padded datagram, and for a processing time of 0.6 ms."""
    noise = np.random.default_rng(1)
    rows = []
    for link in links:
        for datagram, padding in ((1200, 128), (1400, 128), (1200, 1024)):
            frames = (8 + datagram + 34) + (8 + 11 + 4 + 2 + 2 + 16 + padding + 34)
            wait = ms_per_ms * frames * 8 / UP_MBIT[link] / 1e3 + constant_ms + 0.6
            for number in range(ROUNDS):
                main = (datagram, padding) == (1200, 128)
                rows.append(
                    row("serialisation", link, number)
                    | {"protocol": "DoQ", "resumption": "none", "query_ms": RTT_MS[link] + wait + noise.normal(0, 0.2)}
                    | {"condition": "main" if main else f"datagram-{datagram}-padding-{padding}", "role": "measured"}
                    | {"handshake_sent_bytes": 2 * (datagram + 8), "handshake_sent_packets": 2}
                )
    return inputs(links, dns_exchanges=rows)


def loads(study: str, kinds: dict[tuple[str, str], float], rtts: dict[tuple[str, str], float]) -> Inputs:
    """Loads whose response starts after a constant and a multiple of the RTT, by (h3, condition)."""
    noise = np.random.default_rng(1)
    rows = []
    for link in ("fiber", "dsl", "4g"):
        for kind, constant in kinds.items():
            for number in range(ROUNDS):
                start = constant + rtts[kind] * RTT_MS[link] + noise.normal(0, 0.3)
                rows.append(
                    row(study, link, number)
                    | {
                        "h3": kind[0],
                        "condition": kind[1],
                        "role": "measured",
                        "early_data_accepted": kind[0] == "0-rtt",
                    }
                    | {"session_resumed": True, "connect_start_ms": 1.0, "connect_ms": start - 10}
                    | {"response_start_ms": start, "response_end_ms": start + 1, "plt_ms": start + 20}
                )
    return inputs(["fiber", "dsl", "4g"], page_loads=rows)


def answer(study: str, of: Inputs) -> str:
    figure = FIGURES[QUESTIONS[study]]
    drawing = draw(figure, of, "Campaign synthetic.")
    valid(drawing)
    assert drawing.table is not None
    assert drawing.verdict is not None
    return drawing.verdict


def test_a_line_has_the_slope_of_the_medians_within_its_interval() -> None:
    noise = np.random.default_rng(5)
    frame = pl.LazyFrame(
        [
            {
                "campaign": "c",
                "round": number,
                "host": "",
                "group": group,
                "x": float(group),
                "y": 2.0 * group + 1 + noise.normal(0, 0.5),
            }
            for group in range(5)
            for number in range(60)
        ]
    )
    actual = metrics.line(frame, "x", "y", ["group"])
    assert actual is not None
    slope, intercept = actual
    assert slope.interval is not None
    assert intercept.interval is not None
    assert slope.interval[0] < 2.0 < slope.interval[1]
    assert slope.interval[1] - slope.interval[0] < 0.3
    assert intercept.interval[0] < 1.0 < intercept.interval[1]


def test_a_line_needs_two_points() -> None:
    frame = pl.LazyFrame({"campaign": "c", "round": list(range(8)), "host": "", "g": 1, "x": [1.0] * 8, "y": [2.0] * 8})
    assert metrics.line(frame, "x", "y", ["g"]) is None


def test_serialisation_that_explains_the_delay_is_confirmed() -> None:
    frame = FIGURES["dsl-serialisation"].data(doq(["dsl", "dsl-uplink-x4"], 1.0))
    slope, intercept = (frame.filter(source=name).row(0, named=True) for name in ("slope", "intercept"))
    assert slope["median"] == pytest.approx(1.0, abs=0.02)
    assert slope["low"] < slope["median"] < slope["high"]
    assert intercept["median"] == pytest.approx(0.6, abs=0.1)
    assert answer("serialisation", doq(["dsl", "dsl-uplink-x4"], 1.0)).startswith("Serialisation explains")


def test_a_delay_that_does_not_go_with_the_rate_is_not_serialisation() -> None:
    verdict = answer("serialisation", doq(["dsl", "dsl-uplink-x4"], 0.0, constant_ms=15))
    assert verdict.startswith("Serialisation alone does not explain")


def test_early_data_saves_round_trips_where_it_is_answered_early() -> None:
    kinds = {("1-rtt", "main"): 6.0, ("1-rtt", "resumed"): 3.0, ("0-rtt", "late"): 3.0, ("0-rtt", "main"): 3.0}
    rtts = {("1-rtt", "main"): 2.0, ("1-rtt", "resumed"): 2.0, ("0-rtt", "late"): 2.0, ("0-rtt", "main"): 1.0}
    of = loads("early-data", kinds, rtts)
    frame = FIGURES["early-data-mechanism"].data(of)
    slopes = dict(frame.filter(source="slope", measure="start of the response").select("series", "median").iter_rows())
    assert slopes["H3 0-RTT"] == pytest.approx(1.0, abs=0.02)
    assert slopes["H3 0-RTT answered late"] == pytest.approx(0.0, abs=0.02)
    assert slopes["resumed, no early data"] == pytest.approx(0.0, abs=0.02)
    assert re.search(r" (1\.00|0\.99\d|1\.00\d) \[", answer("early-data", of))


@pytest.mark.parametrize(("waits", "whole"), [(1.0, True), (0.0, False)])
def test_a_token_spares_the_round_trip_that_a_load_without_it_waits(waits: float, whole: bool) -> None:
    kinds = {("1-rtt", "main"): 6.0, ("0-rtt", "main"): 3.0, ("0-rtt", "no-token"): 3.0}
    rtts = {("1-rtt", "main"): 2.0, ("0-rtt", "main"): 1.0, ("0-rtt", "no-token"): 1.0 + waits}
    of = loads("address-token", kinds, rtts)
    frame = FIGURES["token-worth"].data(of)
    worth = frame.filter(source="pooled", measure="document complete")["median"].to_list()
    assert worth == pytest.approx([waits], abs=0.02)
    verdict = answer("address-token", of)
    assert re.search(rf" {waits:.2f}\d? \[", verdict)
    assert ("The token saves about one round-trip on p" in verdict) == whole


def test_two_browsers_differ_by_what_they_were_made_to() -> None:
    rows = [
        row("browsers", link, number)
        | {"h3": h3, "condition": "main", "role": "measured", "coupling": "decoupled", "browser": browser}
        | {"early_data_accepted": h3 == "0-rtt", "session_resumed": h3 == "0-rtt"}
        | {"response_start_ms": rtts * RTT_MS[link] + number / 1e3, "plt_ms": (rtts + later) * RTT_MS[link]}
        for link in ("fiber", "dsl", "4g")
        for browser, later in (("chromium", 1.0), ("firefox", 1.5))
        for h3, rtts in (("1-rtt", 2.0), ("0-rtt", 1.0))
        for number in range(ROUNDS)
    ]
    verdict = answer("browsers", inputs(["fiber", "dsl", "4g"], page_loads=rows))
    assert "1.00 [1.00, 1.00] RTT in Chromium and 1.00 [1.00, 1.00] RTT in Firefox" in verdict.replace("1.000", "1.00")
    assert "Firefox's PLT minus Chromium's: 0.50 RTT with a full handshake, 0.50 RTT with early data" in verdict


def test_a_visit_is_a_lookup_and_a_load_of_the_same_round_in_the_same_browser() -> None:
    """4G: lookups of 1, 2 and 1 RTT; loads of 4 and 3 RTT in Chromium, of 8 and 6 in Firefox."""
    rtt = RTT_MS["4g"]
    exchanges = [
        row("browsers", "4g", number)
        | {
            "protocol": protocol,
            "resumption": resumption,
            "condition": "main",
            "role": "measured",
            "total_ms": rtts * rtt,
        }
        for protocol, resumption, rtts in (("DoUDP", "none", 1), ("DoQ", "none", 2), ("DoQ", "early-data", 1))
        for number in range(ROUNDS)
    ]
    loads = [
        row("browsers", "4g", number)
        | {"h3": h3, "condition": "main", "role": "measured", "coupling": "decoupled"}
        | {"browser": browser, "plt_ms": rtts * rtt}
        | {"early_data_accepted": h3 == "0-rtt", "session_resumed": h3 == "0-rtt"}
        for browser, h3, rtts in (
            ("chromium", "1-rtt", 4), ("chromium", "0-rtt", 3), ("firefox", "1-rtt", 8), ("firefox", "0-rtt", 6)
        )
        for number in range(ROUNDS)
    ]  # fmt: skip
    drawing = draw(FIGURES["browsers-visits"], inputs(["4g"], dns_exchanges=exchanges, page_loads=loads), "C.")
    valid(drawing)
    results = {
        (one["browser"], one["combination"]): round(one["increase_percent"], 6)
        for one in drawing.rows.iter_rows(named=True)
    }
    assert results == {
        ("Chromium", "DoQ + H3 1-RTT"): 20.0,
        ("Chromium", "DoUDP + H3 0-RTT"): -20.0,
        ("Chromium", "DoQ 0-RTT + H3 0-RTT"): -20.0,
        ("Firefox", "DoQ + H3 1-RTT"): round(100 / 9, 6),
        ("Firefox", "DoUDP + H3 0-RTT"): round(-200 / 9, 6),
        ("Firefox", "DoQ 0-RTT + H3 0-RTT"): round(-200 / 9, 6),
    }
    assert drawing.verdict is not None
    assert "-20.0 % [-20.0, -20.0] (p on 4G in Chromium)" in drawing.verdict


def test_a_key_share_costs_what_it_was_made_to() -> None:
    noise = np.random.default_rng(1)
    rows = [
        row("key-share", link, number)
        | {"protocol": protocol, "resumption": "none", "condition": condition, "role": "measured"}
        | {"handshake_ms": 20 + cost + noise.normal(0, 0.3), "total_ms": 40 + cost + noise.normal(0, 0.3)}
        | {"handshake_sent_bytes": 1288 * datagrams, "handshake_sent_packets": datagrams}
        | {"handshake_received_bytes": 1288, "handshake_received_packets": 1}
        | {f"query_{way}_{what}": 0 for way in ("sent", "received") for what in ("bytes", "packets")}
        for link in ("fiber", "dsl")
        for protocol in ("DoQ", "DoT")
        for condition, cost, datagrams in (("x25519", 0.0, 2), ("x25519mlkem768", 2.0, 3))
        for number in range(ROUNDS)
    ]
    of = inputs(["fiber", "dsl"], dns_exchanges=rows)
    frame = FIGURES["key-share-cost"].data(of)
    cost = frame.filter(source="measured", link="fiber", protocol="DoQ", measure="handshake").row(0, named=True)
    assert cost["median"] == pytest.approx(2.0, abs=0.2)
    assert cost["low"] < 2.0 < cost["high"]
    expected = frame.filter(source="expected", link="dsl", protocol="DoQ")["median"][0]
    assert expected == pytest.approx((1288 + 34) * 8 / 842.152, rel=1e-6)
    assert "additional bytes takes 0.1 to 12.6 ms" in answer("key-share", of)


def lookups(late_early_data: int) -> Inputs:
    """One lookup in six loses a packet at 5 %: repeated after a second, on a kept connection after 1.1 RTTs."""
    rtt = RTT_MS["4g-loss-0"]
    kinds = {
        ("DoUDP", "none", "main"): (1.0, 1000 / rtt),
        ("DoQ", "none", "main"): (2.0, 1000 / rtt),
        ("DoH3", "none", "main"): (2.0, 1000 / rtt),
        ("DoQ", "early-data", "main"): (1.0, 0.0),
        ("DoH3", "early-data", "main"): (1.0, 0.0),
        ("DoQ", "none", "kept"): (1.0, 1.1),
    }
    rows = [
        row("loss", link, number)
        | {"protocol": protocol, "resumption": resumption, "condition": condition, "role": "measured"}
        | {"session_resumed": True, "early_data_accepted": not late, "error": "came late" if late else None}
        | {"total_ms": rtt * (rtts + more * (link == "4g-loss-5" and number % 6 == 0) + 13 * late)}
        for link in ("4g-loss-0", "4g-loss-5")
        for (protocol, resumption, condition), (rtts, more) in kinds.items()
        for number in range(120)
        for late in [link == "4g-loss-5" and resumption == "early-data" and number < late_early_data]
    ]
    return inputs(["4g-loss-0", "4g-loss-5"], dns_exchanges=rows)


@pytest.mark.slow
def test_a_lost_first_flight_is_what_early_data_costs() -> None:
    frame = FIGURES["loss-lookups"].data(lookups(late_early_data=0))
    saved = frame.filter(source="full minus 0-RTT", series="DoQ", measure="P95", loss_percent=5.0).row(0, named=True)
    assert saved["median"] == pytest.approx(1 + 1000 / RTT_MS["4g"], abs=0.01)
    verdict = draw(FIGURES["loss-lookups"], lookups(0), "").verdict
    assert (
        "DoQ on a kept connection: at 0 and 5 % loss, the median is equal. At 0 % loss, the 99th percentile is equal; "
        in str(verdict)
    )
    assert "DoQ on a new connection without early data: at 0 and 5 % loss, the median is 1.0 RTT longer. " in str(
        verdict
    )
    frame = FIGURES["loss-lookups"].data(lookups(late_early_data=20))
    saved = frame.filter(source="full minus 0-RTT", series="DoQ", measure="P95", loss_percent=5.0).row(0, named=True)
    assert saved["n"] == 120
    assert saved["median"] == pytest.approx(2 + 1000 / RTT_MS["4g"] - 14, abs=0.01)
    verdict = draw(FIGURES["loss-early-data"], lookups(20), "").verdict
    assert "DoQ: the median is 1.0 RTT shorter at 0 and 5 %; the 95th percentile is 1.0 RTT shorter at 0 %;" in str(
        verdict
    )


def swept_lookups(queue_rtts: float) -> Inputs:
    """A full handshake takes 2 RTT and early data 1; in a full queue that much more or less."""
    rows = [
        row("path-quality", link, number)
        | {"protocol": protocol, "resumption": resumption, "condition": "main", "role": "measured"}
        | {"session_resumed": True, "early_data_accepted": True}
        | {"total_ms": RTT_MS[link] * (1.0 + (resumption == "none") * (queue_rtts if "queue" in link else 1.0))}
        for link in SWEPT
        for protocol in ("DoQ", "DoH3")
        for resumption in ("none", "early-data")
        for number in range(100)
    ]
    return inputs(list(SWEPT), dns_exchanges=rows)


def test_early_data_pays_where_the_whole_interval_does() -> None:
    frame = FIGURES["path-early-data"].data(swept_lookups(-0.5))
    assert list(frame["condition"].unique(maintain_order=True)) == ["RTT 20 ms", "jitter 20 ms", "loaded, 10 BDP"]
    assert set(frame["measure"]) == {"median", "P95", "P99"}
    assert frame.filter(condition="RTT 20 ms")["median"].to_list() == pytest.approx([1.0] * 6)
    verdict = str(draw(FIGURES["path-early-data"], swept_lookups(-0.5), "").verdict)
    assert "DoQ: -0.50 to 1.00 RTT at the median (interval not above 0: loaded, 10 BDP)" in verdict
    assert "Apart from these exceptions, the whole 95 % interval" in verdict
    verdict = str(draw(FIGURES["path-early-data"], swept_lookups(11.0), "").verdict)
    assert "11.00 RTT at the 99th percentile. On every path, the whole 95 % interval" in verdict


def shared_queries(blocked: int) -> Inputs:
    """Of a hundred queries over DoT and DoH so many wait for one that was lost; over DoQ and DoH3 that one."""
    rows = [
        row("path-quality", link, number)
        | {
            "page": None,
            "protocol": protocol,
            "connection_mode": "kept",
            "client": 0,
            "number": query,
            "role": "priming" if query == 0 else "measured",
        }
        | {"response_ms": RTT_MS[link] * (3.0 if link == "4g-loss-5" and 0 < query <= late else 1.0)}
        for link in ("4g-loss-0", "4g-loss-5")
        for protocol, late in (("DoT", blocked), ("DoH", blocked), ("DoQ", 1), ("DoH3", 1))
        for number in range(ROUNDS)
        for query in range(101)
    ]
    return inputs(["4g-loss-0", "4g-loss-5"], paced_queries=rows)


@pytest.mark.slow
def test_head_of_line_blocking_is_what_those_behind_wait_for() -> None:
    frame = FIGURES["path-shared"].data(shared_queries(8))
    late = {
        actual["series"]: actual
        for actual in frame.filter(measure="later than 1.5 RTT (%)", condition="5 % loss").iter_rows(named=True)
    }
    assert (late["DoT"]["median"], late["DoQ"]["median"]) == (8.0, 1.0)
    cost = frame.filter(source="in line", series="DoT", measure="P95", condition="5 % loss").row(0, named=True)
    assert cost["median"] == pytest.approx(2.0)
    verdict = str(draw(FIGURES["path-shared"], shared_queries(8), "").verdict)
    assert "at 0 % loss, 0.0 % over each of DoT, DoQ, DoH, DoH3; " in verdict
    assert "; at 5 % loss, 8.0 % over DoT, 1.0 % over DoQ" in verdict
    assert "at 5 % loss [95 % interval]: DoT minus DoQ 2.000 [2.000, 2.000] RTT, " in verdict


def coalesced(spared_rtts: float) -> Inputs:
    """Loads on one connection take that much less; of each kind the last lost its early data, which counts."""
    rows = [
        row("path-quality", link, number)
        | mode.columns
        | {"load_complete_ms": RTT_MS[link] * (6.0 - (position == 1) * spared_rtts), "session_resumed": True}
        | {"error": "no early data" if number == ROUNDS - 1 else None}
        for link in ("4g-loss-0", "4g-loss-5")
        for pair in PAIRS.values()
        for position, mode in enumerate(pair)
        for number in range(ROUNDS)
    ]
    return inputs(["4g-loss-0", "4g-loss-5"], resolved_loads=rows)


def test_coalescing_spares_what_two_connections_take_longer() -> None:
    frame = FIGURES["path-coalescing"].data(coalesced(1.0))
    assert frame["median"].to_list() == pytest.approx([1.0] * frame.height)
    assert set(frame["measure"]) == {"median", "P95"}  # too few loads for a 99th percentile
    assert set(frame["n"]) == {ROUNDS}
    assert "counts as slower in no case" in str(draw(FIGURES["path-coalescing"], coalesced(1.0), "").verdict)
    verdict = str(draw(FIGURES["path-coalescing"], coalesced(-1.0), "").verdict)
    assert re.search(r"counts as slower in (\d+) of \1 cases, at 0 % loss, 5 % loss \(whole", verdict)


def recoveries(beyond_rtt: float) -> Inputs:
    """DoQ, NAT mapping expired: 200 ms plus `beyond_rtt` with the stub, 2.5 s without its probe; else one RTT."""
    took = {"stub": 200 + beyond_rtt * RTT_MS["4g"], "stub-no-idle-probe": 2500.0}
    rows = [
        row("idle-connection", "4g", number)
        | {"protocol": "DoQ", "client": client, "path_event": path_event, "idle_s": idle_s, "asked": 1}
        | {"silence_ms": 200.0 if (client, path_event) == ("stub", "nat-expired") else 0.0}
        | {"answer_ms": took[client] if path_event == "nat-expired" else RTT_MS["4g"]}
        for client in ("stub", "stub-no-idle-probe")
        for path_event in ("none", "nat-expired")
        for idle_s in (2.0, 1800.0)
        for number in range(50)
    ]
    return inputs(["4g"], idle_recoveries=rows)


def test_the_time_after_idle_is_reported_with_its_limit() -> None:
    frame = FIGURES["idle-next-answer"].data(recoveries(1.1))
    assert frame["idle"].unique(maintain_order=True).drop_nulls().to_list() == ["2 s", "30 min"]
    beyond = frame.filter(measure="answer minus wait (RTT)")
    assert beyond.select("protocol", "client", "n").rows() == [("DoQ", "stub", 100)]
    assert beyond["median"].item() == pytest.approx(1.1)
    verdict = str(draw(FIGURES["idle-next-answer"], recoveries(1.1), "").verdict)
    assert "NAT mapping expired: DoQ 1.10 RTT." in verdict
    assert (
        "early data. Over QUIC, the largest 99th percentile is at most 1.5 RTT if the NAT mapping expired." in verdict
    )
    assert "Ranges of these medians, by client: stub without path probe 2.5 s." in verdict
    assert "no event, " not in verdict
    assert "valid answer" not in verdict
    assert "Over QUIC, the largest 99th percentile is more than 1.5 RTT if" in str(
        draw(FIGURES["idle-next-answer"], recoveries(1.7), "").verdict
    )


def test_a_client_without_an_answer_after_idle_is_reported() -> None:
    of = recoveries(1.1)
    broken = pl.when(pl.col("client") == "stub-no-idle-probe", pl.col("path_event") == "nat-expired")
    error = broken.then(pl.lit("no answer")).otherwise("error")
    of = replace(of, idle_recoveries=of.idle_recoveries.with_columns(error=error))
    verdict = str(draw(FIGURES["idle-next-answer"], of, "").verdict)
    assert verdict.endswith("without a valid answer: stub without path probe over DoQ (NAT mapping expired).")


@pytest.mark.parametrize("study", QUESTIONS)
def test_a_question_without_its_data_is_not_answered(study: str) -> None:
    assert answer(study, inputs(["fiber", "dsl"])).startswith("Not answered")


def https_records(worst_rtt: float) -> Inputs:
    """Broken records leave the page on HTTP/2; one keeps it from loading, and one costs this much more."""
    rows = []
    for kind, record in KINDS.items():
        for number in range(ROUNDS):
            over_h2 = (record.broken and kind != "hint-wrong") or kind == "none"
            start = (4.0 if over_h2 else 3.0) - (1.0 if record.h3 == "0-rtt" else 0.0)
            start += {"silence": worst_rtt, "ech-replaced": 1.0, "ech-gone": 2.0}.get(kind, 0.0)
            rows.append(
                row("https-records", "4g", number)
                | {"h3": record.h3, "condition": kind, "role": "measured", "early_data_accepted": record.h3 == "0-rtt"}
                | {"document_protocol": "h2" if over_h2 else "h3", "ech_accepted": record.ech == "own" and not over_h2}
                | {"response_start_ms": (start + 0.001 * (number % 3)) * RTT_MS["4g"]}
                | {"error": "failed in Chromium" if kind == "alias-loop" else None}
            )
    return inputs(["4g"], page_loads=rows)


def test_what_a_broken_record_costs_is_reported_and_what_ech_does() -> None:
    frame = FIGURES["https-records"].data(https_records(0.5))
    assert len(frame.filter(source="measured")) == len(KINDS)
    assert frame.filter(source="measured", condition="alias-loop")["loads"].to_list() == [ROUNDS]
    verdict = answer("https-records", https_records(0.5))
    assert (
        "is malformed or wrong, or its lookup fails (SERVFAIL, no answer). The page loads over HTTP/2 in 13 cases, "
        in verdict
    )
    assert "over HTTP/3 in 1 case (wrong address hint), not at all in 1 case (alias loop)." in verdict
    assert (
        "at most 0.50 RTT later than for a name without an HTTPS record. The largest delay is on 4G (no answer)."
        in verdict
    )
    assert re.search(r"First visit: 0\.00 RTT \(over HTTP/3\)", verdict)
    assert re.search(r"Second visit with early data: 0\.00 RTT \(over HTTP/3, early data\)", verdict)
    assert re.search(r"after the server replaced its ECH key: 1\.00 RTT", verdict)
    assert re.search(r"after the server disabled ECH: 2\.00 RTT", verdict)


def test_the_octets_of_a_record_match_its_name() -> None:
    host, ech = "www.example.org", EchKey.make("public.example.org").config_list
    assert sum(kind.broken for kind in KINDS.values()) >= 10
    records = {name: kind.rdata(host, ech) for name, kind in KINDS.items() if kind.rdata is not None}
    for name, octets in records.items():
        if not KINDS[name].broken:
            record = dns.rdata.from_wire("IN", "HTTPS", octets, 0, len(octets))
            assert record.to_wire() == octets
            assert ("ech" in name) == (5 in record.params)
    assert dns.rdata.from_wire("IN", "HTTPS", records["ech"], 0, len(records["ech"])).params[5].ech == ech
    # What dnspython takes of the others depends on its version; this it never could.
    with pytest.raises(dns.exception.FormError):
        dns.rdata.from_wire("IN", "HTTPS", records["cut-short"], 0, len(records["cut-short"]))
    assert (
        len(set(records.values())) == len(records) - 4
    )  # good ones, and those with the key, differ in what the server does
