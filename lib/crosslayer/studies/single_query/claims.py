"""The results of IMC22 (Kosek et al., 2022) on single queries (sections 1 to 3.1) as checks.

What the paper found out about the public resolvers of 2022 (how many there were, which versions they spoke) no testbed
can reproduce; it has that reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise

import numpy as np
import polars as pl

from crosslayer import metrics
from crosslayer.claims import Claims
from crosslayer.claims.checks import Bound, Cause, Check, Number, Ordering, Sign, by_id, claim, descending
from crosslayer.claims.data import NotMeasured, Observed
from crosslayer.claims.measures import CustomMeasure, Derived, Measure, mean, median, minimum, total
from crosslayer.claims.rows import VALID_EXCHANGE, Source
from crosslayer.claims.rules import ABSOLUTE, BYTES, FRACTION, SHARE
from crosslayer.metrics.resampling import Estimate, derived
from crosslayer.studies.single_query.metrics import FURTHER_SERIES, PAPER_SERIES, SIZES, SPLIT, single_queries
from crosslayer.studies.single_query.vantage import VANTAGE_POINTS, vantage_point

_DURATIONS = {"handshake": "handshake_ms", "resolve": "query_ms", "exchange": "total_ms"}
_SENT, _RECEIVED, _QUERY, _RESPONSE = SIZES
_TO_THE_CLOSE = "query and what follows the answer"
"""All that the client sends once its handshake is over."""


def observed(dns_exchanges: pl.LazyFrame, link_checks: pl.LazyFrame) -> Observed:
    """Every part of every transport, by vantage point and resolver: `DoQ handshake` (ms), `DoQ response` (bytes)."""
    rows = single_queries(dns_exchanges).filter(pl.col("series").is_in([*PAPER_SERIES, *FURTHER_SERIES]))
    parts = (
        rows.select(*metrics.ROUND, series=pl.format(f"{{}} {part}", "series"), value=pl.col(column).cast(pl.Float64))
        for part, column in (_DURATIONS | SIZES | {SPLIT: SPLIT, _TO_THE_CLOSE: "query_sent_bytes"}).items()
    )
    return Observed(pl.concat(parts), rtts_ms=dict(metrics.nominal_rtts(link_checks).collect().iter_rows()))


@cache
def seen_from(*points: str) -> Callable[[Observed], Sequence[str]]:
    """Links of vantage points; each of them must have some."""

    def links(o: Observed) -> Sequence[str]:
        by_point = {point: [link for link in o.links if vantage_point(link) == point] for point in points}
        if missing := [VANTAGE_POINTS[point] for point, of_point in by_point.items() if not of_point]:
            raise NotMeasured(f"this campaign has no vantage point in {', '.join(missing)}")
        return tuple(link for of_point in by_point.values() for link in of_point)

    return links


# What is compared


def duration(series: str, part: str, *points: str) -> Measure:
    """Median over all resolvers of some vantage points, by default of all six; ms."""
    return median(f"{series} {part}").among(seen_from(*(points or VANTAGE_POINTS)))


def size(series: str, *parts: str) -> Measure:
    """Sum of the medians of some parts, by default of all, as in Table 1; bytes do not depend on the RTT."""
    return total(median(f"{series} {part}") for part in parts or SIZES)


def exchange(series: str) -> Measure:
    """Median exchange in multiples of the RTT."""
    return median(f"{series} exchange", in_rtts=True)


def saved(faster: str, *slower: str) -> Measure:
    """Decrease of one transport's exchange compared with the mean of others, percent."""
    return (1 - exchange(faster) / mean(exchange(series) for series in slower)) * 100


@CustomMeasure
def spread_over_protocols(o: Observed) -> Estimate:
    """Increase of the slowest over the fastest resolve time at the vantage point with the largest one, percent."""
    points = [point for point in VANTAGE_POINTS if any(vantage_point(link) == point for link in o.links)]
    if not points:
        raise NotMeasured("this campaign has no vantage point of the paper")
    by_point = (
        Derived(
            lambda *xs: (np.max(xs, axis=0) / np.min(xs, axis=0) - 1) * 100,
            tuple(duration(series, "resolve", point) for series in PAPER_SERIES),
        )
        for point in points
    )
    return max((measure(o) for measure in by_point), key=lambda estimate: estimate.value)


_NEAR_TO_FAR = (("eu",), ("as", "na"), ("af", "oc", "sa"))
_RESOLVING = {
    f"{VANTAGE_POINTS[slow]} over {VANTAGE_POINTS[fast]}": (
        duration("DoUDP", "resolve", slow) - duration("DoUDP", "resolve", fast)
    )
    for faster, slower in pairwise(_NEAR_TO_FAR)
    for fast in faster
    for slow in slower
}

# How it is judged

