"""The testbed: private namespaces, the emulated link between them, and the server at its far end.

    client - client bridge ... link ... server bridge - server

Nothing here measures a protocol. Only this package changes namespaces, qdiscs and server processes.
"""

from crosslayer.testbed.check import LinkCheck
from crosslayer.testbed.errors import TestbedError
from crosslayer.testbed.link_delay import ExtraDelay
from crosslayer.testbed.testbed import Testbed

__all__ = ["ExtraDelay", "LinkCheck", "Testbed", "TestbedError"]
