"""Resolve a name and load its page on one connection with early data: `coalesced_client.py PAGE`, run on a link.

Uses crosslayer's own clients, and prints the columns of the visit as JSON.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path

from crosslayer import dns, pages
from crosslayer.campaign.visit import client_bringing, visit
from crosslayer.h3 import PageClient

page = pages.load_pages(pages.find_spec_dir())[sys.argv[1]]
resolver = dns.Resolver(socket.gethostbyname(page.host), "localhost", Path(os.environ["CROSSLAYER_CA"]))
with client_bringing(PageClient, resolver, page.host, ticket=True, token=True) as client:
    print(json.dumps(visit(page, client, client) | {"early": client.handshake.early_data_accepted}))