in_ms = Number(tolerance=ABSOLUTE, unit="ms")
in_bytes = Number(tolerance=BYTES, unit="bytes")
percent_saved = Number(tolerance=SHARE, unit="%", direction=Sign())
_OF_MEDIANS = "95 % interval of each difference of medians excludes 0"
more_bytes = Ordering(unit="bytes", criterion=_OF_MEDIANS)
longer = Ordering(unit="ms", criterion=_OF_MEDIANS)

TABLE_1 = {
    ("DoUDP",): "I052",
    ("DoTCP",): "I053",
    ("DoQ",): "I054",
    ("DoH",): "I055",
    ("DoT",): "I056",
    ("DoTCP", _SENT): "I057",
    ("DoQ", _SENT): "I058",
    ("DoH", _SENT): "I059",
    ("DoT", _SENT): "I060",
    ("DoTCP", _RECEIVED): "I061",
    ("DoQ", _RECEIVED): "I062",
    ("DoH", _RECEIVED): "I063",
    ("DoT", _RECEIVED): "I064",
    ("DoUDP", _QUERY): "I065",
    ("DoTCP", _QUERY): "I066",
    ("DoQ", _QUERY): "I067",
    ("DoH", _QUERY): "I068",
    ("DoT", _QUERY): "I069",
    ("DoUDP", _RESPONSE): "I070",
    ("DoTCP", _RESPONSE): "I071",
    ("DoQ", _RESPONSE): "I072",
    ("DoH", _RESPONSE): "I073",
    ("DoT", _RESPONSE): "I074",
}
"""Claim of each cell, by transport and part; without a part it is the total."""


def table_1() -> list[Check]:
    """Every cell."""
    return [
        claim(
            identifier,
            f"{series}: so many bytes of {', '.join(parts) or 'one query in all'}",
            size(series, *parts),
            in_bytes,
        )
        for (series, *parts), identifier in TABLE_1.items()
    ]


_AUTHORS = "needs the authors' data"
_OF_2022 = {
    "support for early data": "I005",
    "what a scan of the Internet found": "I010 I011 I012 I013 I014 I015 I016 I017 I018 I019 I020 "
    "I021 I022 I023 I024 I025 I026 I027 I028 I029 I030",
    "which versions are spoken": "I037 I038 I039 I040 I041 I042 I043 I044 I045 I046 I047 I048 I049 I050 I139",
}


def of_2022(what: str) -> list[Check]:
    """Something about the resolvers of that time."""
    reason = f"{what} is a property of the public resolvers of 2022, which no testbed has: {_AUTHORS}"
    return [
        claim(identifier, "Of the resolvers found on the Internet", reason) for identifier in _OF_2022[what].split()
    ]


# What a reader must know, and why numbers differ

_SAVED_BY_QUERY = size("DoH", _QUERY, _RESPONSE) - size("DoQ", _QUERY, _RESPONSE)
_UP_FRONT = size("DoQ", _SENT, _RECEIVED) - size("DoH", _SENT, _RECEIVED)
REMARKS: dict[Cause | str, str] = {
    Cause(
        "In bytes, as in the paper: the handshake of DoQ takes {0} more than that of DoH, and each query with its "
        "answer {1} less, so that DoQ has sent less from about the {2}th query on.",
        (_UP_FRONT, _SAVED_BY_QUERY, CustomMeasure(lambda o: derived(np.ceil, (_UP_FRONT / _SAVED_BY_QUERY)(o)))),
    ): "I133",
    "The RTTs of vantage points and resolvers are a model made to have the paper's median.": "I089 I090 I091 I092",
    "Approximately equal is taken as: nowhere is the slowest transport 10 % above the fastest.": "I097",
    "Checked on the total.": "I106",
    _AUTHORS: " ".join(_OF_2022.values()),
}
"""Remarks on bytes, by message (IP payload), for parts that the protocol does not determine."""
_BEYOND = (
    "{0} % of our rows are parted as the paper's analysis parts them (`crosslayer.dns.handshake_bytes`). Beyond the "
    "handshake the client sends {1} and the resolver {2} bytes here, {query} and {response} there. A guess: the "
    "paper's proxy acknowledged in more packets (of 32 bytes each), and tickets{more} of public resolvers are longer."
)


def beyond(series: str, query: int, response: int, more: str = "") -> Cause:
    """Bytes of acknowledgements, tickets and header fields, which no protocol fixes."""
    text = _BEYOND.replace("{query}", str(query)).replace("{response}", str(response)).replace("{more}", more)
    return Cause(text, (median(f"{series} {SPLIT}") * 100, size(series, _QUERY), size(series, _RESPONSE)))


