"""Every figure by name: what it shows, where it belongs, how it is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import altair as alt
import polars as pl

from crosslayer.errors import CrosslayerError
from crosslayer.figures import cdf
from crosslayer.figures.inputs import Inputs
from crosslayer.figures.style import COLUMN_WIDTH, PAPER, TEXT_WIDTH, AnyChart, framed
from crosslayer.studies.authoritative import figures as authoritative
from crosslayer.studies.coalescing.figures import dns_overhead, handshakes, link_check, page_loads
from crosslayer.studies.early_data import figures as early_data
from crosslayer.studies.key_share import figures as key_share
from crosslayer.studies.serialisation import figures as serialisation
from crosslayer.studies.single_query import figures as single_query
from crosslayer.studies.web import figures as web

MAX_ROWS = 5000
"""Rows that a chart may embed."""


class FigureError(CrosslayerError):
    """A figure that cannot be drawn."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of a study."""

    name: str
    """File name without ending."""
    title: str
    paper_figure: str
    """What it corresponds to in the paper, e.g. `Fig. 5`; empty where the paper has nothing like it."""
    study: str
    notebook: str
    """Notebook that explains it."""
    caption: str
    """What the reader sees; provenance is added when it is drawn."""
    note: str
    """What marks and overlays mean, one or two sentences under the plot."""
    data: Callable[[Inputs], pl.DataFrame]
    """Makes the rows that are drawn."""
    chart: Callable[[pl.DataFrame], AnyChart]
    """Draws them."""
    table: Callable[[pl.DataFrame], pl.DataFrame] | None = None
    """Its numbers for a reader, from its rows."""
    width: int = COLUMN_WIDTH
    whole: bool = False
    """A CDF figure that shows its tails too; the others end at the 99th percentile and say so."""
    verdict: Callable[[pl.DataFrame], str] | None = None
    """Answers the question that its study asks, in a sentence made from its rows."""

    @property
    def heading(self) -> str:
        """Paper figure and title."""
        return f"{self.paper_figure}. {self.title}" if self.paper_figure else self.title


@dataclass(frozen=True, slots=True)
class Drawing:
    """A figure drawn from one dataset."""

    figure: Figure
    frame: pl.DataFrame
    """The rows it draws."""
    chart: alt.VConcatChart
    caption: str
    """Caption with provenance."""


def _measured_beside_published(frame: pl.DataFrame) -> pl.DataFrame:
    """Medians of a figure that has them in rows, each with the published one: ..., n, median, low, high, published."""
    key = [name for name in ("page", "link", "series") if name in frame.columns]
    ours, printed = (frame.filter(pl.col("source") == source) for source in ("measured", "published"))
    published = printed.select(*key, published="median")
    return ours.join(published, on=key, how="left", maintain_order="left").select(
        *key, "n", "median", "low", "high", "published"
    )


_DOTTED = f"Dotted, thin: {PAPER} as published. Dots and bars at 0.5: our medians, 95 % intervals."
_DIAMONDS = f"Diamonds: values printed in {PAPER}. Dots and bars at 0.5: our medians, 95 % intervals."
_CONNECT = (
    "Connect is connectEnd - connectStart, as in the paper. For 0-RTT today's browser marks the end of the handshake "
    "there, long after the request has left: see the figure on early data."
)

