"""Page loads with H3 1-RTT and H3 0-RTT in each browser, and DNS exchanges.

The figures add the time of an exchange to that of a load.
"""

from crosslayer.campaign.conditions import Exchange, Load, measuring
from crosslayer.dns import Protocol, Resumption
from crosslayer.vocabulary import BROWSERS, Browser

CONDITIONS = {
    "DoUDP": Exchange(Protocol.DOUDP),
    "DoQ": Exchange(Protocol.DOQ),
    "DoQ 0-RTT": Exchange(Protocol.DOQ, Resumption.EARLY_DATA),
    **{
        f"{BROWSERS[name].title}, {handshake}": load
        for name in (Browser.CHROMIUM, Browser.FIREFOX)
        for handshake, load in {
            "H3 1-RTT": Load("1-rtt", primed_alias=0, browser=name),
            "H3 0-RTT": Load("0-rtt", browser=name),
        }.items()
    },
}
MEASURER = measuring(CONDITIONS)
