"""Claims of IMC22, section 3.2 (Kosek et al., 2022), judged on a campaign of the study `web`.

We have neither the paper's pages nor its vantage points, so the checks use substitutes. Pages with the fewest lookups
replace its simple pages, and those with the most lookups its complex pages. Links, ordered by RTT, replace its vantage
points, ordered by distance; the link with the shortest RTT stands for Europe, where most of the paper's resolvers are.
One difference is by design: here, resolver and web server are behind the same link. In the paper, web servers are
closer than resolvers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise, product
from typing import Any

import numpy as np
import polars as pl

from crosslayer import metrics
from crosslayer.claims import Claims
from crosslayer.claims.data import NotMeasured, Observed
from crosslayer.claims.measures import CustomMeasure, Derived, Measure, Share, maximum, mean, median, median_of, minimum
from crosslayer.claims.rows import VALID_LOAD, Source
from crosslayer.claims.rules import Bound, Cause, Number, Ordering, RoundTrips, Shape, Sign, by_id, claim
from crosslayer.claims.tolerances import EXACT, IN_RTTS, RELATIVE, SHARE, Tolerance
from crosslayer.metrics.resampling import Estimate

BASELINE = "DoUDP"
OTHERS = ("DoTCP", "DoT", "DoH", "DoQ")
"""Transports that the paper compares with DoUDP. It does not measure DoH3."""
RATIO = Tolerance(at_least=0.0, share=1 / 3)
ALMOST_ALL = 90.0
"""Percentage of cells that counts as "almost all cases"."""

LOSSY = ("fiber-loss", "4g-loss")
"""Two links that lose packets; the first has a shorter RTT than the second."""
ASIA, LINKEDIN = "asia", "professional-network"
"""Link and page that stand for the paper's vantage point in Asia and for linkedin.com."""

Pages = tuple[str, ...]


def observed(page_loads: pl.LazyFrame, lookups: pl.LazyFrame, link_checks: pl.LazyFrame) -> Observed:
    """Times and counts of loads and lookups by transport.

    The name of a series begins with its transport, here e.g. DoQ. The exception is the series `lookups`: number of
    lookups of each load over DoUDP.

    Series of loads: `DoQ PLT` and `DoQ FCP` (ms), `DoQ PLT increase` and `DoQ FCP increase` (percent over the median of
    DoUDP in the same cell), and `DoQ set up` (connections that the load opened).

    Series of lookups, from the stub's log: `DoQ lookup` (ms), `DoQ new` (1 if the lookup opened a connection, else 0),
    `DoQ again` (1 if the query was repeated, else 0). By default, measures omit links with loss; see `long_tail`.
    """
    loads = metrics.page_loads(page_loads).filter(pl.col("coupling") == "coupled")
    loads = loads.with_columns(combination="dns_protocol")
    of_baseline = loads.filter(pl.col("combination") == BASELINE)
    answered = lookups.filter(pl.col("error").is_null(), pl.col("condition") == "main").with_columns(
        combination="dns_protocol", again=pl.col("retries") > 0
    )
    rows = [
        answered.group_by(*metrics.ROUND, "combination")
        .agg(pl.col("new_connection").sum().cast(pl.Float64).alias("value"))
        .select(*metrics.ROUND, pl.format("{} set up", "combination").alias("series"), "value"),
        *(
            _rows(answered.with_columns(pl.col(column).cast(pl.Float64)), name, column)
            for name, column in (("{} lookup", "total_ms"), ("{} new", "new_connection"), ("{} again", "again"))
        ),
        of_baseline.select(*metrics.ROUND, series=pl.lit("lookups"), value=pl.col("lookup_count").cast(pl.Float64)),
    ]
    for name, column in (("PLT", "plt_ms"), ("FCP", "fcp_ms")):
        of_kind = loads.with_columns(plt_ms=column).filter(pl.col("plt_ms").is_not_null())
        increases = metrics.relative_increase(of_kind, baseline=BASELINE)
        rows += [
            _rows(of_kind, f"{{}} {name}", "plt_ms"),
            _rows(increases, f"{{}} {name} increase", "increase_percent"),
        ]
    every, rtts_ms = pl.concat(rows), dict(metrics.nominal_rtts(link_checks).collect().iter_rows())
    measured = set(every.select("link").unique().collect()["link"])
    links = [link for link in rtts_ms if link in measured and link not in LOSSY]
    return Observed(every, rtts_ms=rtts_ms, links=links)


