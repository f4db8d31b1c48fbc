"""What the checks compare, by name: each function gives a statistic of a campaign, to be asked for when it is needed.

`duration` is a quantile in multiples of the RTT, `plt` one in ms, `increase` one relative to the baseline, `cost` a
difference within the rounds; the rest combines these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise, product

import numpy as np

from crosslayer.claims import shapes
from crosslayer.claims.observed import LINKS, PAGES, Observed
from crosslayer.claims.tolerances import IN_RTTS, MATCHES_PERCENT, TAIL_RATIO
from crosslayer.metrics.combinations import BASELINE
from crosslayer.metrics.resampling import Estimate, derived

Measure = Callable[[Observed], Estimate]
Margins = Callable[[Observed], Mapping[str, Estimate]]

EXAMPLE, WIKIPEDIA, INSTAGRAM = PAGES
COALESCING, DOQ, DOH = "DoQ + H3 0-RTT", "DoQ + H3 1-RTT", "DoH + H3 1-RTT"
ENCRYPTED = (COALESCING, DOQ, DOH)
FIXED, MOBILE = ("fiber", "cable", "dsl"), ("4g", "4g-medium")
FAST = ("fiber", "cable", "4g", "4g-medium")
"""Links on which a padded query takes no time to serialise: all but DSL."""
CELLS = tuple(product(LINKS, PAGES))


def duration(series: str, q: float = 0.5, links: Sequence[str] = LINKS) -> Measure:
    """A quantile in multiples of the RTT."""
    return lambda o: o.quantile(series, q, links, in_rtts=True)


def plt(combination: str, link: str, page: str, q: float = 0.5) -> Measure:
    """A quantile of a PLT, ms."""
    return lambda o: o.quantile(combination, q, [link], [page])


def increase(combination: str, link: str, page: str, q: float = 0.5) -> Measure:
    """A quantile of a PLT over the baseline's median in the same cell, percent."""
    return lambda o: derived(
        lambda ours, base: (ours / base - 1) * 100,
        o.quantile(combination, q, [link], [page]),
        o.quantile(BASELINE, 0.5, [link], [page]),
    )


def cost(
    more: str, less: str, links: Sequence[str], pages: Sequence[str] | None = None, *, rtts: bool = False
) -> Measure:
    """Median of a difference within the rounds, ms or multiples of the RTT."""
    return lambda o: o.quantile({more: 1.0, less: -1.0}, 0.5, links, pages, in_rtts=rtts)


def within_rounds(factors: Mapping[str, float], link: str, page: str) -> Measure:
    """Median of a sum of several PLTs within the rounds, ms."""
    return lambda o: o.quantile(factors, 0.5, [link], [page])


def minus(one: Measure, other: Measure) -> Measure:
    """The difference of two statistics, e.g. of medians."""
    return lambda o: derived(lambda x, y: x - y, one(o), other(o))


def scaled(measure: Measure, factor: float = 1.0, plus: float = 0.0) -> Measure:
    """A multiple of a statistic, and a constant added."""
    return lambda o: derived(lambda x: factor * x + plus, measure(o))


def greatest(measures: Iterable[Measure]) -> Measure:
    """The greatest of several statistics."""
    parts = list(measures)
    return lambda o: derived(lambda *xs: np.max(xs, axis=0), *(m(o) for m in parts))


def least(measures: Iterable[Measure]) -> Measure:
    """The least of several statistics."""
    parts = list(measures)
    return lambda o: derived(lambda *xs: np.min(xs, axis=0), *(m(o) for m in parts))


def mean(measures: Iterable[Measure]) -> Measure:
    """The mean of several statistics."""
    parts = list(measures)
    return lambda o: derived(lambda *xs: np.mean(xs, axis=0), *(m(o) for m in parts))


def middle(measures: Iterable[Measure]) -> Measure:
    """The median of several statistics."""
    parts = list(measures)
    return lambda o: derived(lambda *xs: np.median(xs, axis=0), *(m(o) for m in parts))


def spread(series: str, link: str, low: float = 0.05, high: float = 0.95) -> Measure:
    """Distance of two quantiles, multiples of the RTT."""
    return minus(duration(series, high, [link]), duration(series, low, [link]))


def points(more: str, less: str, link: str, page: str) -> Measure:
    """Difference of two median increases, percentage points."""
    return minus(increase(more, link, page), increase(less, link, page))


def points_over_pages(more: str, less: str, link: str) -> Measure:
    """The same, mean over the pages."""
    return mean(points(more, less, link, page) for page in PAGES)


def points_over_links(more: str, less: str, page: str) -> Measure:
    """The same, mean over the links."""
    return mean(points(more, less, link, page) for link in LINKS)


def worst(combination: str) -> Measure:
    """Greatest of the median increases of all cells, percent."""
    return greatest(increase(combination, link, page) for link, page in CELLS)


def reduction(link: str, page: str) -> Measure:
    """How much less the PLT of coalescing is than that of DoH, as a fraction."""
    return lambda o: derived(
        lambda ours, doh: 1 - ours / doh,
        o.quantile(COALESCING, 0.5, [link], [page]),
        o.quantile(DOH, 0.5, [link], [page]),
    )


def processing_share(link: str) -> Measure:
    """Part of the H3 1-RTT connect duration that is not the round-trip."""
    return lambda o: derived(lambda x: 1 - 1 / x, o.quantile("H3 1-RTT connect", 0.5, [link], in_rtts=True))


