"""Every result of Batenburg (Twente 2022) as a check on a campaign of the study `authoritative`.

The emulated path has one RTT, the paper's were the Internet's, "typically" of that RTT: its means belong to its paths
and machines as much as to the transports. So a mean counts as reproduced within 2 % or 0.5 ms, a variance within half
of the published one, and orderings only beyond doubt: where the path is the same for every transport, transports differ
by processing alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crosslayer import metrics
from crosslayer.claims import Claims
from crosslayer.claims.checks import Check, Number, Ordering, Shape
from crosslayer.claims.measures import Measure, minus, scaled
from crosslayer.claims.observed import FEWEST_ROUNDS, NotMeasured, Observed
from crosslayer.claims.tolerances import Tolerance
from crosslayer.metrics.resampling import MIN_ROUNDS, Counts, Estimate

LINKS = {"Local": "twente-local", "EU": "twente-eu", "US": "twente-us", "AU": "twente-au"}
PROTOCOLS = ("DoUDP", "DoT", "DoH", "DoQ")
"""What the paper measured, in the order of its tables."""

MEAN = Tolerance(at_least=0.5, share=0.02)
"""2 %, and half a millisecond at the least: what RTT and processing explain."""
VARIANCE = Tolerance(at_least=0.1, share=0.5)
"""Half of it: variances are fourth powers of little, and their own intervals are that wide."""
SECOND_PEAK_MS = (251.0, 253.0)
SECOND_PEAK_PERCENT = 10.0

_PATHS = (
    "The paper's paths were the Internet's, with RTTs of about, not exactly, 5, 85 and 248 ms, and its machines others."
)
_QUIET = (
    "The emulated path neither queues nor reroutes: variance is the machine's alone. The link twente-us-jitter adds."
)
_SAME_PATH = (
    "Over one and the same path UDP's single datagram cannot lose to QUIC's, which takes the same path and more "
    "processing. To see DoQ ahead it would take a path that treats them differently (another route or priority for UDP "
    "port 53, an address or flow hash onto another path, inspection of DNS), hours of measurement apart (the paper ran "
    "one protocol after the other), or another program for DoUDP."
)


class PacedObserved(Observed):
    """Queries on kept connections, by link and protocol, response times without BIND's; see `Observed`."""

    def __init__(self, *, paced_queries: pl.LazyFrame) -> None:
        columns = ("campaign", "round", "link", "protocol", "net_ms")
        rows = metrics.paced(paced_queries).select(columns).drop_nulls().collect(engine="streaming")
        rounds = rows.select("campaign", "round").unique().sort("campaign", "round").with_row_index("cluster")
        self._weights: Counts | None = None
        if rounds.height >= MIN_ROUNDS:
            self._weights = np.concatenate(list(metrics.drawn(rounds.height, rows.height)))
        self._series: dict[tuple[str, str], tuple[NDArray[np.float64], NDArray[np.intp]]] = {}
        numbered = rows.join(rounds, on=["campaign", "round"]).sort("cluster", "net_ms")
        for (link, protocol), part in numbered.partition_by(["link", "protocol"], as_dict=True).items():
            self._series[link, protocol] = (part["net_ms"].to_numpy(), part["cluster"].to_numpy().astype(np.intp))

    def moment(self, protocol: str, place: str, statistic: str) -> Estimate:
        """Mean (ms) or variance (ms²) of a transport at a location of the paper."""
        values, clusters = self._of(protocol, place)
        return metrics.estimate(values, clusters, statistic, self._weights)

    def share_percent(self, protocol: str, place: str, least_ms: float, most_ms: float) -> Estimate:
        """Share of responses that take between two times, percent."""
        values, clusters = self._of(protocol, place)
        inside = np.where((values >= least_ms) & (values < most_ms), 100.0, 0.0).astype(np.float64)
        return metrics.estimate(inside, clusters, "mean", self._weights)

    def _of(self, protocol: str, place: str) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
        if (LINKS[place], protocol) not in self._series:
            raise NotMeasured(f"no {protocol} on {LINKS[place]}")
        values, clusters = self._series[LINKS[place], protocol]
        if (rounds := len(np.unique(clusters))) < FEWEST_ROUNDS:
            raise NotMeasured(
                f"only {rounds} {'round' if rounds == 1 else 'rounds'} measured, a number needs {FEWEST_ROUNDS}"
            )
        return values, clusters


def _asked(ask: Callable[[PacedObserved], Estimate]) -> Measure:
    def measure(observed: Observed) -> Estimate:
        if not isinstance(observed, PacedObserved):
            raise NotMeasured("the study authoritative is not in this dataset")
        return ask(observed)

    return measure


