"""The pages under test: read their specifications, and build the files that the server sends.

A page is a folder that contains a `page.toml` and the bodies of the resources. The folder is in `sites/` or belongs to
the user. The server sends the files of `build` unchanged. Every body has exactly the size that its specification
states, with any build of zlib. This package is independent of studies, servers, browsers, clocks and networks.
`sites/make.py` draws the pictures of the pages.
"""

from crosslayer.pages._build import BuiltPage, BuiltResource, build, is_built
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
    "is_built",
    "load_pages",
    "normal_path",
    "normal_url",
    "own_pages",
]
