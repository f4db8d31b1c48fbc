"""DNS exchanges, TCP connects and page loads of the `coalescing` study (Sengupta et al., TNSM 2024).

The browser is given the addresses of its pages, so it sends no DNS query. Figures and claims add the time of an
exchange to that of a load, as the paper does.
"""

from crosslayer.campaign.conditions import Exchange, Load, TcpConnect, measuring
from crosslayer.dns import Protocol

CONDITIONS = {
    **{str(protocol): Exchange(protocol) for protocol in (Protocol.DOUDP, Protocol.DOH, Protocol.DOQ)},
    "TCP RTT": TcpConnect(),
    "H3 1-RTT": Load("1-rtt", primed_alias=0),
    "H3 0-RTT": Load("0-rtt"),
    "H3 0-RTT without token": Load("0-rtt", "no-token", token=False),
}
MEASURER = measuring(CONDITIONS, self_check=True)