_FIGURES = (
    Figure(
        "table2-link-check",
        "Idle RTT and rates of the emulated links",
        "Table II",
        "coalescing",
        "link_check",
        "Deviation of the measured idle RTT (UDP echo) and rates of each link from its profile. The numbers are "
        "the median of all checks of the campaign and the profile's value, whose rounded form is Table II.",
        "Dots: median of all checks; bars: lowest and highest check. Grey: tolerance (RTT 1 % or 0.15 ms, rates 3 %).",
        link_check.table2_data,
        link_check.table2,
        link_check.table2_table,
        TEXT_WIDTH,
    ),
    Figure(
        "aa-self-check",
        "A/A self-check of the page-load procedure",
        "",
        "coalescing",
        "link_check",
        "Two alias hosts of the same page, both loaded with H3 1-RTT in the same round: whatever differs here is the "
        "procedure's own bias, since there is no effect to measure.",
        "Ticks: rounds. Orange: median and 95 % interval. Grey: what is tolerated, -3 % to +3 %.",
        link_check.aa_data,
        link_check.aa,
        link_check.aa_table,
    ),
    Figure(
        "failures",
        "Failed observations",
        "",
        "coalescing",
        "link_check",
        "Failed and attempted observations by condition and link. A failed observation is a row of the dataset with "
        "its reason; a combination counts a round only where both its exchange and its load succeeded.",
        "",
        link_check.failures_data,
        link_check.failures,
        link_check.failures_table,
    ),
    Figure(
        "fig03-handshakes",
        "Handshake durations over all links",
        "Fig. 3",
        "coalescing",
        "handshakes",
        f"CDF of handshake durations in multiples of the link's RTT, all links together. {_CONNECT}",
        _DIAMONDS,
        handshakes.fig3_data,
        handshakes.fig3,
        table=cdf.table,
    ),
    Figure(
        "fig04-handshakes-fiber-4g",
        "Handshake durations on fiber and 4G",
        "Fig. 4",
        "coalescing",
        "handshakes",
        f"CDF of handshake durations in multiples of the link's RTT on (a) fiber and (b) 4G. {_CONNECT}",
        _DIAMONDS,
        handshakes.fig4_data,
        handshakes.fig4,
        table=cdf.table,
    ),
    Figure(
        "early-data",
        "When the request leaves and the response starts",
        "",
        "coalescing",
        "handshakes",
        "Median times after the start of the navigation, in multiples of the link's RTT. With H3 0-RTT the request "
        "leaves at once and the response starts one round-trip earlier, while the end of the handshake hardly moves.",
        "Marks: medians of all pages; lines: 5th to 95th percentile.",
        handshakes.early_data_data,
        handshakes.early_data,
        handshakes.early_data_table,
    ),
    Figure(
        "early-data-saving",
        "What H3 0-RTT saves within a round",
        "",
        "coalescing",
        "handshakes",
        "Difference between the H3 1-RTT and the H3 0-RTT load of the same round, in multiples of the link's RTT: "
        "start of the response (all pages) and PLT of each page.",
        f"Filled: medians, 95 % intervals. Hollow: differences of medians, {PAPER} Figs. 10, 11. Dashed: 0 and 1 RTT.",
        handshakes.saving_data,
        handshakes.saving,
        _measured_beside_published,
    ),
    Figure(
        "fig05-dns-exchange",
        "DNS exchange durations over all links",
        "Fig. 5",
        "coalescing",
        "dns_overhead",
        "CDF of DNS exchanges (handshake and query on a new connection) in multiples of the link's RTT, all links "
        "together.",
        _DOTTED,
        dns_overhead.fig5_data,
        dns_overhead.fig5,
        table=cdf.table,
    ),
    Figure(
        "fig06-dns-exchange-fiber-4g",
        "DNS exchange durations on fiber and 4G",
        "Fig. 6",
        "coalescing",
        "dns_overhead",
        "CDF of DNS exchanges in multiples of the link's RTT on (a) fiber and (b) 4G.",
        _DOTTED,
        dns_overhead.fig6_data,
        dns_overhead.fig6,
        table=cdf.table,
    ),
    Figure(
        "dns-exchange-other-links",
        "DNS exchange durations on the links that are not printed",
        "",
        "coalescing",
        "dns_overhead",
        "CDF of DNS exchanges in multiples of the link's RTT on cable, DSL and 4G medium. The authors drew these "
        "figures and did not print them.",
        f"Dotted, thin: quantiles of the authors' files. {_DOTTED.split('. ', 1)[1]}",
        dns_overhead.other_links_data,
        dns_overhead.other_links,
        table=cdf.table,
    ),
    Figure(
        "fig07-queries-and-tcp-rtt",
        "DoUDP lookup, DoQ query and TCP RTT",
        "Fig. 7",
        "coalescing",
        "dns_overhead",
        "CDF of single round-trips in multiples of the link's RTT: DoUDP lookup, DoQ query without its handshake, and "
        "TCP connect, (a) over all links and (b) on cable.",
        _DIAMONDS,
        dns_overhead.fig7_data,
        dns_overhead.fig7,
        table=cdf.table,
    ),
    Figure(
        "processing-delay",
        "What an exchange takes beyond its round-trips",
        "",
        "coalescing",
        "dns_overhead",
        "DNS exchange minus the round-trips it needs at least (DoUDP 1, DoQ 2, DoH 3), in ms: processing, "
        "serialisation and queueing. Drawn by the authors and not printed.",
        f"Dotted, thin: quantiles of the authors' files. {_DOTTED.split('. ', 1)[1]}",
        dns_overhead.processing_data,
        dns_overhead.processing,
        table=cdf.table,
    ),
    Figure(
        "fig08-heatmap",
        "Median PLT increase over DoUDP + H3 1-RTT",
        "Fig. 8",
        "coalescing",
        "page_loads",
        "Median PLT of each combination relative to the median of the baseline (DoUDP + H3 1-RTT) in the same cell: as "
        "measured, as published, and the difference in percentage points.",
        "Small: 95 % interval, baseline and combination resampled together.",
        page_loads.fig8_data,
        page_loads.fig8,
        page_loads.fig8_table,
        TEXT_WIDTH,
    ),
    Figure(
        "fig09-plt-grid",
        "Relative PLT increase, three pages by five links",
        "Fig. 9",
        "coalescing",
        "page_loads",
        "CDF of the PLT of each combination relative to the median of the baseline (DoUDP + H3 1-RTT) in the same "
        "cell.",
        _DOTTED,
        page_loads.fig9_data,
        page_loads.fig9,
        width=TEXT_WIDTH,
    ),
    Figure(
        "fig10-plt-wikipedia",
        "PLT of wikipedia.org on fiber and 4G",
        "Fig. 10",
        "coalescing",
        "page_loads",
        "CDF of the PLT of wikipedia.org, absolute and relative to the baseline's own median: machines and browsers "
        "differ in how long a page takes, the second plot of each link takes that out. Its intervals take the "
        "baseline's median as given.",
        f"Dotted, thin: derived from {PAPER}. {_DOTTED.split('. ', 1)[1]}",
        page_loads.fig10_data,
        page_loads.fig10,
        table=cdf.table,
    ),
    Figure(
        "fig11-plt-instagram",
        "PLT of instagram.com on fiber and 4G",
        "Fig. 11",
        "coalescing",
        "page_loads",
        "CDF of the PLT of instagram.com, absolute and relative to the baseline's own median, which the intervals take "
        "as given.",
        f"Dotted, thin: derived from {PAPER}. {_DOTTED.split('. ', 1)[1]}",
        page_loads.fig11_data,
        page_loads.fig11,
        table=cdf.table,
    ),
    Figure(
        "fig12-summary",
        "Median PLT increase over all cells",
        "Fig. 12",
        "coalescing",
        "page_loads",
        "CDF over the cells (page and link) of the median PLT increase of Fig. 8.",
        f"Dotted, thin: {PAPER} as published, 15 cells.",
        page_loads.fig12_data,
        page_loads.fig12,
        page_loads.fig12_table,
        whole=True,
    ),
    Figure(
        "plt-differences",
        "What each step costs within a round",
        "",
        "coalescing",
        "page_loads",
        "Paired differences of the PLT within a round, in percent of the baseline's median: DoQ instead of DoUDP, DoH "
        "instead of DoQ, and a full H3 handshake instead of early data.",
        f"Filled: medians of the differences, 95 % intervals. Hollow: differences of the medians of {PAPER} Fig. 8.",
        page_loads.differences_data,
        page_loads.differences,
        _measured_beside_published,
        TEXT_WIDTH,
    ),
    Figure(
        "imc22-table1",
        "Bytes of a single query",
        "IMC22 Table 1",
        "single-query",
        "single_query",
        "Median IP payload of each part of an exchange on a new connection, counted from the packets; encrypted "
        "transports resume a session.",
        "Bold: measured; below: published (medians over 275 or 276 resolvers). The total is the sum of the medians.",
        single_query.table1_data,
        single_query.table1,
        single_query.table1_table,
        TEXT_WIDTH,
    ),
    Figure(
        "imc22-fig2",
        "Handshake and resolve time by vantage point",
        "IMC22 Fig. 2",
        "single-query",
        "single_query",
        "Median handshake and resolve time of a single query from each vantage point over all resolvers. The RTTs are "
        "a model that has the paper's overall median and the order of its vantage points; of the single vantage points "
        "the paper prints no numbers.",
        "Numbers: medians, ms. Published: the medians over all vantage points that the text gives for handshakes.",
        single_query.fig2_data,
        single_query.fig2,
        single_query.times_table,
        TEXT_WIDTH,
    ),
    Figure(
        "further-transports",
        "The same for DoH3 and early data",
        "",
        "single-query",
        "single_query",
        "Median handshake and resolve time with what the paper could not measure: DoH3, and queries that leave as "
        "early data (0-RTT), which no public resolver took then. Early data has no handshake to wait for.",
        "Numbers: medians, ms. DoQ and DoH3 resume a session, as in the paper.",
        single_query.further_data,
        single_query.further,
        single_query.times_table,
        TEXT_WIDTH,
    ),
    Figure(
        "handshake-round-trips",
        "Handshakes in round-trips",
        "",
        "single-query",
        "single_query",
        "Median handshake in multiples of the link's RTT. TLS 1.2 and full handshakes are measured from the first "
        "vantage point only.",
        "Marks: medians; bars: 95 % intervals. Upright ticks: the round-trips the protocols need.",
        single_query.handshakes_data,
        single_query.handshakes,
        single_query.handshake_table,
    ),
    Figure(
        "amplification-limit",
        "One more round-trip: the amplification limit and Retry",
        "",
        "single-query",
        "single_query",
        "Median DoQ handshake. Before it knows the client's address a server may send three times what it received: a "
        "certificate larger than that waits for one more round-trip, as does a client that is asked for a token by "
        "Retry. Resumption sends no certificate, and a token from the connection before proves the address.",
        "Marks: medians; bars: 95 % intervals. Upright ticks: the round-trips expected.",
        single_query.amplification_data,
        single_query.amplification,
        single_query.handshake_table,
    ),
    Figure(
        "dsl-serialisation",
        "A DoQ query beyond one RTT, and the bytes on the uplink",
        "",
        "serialisation",
        "question_serialisation",
        "Median time a query takes beyond the link's RTT against the time that the bytes sent up to it (the padded "
        "second flight of the handshake, and the query) occupy the uplink, on DSL with its own uplink and with 2, 4 "
        "and 16 times its rate.",
        f"Dashed: one ms of bytes, one ms of delay. Hollow: {PAPER}'s 1.37 RTT on DSL, were its datagrams of our size. "
        "Bars: 95 % intervals.",
        serialisation.serialisation_data,
        serialisation.serialisation,
        serialisation.serialisation_table,
        verdict=serialisation.serialisation_verdict,
    ),
    Figure(
        "early-data-mechanism",
        "What a resumed load saves, by what the server does with early data",
        "",
        "early-data",
        "question_early_data",
        "Saving over a load with a full handshake in the same round, against the link's RTT: early data answered as it "
        "arrives, early data answered after the handshake, and a resumed session without early data.",
        f"Dashed: one RTT. Bars: 95 % intervals. Hollow: differences of the medians of {PAPER} Figs. 10 and 11.",
        early_data.early_data_data,
        early_data.early_data,
        early_data.early_data_table,
        TEXT_WIDTH,
        verdict=early_data.early_data_verdict,
    ),
    Figure(
        "key-share-cost",
        "What the post-quantum key share costs",
        "",
        "key-share",
        "question_key_share",
        "Exchange on a new connection with the key share X25519MLKEM768, which browsers send today, minus the one with "
        "X25519 in the same round.",
        "Marks: medians; bars: 95 % intervals. Upright ticks: the further bytes of the exchange at the link's rates.",
        key_share.key_share_data,
        key_share.key_share,
        key_share.key_share_table,
        TEXT_WIDTH,
        verdict=key_share.key_share_verdict,
    ),
    Figure(
        "paced-link",
        "Is a response one round-trip and processing?",
        "",
        "authoritative",
        "authoritative",
        "Mean response on kept connections, minus the link's RTT, minus the mean of the same transport without a link: "
        "what neither the round-trip nor processing explains.",
        "Dots: means; bars: 95 % intervals (rounds resampled). Grey: tolerance, 2 % of the RTT or 0.5 ms.",
        authoritative.pace_data,
        authoritative.pace,
        authoritative.pace_table,
        TEXT_WIDTH,
        verdict=authoritative.pace_verdict,
    ),
    Figure(
        "table1-means",
        "Mean response on long-lived connections",
        "Table 1",
        "authoritative",
        "authoritative",
        "Mean response on kept connections, BIND's own time taken out, minus the link's nominal RTT. The paper's RTTs "
        "are typical values of real paths, which is why its means may lie below them.",
        "Filled: our means, 95 % intervals. Diamonds: Batenburg 2022, Table 1.",
        authoritative.means_data,
        authoritative.means,
        authoritative.beside_published_table,
        TEXT_WIDTH,
    ),
    Figure(
        "table2-variances",
        "Variance of the response on long-lived connections",
        "Table 2",
        "authoritative",
        "authoritative",
        "Variance of the response on kept connections. Ours is what the machine does; the paper's is also what the "
        "Internet did.",
        "Filled: our variances, 95 % intervals. Diamonds: Batenburg 2022, Table 2.",
        authoritative.variances_data,
        authoritative.variances,
        authoritative.beside_published_table,
        TEXT_WIDTH,
    ),
    Figure(
        "fig3-histograms",
        "Distribution of the response by location",
        "Fig. 3",
        "authoritative",
        "authoritative",
        "Histograms of the response on kept connections minus the link's RTT, a column for each location as in the "
        "paper's Fig. 3 (a) to (d), a row for each transport.",
        "Bins of 0.2 ms; the first has all that is shorter, the last all that is longer.",
        authoritative.histograms_data,
        authoritative.histograms,
        None,
        TEXT_WIDTH,
    ),
    Figure(
        "connection-per-query",
        "A connection kept, one for each query, and 0-RTT",
        "",
        "authoritative",
        "authoritative",
        "Mean response in multiples of the link's RTT, where the connection is kept, where it is closed after every "
        "query, and where the next query leaves as early data of a resumed session.",
        "Marks: means; bars: 95 % intervals. 0-RTT counts only where the server saw early data.",
        authoritative.connections_data,
        authoritative.connections,
        authoritative.connections_table,
        TEXT_WIDTH,
    ),
    Figure(
        "jitter-and-loss",
        "Jitter and loss on the path to US East",
        "",
        "authoritative",
        "authoritative",
        "Response on kept connections minus the link's RTT, on the US link as it is, with a jitter of 2 ms (standard "
        "deviation, each direction) and with a loss of 1 % in each direction.",
        "Dots: means, 95 % intervals. Ticks: 99th percentiles.",
        authoritative.disturbed_data,
        authoritative.disturbed,
        authoritative.disturbed_table,
        TEXT_WIDTH,
    ),
    Figure(
        "fig3-fcp-and-plt",
        "FCP and PLT over DoUDP",
        "Fig. 3",
        "web",
        "web_performance",
        "Distribution of FCP and PLT over the median of DoUDP in the same cell, by the transport of the browser's own "
        "lookups; every load of every link and page. DoUDP's own curve is what loads scatter by.",
        "Diamonds: values printed in IMC22 (Kosek et al.). Dots and bars at 0.5: our medians, 95 % intervals.",
        web.fig3_data,
        web.fig3,
        cdf.table,
    ),
    Figure(
        "fig4-links-and-pages",
        "PLT over DoUDP by link and page",
        "Fig. 4",
        "web",
        "web_performance",
        "Median PLT over that of DoUDP, a row for each link, a column for each page, those with the fewest lookups "
        "first. The paper's Fig. 4 is the same grid over its vantage points.",
        "Marks: medians; bars: 95 % intervals (rounds resampled). Upright: DoUDP.",
        web.fig4_data,
        web.fig4,
        web.fig4_table,
        TEXT_WIDTH,
    ),
    Figure(
        "amortisation",
        "What a transport costs, by the number of lookups",
        "",
        "web",
        "web_performance",
        "PLT over DoUDP against the number of lookups of the page: in percent of the PLT, and as the difference within "
        "a round in multiples of the RTT.",
        "Marks: medians of a page, set apart sideways; bars: 95 % intervals; lines: mean of the pages.",
        web.amortisation_data,
        web.amortisation,
        web.amortisation_table,
        TEXT_WIDTH,
        verdict=web.amortisation_verdict,
    ),
    Figure(
        "first-lookup",
        "The first lookup of a load",
        "",
        "web",
        "web_performance",
        "Lookup of the page's own host, which has to wait until the stub has a connection, by the stub's log. Its "
        "table also holds the browser's own lookup time against it.",
        "Marks: medians; bars: 95 % intervals. Upright ticks: round-trips of a resumed session without early data.",
        web.first_lookup_data,
        web.first_lookup,
        web.first_lookup_table,
        TEXT_WIDTH,
    ),
)

