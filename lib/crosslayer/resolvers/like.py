"""Measured times of a resolver from the dataset of a comparison, for an emulated resolver with the same times."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from crosslayer.campaign.dataset import Dataset
from crosslayer.decode import choice
from crosslayer.resolvers.errors import ResolversError
from crosslayer.resolvers.plan import QUERIES
from crosslayer.testbed.like import MeasuredTimes
from crosslayer.vocabulary import CacheUse, QueryState, Role


def measured_times(text: str, where: str) -> MeasuredTimes:
    """Times of the resolver that `DATASET:RESOLVER` or `DATASET:RESOLVER@VANTAGE` names.

    The RTTs are those of TCP connects, one in each visit. The resolver's own time is the time of a query on a kept
    connection minus the RTT of the same visit; a negative difference counts as 0. If the dataset has no cache misses,
    the own times of hits also serve as those of misses.

    Parameters
    ----------
    text
        The dataset's folder, the name of a resolver in it, and a vantage point, if the dataset has several.
    where
        Option or key, for messages.

    Raises
    ------
    CrosslayerError
        If the text is invalid, or the dataset lacks the resolver, the vantage point or the times.
    """
    folder, colon, name = text.rpartition(":")
    if not (colon and folder and name):
        raise ResolversError(
            f"must be DATASET:RESOLVER, is {text!r}", where=where, next_step="Example: data/raw/resolvers:north@oslo."
        )
    name, _, vantage = name.partition("@")
    dataset = Dataset.open(Path(folder))
    rows = dataset.table(QUERIES).filter(role=Role.MEASURED.value).collect()
    known = rows["resolver"].unique().sort().to_list()
    if name not in known:
        step = choice(name, known) if known else "Name the folder of `crosslayer compare --dataset`."
        raise ResolversError(f"the dataset has no resolver '{name}'", where=f"{where} {folder}", next_step=step)
    rows = rows.filter(resolver=name)
    vantages = rows["link"].unique().sort().to_list()
    if vantage not in vantages and (vantage or len(vantages) > 1):
        what = f"the dataset has no vantage point '{vantage}'" if vantage else "the dataset has several vantage points"
        step = f"Give DATASET:{name}@VANTAGE, one of: {', '.join(vantages)}."
        raise ResolversError(what, where=f"{where} {folder}", next_step=step)
    seen = rows.filter(link=vantage or vantages[0])
    seen = seen.filter(pl.col("address") == seen.sort("target")["address"].first())
    visits = seen.drop_nulls("rtt_ms").unique(["round", "target"]).sort("round", "target")
    kept = seen.filter(pl.col("error").is_null(), pl.col("rtt_ms").is_not_null(), state=QueryState.KEPT.value).sort(
        "round", "target"
    )
    own = kept.select("cache", own_ms=(pl.col("query_ms") - pl.col("rtt_ms")).clip(lower_bound=0.0))
    hits, misses = (own.filter(cache=cache.value)["own_ms"].to_list() for cache in (CacheUse.HIT, CacheUse.MISS))
    if not hits:
        raise ResolversError(
            f"the dataset has no query of '{name}' on a kept connection with the RTT of its path",
            where=f"{where} {folder}",
            next_step="Measure it over a transport with connections: DoTCP, DoT, DoH, DoH3 or DoQ.",
        )
    label = f"{name} from {vantage or vantages[0]}"
    return MeasuredTimes(label, tuple(visits["rtt_ms"]), tuple(hits), tuple(misses or hits))