def mean(protocol: str, place: str) -> Measure:
    """Mean response time, ms."""
    return _asked(lambda o: o.moment(protocol, place, "mean"))


def variance(protocol: str, place: str) -> Measure:
    """Variance of the response time, ms²."""
    return _asked(lambda o: o.moment(protocol, place, "variance"))


def ordering(measures: Mapping[str, Measure], unit: str, *, if_not: str = "") -> Check:
    """Each difference is above 0."""
    return Ordering(
        margins=lambda o: {name: measure(o) for name, measure in measures.items()},
        unit=unit,
        criterion="95 % interval of each difference excludes 0",
        if_not=if_not,
    )


def _greater(
    statistic: Callable[[str, str], Measure], pairs: Mapping[str, tuple[str, str]] | list[tuple[str, str]], *places: str
) -> dict[str, Measure]:
    """By name, how much more the first of each pair takes than the second, at each place."""
    return {
        f"{more} over {less}, {place}": minus(statistic(more, place), statistic(less, place))
        for place, (more, less) in product(places, pairs)
    }


_AWAY = ("EU", "US", "AU")
_OTHERS = [name for name in PROTOCOLS if name != "DoT"]
_PEAK = _asked(lambda o: o.share_percent("DoT", "AU", *SECOND_PEAK_MS))
_NUMBERED = list(product(PROTOCOLS, LINKS))

CHECKS: dict[str, Check] = {
    **{
        f"B{21 + number:03}": Number(measure=mean(*cell), tolerance=MEAN, unit="ms", if_not=_PATHS)
        for number, cell in enumerate(_NUMBERED)
    },
    **{
        f"B{37 + number:03}": Number(measure=variance(*cell), tolerance=VARIANCE, unit="ms²", if_not=_QUIET)
        for number, cell in enumerate(_NUMBERED)
    },
    "B053": ordering(_greater(mean, [("DoQ", "DoUDP")], "Local"), "ms"),
    "B054": ordering(_greater(mean, [("DoUDP", "DoQ")], *_AWAY), "ms", if_not=_SAME_PATH),
    "B055": ordering(_greater(variance, [("DoQ", "DoUDP")], *_AWAY), "ms²", if_not=_QUIET),
    "B056": ordering(_greater(mean, [("DoT", other) for other in _OTHERS], *_AWAY), "ms", if_not=_PATHS),
    "B057": ordering(_greater(variance, [("DoT", other) for other in _OTHERS], *_AWAY), "ms²", if_not=_QUIET),
    "B058": Shape(
        measure=_PEAK,
        level=SECOND_PEAK_PERCENT,
        direction=scaled(_PEAK, plus=-SECOND_PEAK_PERCENT / 2),
        unit="%",
        criterion=f"{SECOND_PEAK_PERCENT:g} % of the responses take {SECOND_PEAK_MS[0]:g} to {SECOND_PEAK_MS[1]:g} ms",
        said=f"the share of DoT responses of {SECOND_PEAK_MS[0]:g} to {SECOND_PEAK_MS[1]:g} ms is",
        remark="A second peak takes a second path, or something that waits for a timer; the emulated link has neither.",
    ),
    "B059": ordering(
        _greater(mean, [("DoH", "DoQ")], "EU", "US")
        | {f"variance, {name}": m for name, m in _greater(variance, [("DoH", "DoQ")], "EU", "US").items()},
        "ms, ms²",
        if_not=_PATHS,
    ),
    "B060": ordering(_greater(mean, [("DoQ", "DoH")], "AU"), "ms", if_not=_PATHS),
    "B061": ordering(
        _greater(mean, [(other, "DoQ") for other in PROTOCOLS if other != "DoQ"], "EU", "US"), "ms", if_not=_SAME_PATH
    ),
    "B062": ordering(_greater(mean, [("DoQ", "DoT"), ("DoQ", "DoUDP"), ("DoH", "DoQ")], "Local"), "ms"),
    "B063": ordering(
        _greater(mean, [("DoQ", "DoH"), ("DoUDP", "DoQ"), ("DoT", "DoUDP")], "AU"), "ms", if_not=_SAME_PATH
    ),
    "B068": ordering(_greater(variance, [("DoQ", "DoH")], "AU"), "ms²", if_not=_QUIET),
}
"""The check of each claim."""

CLAIMS = Claims(CHECKS, PacedObserved, ("paced_queries",))
