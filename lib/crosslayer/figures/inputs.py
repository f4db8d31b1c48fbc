"""What a figure is made from: the tables of a dataset and the published values, all as frames."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import polars as pl

from crosslayer import metrics
from crosslayer.campaign.dataset import Dataset
from crosslayer.figures.style import LINKS, PAGES, link_title


@dataclass(frozen=True, slots=True)
class Published:
    """Values of the papers; `data/reference/README.md` has columns, sources and accuracy."""

    curves: pl.DataFrame
    quantiles: pl.DataFrame
    points: pl.DataFrame
    heatmap: pl.DataFrame
    absolute_plt: pl.DataFrame
    links: pl.DataFrame
    sizes: pl.DataFrame
    claims: pl.DataFrame


@dataclass(frozen=True, slots=True)
class Inputs:
    """Tables of one dataset, and the published values beside them."""

    dns_exchanges: pl.LazyFrame
    tcp_rtts: pl.LazyFrame
    page_loads: pl.LazyFrame
    link_checks: pl.LazyFrame
    published: Published
    links: tuple[str, ...]
    """Links with observations, by ascending nominal RTT; those without delay are left out."""
    pages: tuple[str, ...]
    """Pages with observations, those of the paper first."""
    paced_queries: pl.LazyFrame = field(default_factory=pl.LazyFrame)

    @classmethod
    def of(cls, dataset: Dataset, published: Published) -> Inputs:
        """Inputs from an opened dataset."""
        tables = {name: dataset.table(name) for name in ("dns_exchanges", "tcp_rtts", "page_loads", "link_checks")}
        observed = pl.concat(
            tables[name].select("link", "page") for name in ("dns_exchanges", "tcp_rtts", "page_loads")
        )
        cells = observed.unique().collect(engine="streaming")
        rtts = metrics.nominal_rtts(tables["link_checks"]).collect()
        found = set(cells["page"].drop_nulls())
        return cls(
            **tables,
            paced_queries=dataset.table("paced_queries"),
            published=published,
            links=tuple(link for link in rtts["link"] if link in set(cells["link"])),
            pages=(*(page for page in PAGES if page in found), *sorted(found - set(PAGES))),
        )

    @property
    def rtts(self) -> pl.LazyFrame:
        """Nominal RTT of each link."""
        return metrics.nominal_rtts(self.link_checks)

    @property
    def exchanges(self) -> pl.LazyFrame:
        """Successful DNS exchanges with a full handshake."""
        return metrics.exchanges(self.dns_exchanges)

    @property
    def loads(self) -> pl.LazyFrame:
        """Successful page loads of the study's conditions."""
        return metrics.page_loads(self.page_loads)

    @property
    def connects(self) -> pl.LazyFrame:
        """Successful TCP connects."""
        return metrics.tcp_rtts(self.tcp_rtts)

    @property
    def combinations(self) -> pl.LazyFrame:
        """PLT of the combinations that TNSM24 shows."""
        shown = pl.col("combination").is_in(metrics.COMBINATIONS)
        return metrics.combine(self.exchanges, self.loads).filter(shown)

    def only(self, link: str) -> Inputs:
        """The same of one link: what is computed link by link fits in memory at any size."""
        chosen = pl.col("link") == link
        return replace(
            self,
            dns_exchanges=self.dns_exchanges.filter(chosen),
            tcp_rtts=self.tcp_rtts.filter(chosen),
            page_loads=self.page_loads.filter(chosen),
            link_checks=self.link_checks.filter(chosen),
            links=(link,),
        )

    def lacks(self) -> str:
        """What the study has and this dataset has not, as a sentence; empty where nothing is missing."""
        protocols = set(self.exchanges.select("protocol").unique().collect(engine="streaming")["protocol"])
        loads = set(self.loads.select("h3").unique().collect(engine="streaming")["h3"])
        connects = self.connects.select(pl.len()).collect(engine="streaming").item()
        missing = [
            *(link_title(link) for link in LINKS if link not in self.links),
            *(page for page in PAGES if page not in self.pages),
            *(f"{name} exchanges" for name in ("DoUDP", "DoQ", "DoH") if name not in protocols),
            *(f"H3 {name.upper()} loads" for name in ("1-rtt", "0-rtt") if name not in loads),
            *(() if connects else ("TCP RTTs",)),
        ]
        return f"Not in this campaign: {', '.join(missing)}." if missing else ""
