"""Page loads: H3 1-RTT, H3 0-RTT with an address-validation token (RFC 9000, section 8.1), H3 0-RTT without it."""

from crosslayer.campaign.conditions import Load, measuring

CONDITIONS = {
    "H3 1-RTT": Load("1-rtt", primed_alias=0),
    "H3 0-RTT": Load("0-rtt"),
    "H3 0-RTT without token": Load("0-rtt", "no-token", token=False),
}
MEASURER = measuring(CONDITIONS)