def _rows(loads: pl.LazyFrame, name: str, column: str) -> pl.LazyFrame:
    return loads.select(*metrics.ROUND, series=pl.format(name, "combination"), value=column)


# Pages that stand for those of the paper


def by_lookups(o: Observed) -> list[tuple[int, Pages]]:
    """Each number of lookups with the pages that make so many, fewest lookups first."""
    counts: dict[int, list[str]] = {}
    first = o.links[0]
    for page in o.pages("lookups", first):
        counts.setdefault(round(median("lookups", page).on(first)(o).value), []).append(page)
    if not counts:
        raise NotMeasured(f"no {BASELINE} loads on {first}, whose lookups say which pages are simple")
    return [(count, tuple(pages)) for count, pages in sorted(counts.items())]


def every_page(o: Observed) -> Pages:
    """All pages of the campaign, fewest lookups first."""
    return tuple(page for _, pages in by_lookups(o) for page in pages)


def simple(o: Observed) -> Pages:
    """The pages with the fewest lookups."""
    return by_lookups(o)[0][1]


def complex_(o: Observed) -> Pages:
    """The pages with the most lookups."""
    groups = by_lookups(o)
    if len(groups) < 2:
        raise NotMeasured("all pages of this campaign have the same number of lookups")
    return groups[-1][1]


# Comparisons


def increase(protocol: str, what: str) -> Measure:
    """Increase of `what` (`PLT` or `FCP`) compared with DoUDP, percent: median of the medians of all cells."""
    return over_cells(f"{protocol} {what} increase", 0.5)


def over(protocol: str, other: str, page: str) -> Measure:
    """Increase of the median PLT of a page with `protocol` compared with `other`, percent."""
    return median(f"{protocol} PLT", page).over(median(f"{other} PLT", page))


def faster(page: str) -> Measure:
    """Decrease of the median PLT of a page with DoQ compared with DoH, percent."""
    return -1 * over("DoQ", "DoH", page)


def slowdown(protocol: str, page: str) -> Measure:
    """Increase of the median PLT of a page with `protocol` compared with DoUDP, percent."""
    return over(protocol, BASELINE, page)


def in_cells(
    combine: Callable[[list[Measure]], Measure], pages: Callable[[Observed], Pages], of: Callable[[str], Measure]
) -> Measure:
    """Measure that combines, e.g. by `maximum`, the values of another measure in all cells of some pages.

    `of` returns that other measure for a page.
    """
    return CustomMeasure(lambda o: combine([of(page).on(link) for link, page in product(o.links, pages(o))])(o))


def over_pages(of: Callable[[str], Measure], link: str, pages: Pages) -> Measure:
    """Mean of a measure over some pages on one link; `of` returns the measure for a page."""
    return mean(of(page).on(link) for page in pages)


def _share(holds: Callable[[Any], Any], cells: list[Measure]) -> Measure:
    return Derived(lambda *xs: 100 * np.mean(holds(np.array(xs)), axis=0), tuple(cells))


def by_complexity(of: Callable[[str], Measure]) -> Callable[[Observed], Mapping[str, Measure]]:
    """Margins by link: mean of a measure over the `simple` pages, minus its mean over the `complex_` pages.

    These are the pages with the fewest and with the most lookups. `of` returns the measure for a page.
    """
    return lambda o: {
        f"{link}, fewest over most lookups": over_pages(of, link, simple(o)) - over_pages(of, link, complex_(o))
        for link in o.links
    }


