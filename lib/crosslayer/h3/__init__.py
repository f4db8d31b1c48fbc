"""A page loader on one HTTP/3 connection, which can also carry DNS queries (DoH3).

The loader requests the same resources as a browser, at the times at which a browser's preload scanner and scripts would
do so. It records when each byte arrives. This package is independent of campaigns and links.

    client = PageClient(Resolver(address, "localhost", ca_file))
    with client:
        client.connect()
        answer = client.query(build_query(Question(page.host), Protocol.DOH3, client.settings))
        load = client.begin(page)
        client.finish(load)
"""

from crosslayer.h3.client import PageClient
from crosslayer.h3.core import PageCore, PageResponse
from crosslayer.h3.load import PageFetch

__all__ = ["PageClient", "PageCore", "PageFetch", "PageResponse"]
