"""Group the observations of frames of any size; only the requested columns are kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl

Frames = pl.LazyFrame | Sequence[pl.LazyFrame]
"""Observations in one frame or in several parts, e.g. one per link.

With parts, the key columns of only one part are in memory at a time.
"""


def gathered(
    frames: Frames, by: Sequence[str], columns: Sequence[str]
) -> Iterator[tuple[tuple[Any, ...], pl.DataFrame]]:
    """Yield the key and the requested columns of each group, in the order of the keys.

    Rows without a value in the first column are left out. Text columns become categories, and round numbers 32-bit
    integers. The order within a group is undefined.
    """
    kept: dict[tuple[Any, ...], list[pl.DataFrame]] = {}
    wanted = list(dict.fromkeys((*by, *columns)))
    own = list(dict.fromkeys(columns))
    with_key = not set(by).isdisjoint(columns)
    for part in [frames] if isinstance(frames, pl.LazyFrame) else frames:
        rows = part.filter(pl.col(columns[0]).is_not_null()).select(wanted)
        rows = rows.with_columns(pl.col(pl.String).cast(pl.Categorical), pl.col("^round$").cast(pl.Int32))
        frame = rows.collect(engine="streaming")
        if by:
            groups = frame.partition_by(by, as_dict=True, include_key=with_key)
        else:
            groups = {(): frame} if frame.height else {}
        del frame
        for key, group in groups.items():
            kept.setdefault(key, []).append(group.select(own) if with_key else group)
    for key in sorted(kept, key=lambda key: [(word is not None, word) for word in key]):
        parts = kept.pop(key)
        yield key, pl.concat(parts) if len(parts) > 1 else parts[0]


def schema_of(frames: Frames, by: Sequence[str]) -> dict[str, pl.DataType]:
    """Types of the key columns of the groups."""
    first = frames if isinstance(frames, pl.LazyFrame) else next(iter(frames), pl.LazyFrame())
    kinds = first.collect_schema()
    return {name: kinds.get(name, pl.String()) for name in by}