def gain_over_nearest(o: Observed) -> Mapping[str, Measure]:
    """Margins: gain of DoQ over DoH on each link minus the gain on the link with the shortest RTT."""
    near, *far = (over_pages(faster, link, every_page(o)) for link in o.links)
    return {f"{link} over {o.links[0]}": gain - near for link, gain in zip(o.links[1:], far, strict=True)}


def gain_by_distance(o: Observed) -> Mapping[str, Measure]:
    """Margins: gain of DoQ over DoH on each link minus the gain on the link with the next shorter RTT."""
    gains = {link: over_pages(faster, link, every_page(o)) for link in o.links}
    return {f"{far} over {near}": gains[far] - gains[near] for near, far in pairwise(o.links)}


def _percent_faster_than_udp(link: str, pages: Pages) -> Measure:
    """Percentage of rounds in which the load over DoQ was faster than that over DoUDP."""
    return median({"DoQ PLT": 1.0, "DoUDP PLT": -1.0}, *pages).on(link).by(_BELOW_0)


_BELOW_0 = Share(lambda ms: ms < 0)
_SOME = Share(lambda flag: flag > 0)


def long_tail(o: Observed) -> Mapping[str, Measure]:
    """Margins of the percentage of rounds in which the load over DoQ is faster than that over DoUDP.

    One margin for each link: percentage on the pages with the most lookups, minus that on the pages with the fewest.
    One further margin, over all pages: percentage on the link with the shortest RTT, minus that on the link with the
    longest RTT. If the campaign has links with loss, only these links are used.
    """
    of = _percent_faster_than_udp
    links = [link for link in LOSSY if o.pages("DoQ PLT", link)] or o.links
    margins = {f"{link}, most over fewest lookups": of(link, complex_(o)) - of(link, simple(o)) for link in links}
    first, last = links[0], links[-1]
    if first != last:
        margins[f"{first} over {last}"] = of(first, every_page(o)) - of(last, every_page(o))
    return margins


def over_cells(series: str, q: float) -> Measure:
    """Quantile `q` of the cells' medians of a series; the paper's distributions are over medians, too."""

    def quantile(cells: list[Measure]) -> Measure:
        return Derived(lambda *xs: np.quantile(xs, q, axis=0, method="median_unbiased"), tuple(cells))

    return in_cells(quantile, every_page, lambda page: median(series, page))


def share_of_cells(series: str, holds: Callable[[Any], Any]) -> Measure:
    """Percentage of cells whose median of a series meets `holds`; the paper's distributions are over medians, too."""
    return in_cells(partial(_share, holds), every_page, lambda page: median(series, page))


@CustomMeasure
def pooled_loads(o: Observed) -> Estimate:
    """Percentage of loads over DoT for which the stub opened more than one connection."""
    if median("DoTCP set up", *complex_(o))(o).value < 2:
        raise NotMeasured('the stub had one connection, as this plan says: needs one with connections = "paper"')
    return median("DoT set up", *every_page(o)).by(Share(lambda count: count > 1))(o)


@CustomMeasure
def in_asia(o: Observed) -> Estimate:
    """Gain of DoQ over DoH on the link `ASIA` with the page `LINKEDIN`, percent."""
    if LINKEDIN not in o.pages("DoQ PLT", ASIA):
        raise NotMeasured(f"this campaign has no link {ASIA} with the page {LINKEDIN}: needs one with both")
    return faster(LINKEDIN).on(ASIA)(o)


_GAIN_ON_SIMPLE = in_cells(maximum, simple, faster)
_SLOWDOWN_ON_COMPLEX = in_cells(median_of, complex_, partial(slowdown, "DoQ"))
_ABOVE_UDP = in_cells(partial(_share, lambda percent: percent > 0.0), every_page, partial(slowdown, "DoQ"))

# Rules of the claims, and causes of differences

up_to = Number(tolerance=RELATIVE, unit="%", direction=Sign(), up_to=True)
in_percent = Number(tolerance=RELATIVE, unit="%", direction=Sign())
percent_of_loads = Number(tolerance=SHARE, unit="%")
in_points = Ordering(unit="points", criterion="95 % interval of each paired difference excludes 0")

