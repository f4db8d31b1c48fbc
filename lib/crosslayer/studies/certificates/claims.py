"""Claims of this study, and results of other papers on large certificates.

The results of the papers are not in `data/published`. They are from the abstracts of Chou and Cao (arXiv 2604.24869),
Kampanakis and Childs-Klein (MADWeb 2024) and Nawrocki et al. (CoNEXT 2022), and from the certificate sizes of Mücke et
al. (IMC 2024).
"""

from __future__ import annotations

from itertools import product

import polars as pl

from crosslayer import metrics
from crosslayer.claims import Claims
from crosslayer.claims.data import Observed
from crosslayer.claims.measures import Measure, maximum, mean, median
from crosslayer.claims.rows import Source
from crosslayer.claims.rules import Bound, Cause, Number, Ordering, by_id, claim
from crosslayer.claims.tolerances import FRACTION, IN_RTTS
from crosslayer.links import load_profiles
from crosslayer.studies.certificates.conditions import CERTIFICATE, CERTIFICATE_AND_TOKEN, SEARCH
from crosslayer.studies.certificates.metrics import by_size, steps, visits
from crosslayer.vocabulary import Role

_QUIC, _TCP = ("DoQ", "DoH3"), ("DoT", "DoH")
_LINKS = ("fiber", "dsl", "4g")


def observed(dns_exchanges: pl.LazyFrame, resolved_loads: pl.LazyFrame, link_checks: pl.LazyFrame) -> Observed:
    """Observations of exchanges, visits and steps. A step is a certificate size that adds a round-trip.

    A series of exchanges has times in ms. In its name, e.g. `DoQ, neither, 736`, the transport is DoQ, the client
    brings neither ticket nor token, and the certificate has 736 bytes. A series of visits also has times in ms. In its
    name, e.g. `shared, neither, 736, document_ms`, the first part is the value of the column `connections`. A step has
    three series, e.g. for DoQ: `DoQ step` and `DoQ step wait` are `height_rtt` and `wait_rtt` of `steps`, in multiples
    of the RTT. `DoQ step distance` is the distance from the expected position, datagrams.
    """
    rtts = metrics.nominal_rtts(link_checks)
    exchange, visit = by_size(dns_exchanges, rtts), visits(resolved_loads, rtts)
    step = steps(dns_exchanges, link_checks)
    rows = [
        exchange.select(
            *metrics.ROUND, series=pl.format("{}, {}, {}", "protocol", "brought", "size"), value=pl.col("total_ms")
        ),
        *(
            visit.select(
                *metrics.ROUND,
                series=pl.format(f"{{}}, {{}}, {{}}, {column}", "connections", "brought", "size"),
                value=pl.col(column),
            )
            for column in ("response_start_ms", "document_ms", "load_complete_ms")
        ),
        *(
            step.select(*metrics.ROUND, series=pl.format(f"{{}} {what}", "protocol"), value=pl.col(column))
            for what, column in (("step", "height_rtt"), ("step wait", "wait_rtt"), ("step distance", "distance"))
        ),
    ]
    return Observed(pl.concat(rows), rtts_ms=dict(rtts.collect().iter_rows()))


# Measures


def exchange(protocol: str, size: int, brought: str = "neither") -> Measure:
    """Median duration of an exchange, in multiples of the RTT."""
    return median(f"{protocol}, {brought}, {size}", in_rtts=True)


def longer(protocol: str, large: int, small: int, brought: str = "neither") -> Measure:
    """Duration of an exchange with the large certificate minus its duration with the small one.

    The value is the median of the differences within rounds, in multiples of the RTT.
    """
    return median({f"{protocol}, {brought}, {large}": 1, f"{protocol}, {brought}, {small}": -1}, in_rtts=True)


def later(connections: str, large: int, small: int) -> Measure:
    """Document time of a first visit with the large certificate minus its document time with the small one.

    The value is the median of the differences within rounds, in multiples of the RTT.
    """
    names = [f"{connections}, neither, {size}, document_ms" for size in (large, small)]
    return median({names[0]: 1, names[1]: -1}, in_rtts=True)


