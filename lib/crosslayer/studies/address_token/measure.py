"""H3 0-RTT with and without the token that proves the client's address (RFC 9000, section 8.1), beside H3 1-RTT."""

from collections.abc import Mapping
from typing import ClassVar

from crosslayer.campaign.observe import LoadKind, LoadsOfKinds


class Token(LoadsOfKinds):
    """Loads by a browser that was never here, one that has a token, and one that has none."""

    kinds: ClassVar[Mapping[str, LoadKind]] = {
        "H3 1-RTT": LoadKind("1-rtt", "main", 0),
        "H3 0-RTT": LoadKind("0-rtt", "main", None),
        "H3 0-RTT without token": LoadKind("0-rtt", "no-token", None, token=False),
    }


MEASURER = Token
