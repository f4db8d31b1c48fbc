"""The stub: a DNS forwarder on a local address, which sends the lookups of a browser over the transport under test.

The program is `emulation/cmd/crosslayer-stub` (Go). This package starts and stops it, sends its commands and reads its
metrics; it does not depend on campaigns.

    server = dns.Resolver("10.53.0.2", "www.example.org", ca_file)
    settings = StubSettings.towards(server, Protocol.DOQ, Resumption.EARLY_DATA)
    with Stub.start(subprocess.Popen, settings, folder) as stub:
        ...  # a program resolves a name through 127.0.0.1
        stub.reset_sessions()
        ...  # it resolves again, with ticket and token of the first connection
        rows = stub.metrics()
"""

from crosslayer.stub.errors import StubError
from crosslayer.stub.metrics import QueryMetrics, parse_metrics
from crosslayer.stub.settings import Gateway, StubSettings
from crosslayer.stub.stub import Stats, Stub, stub_version

__all__ = [
    "Gateway",
    "QueryMetrics",
    "Stats",
    "Stub",
    "StubError",
    "StubSettings",
    "parse_metrics",
    "stub_version",
]
