"""Every result of TNSM24 (Sengupta et al., 2024) and of its talk as a check on a campaign of this study."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import polars as pl

from crosslayer import metrics, published
from crosslayer.claims import Claims
from crosslayer.claims.data import NotMeasured, Observed
from crosslayer.claims.distribution_shape import first_mode_percent, modes, share_within, steps
from crosslayer.claims.measures import (
    CustomMeasure,
    Derived,
    Limited,
    Measure,
    SeriesStatistic,
    maximum,
    mean,
    median,
    median_of,
    minimum,
)
from crosslayer.claims.rows import VALID_EXCHANGE, VALID_LOAD, Source
from crosslayer.claims.rules import (
    Bound,
    Cause,
    Check,
    Margins,
    Number,
    Ordering,
    Position,
    RoundTrips,
    Rule,
    Shape,
    Sign,
    by_id,
    claim,
    descending,
    number,
    position,
)
from crosslayer.claims.rules import within as within_distance
from crosslayer.claims.tolerances import (
    ABSOLUTE,
    EXACT,
    FRACTION,
    IN_RTTS,
    LOAD_RESOLUTION_MS,
    MATCHES_PERCENT,
    MUCH_LESS_THAN_ONE_RTT,
    RELATIVE,
    SHARE,
    STEP_RISE_RTT,
    STEP_SHARE,
    TAIL_RATIO,
    difference_ms,
)
from crosslayer.metrics import BASELINE, COMBINATIONS
from crosslayer.metrics.resampling import Estimate, derived
from crosslayer.studies.coalescing import LINKS, PAGES
from crosslayer.studies.coalescing.metrics import SHOWN, TRANSPORTS, observations

RTT_MS = {"fiber": 14.8, "cable": 25.2, "dsl": 42.4, "4g": 91.9, "4g-medium": 104.5}
"""RTT of each link in TNSM24 Table II, ms."""
EXAMPLE, WIKIPEDIA, INSTAGRAM = PAGES
ENCRYPTED = COALESCING, DOQ, DOH = COMBINATIONS[1:]
FASTEST_MS = 50.0
"""Approximate shortest PLT of the baseline (example.org on fiber), ms.

As a share of the PLT, the step of the browser's clock is largest for this PLT.
"""
FIXED, MOBILE = LINKS[:3], LINKS[3:]
PUBLISHED_STEPS = 4.0
"""Number of steps of the published CDFs of exchanges, counted by `distribution_shape.steps` as for measured CDFs."""
FAST = ("fiber", "cable", "4g", "4g-medium")
"""Links on which the serialisation of a padded query is negligible: all except DSL."""

# Observations and measures


def observed(
    dns_exchanges: pl.LazyFrame, tcp_rtts: pl.LazyFrame, page_loads: pl.LazyFrame, link_checks: pl.LazyFrame
) -> Observed:
    """Durations of exchanges by protocol and part, TCP RTTs, times of loads, and PLTs by combination, in ms."""
    return Observed(
        observations(dns_exchanges, tcp_rtts, page_loads).only(LINKS, PAGES),
        rtts_ms=dict(metrics.nominal_rtts(link_checks).collect().iter_rows()),
        links=LINKS,
        published_rtts_ms=RTT_MS,
        tables={"dns_exchanges": dns_exchanges, "tcp_rtts": tcp_rtts, "page_loads": page_loads},
    )


def connect(h3: str) -> SeriesStatistic:
    """Median time from the start of the connection until it can carry the request, in multiples of the RTT.

    With a full handshake, this time ends at `connectEnd`, as in the paper. With early data, this time ends at
    `requestStart`: today's Chromium does not wait for `connectEnd`, the end of the handshake. The paper's browser
    waited for `connectEnd`.
    """
    return median("H3 1-RTT connect" if h3 == "1-RTT" else "H3 0-RTT until request", in_rtts=True)


def exchange(protocol: str) -> SeriesStatistic:
    """Median duration of a DNS exchange on a new connection, in multiples of the RTT."""
    return median(f"{protocol} exchange", in_rtts=True)


HANDSHAKE, QUERY = (median(f"DoQ {part}", in_rtts=True) for part in ("handshake", "query"))
"""Median durations of the two parts of a DoQ exchange, in multiples of the RTT."""
TCP_RTT = median("TCP RTT", in_rtts=True)


def plt(combination: str, page: str) -> SeriesStatistic:
    """Median PLT of a combination, ms."""
    return median(combination, page)


def increase(combination: str, page: str, q: float = 0.5) -> Measure:
    """Increase from the median PLT of the baseline to the quantile `q` of a combination's PLT, in percent."""
    return plt(combination, page).at(q).over(plt(BASELINE, page))


def within(more: str, less: str, *pages: str, in_rtts: bool = False) -> SeriesStatistic:
    """Median of `more` minus `less` in the same round, ms or multiples of the RTT."""
    return median({more: 1.0, less: -1.0}, *pages, in_rtts=in_rtts)


def points(more: str, less: str, page: str) -> Measure:
    """Median PLT increase with `more` minus that with `less`, percentage points."""
    return increase(more, page) - increase(less, page)


def over_pages(more: str, less: str) -> Measure:
    """Median PLT increase with `more` minus that with `less`, percentage points: mean of all pages."""
    return mean(points(more, less, page) for page in PAGES)


def reduction(page: str) -> Measure:
    """Decrease of the median PLT from DoH + H3 1-RTT to coalescing, as a fraction."""
    return 1 - plt(COALESCING, page) / plt(DOH, page)


def over_links(measure: Measure, links: Sequence[str] = LINKS) -> list[Measure]:
    """The measure on each of these links."""
    return [measure.on(link) for link in links]


def cells(of: Callable[..., Measure], *what: str, links: Sequence[str] = LINKS) -> list[Measure]:
    """For each cell of these links: the measure `of(*what, page)`, with the cell's page, on the cell's link."""
    return [of(*what, page).on(link) for link, page in product(links, PAGES)]


def worst(combination: str) -> Measure:
    """Largest median PLT increase of all cells, percent."""
    return maximum(cells(increase, combination))


def left_tail(combination: str, page: str) -> Measure:
    """Distance from the 5th percentile of the increase to its median, percentage points."""
    return increase(combination, page) - increase(combination, page, 0.05)


def tail_excess(combination: str, page: str) -> Measure:
    """Left tail of the PLT increase, percentage points: (P20 - P5) - `TAIL_RATIO` * (P50 - P20)."""
    p5, p20, p50 = (increase(combination, page, q) for q in (0.05, 0.2, 0.5))
    return (p20 - p5) - TAIL_RATIO * (p50 - p20)


SAVED_CONNECT = within("H3 1-RTT connect", "H3 0-RTT until request", in_rtts=True)
SAVED_EXCHANGE = within("DoH exchange", "DoQ exchange", in_rtts=True)
SAVED_EXCHANGE_MS = within("DoH exchange", "DoQ exchange")


@CustomMeasure
def saving_per_rtt(o: Observed) -> Estimate:
    """Slope of the saving against the RTT of the link, ms per ms.

    The saving is the decrease of the PLT by H3 0-RTT, averaged over the pages.
    """
    rtts = np.array([o.rtt_ms(link) for link in LINKS])
    weights = (rtts - rtts.mean()) / ((rtts - rtts.mean()) ** 2).sum()
    savings = over_links(mean(within(DOQ, COALESCING, page) for page in PAGES))
    return derived(
        lambda *xs: sum(weight * x for weight, x in zip(weights, xs, strict=True)), *(saving(o) for saving in savings)
    )


@CustomMeasure
def farthest_from_one(o: Observed) -> Estimate:
    """DoH exchange minus DoQ exchange, in multiples of the RTT, on the link where it is farthest from 1.

    DSL is excluded.
    """
    return max((saved(o) for saved in over_links(SAVED_EXCHANGE, FAST)), key=lambda estimate: abs(estimate.value - 1))


@CustomMeasure
def udp_failures(o: Observed) -> Estimate:
    """Number of failed DoUDP exchanges; `n` is the number of attempted ones."""
    tried, failed = (
        metrics.failures(**o.tables)
        .filter(pl.col("condition") == "DoUDP", pl.col("link").is_in(LINKS))
        .select(pl.col("attempted", "failed").sum())
        .collect(engine="streaming")
        .row(0)
    )
    if not tried:
        raise NotMeasured("no DoUDP exchange was tried")
    o.enough(o.rounds)
    return Estimate(float(failed), tried, o.rounds)


