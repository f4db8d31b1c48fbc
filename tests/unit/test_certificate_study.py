"""The study of certificates: a search ends at the step, steps are told from growth, claims follow the numbers."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from charts import valid
from crosslayer import claims, published
from crosslayer.campaign.tables import TABLES
from crosslayer.dns import Protocol
from crosslayer.figures import Inputs, draw
from crosslayer.studies import STUDIES
from crosslayer.studies.certificates.conditions import CERTIFICATE, CERTIFICATE_AND_TOKEN, SEARCH
from crosslayer.studies.certificates.measure import SIZES, Brought, CertificateKind, CertificateSizes
from crosslayer.studies.certificates.metrics import steps
from crosslayer.studies.certificates.visits import Visit
from crosslayer.vocabulary import Sharing

STUDY = STUDIES["certificates"]
RTT_MS = {"fiber": 14.77, "dsl": 42.36, "4g": 91.85}
ROUNDS = 6
DOQ = CertificateKind(Protocol.DOQ, Brought.NEITHER)
STEP_AT = {"DoQ": 3300, "DoH3": 3300, "DoT": 14100, "DoH": 14100}


class Searching(CertificateSizes):
    """Its exchanges take a round-trip more from a size on, and grow a little before."""

    def __init__(self, step_at: int, failing: int = 0) -> None:
        self.step_at, self.failing = step_at, failing

    def _exchange(self, kind: CertificateKind, size: int, name: str) -> dict[str, Any]:
        error = "timeout" if size == self.failing else None
        return {"total_ms": 200 + size / 1000 + 100 * (size >= self.step_at), "error": error}


@pytest.mark.parametrize("step_at", [737, 1500, 3310, 14100, 22000])
def test_a_search_ends_between_the_sizes_around_the_step(step_at: int) -> None:
    result = list(Searching(step_at)._search(DOQ, "example.org", rtt_ms=100))
    asked = [row["server_certificate_bytes"] for row in result]
    assert len(set(asked)) == len(asked) <= 14
    below, above = (max(s for s in asked if s < step_at), min(s for s in asked if s >= step_at))
    assert above - below <= 16


def test_a_search_without_a_step_or_with_a_fault_ends_at_once() -> None:
    assert len(list(Searching(30000)._search(DOQ, "example.org", rtt_ms=100))) <= 14
    failed = list(Searching(3300, failing=SIZES[-1])._search(DOQ, "example.org", rtt_ms=100))
    assert [row["error"] for row in failed] == [None, "timeout"]


def exchange(
    link: str, number: int, protocol: str, condition: str, size: int, *, ticket: bool = False, overshoot: int = 0
) -> dict[str, Any]:
    """One that takes its round-trips, with a flight that is the certificate and what is around it."""
    quic = protocol in ("DoQ", "DoH3")
    late = size >= STEP_AT[protocol] and not (ticket or condition == CERTIFICATE_AND_TOKEN)
    base = (2 if quic else 3) + late + 1e-6 * size + 1e-5 * number
    limit = 3600 if quic else 14480
    flight = limit + overshoot - (STEP_AT[protocol] - size)
    packets = -(-flight // 1200)
    headers = 8 * packets if quic else 40 + 32 * packets
    return {
        "campaign": "c",
        "host": "",
        "round": number,
        "link": link,
        "study": "certificates",
        "page": "p",
        "protocol": protocol,
        "resumption": "ticket" if ticket else "none",
        "role": "measured",
        "condition": condition,
        "server_certificate_bytes": size,
        "total_ms": base * RTT_MS[link],
        "handshake_received_bytes": flight + headers,
        "handshake_received_packets": packets if quic else packets + 1,
        "first_flight_bytes": 1208 if quic else 40,
        "first_flight_packets": 1,
    }


def campaign(overshoot: int = 0) -> dict[str, pl.LazyFrame]:
    asked, visited = [], []
    for link in RTT_MS:
        for number in range(ROUNDS):
            for protocol, step in STEP_AT.items():
                for size in SIZES:
                    kinds = {(CERTIFICATE, False)}
                    kinds |= {(CERTIFICATE_AND_TOKEN, False)} if protocol in ("DoQ", "DoH3") else set()
                    kinds |= {(CERTIFICATE, True)} if size in (736, 14724, 22000) else set()
                    for condition, ticket in sorted(kinds):
                        asked.append(exchange(link, number, protocol, condition, size, ticket=ticket))
                for size in (736, step - 10, step + 2, 22000):
                    asked.append(exchange(link, number, protocol, SEARCH, size, overshoot=overshoot))
            for size in SIZES:
                for sharing in Sharing:
                    for ticket in (False, True):
                        for token in (False, True):
                            kind = Visit(sharing, ticket, token)
                            late = (size > 3300 and not ticket and not token) * (1 + (sharing is Sharing.SEPARATE))
                            at = (4 - (sharing is Sharing.SHARED) - ticket + late) * RTT_MS[link] + number * 1e-3
                            moments = ("resolved_ms", "response_start_ms", "document_ms", "load_complete_ms")
                            times = {name: at + 0.1 * index * RTT_MS[link] for index, name in enumerate(moments)}
                            row = {
                                "campaign": "c",
                                "host": "",
                                "round": number,
                                "link": link,
                                "study": "certificates",
                                "page": "p",
                            }
                            visited.append(row | {"role": "measured"} | kind.columns(size) | times)
    checks = [
        {"campaign": "c", "round": 0, "link": link, "nominal_rtt_ms": rtt, "nominal_down_mbit": 1e3}
        for link, rtt in RTT_MS.items()
    ]
    rows = {"dns_exchanges": asked, "resolved_loads": visited, "link_checks": checks}
    return {name: pl.LazyFrame(rows.get(name, []), schema=table.polars_schema()) for name, table in TABLES.items()}


class Tables:
    def __init__(self, frames: dict[str, pl.LazyFrame]) -> None:
        self.frames = frames

    def table(self, name: str) -> pl.LazyFrame:
        return self.frames[name]


def verdicts(frames: dict[str, pl.LazyFrame]) -> dict[str, str]:
    judged = claims.check(Tables(frames), STUDY.claims, published.load().claims, elsewhere={})
    return dict(judged.filter(pl.col("claim_id").str.starts_with("CERT")).select("claim_id", "verdict").iter_rows())


def test_a_step_is_measured_with_its_height_and_its_distance_from_the_limit() -> None:
    frames = campaign(overshoot=200)
    results = steps(frames["dns_exchanges"], frames["link_checks"]).filter(pl.col("round") == 0).collect()
    assert results.height == len(RTT_MS) * len(STEP_AT)
    for row in results.iter_rows(named=True):
        step, limit, datagram = (3300, 3600, 1280) if row["protocol"] in ("DoQ", "DoH3") else (14100, 14480, 1448)
        assert (row["below"], row["above"]) == (step - 10, step + 2)
        assert row["height_rtt"] == pytest.approx(1.0, abs=0.001)
        assert (row["limit_bytes"], row["flight_bytes"]) == (limit, limit + 190)
        assert row["distance"] == pytest.approx(190 / datagram)
        assert row["expected"] == step - 10 - 190


def test_a_search_that_failed_or_has_no_step_has_none() -> None:
    frames = campaign()
    checks = frames["link_checks"]
    failing = frames["dns_exchanges"].with_columns(
        error=pl.when(condition=SEARCH, server_certificate_bytes=22000).then(pl.lit("timeout"))
    )
    assert steps(failing, checks).collect().is_empty()
    flat = frames["dns_exchanges"].with_columns(total_ms=pl.lit(200.0))
    assert steps(flat, checks).collect().is_empty()


def test_claims_follow_the_numbers() -> None:
    judged = verdicts(campaign())
    assert {name for name, verdict in judged.items() if verdict == "not measured"} == {"CERT17", "CERT19", "CERT20"}
    assert set(judged.values()) == {"reproduced", "not measured"}
    assert verdicts(campaign(overshoot=2000))["CERT1"] == "not reproduced"


@pytest.mark.slow
def test_figures_are_drawn_and_say_what_a_certificate_costs() -> None:
    frames = campaign()
    of = Inputs(
        **{name: frames[name] for name in ("dns_exchanges", "tcp_rtts", "page_loads", "link_checks", "resolved_loads")},
        published=published.load(),
        links=tuple(RTT_MS),
        pages=("p",),
    )
    drawings = {figure.name: draw(figure, of, "Campaign synthetic.") for figure in STUDY.figures}
    for drawing in drawings.values():
        valid(drawing)
        assert drawing.table is not None
    texts = {name: drawing.verdict or "" for name, drawing in drawings.items()}
    assert "longer by 1.01 RTT over DoQ and by 1.01 RTT over DoT" in texts["certificate-sizes"]
    assert "2.00 RTT on two connections, 1.00 RTT on one" in texts["certificate-one-connection"]
