"""Loads that should be equal: when they are called so, when not, and what the medians do not see."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from crosslayer import metrics
from crosslayer.campaign.tables import TABLES
from crosslayer.metrics.self_check import kolmogorov_smirnov
from crosslayer.vocabulary import Role

ROUNDS = 60
_FIRST, _AGAIN = ("main", Role.MEASURED), ("main", Role.SELF_CHECK)
LEVEL_MS = {"example.org": 60.0, "wikipedia.org": 300.0}


def loads(
    shift_percent: float, spread: float, rounds: int = ROUNDS, second: tuple[str, Role] = _AGAIN, **columns: Any
) -> pl.LazyFrame:
    """Pairs whose second load is shifted, and spread more than the first, which varies by 1 %."""
    noise = np.random.default_rng(2)
    rows = []
    for page, level in LEVEL_MS.items():
        for number in range(rounds):
            for (condition, role), shift, wide in ((_FIRST, 0.0, 1.0), (second, shift_percent, spread)):
                plt = level * (1 + (shift + wide * noise.normal()) / 100)
                at = {"campaign": "c", "host": "", "round": number, "link": "fiber", "study": "x", "page": page}
                rows.append(
                    at
                    | {"h3": "1-rtt", "condition": condition, "role": role.value, "plt_ms": plt}
                    | (columns if role != Role.MEASURED else {})
                )
    return pl.LazyFrame(rows, schema=TABLES["page_loads"].polars_schema())


def judged(table: pl.LazyFrame) -> list[dict[str, Any]]:
    cells = metrics.Cells([metrics.loads_by_kind(table)])
    pairs = metrics.pooled_pairs(metrics.self_checked(cells))
    return list(metrics.equivalence(cells, pairs, ["series"]).iter_rows(named=True))


@pytest.mark.parametrize(
    ("shift", "spread", "equal", "same"),
    [(0.0, 1.0, True, True), (5.0, 1.0, False, False), (0.0, 4.0, True, False), (4.0, 1.0, False, False)],
)
def test_equal_is_shown_and_a_changed_spread_is_seen(shift: float, spread: float, equal: bool, same: bool) -> None:
    [check] = judged(loads(shift, spread))
    assert check["n"] == ROUNDS * len(LEVEL_MS)  # both pages in percent of their own PLT
    assert check["median"] == pytest.approx(-shift, abs=0.8)
    assert check["equal"] is equal
    assert (check["p"] < 0.05) is equal  # the interval and the two tests are one
    assert (check["ks_p"] > 0.05) is same


def test_too_few_rounds_show_nothing() -> None:
    [check] = judged(loads(0.0, 1.0, rounds=5))
    assert (check["equal"], check["low"], check["p"]) == (None, None, None)


def test_a_load_that_was_not_refused_is_no_negative_control() -> None:
    control = loads(0.0, 1.0, second=("refused", Role.CONTROL))
    assert [check["series"] for check in judged(control)] == ["Ticket refused and H3 1-RTT"]
    failed = loads(0.0, 1.0, second=("refused", Role.CONTROL), error="the handshake was meant to be full")
    assert judged(failed) == []


def test_kolmogorov_smirnov_by_the_book() -> None:
    assert kolmogorov_smirnov(np.array([1.0, 2, 3]), np.array([4.0, 5, 6]))[0] == 1
    ranks = np.arange(50.0)
    assert kolmogorov_smirnov(ranks, ranks) == (0, 1)
    distance, share = kolmogorov_smirnov(ranks, ranks + 14.5)  # 15 of 50 below all others
    assert distance == pytest.approx(0.3)
    assert share == pytest.approx(0.0171, abs=0.0003)
