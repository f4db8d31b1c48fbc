"""`crosslayer.compare`: compare resolvers in a notebook, with tables and a figure."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import altair as alt
import polars as pl

from crosslayer.campaign.store import FILE_NAME
from crosslayer.figures import Drawing, draw
from crosslayer.notebooks.paths import existing, fresh
from crosslayer.resolvers import analysis, run
from crosslayer.resolvers.errors import ResolversError
from crosslayer.resolvers.frames import FIGURE, results_frame, visits_frame
from crosslayer.resolvers.journal import read_campaign
from crosslayer.resolvers.page import page
from crosslayer.testbed import outside
from crosslayer.vocabulary import Protocol


class ComparisonView:
    """A comparison of resolvers for display: its figure, advice and flags.

    Parameters
    ----------
    path
        Folder that `crosslayer compare --dataset` has written. For another folder, `CrosslayerError` is raised.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = existing(path)
        measured = read_campaign(self.path)
        self.plan, self.comparison = measured.plan, analysis.of(measured)
        self.visits: pl.DataFrame = visits_frame(self.plan, measured.visits)
        """One row per visit."""
        self.results: pl.DataFrame = results_frame(self.comparison.lines)
        """One row per target and measure: median and 95 % interval, ms."""
        self._drawing: Drawing = draw(FIGURE, self.comparison.lines, "")

    @property
    def chart(self) -> alt.VConcatChart:
        """The figure as an Altair chart."""
        return self._drawing.chart

    @property
    def advice(self) -> str:
        """Sentence that recommends a resolver and a transport, and says under which condition."""
        return self.comparison.advice

    @property
    def flags(self) -> list[str]:
        """Warnings about misleading results, each with its evidence."""
        return [str(flag) for flag in self.comparison.flags]

    def text(self) -> str:
        """The text that `crosslayer compare` prints."""
        return analysis.text(self.comparison, self.plan)

    def save(self, path: str | Path) -> Path:
        """Write the report as one HTML file; returns its path."""
        file = fresh(path)
        file.write_text(page(self.comparison, self.plan), encoding="utf-8")
        return file

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return self._drawing._repr_mimebundle_() | {"text/plain": self.text()}

    def __repr__(self) -> str:
        return f"ComparisonView({str(self.path)!r}): {self.advice}"


def compare(
    resolvers: str | Path | Iterable[str],
    *,
    transports: Iterable[str] = (),
    rounds: int = 6,
    name: str = "www.example.org",
    dataset: str | Path = "compare",
    i_may_send_this: bool = False,
    **options: Any,
) -> ComparisonView:
    """Compare resolvers, or open an existing comparison.

    Parameters
    ----------
    resolvers
        Names, files, DNS stamps and URLs, as for `crosslayer compare`; or the folder of an existing comparison to open.
    transports
        Transports to compare, e.g. `["DoH", "DoQ"]`; by default all. DoTCP is then compared only for a resolver that
        has no other transport, unless `everything` is true.
    dataset
        Folder of the dataset; an existing comparison in it is continued. Relative paths start at the checkout.
    i_may_send_this
        Consent to the printed number of queries. Without consent, no packet is sent to an address outside this machine.
    options
        Further parameters of `crosslayer.resolvers.run.request`, such as `everything` and `ca_file`.

    Raises
    ------
    ResolversError
        For a faulty argument.
    OutsideError
        If packets would leave this machine without consent.
    """
    if not isinstance(resolvers, (str, Path)):
        arguments = list(resolvers)
    elif existing(resolvers).is_dir():
        return ComparisonView(resolvers)
    else:
        arguments = [str(resolvers)]
    known = {protocol.value: protocol for protocol in Protocol}
    for transport in transports:
        if transport not in known:
            raise ResolversError(
                f"is no transport: {transport!r}", where="transports", next_step=f"Transports are: {', '.join(known)}."
            )
    folder = fresh(dataset)
    request = run.request(
        arguments,
        protocols=[known[transport] for transport in transports],
        name=name,
        rounds=rounds,
        dataset=folder,
        resume=(folder / FILE_NAME).exists(),
        **{"seed": random.SystemRandom().getrandbits(32), "timeout_s": 5.0} | options,
    )
    run.announce(request, print)
    run.consent(request, given=i_may_send_this, ask=lambda _question: "")
    try:
        run.run(request, say=lambda _text: None, tell=print)
    finally:
        outside.withdraw()
    return ComparisonView(folder)
