"""The testbed: private namespaces, the emulated link between them, and the server at its far end.

    client - client bridge ... link ... server bridge - server

This package measures no protocol. Except for `box`, only this package changes namespaces and qdiscs.
"""
