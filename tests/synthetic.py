"""Synthetic datasets with the quantiles that TNSM24 published, for tests and benchmarks.

They have the schema of real datasets. Exchange times and PLTs are drawn by inverting a published CDF (data/published).
So the medians of a large synthetic dataset are the published ones. Values that were not published come from a simple
model and are useful only for drawing, e.g. the query time of DoQ per link, and the start of request and response.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from crosslayer.campaign.tables import SCHEMA_VERSION, TABLES
from crosslayer.vocabulary import Role

REFERENCE = Path(__file__).parents[1] / "data" / "published"
LINKS = ("fiber", "cable", "dsl", "4g", "4g-medium")
PAGES = ("example.org", "wikipedia.org", "instagram.com")
RTT_MS = {
    "fiber": 14.767147,
    "cable": 25.17665,
    "dsl": 42.35979,
    "4g": 91.85231065904635,
    "4g-medium": 104.5041425140391,
}
RATES_MBIT = {
    "fiber": (99.859576, 109.103380),
    "cable": (165.046798, 11.634674),
    "dsl": (10.73476, 0.842152),
    "4g": (53.95487190708256, 21.18103261207894),
    "4g-medium": (28.64829771023976, 4.224282864079301),
}
DOQ_QUERY_RTT = {"fiber": 1.05, "cable": 1.04, "dsl": 1.37, "4g": 1.01, "4g-medium": 1.01}
TCP_RTT = {"fiber": 1.07, "cable": 1.26, "dsl": 1.05, "4g": 1.02, "4g-medium": 1.02}
STARTED_S = 1.7e9


class _Published:
    """Published values of TNSM24; `draw` evaluates the inverse of a published CDF."""

    def __init__(self) -> None:
        self._quantiles = pl.read_csv(REFERENCE / "quantiles.csv")
        self._loads = pl.read_csv(REFERENCE / "single_loads.csv")
        self._heatmap = pl.read_csv(REFERENCE / "heatmap.csv")

    def draw(self, metric: str, link: str, page: str, series: str, u: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        row = self._quantiles.filter(metric=metric, link=link, page=page, series=series).row(0, named=True)
        levels = {"min": 0.0, "max": 1.0} | {f"p{q}": q / 100 for q in range(1, 100)}
        known = sorted((levels[name], row[name]) for name in levels if row.get(name) is not None)
        drawn: np.ndarray[Any, Any] = np.interp(u, [p for p, _ in known], [x for _, x in known])
        return drawn

    def exchange_ms(self, link: str, protocol: str) -> float:
        """Published median duration of a DNS exchange, ms."""
        return float(self.draw("exchange", link, "all", protocol, np.full(1, 0.5))[0]) * RTT_MS[link]

    def baseline_ms(self, link: str, page: str) -> float:
        """PLT of the baseline, ms, derived from TNSM24 Fig. 8, which has PLTs relative to the baseline.

        The difference between the DoH and the DoQ exchange in ms is divided by their difference in the figure.
        """
        doh, doq = (
            self._heatmap.filter(link=link, page=page, series=f"{protocol} + H3 1-RTT")["percent"][0]
            for protocol in ("DoH", "DoQ")
        )
        return (self.exchange_ms(link, "DoH") - self.exchange_ms(link, "DoQ")) / (float(doh - doq) / 100)

    def load(self, link: str, page: str) -> dict[str, float]:
        return self._loads.filter(link=link, page=page).row(0, named=True)


def write(
    folder: Path,
    *,
    links: Sequence[str] = LINKS,
    pages: Sequence[str] = PAGES,
    rounds: int = 30,
    h3: Sequence[str] = ("1-rtt", "0-rtt"),
    protocols: Sequence[str] = ("DoUDP", "DoQ", "DoH"),
    failures: float = 0.0,
    aa: bool = True,
    seed: int = 1,
    campaign: str = "synthetic",
) -> Path:
    """Write a dataset folder and return it.

    Parameters
    ----------
    rounds
        Rounds in each cell.
    h3, protocols
        HTTP/3 handshakes of the page loads, and transports of the DNS exchanges.
    failures
        Share of observations that failed, 0 to 1.
    aa
        Whether the first cell has page loads of the A/A self-check.
    """
    draw = np.random.default_rng(seed)
    published = _Published()
    for link in links:
        writers: dict[str, pq.ParquetWriter] = {}
        for page in pages:
            cell = _Cell(campaign, link, page, rounds, failures, draw)
            tables = {
                "dns_exchanges": [_exchange(cell, published, protocol) for protocol in protocols],
                "tcp_rtts": [_tcp_rtt(cell)],
                "page_loads": [_load(cell, published, kind, Role.MEASURED) for kind in h3],
                "link_checks": [_link_check(cell)],
            }
            if aa and (link, page) == (links[0], pages[0]):
                tables["page_loads"].append(_load(cell, published, "1-rtt", Role.SELF_CHECK))
            for name, parts in tables.items():
                for columns in parts:
                    table = _table(name, columns)
                    if name not in writers:
                        target = folder / name / f"link={link}"
                        target.mkdir(parents=True, exist_ok=True)
                        writers[name] = pq.ParquetWriter(target / "part-0.parquet", TABLES[name].arrow_schema())
                    writers[name].write_table(table)
        for writer in writers.values():
            writer.close()
    write_campaign(folder, links=links, pages=pages, rounds=rounds, seed=seed, campaign=campaign)
    return folder


def write_campaign(
    folder: Path, *, links: Sequence[str], pages: Sequence[str], rounds: int, seed: int, campaign: str
) -> None:
    """Write `campaign.json`, the description of a dataset."""
    content = {
        "campaign": campaign,
        "schema_version": SCHEMA_VERSION,
        "plan": {"study": "coalescing", "links": list(links), "pages": list(pages), "rounds": rounds, "seed": seed},
        "started": "2026-01-02T03:04:05+00:00",
        "ended": "2026-01-02T05:04:05+00:00",
        "backend": "uml",
        "host": {"cpu": "Example CPU", "cores": 2, "memory_bytes": 8 << 30, "kernel": "6.1.0", "os": "Debian 12"},
        "versions": {"python": "3.11"},
        "git": {"revision": "0" * 40, "clean": True},
        "notes": ["synthetic: drawn from the published quantiles, not measured"],
    }
    (folder / "campaign.json").write_text(json.dumps(content, indent=1), encoding="utf-8")


class _Cell:
    def __init__(
        self, campaign: str, link: str, page: str, rounds: int, failures: float, draw: np.random.Generator
    ) -> None:
        self.campaign, self.link, self.page, self.rounds = campaign, link, page, rounds
        self.rtt_ms = RTT_MS[link]
        self.draw = draw
        self.failures = failures

    def uniform(self) -> np.ndarray[Any, Any]:
        return self.draw.random(self.rounds)

    def identity(self, position: int) -> dict[str, Any]:
        return {
            "campaign": self.campaign,
            "round": np.arange(self.rounds),
            "link": self.link,
            "study": "coalescing",
            "page": self.page,
            "position": position,
            "started_s": STARTED_S + np.arange(self.rounds, dtype=float),
        }

    def with_failures(self, columns: dict[str, Any], message: str) -> dict[str, Any]:
        failed = self.uniform() < self.failures
        spoiled = {
            name: np.ma.masked_array(values, failed) if name.endswith("_ms") else values
            for name, values in columns.items()
        }
        return spoiled | {"error": np.ma.masked_array(np.full(self.rounds, message, dtype=object), ~failed)}


def _exchange(cell: _Cell, published: _Published, protocol: str) -> dict[str, Any]:
    total = published.draw("exchange", cell.link, "all", protocol, cell.uniform()) * cell.rtt_ms
    query_rtt = {"DoUDP": np.inf, "DoQ": DOQ_QUERY_RTT[cell.link], "DoH": 1.05}.get(protocol, 1.05)
    query = np.minimum(total, query_rtt * cell.rtt_ms * (1 + 0.01 * cell.uniform()))
    columns = {"handshake_ms": total - query, "query_ms": query, "total_ms": total, "cpu_ms": 0.5 + cell.uniform()}
    return (
        cell.identity({"DoUDP": 0, "DoQ": 1, "DoH": 2}.get(protocol, 3))
        | {"protocol": protocol, "resumption": "none", "condition": "main", "role": "measured"}
        | cell.with_failures(columns, "no answer within 5 s")
    )


def _tcp_rtt(cell: _Cell) -> dict[str, Any]:
    rtt = cell.rtt_ms * TCP_RTT[cell.link] * (0.99 + 0.02 * cell.uniform())
    return cell.identity(4) | cell.with_failures({"rtt_ms": rtt}, "connection refused")


def _load(cell: _Cell, published: _Published, h3: str, role: Role) -> dict[str, Any]:
    single = published.load(cell.link, cell.page)
    baseline_ms, doq_ms = published.baseline_ms(cell.link, cell.page), published.exchange_ms(cell.link, "DoQ")
    series = "DoQ + H3 0-RTT" if h3 == "0-rtt" else "DoQ + H3 1-RTT"
    relative = published.draw("relative PLT increase", cell.link, cell.page, series, cell.uniform()) / 100
    early = h3 == "0-rtt"
    connect = single["h3_0rtt_connect_ms" if early else "h3_1rtt_connect_ms"] * (0.99 + 0.02 * cell.uniform())
    request = connect + 1  # in the paper's browser, a request in early data also started at connectEnd
    columns = {
        "plt_ms": baseline_ms * (1 + relative) - doq_ms,
        "fcp_ms": 0.8 * baseline_ms * (1 + relative),
        "connect_start_ms": np.ones(cell.rounds),
        "connect_ms": 1 + connect,
        "request_start_ms": request,
        "response_start_ms": request + cell.rtt_ms * 1.02 + cell.uniform(),
    }
    return (
        cell.identity((7 if role == Role.SELF_CHECK else 5) + early)
        | {
            "h3": h3,
            "coupling": "decoupled",
            "condition": "main",
            "role": role.value,
            "early_data_accepted": early,
            "session_resumed": early,
        }
        | cell.with_failures(columns, "early data refused" if early else "page did not load within 30 s")
    )


def _link_check(cell: _Cell) -> dict[str, Any]:
    down, up = RATES_MBIT[cell.link]
    samples = cell.rtt_ms + 0.05 * cell.draw.random(50)
    return {
        "campaign": cell.campaign,
        "round": np.zeros(1, dtype=int),
        "link": cell.link,
        "page": cell.page,
        "when_s": np.full(1, STARTED_S),
        "backend": "uml",
        "rtt_samples_ms": [samples.tolist()],
        "probes": 50,
        "rtt_ms": float(np.median(samples)),
        "nominal_rtt_ms": cell.rtt_ms,
        "down_mbit": down * 0.99,
        "up_mbit": up * 0.985,
        "nominal_down_mbit": down,
        "nominal_up_mbit": up,
        "configured_down_delay_ms": cell.rtt_ms / 2,
        "configured_up_delay_ms": cell.rtt_ms / 2,
        "verdict": "pass",
    }


def _table(name: str, columns: dict[str, Any]) -> pa.Table:
    """Arrow table with the schema of the table `name`. Scalars are repeated in each row, missing columns are null."""
    schema = TABLES[name].arrow_schema()
    height = len(columns["round"])
    arrays = []
    for column in TABLES[name].columns:
        kind, value = schema.field(column.name).type, columns.get(column.name)
        if isinstance(value, np.ma.MaskedArray):
            arrays.append(pa.array(value.data, kind, mask=np.ma.getmaskarray(value), from_pandas=True))
        elif isinstance(value, (list, np.ndarray)):
            arrays.append(pa.array(value, kind))
        elif value is None:
            arrays.append(pa.nulls(height, kind))
        else:
            arrays.append(pa.repeat(pa.scalar(value, kind), height))
    return pa.Table.from_arrays(arrays, schema=schema)
