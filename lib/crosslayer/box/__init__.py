"""An emulated Internet of machines with known behaviour: resolvers, authoritative server, web origins, middleboxes.

    client -- router program -- resolver, resolver, ...

A box writes the true values, called the truth, to a file: the box's hosts, every DNS answer of a crosslayer server, and
every packet that the router dropped. A tool under test must not read this file. docs/reference/box.md describes the
TOML file of a box.
"""
