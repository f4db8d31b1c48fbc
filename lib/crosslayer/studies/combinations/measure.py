"""DNS exchanges and page loads in every state of the client (tickets, token) that an earlier visit may leave.

Figures add the time of an exchange to that of a load in the same round.

Two DoQ exchanges by quic-go show how much time our own client adds. One of them has a ClientHello as large as the
browser's.
"""

from crosslayer.campaign.conditions import Exchange, Load, StubExchange, measuring
from crosslayer.dns import Protocol
from crosslayer.study import SIX_TRANSPORTS

CONDITIONS = {
    **{f"{p}, {r}": Exchange(p, r) for p in SIX_TRANSPORTS for r in p.transport.resumptions},
    "DoQ by quic-go": StubExchange(Protocol.DOQ, "quic-go"),
    "DoQ by quic-go, the browser's key share": StubExchange(Protocol.DOQ, "quic-go-x25519mlkem768", post_quantum=True),
    "H3 1-RTT": Load("1-rtt", primed_alias=0),
    "H3 0-RTT": Load("0-rtt"),
    "H3 0-RTT without token": Load("0-rtt", "no-token", token=False),
}
MEASURER = measuring(CONDITIONS, self_check=True)
