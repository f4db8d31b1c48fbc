"""The results of IMC22 (Kosek et al., 2022) on single queries (sections 1 to 3.1) as checks.

`CHECKS` is a table as in `tnsm24`; `Queries` is what the checks ask. What the paper found out about the public
resolvers of 2022 (how many there were, which versions they spoke) no testbed can reproduce; it has that reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import polars as pl

from crosslayer import metrics
from crosslayer.claims import Claims
from crosslayer.claims.checks import Bound, Check, Number, Ordering, Sign, Unmeasured
from crosslayer.claims.measures import Measure, minus
from crosslayer.claims.observed import NotMeasured, Observed
from crosslayer.claims.tolerances import ABSOLUTE, BYTES, FRACTION, SHARE
from crosslayer.metrics.resampling import Estimate, derived
from crosslayer.studies.single_query.metrics import FURTHER_SERIES, PAPER_SERIES, SIZES, single_queries
from crosslayer.studies.single_query.vantage import VANTAGE_POINTS, vantage_point

_PARTS = {"handshake": "handshake_ms", "resolve": "query_ms", "exchange": "total_ms"} | SIZES
_ALL_PLACES = (
    "The RTTs of vantage points and resolvers are a model made to have the paper's median (campaign/vantage.py)."
)


class Queries(Observed):
    """Observations of the study `single-query`: series such as `DoQ handshake` (ms) and `DoQ response` (bytes)."""

    @staticmethod
    def series(dns_exchanges: pl.LazyFrame, tcp_rtts: pl.LazyFrame, page_loads: pl.LazyFrame) -> pl.LazyFrame:
        """Every part of every transport, by vantage point and resolver."""
        del tcp_rtts, page_loads
        rows = single_queries(dns_exchanges).filter(pl.col("series").is_in([*PAPER_SERIES, *FURTHER_SERIES]))
        parts = [
            rows.select(
                *metrics.ROUND,
                series=pl.format("{} " + part, "series"),
                value_ms=pl.col(column).cast(pl.Float64),
            )
            for part, column in _PARTS.items()
        ]
        return pl.concat(parts).filter(pl.col("value_ms").is_not_null())

    def rtt_ms(self, link: str) -> float:
        """Nominal RTT of a link, ms."""
        if link not in self._rtts:
            raise NotMeasured(f"the RTT of {link} is not known")
        return float(self._rtts[link])

    def pages(self, series: str, link: str) -> tuple[str, ...]:
        """Names asked for."""
        return tuple(page for of, on, page in self._cells if (of, on) == (series, link))

    def seen_from(self, points: Sequence[str]) -> list[str]:
        """Links of vantage points; each of them must have some."""
        found = {point: [link for link in self.links if vantage_point(link) == point] for point in points}
        if missing := [VANTAGE_POINTS[point] for point, links in found.items() if not links]:
            raise NotMeasured(f"this campaign has no vantage point in {', '.join(missing)}")
        return [link for links in found.values() for link in links]


# What is compared


def of(observed: Observed) -> Queries:
    """The observations as those of this study."""
    if not isinstance(observed, Queries):
        raise TypeError("checks of single queries ask `Queries`")
    return observed


def median(series: str, part: str, points: Sequence[str] = tuple(VANTAGE_POINTS)) -> Measure:
    """Median over all resolvers of some vantage points, by default of all six."""
    return lambda o: o.quantile(f"{series} {part}", 0.5, of(o).seen_from(points))


def size(series: str, part: str) -> Measure:
    """Median bytes of a part over all links there are: they do not depend on the RTT."""
    return lambda o: o.quantile(f"{series} {part}", 0.5, o.links)


def total(series: str, parts: Sequence[str] = tuple(SIZES)) -> Measure:
    """Sum of the medians of some parts, as in Table 1."""
    return lambda o: derived(lambda *xs: np.sum(xs, axis=0), *(size(series, part)(o) for part in parts))


def ratio(one: Measure, other: Measure) -> Measure:
    """One statistic over another."""
    return lambda o: derived(lambda x, y: x / y, one(o), other(o))


def lowest(*measures: Measure) -> Measure:
    """The lowest of several statistics."""
    return lambda o: derived(lambda *xs: np.min(xs, axis=0), *(measure(o) for measure in measures))


def exchange(series: str) -> Measure:
    """Median exchange in multiples of the RTT, over all links there are."""
    return lambda o: o.quantile(f"{series} exchange", 0.5, o.links, in_rtts=True)


def saved(faster: str, slower: Sequence[str]) -> Measure:
    """How much less one transport's exchange takes than the mean of others, percent of those."""

    def measure(o: Observed) -> Estimate:
        return derived(
            lambda x, *ys: (1 - x / np.mean(ys, axis=0)) * 100, exchange(faster)(o), *(exchange(s)(o) for s in slower)
        )

    return measure


