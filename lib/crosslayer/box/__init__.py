"""An emulated Internet: resolvers, an authoritative server, web origins and middleboxes whose behaviour is known.

    client -- router program -- resolver, resolver, ...

The box records the truth in a file: its contents, every answer at the far end, and every packet that its router
dropped. A tool under test must not read this file. docs/reference/box.md describes the TOML file of a box.
"""
