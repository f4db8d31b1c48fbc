"""Vantage points and resolvers: the population of IMC22 as links, and the definition of its model.

Kosek et al. measured 313 resolvers from one virtual machine on each of six continents (section 2). What decides their
results is the RTT of each pair, so here a vantage point and a resolver are one link that has nothing but an RTT:
`eu-1` is the first resolver as Europe sees it. Such links need no entry in `emulation/profiles.toml`.

The model
---------
The paper prints the median handshake over all vantage points and resolvers, not the RTTs: DoTCP, one round-trip, takes
183 ms, DoQ 187, DoH 376 and DoT 377 (two). Of the single vantage points it says that Europe is fastest, Asia and North
America follow, and Africa, Oceania and South America are slowest (Fig. 2b). So the RTTs of a vantage point are
lognormal around `MEDIAN_MS`, with the standard deviation `SPREAD` of the logarithm for all of them, cut at the 5th and
95th percentile. The medians are our assumption: they have the printed order, and the mixture of all six has the median
183 ms. Resolvers of a plan are drawn stratified: one from the middle third of each of as many equally likely ranges as
the plan has resolvers at a vantage point, so that a few of them stand for the whole distribution.

A plan may list RTTs itself, as `crosslayer.links.rtt_alone` reads them.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Sequence
from statistics import NormalDist

from crosslayer.links import Profile, rtt_alone
from crosslayer.vocabulary import VANTAGE_POINTS

MEDIAN_MS = {"eu": 90.0, "na": 161.0, "as": 173.0, "af": 213.0, "sa": 237.0, "oc": 251.0}
"""Median RTT of each vantage point, ms."""

SPREAD = 0.45
"""Standard deviation of the logarithm of the RTT."""

RESOLVERS = 313
"""Resolvers of the paper."""

_CUT = 0.05
_RESOLVER = re.compile(rf"({'|'.join(VANTAGE_POINTS)})-([1-9]\d{{0,3}})")
_SOURCE = "model of studies/single_query/vantage.py, after Kosek et al., IMC 2022"


def links(resolvers: int, vantage_points: Sequence[str] = tuple(VANTAGE_POINTS)) -> tuple[str, ...]:
    """Names of the links from each vantage point to as many resolvers."""
    return tuple(f"{point}-{number}" for point in vantage_points for number in range(1, resolvers + 1))


def vantage_point(link: str) -> str | None:
    """Short name of the vantage point of a link; None for other links."""
    match = _RESOLVER.fullmatch(link)
    return match[1] if match else None


def rtt_ms(point: str, level: float) -> float:
    """Quantile of a vantage point's RTTs, ms, at a level from 0 to 1."""
    return MEDIAN_MS[point] * math.exp(SPREAD * NormalDist().inv_cdf(_CUT + (1 - 2 * _CUT) * level))


def profiles(names: Sequence[str], seed: int) -> dict[str, Profile]:
    """The links among `names` that this module makes, by name.

    Parameters
    ----------
    names
        Links of a plan; those of other kinds are passed over.
    seed
        The plan's: the same names and seed give the same RTTs.
    """
    made = {}
    for point in VANTAGE_POINTS:
        mine = [name for name in names if vantage_point(name) == point]
        draw = random.Random(f"{seed}/{point}")
        for name, position in zip(mine, draw.sample(range(len(mine)), len(mine)), strict=True):
            level = (position + (1 + draw.random()) / 3) / len(mine)
            title = f"{VANTAGE_POINTS[point]}, resolver {name.partition('-')[2]}"
            made[name] = Profile(name, round(rtt_ms(point, level), 3), title, source=_SOURCE)
    for name in names:
        if listed := rtt_alone(name):
            made[name] = listed
    return made
