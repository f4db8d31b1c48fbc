"""Parts that several figures of the study share: the paper, the order of links and pages, and notes on missing data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import product
from typing import Any

import numpy as np
import polars as pl

from crosslayer import metrics
from crosslayer.figures import Figure, Inputs, cdf
from crosslayer.figures.style import link_title
from crosslayer.metrics.resampling import Reals
from crosslayer.studies.coalescing import LINKS, PAGES, TNSM24
from crosslayer.studies.coalescing import metrics as series

PAPER = TNSM24.name
OURS = "Dots and bars at CDF 0.5: our medians, 95 % intervals."
DOTTED = f"Thin dotted curves: {PAPER} as published. {OURS}"


def links_in(frame: pl.DataFrame) -> list[str]:
    """Links of the paper, then those that only the frame has."""
    return _paper_first(LINKS, frame["link"])


def pages_in(frame: pl.DataFrame) -> list[str]:
    """Pages of the paper, then those that only the frame has."""
    return _paper_first(PAGES, frame["page"])


def _paper_first(paper: Iterable[str], names: Iterable[str]) -> list[str]:
    return [*paper, *sorted(set(names) - set(paper))]


def observations(inputs: Inputs) -> metrics.Cells:
    """Observations of the study, by series and cell."""
    return series.observations(inputs.dns_exchanges, inputs.tcp_rtts, inputs.page_loads)


@lru_cache(maxsize=2)
def rtts_ms(inputs: Inputs) -> dict[str, float]:
    """Nominal RTT of each link, ms."""
    return dict(inputs.rtts.collect().iter_rows())


def cells_of(inputs: Inputs, name: str, links: Iterable[str]) -> Iterator[tuple[str, str, metrics.Numbers]]:
    """Link, page and observations of each cell of the series `name` on these links."""
    observed = observations(inputs)
    for link in links:
        for page in observed.pages(name, link):
            yield link, page, observed.numbers((name, link, page))


def pooled(inputs: Inputs, parts: Sequence[metrics.Numbers]) -> tuple[Reals, metrics.Rounds] | None:
    """Pooled observations of several cells, and their rounds; None without observations."""
    if not parts:
        return None
    values, rounds = (np.concatenate(of) for of in zip(*parts, strict=True))
    return values, observations(inputs).rounds_of(rounds)


def in_rtts(inputs: Inputs, panel: str, links: Iterable[str], named: Mapping[str, str]) -> Iterator[cdf.CurveGroup]:
    """Curves of a panel, in multiples of the RTT; links are pooled.

    `named` maps each name in the legend to the name of its series.
    """
    known = rtts_ms(inputs)
    for shown, name in named.items():
        cells = cells_of(inputs, name, [link for link in links if link in inputs.links])
        parts = [metrics.Numbers(times / known[link], rounds) for link, _, (times, rounds) in cells]
        if values := pooled(inputs, parts):
            yield cdf.CurveGroup(panel, shown, *values)


def measured(keys: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> pl.DataFrame:
    """Data frame with the column source (`measured`). Each row has its keys, then the result of `metrics.median`."""
    kinds = [pl.String()] * len(keys) + [pl.Int64()] * 2 + [pl.Float64()] * 3
    columns = dict(zip((*keys, "n", "rounds", "median", "low", "high"), kinds, strict=True))
    return pl.DataFrame(rows, columns, orient="row").with_columns(source=pl.lit("measured"))


def with_published(rows: pl.DataFrame) -> pl.DataFrame:
    """Measured and published medians side by side.

    Columns page, link and series (those that `rows` has), n, median, low, high, published.
    """
    key = [name for name in ("page", "link", "series") if name in rows.columns]
    ours, printed = (rows.filter(pl.col("source") == source) for source in ("measured", "published"))
    published = printed.select(*key, published="median")
    return ours.join(published, on=key, how="left", maintain_order="left").select(
        *key, "n", "median", "low", "high", "published"
    )


@lru_cache(maxsize=2)  # the same for every figure
def lacks(inputs: Inputs) -> str:
    """Sentences that name data of the study which the dataset lacks; empty if nothing is missing."""
    names = {f"{name} exchanges": f"{name} exchange" for name in ("DoUDP", "DoQ", "DoH")}
    names |= {f"H3 {name} loads": f"H3 {name} PLT" for name in ("1-RTT", "0-RTT")} | {"TCP RTTs": "TCP RTT"}
    there = observations(inputs).cells
    by_name = {label: {(link, page) for of, link, page in there if of == name} for label, name in names.items()}
    left_out = sorted({link for cells in by_name.values() for link, _ in cells} - set(inputs.links))
    asked = set(product(inputs.links, inputs.pages))
    something = {cell for cells in by_name.values() for cell in cells & asked}
    nothing = asked - something if something else set()
    missing = [
        *(link_title(link) for link in LINKS if link not in (*inputs.links, *left_out)),
        *(page for page in PAGES if page not in inputs.pages),
        *_cell_names(inputs, nothing),
    ]
    for name, cells in by_name.items():
        if not cells:
            missing.append(name)
        elif lacking := asked - nothing - cells:
            missing.append(f"{name} ({'; '.join(_cell_names(inputs, lacking))})")
    sentences = [
        f"Not in this campaign: {', '.join(missing)}." if missing else "",
        f"Left out, no RTT above 0 is known: {', '.join(map(link_title, left_out))}." if left_out else "",
    ]
    return " ".join(sentence for sentence in sentences if sentence)


def _cell_names(inputs: Inputs, cells: set[tuple[str, str]]) -> list[str]:
    """Cells as text. If all pages of a link are among the cells, the text has only the link."""
    names = []
    known = [page for page in _paper_first(PAGES, inputs.pages) if page in inputs.pages]
    for link in inputs.links:
        pages = [page for page in known if (link, page) in cells]
        whole = len(pages) == len(known)
        names += [link_title(link)] if whole else [f"{page} on {link_title(link)}" for page in pages]
    return names


figure = partial(Figure, lacks=lacks)
"""A figure of this study, with a note on data that the dataset lacks."""
