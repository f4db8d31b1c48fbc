"""What a figure is made from: the tables of a dataset and the published values, all as frames."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import product

import polars as pl

from crosslayer import metrics
from crosslayer.campaign.dataset import Dataset
from crosslayer.figures.style import LINKS, PAGES, link_title
from crosslayer.published import Published


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
        return metrics.combine(self.exchanges, self.loads)

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
        """What the study has and this dataset has not, as sentences; empty where nothing is missing."""
        exchanges = _cells(self.exchanges, "protocol")
        loads = _cells(self.loads, "h3")
        found = {
            **{f"{name} exchanges": exchanges.get((name,), set()) for name in ("DoUDP", "DoQ", "DoH")},
            **{f"H3 {name.upper()} loads": loads.get((name,), set()) for name in ("1-rtt", "0-rtt")},
            "TCP RTTs": _cells(self.connects).get((), set()),
        }
        left_out = sorted({link for cells in found.values() for link, _ in cells} - set(self.links))
        asked = set(product(self.links, self.pages))
        something = {cell for cells in found.values() for cell in cells & asked}
        nothing = asked - something if something else set()
        missing = [
            *(link_title(link) for link in LINKS if link not in (*self.links, *left_out)),
            *(page for page in PAGES if page not in self.pages),
            *self._places(nothing),
        ]
        for name, cells in found.items():
            if not cells:
                missing.append(name)
            elif lacking := asked - nothing - cells:
                missing.append(f"{name} ({'; '.join(self._places(lacking))})")
        sentences = [
            f"Not in this campaign: {', '.join(missing)}." if missing else "",
            f"Left out, no RTT above 0 is known: {', '.join(map(link_title, left_out))}." if left_out else "",
        ]
        return " ".join(sentence for sentence in sentences if sentence)

    def _places(self, cells: set[tuple[str, str]]) -> list[str]:
        """Cells in words: a link with all of its pages is named alone."""
        places = []
        for link in self.links:
            pages = [page for page in self.pages if (link, page) in cells]
            whole = len(pages) == len(self.pages)
            places += [link_title(link)] if whole else [f"{page} on {link_title(link)}" for page in pages]
        return places


def _cells(rows: pl.LazyFrame, *by: str) -> dict[tuple[str, ...], set[tuple[str, str]]]:
    """Cells with observations, by condition."""
    found: dict[tuple[str, ...], set[tuple[str, str]]] = {}
    for *condition, link, page in rows.select(*by, *metrics.CELL).unique().collect(engine="streaming").iter_rows():
        found.setdefault(tuple(condition), set()).add((link, page))
    return found
