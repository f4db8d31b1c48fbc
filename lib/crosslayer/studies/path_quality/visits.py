"""Page loads of this study over DoH3 and HTTP/3: first and returning visits, on two connections and on one."""

from __future__ import annotations

from crosslayer.studies.one_connection import FIRST_VISIT, RETURNING, Mode
from crosslayer.vocabulary import Http3, Protocol, Resumption

PAIRS = {
    "first visit": (Mode(Protocol.DOH3), FIRST_VISIT),
    "returning": (Mode(Protocol.DOH3, Resumption.EARLY_DATA, h3=Http3.ZERO_RTT), RETURNING),
}
"""For each visit, a mode with two connections and a mode with one connection; the modes differ in nothing else."""
VISITS = tuple(mode.name for pair in PAIRS.values() for mode in pair)
