"""Make the published values of this folder from the transcriptions of the papers.

    python data/published/make.py SOURCE

SOURCE is a folder with the transcribed CSV files (`claims.csv`, `curves_paper_figures.csv`, ...). The tables
written here keep their numbers as they are; only names are brought to those of the datasets (`link`, `page`,
`series`), provenance of single vector files is dropped, and the values that the text gives for a figure are
gathered from the claims into `points.csv`. `README.md` in this folder has columns and sources.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import polars as pl

HERE = Path(__file__).parent

LINKS = {
    "all technologies": "all",
    "fiber": "fiber",
    "cable": "cable",
    "dsl": "dsl",
    "4g": "4g",
    "4g medium": "4g-medium",
}
METRICS = {
    "DNS exchange duration (handshake + query)": "exchange",
    "DNS exchange duration minus expected round trips (DoUDP 1, DoQ 2, DoH 3)": "exchange minus expected round-trips",
    "PLT relative increase over DoUDP + H3 1-RTT median": "relative PLT increase",
}
PAPERS = {"SLIDES (seed 001/002)": "TNSM24 talk"}
UNITS = {"RTT multiples": "RTT", "percent": "%", "ms": "ms"}
STATISTICS = {"min": 0.0, "p10": 0.1, "p20": 0.2, "p25": 0.25, "median": 0.5, "p75": 0.75, "max": 1.0}
QUANTILES = ["min", *(f"p{q}" for q in (1, 5, 10, 20, 25, 30, 40, 50, 60, 70, 75, 80, 90, 95, 99)), "max"]


def curves(source: Path) -> pl.DataFrame:
    """Vertices of the printed CDF curves: interpolate linearly between them."""
    return pl.read_csv(source / "curves_paper_figures.csv").select(
        figure="paper_figure",
        link="panel_technology",
        page="panel_website",
        series="series",
        metric=pl.col("metric").replace(METRICS),
        unit=pl.col("x_unit").replace(UNITS),
        x="x",
        cdf="cdf",
    )


def quantiles(source: Path) -> pl.DataFrame:
    """Quantiles of every curve used here, printed or only in the paper's vector files."""
    return (
        pl.read_csv(source / "curve_quantiles.csv")
        .filter(pl.col("metric").is_in(METRICS.keys()))
        .select(
            pl.col("paper_figure").replace("none", "").alias("figure"),
            pl.col("panel_technology").alias("link"),
            pl.col("panel_website").alias("page"),
            "series",
            pl.col("metric").replace(METRICS),
            pl.col("x_unit").replace(UNITS).alias("unit"),
            *QUANTILES,
            pl.col("n_samples_inferred").alias("samples"),
            "left_truncated",
            "right_truncated",
            "x_tolerance",
            "cdf_tolerance",
        )
    )


def heatmap(source: Path) -> pl.DataFrame:
    """TNSM24 Fig. 8."""
    return pl.read_csv(source / "fig8_heatmap.csv").select(
        link="technology", page="website", series="combination", percent="median_relative_plt_increase_pct"
    )


def absolute_plt(source: Path) -> pl.DataFrame:
    """TNSM24 Figs. 10 and 11, derived from Fig. 9 and the baseline medians of the text."""
    return pl.read_csv(source / "fig10_fig11_derived_quantiles.csv").rename(
        {"paper_figure": "figure", "technology": "link", "website": "page", "baseline_median_ms": "baseline_ms"}
    )


def samples(source: Path) -> pl.DataFrame:
    """Samples per combination and cell."""
    return pl.read_csv(source / "sample_sizes_per_cell.csv").select(
        link="technology", page="website", samples="samples_per_protocol_combination"
    )


def links(source: Path) -> pl.DataFrame:
    """TNSM24 Table II as printed."""
    return (
        pl.read_csv(source / "link_profiles.csv")
        .filter(pl.col("used_in_paper") == "yes")
        .select(
            link="profile", rtt_ms="table2_delay_ms", down_mbit="table2_download_mbps", up_mbit="table2_upload_mbps"
        )
    )