CAUSES: dict[Cause | str, str] = {
    beyond("DoH", 579, 804, " and header fields of HTTP"): "I055 I059 I063 I068 I073",
    beyond("DoT", 261, 499): "I056 I060 I064 I069 I074",
    Cause(
        "Tickets and tokens are as large as a server makes them: over the paper's resolvers this part goes from 355 "
        "(10th percentile) to 461 (90th); our one server's {0} lie between.",
        (size("DoQ", _RESPONSE),),
    ): "I072",
    Cause(
        "Bytes count up to the answer, as in the paper. Of the {1} bytes that the client sends after the handshake "
        "here, {0} have left by then: it acknowledges what comes with the answer after it where computing takes time, "
        "and before it by the virtual clock.",
        (size("DoQ", _QUERY), size("DoQ", _TO_THE_CLOSE)),
    ): "I067",
    Cause(
        "DoQ takes {0} bytes here and 4444 there, DoH {1} here and 2163 there: what DoH takes less, I055 explains.",
        (size("DoQ"), size("DoH")),
    ): "I106",
}
_MODEL = "the vantage points: their RTTs are a model made to have the paper's {}"
FOLLOWS = {
    "I103": "I006, the same number",
    "I133": "I102, the same difference",
}
GIVEN = dict.fromkeys(("I089", "I090", "I091", "I092"), _MODEL.format("median handshake")) | dict.fromkeys(
    ("I098", "I134"), _MODEL.format("order")
)

CHECKS = by_id(
    # Abstract and introduction
    *of_2022("support for early data"),
    claim("I006", "A query over DoQ takes 33 % less than over DoT and DoH", saved("DoQ", "DoT", "DoH"), percent_saved),
    # Section 2: the resolvers
    *of_2022("what a scan of the Internet found"),
    # Section 3: versions and features
    *of_2022("which versions are spoken"),
    *table_1(),
    # Section 3.1 and Fig. 2
    *(
        claim(
            identifier,
            f"{series} shakes hands in so many ms, over all vantage points",
            duration(series, "handshake"),
            in_ms,
        )
        for identifier, series in {"I089": "DoH", "I090": "DoT", "I091": "DoTCP", "I092": "DoQ"}.items()
    ),
    claim(
        "I093",
        "DoTCP and DoQ shake hands in half the time of DoH and DoT",
        (duration("DoTCP", "handshake") + duration("DoQ", "handshake"))
        / (duration("DoH", "handshake") + duration("DoT", "handshake")),
        Number(tolerance=FRACTION, unit=""),
    ),
    claim(
        "I097",
        "The resolve times of all protocols are about equal at each vantage point",
        spread_over_protocols,
        Bound(below=10, unit="%"),
    ),
    claim("I098", "Names are resolved fastest in Europe, then in Asia and North America", _RESOLVING, longer),
    claim(
        "I100",
        "DoQ takes most bytes, then DoH, DoT, DoTCP and DoUDP",
        descending({series: size(series) for series in ("DoQ", "DoH", "DoT", "DoTCP", "DoUDP")}),
        more_bytes,
    ),
    claim(
        "I101",
        "DoQ shakes hands with more than twice the bytes of DoH and DoT",
        minimum(size("DoQ", _SENT, _RECEIVED) / size(other, _SENT, _RECEIVED) for other in ("DoH", "DoT")),
        Bound(above=2, unit=""),
    ),
    claim(
        "I102",
        "Query and response take fewer bytes with DoQ than with DoH",
        {"DoH over DoQ": size("DoH", _QUERY, _RESPONSE) - size("DoQ", _QUERY, _RESPONSE)},
        more_bytes,
    ),
    claim("I103", "A query over DoQ takes 33 % less than over DoT and DoH", saved("DoQ", "DoT", "DoH"), percent_saved),
    claim("I104", "DoQ falls 50 % short of DoUDP", saved("DoUDP", "DoQ"), percent_saved),
    claim("I105", "DoT and DoH fall 66 % short of DoUDP", saved("DoUDP", "DoT", "DoH"), percent_saved),
    claim(
        "I106", "DoQ takes about twice the bytes of DoH", size("DoQ") / size("DoH"), Number(tolerance=ABSOLUTE, unit="")
    ),
    claim(
        "I133",
        "The bytes of DoQ's handshake are paid back by the smaller queries of a connection that is used again",
        {"bytes of a query and its answer, DoH over DoQ": _SAVED_BY_QUERY},
        more_bytes,
    ),
    claim("I134", "Names are resolved fastest in Europe, then in Asia and North America", _RESOLVING, longer),
    causes=CAUSES,
    remarks=REMARKS,
    follows=FOLLOWS,
    given=GIVEN,
)

_CLEAR = ("DoUDP", "DoTCP")
_COLUMNS = {name: pl.col(column) for name, column in (_DURATIONS | SIZES).items()} | {
    SPLIT: pl.col(SIZES[_QUERY]).is_not_null(),
    _TO_THE_CLOSE: pl.col("query_sent_bytes"),
}
SOURCES = {
    f"{series} {part}": (
        Source(
            "dns_exchanges",
            VALID_EXCHANGE
            & (pl.col("condition") == "main")
            & (pl.col("protocol") == series)
            & pl.col("resumption").is_in(["none", "ticket"] if series in _CLEAR else ["ticket"]),
            value,
        ),
    )
    for series in PAPER_SERIES
    for part, value in _COLUMNS.items()
}

CLAIMS = Claims(CHECKS, observed, ("dns_exchanges", "link_checks"), SOURCES)
