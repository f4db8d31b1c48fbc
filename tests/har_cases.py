"""The HAR recordings in `tests/data/har`, their expected results, and a function that damages recordings."""

from __future__ import annotations

import copy
import gzip
import json
import random
from pathlib import Path
from typing import Any

HARS = Path(__file__).parent / "data" / "har"
"""Folder of small artificial recordings. Each shows one way in which programs write HAR. Their hosts do not exist."""

_A_SCRIPT = ("www.syn.test", ["/", "/a.js"])
_ALIKE = (
    "bodysize_on_cached bom brotli_b64 created_url_case csp_meta data_blob_ws empty_doc_body empty_js float_size "
    "fragment headers_null iframe_before init_string long_query memory_cache mime_null mime_upper mime_xhtml_ok "
    "naive_mixed naive_pages nan neg_time no_bodies no_pagetimings onload_zero pages_null pages_swapped placeholder "
    "placeholder_onload sjis_b64 time_null trailing_dot truncated_text two_pages tz_fiddler tz_nocolon userinfo utf16 "
    "xhtml"
)
PAGES: dict[str, tuple[str, list[str]]] = {
    **{f"{name}.har": _A_SCRIPT for name in _ALIKE.split()},
    "gz.har.gz": _A_SCRIPT,
    "chain_hosts.har": ("www.syn.test", ["/", "https://a.b.test/a.js", "https://c.d.test/x.css"]),
    "css_other_host.har": ("www.syn.test", ["/", "https://cdn.syn2.test/x.css", "/p.png"]),
    "css_other_host_nobody.har": ("www.syn.test", ["/", "https://cdn.syn2.test/x.css", "/p.png"]),
    "dnsquery_path.har": ("www.syn.test", ["/", "/dns-query~2"]),
    "doc_subdir_rel.har": ("www.syn.test", ["/", "/sub/dir/x.js", "/sub/y.js"]),
    "empty_css204.har": ("www.syn.test", ["/", "/a.css"]),
    "frame_other_host.har": ("www.syn.test", ["/", "https://ads.syn2.test/f.html", "/a.js"]),
    "frame_other_host_nobody.har": ("www.syn.test", ["/", "https://ads.syn2.test/f.html", "/a.js"]),
    "gz_tiny.har": ("www.syn.test", ["/", "/pixel"]),
    "idn_puny.har": ("xn--mnchen-3ya.test", ["/", "/a.js"]),
    "idn_unicode.har": ("xn--mnchen-3ya.test", ["/", "/a.js"]),
    "ipv4.har": ("host-127-0-0-1.test", ["/", "/a.js"]),
    "ipv6.har": ("host-1.test", ["/", "/a.js"]),
    "jsonp_relative_base.har": ("www.syn.test", ["/", "/other/x.js"]),
    "latin1.har": ("www.syn.test", ["/"]),
    "localhost.har": ("localhost.test", ["/", "/a.js"]),
    "long_url.har": ("www.syn.test", ["/", "/" + 999 * "a"]),
    "modulepreload.har": ("www.syn.test", ["/", "/m.js", "/n.js", "/o.js"]),
    "no_response.har": ("www.syn.test", ["/"]),
    "path_space_quote.har": ("www.syn.test", ["/", "/a%20b%27c.png", "/d%22e.png", "/%C3%BCn%C3%AF.png"]),
    "pct_one.har": ("www.syn.test", ["/", "/a%20b.png"]),
    "pct_slash.har": ("www.syn.test", ["/", "/x%2Fy.png"]),
    "ports.har": ("dev.syn.test", ["/", "/a.js", "/a.js~2"]),
    "samehost.har": ("www.example.org", ["/", "/a.js"]),
    "scheme.har": ("dev.syn.test", ["/", "/a.js", "/a.js~2"]),
    "secret_in_path_and_body.har": ("www.syn.test", ["/", "/reset/SECRETTOKEN/a.js"]),
    "srcset_other.har": ("www.syn.test", ["/", "https://img.syn2.test/a.webp"]),
    "sri_ok.har": ("www.syn.test", ["/", "https://cdn.syn2.test/a.js"]),
    "sri_rewritten.har": ("www.syn.test", ["/", "/a.js", "/p.png"]),
    "status_str.har": ("www.syn.test", ["/"]),
    "sw.har": ("www.syn.test", ["/", "/a.js", "/sw.js"]),
    "two_docs_login.har": ("www.syn.test", ["/"]),
    "underscore.har": ("www.syn.test", ["/", "https://my-cdn.syn.test/a.js"]),
    "utf8_in_js_slow.har": ("www.syn.test", ["/", "/%E2%9C%93.js"]),
}
"""Recordings from which a page can be made, by file name.

Each has the page's host name and the key of every resource in the order of the requests.
"""

REFUSED = {
    "empty.har": "is empty",
    "html.har": "is HTML or XML, not HAR",
    "list.har": "must be a JSON object with the key 'log'",
    "null.har": "must be a JSON object with the key 'log'",
    "nolog.har": "has no key 'log'",
    "post_only.har": "has no document, an HTML response to GET; its requests are: 2 POST",
}
"""Recordings that are refused, because they contain no page. Each has a part of the error message."""

MADE_ONLY = ("secret_in_path_and_body.har",)
"""Recordings whose code names other URLs than those that the browser requested.

Their pages load only if generated code replaces the recorded code (`synthesise`).
"""

_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1e308, 2**70, "", "null", "\ud800", "https://[", "http://x.test:99999/", "//", "%", "data:,",
    "https://a.test/" + 300 * "a/../", "https://" + 70 * "a" + ".test/", "2026-13-45T99:00:00Z",
    "0001-01-01T00:00:00+23:59",
    "text/html; charset=utf-16", "text/html; charset=idna", "image/svg+xml", [], {}, [[]], [None], {"url": 3},
)  # fmt: skip


def contents(name: str) -> bytes:
    """Bytes of a recording; a `.gz` file is decompressed."""
    content = (HARS / name).read_bytes()
    return gzip.decompress(content) if name.endswith(".gz") else content


def mutated(har: Any, draw: random.Random, changes: int) -> Any:
    """Copy of a recording with `changes` random changes: values are replaced, removed or repeated."""
    har = copy.deepcopy(har)
    for _ in range(changes):
        holders = list(_holders(har))
        if not holders:
            break
        holder = draw.choice(holders)
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        key = draw.choice(keys)
        match draw.randrange(4):
            case 0:
                holder[key] = copy.deepcopy(draw.choice(_VALUES))
            case 1:
                del holder[key]
            case 2:
                holder[key] = copy.deepcopy(draw.choice(holders))
            case 3 if isinstance(holder, list):
                holder.append(copy.deepcopy(holder[key]))
            case _:
                other = draw.choice(holders)
                if isinstance(other, dict) and other and isinstance(holder, dict):
                    holder[key] = copy.deepcopy(other[draw.choice(list(other))])
    return har


def _holders(value: Any) -> Any:
    """Yield all non-empty objects and arrays of a JSON value, itself included."""
    if isinstance(value, (dict, list)) and value:
        yield value
        for item in value.values() if isinstance(value, dict) else value:
            yield from _holders(item)


def damaged(name: str, seed: int, changes: int) -> bytes:
    """JSON of a recording after random changes by `mutated`, which the seed determines."""
    return json.dumps(mutated(json.loads(contents(name)), random.Random(seed), changes)).encode(
        "utf-8", "surrogatepass"
    )
