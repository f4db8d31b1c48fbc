"""Import of the raw data of TNSM24's own harness: converts its SQLite database to a dataset.

The schema is that of `chromium_measurement.py` in the authors' repository justus237/DoQ-H3-measurement (last revision
0e337a2, July 2022). The meaning of the values follows from its `run_measurement.sh`, from the dnsproxy that writes the
log (justus237/dnsproxy) and from the authors' analysis (justus237/DoQ-H3-analysis):

- a row of `measurements` is one round of a cell: `experiment_type` is the link, `website` the page;
- `lookups.elapsed` is the DNS exchange, ms, which the authors add to the browser's PLT;
- `dns_metrics.metric` is a log line with one duration in Go's format. For DoQ, the handshake and the query each have a
  line; for DoUDP, only the query has one. For DoH, the log does not separate the two ("query (and likely handshake)");
- `web_performance_metrics` is the navigation timing; `is_warmup` = 1 is the load of a fresh browser (H3 1-RTT), 0 the
  load of a second browser with the first one's session ticket (H3 0-RTT);
- `measurements.error` names the load that failed. A failed exchange has only its status and cause.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from crosslayer.campaign import tables
from crosslayer.campaign.errors import CampaignError
from crosslayer.campaign.imported import UNKNOWN_HOST, check_new, ends_of, write_dataset
from crosslayer.campaign.tables import SCHEMA_VERSION, DnsExchanges, LinkChecks, PageLoads, Table
from crosslayer.links import Profile

PROTOCOLS = ("DoQ", "DoH", "DoUDP")
"""Transports in the order in which the harness measured them, before both loads."""

_TIMINGS = PageLoads.sources(tables.NAVIGATION) | {"fcp_ms": "firstContentfulPaint"}
_NEEDED = [_TIMINGS[column.name] for column in PageLoads.columns if column.success and column.name in _TIMINGS]

_TEXT: dict[str, tuple[str, ...]] = {
    "measurements": ("msm_id", "timestamp", "experiment_type", "error", "website"),
    "dns_metrics": ("msm_id", "metric", "transport_protocol"),
    "web_performance_metrics": ("msm_id", "nextHopProtocol", "domain_name"),
    "lookups": ("msm_id", "domain", "status", "answer", "transport_protocol"),
}
_NUMBERS: dict[str, tuple[str, ...]] = {
    "measurements": (),
    "dns_metrics": ("is_warmup",),
    "web_performance_metrics": ("is_warmup", *_TIMINGS.values()),
    "lookups": ("elapsed", "is_warmup"),
}
"""Required numeric columns by table. All columns of a page load are also kept as JSON in the column `navigation`."""

_LOADS = (("1-rtt", 1.0, "H3_web_performance_warmup"), ("0-rtt", 0.0, "H3_web_performance"))
"""The two loads of a round: value of `h3`, `is_warmup`, and name in `measurements.error`.