_SHARE = "The difference is {0} RTT, that of a handshake; the {1}{3} is {2} RTT here. "
_SLOWER = "In the paper, the same handshake is a smaller share. A guess: its pages compute longer."
_NEARER = (
    "In the paper, the same handshake is a larger share. A guess: the servers of its page were nearer than "
    "its resolver."
)


def _share_of(
    more: str,
    less: str,
    what: str,
    pages: Callable[[Observed], Pages],
    where: str = "",
    *links: str,
    why: str = _SLOWER,
) -> Cause:
    """Cause of a difference of `what` (PLT or FCP) between the transports `more` and `less`.

    It states two medians in RTTs: that of the difference, `more` minus `less`, and that of `what` with `more`.
    """

    def rtts(terms: Mapping[str, float], of: Observed) -> Estimate:
        statistic = median(terms, *pages(of), in_rtts=True)
        return (statistic.on(*links) if links else statistic)(of)

    one, other = f"{more} {what}", f"{less} {what}"
    text = _SHARE.format("{0}", what, "{1}", f" {where}" if where else "") + why
    return Cause(
        text, (CustomMeasure(partial(rtts, {one: 1.0, other: -1.0})), CustomMeasure(partial(rtts, {one: 1.0})))
    )


CAUSES: dict[Cause | str, str] = {
    _share_of("DoH", "DoQ", "PLT", simple, "of simple pages"): "I001 I123",
    _share_of("DoQ", BASELINE, "PLT", simple, "of simple pages"): "I129",
    _share_of("DoQ", BASELINE, "PLT", complex_, "of complex pages"): "I002 I130",
    _share_of("DoQ", BASELINE, "FCP", every_page): "I108 I110",
    _share_of("DoH", BASELINE, "FCP", every_page): "I109",
    _share_of("DoH", "DoQ", "PLT", lambda _: (LINKEDIN,), "of this page on this link", ASIA, why=_NEARER): "I127",
    _share_of("DoQ", BASELINE, "PLT", every_page): "I118",
    _share_of("DoH", BASELINE, "PLT", every_page): "I119",
    Cause(
        "A guess: in the paper, DoUDP queries were lost and waited for their timer, so other transports were faster. "
        "On our links without loss, {0} % of these queries were sent again. A median over rounds hides rare losses.",
        (median("DoUDP again").by(_SOME),),
    ): "I114",
    Cause(
        "The stub opens a second connection if the first is in use: for {0} % of the loads of pages with the "
        "fewest lookups, and for {1} % with the most. The paper's 60 % depend on its pages.",
        tuple(
            CustomMeasure(
                partial(lambda pages, o: median("DoT set up", *pages(o)).by(Share(lambda count: count > 1))(o), of)
            )
            for of in (simple, complex_)
        ),
    ): "I122",
    Cause(
        "{0} % of our DoTCP lookups opened a connection; the others used one that was open. The paper's proxy "
        "opened one for each lookup.",
        (median("DoTCP new").by(_SOME),),
    ): "I112 I113 I120",
    Cause(
        "The paper names its proxy as the cause: it opened a second DoT connection in 60 % of the loads. Our stub "
        "opens a new one for {0} % of the DoT lookups and {1} % of the DoH lookups.",
        (median("DoT new").by(_SOME), median("DoH new").by(_SOME)),
    ): "I121",
    Cause(
        "A DoUDP query takes longest if it is lost. On our links without loss, {0} % of these queries were sent "
        "again. If the campaign has links with loss, only these decide this claim.",
        (median("DoUDP again").by(_SOME),),
    ): "I137",
}
_OF_CELLS = "As in the paper's figure, the values are the medians of the combinations of link and page."
REMARKS: dict[Cause | str, str] = {
    "The largest median of all links and of the pages with the fewest lookups.": "I001",
    "The median over the links and the pages with the most lookups.": "I002",
    "The share is that of all lookups.": "I113",
    _OF_CELLS: "I108 I109 I110 I111 I117 I118 I119 I120 I121",
    f"{_OF_CELLS} The mean of the four transports.": "I114",
    "The lookups of the two pages that correspond to the paper's two, as the stub counted them.": "I124",
    "The link with the smallest RTT represents Europe.": "I125 I137",
    f"The link {ASIA} and the page {LINKEDIN}; every round is a case.": "I127",
    "The share of loads with a second connection. The stub opens one if the first is in use.": "I122",
    "Two of the three named pages are the pages of the paper with the fewest lookups.": "I135",
}
FOLLOWS = {
    "I123": "I001, the same number",
    "I130": "I002, the same number",
}