def single_loads(source: Path) -> pl.DataFrame:
    """The one load of each cell whose browser timings were published."""
    return pl.read_csv(source / "quic_connect_times_and_plt.csv").select(
        "h3_1rtt_plt_ms",
        "h3_1rtt_connect_ms",
        "h3_0rtt_plt_ms",
        "h3_0rtt_connect_ms",
        link="technology",
        page="website",
    )


SIZES = {
    "handshake_client_to_resolver_bytes": "handshake, client to resolver",
    "handshake_resolver_to_client_bytes": "handshake, resolver to client",
    "dns_query_bytes": "query",
    "dns_response_bytes": "response",
    "total (sum of the four medians)": "total",
}


def sizes(source: Path) -> pl.DataFrame:
    """IMC22 Table 1, with quantiles over the paper's resolvers."""
    return (
        pl.read_csv(source / "imc22_sizes_summary.csv")
        .filter(pl.col("quantity").is_in(SIZES.keys()))
        .select(
            "resolvers",
            "p10",
            "p25",
            "median",
            "p75",
            "p90",
            series="protocol",
            part=pl.col("quantity").replace(SIZES),
            table1="table1_value",
        )
        .select("series", "part", "resolvers", "p10", "p25", "median", "p75", "p90", "table1")
    )


def points(claims: pl.DataFrame) -> pl.DataFrame:
    """Single values of TNSM24's text that are a point of a distribution, with the claim they come from."""
    rows = [point for claim in claims.iter_rows(named=True) if (point := _point(claim))]
    return pl.DataFrame(rows, orient="row")


def _point(claim: dict[str, str]) -> dict[str, object] | None:
    quantity, scope = claim["quantity"], [part.strip() for part in claim["scope"].split(";")]
    if claim["paper"] != "TNSM24" or claim["kind"] != "result" or claim["statistic"] not in STATISTICS:
        return None
    page = "all"
    if quantity == "connect duration":
        series, link = f"{scope[0]} connect", scope[1]
    elif quantity == "QUIC handshake duration":
        series, link = "DoQ handshake", scope[1]
    elif quantity == "DNS exchange duration":
        series, link = scope[0], scope[1]
    elif quantity in ("DoQ query duration", "DoUDP lookup duration", "TCP RTT"):
        series, link = quantity.removesuffix(" duration"), scope[0]
    elif quantity == "PLT":
        series, page, link = scope[0].removesuffix(" (baseline)"), scope[1], scope[2]
    else:
        return None
    figure = re.search(r"Fig\. \d+(\([ab]\))?", claim["section_or_figure"])
    return {
        "claim_id": claim["claim_id"],
        "figure": figure.group() if figure else "",
        "link": LINKS[link.lower()],
        "page": page,
        "series": series,
        "metric": "PLT" if quantity == "PLT" else quantity.removeprefix("DNS ").removesuffix(" duration"),
        "unit": UNITS[claim["unit"]],
        "cdf": STATISTICS[claim["statistic"]],
        "x": float(claim["value"]),
        "relation": claim["expected_relation"],
    }


def main(source: Path) -> None:
    """Write every table of this folder."""
    claims = pl.read_csv(source / "claims.csv", infer_schema=False).fill_null("")
    added = pl.read_csv(Path(__file__).with_name("claims_added.csv"), infer_schema=False).fill_null("")
    claims = pl.concat([claims.with_columns(pl.col("paper").replace(PAPERS)), added])
    claims = pl.concat(claims.partition_by("paper", maintain_order=True))  # what was added comes with its paper
    tables = {
        "absolute_plt": absolute_plt(source),
        "claims": claims,
        "curves": curves(source),
        "heatmap": heatmap(source),
        "links": links(source),
        "points": points(claims),
        "quantiles": quantiles(source),
        "samples": samples(source),
        "single_loads": single_loads(source),
        "sizes": sizes(source),
    }
    for name, table in tables.items():
        table.write_csv(HERE / f"{name}.csv")
        print(f"{name}.csv: {table.height} rows")


if __name__ == "__main__":
    if len(sys.argv) != 2 or not Path(sys.argv[1], "claims.csv").is_file():
        sys.exit(f"usage: {sys.argv[0]} SOURCE   (a folder that holds claims.csv and the other transcriptions)")
    main(Path(sys.argv[1]))
