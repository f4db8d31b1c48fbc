"""TNSM24 section IV-B: duration of a DNS exchange with each transport (Figs. 5, 6 and 7)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product

import polars as pl

from crosslayer import metrics
from crosslayer.figures import Inputs, cdf
from crosslayer.studies.coalescing.figures.common import (
    DOTTED,
    OURS,
    PAPER,
    cells_of,
    figure,
    in_rtts,
    pooled,
    rtts_ms,
)
from crosslayer.vocabulary import Protocol

SERIES = ("DoUDP", "DoQ", "DoH")
_EXCHANGES = {name: f"{name} exchange" for name in SERIES}
ROUND_TRIPS = {name: Protocol(name).transport.round_trips for name in SERIES}
"""Minimum number of round-trips of an exchange, by transport (TNSM24 section IV-B)."""

_TITLE = "DNS exchange (multiples of the RTT)"
FIG5 = (cdf.Panel("all links", _TITLE, SERIES),)
FIG6 = {"fiber": cdf.Panel("(a) Fiber", _TITLE, SERIES), "4g": cdf.Panel("(b) 4G", _TITLE, SERIES)}
OTHERS = {
    "cable": cdf.Panel("Cable", _TITLE, SERIES),
    "dsl": cdf.Panel("DSL", _TITLE, SERIES),
    "4g-medium": cdf.Panel("4G medium", _TITLE, SERIES),
}
PROCESSING = {
    link: cdf.Panel(title, "DNS exchange minus expected round-trips (ms)", SERIES)
    for link, title in {
        "fiber": "Fiber",
        "cable": "Cable",
        "dsl": "DSL",
        "4g": "4G",
        "4g-medium": "4G medium",
    }.items()
}

_LOOKUPS = ("DoUDP lookup", "DoQ query", "TCP RTT")
_LOOKUP_TITLE = "Duration (multiples of the RTT)"
FIG7 = (cdf.Panel("(a) All links", _LOOKUP_TITLE, _LOOKUPS), cdf.Panel("(b) Cable", _LOOKUP_TITLE, _LOOKUPS))
_FIG7_LINKS = {"all": "(a) All links", "cable": "(b) Cable"}


def fig5_data(inputs: Inputs) -> pl.DataFrame:
    """Data of Fig. 5: CDF of the DNS exchanges on all links together, measured and published."""
    [panel] = FIG5
    printed = inputs.published.curves.filter(figure="Fig. 5").with_columns(panel=pl.lit(panel.name))
    exchanges = in_rtts(inputs, panel.name, inputs.links, _EXCHANGES)
    return pl.concat([cdf.measured_groups(exchanges), cdf.published_curves(printed)])


def fig6_data(inputs: Inputs) -> pl.DataFrame:
    """Data of Fig. 6: CDF of DNS exchanges on fiber and on 4G, measured and published."""
    printed = inputs.published.curves.filter(pl.col("figure").is_in(["Fig. 6(a)", "Fig. 6(b)"]))
    panels = {link: panel.name for link, panel in FIG6.items()}
    return pl.concat(
        [
            _per_link(inputs, panels),
            cdf.published_curves(printed.with_columns(panel=pl.col("link").replace(panels))),
        ]
    )


def other_links_data(inputs: Inputs) -> pl.DataFrame:
    """CDF of DNS exchanges on cable, DSL and 4G medium, for which TNSM24 has no figure."""
    panels = {link: panel.name for link, panel in OTHERS.items()}
    known = inputs.published.quantiles.filter(
        pl.col("metric") == "exchange", pl.col("link").is_in(panels.keys())
    ).with_columns(panel=pl.col("link").replace(panels))
    return pl.concat([_per_link(inputs, panels), cdf.published_quantiles(known)])


def fig7_data(inputs: Inputs) -> pl.DataFrame:
    """Data of Fig. 7: CDF of DoUDP lookups, DoQ queries and TCP RTTs, on all links together and on cable."""
    series = dict(zip(_LOOKUPS, ("DoUDP exchange", "DoQ query", "TCP RTT"), strict=True))
    panels = {"all": inputs.links, "cable": ("cable",)}
    lookups = (group for panel, links in panels.items() for group in in_rtts(inputs, _FIG7_LINKS[panel], links, series))
    points = inputs.published.points.filter(pl.col("figure").is_in(["Fig. 7(a)", "Fig. 7(b)"]))
    return pl.concat(
        [
            cdf.measured_groups(lookups),
            cdf.published_points(points.with_columns(panel=pl.col("link").replace(_FIG7_LINKS))),
        ]
    )


def processing_data(inputs: Inputs) -> pl.DataFrame:
    """CDF of the processing delay of DNS exchanges, ms.

    It is the duration of an exchange minus the time that its minimum number of round-trips takes.
    """
    panels = {link: panel.name for link, panel in PROCESSING.items()}
    known = inputs.published.quantiles.filter(
        pl.col("metric") == "exchange minus expected round-trips", pl.col("link").is_in(panels.keys())
    ).with_columns(panel=pl.col("link").replace(panels))
    return pl.concat([cdf.measured_groups(_excesses(inputs, panels), points=120), cdf.published_quantiles(known)])


def _excesses(inputs: Inputs, panels: dict[str, str]) -> Iterator[cdf.CurveGroup]:
    for link, (shown, name) in product((link for link in inputs.links if link in panels), _EXCHANGES.items()):
        least = rtts_ms(inputs)[link] * ROUND_TRIPS[shown]
        cells = cells_of(inputs, name, [link])
        if values := pooled(inputs, [metrics.Numbers(times - least, rounds) for _, _, (times, rounds) in cells]):
            yield cdf.CurveGroup(panels[link], shown, *values)


def _per_link(inputs: Inputs, panels: dict[str, str]) -> pl.DataFrame:
    """CDF of the DNS exchanges on each link in `panels`."""
    return cdf.measured_groups(
        group for link, panel in panels.items() for group in in_rtts(inputs, panel, [link], _EXCHANGES)
    )


_figure = partial(figure, notebook="dns_overhead")
FIGURES = (
    _figure(
        name="fig05-dns-exchange",
        title="DNS exchange durations over all links",
        paper_figure="Fig. 5",
        caption="CDF of DNS exchanges (handshake and query on a new connection) in multiples of the link's RTT, all "
        "links together.",
        note=DOTTED,
        data=fig5_data,
        chart=partial(cdf.chart, panels=FIG5, height=190),
        table=cdf.table,
    ),
    _figure(
        name="fig06-dns-exchange-fiber-4g",
        title="DNS exchange durations on fiber and 4G",
        paper_figure="Fig. 6",
        caption="CDF of DNS exchanges in multiples of the link's RTT on (a) fiber and (b) 4G.",
        note=DOTTED,
        data=fig6_data,
        chart=partial(cdf.chart, panels=tuple(FIG6.values()), height=150),
        table=cdf.table,
    ),
    _figure(
        name="dns-exchange-other-links",
        title="DNS exchange durations on cable, DSL and 4G medium",
        caption="CDF of DNS exchanges in multiples of the link's RTT on cable, DSL and 4G medium. The authors of "
        f"{PAPER} drew these figures but did not publish them.",
        note=f"Thin dotted curves: quantiles of the authors' files. {OURS}",
        data=other_links_data,
        chart=partial(cdf.chart, panels=tuple(OTHERS.values()), height=130),
        table=cdf.table,
    ),
    _figure(
        name="fig07-queries-and-tcp-rtt",
        title="DoUDP lookup, DoQ query and TCP RTT",
        paper_figure="Fig. 7",
        caption="CDF of single round-trips in multiples of the link's RTT, (a) over all links and (b) on cable. The "
        "round-trips are a DoUDP lookup, a DoQ query without its handshake, and a TCP connect.",
        note=f"Diamonds: values printed in {PAPER}. {OURS}",
        data=fig7_data,
        chart=partial(cdf.chart, panels=FIG7, height=150),
        table=cdf.table,
    ),
    _figure(
        name="processing-delay",
        title="DNS exchange minus its round-trips",
        caption="Duration of a DNS exchange minus the time of its minimum number of round-trips (DoUDP 1, DoQ 2, DoH "
        "3), in ms. What remains is processing, serialisation and queueing. The authors of "
        f"{PAPER} drew this figure but did not publish it.",
        note=f"Thin dotted curves: quantiles of the authors' files. {OURS}",
        data=processing_data,
        chart=partial(cdf.chart, panels=tuple(PROCESSING.values()), height=105),
        table=cdf.table,
    ),
)
