"""The page loader without a network: what a document names, what is asked for when, what is taken for the page."""

from __future__ import annotations

import gzip
from dataclasses import replace
from typing import Any

import pytest

from crosslayer import pages
from crosslayer.h3 import PageFetch, PageResponse
from crosslayer.h3.client import difference
from crosslayer.h3.scanner import Named, ResourceKind, Scanner

PAGES = pages.load_pages(pages.find_spec_dir())
DOCUMENT = b"""<!DOCTYPE html><html><head><link rel="icon" href="data:,"><link rel="stylesheet" href="/a.css">
<script src="/early.js"></script><script defer src="/late.js"></script></head>
<body><img src="/one.png" alt="a > b"><img src="/lazy.png" loading="lazy"><img src="https://other.test/x.png">
<script>var text = '<img src="/no.png">';</script><script src="/end.js"></script></body></html>"""
NAMED = [
    Named("/a.css", ResourceKind.STYLE),
    Named("/early.js", ResourceKind.SCRIPT),
    Named("/late.js", ResourceKind.DEFERRED),
    Named("/one.png", ResourceKind.IMAGE),
    Named("/end.js", ResourceKind.LATE_SCRIPT),
]


@pytest.mark.parametrize("size", [1, 7, 100, 10_000])
@pytest.mark.parametrize("encoding", ["gzip", ""])
def test_a_document_names_the_same_however_it_arrives(size: int, encoding: str) -> None:
    body = gzip.compress(DOCUMENT) if encoding else DOCUMENT
    scanner = Scanner(encoding)
    assert [named for at in range(0, len(body), size) for named in scanner.take(body[at : at + size])] == NAMED


def test_a_name_is_detected_before_the_document_is_complete() -> None:
    scanner = Scanner()
    end = DOCUMENT.index(b"/early.js")
    assert scanner.take(DOCUMENT[:end]) == NAMED[:1]


def test_what_is_no_gzip_is_refused() -> None:
    with pytest.raises(ValueError, match="no gzip stream"):
        Scanner("gzip").take(b"<html>")


class Asked:
    """Where the core would be: what was asked for, with which priority."""

    def __init__(self) -> None:
        self.priorities: dict[str, str] = {}

    def get(self, _authority: str, path: str, priority: str, now: float) -> PageResponse:
        assert path not in self.priorities, "asked for twice"
        self.priorities[path] = priority
        return PageResponse(path=path, asked_s=now)


def begun(page: str) -> tuple[PageFetch, Asked]:
    core: Any = Asked()
    return PageFetch(core, PAGES[page], 0.0), core


def arrive(fetch: PageFetch, path: str, share: float = 1.0) -> None:
    """The first bytes of a resource come, by default all."""
    (built,) = [r for r in fetch.page.resources if r.path == path]
    source = (fetch.page.folder / built.source).read_bytes()
    body = gzip.compress(source) if built.encoding == "gzip" and not built.source.endswith(".gz") else source
    response = fetch.responses[path]
    response.headers |= {b":status": b"200", b"content-encoding": built.encoding.encode()}
    response.body[:] = body[: int(len(body) * share)]
    if share == 1:
        response.ended, response.ended_s = True, 1.0
    fetch.advance(1.0)


def test_what_a_document_names_is_asked_for_while_it_arrives() -> None:
    fetch, core = begun("wikipedia.org")
    arrive(fetch, "/", 0.5)
    assert list(core.priorities) == ["/", "/images/globe.png"]
    arrive(fetch, "/")
    # What only a style names comes last.
    assert list(core.priorities.items()) == [
        ("/", "u=0, i"),
        ("/images/globe.png", "i"),
        ("/images/reader.png", "i"),
        ("/script.js", "u=2"),
        ("/images/sprite.svg", "i"),
    ]


@pytest.mark.parametrize("last", ["/scripts/app.js", "/scripts/react.production.min.js", "/styles/page.css"])
def test_a_script_asks_when_all_that_runs_before_it_is_there(last: str) -> None:
    fetch, core = begun("instagram.com")
    arrive(fetch, "/")
    before = [path for path in core.priorities if path not in ("/", last)]
    assert core.priorities[last] == ("u=0" if last.endswith("css") else "")
    for path in before:
        arrive(fetch, path)
    assert not any("/images/" in path for path in core.priorities)
    arrive(fetch, last)
    assert sum("/images/" in path for path in core.priorities) == 7
    assert not fetch.done
    for path in set(core.priorities) - {"/", last, *before}:
        arrive(fetch, path)
    assert fetch.done


def whole(page: str) -> PageFetch:
    """A load that is done, with the bytes as the server has them."""
    fetch, _ = begun(page)
    for response in fetch.responses.values():
        response.ended = True
        response.headers[b":status"] = b"200"
    return fetch


def test_every_byte_is_the_pages() -> None:
    fetch = whole("long-document")
    content = (fetch.page.folder / "index.html").read_bytes()
    fetch.document.body[:] = content
    assert difference(fetch) is None
    fetch.document.body[50_000] ^= 1
    assert difference(fetch) == "/ has other bytes than its source"
    fetch.document.body[:] = content[:-1]
    assert difference(fetch) == "/ has 99999 bytes instead of 100000"


def test_a_body_that_is_no_gzip_or_not_of_the_page_is_reported() -> None:
    fetch = whole("example.org")
    fetch.document.body[:] = bytes(650)
    assert str(difference(fetch)).startswith("/ is no gzip stream")
    fetch.document.headers[b":status"] = b"404"
    assert difference(fetch) == "http status 404 for /"
    (document,) = fetch.page.resources
    fetch.page = replace(fetch.page, resources=(replace(document, path="/other"),))
    assert difference(fetch) == "asked for /, which is not of the page"
