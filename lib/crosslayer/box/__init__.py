"""An Internet in a box: many resolvers, an authoritative server, web origins and middleboxes, whose truth is known.

    client -- router program -- resolver, resolver, ...

The box writes its truth itself: what it contains, every answer at the far end, and what its router dropped. A tool
under test must not read it. docs/reference/box.md describes the TOML file.
"""
