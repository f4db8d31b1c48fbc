"""Loads of this study by mode, and comparisons of modes, for figures and claims. No I/O."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from crosslayer import metrics
from crosslayer.studies.one_connection.modes import (
    AT_ONCE,
    AT_ONCE_NO_TOKEN,
    BASELINE,
    FIRST_VISIT,
    MODES,
    NO_TOKEN,
    RETURNING,
    SETTINGS,
    Mode,
    shared,
)
from crosslayer.vocabulary import Http3, Protocol, Resumption

FIRST, BACK = "first visit", "returning visit"
_FULL, _EARLY, _ZERO = Resumption.NONE, Resumption.EARLY_DATA, Http3.ZERO_RTT


@dataclass(frozen=True, slots=True)
class Worth:
    """Comparison of two modes; the saving is the time until the document in `without`, minus that in `with_it`."""

    what: str
    visit: str
    without: Mode
    with_it: Mode


_PLAIN_BACK = Mode(Protocol.DOUDP, h3=_ZERO)

WORTH = (
    Worth("over DoUDP, then H3", FIRST, BASELINE, FIRST_VISIT),
    Worth("over DoQ, then H3", FIRST, Mode(Protocol.DOQ), FIRST_VISIT),
    Worth("asking for the page at once", FIRST, FIRST_VISIT, shared(_FULL, AT_ONCE)),
    Worth("not waiting for SETTINGS", FIRST, shared(_FULL, SETTINGS), FIRST_VISIT),
    Worth("over DoUDP, then H3 1-RTT", BACK, BASELINE, RETURNING),
    Worth("over DoUDP, then H3 0-RTT", BACK, _PLAIN_BACK, RETURNING),
    Worth("over DoQ 0-RTT, then H3 0-RTT", BACK, Mode(Protocol.DOQ, _EARLY, h3=_ZERO), RETURNING),
    Worth("asking for the page at once", BACK, RETURNING, shared(_EARLY, AT_ONCE)),
    Worth("not waiting for SETTINGS", BACK, shared(_EARLY, SETTINGS), RETURNING),
    Worth("the token", BACK, shared(_EARLY, NO_TOKEN), RETURNING),
    Worth("the token, page at once", BACK, shared(_EARLY, AT_ONCE_NO_TOKEN), shared(_EARLY, AT_ONCE)),
    Worth("the token, on two connections", BACK, Mode(Protocol.DOUDP, h3=_ZERO, condition=NO_TOKEN), _PLAIN_BACK),
)
"""Comparisons that show the time saved by each of four choices.

They are: one connection; requesting the page together with its name; not waiting for SETTINGS; using a token.
"""

NAME, FIRST_BYTE, DOCUMENT, PAGE = "name", "first byte", "document", "page"
TIMES = {NAME: "resolved_ms", FIRST_BYTE: "response_start_ms", DOCUMENT: "document_ms", PAGE: "load_complete_ms"}
"""Events of a load, each with the column of `resolved_loads` that has the time until this event."""


def by_mode(resolved_loads: pl.LazyFrame) -> pl.LazyFrame:
    """Every row of `resolved_loads` with the name of its mode as `mode`."""
    names = pl.LazyFrame([mode.columns | {"mode": name} for name, mode in MODES.items()])
    return resolved_loads.join(names, on=list(BASELINE.columns))


def loads(resolved_loads: pl.LazyFrame) -> pl.LazyFrame:
    """Successful loads, confirmed by the server log, with the name of their mode as `mode`."""
    return by_mode(metrics.resolved_loads(resolved_loads))
