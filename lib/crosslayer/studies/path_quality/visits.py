"""The loads of this study: over DoH3 and HTTP/3, first and returning, on two connections and on one."""

from __future__ import annotations

from crosslayer.studies.one_connection import FIRST_VISIT, RETURNING, Mode
from crosslayer.vocabulary import Http3, Protocol, Resumption

PAIRS = {
    "first visit": (Mode(Protocol.DOH3), FIRST_VISIT),
    "returning": (Mode(Protocol.DOH3, Resumption.EARLY_DATA, h3=Http3.ZERO_RTT), RETURNING),
}
"""On two connections and on one; nothing else differs."""
VISITS = tuple(mode.name for pair in PAIRS.values() for mode in pair)
