"""Every result of IMC22 section 3.2 (Kosek et al., 2022) as a check on a campaign of the study `web`.

The paper's pages and vantage points are not ours, so its statements are checked on what stands for them: the pages with
the fewest lookups for its simple pages, those with the most for its complex ones, and links by their RTT for its
vantage points by their distance (the link of the least RTT for Europe, where most of its resolvers are). One thing is
otherwise here by design: resolver and web server are behind the same link, where the paper's web servers are closer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise, product

import numpy as np
import polars as pl

from crosslayer import metrics
from crosslayer.claims import Claims
from crosslayer.claims.checks import Bound, Check, Number, Ordering, RoundTrips, Shape, Sign, Unmeasured
from crosslayer.claims.measures import Margins, Measure, greatest, least, mean, middle, minus, scaled
from crosslayer.claims.observed import NotMeasured, Observed
from crosslayer.claims.tolerances import EXACT, IN_RTTS, RELATIVE, SHARE, Tolerance
from crosslayer.metrics.resampling import Estimate, derived

BASELINE = "DoUDP"
OTHERS = ("DoTCP", "DoT", "DoH", "DoQ")
"""What the paper sets against DoUDP; DoH3 it does not have."""
RATIO = Tolerance(at_least=0.0, share=1 / 3)
ALMOST_ALL = 90.0
"""Percent of the cells that "almost all cases" is taken to mean."""

ONE_LINK = "Resolver and web server are behind the same link here."
NEAREST = "The link of the least RTT stands for Europe."


class WebObserved(Observed):
    """Observations of the study `web`, by series and cell.

    Notes
    -----
    Series, by transport: `DoQ PLT` and `DoQ FCP` (ms), `DoQ PLT increase` and `DoQ FCP increase` (percent over the
    median of DoUDP in the same cell), `DoQ lookup` (the first one, ms, by the stub's log); and `lookups` (count).
    """

    @staticmethod
    def series(dns_exchanges: pl.LazyFrame, tcp_rtts: pl.LazyFrame, page_loads: pl.LazyFrame) -> pl.LazyFrame:
        """See `Observed`."""
        del dns_exchanges, tcp_rtts
        loads = metrics.page_loads(page_loads).filter(pl.col("coupling") == "coupled")
        named = loads.with_columns(combination="dns_protocol")
        parts = [
            _named(named, "{} lookup", "stub_lookup_ms"),
            named.filter(pl.col("combination") == BASELINE).select(
                *metrics.ROUND, series=pl.lit("lookups"), value_ms=pl.col("lookup_count").cast(pl.Float64)
            ),
        ]
        for name, column in (("PLT", "plt_ms"), ("FCP", "fcp_ms")):
            of_kind = named.with_columns(plt_ms=column).filter(pl.col("plt_ms").is_not_null())
            parts += [
                _named(of_kind, f"{{}} {name}", "plt_ms"),
                _named(
                    metrics.relative_increase(of_kind, baseline=BASELINE), f"{{}} {name} increase", "increase_percent"
                ),
            ]
        return pl.concat(parts).filter(pl.col("value_ms").is_not_null())

    def rtt_ms(self, link: str) -> float:
        """Nominal RTT of a link of this campaign, ms."""
        if link not in self._rtts:
            raise NotMeasured(f"the RTT of {link} is not known")
        return float(self._rtts[link])

    def pages(self, series: str, link: str) -> tuple[str, ...]:
        """Pages with observations of a series on a link."""
        return tuple(sorted(page for name, where, page in self._cells if (name, where) == (series, link)))

    def some_links(self) -> tuple[str, ...]:
        """Links with loads, by ascending RTT; at least one."""
        if not self.links:
            raise NotMeasured("this campaign has no page loads over a stub")
        return self.links

    def by_lookups(self) -> list[tuple[int, tuple[str, ...]]]:
        """Numbers of lookups and the pages that have them, fewest first."""
        counts: dict[int, list[str]] = {}
        first = self.some_links()[0]
        for page in self.pages("lookups", first):
            counts.setdefault(round(self.sample("lookups", [first], [page]).quantile(0.5)), []).append(page)
        if not counts:
            raise NotMeasured(f"no {BASELINE} loads on {first}, whose lookups say which pages are simple")
        return [(count, tuple(pages)) for count, pages in sorted(counts.items())]

    def simple(self) -> tuple[str, ...]:
        """The pages with the fewest lookups."""
        return self.by_lookups()[0][1]

    def complex(self) -> tuple[str, ...]:
        """The pages with the most lookups."""
        found = self.by_lookups()
        if len(found) < 2:
            raise NotMeasured("all pages of this campaign have the same number of lookups")
        return found[-1][1]

    def share_above(self, series: str, bound: float) -> Estimate:
        """Percent of a series' observations, over all cells, that are above a bound."""
        sample = self.sample(series, self.some_links())
        held = (sample.values > bound).astype(np.float64)
        draws = None
        if self._weights is not None:
            rounds = self._weights.shape[1]
            every = self._weights @ np.bincount(sample.clusters, minlength=rounds)
            with np.errstate(invalid="ignore"):
                draws = self._weights @ np.bincount(sample.clusters, weights=held, minlength=rounds) / every * 100
        return Estimate(float(held.mean() * 100), sample.size, sample.rounds, draws)


def _named(loads: pl.LazyFrame, name: str, column: str) -> pl.LazyFrame:
    return loads.select(*metrics.ROUND, series=pl.format(name, "combination"), value_ms=column)


# What the checks compare


def _web(measure: Callable[[WebObserved], Estimate]) -> Measure:
    def of(observed: Observed) -> Estimate:
        assert isinstance(observed, WebObserved)
        return measure(observed)

    return of


def _margins(margins: Callable[[WebObserved], Mapping[str, Estimate]]) -> Margins:
    def of(observed: Observed) -> Mapping[str, Estimate]:
        assert isinstance(observed, WebObserved)
        found = margins(observed)
        if not found:
            raise NotMeasured("this takes several links, and the campaign has one")
        return found

    return of


def share_above(series: str, bound: float) -> Measure:
    """Percent of the loads above a bound."""
    return _web(lambda o: o.share_above(series, bound))


def share_up_to(series: str, bound: float) -> Measure:
    """Percent of the loads not above a bound."""
    return scaled(share_above(series, bound), -1.0, 100.0)


def quantile(series: str, q: float) -> Measure:
    """Quantile of a series over all cells."""
    return _web(lambda o: o.quantile(series, q, o.some_links()))


def over(protocol: str, other: str, link: str, page: str) -> Measure:
    """Median PLT over that of another transport in a cell, percent."""
    return lambda o: derived(
        lambda one, base: (one / base - 1) * 100,
        o.quantile(f"{protocol} PLT", 0.5, [link], [page]),
        o.quantile(f"{other} PLT", 0.5, [link], [page]),
    )


def faster(protocol: str, other: str, link: str, page: str) -> Measure:
    """By how much the median PLT is below that of another transport in a cell, percent of the other."""
    return scaled(over(protocol, other, link, page), -1.0)


def _cells(
    pages: Callable[[WebObserved], tuple[str, ...]], of_cell: Callable[[str, str], Measure]
) -> Callable[[WebObserved], list[Measure]]:
    return lambda o: [of_cell(link, page) for link, page in product(o.some_links(), pages(o))]


def greatest_of(pages: Callable[[WebObserved], tuple[str, ...]], of_cell: Callable[[str, str], Measure]) -> Measure:
    """The greatest over the cells of some pages."""
    return _web(lambda o: greatest(_cells(pages, of_cell)(o))(o))


def middle_of(pages: Callable[[WebObserved], tuple[str, ...]], of_cell: Callable[[str, str], Measure]) -> Measure:
    """The median over the cells of some pages."""
    return _web(lambda o: middle(_cells(pages, of_cell)(o))(o))


def _gain(link: str, pages: tuple[str, ...]) -> Measure:
    """Improvement of DoQ over DoH on a link, mean over pages."""
    return mean(faster("DoQ", "DoH", link, page) for page in pages)


def _slowdown(protocol: str, link: str, pages: tuple[str, ...]) -> Measure:
    """Slowdown against DoUDP on a link, mean over pages."""
    return mean(over(protocol, BASELINE, link, page) for page in pages)


def _all_pages(o: WebObserved) -> tuple[str, ...]:
    return tuple(page for _, pages in o.by_lookups() for page in pages)


def _by_page(of_link: Callable[[str, tuple[str, ...]], Measure]) -> Margins:
    """On each link: greater on the pages with the fewest lookups than on those with the most."""
    return _margins(
        lambda o: {
            f"{link}, fewest over most lookups": minus(of_link(link, o.simple()), of_link(link, o.complex()))(o)
            for link in o.some_links()
        }
    )


def _over_udp_share(o: WebObserved) -> Estimate:
    """Percent of the cells in which DoQ's median PLT is above DoUDP's."""
    cells = [over("DoQ", BASELINE, link, page)(o) for link, page in product(o.some_links(), _all_pages(o))]
    return Estimate(
        100 * sum(cell.value > 0 for cell in cells) / len(cells), min(c.n for c in cells), min(c.rounds for c in cells)
    )


def _faster_than_udp(o: WebObserved, link: str, pages: tuple[str, ...]) -> Estimate:
    """Percent of the rounds in which the load over DoQ was faster than that over DoUDP."""
    sample = o.sample({"DoQ PLT": 1.0, "DoUDP PLT": -1.0}, [link], pages)
    return o.value(float(np.mean(sample.values < 0) * 100), sample)


def _long_tail(o: WebObserved) -> dict[str, Estimate]:
    links = o.some_links()
    margins = {
        f"{link}, most over fewest lookups": derived(
            np.subtract, _faster_than_udp(o, link, o.complex()), _faster_than_udp(o, link, o.simple())
        )
        for link in links
    }
    if len(links) > 1:
        first, last = (_faster_than_udp(o, link, _all_pages(o)) for link in (links[0], links[-1]))
        margins[f"{links[0]} over {links[-1]}"] = derived(np.subtract, first, last)
    return margins


_GAIN_ON_SIMPLE = greatest_of(WebObserved.simple, lambda link, page: faster("DoQ", "DoH", link, page))
_SLOWDOWN_ON_SIMPLE = greatest_of(WebObserved.simple, lambda link, page: over("DoQ", BASELINE, link, page))
_SLOWDOWN_ON_COMPLEX = middle_of(WebObserved.complex, lambda link, page: over("DoQ", BASELINE, link, page))

CHECKS: Mapping[str, Check] = {
    "I001": Number(
        measure=_GAIN_ON_SIMPLE,
        tolerance=RELATIVE,
        unit="%",
        direction=Sign(),
        if_not=ONE_LINK,
        remark="The greatest of the cells of the pages with the fewest lookups, medians.",
    ),
    "I002": Number(
        measure=_SLOWDOWN_ON_COMPLEX,
        tolerance=RELATIVE,
        unit="%",
        direction=Sign(),
        if_not=ONE_LINK,
        remark="The median over links, pages with the most lookups.",
    ),
    "I108": Number(measure=share_up_to("DoQ FCP increase", 10.0), tolerance=SHARE, unit="%", if_not=ONE_LINK),
    "I109": Bound(
        measure=_web(lambda o: least([quantile("DoT FCP increase", 0.4), quantile("DoH FCP increase", 0.4)])(o)),
        above=20.0,
        tolerance=RELATIVE,
        unit="%",
        if_not=ONE_LINK,
    ),
    "I110": Number(measure=share_above("DoQ FCP increase", 20.0), tolerance=SHARE, unit="%", if_not=ONE_LINK),
    "I111": Number(
        measure=_web(
            lambda o: derived(np.divide, quantile("DoH FCP increase", 0.8)(o), quantile("DoQ FCP increase", 0.8)(o))
        ),
        tolerance=RATIO,
        unit="",
    ),
    "I112": Ordering(
        margins=_margins(
            lambda o: {
                f"DoTCP over DoQ on {link}": o.quantile({"DoTCP FCP": 1.0, "DoQ FCP": -1.0}, 0.5, [link])
                for link in o.some_links()
            }
        ),
        unit="ms",
        if_not="The paper's proxy opened a TCP connection for each query; our stub keeps one.",
    ),
    "I113": Number(
        measure=_web(lambda o: o.quantile("DoTCP lookup", 0.5, o.some_links(), in_rtts=True)),
        tolerance=IN_RTTS,
        unit="RTT",
        direction=RoundTrips(2),
        remark="Of the first lookup of a load; the others find our stub's connection open and take one.",
    ),
    "I114": Number(
        measure=mean(share_up_to(f"{protocol} FCP increase", 0.0) for protocol in OTHERS),
        tolerance=SHARE,
        unit="%",
        remark="The mean of the four transports.",
    ),
    "I117": Ordering(
        margins=_margins(
            lambda o: {
                f"{protocol}, FCP over PLT": minus(
                    quantile(f"{protocol} FCP increase", 0.5), quantile(f"{protocol} PLT increase", 0.5)
                )(o)
                for protocol in OTHERS
            }
        ),
        unit="points",
        criterion="median increase of FCP above that of PLT for each transport, 95 % interval excludes 0",
    ),
    "I118": Bound(measure=share_above("DoQ PLT increase", 15.0), below=15.0, tolerance=SHARE, unit="%"),
    "I119": Bound(
        measure=share_above("DoH PLT increase", 15.0), above=40.0, tolerance=SHARE, unit="%", if_not=ONE_LINK
    ),
    "I120": Ordering(
        margins=_margins(
            lambda o: {
                f"{protocol} over DoQ": minus(
                    quantile(f"{protocol} PLT increase", 0.5), quantile("DoQ PLT increase", 0.5)
                )(o)
                for protocol in ("DoH", "DoT", "DoTCP")
            }
        ),
        unit="points",
        if_not="Over a kept connection DoTCP and DoQ take as many round-trips.",
    ),
    "I121": Ordering(
        margins=_margins(
            lambda o: {"DoT over DoH": minus(quantile("DoT PLT increase", 0.5), quantile("DoH PLT increase", 0.5))(o)}
        ),
        unit="points",
        if_not="The paper found the cause in its proxy, which reconnected; our stub opens no second connection.",
    ),
    "I122": Unmeasured("the paper's proxy is not run: our stub opens no second connection while one is being set up"),
    "I123": Number(measure=_GAIN_ON_SIMPLE, tolerance=RELATIVE, unit="%", direction=Sign(), if_not=ONE_LINK),
    "I124": Number(
        measure=_web(lambda o: o.quantile("lookups", 0.5, o.some_links(), o.simple())),
        tolerance=EXACT,
        unit="lookups",
        remark="Of the pages that stand for the paper's two, as the stub counted them.",
    ),
    "I125": Ordering(
        margins=_margins(
            lambda o: {
                f"{link} over {o.some_links()[0]}": minus(
                    _gain(link, _all_pages(o)), _gain(o.some_links()[0], _all_pages(o))
                )(o)
                for link in o.some_links()[1:]
            }
        ),
        unit="points",
        remark=NEAREST,
    ),
    "I126": Ordering(margins=_by_page(_gain), unit="points"),
    "I127": Unmeasured("the links stand for distances, not for continents: there is no vantage point in Asia"),
    "I128": Shape(
        measure=_web(_over_udp_share),
        level=ALMOST_ALL,
        direction=scaled(_web(_over_udp_share), plus=-50.0),
        unit="%",
        criterion=f"in {ALMOST_ALL:g} % of the cells",
        said="cells in which the median PLT over DoQ is above that over DoUDP:",
    ),
    "I129": Number(measure=_SLOWDOWN_ON_SIMPLE, tolerance=RELATIVE, unit="%", direction=Sign(), if_not=ONE_LINK),
    "I130": Number(measure=_SLOWDOWN_ON_COMPLEX, tolerance=RELATIVE, unit="%", direction=Sign(), if_not=ONE_LINK),
    "I135": Ordering(
        margins=_by_page(lambda link, pages: _slowdown("DoH", link, pages)),
        unit="points",
        remark="Two of the three pages named are the paper's with the fewest lookups.",
    ),
    "I136": Ordering(
        margins=_margins(
            lambda o: {
                f"{far} over {near}": minus(_gain(far, _all_pages(o)), _gain(near, _all_pages(o)))(o)
                for near, far in pairwise(o.some_links())
            }
        ),
        unit="points",
    ),
    "I137": Ordering(
        margins=_margins(_long_tail),
        unit="points",
        criterion="share of the rounds in which DoQ was faster, greater with more lookups and on the nearest link",
        remark=NEAREST,
    ),
    "I138": Ordering(margins=_by_page(lambda link, pages: _slowdown("DoQ", link, pages)), unit="points"),
}
"""By claim identifier."""

CLAIMS = Claims(CHECKS, WebObserved, ("dns_exchanges", "tcp_rtts", "page_loads", "link_checks"))
