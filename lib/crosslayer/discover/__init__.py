"""Resolver discovery: probe listed addresses for QUIC, then try each transport at every address.

The method is that of Kosek et al. (IMC 2022, section 2). `probe` and `targets` do no I/O. `negotiate` and `support`
send packets within the rate of `pace`. `emulated` starts resolvers in the testbed. The command, not this package,
decides which addresses may be probed.
"""

from crosslayer.discover.errors import DiscoverError
from crosslayer.discover.support import ProbedHost, Support, checks, discover
from crosslayer.discover.targets import Target, parse_targets, read_targets

__all__ = ["DiscoverError", "ProbedHost", "Support", "Target", "checks", "discover", "parse_targets", "read_targets"]
