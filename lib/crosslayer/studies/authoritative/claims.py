"""Every result of Batenburg (Twente 2022) as a check on a campaign of the study `authoritative`.

Each emulated path has a fixed RTT. The paper measured over the Internet and states a "typical" RTT for each path. Its
means also depend on its paths and machines. A mean is therefore reproduced if the interval of our mean is within 2 % or
0.5 ms of the published mean, whichever is larger. A variance is reproduced if the interval of our variance lies between
0.5 and 1.5 times the published variance. An ordering is reproduced only if the interval of each difference excludes 0.
All transports use the same emulated path, so only their processing differs. All times are measured between the proxies,
as in section 4.3 of the paper.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import polars as pl

from crosslayer import metrics
from crosslayer.claims import Claims
from crosslayer.claims.data import Observed
from crosslayer.claims.distribution_shape import modes, positions_of_modes
from crosslayer.claims.measures import Derived, Measure, Moment, SeriesStatistic, Share, maximum, median
from crosslayer.claims.rows import VALID_EXCHANGE, Source
from crosslayer.claims.rules import Bound, Cause, Check, Number, Ordering, by_id, claim
from crosslayer.claims.tolerances import EXACT, EXCHANGE_RESOLUTION_MS, Tolerance
from crosslayer.links import load_profiles
from crosslayer.metrics.resampling import Counts, Estimate, Sample

LINKS = {"Local": "twente-local", "EU": "twente-eu", "US": "twente-us", "AU": "twente-au"}
_WITH_LOSS = "twente-us-loss"
AWAY = ("EU", "US", "AU")

MEAN = Tolerance(at_least=0.5, share=0.02)
"""Tolerance of a mean: 2 % or 0.5 ms, whichever is larger. RTT and processing explain deviations of this size."""
VARIANCE = Tolerance(at_least=0.0, share=0.5)
"""Tolerance of a variance: the interval must lie between 0.5 and 1.5 times the published variance.

Relative to the variance, most 95 % intervals of measured variances are about as wide as this range or wider. A narrower
range would therefore contain even fewer of them.
"""
OFTEN_PERCENT = 1.0
RESOLUTION = {"ms": EXCHANGE_RESOLUTION_MS, "ms²": EXCHANGE_RESOLUTION_MS**2}
"""Smallest time (ms) and smallest variance (ms²) that the clock resolves, by unit.

