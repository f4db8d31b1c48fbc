"""Resolver discovery: probes for QUIC at listed addresses, then what each of them speaks, transport by transport.

After Kosek et al. (IMC 2022, section 2). `probe` and `targets` are pure; `negotiate` and `support` send, within the
rate of `pace`; `emulated` brings up resolvers to be found in the testbed. Nothing here decides where packets may go:
that is the command's.
"""

from crosslayer.discover.errors import DiscoverError
from crosslayer.discover.support import ProbedHost, Support, checks, discover
from crosslayer.discover.targets import Target, parse_targets, read_targets

__all__ = ["DiscoverError", "ProbedHost", "Support", "Target", "checks", "discover", "parse_targets", "read_targets"]
