"""Numbers of a figure's rows as parts of a sentence."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

import polars as pl

from crosslayer.figures.style import link_title


def differing(text: str, other: str) -> str:
    """Sentences of `other` that `text` does not contain, in the order of `other`; empty if there are none."""
    known, sentences = (re.split(r"(?<=\.) (?=[A-Z])", one) for one in (text, other))
    return " ".join(sentence for sentence in sentences if sentence not in known)


def row(frame: pl.DataFrame, **values: str) -> dict[str, float] | None:
    """The first row that has the given value in each named column.

    None if there is no such row, or if the frame lacks any of the columns.
    """
    known = {name: value for name, value in values.items() if name in frame.columns}
    rows = frame.filter(**known) if len(known) == len(values) else frame.clear()
    return rows.row(0, named=True) if rows.height else None


def with_interval(row: dict[str, float], unit: str, digits: int) -> str:
    """Text of a median, its interval and their unit.

    If both ends of the interval round to one number, and this number is not 0, median and ends have one more digit.
    """

    def formatted(name: str, digits: int) -> str:
        return f"{round(row[name], digits) + 0.0:.{digits}f}"  # + 0.0: without the sign of -0.0

    if row["low"] is None:
        return f"{formatted('median', digits)} {unit}"
    if formatted("low", digits) == formatted("high", digits) and round(row["low"], digits):
        digits += 1
    return f"{formatted('median', digits)} [{formatted('low', digits)}, {formatted('high', digits)}] {unit}"


def holds(row: dict[str, float], value: float, tolerance: float) -> bool:
    """Whether the interval, or the estimate if there is none, lies within a tolerance of a value."""
    low, high = (row["median"] if row[end] is None else row[end] for end in ("low", "high"))
    return value - tolerance <= low and high <= value + tolerance


def reach(values: pl.Series, digits: int) -> str:
    """Smallest and largest value, e.g. `1.0 to 1.4`; one number if both are equal."""
    low, high = (f"{round(value, digits) + 0.0:.{digits}f}" for value in (values.min(), values.max()))  # type: ignore[arg-type, operator]
    return low if low == high else f"{low} to {high}"


def extremes(cells: Sequence[Mapping[str, Any]], value: str, apart: str) -> dict[str, Mapping[str, Any]]:
    """Rows with the smallest and largest value on other links than `apart`, and with the largest on it.

    Parameters
    ----------
    cells
        A row for each cell, with the column `link`.
    value
        Column of the values.
    apart
        Name of the link whose values are far from those of the others.

    Returns
    -------
    dict
        Rows by name, for `added`. If only one of the two groups of links was measured, its smallest and largest value.
    """
    others, on_it = ([row for row in cells if (row["link"] == apart) == on] for on in (False, True))
    by_value = itemgetter(value)
    named = {"smallest": min(others or on_it, key=by_value), "largest": max(others or on_it, key=by_value)}
    if others and on_it:
        named[link_title(apart)] = max(on_it, key=by_value)
    return named


def added(values: Mapping[tuple[str, str], float], topic: str, name: str, apart: str, *, unit: str = "RTT") -> str:
    """Cost of transports as text, e.g. `1.0 to 1.1 RTT, 1.6 on DSL`, from numbers that `extremes` named."""
    ends = pl.Series([values[topic, f"{name}, {end}"] for end in ("smallest", "largest")])
    on_it = values.get((topic, f"{name}, {link_title(apart)}"))
    return f"{reach(ends, 1)} {unit}" + ("" if on_it is None else f", {on_it:.1f} on {link_title(apart)}")


def percent(value: float, digits: int) -> str:
    """A signed percentage without a possible line break."""
    return f"{value:+.{digits}f}\N{NO-BREAK SPACE}%".replace("-", "\N{MINUS SIGN}")
