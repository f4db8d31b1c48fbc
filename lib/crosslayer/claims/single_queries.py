"""Checks of the results of IMC22 (Kosek et al., 2022, section 3.1) on single queries.

They work for every campaign that provides the series `DoQ handshake`, `DoQ resolve`, `DoQ exchange` (ms),
`DoQ response` (bytes) and so on. In these campaigns, a link is a pair of vantage point and resolver.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np

from crosslayer.claims.data import NotMeasured, Observed
from crosslayer.claims.measures import CustomMeasure, Derived, Measure, mean, median, minimum, total
from crosslayer.claims.rules import Bound, Cause, Check, Number, Ordering, Sign, claim, descending
from crosslayer.claims.tolerances import ABSOLUTE, BYTES, FRACTION, SHARE
from crosslayer.metrics.resampling import Estimate, derived
from crosslayer.vocabulary import PAPER_SERIES, SIZES_BY_PART, VANTAGE_POINTS

SENT, RECEIVED, QUERY, RESPONSE = SIZES_BY_PART
"""Names of the parts of an exchange whose bytes are counted."""


def size(series: str, *parts: str) -> Measure:
    """Sum of the median bytes of some parts of an exchange, by default of all parts, as in Table 1."""
    return total(median(f"{series} {part}") for part in parts or SIZES_BY_PART)


def exchange(series: str) -> Measure:
    """Median duration of an exchange in multiples of the RTT."""
    return median(f"{series} exchange", in_rtts=True)


def saved(faster: str, *slower: str) -> Measure:
    """Time that an exchange over one transport saves, compared with the mean of other transports, percent."""
    return (1 - exchange(faster) / mean(exchange(series) for series in slower)) * 100


@dataclass(frozen=True)
class Vantages:
    """Vantage points of the campaigns of a study."""

    point_of: Callable[[str], str | None]
    """Vantage point of a link; None if it has none."""
    needed: tuple[str, ...] = ()
    """Vantage points that a campaign must have for a statistic over all vantage points.

    If empty, the statistic uses all vantage points of the campaign.
    """

    def duration(self, series: str, part: str, *points: str) -> Measure:
        """Median duration of a part of an exchange over all resolvers of some vantage points, ms.

        By default, the vantage points are those of `needed`, or all of the campaign if `needed` is empty.
        """
        return median(f"{series} {part}").among(_seen_from(self, points or self.needed))

    def of(self, o: Observed) -> list[str]:
        """Vantage points of a campaign, by ascending RTT of their nearest resolver."""
        points = dict.fromkeys(point for link in o.links if (point := self.point_of(link)) is not None)
        if not points:
            raise NotMeasured("this campaign has no vantage point of the paper")
        return list(points)

    def spread_over_protocols(self, o: Observed) -> Estimate:
        """By how much the median resolve time of the slowest transport exceeds that of the fastest, percent.

        The result is the largest such value among the vantage points.
        """
        by_point = (
            Derived(
                lambda *xs: (np.max(xs, axis=0) / np.min(xs, axis=0) - 1) * 100,
                tuple(self.duration(series, "resolve", point) for series in PAPER_SERIES),
            )
            for point in self.of(o)
        )
        return max((measure(o) for measure in by_point), key=lambda estimate: estimate.value)

    def checks(self) -> list[Check]:
        """Checks of every result of section 3.1 of IMC22, with Table 1 and Fig. 2."""
        duration = self.duration
        resolving = {
            f"{VANTAGE_POINTS[slow]} over {VANTAGE_POINTS[fast]}": (
                duration("DoUDP", "resolve", slow) - duration("DoUDP", "resolve", fast)
            )
            for faster, slower in pairwise(_NEAR_TO_FAR)
            for fast in faster
            for slow in slower
        }
        return [
            claim("I006", "A query over DoQ takes 33 % less than over DoT and DoH", saved("DoQ", "DoT", "DoH"), _SAVED),
            *_table_1(),
            *(
                claim(
                    identifier,
                    f"{series} handshake over all vantage points, ms",
                    duration(series, "handshake"),
                    Number(tolerance=ABSOLUTE, unit="ms"),
                )
                for identifier, series in {"I089": "DoH", "I090": "DoT", "I091": "DoTCP", "I092": "DoQ"}.items()
            ),
            claim(
                "I093",
                "Handshakes of DoTCP and DoQ take half the time of DoH and DoT",
                (duration("DoTCP", "handshake") + duration("DoQ", "handshake"))
                / (duration("DoH", "handshake") + duration("DoT", "handshake")),
                Number(tolerance=FRACTION, unit=""),
            ),
            claim(
                "I097",
                "The resolve times of all protocols are about equal at each vantage point",
                CustomMeasure(self.spread_over_protocols),
                Bound(below=10, unit="%"),
                remark="Approximately equal is taken as: nowhere is the slowest transport 10 % above the fastest.",
            ),
            claim("I098", "Names are resolved fastest in Europe, then in Asia and North America", resolving, _LONGER),
            claim(
                "I100",
                "DoQ takes most bytes, then DoH, DoT, DoTCP and DoUDP",
                descending({series: size(series) for series in ("DoQ", "DoH", "DoT", "DoTCP", "DoUDP")}),
                _MORE_BYTES,
            ),
            claim(
                "I101",
                "The DoQ handshake has more than twice the bytes of DoH and DoT",
                minimum(size("DoQ", SENT, RECEIVED) / size(other, SENT, RECEIVED) for other in ("DoH", "DoT")),
                Bound(above=2, unit=""),
            ),
            claim(
                "I102",
                "Query and response take fewer bytes with DoQ than with DoH",
                {"DoH over DoQ": size("DoH", QUERY, RESPONSE) - size("DoQ", QUERY, RESPONSE)},
                _MORE_BYTES,
            ),
            claim(
                "I103",
                "A query over DoQ takes 33 % less than over DoT and DoH",
                saved("DoQ", "DoT", "DoH"),
                _SAVED,
                follows_from="I006, the same number",
            ),
            claim("I104", "DoQ falls 50 % short of DoUDP", saved("DoUDP", "DoQ"), _SAVED),
            claim("I105", "DoT and DoH fall 66 % short of DoUDP", saved("DoUDP", "DoT", "DoH"), _SAVED),
            claim(
                "I106",
                "DoQ takes about twice the bytes of DoH",
                size("DoQ") / size("DoH"),
                Number(tolerance=ABSOLUTE, unit=""),
                remark="Checked on the total.",
            ),
            claim(
                "I133",
                "The smaller queries of a reused DoQ connection compensate for the bytes of its handshake",
                {"bytes of a query and its answer, DoH over DoQ": _SAVED_BY_QUERY},
                _MORE_BYTES,
                remark=_AMORTISED,
                follows_from="I102, the same difference",
            ),
            claim("I134", "Names are resolved fastest in Europe, then in Asia and North America", resolving, _LONGER),
        ]


@cache
def _seen_from(vantages: Vantages, points: tuple[str, ...]) -> Callable[[Observed], Sequence[str]]:
    """Function that returns the links of some vantage points; all links of the campaign for an empty tuple.

    It raises `NotMeasured` if a vantage point has no links.
    """

    def links(o: Observed) -> Sequence[str]:
        if not points:
            return o.links
        by_point = {point: [link for link in o.links if vantages.point_of(link) == point] for point in points}
        if missing := [VANTAGE_POINTS.get(point, point) for point, of_point in by_point.items() if not of_point]:
            raise NotMeasured(f"this campaign has no vantage point in {', '.join(missing)}")
        return tuple(link for of_point in by_point.values() for link in of_point)

    return links


_NEAR_TO_FAR = (("eu",), ("as", "na"), ("af", "oc", "sa"))
_SAVED = Number(tolerance=SHARE, unit="%", direction=Sign())
_MORE_BYTES = Ordering(
    unit="bytes",
    criterion="95 % interval of each difference excludes 0; the bytes are the sum of the medians of the parts of an "
    "exchange",
)
_LONGER = Ordering(unit="ms", criterion="95 % interval of each difference of medians excludes 0")

_SAVED_BY_QUERY = size("DoH", QUERY, RESPONSE) - size("DoQ", QUERY, RESPONSE)
_UP_FRONT = size("DoQ", SENT, RECEIVED) - size("DoH", SENT, RECEIVED)
_AMORTISED = Cause(
    "The handshake of DoQ takes {0} bytes more than that of DoH, and the first query on the connection, with its "
    "answer, {1} bytes less. The bytes of later queries were not counted. If they save as much, DoQ has sent fewer "
    "bytes in all from query {2} on.",
    (_UP_FRONT, _SAVED_BY_QUERY, CustomMeasure(lambda o: derived(np.ceil, (_UP_FRONT / _SAVED_BY_QUERY)(o)))),
)

TABLE_1 = {
    ("DoUDP",): "I052",
    ("DoTCP",): "I053",
    ("DoQ",): "I054",
    ("DoH",): "I055",
    ("DoT",): "I056",
    ("DoTCP", SENT): "I057",
    ("DoQ", SENT): "I058",
    ("DoH", SENT): "I059",
    ("DoT", SENT): "I060",
    ("DoTCP", RECEIVED): "I061",
    ("DoQ", RECEIVED): "I062",
    ("DoH", RECEIVED): "I063",
    ("DoT", RECEIVED): "I064",
    ("DoUDP", QUERY): "I065",
    ("DoTCP", QUERY): "I066",
    ("DoQ", QUERY): "I067",
    ("DoH", QUERY): "I068",
    ("DoT", QUERY): "I069",
    ("DoUDP", RESPONSE): "I070",
    ("DoTCP", RESPONSE): "I071",
    ("DoQ", RESPONSE): "I072",
    ("DoH", RESPONSE): "I073",
    ("DoT", RESPONSE): "I074",
}
"""Claim identifier of each cell of Table 1, by transport and part; the key of a total has no part."""


def _table_1() -> list[Check]:
    """Check of every cell of Table 1."""
    return [
        claim(
            identifier,
            f"{series}: bytes of {', '.join(parts) or 'one query in total'}",
            size(series, *parts),
            Number(tolerance=BYTES, unit="bytes"),
        )
        for (series, *parts), identifier in TABLE_1.items()
    ]
