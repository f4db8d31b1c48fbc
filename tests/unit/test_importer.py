"""The importer: a database with exactly the harness's schema, its failed measurements included, becomes a dataset."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from crosslayer import figures, metrics, published, report
from crosslayer.campaign.dataset import Dataset
from crosslayer.campaign.errors import CampaignError
from crosslayer.links import load_profiles
from crosslayer.studies import STUDIES
from crosslayer.studies.coalescing.importer import duration_ms, import_database

# Column and declared type, as the harness creates its tables. SQLite knows no type `string`: it treats it as a number
# where the text looks like one, which the importer must survive.
SCHEMA: dict[str, dict[str, str]] = {
    "measurements": dict.fromkeys(("msm_id", "timestamp", "experiment_type", "error", "website"), "string"),
    "dns_metrics": dict.fromkeys(("msm_id", "metric", "is_warmup", "transport_protocol"), "string"),
    "web_performance_metrics": {"msm_id": "string"}
    | dict.fromkeys(
        (
            "connectEnd", "connectStart", "domComplete", "domContentLoadedEventEnd", "domContentLoadedEventStart",
            "domInteractive", "domainLookupEnd", "domainLookupStart",
        ),
        "double",
    )
    | dict.fromkeys(("duration", "encodedBodySize", "decodedBodySize", "transferSize"), "integer")
    | dict.fromkeys(
        (
            "fetchStart", "loadEventEnd", "loadEventStart", "requestStart", "responseEnd", "responseStart",
            "secureConnectionStart", "startTime", "firstPaint", "firstContentfulPaint",
        ),
        "double",
    )
    | {"nextHopProtocol": "string", "redirectStart": "double", "redirectEnd": "double", "redirectCount": "integer"}
    | {"timeOrigin": "datetime", "is_warmup": "integer", "domain_name": "string"},
    "lookups": {
        "msm_id": "string", "domain": "string", "elapsed": "numeric", "status": "string", "answer": "string",
        "is_warmup": "integer", "transport_protocol": "string",
    },
}  # fmt: skip

RTT_MS = {"fiber": 14.767147, "4g": 91.85231065904635}
TIMES = "from Jun 14 10:10:38.852 to Jun 14 10:10:38.855"
QUERY = "for [;www.localdomain.com.\tIN\t A]"


class Harness:
    """Writes a database as the harness does."""

    def __init__(self, path: Path, schema: Mapping[str, Mapping[str, str]] = SCHEMA) -> None:
        self.path = path
        self._count = 0
        with closing(self._connection()) as db:
            for table, columns in schema.items():
                key = ", PRIMARY KEY (msm_id)" if table == "measurements" else ""
                db.execute(
                    f"CREATE TABLE {table} ({', '.join(f'{name} {kind}' for name, kind in columns.items())}{key})"
                )

    def _connection(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, isolation_level=None)

    def insert(self, table: str, **values: Any) -> None:
        with closing(self._connection()) as db:
            names = ", ".join(values)
            db.execute(f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(values))})", list(values.values()))

    def measurement(self, link: str = "fiber", page: str = "www.example.org", *, error: str = "", **more: Any) -> str:
        """A row of `measurements` under a new identifier."""
        self._count += 1
        identifier = f"{self._count:08x}-0000-4000-8000-000000000000"
        timestamp = f"2022-06-{14 + self._count // 60:02}_10_{self._count % 60:02}_00"
        row = {"msm_id": identifier, "timestamp": timestamp, "experiment_type": link, "error": error, "website": page}
        self.insert("measurements", **(row | more))
        return identifier

    def lookup(
        self, identifier: str, protocol: str, elapsed_ms: float, *, status: str = "NOERROR", answer: str = ""
    ) -> None:
        self.insert(
            "lookups",
            msm_id=identifier,
            domain="www.localdomain.com.",
            elapsed=elapsed_ms,
            status=status,
            answer=answer or "www.localdomain.com.,3600,IN,A,10.0.0.2|",
            is_warmup=False,
            transport_protocol=protocol,
        )

    def metric(self, identifier: str, protocol: str, text: str) -> None:
        self.insert("dns_metrics", msm_id=identifier, metric=f"{text}\n", is_warmup=False, transport_protocol=protocol)

    def exchanges(self, identifier: str, rtt_ms: float, *, skip: str = "") -> None:
        """Three successful exchanges of 1, 2 and 3 RTTs, and what dnsproxy logs of them."""
        logs = {
            "DoQ": [
                f"metrics:DoQ QUIC handshake duration {TIMES}: {rtt_ms:.6f}ms",
                f"metrics:DoQ query duration {QUERY} {TIMES}: {rtt_ms * 1.01:.6f}ms",
                f"metrics:DoQ exchange duration {QUERY} {TIMES}: {rtt_ms * 2.01:.6f}ms",
            ],
            "DoH": [
                f"metrics:DoH query (and likely handshake) duration {QUERY} {TIMES}: {rtt_ms * 3:.6f}ms",
                f"metrics:DoH exchange duration {QUERY} {TIMES}: {rtt_ms * 3:.6f}ms",
            ],
            "DoUDP": [
                f"metrics:DoUDP UDP setup duration {TIMES.replace('from ', 'from')}: 85.7µs",
                f"metrics:DoUDP query duration {QUERY} {TIMES}: {rtt_ms:.6f}ms",
                f"metrics:DoUDP exchange duration {QUERY} {TIMES}: {rtt_ms:.6f}ms",
            ],
        }
        for protocol, factor in (("DoQ", 2.01), ("DoH", 3.0), ("DoUDP", 1.0)):
            if protocol != skip:
                for line in logs[protocol]:
                    self.metric(identifier, protocol, line)
                self.lookup(identifier, protocol, rtt_ms * factor)

    def load(self, identifier: str, warmup: int, rtt_ms: float, **changed: Any) -> None:
        connect = rtt_ms * (1.5 if warmup else 1.2)
        start = 0.6
        values: dict[str, Any] = {
            "connectStart": start,
            "connectEnd": start + connect,
            "secureConnectionStart": start + 0.5,
            "fetchStart": 0.4,
            "domainLookupStart": start,
            "domainLookupEnd": start,
            "requestStart": start + connect,
            "responseStart": start + connect + rtt_ms,
            "responseEnd": start + connect + rtt_ms + 1,
            "domInteractive": start + connect + rtt_ms + 30,
            "domContentLoadedEventStart": start + connect + rtt_ms + 31,
            "domContentLoadedEventEnd": start + connect + rtt_ms + 31,
            "domComplete": start + connect + rtt_ms + 40,
            "loadEventStart": start + connect + rtt_ms + 40,
            "loadEventEnd": start + connect + rtt_ms + 40,
            "duration": start + connect + rtt_ms + 40,
            "startTime": 0,
            "encodedBodySize": 650,
            "decodedBodySize": 1256,
            "transferSize": 950,
            "firstPaint": 70.5,
            "firstContentfulPaint": 70.5,
            "nextHopProtocol": "h3",
            "redirectStart": 0,
            "redirectEnd": 0,
            "redirectCount": 0,
            "timeOrigin": 1655201438852.3,
            "domain_name": "https://www.localdomain.com/",
        }
        self.insert("web_performance_metrics", msm_id=identifier, is_warmup=warmup, **(values | changed))

    def complete(self, link: str, page: str) -> str:
        """A measurement in which nothing failed."""
        identifier = self.measurement(link, page)
        self.exchanges(identifier, RTT_MS[link])
        self.load(identifier, 1, RTT_MS[link])
        self.load(identifier, 0, RTT_MS[link])
        return identifier


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return Harness(tmp_path / "web-performance.db")


def imported(harness: Harness) -> Dataset:
    return Dataset.open(import_database(harness.path, harness.path.parent / "dataset", load_profiles()))


def rows(dataset: Dataset, table: str, **where: Any) -> pl.DataFrame:
    return dataset.table(table).filter(**where).collect()


# What is good


def test_each_measurement_is_a_round_of_its_cell(harness: Harness) -> None:
    for _ in range(3):
        harness.complete("fiber", "www.example.org")
        harness.complete("4g", "www.example.org")
    harness.complete("4g", "www.wikipedia.org")
    dataset = imported(harness)
    assert dataset.rounds_per_cell == (1, 3)
    cells = dataset.table("page_loads").group_by("link", "page", "h3").agg(pl.col("round").sort()).collect()
    assert cells.height == 6
    assert set(cells["link"]) == {"fiber", "4g"}
    assert set(cells["page"]) == {"example.org", "wikipedia.org"}
    assert rows(dataset, "page_loads", link="fiber", h3="0-rtt")["round"].to_list() == [0, 1, 2]
    assert rows(dataset, "dns_exchanges", link="fiber").height == 9


def test_values_are_those_the_authors_analysed(harness: Harness) -> None:
    harness.complete("fiber", "www.example.org")
    dataset = imported(harness)
    rtt = RTT_MS["fiber"]
    [doq] = rows(dataset, "dns_exchanges", protocol="DoQ").to_dicts()
    assert (doq["handshake_ms"], doq["query_ms"], doq["total_ms"]) == pytest.approx((rtt, rtt * 1.01, rtt * 2.01))
    [udp] = rows(dataset, "dns_exchanges", protocol="DoUDP").to_dicts()
    assert (udp["handshake_ms"], udp["query_ms"], udp["total_ms"]) == pytest.approx((0.0, rtt, rtt))
    [doh] = rows(dataset, "dns_exchanges", protocol="DoH").to_dicts()
    assert (doh["handshake_ms"], doh["query_ms"], doh["total_ms"]) == (None, None, pytest.approx(rtt * 3))
    [cold] = rows(dataset, "page_loads", h3="1-rtt").to_dicts()
    assert cold["plt_ms"] == pytest.approx(0.6 + 2.5 * rtt + 40)
    assert cold["connect_ms"] - cold["connect_start_ms"] == pytest.approx(1.5 * rtt)
    assert (cold["transfer_bytes"], cold["coupling"], cold["condition"], cold["fcp_ms"]) == (
        950,
        "decoupled",
        "main",
        70.5,
    )
    assert json.loads(cold["navigation"])["timeOrigin"] == 1655201438852.3
    [early] = rows(dataset, "page_loads", h3="0-rtt").to_dicts()
    assert early["plt_ms"] == pytest.approx(0.6 + 2.2 * rtt + 40)
    # The harness has no word of the server, and none is invented.
    assert (early["early_data_accepted"], early["session_resumed"]) == (None, None)


def test_plt_of_a_combination_is_elapsed_plus_load_event_start(harness: Harness) -> None:
    harness.complete("4g", "www.instagram.com")
    dataset = imported(harness)
    combinations = metrics.combine(
        metrics.exchanges(dataset.table("dns_exchanges")), metrics.page_loads(dataset.table("page_loads"))
    ).collect()
    rtt = RTT_MS["4g"]
    actual = dict(combinations.select("combination", "plt_ms").iter_rows())
    assert set(actual) == set(metrics.COMBINATIONS)
    assert actual["DoQ + H3 0-RTT"] == pytest.approx(2.01 * rtt + 0.6 + 2.2 * rtt + 40)
    assert actual["DoUDP + H3 1-RTT"] == pytest.approx(rtt + 0.6 + 2.5 * rtt + 40)


def test_rounds_are_in_the_order_of_their_times(harness: Harness) -> None:
    later = harness.complete("fiber", "www.example.org")
    earlier = harness.measurement("fiber", timestamp="2022-06-01_00_00_00")
    harness.load(earlier, 1, 100.0)
    dataset = imported(harness)
    loads = rows(dataset, "page_loads", h3="1-rtt").sort("round")
    assert loads["plt_ms"].to_list() == pytest.approx([0.6 + 250 + 40, 0.6 + 2.5 * RTT_MS["fiber"] + 40])
    assert loads["started_s"][0] == 1654041600.0
    assert later != earlier


def test_description_says_where_it_comes_from_and_what_is_unknown(harness: Harness) -> None:
    harness.complete("4g", "www.example.org")
    harness.complete("fiber", "www.example.org")
    dataset = imported(harness)
    assert dataset.campaign.campaign == "imported-web-performance"
    assert dataset.campaign.links == ("fiber", "4g")
    assert dataset.campaign.started == "2022-06-14T10:01:00+00:00"
    assert dataset.campaign.notes[0].startswith("imported from the SQLite database")
    assert dataset.caption == (
        "Campaign imported-web-performance: 1 round of each link and page in real time, over links emulated by netem. "
        "Measured on an unknown machine."
    )
    nominal = dict(metrics.nominal_rtts(dataset.table("link_checks")).collect().iter_rows())
    assert nominal == pytest.approx(RTT_MS)


# What failed


def test_failed_loads_keep_the_harness_s_reason(harness: Harness) -> None:
    cold = harness.measurement(error="H3_web_performance_warmup: Message: timeout: Timed out receiving message")
    harness.exchanges(cold, 15.0)
    early = harness.measurement(error="H3_web_performance chrome error chrome-error://chromewebdata/")
    harness.exchanges(early, 15.0)
    harness.load(early, 1, 15.0)
    actual = rows(imported(harness), "page_loads").sort("round", "h3")
    assert actual.select("round", "h3", "plt_ms", "error").rows() == [
        (0, "0-rtt", None, "H3_web_performance_warmup: Message: timeout: Timed out receiving message"),
        (0, "1-rtt", None, "H3_web_performance_warmup: Message: timeout: Timed out receiving message"),
        (1, "0-rtt", None, "H3_web_performance chrome error chrome-error://chromewebdata/"),
        (1, "1-rtt", pytest.approx(78.1), None),
    ]


def test_failed_lookups_keep_status_and_cause(harness: Harness) -> None:
    identifier = harness.measurement(error="DNS: DoQ:; ")
    harness.exchanges(identifier, 15.0, skip="DoQ")
    harness.lookup(identifier, "DoQ", 10000.0, status="SERVFAIL", answer="failed to open QUIC session: timeout")
    harness.load(identifier, 1, 15.0)
    harness.load(identifier, 0, 15.0)
    dataset = imported(harness)
    [doq] = rows(dataset, "dns_exchanges", protocol="DoQ").to_dicts()
    assert doq["error"] == "SERVFAIL: failed to open QUIC session: timeout"
    assert (doq["total_ms"], doq["handshake_ms"], doq["query_ms"]) == (None, None, None)
    assert rows(dataset, "page_loads")["error"].to_list() == [None, None]


def test_a_lookup_without_a_row_has_failed(harness: Harness) -> None:
    identifier = harness.measurement()
    harness.exchanges(identifier, 15.0, skip="DoH")
    harness.load(identifier, 1, 15.0)
    dataset = imported(harness)
    assert rows(dataset, "dns_exchanges", protocol="DoH")["error"].to_list() == ["no lookup recorded"]
    assert rows(dataset, "page_loads", h3="0-rtt")["error"].to_list() == ["no load recorded"]


def test_a_repeated_lookup_counts_once_the_first(harness: Harness) -> None:
    """dig asks again after 5 s; dnsproxy then answers over the connection it has."""
    identifier = harness.measurement()
    harness.exchanges(identifier, 15.0)
    harness.metric(identifier, "DoQ", f"metrics:DoQ query duration {QUERY} {TIMES}: 1.5ms")
    harness.lookup(identifier, "DoQ", 1.6)
    [doq] = rows(imported(harness), "dns_exchanges", protocol="DoQ").to_dicts()
    assert (doq["total_ms"], doq["query_ms"]) == pytest.approx((30.15, 15.15))


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"loadEventStart": 0}, "no load event"),
        ({"loadEventStart": None}, "no load event"),
        ({"loadEventStart": "never"}, "no load event"),
        ({"connectEnd": None}, "the navigation timing is incomplete"),
        ({"nextHopProtocol": "h2"}, "loaded over h2 instead of HTTP/3"),
        ({"nextHopProtocol": ""}, "loaded over an unknown protocol instead of HTTP/3"),
    ],
)
def test_a_load_without_a_usable_timing_has_failed(harness: Harness, changed: dict[str, Any], reason: str) -> None:
    identifier = harness.measurement()
    harness.exchanges(identifier, 15.0)
    harness.load(identifier, 1, 15.0, **changed)
    harness.load(identifier, 0, 15.0)
    loads = rows(imported(harness), "page_loads")
    assert loads.filter(h3="1-rtt").select("plt_ms", "error").rows() == [(None, reason)]
    assert loads.filter(h3="0-rtt")["error"].to_list() == [None]


def test_no_paint_is_no_number(harness: Harness) -> None:
    identifier = harness.measurement()
    harness.load(identifier, 1, 15.0, firstContentfulPaint=0, firstPaint=0)
    [cold] = rows(imported(harness), "page_loads", h3="1-rtt").to_dicts()
    assert cold["error"] is None
    assert cold["fcp_ms"] is None


def test_loads_of_no_measurement_are_left_out_and_counted(harness: Harness) -> None:
    """The harness quits without a row in `measurements` where the session cache is missing."""
    harness.complete("fiber", "www.example.org")
    harness.load("ffffffff-0000-4000-8000-000000000000", 1, 15.0)
    dataset = imported(harness)
    assert rows(dataset, "page_loads").height == 2
    assert any(note.startswith("left out: 1 page loads") for note in dataset.campaign.notes)


def test_a_link_without_a_profile_has_no_rtt(harness: Harness) -> None:
    harness.complete("fiber", "www.example.org")
    identifier = harness.measurement("fixed")
    harness.exchanges(identifier, 40.0)
    dataset = imported(harness)
    assert rows(dataset, "dns_exchanges", link="fixed").height == 3
    assert rows(dataset, "link_checks")["link"].to_list() == ["fiber"]
    assert any("not known: fixed" in note for note in dataset.campaign.notes)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1.258171ms", 1.258171),
        ("985.1µs", 0.9851),
        ("985.1us", 0.9851),
        ("1.5s", 1500.0),
        ("1m2.5s", 62500.0),
        ("300ns", 0.0003),
        ("12", None),
        ("ms", None),
        ("1.5ms?", None),
        ("", None),
    ],
)
def test_go_durations(text: str, ms: float | None) -> None:
    assert duration_ms(text) == (None if ms is None else pytest.approx(ms))


# The same figures and claims


@pytest.mark.slow
def test_imported_data_go_through_the_same_figures_and_claims(harness: Harness) -> None:
    for link in RTT_MS:
        for page in ("www.example.org", "www.wikipedia.org", "www.instagram.com"):
            for _ in range(6):
                harness.complete(link, page)
    dataset = imported(harness)
    inputs = figures.Inputs.of(dataset, published.load())
    assert inputs.links == ("fiber", "4g")
    for figure in STUDIES[dataset.campaign.study].figures:
        assert figures.draw(figure, inputs, dataset.caption).vega_lite()
    judged = report.check_claims(dataset)
    by_claim = {row["claim_id"]: row for row in judged.iter_rows(named=True)}
    assert by_claim["T093"]["ours"] == pytest.approx(2.01)
    assert by_claim["T062"]["ours"] == pytest.approx(1.2)
    assert by_claim["T110"]["why"] == "This campaign has no link cable."
    assert by_claim["T079"]["verdict"] == "not measured"


# Bad input


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    path.write_text("not a database, but long enough to look like one " * 50)
    with pytest.raises(CampaignError, match=r"notes\.db: cannot be read as an SQLite database"):
        import_database(path, tmp_path / "out", {})
    with pytest.raises(CampaignError, match="there is no such file"):
        import_database(tmp_path / "none.db", tmp_path / "out", {})
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("table", SCHEMA)
def test_a_missing_table_is_named(tmp_path: Path, table: str) -> None:
    schema = {name: columns for name, columns in SCHEMA.items() if name != table}
    broken = Harness(tmp_path / "some.db", schema)
    with pytest.raises(CampaignError, match=f"has no table {table}"):
        import_database(broken.path, tmp_path / "out", {})


def test_missing_columns_are_named(tmp_path: Path) -> None:
    """An early version of the harness had no `website`."""
    columns = {name: kind for name, kind in SCHEMA["measurements"].items() if name != "website"}
    broken = Harness(tmp_path / "some.db", SCHEMA | {"measurements": columns})
    with pytest.raises(CampaignError, match="lacks the columns website of the table measurements"):
        import_database(broken.path, tmp_path / "out", {})


def test_an_empty_database(harness: Harness, tmp_path: Path) -> None:
    with pytest.raises(CampaignError, match="holds no measurement"):
        import_database(harness.path, tmp_path / "out", {})


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"timestamp": "yesterday"}, "have no time that can be read"),
        ({"timestamp": None}, "have no time that can be read"),
        ({"experiment_type": "../../etc"}, "not a plain name"),
        ({"experiment_type": None}, "not a plain name"),
        ({"website": ""}, "not a plain name"),
    ],
)
def test_measurements_that_cannot_be_placed_are_named(
    harness: Harness, tmp_path: Path, changed: dict[str, Any], fault: str
) -> None:
    harness.complete("fiber", "www.example.org")
    identifier = harness.measurement(**changed)
    with pytest.raises(CampaignError, match=f"1 measurements .*{fault}.*{identifier}"):
        import_database(harness.path, tmp_path / "out", {})


def test_merged_databases_with_the_same_measurement_twice(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "merged.db", SCHEMA)
    harness.complete("fiber", "www.example.org")
    with closing(sqlite3.connect(harness.path, isolation_level=None)) as db:
        db.execute("CREATE TABLE copy AS SELECT * FROM measurements")
        db.execute("INSERT INTO copy SELECT * FROM measurements")
        db.execute("DROP TABLE measurements")
        db.execute("ALTER TABLE copy RENAME TO measurements")
    with pytest.raises(CampaignError, match="an identifier that another one has too"):
        import_database(harness.path, tmp_path / "out", {})


def test_a_folder_in_use_is_left_alone(harness: Harness, tmp_path: Path) -> None:
    harness.complete("fiber", "www.example.org")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("precious")
    with pytest.raises(CampaignError, match="is not an empty folder"):
        import_database(harness.path, tmp_path / "out", load_profiles())
    assert (tmp_path / "out" / "mine").read_text() == "precious"


def test_the_database_is_not_changed(harness: Harness) -> None:
    harness.complete("fiber", "www.example.org")
    before = harness.path.read_bytes()
    imported(harness)
    assert harness.path.read_bytes() == before
    assert sorted(path.name for path in harness.path.parent.iterdir()) == ["dataset", "web-performance.db"]