def slowdown(moment: str) -> Measure:
    """Increase of the median time `moment` from today's certificates to ML-DSA-44, in percent.

    The visit is a first visit on two connections.
    """
    large, small = (median(f"separate, neither, {size}, {moment}") for size in (14724, 1248))
    return large.over(small)


def step_distance(protocols: tuple[str, ...]) -> Measure:
    """Distance of a step from its expected position, datagrams (QUIC) or segments (TCP).

    The value is the largest of these transports' medians.
    """
    return maximum(median(f"{protocol} step distance") for protocol in protocols)


def step_height(protocols: tuple[str, ...], link: str) -> Measure:
    """Time that the step adds to an exchange on a link, in multiples of the RTT: mean of the transports' medians."""
    return mean(median(f"{protocol} step").on(link) for protocol in protocols)


# Rules and causes

within_a_datagram = Bound(below=1, unit="datagrams")
one_round_trip = Number(published=1.0, tolerance=FRACTION, unit="RTT")
_AT_WHAT_COST = (
    "a property of chains or of the Web's servers, which a testbed with generated certificates cannot measure"
)
_OVER_TCP = (
    "measured over TCP with 50 to 200 KiB on links that the abstract does not state; "
    "here pages use HTTP/3 on other links"
)

_HEIGHTS = {(_QUIC, link): f"CERT{3 + number}" for number, link in enumerate(_LINKS)} | {
    (_TCP, link): f"CERT{6 + number}" for number, link in enumerate(_LINKS)
}


def overlap(link: str) -> Cause:
    """Cause: a step over TCP is lower than one round-trip on this link, because sending and waiting overlap."""
    wait = mean(median(f"{protocol} step wait").on(link) for protocol in _TCP)
    return Cause(
        "Sending nine of the ten segments takes {0} RTT on this downlink. Meanwhile the first segment is "
        "acknowledged. Counted from the first segment, the step is {1} RTT.",
        (wait - step_height(_TCP, link), wait),
    )


CAUSES: dict[Cause | str, str] = {overlap(link): _HEIGHTS[_TCP, link] for link in _LINKS}

