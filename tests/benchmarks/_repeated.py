"""Writes a campaign as it would be with more rounds: those of another one again and again, their durations jittered.

    python -m tests.benchmarks._repeated SOURCE FOLDER TIMES

Left out are what is large and no figure reads: the table `resources`, `navigation` and the samples of each link check.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from crosslayer.campaign.tables import TABLES

TABLES_KEPT = ("dns_exchanges", "tcp_rtts", "page_loads", "link_checks")
AT_ONCE = 64
"""Repetitions in one row group: some 10,000 rows, as `crosslayer export` writes them."""
JITTER = 0.02
_LEFT_OUT = ("navigation", "rtt_samples_ms")


def write(source: Path, folder: Path, times: int) -> None:
    """Rounds count on; every duration of a row is longer or shorter by the same normal factor."""
    campaign = json.loads((source / "campaign.json").read_text(encoding="utf-8"))
    rounds = campaign["plan"]["rounds"]
    draw = np.random.default_rng(1)
    rows: dict[str, int] = {}
    for name in TABLES_KEPT:
        for path in sorted((source / name).glob("link=*/*.parquet")):
            schema = TABLES[name].arrow_schema()
            table = pq.read_table(path, partitioning=None)
            here = {f.name: table[f.name] for f in schema if f.name in table.column_names and f.name not in _LEFT_OUT}
            whole = pa.table(
                [here.get(field.name, pa.nulls(table.num_rows, field.type)) for field in schema], schema=schema
            )
            part = folder / name / path.parent.name / "part-0.parquet"
            part.parent.mkdir(parents=True)
            with pq.ParquetWriter(part, schema, compression="zstd") as writer:
                for first in range(0, times, AT_ONCE):
                    writer.write_table(_repeated(whole, range(first, min(first + AT_ONCE, times)), rounds, draw))
            rows[name] = rows.get(name, 0) + table.num_rows * times
    campaign["plan"]["rounds"] = rounds * times
    campaign |= {"rows": rows, "notes": [f"each round {times} times, with jitter: not measured"]}
    (folder / "campaign.json").write_text(json.dumps(campaign, indent=1), encoding="utf-8")


def _repeated(table: pa.Table, numbers: range, rounds: int, draw: np.random.Generator) -> pa.Table:
    results = pa.concat_tables([table] * len(numbers)).combine_chunks()
    number = np.repeat(np.array(numbers), table.num_rows)
    factor = 1 + JITTER * np.clip(draw.standard_normal(results.num_rows), -5, 5)
    for at, field in enumerate(results.schema):
        column = results.column(at)
        if field.name == "round":
            changed = pc.add(column, pa.array(rounds * number))
        elif field.type == pa.float64() and field.name.endswith("_ms") and "nominal" not in field.name:
            changed = pc.round(pc.multiply(column, pa.array(factor)), 3)
        else:
            continue
        results = results.set_column(at, field, changed)
    return results


if __name__ == "__main__":
    write(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
