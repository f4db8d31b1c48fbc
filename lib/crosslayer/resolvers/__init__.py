"""Lists of resolvers, and their comparison (`crosslayer compare`)."""

from crosslayer.resolvers.errors import ResolversError
from crosslayer.resolvers.target import ResolverTarget

__all__ = ["ResolverTarget", "ResolversError"]