CHECKS = by_id(
    claim("I001", "On simple pages DoQ loads up to 10 % faster than DoH", _GAIN_ON_SIMPLE, up_to),
    claim("I002", "On complex pages DoQ loads about 2 % slower than DoUDP", _SLOWDOWN_ON_COMPLEX, in_percent),
    claim(
        "I108",
        "In 40 % of the cases DoQ delays the FCP by at most 10 %",
        share_of_cells("DoQ FCP increase", lambda percent: percent <= 10.0),
        percent_of_loads,
    ),
    claim(
        "I109",
        "At the same fraction (40 %) DoT and DoH delay the FCP by more than 20 %",
        minimum(over_cells(f"{protocol} FCP increase", 0.4) for protocol in ("DoT", "DoH")),
        Bound(above=20.0, unit="%"),
    ),
    claim(
        "I110",
        "In 20 % of the cases DoQ delays the FCP by more than 20 %",
        share_of_cells("DoQ FCP increase", lambda percent: percent > 20.0),
        percent_of_loads,
    ),
    claim(
        "I111",
        "DoH delays the FCP twice as much as DoQ (P80)",
        over_cells("DoH FCP increase", 0.8) / over_cells("DoQ FCP increase", 0.8),
        Number(tolerance=RATIO, unit=""),
    ),
    claim(
        "I112",
        "The FCP is later over DoTCP than over DoQ",
        lambda o: {
            f"DoTCP over DoQ on {link}": median({"DoTCP FCP": 1.0, "DoQ FCP": -1.0}).on(link) for link in o.links
        },
        Ordering(unit="ms", criterion="95 % interval of each paired difference excludes 0"),
    ),
    claim(
        "I113",
        "DoTCP takes two round-trips a query",
        median("DoTCP lookup", in_rtts=True),
        Number(tolerance=IN_RTTS, unit="RTT", direction=RoundTrips(2)),
    ),
    claim(
        "I114",
        "In 10 % of the cases the FCP is earlier than over DoUDP",
        mean(share_of_cells(f"{protocol} FCP increase", lambda percent: percent < 0.0) for protocol in OTHERS),
        percent_of_loads,
    ),
    claim(
        "I117",
        "The DNS protocol matters less to the PLT than to the FCP",
        {f"{protocol}, FCP over PLT": increase(protocol, "FCP") - increase(protocol, "PLT") for protocol in OTHERS},
        Ordering(
            unit="points",
            criterion="median increase of FCP above that of PLT for each transport, 95 % interval excludes 0",
        ),
    ),
    claim(
        "I118",
        "DoQ increases the PLT by more than 15 % in less than 15 % of the loads",
        share_of_cells("DoQ PLT increase", lambda percent: percent > 15.0),
        Bound(below=15.0, unit="%"),
    ),
    claim(
        "I119",
        "DoH increases the PLT by more than 15 % in more than 40 % of the loads",
        share_of_cells("DoH PLT increase", lambda percent: percent > 15.0),
        Bound(above=40.0, unit="%"),
    ),
    claim(
        "I120",
        "DoQ increases the PLT least",
        {f"{protocol} over DoQ": increase(protocol, "PLT") - increase("DoQ", "PLT") for protocol in OTHERS[:-1]},
        in_points,
    ),
    claim(
        "I121",
        "DoT increases the PLT more than DoH",
        {"DoT over DoH": increase("DoT", "PLT") - increase("DoH", "PLT")},
        in_points,
    ),
    claim(
        "I122",
        "In 60 % of the loads the proxy repeats the full handshake of DoT",
        pooled_loads,
        percent_of_loads,
    ),
    claim("I123", "On its simple pages DoQ loads up to 10 % faster than DoH", _GAIN_ON_SIMPLE, up_to),
    claim(
        "I124",
        "The pages that DoQ loads up to 10 % faster than DoH have one lookup",
        CustomMeasure(lambda o: median("lookups", *simple(o))(o)),
        Number(tolerance=EXACT, unit="lookups"),
    ),
    claim("I125", "The advantage of DoQ over DoH is smallest in Europe", gain_over_nearest, in_points),
    claim("I126", "The advantage of DoQ over DoH falls with the number of lookups", by_complexity(faster), in_points),
    claim(
        "I127",
        "From Asia DoQ loads linkedin.com more than 10 % faster than DoH in half of the cases",
        in_asia,
        Bound(above=10.0, unit="%"),
    ),
    claim(
        "I128",
        "In almost all cases DoQ loads slower than DoUDP",
        _ABOVE_UDP,
        Shape(
            level=ALMOST_ALL,
            direction=_ABOVE_UDP - 50.0,
            unit="%",
            criterion=f"in {ALMOST_ALL:g} % of the cells",
            label="cells in which the median PLT over DoQ is above that over DoUDP:",
        ),
    ),
    claim(
        "I129",
        "On its simple pages DoQ loads up to 10 % slower than DoUDP",
        in_cells(maximum, simple, partial(slowdown, "DoQ")),
        up_to,
    ),
    claim("I130", "On its complex pages DoQ loads about 2 % slower than DoUDP", _SLOWDOWN_ON_COMPLEX, in_percent),
    claim("I135", "Simple pages are the worst cases of DoH", by_complexity(partial(slowdown, "DoH")), in_points),
    claim("I136", "The advantage of DoQ over DoH rises with the distance", gain_by_distance, in_points),
    claim(
        "I137",
        "DoUDP is slower than DoQ more often in Europe and with more lookups",
        long_tail,
        Ordering(
            unit="points",
            criterion="share of the rounds in which DoQ was faster, greater with more lookups and on the nearest link",
        ),
    ),
    claim(
        "I138",
        "The disadvantage of DoQ against DoUDP falls with the number of lookups",
        by_complexity(partial(slowdown, "DoQ")),
        in_points,
    ),
    causes=CAUSES,
    remarks=REMARKS,
    follows=FOLLOWS,
    given={"I124": "the pages: they were made to have one lookup"},
)

