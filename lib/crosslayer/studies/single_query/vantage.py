"""Vantage points and resolvers of IMC22 as links, with a model of the RTTs between them.

Kosek et al. measured 313 resolvers from one virtual machine on each of six continents (section 2). Their results depend
on the RTT between vantage point and resolver. Here, each such pair is therefore a link with an RTT and no other effect:
`eu-1` is the path from Europe to the first resolver. Such links need no entry in `emulation/profiles.toml`.

The model
---------
The paper prints median handshakes over all vantage points and resolvers, but no RTTs. DoTCP and DoQ take 183
and 187 ms and need one round-trip. DoH and DoT take 376 and 377 ms and need two round-trips. The paper orders the
vantage points: Europe is fastest, Asia and North America follow, and Africa, Oceania and South America are slowest
(Fig. 2b).

In the model, the RTTs of a vantage point have a lognormal distribution with the median in `MEDIAN_MS`. The logarithm
of the RTT has the standard deviation `SPREAD`, the same for all vantage points. The distribution is cut at the 5th and
95th percentile. The medians are our assumption: they have the printed order, and the mixture of all six has the median
183 ms.

The resolvers of a plan are a stratified sample, so that a few of them represent the whole distribution. For n resolvers
at a vantage point, the distribution is divided into n equally likely ranges. Each resolver has a range of its own, and
its RTT is drawn from the middle third of this range.

A plan may also name links with a given RTT, such as `rtt-50` (`crosslayer.links.rtt_alone`).
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Sequence
from statistics import NormalDist

from crosslayer.links import Profile, rtt_alone
from crosslayer.vocabulary import VANTAGE_POINTS, vantage_title

MEDIAN_MS = {"eu": 90.0, "na": 161.0, "as": 173.0, "af": 213.0, "sa": 237.0, "oc": 251.0}
"""Median RTT of each vantage point in the model, ms."""

SPREAD = 0.45
"""Standard deviation of the natural logarithm of the RTT, for every vantage point."""

RESOLVERS = 313
"""Number of resolvers in the paper."""

_CUT = 0.05
_RESOLVER = re.compile(rf"({'|'.join(VANTAGE_POINTS)})-([1-9]\d{{0,3}})")
_SOURCE = "model of studies/single_query/vantage.py, after Kosek et al., IMC 2022"


def links(resolvers: int, vantage_points: Sequence[str] = tuple(VANTAGE_POINTS)) -> tuple[str, ...]:
    """Names of the links from each vantage point to its resolvers; `resolvers` is the number per vantage point."""
    return tuple(f"{point}-{number}" for point in vantage_points for number in range(1, resolvers + 1))


def vantage_point(link: str) -> str | None:
    """Short name of the vantage point of a link, e.g. `eu` for `eu-1`; None for a link outside the model."""
    match = _RESOLVER.fullmatch(link)
    return match[1] if match else None


def rtt_ms(point: str, level: float) -> float:
    """Quantile `level` (0 to 1) of the RTTs of a vantage point in the model, ms."""
    return MEDIAN_MS[point] * math.exp(SPREAD * NormalDist().inv_cdf(_CUT + (1 - 2 * _CUT) * level))


def profiles(names: Sequence[str], seed: int) -> dict[str, Profile]:
    """Profiles, by link name, of those `names` that are links of the model or links with a given RTT (`rtt-50`).

    Parameters
    ----------
    names
        Links of a plan; links of other kinds are ignored.
    seed
        Seed of the plan; the same names and seed give the same RTTs.
    """
    made = {}
    for point in VANTAGE_POINTS:
        mine = [name for name in names if vantage_point(name) == point]
        draw = random.Random(f"{seed}/{point}")
        for name, position in zip(mine, draw.sample(range(len(mine)), len(mine)), strict=True):
            level = (position + (1 + draw.random()) / 3) / len(mine)
            made[name] = Profile(name, round(rtt_ms(point, level), 3), vantage_title(name), source=_SOURCE)
    for name in names:
        if listed := rtt_alone(name):
            made[name] = listed
    return made
