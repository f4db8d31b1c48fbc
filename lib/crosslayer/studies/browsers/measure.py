"""H3 1-RTT and H3 0-RTT in every browser, and the lookups that may come before them."""

from crosslayer.browser import KINDS
from crosslayer.campaign.conditions import Exchange, Load, measuring
from crosslayer.dns import Protocol, Resumption

CONDITIONS = {
    "DoUDP": Exchange(Protocol.DOUDP),
    "DoQ": Exchange(Protocol.DOQ),
    "DoQ 0-RTT": Exchange(Protocol.DOQ, Resumption.EARLY_DATA),
    **{
        f"{browser.title}, {handshake}": load
        for name, browser in KINDS.items()
        for handshake, load in {
            "H3 1-RTT": Load("1-rtt", primed_alias=0, browser=name),
            "H3 0-RTT": Load("0-rtt", browser=name),
        }.items()
    },
}
MEASURER = measuring(CONDITIONS)