def left_tail(combination: str, link: str, page: str) -> Measure:
    """From the 5th percentile to the median, percentage points."""
    return minus(increase(combination, link, page), increase(combination, link, page, 0.05))


def tail_excess(combination: str, link: str, page: str) -> Measure:
    """How much longer the 5th to the 20th percentile is than `TAIL_RATIO` times the 20th to the 50th, percent."""
    return lambda o: derived(
        lambda p5, p20, p50: (p20 - p5) - TAIL_RATIO * (p50 - p20),
        *(increase(combination, link, page, q)(o) for q in (0.05, 0.2, 0.5)),
    )


def saving_per_rtt(o: Observed) -> Estimate:
    """Slope of what H3 0-RTT saves (ms, mean over the pages) over the RTT of the link (ms)."""
    rtts = np.array([o.rtt_ms(link) for link in LINKS])
    weights = (rtts - rtts.mean()) / ((rtts - rtts.mean()) ** 2).sum()
    savings = [mean(cost(DOQ, COALESCING, [link], [page]) for page in PAGES)(o) for link in LINKS]
    return derived(lambda *xs: np.tensordot(weights, np.array(xs), axes=1), *savings)


def cells_that_match(o: Observed) -> Estimate:
    """Cells in which coalescing is as fast as the baseline."""
    return derived(
        lambda *xs: np.sum(np.array(xs) <= MATCHES_PERCENT, axis=0),
        *(increase(COALESCING, link, page)(o) for link, page in CELLS),
    )


def modes(series: str, link: str, page: str) -> Measure:
    """Modes of a distribution."""

    def measure(o: Observed) -> Estimate:
        sample = o.sample(series, [link], [page])
        return o.value(len(shapes.modes(sample)), sample)

    return measure


def first_mode_share(series: str, link: str, page: str) -> Measure:
    """Percentage of observations in the first of the modes."""

    def measure(o: Observed) -> Estimate:
        sample = o.sample(series, [link], [page])
        return o.value(shapes.share_of_first_mode(sample), sample)

    return measure


def steps(series: str) -> Measure:
    """Steps of the CDF over all links."""

    def measure(o: Observed) -> Estimate:
        sample = o.sample(series, LINKS, in_rtts=True)
        return o.value(shapes.steps(sample, len(LINKS)), sample)

    return measure


def share_in_step(series: str, link: str, low: float, high: float) -> Measure:
    """Percentage of a link's observations that lie between two percentiles of all links together."""

    def measure(o: Observed) -> Estimate:
        part, whole = (o.sample(series, links, in_rtts=True) for links in ([link], LINKS))
        return o.value(shapes.share_within(part, whole, low, high), part)

    return measure


# Comparisons by name: each must be above 0


def split_at_dom_interactive(o: Observed) -> Mapping[str, Estimate]:
    """Two modes in domInteractive, one in responseEnd before it."""
    before, at = (modes(f"H3 1-RTT {event}", "fiber", EXAMPLE)(o) for event in ("response end", "DOM interactive"))
    return {
        "two modes in domInteractive": derived(lambda count: count - 1, at),
        "one mode in responseEnd": derived(lambda count: 2 - count, before),
    }


def fastest_last(o: Observed) -> Mapping[str, Estimate]:
    """The paper's ranking of the encrypted options, cell by cell."""
    return {
        f"{more} over {less}, {link}, {page}": cost(more, less, [link], [page], rtts=True)(o)
        for link, page in CELLS
        for more, less in ((DOQ, COALESCING), (DOH, DOQ))
    }


def columns_that_rise(o: Observed) -> Mapping[str, Estimate]:
    """For each column of Fig. 8 the least rise from one link to the next."""
    return {
        f"{combination}, {page}": least(
            minus(increase(combination, following, page), increase(combination, link, page))
            for link, following in pairwise(LINKS)
        )(o)
        for combination in (COALESCING, DOQ, DOH)
        for page in PAGES
    }


def expected_round_trips(o: Observed) -> Mapping[str, Estimate]:
    """DoUDP takes about one round-trip, DoQ more than two, DoH more than three."""
    one, doq, doh = (duration(f"{protocol} exchange")(o) for protocol in ("DoUDP", "DoQ", "DoH"))
    return {
        "DoUDP near 1": derived(lambda x: IN_RTTS.at_least - np.abs(x - 1), one),
        "DoQ above 2": derived(lambda x: x - 2, doq),
        "DoH above 3": derived(lambda x: x - 3, doh),
    }


def everywhere_slower(o: Observed) -> Mapping[str, Estimate]:
    """TCP RTT above the DoQ query and the DoUDP lookup at every percentile looked at, on cable."""
    return {
        f"TCP RTT over {series.removesuffix(' exchange')} at P{q * 100:.0f}": minus(
            duration("TCP RTT", q, ["cable"]), duration(series, q, ["cable"])
        )(o)
        for series in ("DoQ query", "DoUDP exchange")
        for q in (0.05, 0.25, 0.5, 0.75, 0.95)
    }


def approximately_one(o: Observed) -> Estimate:
    """Of the links but DSL the one whose DoH - DoQ is farthest from one RTT."""
    found = [cost("DoH exchange", "DoQ exchange", [link], rtts=True)(o) for link in FAST]
    return max(found, key=lambda estimate: abs(estimate.value - 1))


def udp_failures(o: Observed) -> Estimate:
    """Failed DoUDP exchanges."""
    return o.failed_exchanges("DoUDP")
