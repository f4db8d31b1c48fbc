"""The inputs of figures: tables of a dataset, and published values."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import polars as pl

from crosslayer import metrics
from crosslayer.campaign.dataset import Dataset
from crosslayer.campaign.tables import TABLES
from crosslayer.published import Published


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """Tables of one dataset, and published values.

    Objects are compared by identity, so that results can be cached by object.
    """

    dns_exchanges: pl.LazyFrame
    tcp_rtts: pl.LazyFrame
    page_loads: pl.LazyFrame
    link_checks: pl.LazyFrame
    published: Published
    links: tuple[str, ...]
    """Links with observations, in ascending order of nominal RTT; links without delay are left out."""
    pages: tuple[str, ...]
    """Names of the pages with observations, in alphabetical order."""
    paced_queries: pl.LazyFrame = field(default_factory=pl.LazyFrame)
    resolved_loads: pl.LazyFrame = field(default_factory=pl.LazyFrame)
    idle_recoveries: pl.LazyFrame = field(default_factory=pl.LazyFrame)
    attempts: pl.LazyFrame = field(default_factory=pl.LazyFrame)
    resolver_queries: pl.LazyFrame = field(default_factory=pl.LazyFrame)
    resolver_events: pl.LazyFrame = field(default_factory=pl.LazyFrame)
    resolver_locations: pl.LazyFrame = field(default_factory=pl.LazyFrame)
    host_load: pl.LazyFrame = field(default_factory=partial(pl.LazyFrame, schema=TABLES["host_load"].polars_schema()))

    @classmethod
    def of(cls, dataset: Dataset, published: Published) -> Inputs:
        """Inputs with the tables of an opened dataset."""
        observations = ("dns_exchanges", "tcp_rtts", "page_loads", "resolved_loads", "idle_recoveries")
        tables = {name: dataset.table(name) for name in (*observations, "link_checks")}
        observed = pl.concat(tables[name].select("link", "page") for name in observations)
        cells = observed.unique().collect(engine="streaming")
        rtts = metrics.nominal_rtts(tables["link_checks"]).collect(engine="streaming")
        return cls(
            **tables,
            paced_queries=dataset.table("paced_queries"),
            attempts=dataset.table("attempts"),
            resolver_queries=dataset.table("resolver_queries"),
            resolver_events=dataset.table("resolver_events"),
            resolver_locations=dataset.table("resolver_locations"),
            host_load=dataset.table("host_load"),
            published=published,
            links=tuple(link for link in rtts["link"] if link in set(cells["link"])),
            pages=tuple(sorted(set(cells["page"].drop_nulls()))),
        )

    @property
    def rtts(self) -> pl.LazyFrame:
        """Nominal RTT of each link, ms."""
        return metrics.nominal_rtts(self.link_checks)

    @property
    def exchanges(self) -> pl.LazyFrame:
        """Successful DNS exchanges with a full handshake."""
        return metrics.exchanges(self.dns_exchanges)

    @property
    def loads(self) -> pl.LazyFrame:
        """Successful page loads of the condition `main`, without priming, self-check and control."""
        return metrics.page_loads(self.page_loads)

    @property
    def connects(self) -> pl.LazyFrame:
        """Successful TCP handshakes, whose time is one RTT."""
        return metrics.tcp_rtts(self.tcp_rtts)

    @property
    def failures(self) -> pl.DataFrame:
        """Number of attempted and failed observations for each condition and link.

        Rows of the condition `round` count the rounds of each link; a round fails if the machine was too busy.
        """
        return metrics.failures(self.dns_exchanges, self.tcp_rtts, self.page_loads, self.host_load).collect(
            engine="streaming"
        )

    @property
    def published_saving(self) -> pl.DataFrame:
        """Published PLT of H3 1-RTT minus that of H3 0-RTT, from the medians in TNSM24 Figs. 10 and 11.

        Columns link, page, nominal_rtt_ms, saving_ms.
        """
        plt = self.published.absolute_plt
        one, zero = (
            plt.filter(series=f"DoQ + H3 {kind}").select("link", "page", pl.col("p50").alias(kind))
            for kind in ("1-RTT", "0-RTT")
        )
        rows = one.join(zero, on=["link", "page"]).join(self.rtts.collect(), on="link")
        return rows.select("link", "page", "nominal_rtt_ms", saving_ms=pl.col("1-RTT") - pl.col("0-RTT"))

    def by_rtt(self, frame: pl.DataFrame, *further: str) -> pl.DataFrame:
        """Rows sorted by their link's RTT, then by further columns. Rows that are equal in these keep their order."""
        ranks = {link: rank for rank, link in enumerate(self.links)}
        link = pl.col("link").replace_strict(ranks, return_dtype=pl.Int64, default=len(ranks))
        return frame.sort(link, *further, maintain_order=True)

    @property
    def of_links(self) -> list[Inputs]:
        """Inputs of each link separately, so that the data of campaigns of any size fit in memory."""
        return [self.only(link) for link in self.links]

    @property
    def _tables(self) -> dict[str, pl.LazyFrame]:
        return {name: value for name in self.__slots__ if isinstance(value := getattr(self, name), pl.LazyFrame)}

    def only(self, link: str) -> Inputs:
        """Inputs of one link."""
        of_link: dict[str, Any] = {
            name: table.filter(pl.col("link") == link)
            for name, table in self._tables.items()
            if "link" in table.collect_schema()  # a table that the dataset lacks has no columns
        }
        return replace(self, **of_link, links=(link,))