In virtual time, processing takes less time than the clock resolves. Claims on variances are therefore inconclusive
there, and so are claims on means on the link without delay.
"""
SECOND_PEAK_MS = (251.0, 253.0)


def observed(paced_queries: pl.LazyFrame, link_checks: pl.LazyFrame) -> Observed:
    """Observations of queries on kept connections, by link.

    Series, e.g. for DoT: `DoT` is the response time between the proxies minus the time that BIND needs, ms (column
    `between_ms` of `metrics.paced`). `DoT new` is 1 for a query that set up a connection, and 0 for all others.
    `idle RTT` is the idle RTT of the link, ms.
    """
    rows = metrics.paced(paced_queries).filter(pl.col("link").is_not_null())
    where = (*metrics.CLUSTER, "link")
    parts = (
        rows.select(*where, series="protocol", value="between_ms"),
        rows.select(*where, series=pl.format("{} new", "protocol"), value=pl.col("new_connection").cast(pl.Float64)),
        # Only checks within rounds: the check before the first round would count as a further round.
        metrics.in_force(link_checks)
        .filter(pl.col("round") >= 0)
        .select(*where, series=pl.lit("idle RTT"), value="rtt_ms"),
    )
    every = pl.concat(parts).with_columns(page=pl.lit(""))
    return Observed(every, rtts_ms={}, links=tuple(LINKS.values()))


def response(protocol: str, location: str) -> SeriesStatistic:
    """Median response time between the proxies for a protocol at a location of the paper, ms."""
    return median(protocol).on(LINKS[location])


def mean(protocol: str, location: str) -> Measure:
    """Mean response time, ms."""
    return response(protocol, location).by(Moment("mean"))


def variance(protocol: str, location: str) -> Measure:
    """Variance of the response time, ms²."""
    return response(protocol, location).by(Moment("variance"))


@dataclass(frozen=True, slots=True)
class Peaks:
    """Statistic: number of a distribution's modes that lie between `low` and `high`, ms.

    The lowest of all modes of the distribution is not counted. The number has no interval.
    """

    low: float
    high: float

    def __call__(self, sample: Sample, weights: Counts | None) -> Estimate:
        """See `crosslayer.claims.data.Statistic`."""
        count = sum(self.low <= position <= self.high for position in positions_of_modes(sample)[1:])
        return Estimate(float(count), sample.size, sample.rounds)


def renewed(*protocols: str) -> Measure:
    """Percentage of queries that needed a new connection instead of the kept one.

    All links are pooled. Of several protocols, the highest percentage counts.
    """
    shares = (median(f"{protocol} new").by(Share(lambda new: new > 0)) for protocol in protocols)
    return maximum(shares)


def without_tails(protocol: str, location: str) -> Measure:
    """Variance of a normal distribution with the same interquartile range as the response times, ms²."""
    return Derived(lambda iqr: (iqr / 1.349) ** 2, (response(protocol, location).spread(0.25, 0.75),))


def greater(
    statistic: Callable[[str, str], Measure], pairs: Sequence[tuple[str, str]], *locations: str
) -> Mapping[str, Measure]:
    """For each pair of protocols and each location: the statistic of the first minus that of the second protocol.

    The key of each difference names the protocols and the location.
    """
    return {
        f"{more} over {less}, {location}": statistic(more, location) - statistic(less, location)
        for location, (more, less) in product(locations, pairs)
    }


in_order, of_variances = (
    Ordering(unit=unit, criterion="95 % interval of each difference excludes 0", resolution=resolution)
    for unit, resolution in RESOLUTION.items()
)

TABLE_1 = {
    "DoUDP": "B021 B022 B023 B024",
    "DoT": "B025 B026 B027 B028",
    "DoH": "B029 B030 B031 B032",
    "DoQ": "B033 B034 B035 B036",
}
TABLE_2 = {
    "DoUDP": "B037 B038 B039 B040",
    "DoT": "B041 B042 B043 B044",
    "DoH": "B045 B046 B047 B048",
    "DoQ": "B049 B050 B051 B052",
}
"""Claims of Table 2 by protocol, for the locations from Local to AU. `TABLE_1` has those of Table 1."""


def of_table(
    rows: Mapping[str, str], name: str, statistic: Callable[[str, str], Measure], tolerance: Tolerance, unit: str
) -> list[Check]:
    """Checks of all cells of Table 1 or 2."""
    return [
        claim(
            identifier,
            f"{name} of {protocol}, {location}, in {unit}",
            statistic(protocol, location),
            Number(tolerance=tolerance, unit=unit, resolution=RESOLUTION[unit]),
            given_by=f"the RTT of the link, {load_profiles()[LINKS[location]].rtt_ms:g} ms" if given else "",
            given=median("idle RTT").on(LINKS[location]),
        )
        for protocol, identifiers in rows.items()
        for location, identifier in zip(LINKS, identifiers.split(), strict=True)
        for given in [name.startswith("Mean") and location in AWAY]
    ]


_OTHERS = [("DoT", other) for other in ("DoUDP", "DoH", "DoQ")]

CAUSES: dict[Cause | str, str] = {
    Cause(
        "A few slow queries raise our means. Our medians are {0} (DoUDP), {1} (DoT), {2} (DoH) and {3} ms (DoQ), "
        "within 0.5 ms of the published means. A guess: the queries are slow because client and server share the "
        "two cores of our machine.",
        tuple(response(protocol, "Local") for protocol in TABLE_1),
    ): "B021 B025 B029 B033",
    Cause(
        "The RTT of our idle path is {0} ms. Without a path, processing takes {1} (DoUDP) and {2} ms (DoT). A "
        "guess: the rest of the published means comes from their path, whose RTT is 5 ms 'typically'.",
        (median("idle RTT").on(LINKS["EU"]), mean("DoUDP", "Local"), mean("DoT", "Local")),
    ): "B022 B026 B030 B034",
    Cause(
        "The RTT of our idle path is {0} ms. The paper names 85 ms 'typically'. By its Table 1, its path took 83.5 "
        "to 84.3 ms: the means of this location minus those of the local queries.",
        (median("idle RTT").on(LINKS["US"]),),
    ): "B023 B027 B031 B035",
    Cause(
        "The paper explains its times of DoT by connections that were lost and opened again (section 5.2). Of our "
        "DoT queries on kept connections, {0} % had to open a new one.",
        (renewed("DoT"),),
    ): "B056 B057 B069",
    Cause(
        "Our path has no queues and no loss, and {0} % of the queries had to open a new connection. With 1 % loss "
        "in each direction, the variances on the US path are {1} (DoT), {2} (DoH) and {3} ms² (DoQ).",
        (
            renewed(*TABLE_1),
            *(median(protocol).on(_WITH_LOSS).by(Moment("variance")) for protocol in ("DoT", "DoH", "DoQ")),
        ),
    ): "B038 B039 B040 B042 B043 B044 B046 B047 B048 B050 B051 B052",
    **{
        Cause(
            "A few slow queries make the variance. Computed from the interquartile range of our queries, it would "
            "be {0} ms². A guess: the queries are slow because client and server share the two cores of our "
            "machine.",
            (without_tails(protocol, location),),
        ): identifier
        for identifier, protocol, location in (
            ("B037", "DoUDP", "Local"),
            ("B041", "DoT", "Local"),
            ("B045", "DoH", "Local"),
            ("B049", "DoQ", "Local"),
        )
    },
    Cause(
        "Over the same path, a DoUDP query takes one datagram as a DoQ query does, but less processing: without a "
        "path, DoQ takes {0} ms longer. A guess: the paper's path treated UDP port 53 differently (another route "
        "or priority, inspection of DNS), or its conditions changed between the protocols, which it measured one "
        "after the other.",
        (mean("DoQ", "Local") - mean("DoUDP", "Local"),),
    ): "B054 B061 B063",
    Cause(
        "The variance of DoQ minus that of DoUDP in EU is {0} ms², less than the width of its 95 % interval.",
        (variance("DoQ", "EU") - variance("DoUDP", "EU"),),
    ): "B055",
    Cause(
        "A second peak needs a second path, a timer or a new connection. Of our DoT queries, {0} % opened a new "
        "connection, and their distribution has {1} mode.",
        (renewed("DoT"), response("DoT", "AU").by(modes)),
    ): "B058",
    Cause(
        "The variance of DoH minus that of DoQ in EU is {0} ms², less than the width of its 95 % interval.",
        (variance("DoH", "EU") - variance("DoQ", "EU"),),
    ): "B059",
    Cause(
        "The mean of DoQ minus that of DoH in AU is {0} ms, less than the width of its 95 % interval.",
        (mean("DoQ", "AU") - mean("DoH", "AU"),),
    ): "B060",
    Cause(
        "The published variances, 43.40 and 43.58 ms², differ by no more than chance explains. So do ours: {0} and "
        "{1} ms².",
        (variance("DoH", "AU"), variance("DoQ", "AU")),
    ): "B068",
}

_LESS_VARIANCE = {f"variance, {name}": m for name, m in greater(variance, [("DoH", "DoQ")], "EU", "US").items()}

CHECKS = by_id(
    *of_table(TABLE_1, "Mean response time", mean, MEAN, "ms"),
    *of_table(TABLE_2, "Variance of the response time", variance, VARIANCE, "ms²"),
    claim("B053", "Locally DoQ takes longer than DoUDP", greater(mean, [("DoQ", "DoUDP")], "Local"), in_order),
    claim("B054", "Over the Internet DoQ is faster than DoUDP", greater(mean, [("DoUDP", "DoQ")], *AWAY), in_order),
    claim(
        "B055",
        "Over the Internet DoQ varies more than DoUDP",
        greater(variance, [("DoQ", "DoUDP")], *AWAY),
        of_variances,
    ),
    claim("B056", "Over the Internet DoT is the slowest", greater(mean, _OTHERS, *AWAY), in_order),
    claim("B057", "Over the Internet DoT varies most", greater(variance, _OTHERS, *AWAY), of_variances),
    claim(
        "B058",
        "DoT to AU has a second peak at 252 ms",
        response("DoT", "AU").by(Peaks(*SECOND_PEAK_MS)),
        Number(tolerance=EXACT, unit="peaks").to(1.0),
        remark=f"Number of modes from {SECOND_PEAK_MS[0]:g} to {SECOND_PEAK_MS[1]:g} ms, without the first mode.",
    ),
    claim(
        "B059",
        "In EU and US DoQ is faster than DoH and varies less",
        {**greater(mean, [("DoH", "DoQ")], "EU", "US"), **_LESS_VARIANCE},
        Ordering(
            unit="ms, ms²", resolution=RESOLUTION["ms"], resolutions=dict.fromkeys(_LESS_VARIANCE, RESOLUTION["ms²"])
        ),
    ),
    claim("B060", "In AU DoH is faster than DoQ", greater(mean, [("DoQ", "DoH")], "AU"), in_order),
    claim(
        "B061",
        "In EU and US DoQ is the fastest of all",
        greater(mean, [(other, "DoQ") for other in ("DoUDP", "DoT", "DoH")], "EU", "US"),
        in_order,
    ),
    claim(
        "B062",
        "Locally DoT and DoUDP are faster than DoQ, and DoQ than DoH",
        greater(mean, [("DoQ", "DoT"), ("DoQ", "DoUDP"), ("DoH", "DoQ")], "Local"),
        in_order,
    ),
    claim(
        "B063",
        "In AU DoH is the fastest, then DoQ, DoUDP and DoT",
        greater(mean, [("DoQ", "DoH"), ("DoUDP", "DoQ"), ("DoT", "DoUDP")], "AU"),
        in_order,
    ),
    claim(
        "B069",
        "DoT connections were often lost and opened again",
        renewed("DoT"),
        Bound(above=OFTEN_PERCENT, unit="%"),
        remark=f"Often is taken as at least {OFTEN_PERCENT:g} % of the queries.",
    ),
    claim("B068", "In AU DoH varies less than DoQ", greater(variance, [("DoQ", "DoH")], "AU"), of_variances),
    causes=CAUSES,
)

_PACED = VALID_EXCHANGE & (pl.col("connection_mode") == "kept")
_BETWEEN = pl.coalesce(pl.col("handshake_ms") + pl.col("query_ms"), "response_ms") - pl.col("authority_ms")
SOURCES = {
    f"{protocol}{what}": (Source("paced_queries", _PACED & (pl.col("protocol") == protocol), value),)
    for protocol in TABLE_1
    for what, value in {"": _BETWEEN, " new": pl.col("new_connection")}.items()
} | {"idle RTT": (Source("link_checks", pl.col("round") >= 0, pl.col("rtt_ms")),)}

CLAIMS = Claims(CHECKS, observed, ("paced_queries", "link_checks"), SOURCES)