def half(o: Observed) -> Estimate:
    """Handshakes of DoTCP and DoQ over those of DoH and DoT."""
    return derived(
        lambda tcp, doq, doh, dot: (tcp + doq) / (doh + dot),
        *(median(series, "handshake")(o) for series in ("DoTCP", "DoQ", "DoH", "DoT")),
    )


def spread_over_protocols(o: Observed) -> Estimate:
    """At the vantage point where it is greatest: how far the slowest resolve time is above the fastest, percent."""
    points = [point for point in VANTAGE_POINTS if any(vantage_point(link) == point for link in o.links)]
    if not points:
        raise NotMeasured("this campaign has no vantage point of the paper")
    by_point = [
        derived(
            lambda *xs: (np.max(xs, axis=0) / np.min(xs, axis=0) - 1) * 100,
            *(median(series, "resolve", (point,))(o) for series in PAPER_SERIES),
        )
        for point in points
    ]
    return max(by_point, key=lambda estimate: estimate.value)


def by_vantage_point(o: Observed) -> Mapping[str, Estimate]:
    """Resolve time of DoUDP: Europe fastest, then Asia and North America, then the rest."""
    groups = (("eu",), ("as", "na"), ("af", "oc", "sa"))
    return {
        f"{VANTAGE_POINTS[slow]} over {VANTAGE_POINTS[fast]}": minus(
            median("DoUDP", "resolve", (slow,)), median("DoUDP", "resolve", (fast,))
        )(o)
        for faster, slower in pairwise(groups)
        for fast in faster
        for slow in slower
    }


# Checks that are written more than once

_SENT, _RECEIVED = tuple(SIZES)[:2]
_HELLO = (
    "Ours: SYN 40, acknowledgements of 32, ClientHello 549 (OpenSSL pads it to 517 bytes), ChangeCipherSpec and "
    "Finished 96. Published: what SYN and acknowledgements leave is a hello of {hello} bytes and no Finished, which "
    "must count with the query there."
)
_FLIGHT = (
    "Ours: SYN-ACK 40, acknowledgement 32, and one segment from ServerHello to the session ticket. Published: SYN-ACK "
    "40 and one segment of 171, room for ServerHello and ChangeCipherSpec: the rest of the flight must count with the "
    "response there."
)
_LATER = "Published: the client's Finished (96) must be in it, see the handshake. Ours: {ours}."
_REST = "Published: the rest of the server's flight and its tickets must be in it, see the handshake. Ours: {ours}."
_WHY: Mapping[tuple[str, str], str] = {
    ("DoT", _SENT): _HELLO.format(hello=415),
    ("DoH", _SENT): _HELLO.format(hello=433),
    ("DoT", _RECEIVED): _FLIGHT,
    ("DoH", _RECEIVED): _FLIGHT,
    ("DoT", "query"): _LATER.format(ours="query 112, close_notify 56, FIN 32"),
    ("DoH", "query"): _LATER.format(
        ours="preface and request 227, SETTINGS acknowledgement 63, close_notify 56, and acknowledgements of 32"
    ),
    ("DoT", "response"): _REST.format(ours="acknowledgement 32, answer 131"),
    ("DoH", "response"): _REST.format(
        ours="SETTINGS 93, WINDOW_UPDATE 67, SETTINGS acknowledgement 63, HEADERS 123, DATA 138"
    ),
    ("DoT", "total"): "The difference is that OpenSSL pads its ClientHello to 517 bytes, about 100 more.",
    ("DoQ", "query"): "Ours: query 93, acknowledgements 65, CONNECTION_CLOSE 34.",
    ("DoQ", "response"): (
        "Ours: HANDSHAKE_DONE, session ticket and token 334, answer 119. Tickets and tokens are as large as a server "
        "makes them: over the paper's resolvers this part goes from 355 (10th percentile) to 461 (90th)."
    ),
}
"""Message by message (IP payload of packets in bytes), where a part is not fixed by the protocol."""


def in_bytes(series: str, part: str) -> Check:
    """A median of Table 1."""
    return Number(measure=size(series, part), tolerance=BYTES, unit="bytes", remark=_WHY.get((series, part), ""))


def in_all(series: str) -> Check:
    """A total of Table 1."""
    return Number(measure=total(series), tolerance=BYTES, unit="bytes", remark=_WHY.get((series, "total"), ""))


