"""An Internet in a box: resolvers, an authoritative server, web origins and middleboxes with a known truth.

    client -- router program -- resolver, resolver, ...

The box writes its truth itself: its contents, every answer at the far end, and the packets that its router dropped. A
tool under test must not read the truth. docs/reference/box.md describes the TOML file.
"""
