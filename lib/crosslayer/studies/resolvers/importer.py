"""Imports the raw data of IMC 2022 (Kosek et al.): single queries to public resolvers from six vantage points.

The authors' repository is kosekmi/2022-imc-dns-over-quic-web-performance; its README lists the archives and their
folders. The meaning of the columns comes from two files. One is the authors' notebook
`single.query.response.times.ipynb`, which reads the data file (`FILE`). The other is `model/dnsmeasurement.go` of the
authors' tool (mgranderath/dns-measurements):

- a row is a query on a new connection; durations are in nanoseconds, as in Go;
- `protocol` is `udp`, `tcp`, `tls`, `https` or `quic`, `vp` the region of the vantage point, `ip` the resolver;
- a query succeeded if it has an `r_code`, no `error`, and a `total_time` below 5 s;
- the handshake time of `quic` is `q_ui_c_handshake_duration`, that of `tcp` is `tcp_handshake_duration`, and that of
  `tls` and `https` is the sum of `tcp_handshake_duration` and `tls_handshake_duration`;
- `query_time` is the resolve time.
"""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Any

import polars as pl

from crosslayer.campaign.errors import CampaignError
from crosslayer.campaign.imported import UNKNOWN_HOST, check_new, ends_of, write_dataset
from crosslayer.campaign.tables import SCHEMA_VERSION, ResolverQueries
from crosslayer.vocabulary import CacheUse, Protocol, QueryState, Role

FILE = "single.query.response.times.parquet.gzip"
"""Name of the file of single queries in the archive `single.query.response.times.zip`."""

_STUDY = "resolvers"
_NAME = "google.com"
_PROTOCOLS = {
    "udp": Protocol.DOUDP,
    "tcp": Protocol.DOTCP,
    "tls": Protocol.DOT,
    "https": Protocol.DOH,
    "quic": Protocol.DOQ,
}
_VANTAGES = {
    "EU-CENTRAL-1": "eu",
    "US-WEST-1": "na",
    "AP-NORTHEAST-3": "as",
    "AF-SOUTH-1": "af",
    "SA-EAST-1": "sa",
    "AP-SOUTHEAST-3": "oc",
}
"""Short names of the vantage points by region of the cloud provider, as in the authors' notebook."""
_DURATIONS = (
    "query_time", "total_time", "q_ui_c_handshake_duration", "tcp_handshake_duration", "tls_handshake_duration",
)  # fmt: skip
_NEEDED = ("ip", "port", "protocol", "vp", "r_code", "error", *_DURATIONS)
_MOST_NS = 5e9
_EVERY_S = 7200
_FIRST_S = 1_650_240_000
"""Start of the paper's week, Unix time: 18 April 2022, 0:00 UTC."""
_EXTRACT = f"Extract the authors' single.query.response.times.zip and name the folder that has {FILE}."
_NOTES = (
    "imported from the raw data of IMC22 (Kosek et al., 2022), not measured by crosslayer",
    "state of encrypted transports is what the authors asked for, a resumed session: the file has no evidence of it",
    "rtt_ms is the time of the TCP connect of the same connection",
    "round counts the queries of a vantage point, resolver and transport, and position is always 0",
)
_NO_TIMES = (
    "the file has no times of day: started_s is the time at which the paper's schedule has the round, every two hours "
    "from 18 April 2022"
)


def import_folder(source: Path, folder: Path) -> Path:
    """Write a dataset of the study `resolvers` from the extracted archive; return `folder`.

    Parameters
    ----------
    source
        The folder of the authors' file, or the parent of this folder; it stays unchanged.
    folder
        The folder of the dataset; it must be empty or missing.

    Raises
    ------
    CampaignError
        If the file is missing or invalid; the error says what to do.
    """
    check_new(folder)
    file = _file(source)
    raw = _read(file)
    rows, left_out = _rows(raw, file)
    notes = [*_NOTES, *([] if "created" in raw.columns else [_NO_TIMES])]
    if left_out:
        notes.append(f"left out: {left_out} queries that filled the resolver's cache")
    campaign = "imported-imc22"
    write_dataset(folder, [(ResolverQueries, rows)], campaign, _description(campaign, rows, notes))
    return folder


def _file(source: Path) -> Path:
    candidates = (source / FILE, source / FILE.removesuffix(".parquet.gzip") / FILE)
    if (file := next((path for path in candidates if path.is_file()), None)) is None:
        raise CampaignError(f"has no file {FILE}", where=str(source), next_step=_EXTRACT)
    return file