If the first load fails, there is no second load. The importer searches `measurements.error` for the name of each load.
The name of the first load contains the name of the second. So an error of the first load counts for both loads.
"""

_NOTES = (
    "imported from the SQLite database of the harness of TNSM24 (Sengupta et al., 2024), not measured by crosslayer",
    "h3 is the condition asked for: that harness has no word of the server about resumption and early data",
    "the order of the conditions was the same in every round: DoQ, DoH, DoUDP, H3 1-RTT, H3 0-RTT",
    "times of day are the measuring machine's local time, read as UTC, and those of the round, not of each observation",
    "no TCP RTTs, no link checks: link_checks has the profile of each link and nothing measured",
)


def import_database(database: Path, folder: Path, profiles: Mapping[str, Profile]) -> Path:
    """Convert a database of the harness to a dataset in a folder that is empty or missing; returns `folder`.

    The database is opened read-only. `profiles` have the RTTs and rates that the harness emulated. `CampaignError`
    if the database cannot be imported or the folder is not empty; the error tells the user what to do next.
    """
    check_new(folder)
    frames = _read(database)
    rounds, nameless = _rounds(frames, database)
    campaign = f"imported-{database.stem}"
    tables: list[tuple[type[Table], pl.DataFrame]] = [
        (DnsExchanges, _exchanges(rounds, frames)),
        (PageLoads, _loads(rounds, frames["web_performance_metrics"])),
        (LinkChecks, _links(rounds, profiles)),
    ]
    notes = list(_NOTES)
    if nameless:
        notes.append(f"left out: {nameless} page loads without a row in measurements, whose link and page nobody knows")
    if unknown := sorted(set(rounds["link"]) - set(profiles)):
        notes.append(f"links without a profile, whose RTT is not known: {', '.join(unknown)}")
    write_dataset(folder, tables, campaign, _description(campaign, rounds, profiles, notes))
    return folder


# Reading


def _read(database: Path) -> dict[str, pl.DataFrame]:
    """The four tables by name, with rows in the order of writing. Columns in `_TEXT` are text, all others numbers."""
    if not database.is_file():
        raise CampaignError("there is no such file", where=str(database), next_step="Name the harness's database.")
    try:
        with contextlib.closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            return {table: _table(connection, table, database) for table in _TEXT}
    except sqlite3.Error as error:
        raise CampaignError(
            f"cannot be read as an SQLite database ({error})",
            where=str(database),
            next_step="Name the database the harness wrote, web-performance.db.",
        ) from error


def _table(connection: sqlite3.Connection, table: str, database: Path) -> pl.DataFrame:
    columns = [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]
    if missing := [column for column in (*_TEXT[table], *_NUMBERS[table]) if column not in columns]:
        fault = f"lacks the columns {', '.join(missing)} of the table {table}" if columns else f"has no table {table}"
        raise CampaignError(
            fault, where=str(database), next_step="Only databases of the harness's last version can be imported."
        )
    # An SQLite column accepts values of any type. In a numeric column, all other values become null, not 0.
    values = [
        f'CAST("{column}" AS TEXT)'
        if column in _TEXT[table]
        else f"""CASE WHEN typeof("{column}") IN ('integer', 'real') THEN CAST("{column}" AS REAL) END"""
        for column in columns
    ]
    rows = connection.execute(f'SELECT {", ".join(values)} FROM "{table}" ORDER BY rowid').fetchall()
    schema = {column: pl.String() if column in _TEXT[table] else pl.Float64() for column in columns}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _rounds(frames: Mapping[str, pl.DataFrame], database: Path) -> tuple[pl.DataFrame, int]:
    """Each measurement as a round of its cell, and the number of page loads that belong to no measurement.

    Columns msm_id, link, page, round, started_s, failure (text of `measurements.error`).
    """
    measurements = frames["measurements"]

    def refuse(rows: pl.DataFrame, fault: str) -> None:
        if rows.height:
            named = ", ".join(str(name) for name in rows["msm_id"].head(3))
            what = f"{rows.height} measurements {fault}, e.g. {named}"
            raise CampaignError(what, where=str(database), next_step="Correct or delete them.")

    if measurements.is_empty():
        raise CampaignError("holds no measurement", where=str(database), next_step="Name the harness's database.")
    started = pl.col("timestamp").str.to_datetime("%Y-%m-%d_%H_%M_%S", strict=False)
    known = measurements.with_columns(started=started)
    refuse(known.filter(pl.col("msm_id").is_duplicated()), "have an identifier that another one has too")
    refuse(known.filter(pl.col("started").is_null()), "have no time that can be read")
    # Links and pages become names of folders.
    plain = pl.all_horizontal(pl.col("experiment_type", "website").fill_null("").str.contains(r"^\w[\w.-]*$"))
    refuse(known.filter(~plain), "have a link or a website that is not a plain name")
    rounds = known.select(
        "msm_id",
        link=pl.col("experiment_type"),
        page=pl.col("website").str.strip_prefix("www."),
        started_s=pl.col("started").dt.epoch("ms") / 1000,
        failure=pl.col("error").fill_null("").str.strip_chars(" ;"),
    ).sort("started_s", "msm_id")
    numbered = rounds.with_columns(round=pl.int_range(pl.len()).over("link", "page"))
    nameless = frames["web_performance_metrics"].join(rounds, on="msm_id", how="anti").height
    return numbered, nameless


# DNS exchanges

_METRIC = re.compile(r"metrics:(\S+) (.+?) duration.*: (\S+)\s*$", re.DOTALL)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|s|[µμ]s|us|ns)")
_MS = {"h": 3_600_000.0, "m": 60_000.0, "s": 1000.0, "ms": 1.0, "µs": 1e-3, "μs": 1e-3, "us": 1e-3, "ns": 1e-6}


def duration_ms(text: str) -> float | None:
    """A duration as Go prints it (`1.258171ms`, `985.1µs`, `1m2.5s`), ms; None for anything else."""
    parts = _DURATION.findall(text)
    if not parts or "".join(map("".join, parts)) != text:
        return None
    return sum(float(value) * _MS[unit] for value, unit in parts)


def _phases(metrics: pl.DataFrame) -> pl.DataFrame:
    """Durations of handshake and query of each exchange: msm_id, protocol, handshake_ms, query_ms."""
    phases: dict[tuple[str, str], dict[str, float]] = {}
    lines = metrics.select("msm_id", "metric", "transport_protocol", "is_warmup")
    for identifier, line, protocol, warmup in lines.iter_rows():
        parts = _METRIC.search(line or "")
        took = duration_ms(parts[3]) if parts else None
        if not parts or parts[1] != protocol or took is None or warmup:
            continue
        # Only the first of each kind counts: a second one belongs to a retry on the existing connection.
        phases.setdefault((identifier, protocol), {}).setdefault(parts[2], took)
    rows = []
    for (identifier, protocol), kinds in phases.items():
        handshake = 0.0 if protocol == "DoUDP" and "query" in kinds else kinds.get("QUIC handshake")
        rows.append((identifier, protocol, handshake, kinds.get("query")))
    schema = {"msm_id": pl.String, "protocol": pl.String, "handshake_ms": pl.Float64, "query_ms": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _exchanges(rounds: pl.DataFrame, frames: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    lookups = (
        frames["lookups"]
        .filter(pl.col("is_warmup").fill_null(0.0) == 0.0)
        .unique(["msm_id", "transport_protocol"], keep="first", maintain_order=True)
        .select("msm_id", "elapsed", "status", "answer", protocol="transport_protocol")
    )
    order = pl.DataFrame({"protocol": PROTOCOLS}).with_columns(position=pl.int_range(pl.len()))
    asked = rounds.join(order, how="cross")
    answered = (pl.col("status") == "NOERROR") & (pl.col("elapsed") > 0)
    cause = pl.when(pl.col("answer").fill_null("") == "").then(pl.lit("no cause recorded")).otherwise("answer")
    unanswered = pl.format("{}: {}", pl.col("status").fill_null("no status"), cause)
    joined = asked.join(lookups, on=["msm_id", "protocol"], how="left").join(
        _phases(frames["dns_metrics"]), on=["msm_id", "protocol"], how="left"
    )
    # One phase without the other comes from an incomplete log.
    both = answered & pl.col("handshake_ms").is_not_null() & pl.col("query_ms").is_not_null()
    return joined.with_columns(
        total_ms=pl.when(answered).then("elapsed"),
        handshake_ms=pl.when(both).then("handshake_ms"),
        query_ms=pl.when(both).then("query_ms"),
        error=pl.when(answered.fill_null(False))
        .then(None)
        .when(pl.col("elapsed").is_null() & pl.col("status").is_null())
        .then(pl.lit("no lookup recorded"))
        .otherwise(unanswered),
        resumption=pl.lit("none"),
        role=pl.lit("measured"),
        condition=pl.lit("main"),
        study=pl.lit("coalescing"),
    )


# Page loads


def _loads(rounds: pl.DataFrame, timings: pl.DataFrame) -> pl.DataFrame:
    names = [column for column in timings.columns if column not in ("msm_id", "is_warmup")]
    first = timings.unique(["msm_id", "is_warmup"], keep="first", maintain_order=True).with_columns(
        navigation=pl.struct(names).struct.json_encode()
    )
    parts = []
    for index, (h3, warmup, name) in enumerate(_LOADS):
        rows = rounds.join(first.filter(pl.col("is_warmup") == warmup), on="msm_id", how="left")
        over = pl.col("nextHopProtocol").fill_null("")
        complete = pl.all_horizontal(pl.col(column).is_not_null() for column in _NEEDED)
        fault = (
            pl.when(pl.col("navigation").is_null())
            .then(pl.when(pl.col("failure").str.contains(name)).then("failure").otherwise(pl.lit("no load recorded")))
            .when(pl.col("loadEventStart").fill_null(0.0) <= 0)
            .then(pl.lit("no load event"))
            .when(~complete)
            .then(pl.lit("the navigation timing is incomplete"))
            .when(over != "h3")
            .then(pl.format("loaded over {} instead of HTTP/3", over.replace("", "an unknown protocol")))
        )
        rows = rows.with_columns(error=fault)
        good = pl.col("error").is_null()
        parts.append(
            rows.with_columns(
                *(pl.when(good).then(source).alias(column) for column, source in _TIMINGS.items()),
                h3=pl.lit(h3),
                position=pl.lit(len(PROTOCOLS) + index, pl.Int64),
                coupling=pl.lit("decoupled"),
                condition=pl.lit("main"),
                role=pl.lit("measured"),
                study=pl.lit("coalescing"),
            )
        )
    # The harness writes 0 if the browser has no paint entry.
    painted = pl.when(pl.col("fcp_ms") > 0).then("fcp_ms")
    return pl.concat(parts).with_columns(fcp_ms=painted)


# Writing


def _links(rounds: pl.DataFrame, profiles: Mapping[str, Profile]) -> pl.DataFrame:
    emulated = pl.DataFrame(
        [(name, profile.rtt_ms, profile.download_mbit, profile.upload_mbit) for name, profile in profiles.items()],
        schema={"link": pl.String}
        | dict.fromkeys(("nominal_rtt_ms", "nominal_down_mbit", "nominal_up_mbit"), pl.Float64),
        orient="row",
    )
    first = rounds.group_by("link").agg(when_s=pl.col("started_s").min()).sort("link")
    half_ms = pl.col("nominal_rtt_ms") / 2
    return first.join(emulated, on="link", maintain_order="left").with_columns(
        round=pl.lit(-1, pl.Int64),
        backend=pl.lit("netem"),
        configured_down_delay_ms=half_ms,
        configured_up_delay_ms=half_ms,
        verdict=pl.lit("not checked by this harness"),
    )


def _description(
    campaign: str, rounds: pl.DataFrame, profiles: Mapping[str, Profile], notes: list[str]
) -> dict[str, Any]:
    """Content of `campaign.json`; values that the database lacks are `unknown`."""
    first, last = ends_of(rounds["started_s"])
    known = [name for name in profiles if name in set(rounds["link"])]
    return {
        "campaign": campaign,
        "schema_version": SCHEMA_VERSION,
        "plan": {
            "study": "coalescing",
            "links": [*known, *sorted(set(rounds["link"]) - set(known))],
            "pages": sorted(set(rounds["page"])),
            "rounds": rounds.group_by("link", "page").len()["len"].max(),
        },
        "started": first,
        "ended": last,
        "backend": "netem",
        "host": UNKNOWN_HOST,
        "notes": notes,
    }
