"""Resolvers as data, the consent to ask them, and their comparison (`crosslayer compare`)."""

from crosslayer.resolvers.errors import ResolversError
from crosslayer.resolvers.listed import Listed, ResolverTarget, read, well_known

__all__ = ["Listed", "ResolverTarget", "ResolversError", "read", "well_known"]
