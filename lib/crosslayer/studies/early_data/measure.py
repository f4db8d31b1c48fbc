"""Page loads from a server that refuses early data, answers it late, or answers it at once (TNSM24 section IV-D)."""

from crosslayer.campaign.conditions import Load, measuring

CONDITIONS = {
    "H3 1-RTT": Load("1-rtt", primed_alias=0),
    "H3 resumed": Load("1-rtt", "resumed", early_data="off"),
    "H3 0-RTT answered late": Load("0-rtt", "late", early_data="late"),
    "H3 0-RTT": Load("0-rtt"),
}
MEASURER = measuring(CONDITIONS)