# Rules

in_rtts = Number(tolerance=IN_RTTS, unit="RTT", direction=Sign())
in_percent = Number(tolerance=RELATIVE, unit="%", direction=Sign())
in_fraction = Number(tolerance=FRACTION, unit="", direction=Sign())
absolute_ms = Number(tolerance=ABSOLUTE, unit="ms")
percent_of_loads = Number(tolerance=SHARE, unit="%")


def trips(minimum: int) -> Number:
    """Rule for a duration in multiples of the RTT that consists of `minimum` round-trips and processing."""
    return Number(tolerance=IN_RTTS, unit="RTT", direction=RoundTrips(minimum))


def counted(unit: str, direction: Sign | None = None) -> Number:
    """Rule for a count, which must be equal to the published one."""
    return Number(tolerance=EXACT, unit=unit, direction=direction)


def rtts(*, above: float | None = None, below: float | None = None) -> Bound:
    """Rule for a duration in multiples of the RTT that must be above or below a limit."""
    return Bound(above=above, below=below, unit="RTT")


def ordering(
    unit: str, criterion: str = "95 % interval of each difference excludes 0", enough: int | None = None
) -> Rule:
    """Rule: all differences, or `enough` of them, are above 0.

    Differences that are smaller than the step of the browser's clock count as neither positive nor negative.
    """
    fastest = {"ms": 1.0, "RTT": 1 / RTT_MS["fiber"], "points": 100 / FASTEST_MS}.get(unit, 0.0)
    return Ordering(unit=unit, enough=enough, criterion=criterion, resolution=LOAD_RESOLUTION_MS * fastest)


def by_page(of: Callable[[str], Measure], *pages: str) -> Margins:
    """Margins (differences that must be above 0) of the statement that a measure decreases from page to page."""
    return descending({page: of(page) for page in pages or PAGES})


def in_ms(identifier: str, combination: str, page: str, link: str, q: float = 0.5) -> Check:
    """Check of a quantile of the PLT, ms."""
    sentence = f"PLT of {page} on {link} with {combination}, ms" + (f" (P{q * 100:.0f})" if q != 0.5 else "")
    return claim(identifier, sentence, plt(combination, page).on(link).at(q), absolute_ms)


def ms_between(identifier: str, more: str, less: str, page: str, link: str) -> Check:
    """Check of a difference of two median PLTs, ms.

    The difference consists of round-trips, so its tolerance depends on the RTT.
    """
    rule = Number(tolerance=difference_ms(RTT_MS[link]), unit="ms", direction=Sign())
    sentence = f"PLT of {page} on {link}: {more} minus {less}, ms"
    return claim(identifier, sentence, (plt(more, page) - plt(less, page)).on(link), rule)


def points_between(identifier: str, more: str, less: str, page: str, link: str) -> Check:
    """Check of the PLT increase with `more` minus that with `less`, percentage points."""
    rule = Number(tolerance=RELATIVE, unit="points", direction=Sign())
    sentence = f"PLT increase of {page} on {link}: {more} minus {less}, percentage points"
    return claim(identifier, sentence, points(more, less, page).on(link), rule)


def step(identifier: str, sentence: str, series: SeriesStatistic, link: str, low: float, high: float) -> Check:
    """Check that a step of a CDF belongs to this link. The CDF is that of all links together.

    The step is the part of the CDF between its quantiles `low` and `high`. It must contain at least the share
    `STEP_SHARE` of the link's observations.
    """
    span = f"P{low * 100:.0f} and P{high * 100:.0f} of all links"

    def share(o: Observed) -> Estimate:
        part, whole = o.sample(series.on(link).series), o.sample(series.series)
        return Estimate(share_within(part, whole, low, high), part.size, part.rounds)

    rule = Shape(
        level=STEP_SHARE * 100,
        direction=minimum([series.on(link) - series.at(low), series.at(high) - series.on(link)]),
        unit="%",
        criterion=f"{STEP_SHARE:.0%} of the link's observations between {span}; P90 minus P10 of all links at least a "
        "step of the clock",
        label=f"Share of {link} between {span}:",
        spread=series.spread(0.1, 0.9),
        resolution=LOAD_RESOLUTION_MS / RTT_MS["fiber"],
        spread_unit="RTT",
    )
    return claim(identifier, sentence, CustomMeasure(share), rule)


def risen_step(identifier: str, sentence: str, series: SeriesStatistic, link: str) -> Check:
    """Check that the last step (from P80) of the CDF of all links together belongs to this link.

    The link's median must also be at least `STEP_RISE_RTT` above that of every other link.
    """
    last = step(identifier, sentence, series, link, 0.8, 1.0)
    rise = series.on(link) - maximum(over_links(series, [other for other in LINKS if other != link]))
    share = last.of
    assert isinstance(share, CustomMeasure)
    assert isinstance(last.rule, Shape)

    def risen(o: Observed) -> Estimate:
        estimate = share(o)
        return estimate if rise(o).value >= STEP_RISE_RTT else Estimate(0.0, estimate.n, estimate.rounds)

    rule = replace(
        last.rule,
        direction=rise,
        spread=None,  # the rise, which the claim needs, is larger than a step of the clock
        criterion=f"{last.rule.criterion.partition(';')[0]}, its median at least {STEP_RISE_RTT} RTT above every other "
        "link's",
        label=f"Share of {link} in the last step (0 where its median does not stand out):",
    )
    return claim(identifier, sentence, CustomMeasure(risen), rule)


# Causes of differences

CONNECT_END = (
    "The measured time is that at which the request can leave. With early data, it is requestStart, because "
    "connectEnd of today's Chromium is the end of the handshake, and early data leaves before."
)
SENT_SOONER = within("H3 1-RTT request start", "H3 0-RTT request start", in_rtts=True)
EARLY = Cause(
    "Today's Chromium sends early data in its first flight. With 0-RTT, its request leaves {0} RTT sooner (all "
    "links and pages), and the PLT of example.org is {1} RTT shorter on fiber and {2} RTT on 4G. In the paper, the "
    "request waited for most of the handshake.",
    (SENT_SOONER, *(within(DOQ, COALESCING, EXAMPLE, in_rtts=True).on(link) for link in ("fiber", "4g"))),
)


def early_in(page: str, link: str) -> Cause:
    """Cause: early data saves more of this page's PLT on this link than in the paper."""
    text = (
        "Today's Chromium sends early data in its first flight, the paper's after most of the handshake. So early data "
        f"saves {{0}} RTT here: {{1}} ms of the {{2}} ms that {page} takes with the baseline."
    )
    spared = within(DOQ, COALESCING, page).on(link)
    return Cause(text, (spared / RTT_MS[link], spared, plt(BASELINE, page).on(link)))


def lighter(combination: str, page: str, link: str) -> Cause:
    """Cause: this page loads faster than in the paper, so that the exchange adds a larger share of the PLT."""
    exchange_of = combination.split(" + ", maxsplit=1)[0]
    text = (
        f"A guess: the paper's page took longer. Its copy takes {{0}} ms with the baseline. {exchange_of} adds {{1}} "
        "ms ({2} RTT): it adds round-trips, whose share of the PLT depends on the page."
    )
    added = within(combination, BASELINE, page).on(link)
    return Cause(text, (plt(BASELINE, page).on(link), added, added / RTT_MS[link]))


def of_cell(combination: str, page: str, link: str) -> Cause:
    """Cause of a difference between our PLT increase and the published one in this cell."""
    return early_in(page, link) if combination == COALESCING else lighter(combination, page, link)


def processing(series: SeriesStatistic, trips: int, published: float) -> Cause:
    """Cause: processing, if a duration and the published one differ but have the same number of round-trips."""
    text = (
        f"Beyond whole round-trips, an exchange or handshake takes {{0}} RTT here, {published - trips:.2f} RTT in the "
        "paper. On fiber, it is {1} ms here. A guess: a part of it is the processing of client and server, which takes "
        "no time in virtual time."
    )
    return Cause(text, (series - trips, (series.on("fiber") - trips) * RTT_MS["fiber"]))


