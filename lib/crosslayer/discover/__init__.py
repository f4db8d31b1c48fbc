"""Resolver discovery: probe listed addresses for QUIC, then try each transport at every address.

The method is that of Kosek et al. (IMC 2022, section 2). `probe` and `targets` do not access the network. `negotiate`
and `support` send packets within the rate of `pace`. `emulated` starts resolvers in the testbed. Without the option
`--allow-external` of the command, addresses outside the testbed are refused. Hosts on the stop list are never probed.
"""

from crosslayer.discover.errors import DiscoverError
from crosslayer.discover.support import ProbedHost, Support, checks, discover
from crosslayer.discover.targets import Target, parse_targets, read_targets

__all__ = ["DiscoverError", "ProbedHost", "Support", "Target", "checks", "discover", "parse_targets", "read_targets"]
