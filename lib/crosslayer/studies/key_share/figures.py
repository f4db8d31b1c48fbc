"""Figures: cost of the post-quantum key share on each link."""

from __future__ import annotations

import altair as alt
import polars as pl

from crosslayer import metrics
from crosslayer.figures import Figure, Inputs, marks
from crosslayer.figures.sentences import reach
from crosslayer.figures.style import COLUMN_WIDTH, INK, TEXT_WIDTH, AnyChart, link_title, with_titles

_IP_AND_ETHERNET_BYTES = 34
"""Bytes of a packet's IPv4 and Ethernet headers: netem counts them, the columns of sizes do not."""

PROTOCOLS = ("DoQ", "DoT")
_PHASES = {"handshake_ms": "handshake", "total_ms": "whole exchange"}


def key_share_data(inputs: Inputs) -> pl.DataFrame:
    """Cost of the post-quantum key share within a round: time with X25519MLKEM768 minus time with X25519, ms.

    Columns link, protocol (`DoQ`, `DoT`), measure, source, n, rounds, median, low, high. Rows of source `expected` have
    a computed time: the bytes that the key share adds, divided by the link's rates. Captures count these bytes.
    """
    exchanges = metrics.exchanges(inputs.dns_exchanges)
    parts = []
    for protocol in PROTOCOLS:
        of_protocol = exchanges.filter(pl.col("protocol") == protocol)
        named = {"protocol": pl.lit(protocol)}
        for column, measure in _PHASES.items():
            cost = metrics.paired(of_protocol, column, "condition", "x25519mlkem768", "x25519")
            ours = metrics.medians(cost, "difference", ["link"]).sort("link")
            parts.append(ours.with_columns(**named, measure=pl.lit(measure), source=pl.lit("measured")))
        parts.append(_expected_cost(of_protocol, inputs).with_columns(**named, source=pl.lit("expected")))
    return inputs.by_rtt(pl.concat(parts, how="diagonal_relaxed"))


def _expected_cost(exchanges: pl.LazyFrame, inputs: Inputs) -> pl.DataFrame:
    """Time to transmit the bytes that the post-quantum key share adds to an exchange, by link and measure; ms.

    The bytes include packet headers, in both directions. Both measures, `handshake` and `whole exchange`, have the same
    value, computed from the bytes of the whole exchange. The reason: the client's second flight leaves at about the end
    of the handshake, so it may count to either phase.
    """
    rates = inputs.link_checks.group_by("link").agg(
        up=pl.col("nominal_up_mbit").median(), down=pl.col("nominal_down_mbit").median()
    )
    wire = {
        way: pl.col(f"handshake_{way}_bytes")
        + pl.col(f"query_{way}_bytes")
        + _IP_AND_ETHERNET_BYTES * (pl.col(f"handshake_{way}_packets") + pl.col(f"query_{way}_packets"))
        for way in ("sent", "received")
    }
    sizes = exchanges.group_by("link", "condition").agg(**{way: size.median() for way, size in wire.items()})
    large, small = (sizes.filter(pl.col("condition") == name) for name in ("x25519mlkem768", "x25519"))
    further = {way: (pl.col(way) - pl.col(f"{way}_small")) * 8 / 1e3 for way in ("sent", "received")}
    alone = further["sent"] / pl.col("up") + further["received"] / pl.col("down")
    costs = large.join(small, on="link", suffix="_small").join(rates, on="link").select("link", median=alone)
    by_link = costs.sort("link").collect()
    return pl.concat(by_link.with_columns(measure=pl.lit(measure)) for measure in _PHASES.values())


def key_share(frame: pl.DataFrame) -> AnyChart:
    """Chart of the cost of the post-quantum key share on each link."""
    ours = frame.filter(pl.col("source") == "measured")
    if ours.is_empty():
        return marks.empty_plot("no pairs of exchanges of this study", COLUMN_WIDTH - 60)
    links = [link_title(link) for link in ours["link"].unique(maintain_order=True)]
    scale = marks.domain(frame, least=(-2.0, 2.0), margin=0.5)
    x = alt.X("median:Q", title="X25519MLKEM768 minus X25519 (ms)", scale=scale, axis=alt.Axis(tickCount=6))
    y = marks.rows("link_title", links)
    encodings = marks.encode_series("protocol", marks.styles(PROTOCOLS), "color", "shape", "offset")
    who = ("link_title", "protocol", "measure")
    base = alt.Chart(width=262, height=36 * len(links))
    layers = [
        marks.line_at(base, x=0, dashed=True),
        marks.ticks(
            marks.rows_from(base, "expected"),
            x,
            y,
            marks.tooltip(*who, value="its bytes, ms"),
            {"yOffset": encodings["yOffset"]},
            color=INK,
        ),
        *marks.intervals(
            marks.rows_from(base, "measured"), x, y, marks.tooltip(*who, value="cost, ms", counted="pairs"), encodings
        ),
    ]
    chart: AnyChart = marks.multiples(layers, column=marks.facet_columns("measure", [*_PHASES.values()]), spacing=12)
    chart.data = with_titles(frame)
    return chart


def key_share_table(frame: pl.DataFrame) -> pl.DataFrame:
    """Table of link, protocol, measure, n, median, low, high, and time to transmit the additional bytes; ms."""
    key = ["link", "protocol", "measure"]
    expected = frame.filter(pl.col("source") == "expected").select(*key, bytes_alone="median")
    ours = frame.filter(pl.col("source") == "measured").select(*key, "n", "median", "low", "high")
    return ours.join(expected, on=key, how="left", maintain_order="left")


def key_share_verdict(frame: pl.DataFrame) -> str:
    """Verdict: cost of the post-quantum key share on each link."""
    whole = frame.filter(measure="whole exchange")
    doq, dot = (whole.filter(source="measured", protocol=protocol) for protocol in PROTOCOLS)
    of_bytes = [whole.filter(source="expected", protocol=protocol) for protocol in PROTOCOLS]
    if doq.is_empty() or dot.is_empty() or any(rows.is_empty() for rows in of_bytes):
        return "Not answered: this dataset has no pairs of exchanges with and without the post-quantum key share."
    most = doq.sort("median")["link"][-1]
    over_doq, over_dot = (f"{reach(rows['median'], 1)} ms" for rows in of_bytes)
    return (
        f"X25519MLKEM768 instead of X25519 makes a DNS exchange longer by {reach(doq['median'], 1)} ms over DoQ and by "
        f"{reach(dot['median'], 1)} ms over DoT. At the link's rates, transmission of the additional bytes takes "
        f"{over_doq} over DoQ and {over_dot} over DoT. Ranges: over the links. With DoQ, the increase is largest on "
        f"{link_title(most)}."
    )


FIGURES = (
    Figure(
        name="key-share-cost",
        title="Cost of the post-quantum key share",
        notebook="question_key_share",
        caption="Time of a DNS exchange on a new connection with the key share X25519MLKEM768, which today's browsers "
        "send, minus the time with X25519 in the same round.",
        note="Marks: medians; bars: 95 % intervals. Vertical ticks: time to transmit the additional bytes at the "
        "link's rates.",
        data=key_share_data,
        chart=key_share,
        table=key_share_table,
        width=TEXT_WIDTH,
        verdict=key_share_verdict,
    ),
)
