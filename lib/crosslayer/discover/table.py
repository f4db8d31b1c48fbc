"""Show the support matrix in a terminal; write its rows, or objects of other dataclasses, to files; read such files."""

from __future__ import annotations

import csv
import io
import typing
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crosslayer.discover.errors import DiscoverError
from crosslayer.discover.support import Support
from crosslayer.dns import Protocol
from crosslayer.errors import CrosslayerError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

ENDINGS = (".parquet", ".csv")
"""Suffixes of the files that `write` supports."""

_MARKS = (
    ("session_ticket", "ticket"),
    ("early_data_offered", "0-RTT"),
    ("retry_received", "Retry"),
    ("address_token", "token"),
)
_HEADINGS = ("", "transport", "port", "TLS", "ALPN", "QUIC offered", "offers", "certificate")


def records(rows: Iterable[DataclassInstance]) -> list[dict[str, Any]]:
    """Rows as JSON objects."""
    return [
        {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(row).items()}
        for row in rows
    ]


def check_path(path: Path) -> None:
    """Verify that `write` can write to a path, before anything is probed; `DiscoverError` if not."""
    if path.suffix not in ENDINGS:
        raise DiscoverError(
            "is neither Parquet nor CSV", where=str(path), next_step=f"End the name with {' or '.join(ENDINGS)}."
        )
    if path.is_dir() or not path.parent.is_dir():
        raise DiscoverError("cannot be written", where=str(path), next_step="Name a file in a folder that exists.")


def write(
    rows: Sequence[DataclassInstance],
    path: Path,
    kind: type[DataclassInstance] = Support,
    name: str = "resolver_support",
) -> None:
    """Write rows of the dataclass `kind` atomically: as Parquet with a description of each column, or as CSV."""
    half = path.with_name(f"{path.name}.part")
    try:
        if path.suffix == ".csv":
            half.write_text(_csv(rows, kind), encoding="utf-8")
        else:
            _write_parquet(rows, half, kind, name)
        half.replace(path)
    except OSError as error:
        half.unlink(missing_ok=True)
        raise DiscoverError(
            f"cannot be written ({error.strerror})", where=str(path), next_step="Choose another file with --out."
        ) from error


def read(path: Path, error: type[CrosslayerError]) -> list[dict[str, Any]]:
    """Read the support matrix from a file of `write`. Each row has the first five columns of `Support`, and `alpn`.

    Raises
    ------
    CrosslayerError
        An instance of `error`, if the file cannot be read or does not contain a support matrix.
    """
    import polars as pl

    kinds = {"target": pl.String, "address": pl.String, "transport": pl.String, "port": pl.Int64}
    kinds |= {"supported": pl.Boolean, "alpn": pl.String}
    try:
        frame = pl.read_csv(path, infer_schema=False) if path.suffix == ".csv" else pl.read_parquet(path)
        if frame.schema.get("supported") == pl.String:
            frame = frame.with_columns(pl.col("supported").str.to_lowercase() == "true")
        rows = frame.select(pl.col(name).cast(kind) for name, kind in kinds.items())
    except (OSError, pl.exceptions.PolarsError) as fault:
        raise error(
            f"is no file of `crosslayer discover --out` ({type(fault).__name__})",
            where=str(path),
            next_step="Write it with `crosslayer discover --out FILE.parquet`.",
        ) from None
    known = pl.col("transport").is_in([str(protocol) for protocol in Protocol])
    if not rows.filter(~known | pl.any_horizontal(pl.exclude("alpn").is_null())).is_empty():
        raise error(
            "has a row without target, address, transport, port or support",
            where=str(path),
            next_step="Write it with `crosslayer discover --out FILE.parquet`.",
        )
    return rows.to_dicts()


def text(rows: list[Support]) -> str:
    """The support matrix as text: for each address, the supported transports and the ports with QUIC but no DNS."""
    lines: list[tuple[str, ...]] = [_HEADINGS]
    nothing: list[str] = []
    by_host: dict[tuple[str, str], list[Support]] = {}
    for row in rows:
        by_host.setdefault((row.target, row.address), []).append(row)
    for (target, address), of_host in by_host.items():
        name = target if target == address else f"{target} ({address})"
        shown = [row for row in of_host if row.supported or row.quic_versions]
        if not shown:
            nothing.append(name)
        for index, row in enumerate(shown):
            lines.append((name if index == 0 else "", *_cells(row)))
    table = aligned(lines) if len(lines) > 1 else []
    doq = {row.address for row in rows if row.supported and row.transport == Protocol.DOQ}
    answering = {row.address for row in rows if row.supported}
    table.append(
        f"{len(answering)} of {len({row.address for row in rows})} addresses answer DNS, {len(doq)} of them DoQ."
    )
    if nothing:
        table.append(f"Nothing at {', '.join(nothing)}.")
    return "\n".join(table)


def _cells(row: Support) -> tuple[str, ...]:
    marks = " ".join(mark for name, mark in _MARKS if getattr(row, name))
    known = (row.tls_version or "", row.alpn or "", " ".join(row.quic_versions), marks, row.certificate_subject or "")
    if row.supported:
        return (row.transport, str(row.port), *known)
    return (f"no {row.transport}", str(row.port), *known[:3], "", f"{row.error}")


def aligned(lines: list[tuple[str, ...]]) -> list[str]:
    """Lines of text with the cells in aligned columns; each column is as wide as its widest cell."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]


def _csv(rows: Sequence[DataclassInstance], kind: type[DataclassInstance]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, [column.name for column in fields(kind)], lineterminator="\n")
    writer.writeheader()
    for record in records(rows):
        writer.writerow({key: " ".join(value) if isinstance(value, list) else value for key, value in record.items()})
    return out.getvalue()


def _write_parquet(rows: Sequence[DataclassInstance], path: Path, kind: type[DataclassInstance], name: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {
        str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_(), tuple[str, ...]: pa.list_(pa.string())
    }  # fmt: skip
    hints = typing.get_type_hints(kind)
    columns = []
    for column in fields(kind):
        hint = hints[column.name]
        optional = type(None) in typing.get_args(hint)
        plain = typing.get_args(hint)[0] if optional else hint
        columns.append(pa.field(column.name, types[plain], nullable=optional, metadata=dict(column.metadata)))
    schema = pa.schema(columns, metadata={"table": name})
    pq.write_table(pa.Table.from_pylist(records(rows), schema=schema), path, compression="zstd")
