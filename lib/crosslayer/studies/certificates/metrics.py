"""Exchanges and visits by kind and certificate size, and the sizes from which a further round-trip is needed."""

from __future__ import annotations

import polars as pl

from crosslayer import metrics
from crosslayer.studies.certificates.conditions import CERTIFICATE, CERTIFICATE_AND_TOKEN, CERTIFICATE_NO_TOKEN, SEARCH
from crosslayer.vocabulary import Role

BROUGHT = ("neither", "token", "ticket")
"""Values of the column `brought` of exchanges: what a client brings from an earlier connection."""

SMALLEST = 736
"""Smallest measured size of the TLS Certificate message, bytes."""

DATAGRAM_BYTES = {"DoQ": 1280, "DoH3": 1280, "DoT": 1448, "DoH": 1448}
"""Largest payload of a packet that the server sends in a handshake, bytes.

Over UDP, it is that of quic-go; over TCP, that of a segment with timestamps on Ethernet.
"""
_INITIAL_WINDOW = 10 * 1448
"""Bytes that a TCP server may send before the first acknowledgement: ten segments (RFC 6928)."""
_AMPLIFICATION = 3
"""Maximum ratio of sent to received bytes before an address is validated (RFC 9000, section 8.1)."""
_UDP_HEADER, _TCP_HEADER, _SYN_ACK = 8, 32, 40
"""Sizes of transport headers, bytes: UDP, TCP with timestamps, SYN-ACK."""
_IP_AND_ETHERNET_BYTES = 34
"""IPv4 and Ethernet headers, bytes. netem counts them; the size columns of the tables do not."""
_STEP_RTT = 0.5

_SIZE = pl.col("server_certificate_bytes")
_ON_QUIC = pl.col("protocol").is_in(["DoQ", "DoH3"])


def by_size(dns_exchanges: pl.LazyFrame, rtts: pl.LazyFrame) -> pl.LazyFrame:
    """Successful exchanges that belong to no search.

    Columns of `dns_exchanges`, size (of the certificate, bytes), brought (a value in `BROUGHT`), and total_rtt
    (`total_ms` in multiples of the RTT).
    """
    ticket = pl.col("resumption") == "ticket"
    rows = dns_exchanges.filter(
        pl.col("error").is_null(), pl.col("condition").is_in([CERTIFICATE, CERTIFICATE_AND_TOKEN]), role=Role.MEASURED
    )
    return metrics.in_rtts(rows, rtts, ["total_ms"]).with_columns(
        size=_SIZE,
        brought=pl.when(ticket)
        .then(pl.lit("ticket"))
        .when(pl.col("condition") == CERTIFICATE_AND_TOKEN)
        .then(pl.lit("token"))
        .otherwise(pl.lit("neither")),
    )


def visits(resolved_loads: pl.LazyFrame, rtts: pl.LazyFrame) -> pl.LazyFrame:
    """Successful visits.

    Columns of `resolved_loads`, size (of the certificate, bytes) and brought (what the client brings). The columns
    resolved_rtt, response_start_rtt, document_rtt and load_complete_rtt have times in multiples of the RTT.
    """
    token = pl.col("condition") == CERTIFICATE_AND_TOKEN
    ticket, no_token = pl.col("h3") == "0-rtt", pl.col("condition") == CERTIFICATE_NO_TOKEN
    rows = resolved_loads.filter(pl.col("error").is_null(), pl.col("server_certificate_bytes").is_not_null())
    return metrics.in_rtts(
        rows, rtts, ["resolved_ms", "response_start_ms", "document_ms", "load_complete_ms"]
    ).with_columns(
        size=_SIZE,
        brought=pl.when(token)
        .then(pl.lit("token"))
        .when(ticket & no_token)
        .then(pl.lit("ticket"))
        .when(ticket)
        .then(pl.lit("ticket and token"))
        .otherwise(pl.lit("neither")),
    )


def steps(dns_exchanges: pl.LazyFrame, link_checks: pl.LazyFrame) -> pl.LazyFrame:
    """Result of each search: the certificate size above which an exchange takes another round-trip.

    Searches that failed or found no step are left out.

    Returns
    -------
    polars.LazyFrame
        campaign, round, link, page, protocol, and:

        - below, above: largest certificate without the further round-trip, and smallest one with it, bytes.
        - height_rtt: duration of the exchange with `above` minus duration with `below`, in multiples of the RTT.
        - wait_rtt: `height_rtt` plus the time in which the server sends all datagrams of its first flight except the
          first. The wait for an acknowledgement begins with the first datagram, so this is the whole wait.
        - flight_bytes: size of the server's first flight with `below`.
        - limit_bytes: three times the bytes that the server received (QUIC), or ten segments (TCP).
        - expected: size of the certificate with which the first flight is as large as `limit_bytes`, bytes.
        - distance: absolute difference of `flight_bytes` and `limit_bytes`, in datagrams (QUIC) or segments (TCP).
    """
    key = [*metrics.ROUND, "protocol"]
    headers = (
        pl.when(_ON_QUIC)
        .then(_UDP_HEADER * pl.col("handshake_received_packets"))
        .otherwise(_SYN_ACK + _TCP_HEADER * (pl.col("handshake_received_packets") - 1))
    )
    received = pl.col("first_flight_bytes") - _UDP_HEADER * pl.col("first_flight_packets")
    searched = (
        metrics.in_rtts(dns_exchanges, metrics.nominal_rtts(link_checks), ["total_ms"])
        .filter(pl.col("error").is_null().all().over(key), pl.col("condition") == SEARCH)
        .with_columns(
            size=_SIZE,
            flight_bytes=pl.col("handshake_received_bytes") - headers,
            limit_bytes=pl.when(_ON_QUIC).then(_AMPLIFICATION * received).otherwise(_INITIAL_WINDOW),
        )
        .with_columns(rise=pl.col("total_rtt") - pl.col("total_rtt").sort_by("size").first().over(key))
        .sort("size")
    )
    below, above = pl.col("rise") <= _STEP_RTT, pl.col("rise") > _STEP_RTT
    datagram = pl.col("protocol").replace_strict(DATAGRAM_BYTES, return_dtype=pl.Int64)
    rates = link_checks.group_by("link").agg(down_mbit=pl.col("nominal_down_mbit").median())
    header = pl.when(_ON_QUIC).then(_UDP_HEADER).otherwise(_TCP_HEADER) + _IP_AND_ETHERNET_BYTES
    others = (pl.col("flight_bytes") / datagram).ceil() - 1
    others_ms = others * (datagram + header) * 8 / pl.col("down_mbit") / 1e3
    brackets = searched.group_by(key).agg(
        pl.col("nominal_rtt_ms").first(),
        below=pl.col("size").filter(below).last(),
        above=pl.col("size").filter(above).first(),
        height_rtt=pl.col("total_rtt").filter(above).first() - pl.col("total_rtt").filter(below).last(),
        flight_bytes=pl.col("flight_bytes").filter(below).last(),
        limit_bytes=pl.col("limit_bytes").filter(below).last(),
    )
    return (
        brackets.drop_nulls()
        .join(rates, on="link")
        .with_columns(
            wait_rtt=pl.col("height_rtt") + others_ms / pl.col("nominal_rtt_ms"),
            expected=pl.col("below") - (pl.col("flight_bytes") - pl.col("limit_bytes")),
            distance=(pl.col("flight_bytes") - pl.col("limit_bytes")).abs() / datagram,
        )
    )