PUBLISHED_MS = {
    (WIKIPEDIA, "fiber", 0.25): 615.5,
    (WIKIPEDIA, "fiber", 0.5): 630.4,
    (WIKIPEDIA, "fiber", 0.75): 642.1,
    (WIKIPEDIA, "4g", 0.5): 876.9,
    (INSTAGRAM, "fiber", 0.5): 651.4,
}
"""Published PLTs of the baseline by page, link and quantile, ms: claims T158, T155, T159, T171 and T180."""
_LACKS = {
    WIKIPEDIA: "A guess: the page of the paper waited for its servers or scripts, which our copy does not have: ",
    INSTAGRAM: "A guess: our browser and machine are faster: ",
}


def shorter(page: str, link: str, q: float = 0.5) -> Cause:
    """Cause: the baseline's PLT of a page is shorter than the published one."""
    published = PUBLISHED_MS[page, link, q]
    ours = plt(BASELINE, page).on(link).at(q)
    other = INSTAGRAM if page == WIKIPEDIA else WIKIPEDIA
    reference = plt(BASELINE, other).on("fiber") / PUBLISHED_MS[other, "fiber", 0.5]
    text = (
        f"the PLT of the baseline is {{0}} times the published {published} ms. For {other} on fiber, it is {{1}} times "
        "the published PLT."
    )
    return Cause(_LACKS[page] + text, (ours / published, reference))


def on_published_baseline(combination: str, page: str, link: str, ms: float, q: float = 0.5) -> Cause:
    """Cause as in `shorter`, with a further comparison.

    The published PLT `ms` is compared with a sum: the published PLT of the baseline plus our increase.
    """
    why = shorter(page, link, q)
    added = (plt(combination, page).at(q) - plt(BASELINE, page).at(q)).on(link)
    there = added + PUBLISHED_MS[page, link, q]
    text = (
        f" Our increase of {{2}} ms, added to the paper's baseline, gives {{3}} ms. This differs by {{4}} % from the "
        f"published {ms:g} ms; the tolerance is {ABSOLUTE.share * 100:.0f} %."
    )
    return Cause(why.text + text, (*why.numbers, added, there, (there / ms - 1) * 100))


DOM = Cause(
    "A guess: the two modes, which the paper already sees in domInteractive, came from the browser of that time. "
    "With today's Chromium, domInteractive has {0} mode and responseEnd {1}.",
    tuple(median(f"H3 1-RTT {name}", EXAMPLE).on("fiber").by(modes) for name in ("DOM interactive", "response end")),
)
_NOT_CABLE = [link for link in LINKS if link != "cable"]
CABLE = Cause(
    "The paper's TCP RTT is 1.26 times the link's RTT on cable, and about 1 on every other link. The link does not "
    "explain this. Ours is {0} RTT on cable and {1} to {2} RTT on the other links.",
    (TCP_RTT.on("cable"), minimum(over_links(TCP_RTT, _NOT_CABLE)), maximum(over_links(TCP_RTT, _NOT_CABLE))),
)
NOISE = (
    "A guess: our machine with two virtual cores, which also emulates the link, causes the slowest values "
    "(docs/howto/measure.md)."
)
AGAIN = "{}: the page load is the same, so the difference is that of the DNS exchanges"

FEWER_STEPS = Cause(
    "Without processing, an exchange takes the same number of round-trips on all links except DSL, whose uplink is "
    "slow: DoQ takes {0} RTT on fiber, {1} on cable, {2} on 4G, {3} on 4G medium and {4} on DSL.",
    tuple(exchange("DoQ").on(link) for link in ("fiber", "cable", "4g", "4g-medium", "dsl")),
)
WORST = Cause(
    "The largest increases are {0} % (DoH), {1} % (DoQ) and {2} % (coalescing). Today's early data saves a whole "
    "round-trip ({3} RTT on 4G medium), so coalescing differs more from DoQ than in the paper.",
    (
        *(worst(combination) for combination in (DOH, DOQ, COALESCING)),
        within(DOQ, COALESCING, EXAMPLE, in_rtts=True).on("4g-medium"),
    ),
)


def published_reduction(links: Sequence[str]) -> float:
    """Largest reduction of the PLT from DoH to coalescing in the published Fig. 8, on these links, as a fraction."""
    table = published.load().heatmap.filter(pl.col("link").is_in(links))
    columns = table.pivot("series", index=["link", "page"], values="percent")
    return float((1 - (100 + columns[COALESCING]) / (100 + columns[DOH])).max())  # type: ignore[arg-type]


def constant(o: Observed, value: float) -> Estimate:
    """A constant as an estimate, without an interval."""
    return Estimate(value, o.rounds, o.rounds)


def reduced_less(links: Sequence[str]) -> Cause:
    """Cause: on these links, Fig. 8 of the paper has smaller reductions by coalescing than the paper's text."""
    return Cause(
        "Fig. 8 of the paper does not contain this fraction: on these links, coalescing makes the PLT at most {0} % "
        "shorter than with DoH. We measured at most {1} %, because today's early data alone saves {2} RTT of the PLT "
        "of example.org.",
        (
            CustomMeasure(lambda o: constant(o, 100 * published_reduction(links))),
            100 * maximum(cells(reduction, links=links)),
            within(DOQ, COALESCING, EXAMPLE, in_rtts=True),
        ),
    )


def worst_case(limit: float, links: Sequence[str]) -> Callable[[Observed], str]:
    """Function that writes a sentence: in how many cells of these links DoH costs more than `limit` percent."""

    def plain(o: Observed) -> str:
        increases = {(link, page): increase(DOH, page).on(link)(o) for link, page in product(links, PAGES)}
        (link, page), most = max(increases.items(), key=lambda item: item[1].value)
        above = sum(position(one, limit, math.inf) is Position.INSIDE for one in increases.values())
        typical = median_of(cells(increase, DOH, links=links))(o).value
        if not above:
            return (
                f"Not shown here: DoH makes the PLT at most {number(most.value)} % longer, not more than {limit:g} %."
            )
        holds = "Holds" if above == len(increases) else "Holds for the worst link and page"
        return (
            f"{holds}: DoH makes the PLT more than {limit:g} % longer in {above} of {len(increases)} combinations of "
            f"link and page. The largest increase is {number(most.value)} % ({page} on {link}); the median is "
            f"{number(typical)} %."
        )

    return plain


def fraction_of_what(fraction: str, link: str, links: Sequence[str]) -> Callable[[Observed], str]:
    """Function that writes a sentence about a published fraction.

    The fraction is of the additional time compared with plain DNS, not of the PLT.
    """

    def plain(o: Observed) -> str:
        ours = (100 * maximum(cells(reduction, links=links)))(o)
        interval = f" [{number(ours.interval[0])}, {number(ours.interval[1])}]" if ours.interval else ""
        more, less = (increase(combination, EXAMPLE).on(link)(o).value for combination in (DOH, COALESCING))
        return (
            f"Contradicts the paper's own Fig. 8: on these links, coalescing makes the PLT at most "
            f"{number(100 * published_reduction(links))} % shorter than with DoH. We measured at most "
            f"{number(ours.value)} %{interval}. In Fig. 8, the time added to plain DNS falls to {fraction}, for "
            f"example.org on {link}. There, we measured a fall from {number(more)} to {number(less)} %."
        )

    return plain


FIG_8 = {
    (COALESCING, EXAMPLE): "T223 T224 T225 T226 T227",
    (COALESCING, WIKIPEDIA): "T228 T229 T230 T231 T232",
    (COALESCING, INSTAGRAM): "T233 T234 T235 T236 T237",
    (DOQ, EXAMPLE): "T238 T239 T240 T241 T242",
    (DOQ, WIKIPEDIA): "T243 T244 T245 T246 T247",
    (DOQ, INSTAGRAM): "T248 T249 T250 T251 T252",
    (DOH, EXAMPLE): "T253 T254 T255 T256 T257",
    (DOH, WIKIPEDIA): "T258 T259 T260 T261 T262",
    (DOH, INSTAGRAM): "T263 T264 T265 T266 T267",
}
"""Claims of Fig. 8 by combination and page, on the links from fiber to 4G medium."""


def fig_8() -> list[Check]:
    """Checks of all cells of Fig. 8."""
    return [
        claim(
            identifier,
            f"PLT increase over the baseline, percent: {combination}, {page} on {link}",
            increase(combination, page).on(link),
            in_percent,
        )
        for (combination, page), identifiers in FIG_8.items()
        for link, identifier in zip(LINKS, identifiers.split(), strict=True)
    ]


