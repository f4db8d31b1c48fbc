"""Why H3 0-RTT saves a whole round-trip here and a fraction of one in the paper (TNSM24 section IV-D)."""

from collections.abc import Mapping
from typing import ClassVar

from crosslayer.campaign.observe import LoadKind, LoadsOfKinds


class EarlyData(LoadsOfKinds):
    """Loads against a server that refuses early data, answers it late, or answers it early."""

    kinds: ClassVar[Mapping[str, LoadKind]] = {
        "H3 1-RTT": LoadKind("1-rtt", "main", 0),
        "H3 resumed": LoadKind("1-rtt", "resumed", None, early_data="off"),
        "H3 0-RTT answered late": LoadKind("0-rtt", "late", None, early_data="late"),
        "H3 0-RTT": LoadKind("0-rtt", "main", None),
    }


MEASURER = EarlyData
