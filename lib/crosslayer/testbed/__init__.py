"""The testbed: private namespaces, the emulated link between them, and the server at its far end.

    client - client bridge ... link ... server bridge - server

Nothing here measures a protocol. Only this package changes namespaces, qdiscs and server processes.
"""