def handshake_ms(series: str) -> Check:
    """A median handshake over all vantage points and resolvers."""
    return Number(measure=median(series, "handshake"), tolerance=ABSOLUTE, unit="ms", remark=_ALL_PLACES)


def percent_saved(faster: str, slower: Sequence[str]) -> Check:
    """A saving in percent, which follows from whole round-trips."""
    return Number(measure=saved(faster, slower), tolerance=SHARE, unit="%", direction=Sign())


def more_bytes(pairs: Mapping[str, tuple[Measure, Measure]]) -> Check:
    """In each pair the first has more bytes than the second."""
    return Ordering(
        margins=lambda o: {name: minus(*pair)(o) for name, pair in pairs.items()},
        unit="bytes",
        criterion="95 % interval of each difference of medians excludes 0",
    )


def of_2022(what: str) -> Check:
    """Something about the resolvers of that time."""
    return Unmeasured(f"{what} is a property of the public resolvers of 2022, which no testbed has")


_DISCOVERY = of_2022("what a scan of the Internet found")
_VERSIONS = of_2022("which versions are spoken")
_RESOLVING = Ordering(
    margins=by_vantage_point,
    unit="ms",
    criterion="95 % interval of each difference of medians excludes 0",
    remark="In the model of the vantage points by construction (campaign/vantage.py).",
)
_SAVED_33 = percent_saved("DoQ", ("DoT", "DoH"))
_DESCENDING = ("DoQ", "DoH", "DoT", "DoTCP", "DoUDP")

CHECKS: Mapping[str, Check] = {
    # Abstract and introduction
    "I005": of_2022("support for early data"),
    "I006": _SAVED_33,
    # Section 2: the resolvers
    **{f"I{number:03}": _DISCOVERY for number in range(10, 31)},
    # Section 3: versions and features
    **{f"I{number:03}": _VERSIONS for number in range(37, 51)},
    # Table 1
    **{f"I{52 + n:03}": in_all(series) for n, series in enumerate(("DoUDP", "DoTCP", "DoQ", "DoH", "DoT"))},
    **{f"I{57 + n:03}": in_bytes(s, _SENT) for n, s in enumerate(("DoTCP", "DoQ", "DoH", "DoT"))},
    **{f"I{61 + n:03}": in_bytes(s, _RECEIVED) for n, s in enumerate(("DoTCP", "DoQ", "DoH", "DoT"))},
    **{f"I{65 + n:03}": in_bytes(s, "query") for n, s in enumerate(PAPER_SERIES)},
    **{f"I{70 + n:03}": in_bytes(s, "response") for n, s in enumerate(PAPER_SERIES)},
    # Section 3.1 and Fig. 2
    **{f"I{89 + n:03}": handshake_ms(series) for n, series in enumerate(("DoH", "DoT", "DoTCP", "DoQ"))},
    "I093": Number(measure=half, tolerance=FRACTION, unit=""),
    "I097": Bound(
        measure=spread_over_protocols,
        below=10,
        tolerance=SHARE,
        unit="%",
        remark="Approximately equal is taken as: nowhere is the slowest transport 10 % above the fastest.",
    ),
    "I098": _RESOLVING,
    "I100": more_bytes({f"{one} over {other}": (total(one), total(other)) for one, other in pairwise(_DESCENDING)}),
    "I101": Bound(
        measure=lowest(
            *(ratio(total("DoQ", (_SENT, _RECEIVED)), total(other, (_SENT, _RECEIVED))) for other in ("DoH", "DoT"))
        ),
        above=2,
        tolerance=FRACTION,
        unit="",
    ),
    "I102": more_bytes({"DoH over DoQ": (total("DoH", ("query", "response")), total("DoQ", ("query", "response")))}),
    "I103": _SAVED_33,
    "I104": percent_saved("DoUDP", ("DoQ",)),
    "I105": percent_saved("DoUDP", ("DoT", "DoH")),
    "I106": Number(
        measure=ratio(total("DoQ"), total("DoH")), tolerance=ABSOLUTE, unit="", remark="Checked on the total."
    ),
    "I133": Ordering(
        margins=lambda o: {
            "handshake of DoH over DoQ": minus(median("DoH", "handshake"), median("DoQ", "handshake"))(o)
        },
        unit="ms",
        criterion="95 % interval of the difference of medians excludes 0",
    ),
    "I134": _RESOLVING,
}
"""Every result of IMC22 up to section 3.1, by claim."""

CLAIMS = Claims(CHECKS, Queries, ("dns_exchanges", "tcp_rtts", "page_loads", "link_checks"))