def _read(file: Path) -> pl.DataFrame:
    try:
        raw = pl.read_parquet(file)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise CampaignError(
            f"cannot be read as a Parquet file ({error})", where=str(file), next_step=_EXTRACT
        ) from error
    if missing := [column for column in _NEEDED if column not in raw.columns]:
        raise CampaignError(f"lacks the columns {', '.join(missing)}", where=str(file), next_step=_EXTRACT)
    if raw.is_empty():
        raise CampaignError("has no query", where=str(file), next_step=_EXTRACT)
    numbers = ("port", *_DURATIONS)
    if bad := [column for column in numbers if not (raw.schema[column].is_numeric() or _empty(raw[column]))]:
        raise CampaignError(f"has no numbers in {', '.join(bad)}", where=str(file), next_step=_EXTRACT)
    for column, known in (("protocol", _PROTOCOLS), ("vp", _VANTAGES)):
        if unknown := sorted(set(raw[column].cast(pl.String).fill_null("nothing")) - set(known)):
            raise CampaignError(
                f"has {', '.join(unknown[:3])} in the column {column}",
                where=str(file),
                next_step=f"Only {', '.join(known)} are known.",
            )
    addresses = raw["ip"].cast(pl.String).fill_null("nothing").unique().sort()
    if wrong := [text for text in addresses if not _is_address(text)]:
        raise CampaignError(
            f"has {wrong[0]!r} in place of an IP address", where=str(file), next_step="Correct or delete these rows."
        )
    if negative := raw.select(pl.any_horizontal(pl.col(_DURATIONS).cast(pl.Float64) < 0).sum()).item():
        raise CampaignError(
            f"has {negative} rows with a negative duration", where=str(file), next_step="Correct or delete these rows."
        )
    return raw


def _empty(column: pl.Series) -> bool:
    return column.null_count() == len(column)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _rows(raw: pl.DataFrame, file: Path) -> tuple[pl.DataFrame, int]:
    """Rows of `resolver_queries`, and the number of queries that are left out because they only filled a cache."""
    measured = raw
    if "cache_warming" in raw.columns:
        measured = raw.filter(~pl.col("cache_warming").cast(pl.Boolean).fill_null(False))
    if measured.is_empty():
        raise CampaignError("has no query but those that filled a cache", where=str(file), next_step=_EXTRACT)
    if "created" in raw.columns:
        measured = measured.sort("created", maintain_order=True)
    ns = {name: pl.col(name).cast(pl.Float64).fill_nan(None) for name in _DURATIONS}
    tcp, tls = ns["tcp_handshake_duration"], ns["tls_handshake_duration"]
    handshake = (
        pl.when(pl.col("protocol") == "quic")
        .then(ns["q_ui_c_handshake_duration"])
        .when(pl.col("protocol") == "udp")
        .then(0.0)
        .when(pl.col("protocol") == "tcp")
        .then(tcp)
        .otherwise(tcp + tls)
    )
    reported = pl.col("error").cast(pl.String).fill_null("")
    error = (
        pl.when(reported != "")
        .then(reported)
        .when(pl.col("r_code").is_null())
        .then(pl.lit("no answer recorded"))
        .when(ns["total_time"].is_null())
        .then(pl.lit("no total time recorded"))
        .when(ns["total_time"] >= _MOST_NS)
        .then(pl.lit("took 5 s or more"))
        .when(handshake.is_null() | ns["query_time"].is_null())
        .then(pl.lit("a duration is missing"))
    )
    key = ["vp", "ip", "port", "protocol"]
    targets = measured.select("ip", "port", "protocol").unique().sort("ip", "protocol", "port").with_row_index("target")
    rows = measured.with_columns(
        error=error,
        handshake_ms=handshake / 1e6,
        query_ms=ns["query_time"] / 1e6,
        round=pl.int_range(pl.len()).over(key),
    ).join(targets, on=["port", "ip", "protocol"], maintain_order="left")
    good, encrypted = pl.col("error").is_null(), pl.col("protocol").is_in(["tls", "https", "quic"])
    started = pl.col("created").cast(pl.Float64) if "created" in raw.columns else _FIRST_S + _EVERY_S * pl.col("round")
    return rows.select(
        "round",
        "port",
        "target",
        "error",
        link=pl.col("vp").cast(pl.String).replace_strict(_VANTAGES),
        study=pl.lit(_STUDY),
        clock=pl.lit("wall"),
        host=pl.col("vp").cast(pl.String).replace_strict(_VANTAGES),
        page=pl.lit(_NAME),
        resolver="ip",
        operator="ip",
        address="ip",
        protocol=pl.col("protocol")
        .cast(pl.String)
        .replace_strict({name: str(one) for name, one in _PROTOCOLS.items()}),
        state=pl.when(encrypted).then(pl.lit(QueryState.RESUMED.value)).otherwise(pl.lit(QueryState.COLD.value)),
        cache=pl.lit(CacheUse.HIT.value),
        role=pl.lit(Role.MEASURED.value),
        position=pl.lit(0),
        started_s=started,
        handshake_ms=pl.when(good).then("handshake_ms"),
        query_ms=pl.when(good).then("query_ms"),
        total_ms=pl.when(good).then(pl.col("handshake_ms") + pl.col("query_ms")),
        rtt_ms=pl.when(pl.col("protocol").is_in(["tcp", "tls", "https"])).then(tcp / 1e6),
    ), raw.height - measured.height


def _description(campaign: str, rows: pl.DataFrame, notes: list[str]) -> dict[str, Any]:
    """Content of `campaign.json`; the measuring machine is unknown."""
    first, last = ends_of(rows["started_s"])
    return {
        "campaign": campaign,
        "schema_version": SCHEMA_VERSION,
        "plan": {
            "study": _STUDY,
            "links": [name for name in _VANTAGES.values() if name in set(rows["link"])],
            "pages": [_NAME],
            "rounds": rows["round"].n_unique(),
        },
        "started": first,
        "ended": last,
        "backend": "the paths themselves",
        "host": UNKNOWN_HOST,
        "notes": notes,
    }
