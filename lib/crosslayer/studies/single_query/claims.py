"""Claims of IMC22 (Kosek et al., 2022) on single queries, sections 1 to 3.1.

No testbed can reproduce the paper's findings about the public resolvers of 2022, e.g. their number and their protocol
versions. The checks of such claims have no measure; they state why the claim cannot be measured.
"""

from __future__ import annotations

import polars as pl

from crosslayer import metrics
from crosslayer.claims import Claims
from crosslayer.claims.data import Observed
from crosslayer.claims.measures import median
from crosslayer.claims.rows import VALID_EXCHANGE, Source
from crosslayer.claims.rules import Cause, Check, by_id, claim
from crosslayer.claims.single_queries import QUERY, RESPONSE, Vantages, size
from crosslayer.studies.single_query.metrics import FURTHER_SERIES, SPLIT, single_queries
from crosslayer.studies.single_query.vantage import vantage_point
from crosslayer.vocabulary import DURATIONS_BY_PART, PAPER_SERIES, SIZES_BY_PART, VANTAGE_POINTS

_TO_THE_CLOSE = "query and what follows the answer"
"""Part of an exchange, from the query to the end of the connection. Its size is that of what the client sends."""


def observed(dns_exchanges: pl.LazyFrame, link_checks: pl.LazyFrame) -> Observed:
    """Time and size of each part of an exchange by link, i.e. by pair of vantage point and resolver.

    Series are e.g. `DoQ handshake` (ms) and `DoQ response` (bytes).
    """
    rows = single_queries(dns_exchanges).filter(pl.col("series").is_in([*PAPER_SERIES, *FURTHER_SERIES]))
    parts = (
        rows.select(*metrics.ROUND, series=pl.format(f"{{}} {part}", "series"), value=pl.col(column).cast(pl.Float64))
        for part, column in (
            DURATIONS_BY_PART | SIZES_BY_PART | {SPLIT: SPLIT, _TO_THE_CLOSE: "query_sent_bytes"}
        ).items()
    )
    return Observed(pl.concat(parts), rtts_ms=dict(metrics.nominal_rtts(link_checks).collect().iter_rows()))


_AUTHORS = "needs the authors' data"
_OF_2022 = {
    "support for early data": "I005",
    "what a scan of the Internet found": "I010 I011 I012 I013 I014 I015 I016 I017 I018 I019 I020 "
    "I021 I022 I023 I024 I025 I026 I027 I028 I029 I030",
    "which versions are spoken": "I037 I038 I039 I040 I041 I042 I043 I044 I045 I046 I047 I048 I049 I050 I139",
}


def of_2022(what: str) -> list[Check]:
    """Claims about the public resolvers of 2022, with the reason why they cannot be measured."""
    reason = f"{what} is a property of the public resolvers of 2022, which no testbed has: {_AUTHORS}"
    return [
        claim(identifier, "Of the resolvers found on the Internet", reason) for identifier in _OF_2022[what].split()
    ]


# Remarks and causes of differences

REMARKS: dict[Cause | str, str] = {
    "The RTTs between vantage points and resolvers come from a model that was fitted to the paper's "
    "median.": "I089 I090 I091 I092",
    _AUTHORS: " ".join(_OF_2022.values()),
}
_BEYOND = (
    "For {0} % of our rows, bytes are assigned to handshake and query as in the paper's analysis "
    "(`crosslayer.dns.handshake_bytes`). After the handshake, client and resolver send {1} and {2} bytes here, "
    "{query} and {response} in the paper. A guess: the paper's proxy sent more acknowledgements (32 bytes each), "
    "and public resolvers have longer tickets{more}."
)


def beyond(series: str, query: int, response: int, more: str = "") -> Cause:
    """Reason why sizes of one transport (`series`) differ from the published sizes.

    Acknowledgements, tickets and header fields differ, because no protocol fixes how many bytes they have. `query` and
    `response` are the published bytes, and `more` names what else may be longer at public resolvers.
    """
    text = _BEYOND.replace("{query}", str(query)).replace("{response}", str(response)).replace("{more}", more)
    return Cause(text, (median(f"{series} {SPLIT}") * 100, size(series, QUERY), size(series, RESPONSE)))


CAUSES: dict[Cause | str, str] = {
    beyond("DoH", 579, 804, "and HTTP header fields"): "I055 I059 I063 I068 I073",
    beyond("DoT", 261, 499): "I056 I060 I064 I069 I074",
    Cause(
        "Each server chooses the size of its tickets and tokens. For the paper's resolvers, these bytes are 355 "
        "(10th percentile) to 461 (90th percentile); for our server, they are {0}.",
        (size("DoQ", RESPONSE),),
    ): "I072",
    Cause(
        "As in the paper, bytes are counted until the answer. Our client sends {1} bytes after the handshake, {0} "
        "of them until the answer. In real time, it acknowledges the packets of the answer only after the answer; "
        "in virtual time, before.",
        (size("DoQ", QUERY), size("DoQ", _TO_THE_CLOSE)),
    ): "I067",
    Cause(
        "DoQ takes {0} bytes here and 4,444 in the paper; DoH takes {1} here and 2,163 in the paper. I055 explains "
        "why DoH takes fewer.",
        (size("DoQ"), size("DoH")),
    ): "I106",
}
_MODEL = "the vantage points: the model of their RTTs was fitted to the paper's {}"
GIVEN = dict.fromkeys(("I089", "I090", "I091", "I092"), _MODEL.format("median handshake")) | dict.fromkeys(
    ("I098", "I134"), _MODEL.format("order")
)

CHECKS = by_id(
    *(check for what in _OF_2022 for check in of_2022(what)),
    *Vantages(vantage_point, tuple(VANTAGE_POINTS)).checks(),
    causes=CAUSES,
    remarks=REMARKS,
    given=GIVEN,
)

_CLEAR = ("DoUDP", "DoTCP")
_COLUMNS = {name: pl.col(column) for name, column in (DURATIONS_BY_PART | SIZES_BY_PART).items()} | {
    SPLIT: pl.col(SIZES_BY_PART[QUERY]).is_not_null(),
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
