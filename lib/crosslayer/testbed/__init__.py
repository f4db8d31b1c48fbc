"""The testbed: private namespaces, the emulated link between them, the server at the far end.

    client - client bridge ... link ... server bridge - server

Nothing here measures a protocol; nothing above this room touches a namespace, a qdisc or a server process.
"""

from crosslayer.testbed.check import LinkCheck
from crosslayer.testbed.errors import TestbedError
from crosslayer.testbed.tap import Lateness
from crosslayer.testbed.testbed import Testbed

__all__ = ["Lateness", "LinkCheck", "Testbed", "TestbedError"]
