"""Figure: time that the address-validation token saves a returning visitor."""

from __future__ import annotations

import polars as pl

from crosslayer import metrics
from crosslayer.figures import Inputs
from crosslayer.figures.comparison import POOLED, Comparison
from crosslayer.figures.sentences import holds, row, with_interval
from crosslayer.figures.style import CHAIN, EARLY_DATA, GREY, WITHOUT_TOKEN, Style

_FULL, _WITH, _WITHOUT = "H3 1-RTT", "H3 0-RTT with token", "H3 0-RTT without token"
_STYLES = {_FULL: Style(GREY, "square", CHAIN), _WITH: EARLY_DATA, _WITHOUT: WITHOUT_TOKEN}
_DOCUMENT = "document complete"
_WORTH = "without minus with token"


def _observations(inputs: Inputs) -> pl.LazyFrame:
    kind = pl.when(pl.col("h3") == "1-rtt").then(pl.lit(_FULL))
    return pl.concat(
        metrics.page_loads(inputs.page_loads, condition=condition).with_columns(series=kind.otherwise(pl.lit(name)))
        for condition, name in (("main", _WITH), ("no-token", _WITHOUT))
    )


def token_verdict(frame: pl.DataFrame) -> str:
    """Verdict: time that the address-validation token saves a returning visitor."""
    pages = sorted(frame["page"].drop_nulls().unique())
    by_page = {page: row(frame, source=POOLED, measure=_DOCUMENT, page=page) for page in pages}
    worth = {page: spared for page, spared in by_page.items() if spared}
    if not worth:
        return "Not answered: this dataset lacks one of the kinds of load."
    sentence = ", ".join(f"{with_interval(spared, 'RTT', 2)} on {page}" for page, spared in worth.items())
    whole = [page for page, spared in worth.items() if holds(spared, 1.0, 0.15)]
    why = (
        f" The token saves about one round-trip on {' and '.join(whole)}. Until the client's address is validated, a "
        "server may send at most three times the bytes that it has received (RFC 9000, section 8.1). A token validates "
        f"the address at once. The document{'s' if len(whole) > 1 else ''} of {' and '.join(whole)} "
        f"{'exceed' if len(whole) > 1 else 'exceeds'} this limit."
        if whole
        else ""
    )
    return (
        "With early data, the token shortens the time until the document is complete by "
        f"{sentence} (medians over all links).{why}"
    )


FIGURES = (
    Comparison(
        observations=_observations,
        measures={_DOCUMENT: "response_end_ms", "PLT": "plt_ms"},
        differences={_WORTH: (_WITHOUT, _WITH)},
        pooled=["page"],
        styles=_STYLES,
        axis="Document complete (RTT)",
        least=(0.8, 2.4),
        empty="no page loads of this study",
    ).figure(
        name="token-worth",
        title="A returning visit with early data, with and without an address-validation token",
        notebook="question_token",
        caption="Time from the start of the navigation until the document is complete, in multiples of the link's "
        "RTT. Three kinds of load: full handshake, early data with the address-validation token, and early data "
        "without the token.",
        note="Bars: 95 % intervals. The server log confirms which loads had the token.",
        verdict=token_verdict,
    ),
)
