"""A page loader on one HTTP/3 connection, which can also carry DNS queries (DoH3).

It requests the same resources as a browser, at the times of a browser's preload scanner and scripts, and timestamps
every byte. It is independent of campaigns and links.

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