_LEFT_TAILS = {
    f"{protocol}, {link} over {following}": (
        exchange(protocol).on(link).spread(0.05, 0.5) - exchange(protocol).on(following).spread(0.05, 0.5)
    )
    for protocol in ("DoQ", "DoH")
    for link, following in pairwise(LINKS)
}
_TAILS_FALL = ordering("RTT", "P5 to median, in RTTs, decreases from link to link, each 95 % interval excludes 0")
_EXAMPLE_HIGHEST = {
    f"{combination}, {link}, over {page}": (increase(combination, EXAMPLE) - increase(combination, page)).on(link)
    for combination, link, page in product(ENCRYPTED, LINKS, (WIKIPEDIA, INSTAGRAM))
}
_OF_DOH = {page: mean(over_links(points(DOH, COALESCING, page))) for page in PAGES}
"""PLT increase with DoH minus that with coalescing, by page, percentage points: mean of the links."""
_MODES = plt(DOQ, EXAMPLE).on("fiber").by(modes)
_FIRST_MODE = plt(DOQ, EXAMPLE).on("fiber").by(first_mode_percent)
_SAVED_WIKIPEDIA, _SAVED_INSTAGRAM = (within(DOQ, COALESCING, page) for page in (WIKIPEDIA, INSTAGRAM))


def _over_baseline(q: float) -> Measure:
    """Increase of the quantile `q` of the PLT from the baseline to coalescing, in percent.

    The page is wikipedia.org on fiber.
    """
    return plt(COALESCING, WIKIPEDIA).on("fiber").at(q).over(plt(BASELINE, WIKIPEDIA).on("fiber").at(q))


def _fiber_over_4g(series: Mapping[str, SeriesStatistic]) -> Margins:
    return {f"{name}, fiber over 4G": of.on("fiber").spread() - of.on("4g").spread() for name, of in series.items()}


_WIDER_ON_FIBER = ordering("RTT", "P5 to P95 longer on fiber, 95 % interval of the difference excludes 0")

CAUSES: dict[Cause | str, str] = {
    EARLY: "T048 T049 T054 T055 T056 T058 T060 T062 T063 T064 T065 T066 T067 T068 T069 T070 T148 T149 T188 T190 T193 "
    "T195 T203 T205 T206 T216",
    NOISE: "T102 T112 T113 T114 T208",
    "A guess: processing. On fiber, 0.1 RTT is 1.5 ms, which is about the time that our client and server take to "
    "process a query.": "T104",
    CABLE: "T109 T110 T111 T115",
    Cause(
        "Early data saves {0} ms of PLT per ms of RTT, so the increases by coalescing do not grow with the RTT. Of "
        "the other columns, DoQ on example.org falls by {1} points from DSL to 4G, and DoQ and DoH on "
        "instagram.com fall by {2} and {3} points from cable to DSL. The published columns fall there, too.",
        (
            saving_per_rtt,
            increase(DOQ, EXAMPLE).on("dsl") - increase(DOQ, EXAMPLE).on("4g"),
            *(increase(name, INSTAGRAM).on("cable") - increase(name, INSTAGRAM).on("dsl") for name in (DOQ, DOH)),
        ),
    ): "T126",
    DOM: "T130 T131 T132 T213 T221",
    Cause(
        "In Fig. 8 of the paper, the increase is also largest for example.org. Ours is {0} points larger than that "
        "of wikipedia.org.",
        (_OF_DOH[EXAMPLE] - _OF_DOH[WIKIPEDIA],),
    ): "S007",
    reduced_less(FIXED): "T003",
    reduced_less(MOBILE): "T004",
    FEWER_STEPS: "T086",
    WORST: "T199 T200 T201 T202",
    **{
        processing(series, trips, value): identifier
        for identifier, series, trips, value in (
            ("T050", connect("1-RTT"), 1, 1.4),
            ("T051", HANDSHAKE, 1, 1.43),
            ("T052", connect("1-RTT").on("fiber").at(0), 1, 1.25),
            ("T053", connect("1-RTT").on("fiber").at(0.2), 1, 1.56),
            ("T057", connect("1-RTT").on("fiber"), 1, 1.61),
            ("T079", exchange("DoQ"), 2, 2.5),
            ("T082", exchange("DoH"), 3, 3.43),
            ("T078", exchange("DoUDP").at(1), 1, 1.16),
            ("T081", exchange("DoQ").at(1), 2, 3.0),
            ("T084", exchange("DoH").at(1), 3, 3.89),
            ("T088", exchange("DoQ").on("fiber").at(0), 2, 2.36),
            ("T089", exchange("DoH").on("fiber").at(0), 3, 3.34),
            ("T090", exchange("DoQ").on("fiber"), 2, 2.78),
            ("T091", exchange("DoH").on("fiber"), 3, 3.71),
            ("T098", exchange("DoQ").on("dsl"), 2, 2.94),
            ("T183", exchange("DoQ").on("fiber").at(0.5), 2, 2.78),
        )
    },
    **{
        of_cell(combination, page, link): identifier
        for (combination, page), identifiers in FIG_8.items()
        for link, identifier in zip(LINKS, identifiers.split(), strict=True)
    },
    **{
        of_cell(combination, page, link): identifiers
        for identifiers, combination, page, link in (
            ("T123", DOH, EXAMPLE, "4g-medium"),
            ("T128", DOH, INSTAGRAM, "dsl"),
            ("T129", DOH, INSTAGRAM, "fiber"),
            ("T134 T135 T136", DOQ, EXAMPLE, "cable"),
            ("T139 T167 T168 T271", COALESCING, WIKIPEDIA, "fiber"),
            ("T140", DOH, WIKIPEDIA, "fiber"),
            ("T141", DOH, WIKIPEDIA, "4g"),
            ("T142 T169 T172", COALESCING, WIKIPEDIA, "4g"),
            ("T143 T178 T182", COALESCING, INSTAGRAM, "fiber"),
            ("T144", DOH, INSTAGRAM, "fiber"),
            ("T145", COALESCING, INSTAGRAM, "4g"),
            ("T146", DOH, INSTAGRAM, "4g"),
            ("T196", COALESCING, WIKIPEDIA, "dsl"),
            ("T197", DOQ, WIKIPEDIA, "dsl"),
            ("T198", DOH, WIKIPEDIA, "dsl"),
        )
    },
    shorter(WIKIPEDIA, "fiber"): "T155",
    shorter(WIKIPEDIA, "fiber", 0.25): "T158",
    shorter(WIKIPEDIA, "fiber", 0.75): "T159",
    shorter(WIKIPEDIA, "4g"): "T171",
    shorter(INSTAGRAM, "fiber"): "T180",
    on_published_baseline(COALESCING, WIKIPEDIA, "fiber", 630.0): "T156",
    on_published_baseline(COALESCING, WIKIPEDIA, "fiber", 616.4, 0.25): "T161",
    on_published_baseline(COALESCING, WIKIPEDIA, "fiber", 641.3, 0.75): "T162",
    on_published_baseline(DOQ, WIKIPEDIA, "fiber", 655.7): "T164",
    on_published_baseline(DOH, WIKIPEDIA, "fiber", 669.8): "T165",
    on_published_baseline(COALESCING, WIKIPEDIA, "4g", 965.0): "T170",
    on_published_baseline(DOQ, WIKIPEDIA, "4g", 980.4): "T173",
    on_published_baseline(COALESCING, INSTAGRAM, "fiber", 659.3): "T181",
    on_published_baseline(DOQ, INSTAGRAM, "fiber", 676.9): "T184",
    on_published_baseline(DOH, INSTAGRAM, "fiber", 690.7): "T185",
    Cause(
        "A guess: today's post-quantum key share makes the ClientHello one packet longer, and the uplink of 4G "
        "medium is slower than that of 4G (see the study key-share). A connect takes {0} RTT on 4G and {1} RTT on "
        "4G medium.",
        (connect("1-RTT").on("4g"), connect("1-RTT").on("4g-medium")),
    ): "T207",
    Cause(
        "Today's Chromium sends early data in its first flight, which saves the round-trip and the processing of "
        "the handshake: a 1-RTT connect takes {0} RTT.",
        (connect("1-RTT"),),
    ): "T218",
}
REMARKS: dict[Cause | str, str] = {
    "Checked as printed: the largest reduction of the median PLT by coalescing, compared with DoH + H3 1-RTT.": "T003",
    "Checked as printed, like T003.": "T004",
    CONNECT_END: "T048 T049 T054 T055 T056 T058 T060 T062 T063 T064 T065 T066 T067 T068 T069 T070 T205 T206",
    "The curve in the paper's vector figure begins at 2.0754.": "T080",
    f"A step is a part of 20 percentiles whose middle is more than {STEP_RISE_RTT} RTT from that of the next part. The "
    f"value is the smaller number of DoQ and DoH. By this criterion, the published curves have {PUBLISHED_STEPS:.0f} "
    "steps, not five, because 4G and 4G medium differ by only 0.02 (DoQ) and 0.0003 RTT (DoH).": "T086",
    "The value is that of the link, of four, that is farthest from 1.": "T116",
    "The talk contradicts the paper (T138) and its Fig. 8, in which the increase is largest for example.org.": "S007",
    "Checked on 4G, as printed.": "T145 T146",
    "Slope of the saving (mean over the pages) against the RTT, ms per ms. It is 0 if the saving does not depend "
    "on the RTT, and 1 if it is a round-trip.": "T148",
    "Median over the 15 combinations of link and page, each the median of the differences in its rounds.": "T192",
    f"A combination of link and page matches if its median PLT is at most {MATCHES_PERCENT} % above the "
    "baseline's.": "T195",
    "DSL is excluded: by T069 its connect takes the most RTTs of all links, although its RTT is in the middle.": "T207",
}
SAMPLES = {
    57_436: "T078 T080 T081 T083 T084",
    11_487: "T052 T054 T063 T064 T088 T089 T092 T094 T101 T102 T110 T112 T113 T114",
}
"""Claims about published minima and maxima, by the number of observations behind each of these extremes.

An extreme over all links is that of 57,436 observations; an extreme on a single link is that of 11,487.
"""
FOLLOWS = {
    "T105": "T077, the same number",
    "T146": AGAIN.format("T116"),
    "T166": AGAIN.format("T116"),
    "T174": AGAIN.format("T093, T077"),
    "T175": AGAIN.format("T116"),
    "T186": AGAIN.format("T116"),
    "T187": AGAIN.format("T116"),
    "T191": AGAIN.format("T079, T077"),
    "T192": AGAIN.format("T085"),
    "T211": "T097, the same ordering",
    "T217": "T187, the same number",
    "T221": "T213, the same number",
    "T239": "T136, the same number",
    "T257": "T123, the same number",
    "T263": "T129, the same number",
    "T265": "T128, the same number",
    "S006": "T124, the same ordering",
}

