"""One DoUDP exchange a round."""

from crosslayer.campaign.conditions import Exchange, measuring
from crosslayer.dns import Protocol

CONDITIONS = {"DoUDP": Exchange(Protocol.DOUDP)}
MEASURER = measuring(CONDITIONS)
