"""Resolvers as data, the consent to ask them, and their comparison (`crosslayer compare`)."""

from crosslayer.resolvers.errors import ResolversError
from crosslayer.resolvers.listed import Listed, Target, read, well_known

__all__ = ["Listed", "ResolversError", "Target", "read", "well_known"]