CHECKS = by_id(
    # Abstract
    claim(
        "T001",
        "On fixed lines DoH + H3 1-RTT increases the PLT by more than 30 % in the worst case",
        maximum(cells(increase, DOH, links=FIXED)),
        Bound(above=30, unit="%"),
        plain=worst_case(30, FIXED),
    ),
    claim(
        "T002",
        "On mobile links DoH + H3 1-RTT increases the PLT by more than 50 % in the worst case",
        maximum(cells(increase, DOH, links=MOBILE)),
        Bound(above=50, unit="%"),
        plain=worst_case(50, MOBILE),
    ),
    claim(
        "T003",
        "On fixed lines coalescing reduces the PLT by about a third",
        maximum(cells(reduction, links=FIXED)),
        in_fraction.to(1 / 3),
        plain=fraction_of_what("about a third", "fiber", FIXED),
    ),
    claim(
        "T004",
        "On mobile links coalescing reduces the PLT by about a half",
        maximum(cells(reduction, links=MOBILE)),
        in_fraction.to(1 / 2),
        plain=fraction_of_what("about a half", "4g-medium", MOBILE),
    ),
    claim(
        "T005",
        "Of the encrypted options coalescing is the fastest and DoH the slowest",
        {
            f"{more} over {less}, {link}, {page}": within(more, less, page, in_rtts=True).on(link)
            for link, page in product(LINKS, PAGES)
            for more, less in ((DOQ, COALESCING), (DOH, DOQ))
        },
        ordering("RTT", "95 % interval of each paired difference excludes 0"),
    ),
    # IV-A: handshakes
    claim(
        "T046",
        "By the netlog a handshake takes at most 1 ms less than the connect time",
        median("H3 1-RTT connect beyond the netlog's"),
        replace(absolute_ms, up_to=True),
    ),
    claim(
        "T047",
        "H3 and DoQ handshakes are equally fast",
        connect("1-RTT") - HANDSHAKE,
        Number(tolerance=IN_RTTS, unit="RTT").to(0.0),
    ),
    claim("T048", "0-RTT connects much less than one RTT sooner", SAVED_CONNECT, rtts(below=MUCH_LESS_THAN_ONE_RTT)),
    claim("T049", "0-RTT connects in 1.17 RTT", connect("0-RTT"), trips(1)),
    claim("T050", "1-RTT connects in 1.4 RTT", connect("1-RTT"), trips(1)),
    claim("T051", "The DoQ handshake takes 1.43 RTT", HANDSHAKE, trips(1)),
    claim("T052", "On fiber 1-RTT connects in 1.25 RTT at the least", connect("1-RTT").on("fiber").at(0), trips(1)),
    claim("T053", "On fiber 1-RTT connects in 1.56 RTT (P20)", connect("1-RTT").on("fiber").at(0.2), trips(1)),
    claim("T054", "On fiber 0-RTT connects in 1.12 RTT at the least", connect("0-RTT").on("fiber").at(0), trips(1)),
    claim("T055", "On fiber 0-RTT connects in 1.21 RTT (P20)", connect("0-RTT").on("fiber").at(0.2), trips(1)),
    claim("T056", "On fiber 0-RTT connects in 1.23 RTT", connect("0-RTT").on("fiber"), trips(1)),
    claim("T057", "On fiber 1-RTT connects in 1.61 RTT", connect("1-RTT").on("fiber"), trips(1)),
    claim(
        "T058",
        "On fiber 0-RTT connects 0.38 RTT sooner",
        connect("1-RTT").on("fiber") - connect("0-RTT").on("fiber"),
        in_rtts,
    ),
    claim(
        "T059",
        "On fiber connect durations have a long upper tail",
        {
            f"H3 {h3} connect": connect(h3).on("fiber").spread(0.5, 0.99) - connect(h3).on("fiber").spread(0.01, 0.5)
            for h3 in ("1-RTT", "0-RTT")
        },
        ordering("RTT", "median to P99 longer than P1 to median, 95 % interval of the difference excludes 0"),
    ),
    claim(
        "T060",
        "On fiber connect durations vary less with 0-RTT",
        descending({h3: connect(h3).on("fiber").spread() for h3 in ("1-RTT", "0-RTT")}),
        ordering("RTT"),
    ),
    claim("T061", "On 4G 1-RTT connects in 1.12 RTT", connect("1-RTT").on("4g"), trips(1)),
    claim("T062", "On 4G 0-RTT connects in 1.06 RTT", connect("0-RTT").on("4g"), trips(1)),
    claim("T063", "On 4G 0-RTT connects in 1.02 RTT at the least", connect("0-RTT").on("4g").at(0), trips(1)),
    claim("T064", "On 4G 0-RTT connects in 1.07 RTT at the most", connect("0-RTT").on("4g").at(1), trips(1)),
    step("T065", "4G is the first step of the 0-RTT connect CDF", connect("0-RTT"), "4g", 0.0, 0.2),
    step("T066", "4G medium is the second step of the 0-RTT connect CDF", connect("0-RTT"), "4g-medium", 0.2, 0.4),
    step("T067", "Cable is the third step of the 0-RTT connect CDF", connect("0-RTT"), "cable", 0.4, 0.6),
    step("T068", "Fiber is the fourth step of the 0-RTT connect CDF", connect("0-RTT"), "fiber", 0.6, 0.8),
    step("T069", "DSL is the last step of the 0-RTT connect CDF", connect("0-RTT"), "dsl", 0.8, 1.0),
    claim(
        "T070",
        "Connect durations vary less on 4G than on fiber",
        _fiber_over_4g({h3: connect(h3) for h3 in ("1-RTT", "0-RTT")}),
        _WIDER_ON_FIBER,
    ),
    # IV-B: DNS exchanges
    claim("T076", "No DoUDP exchange timed out", udp_failures, counted("failed exchanges")),
    claim("T077", "DoUDP takes 1.03 RTT", exchange("DoUDP"), trips(1)),
    claim("T078", "DoUDP takes 1.16 RTT at the most", exchange("DoUDP").at(1), trips(1)),
    claim("T079", "DoQ takes 2.5 RTT", exchange("DoQ"), trips(2)),
    claim("T080", "DoQ takes 2.07 RTT at the least", exchange("DoQ").at(0), trips(2)),
    claim("T081", "DoQ takes 3.0 RTT at the most", exchange("DoQ").at(1), trips(2)),
    claim("T082", "DoH takes 3.43 RTT", exchange("DoH"), trips(3)),
    claim("T083", "DoH takes 3.05 RTT at the least", exchange("DoH").at(0), trips(3)),
    claim("T084", "DoH takes 3.89 RTT at the most", exchange("DoH").at(1), trips(3)),
    claim("T085", "DoH takes about one RTT more than DoQ", SAVED_EXCHANGE, in_rtts),
    claim(
        "T086",
        "The CDFs of DoQ and DoH have five steps, one a link",
        minimum(exchange(protocol).by(steps) for protocol in ("DoQ", "DoH")),
        counted("steps", Sign()).to(PUBLISHED_STEPS),
    ),
    claim("T087", "The CDF of DoUDP has no steps", exchange("DoUDP").by(steps), counted("steps")),
    claim("T088", "On fiber DoQ takes 2.36 RTT at the least", exchange("DoQ").on("fiber").at(0), trips(2)),
    claim("T089", "On fiber DoH takes 3.34 RTT at the least", exchange("DoH").on("fiber").at(0), trips(3)),
    claim("T090", "On fiber DoQ takes 2.78 RTT", exchange("DoQ").on("fiber"), trips(2)),
    claim("T091", "On fiber DoH takes 3.71 RTT", exchange("DoH").on("fiber"), trips(3)),
    claim("T092", "On 4G DoQ takes 2.08 RTT at the least", exchange("DoQ").on("4g").at(0), trips(2)),
    claim("T093", "On 4G DoQ takes 2.13 RTT", exchange("DoQ").on("4g"), trips(2)),
    claim("T094", "On 4G DoH takes 3.05 RTT at the least", exchange("DoH").on("4g").at(0), trips(3)),
    claim("T095", "On 4G DoH takes 3.12 RTT", exchange("DoH").on("4g"), trips(3)),
    claim(
        "T096",
        "Exchanges vary less on 4G than on fiber",
        _fiber_over_4g({protocol: exchange(protocol) for protocol in ("DoQ", "DoH")}),
        _WIDER_ON_FIBER,
    ),
    claim("T097", "The left tail of the exchanges shrinks with the RTT, longest on fiber", _LEFT_TAILS, _TAILS_FALL),
    claim("T098", "On DSL DoQ takes 2.94 RTT", exchange("DoQ").on("dsl"), trips(2)),
    claim("T099", "On DSL DoH takes 3.51 RTT", exchange("DoH").on("dsl"), trips(3)),
    claim("T100", "On DSL a DoQ query takes 1.37 RTT", QUERY.on("dsl"), trips(1)),
    claim("T101", "On DSL a DoQ query takes 1.35 RTT at the least", QUERY.on("dsl").at(0), trips(1)),
    claim("T102", "On DSL a DoQ query takes 1.42 RTT at the most", QUERY.on("dsl").at(1), trips(1)),
    claim(
        "T103",
        "On all links except DSL a DoQ query takes 1.0 RTT or more",
        minimum(over_links(QUERY, FAST)),
        rtts(above=1.0),
    ),
    claim(
        "T104",
        "On all links except DSL a DoQ query takes 1.05 RTT or less",
        maximum(over_links(QUERY, FAST)),
        rtts(below=1.05),
    ),
    claim("T105", "A DoUDP lookup takes 1.03 RTT", exchange("DoUDP"), trips(1)),
    claim("T106", "The TCP RTT is 1.07 RTT", TCP_RTT, trips(1)),
    claim("T107", "A DoQ query takes 1.04 RTT", QUERY, trips(1)),
    risen_step("T108", "DSL raises the last step of the DoQ query CDF", QUERY, "dsl"),
    risen_step("T109", "Cable raises the last step of the TCP RTT CDF", TCP_RTT, "cable"),
    claim("T110", "On cable the TCP RTT is 1.1 RTT at the least", TCP_RTT.on("cable").at(0), trips(1)),
    claim("T111", "On cable the TCP RTT is 1.26 RTT", TCP_RTT.on("cable"), trips(1)),
    claim("T112", "On cable the TCP RTT is 1.27 RTT at the most", TCP_RTT.on("cable").at(1), trips(1)),
    claim("T113", "On cable DoUDP takes 1.06 RTT at the most", exchange("DoUDP").on("cable").at(1), rtts(below=1.06)),
    claim("T114", "On cable a DoQ query takes 1.13 RTT at the most", QUERY.on("cable").at(1), rtts(below=1.13)),
    claim(
        "T115",
        "On cable the TCP RTT is above DoQ query and DoUDP lookup at all percentiles",
        {
            f"TCP RTT over {name} at P{q * 100:.0f}": TCP_RTT.on("cable").at(q) - series.on("cable").at(q)
            for name, series in (("DoQ query", QUERY), ("DoUDP", exchange("DoUDP")))
            for q in (0.05, 0.25, 0.5, 0.75, 0.95)
        },
        ordering("RTT", "95 % interval of each paired difference excludes 0"),
    ),
    claim("T116", "Except on DSL DoH takes about one RTT more than DoQ", farthest_from_one, in_rtts),
    # IV-C: relative PLT
    claim(
        "T122",
        "DoH + H3 1-RTT has the highest PLT in all 15 cells",
        {
            f"over {less}, {link}, {page}": within(DOH, less, page, in_rtts=True).on(link)
            for link, page, less in product(LINKS, PAGES, (DOQ, COALESCING))
        },
        ordering("RTT"),
    ),
    claim(
        "T123",
        "The worst case is DoH on 4G medium with example.org, 53.7 %",
        increase(DOH, EXAMPLE).on("4g-medium"),
        in_percent,
    ),
    claim("T124", "The increase is highest on example.org", _EXAMPLE_HIGHEST, ordering("points")),
    claim(
        "T125",
        "The increase is higher on wikipedia.org than on instagram.com in almost all cells",
        {
            f"{combination}, {link}": (increase(combination, WIKIPEDIA) - increase(combination, INSTAGRAM)).on(link)
            for combination, link in product(ENCRYPTED, LINKS)
            if (combination, link) != (COALESCING, "fiber")
        },
        ordering("points", "12 of the 14 cells beside the exception: 95 % interval of the difference excludes 0", 12),
    ),
    claim(
        "T126",
        "In most columns of Fig. 8 the increase rises with the RTT",
        {
            f"{combination}, {page}": minimum(
                increase(combination, page).on(following) - increase(combination, page).on(link)
                for link, following in pairwise(LINKS)
            )
            for combination, page in product(ENCRYPTED, PAGES)
        },
        ordering(
            "points",
            "5 of the 9 columns rise from each link to the next, 95 % interval of the least rise excludes 0",
            5,
        ),
    ),
    claim(
        "T127",
        "DoQ costs example.org more on DSL than on 4G medium, and more on 4G medium than on 4G",
        descending({link: increase(DOQ, EXAMPLE).on(link) for link in ("dsl", "4g-medium", "4g")}),
        ordering("points"),
    ),
    claim("T128", "DoH costs instagram.com 5.84 % on DSL", increase(DOH, INSTAGRAM).on("dsl"), in_percent),
    claim("T129", "DoH costs instagram.com 6.03 % on fiber", increase(DOH, INSTAGRAM).on("fiber"), in_percent),
    claim("T130", "60 % of the PLTs of example.org on fiber are in a first mode", _FIRST_MODE, percent_of_loads),
    claim(
        "T131",
        "40 % of the PLTs of example.org on fiber are in a second, higher mode",
        100 - _FIRST_MODE,
        percent_of_loads,
    ),
    claim(
        "T132",
        "The two modes of example.org on fiber appear first in domInteractive",
        {
            "domInteractive": Limited(
                median("H3 1-RTT DOM interactive", EXAMPLE).on("fiber").by(modes), 1.5, upper=False
            ),
            "responseEnd": Limited(median("H3 1-RTT response end", EXAMPLE).on("fiber").by(modes), 1.5, upper=True),
        },
        ordering("modes", "responseEnd has one mode and domInteractive two"),
    ),
    claim(
        "T133",
        "Except on fiber example.org has a short left tail, up to P10",
        {
            f"{combination}, {link}": tail_excess(combination, EXAMPLE).on(link)
            for combination, link in product(ENCRYPTED, LINKS[1:])
        },
        ordering("points", f"P5 to P20 longer than {TAIL_RATIO} times P20 to median, each 95 % interval excludes 0"),
    ),
    claim("T134", "DoQ costs example.org on cable 14.5 % (P10)", increase(DOQ, EXAMPLE, 0.1).on("cable"), in_percent),
    claim("T135", "DoQ costs example.org on cable 19.6 % (P20)", increase(DOQ, EXAMPLE, 0.2).on("cable"), in_percent),
    claim("T136", "DoQ costs example.org on cable 21.8 %", increase(DOQ, EXAMPLE).on("cable"), in_percent),
    claim(
        "T137",
        "The left tail is longest on wikipedia.org, and instagram.com has none",
        by_page(
            lambda page: mean(left_tail(*which).on(link) for *which, link in product(ENCRYPTED, [page], LINKS)),
            WIKIPEDIA,
            EXAMPLE,
            INSTAGRAM,
        ),
        ordering("points", "P5 to median, mean of 15 curves, differs with a 95 % interval that excludes 0"),
    ),
    claim(
        "T138",
        "Combinations differ most on example.org and least on instagram.com",
        descending(_OF_DOH),
        ordering("points", "DoH less coalescing, mean over the links, falls with complexity; 95 % intervals exclude 0"),
    ),
    claim(
        "S007",
        "The talk: combinations differ most on wikipedia.org and least on instagram.com",
        {
            "wikipedia.org over example.org": _OF_DOH[WIKIPEDIA] - _OF_DOH[EXAMPLE],
            "example.org over instagram.com": _OF_DOH[EXAMPLE] - _OF_DOH[INSTAGRAM],
        },
        ordering("points"),
    ),
    points_between("T139", DOQ, COALESCING, WIKIPEDIA, "fiber"),
    points_between("T140", DOH, DOQ, WIKIPEDIA, "fiber"),
    points_between("T141", DOH, DOQ, WIKIPEDIA, "4g"),
    points_between("T142", DOQ, COALESCING, WIKIPEDIA, "4g"),
    points_between("T143", DOQ, COALESCING, INSTAGRAM, "fiber"),
    points_between("T144", DOH, DOQ, INSTAGRAM, "fiber"),
    points_between("T145", DOQ, COALESCING, INSTAGRAM, "4g"),
    points_between("T146", DOH, DOQ, INSTAGRAM, "4g"),
    claim(
        "T147",
        "Except on DSL, the time that DoQ saves compared with DoH grows with the RTT",
        descending({link: SAVED_EXCHANGE_MS.on(link) for link in reversed(FAST)}),
        ordering("ms", "rises from link to link (DSL left out), each 95 % interval excludes 0"),
    ),
    claim(
        "T148",
        "The saving by 0-RTT does not grow with the RTT",
        saving_per_rtt,
        Number(tolerance=IN_RTTS, unit="ms per ms of RTT").to(0.0),
    ),
    claim(
        "T149",
        "With a larger delay 0-RTT saves less, and DoQ saves more compared with DoH",
        {
            "0-RTT saving, fixed line over mobile": mean(over_links(over_pages(DOQ, COALESCING), FIXED))
            - mean(over_links(over_pages(DOQ, COALESCING), MOBILE)),
            "saving of DoQ over DoH, mobile over fixed line": mean(over_links(over_pages(DOH, DOQ), MOBILE))
            - mean(over_links(over_pages(DOH, DOQ), FIXED)),
        },
        ordering("points"),
    ),
    # IV-D: absolute PLT
    in_ms("T155", BASELINE, WIKIPEDIA, "fiber"),
    in_ms("T156", COALESCING, WIKIPEDIA, "fiber"),
    claim(
        "T271",
        "On fiber coalescing loads wikipedia.org as fast as the baseline at all percentiles",
        within_distance({f"P{q * 100:.0f}": _over_baseline(q) for q in (0.2, 0.5, 0.8)}, 0.0, RELATIVE.at_least),
        ordering("%", f"95 % interval of each difference within {RELATIVE.at_least:g} %"),
    ),
    in_ms("T158", BASELINE, WIKIPEDIA, "fiber", 0.25),
    in_ms("T159", BASELINE, WIKIPEDIA, "fiber", 0.75),
    claim(
        "T160",
        "On fiber P75 minus P25 of the PLT of wikipedia.org is 26.6 ms with the baseline",
        plt(BASELINE, WIKIPEDIA).on("fiber").spread(0.25, 0.75),
        absolute_ms,
    ),
    in_ms("T161", COALESCING, WIKIPEDIA, "fiber", 0.25),
    in_ms("T162", COALESCING, WIKIPEDIA, "fiber", 0.75),
    claim(
        "T163",
        "On fiber P75 minus P25 of the PLT of wikipedia.org is 24.9 ms with coalescing",
        plt(COALESCING, WIKIPEDIA).on("fiber").spread(0.25, 0.75),
        absolute_ms,
    ),
    in_ms("T164", DOQ, WIKIPEDIA, "fiber"),
    in_ms("T165", DOH, WIKIPEDIA, "fiber"),
    ms_between("T166", DOH, DOQ, WIKIPEDIA, "fiber"),
    ms_between("T167", DOQ, COALESCING, WIKIPEDIA, "fiber"),
    claim(
        "T168",
        "On fiber coalescing saves wikipedia.org more than one RTT",
        {"saving": Limited(within(DOQ, COALESCING, WIKIPEDIA, in_rtts=True).on("fiber"), 1.0, upper=False)},
        ordering("RTT", "95 % interval of the saving above 1 RTT"),
    ),
    ms_between("T169", DOQ, COALESCING, WIKIPEDIA, "4g"),
    in_ms("T170", COALESCING, WIKIPEDIA, "4g"),
    in_ms("T171", BASELINE, WIKIPEDIA, "4g"),
    ms_between("T172", COALESCING, BASELINE, WIKIPEDIA, "4g"),
    in_ms("T173", DOQ, WIKIPEDIA, "4g"),
    ms_between("T174", DOQ, BASELINE, WIKIPEDIA, "4g"),
    ms_between("T175", DOH, DOQ, WIKIPEDIA, "4g"),
    claim(
        "T177",
        "On fiber instagram.com takes longer than wikipedia.org",
        {name: (plt(name, INSTAGRAM) - plt(name, WIKIPEDIA)).on("fiber") for name in (BASELINE, *ENCRYPTED)},
        ordering("ms"),
    ),
    ms_between("T178", DOQ, COALESCING, INSTAGRAM, "fiber"),
    claim(
        "T179",
        "On fiber 0-RTT saves wikipedia.org more than instagram.com",
        by_page(lambda page: within(DOQ, COALESCING, page).on("fiber"), WIKIPEDIA, INSTAGRAM),
        ordering("ms"),
    ),
    in_ms("T180", BASELINE, INSTAGRAM, "fiber"),
    in_ms("T181", COALESCING, INSTAGRAM, "fiber"),
    ms_between("T182", COALESCING, BASELINE, INSTAGRAM, "fiber"),
    ms_between("T183", DOQ, BASELINE, INSTAGRAM, "fiber"),
    in_ms("T184", DOQ, INSTAGRAM, "fiber"),
    in_ms("T185", DOH, INSTAGRAM, "fiber"),
    ms_between("T186", DOH, DOQ, INSTAGRAM, "fiber"),
    ms_between("T187", DOH, DOQ, INSTAGRAM, "4g"),
    ms_between("T188", DOQ, COALESCING, INSTAGRAM, "4g"),
    claim(
        "T189",
        "0-RTT saves instagram.com more on 4G than on fiber",
        descending({link: _SAVED_INSTAGRAM.on(link) for link in ("4g", "fiber")}),
        ordering("ms"),
    ),
    claim(
        "T190",
        "0-RTT saves wikipedia.org more on fiber than on 4G",
        descending({link: _SAVED_WIKIPEDIA.on(link) for link in ("fiber", "4g")}),
        ordering("ms"),
    ),
    claim(
        "T191",
        "DoQ costs more than one RTT, compared with DoUDP",
        {
            f"{link}, {page}": Limited(within(DOQ, BASELINE, page, in_rtts=True).on(link), 1.0, upper=False)
            for link, page in product(LINKS, PAGES)
        },
        Ordering(unit="RTT", criterion="95 % interval of each difference above 1 RTT"),
    ),
    claim(
        "T192",
        "DoH costs about one RTT more than DoQ",
        median_of(within(DOH, DOQ, page, in_rtts=True).on(link) for link, page in product(LINKS, PAGES)),
        in_rtts,
    ),
    claim(
        "T193",
        "Coalescing helps most where the RTT is low",
        {
            f"fiber over {link}": over_pages(DOQ, COALESCING).on("fiber") - over_pages(DOQ, COALESCING).on(link)
            for link in LINKS[1:]
        },
        ordering("points", "saving of 0-RTT relative to the baseline, mean over the pages, greatest on fiber"),
    ),
    # Summary
    claim(
        "T195",
        "Coalescing matches the baseline in one cell",
        Derived(lambda *xs: np.sum(np.array(xs) <= MATCHES_PERCENT, axis=0), tuple(cells(increase, COALESCING))),
        counted("cells", Sign()),
    ),
    claim(
        "T196",
        "The median PLT increase of coalescing over all links and pages is 7.3 %",
        median_of(cells(increase, COALESCING)),
        in_percent,
    ),
    claim(
        "T197",
        "The median PLT increase of DoQ + H3 1-RTT over all links and pages is 10.8 %",
        median_of(cells(increase, DOQ)),
        in_percent,
    ),
    claim(
        "T198",
        "The median PLT increase of DoH + H3 1-RTT over all links and pages is 14.7 %",
        median_of(cells(increase, DOH)),
        in_percent,
    ),
    claim("T199", "The largest PLT increase of coalescing is 26.0 %", worst(COALESCING), in_percent),
    claim("T200", "The largest PLT increase of DoQ + H3 1-RTT is 31.9 %", worst(DOQ), in_percent),
    claim("T201", "The largest PLT increase of DoH + H3 1-RTT is 53.7 %", worst(DOH), in_percent),
    claim(
        "T202",
        "In the worst case DoH and DoQ differ more than DoQ and coalescing",
        {"DoH - DoQ over DoQ - coalescing": (worst(DOH) - worst(DOQ)) - (worst(DOQ) - worst(COALESCING))},
        ordering("points"),
    ),
    claim(
        "T203",
        "0-RTT saves less than one round-trip of the PLT",
        within("H3 1-RTT PLT", "H3 0-RTT PLT", *PAGES, in_rtts=True),
        rtts(below=1.0),
    ),
    claim(
        "T205",
        "0-RTT connects sooner by more RTTs on fiber than on 4G",
        descending({link: SAVED_CONNECT.on(link) for link in ("fiber", "4g")}),
        ordering("RTT"),
    ),
    claim(
        "T206",
        "The part of the connect duration that 0-RTT saves, in RTTs, is smallest on 4G",
        {f"{link} over 4G": SAVED_CONNECT.on(link) - SAVED_CONNECT.on("4g") for link in LINKS if link != "4g"},
        ordering("RTT"),
    ),
    claim(
        "T207",
        "The share of processing in the connect duration falls with the RTT",
        descending({link: 1 - 1 / connect("1-RTT").on(link) for link in FAST}),
        ordering("", "falls from link to link (DSL left out), each 95 % interval excludes 0"),
    ),
    claim(
        "T208",
        "On fiber DoQ and DoH have a left tail",
        {
            protocol: exchange(protocol).on("fiber").spread(0.01, 0.5)
            - exchange(protocol).on("fiber").spread(0.5, 0.99)
            for protocol in ("DoQ", "DoH")
        },
        ordering("RTT", "P1 to median longer than median to P99, 95 % interval of the difference excludes 0"),
    ),
    claim(
        "T209",
        "Only DoUDP takes as long as its round-trips",
        {
            **within_distance({"DoUDP": exchange("DoUDP")}, 1.0, IN_RTTS.at_least),
            "DoQ": Limited(exchange("DoQ"), 2.0, upper=False),
            "DoH": Limited(exchange("DoH"), 3.0, upper=False),
        },
        ordering("RTT", "DoUDP within 0.15 of 1, DoQ above 2, DoH above 3 RTT, with 95 % intervals"),
    ),
    claim("T210", "On DSL DoH takes only 0.57 RTT more than DoQ", SAVED_EXCHANGE.on("dsl"), in_rtts),
    claim("T211", "The left tail of the exchanges shrinks with the RTT", _LEFT_TAILS, _TAILS_FALL),
    claim("T213", "On fiber PLTs of example.org come in two steps", _MODES, counted("modes")),
    claim(
        "T214",
        "The joint saving of DoQ and 0-RTT falls with the complexity of the page",
        by_page(lambda page: mean(over_links(reduction(page)))),
        ordering(
            "", "saving of coalescing over DoH, mean over the links, falls with complexity; 95 % intervals exclude 0"
        ),
    ),
    claim(
        "T215",
        "On fiber, coalescing saves more compared with DoQ than DoQ saves compared with DoH",
        {page: median({DOQ: 2.0, COALESCING: -1.0, DOH: -1.0}, page).on("fiber") for page in (WIKIPEDIA, INSTAGRAM)},
        ordering("ms"),
    ),
    claim(
        "T216",
        "On 4G, DoQ saves more compared with DoH than coalescing saves compared with DoQ",
        {page: median({DOQ: -2.0, COALESCING: 1.0, DOH: 1.0}, page).on("4g") for page in (WIKIPEDIA, INSTAGRAM)},
        ordering("ms"),
    ),
    ms_between("T217", DOH, DOQ, INSTAGRAM, "4g"),
    claim(
        "T218",
        "0-RTT sends the request less than one round-trip sooner",
        SENT_SOONER,
        rtts(below=1.0),
    ),
    claim(
        "T219",
        "The share of DNS in the PLT falls with the complexity of the page",
        by_page(lambda page: mean(over_links(increase(DOH, page)))),
        ordering("points", "DoH over DoUDP, mean over the links, falls with complexity; 95 % intervals exclude 0"),
    ),
    claim(
        "T220",
        "The saving by coalescing falls with the complexity of the page",
        by_page(lambda page: mean(over_links(points(DOQ, COALESCING, page)))),
        ordering("points", "saving of 0-RTT, mean over the links, falls with complexity; 95 % intervals exclude 0"),
    ),
    claim("T221", "On fiber PLTs of example.org have two central values", _MODES, counted("modes")),
    *fig_8(),
    claim("S006", "The talk: the increase is highest on example.org", _EXAMPLE_HIGHEST, ordering("points")),
    causes=CAUSES,
    remarks=REMARKS,
    follows=FOLLOWS,
    samples=SAMPLES,
)

