"""Full handshakes with and without a post-quantum key share in the client's hello.

The client is the Go stub, which has an option for the key share. Chromium has no such option.
"""

from crosslayer.campaign.conditions import StubExchange, measuring
from crosslayer.dns import Protocol

CONDITIONS = {
    f"{protocol}, {condition}": StubExchange(protocol, condition, post_quantum=condition == "x25519mlkem768")
    for protocol in (Protocol.DOQ, Protocol.DOT)
    for condition in ("x25519", "x25519mlkem768")
}
MEASURER = measuring(CONDITIONS)