_LOAD = VALID_LOAD & (pl.col("coupling") == "coupled") & (pl.col("condition") == "main")
_LOOKUP = pl.col("error").is_null() & (pl.col("condition") == "main")


def sources(protocol: str) -> dict[str, tuple[Source, ...]]:
    """Sources of each series of a transport. The source of an increase has the rows of this transport and of DoUDP."""
    of_protocol, of_baseline = (pl.col("dns_protocol") == name for name in (protocol, BASELINE))
    loads: dict[str, tuple[Source, ...]] = {
        f"{protocol} {what}{increase}": (
            Source("page_loads", _LOAD & (of_protocol | of_baseline if increase else of_protocol), pl.col(column)),
        )
        for what, column in {"PLT": "plt_ms", "FCP": "fcp_ms"}.items()
        for increase in ("", " increase")
    }
    lookups = {
        f"{protocol} {what}": (Source("lookups", _LOOKUP & of_protocol, value),)
        for what, value in {
            "lookup": pl.col("total_ms"),
            "new": pl.col("new_connection"),
            "set up": pl.col("new_connection"),
            "again": pl.col("retries") > 0,
        }.items()
    }
    return loads | lookups


SOURCES: dict[str, tuple[Source, ...]] = {
    "lookups": (Source("page_loads", _LOAD & (pl.col("dns_protocol") == BASELINE), pl.col("lookup_count")),)
}
for _protocol in (BASELINE, *OTHERS):
    SOURCES |= sources(_protocol)

CLAIMS = Claims(CHECKS, observed, ("page_loads", "lookups", "link_checks"), SOURCES)
