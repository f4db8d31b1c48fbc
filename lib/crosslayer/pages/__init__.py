"""The pages under test: read their specifications, build the bytes that go over the wire.

A page is a folder under `sites/` (or of the user's own) with a `page.toml` and its content. `build` turns all of them
into files the server sends as they are, every body of exactly the size its specification states, whichever zlib
compressed it. Nothing here knows a study, a server, a browser, a clock or a network, or how a picture is drawn
(`sites/make.py`).
"""

from crosslayer.pages._build import BuiltPage, BuiltResource, build
from crosslayer.pages._errors import PageError
from crosslayer.pages._har import RECORDED, FromHar, from_har
from crosslayer.pages._kept import from_folder, from_warc
from crosslayer.pages._spec import SPEC_FILE, WARMUP, PageSpec, ResourceSpec, find_spec_dir, load_pages, own_pages
from crosslayer.pages._urls import normal_path, normal_url
from crosslayer.pages._wire import fitted

__all__ = [
    "RECORDED",
    "SPEC_FILE",
    "WARMUP",
    "BuiltPage",
    "BuiltResource",
    "FromHar",
    "PageError",
    "PageSpec",
    "ResourceSpec",
    "build",
    "find_spec_dir",
    "fitted",
    "from_folder",
    "from_har",
    "from_warc",
    "load_pages",
    "normal_path",
    "normal_url",
    "own_pages",
]