CHECKS = by_id(
    claim(
        "CERT1",
        "Over QUIC the largest first flight without a further round-trip differs by less than a datagram from three "
        "times the bytes that the server received",
        step_distance(_QUIC),
        within_a_datagram,
    ),
    claim(
        "CERT2",
        "Over TCP the largest first flight without a further round-trip differs by less than a segment from an "
        "initial window of ten segments",
        step_distance(_TCP),
        within_a_datagram,
    ),
    *(
        claim(
            identifier,
            f"The step is one round-trip: {' and '.join(protocols)} on {load_profiles()[link].title}",
            step_height(protocols, link),
            one_round_trip,
        )
        for (protocols, link), identifier in _HEIGHTS.items()
    ),
    claim(
        "CERT9",
        "With a token, 22,000 bytes of certificate cost no further round-trip over QUIC",
        maximum(longer(protocol, 22000, 736, "token") for protocol in _QUIC),
        Bound(below=0.5, unit="RTT"),
    ),
    claim(
        "CERT10",
        "In a resumed session the size of the certificate does not matter",
        maximum(longer(protocol, 22000, 736, "ticket") for protocol in (*_QUIC, *_TCP)),
        Bound(below=0.05, unit="RTT"),
    ),
    claim(
        "CERT11",
        "A Merkle-tree certificate of 736 bytes saves no round-trip compared with today's 1,248",
        maximum(longer(protocol, 1248, 736) for protocol in (*_QUIC, *_TCP)),
        Bound(below=0.5, unit="RTT"),
    ),
    *(
        claim(
            identifier,
            f"With {' and '.join(protocols)}, ML-DSA-44 costs one round-trip more than today's certificates",
            mean(longer(protocol, 14724, 1248) for protocol in protocols),
            Number(published=1.0, tolerance=IN_RTTS, unit="RTT"),
        )
        for identifier, protocols in {"CERT12": _QUIC, "CERT13": _TCP}.items()
    ),
    *(
        claim(
            identifier,
            f"On 4G a first visit with 12 kB instead of 1,248 bytes waits {trips} more on {connections}",
            later(sharing, 12000, 1248).on("4g"),
            Number(published=published, tolerance=IN_RTTS, unit="RTT"),
        )
        for identifier, trips, connections, sharing, published in (
            ("CERT14", "two round-trips", "two connections", "separate", 2.0),
            ("CERT15", "one round-trip", "one connection", "shared", 1.0),
        )
    ),
    # Results of other papers
    claim(
        "CERT16",
        "The time to the first byte grows in steps if the chain exceeds a flight (Chou and Cao, arXiv 2604.24869)",
        {
            "DoQ, step over growth before it": longer("DoQ", 3500, 2500) - longer("DoQ", 2500, 736),
            "DoT, step over growth before it": longer("DoT", 14724, 12000) - longer("DoT", 12000, 736),
        },
        Ordering(unit="RTT"),
    ),
    claim(
        "CERT17",
        "Merkle-tree certificates allow chains 2 to 3 times as large, and optimisations of CDNs allow chains about 1.6 "
        "times as large (Chou and Cao, arXiv 2604.24869)",
        _AT_WHAT_COST,
    ),
    claim(
        "CERT18",
        "Post-quantum certificates delay the last byte by a smaller share than the first one (Kampanakis and "
        "Childs-Klein, MADWeb 2024)",
        {
            "share of the first byte over that of the document": slowdown("response_start_ms")
            - slowdown("document_ms"),
            "share of the document over that of the page": slowdown("document_ms") - slowdown("load_complete_ms"),
        },
        Ordering(unit="points"),
    ),
    claim(
        "CERT19",
        "Post-quantum TLS delays the last byte by less than 5 % on fast links; on slow links by less than 15 %, if at "
        "least 50 KiB are transferred (Kampanakis and Childs-Klein, MADWeb 2024)",
        _OVER_TCP,
    ),
    claim(
        "CERT20",
        "35 % of the certificates of QUIC servers exceed the amplification limit (Nawrocki et al., CoNEXT 2022)",
        _AT_WHAT_COST,
    ),
    claim(
        "CERT21",
        "A certificate of 5,113 bytes exceeds the amplification limit (Mücke et al., IMC 2024)",
        mean(longer(protocol, 5113, 1248) for protocol in _QUIC),
        Number(published=1.0, tolerance=IN_RTTS, unit="RTT"),
    ),
    causes=CAUSES,
)

_SIZES = (736, 1248, 2500, 3500, 5113, 12000, 14724, 22000)
_BROUGHT = {
    "neither": (CERTIFICATE, "none"),
    "token": (CERTIFICATE_AND_TOKEN, "none"),
    "ticket": (CERTIFICATE, "ticket"),
}
_VALID = pl.col("error").is_null() & (pl.col("role") == Role.MEASURED)
SOURCES = {
    f"{protocol}, {brought}, {size}": (
        Source(
            "dns_exchanges",
            _VALID
            & (pl.col("protocol") == protocol)
            & (pl.col("condition") == condition)
            & (pl.col("server_certificate_bytes") == size)
            & (pl.col("resumption") == resumption),
            pl.col("total_ms"),
        ),
    )
    for protocol, size, (brought, (condition, resumption)) in product((*_QUIC, *_TCP), _SIZES, _BROUGHT.items())
} | {
    f"{connections}, neither, {size}, {column}": (
        Source(
            "resolved_loads",
            _VALID
            & (pl.col("connections") == connections)
            & (pl.col("condition") == CERTIFICATE)
            & (pl.col("server_certificate_bytes") == size),
            pl.col(column),
        ),
    )
    for connections, size, column in product(
        ("shared", "separate"), _SIZES, ("response_start_ms", "document_ms", "load_complete_ms")
    )
}

SOURCES |= {
    f"{protocol} {what}": (
        Source(
            "dns_exchanges",
            _VALID & (pl.col("protocol") == protocol) & (pl.col("condition") == SEARCH),
            pl.col("total_ms"),
        ),
    )
    for protocol, what in product((*_QUIC, *_TCP), ("step", "step wait", "step distance"))
}
"""A step is computed from all exchanges of its search."""

CLAIMS = Claims(CHECKS, observed, ("dns_exchanges", "resolved_loads", "link_checks"), SOURCES)
