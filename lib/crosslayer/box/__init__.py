"""An Internet in a box: many resolvers, an authoritative server, web origins and middleboxes, whose truth is known.

    client -- router program -- resolver, resolver, ...

The box writes its truth itself: what it contains, every answer at the far end, and what its router dropped. A tool
under test must not read it. docs/reference/box.md describes the TOML file.
"""

from crosslayer.box.box import Box
from crosslayer.box.description import Description, load_box
from crosslayer.box.errors import BoxError, BoxStartError

__all__ = ["Box", "BoxError", "BoxStartError", "Description", "load_box"]