_EXCHANGE = VALID_EXCHANGE & (pl.col("resumption") == "none")
_LOAD = VALID_LOAD & (pl.col("condition") == "main")
_START = pl.col("connect_start_ms")
_OF_LOADS = {
    "connect": pl.col("connect_ms") - _START,
    "until request": pl.col("request_start_ms") - _START,
    "PLT": pl.col("plt_ms"),
    "request start": pl.col("request_start_ms"),
    "response end": pl.col("response_end_ms"),
    "DOM interactive": pl.col("dom_interactive_ms"),
    "connect beyond the netlog's": pl.col("connect_ms") - _START - pl.col("netlog_handshake_ms"),
}
_OF_SERIES = {
    f"{protocol} {part}": (Source("dns_exchanges", _EXCHANGE & (pl.col("protocol") == protocol), pl.col(column)),)
    for protocol in TRANSPORTS
    for part, column in {"exchange": "total_ms", "handshake": "handshake_ms", "query": "query_ms"}.items()
} | {
    f"H3 {h3} {what}": (Source("page_loads", _LOAD & (pl.col("h3") == h3.lower()), value),)
    for h3, (what, value) in product(("1-RTT", "0-RTT"), _OF_LOADS.items())
}
SOURCES = (
    _OF_SERIES
    | {"TCP RTT": (Source("tcp_rtts", pl.col("error").is_null(), pl.col("rtt_ms")),)}
    | {name: tuple(source for term in terms for source in _OF_SERIES[term]) for name, terms in SHOWN.items()}
)
"""Table rows from which each series is computed; for a combination, the rows of its exchange and those of its load."""

CLAIMS = Claims(CHECKS, observed, ("dns_exchanges", "tcp_rtts", "page_loads", "link_checks"), SOURCES)