FIGURES: dict[str, Figure] = {figure.name: figure for figure in _FIGURES}
"""Every figure of every study by name; those of a study in the order of the paper."""


def of_study(study: str) -> dict[str, Figure]:
    """The figures of one study."""
    return {name: figure for name, figure in FIGURES.items() if figure.study == study}


def draw(figure: Figure, inputs: Inputs, provenance: str) -> Drawing:
    """Draw one figure.

    Parameters
    ----------
    figure
        From `FIGURES`.
    inputs
        Tables and published values.
    provenance
        Campaign, rounds, backend and host, from `Dataset.caption`.

    Raises
    ------
    FigureError
        Where the rows would be more than a chart may embed.
    """
    frame = figure.data(inputs)
    if frame.height > MAX_ROWS:
        raise FigureError(
            f"{frame.height} rows, more than the {MAX_ROWS} a chart may embed",
            where=figure.name,
            next_step="Measure fewer links or pages in one campaign, or draw the links apart.",
        )
    tail = cdf.tail_note(frame) if set(cdf.SCHEMA) <= set(frame.columns) and not figure.whole else ""
    lacks = inputs.lacks() if figure.study == "coalescing" else ""
    chart = framed(
        figure.chart(frame), figure.heading, [figure.note, _samples(frame), tail, lacks, provenance], figure.width
    )
    return Drawing(
        figure, frame, chart, " ".join(part for part in (figure.caption, figure.note, lacks, provenance) if part)
    )


def _samples(frame: pl.DataFrame) -> str:
    """How many observations the measured marks stand for."""
    if "n" not in frame.columns or "source" not in frame.columns:
        return ""
    counts = frame.filter(pl.col("source") == "measured")["n"].drop_nulls().sort().to_list()
    if not counts:
        return ""
    low, high = counts[0], counts[-1]
    return f"n = {low}." if low == high else f"n = {low} to {high}."
