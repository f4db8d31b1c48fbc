"""Pages made from recordings: what they ask for, what they weigh, and what is not in them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crosslayer import pages
from crosslayer.browser.recorded import PageRecording, RecordedRequest, likeness
from crosslayer.pages import RECORDED, PageError, from_har
from crosslayer.testbed.server import RequestEvent

HARS = Path(__file__).resolve().parents[1] / "data" / "hars"


def entry(url: str, mime: str, at: float, size: int = 900, **more: Any) -> dict[str, Any]:
    """One request of a HAR, `at` seconds after the first."""
    request = {"method": "GET", "url": url, "headers": more.pop("sent", [])}
    headers = [{"name": "Content-Encoding", "value": "br"}] if more.pop("compressed", False) else []
    content = {"size": 3 * size, "mimeType": mime, **more.pop("content", {})}
    response = {"status": more.pop("status", 200), "headers": headers, "bodySize": size, "content": content}
    return {"startedDateTime": f"2026-11-22T10:00:{at:09.6f}Z", "request": request, "response": response, **more}


def by(url: str) -> dict[str, Any]:
    """What had it fetched, as Chromium says it."""
    return {"_initiator": {"type": "parser", "url": url}}


SITE = "https://www.shop.example/"
CDN = "https://cdn.shop.example/"
APP = SITE + "app.js"
COOKIE = [{"name": "Cookie", "value": "s3cr3t"}]
ENTRIES = [
    entry("http://www.shop.example/", "text/html", 0.0, status=301),
    entry(SITE + "?session=s3cr3t", "text/html", 0.1, 5000, compressed=True, sent=COOKIE),
    entry(CDN + "a.css?v=s3cr3t", "text/css", 0.2, 2000, compressed=True, **by(SITE + "?session=s3cr3t")),
    entry(CDN + "a.css?v=other", "text/css", 0.3, 400, **by(SITE + "?session=s3cr3t")),
    entry(CDN + "f.woff2", "font/woff2", 0.4, 7000, **by(CDN + "a.css?v=s3cr3t")),
    entry(SITE + "app.js", "application/javascript", 0.5, 3000, compressed=True),
    entry(SITE + "late.png", "image/png", 0.6, 30, _initiator={"stack": {"parent": {"callFrames": [{"url": APP}]}}}),
    entry(SITE + "icon.svg", "image/svg+xml", 0.7, 300, sent=[{"name": "Referer", "value": CDN + "a.css?v=s3cr3t"}]),
    entry(SITE + "dns-query", "application/json", 0.8, 90),
    entry(SITE + "app.js", "application/javascript", 0.9),
    entry(SITE + "api", "application/json", 1.0) | {"request": {"method": "POST", "url": SITE + "api"}},
    entry("data:image/png;base64,AAAA", "image/png", 1.1),
    entry(SITE + "gone.png", "image/png", 1.2, status=404),
    entry(SITE + "film", "video/mp4", 1.3),
    entry(SITE + "beacon.gif", "image/gif", 9.0),
]  # fmt: skip
PAGE = {"startedDateTime": "2026-11-22T10:00:00Z", "pageTimings": {"onLoad": 5000.0}, "id": "page_1"}


def write(folder: Path, entries: list[dict[str, Any]], *recorded: dict[str, Any]) -> Path:
    """A HAR in a folder."""
    har = folder / "site.har"
    har.write_text("\ufeff" + json.dumps({"log": {"version": "1.2", "entries": entries, "pages": list(recorded)}}))
    return har


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[pages.FromHar, pages.BuiltPage]:
    folder = tmp_path_factory.mktemp("made")
    result = from_har(write(folder, ENTRIES, PAGE), folder / "sites" / "shop")
    return result, pages.build(pages.load_pages(folder / "sites"), folder / "built")["shop"]


def test_every_request_has_its_host_its_weight_and_what_had_it_fetched(
    made: tuple[pages.FromHar, pages.BuiltPage],
) -> None:
    results = {r.key: (r.wire_bytes, r.after) for r in made[1].spec.resources}
    css = CDN + "a.css"
    assert results == {
        "/": (5000, ""),
        css: (2000, "/"),
        css + "~2": (400, "/"),
        CDN + "f.woff2": (7000, css),
        "/app.js": (3000, "/"),
        "/late.png": (30, "/app.js"),
        "/icon.svg": (300, css),
        "/dns-query~2": (90, "/app.js"),
    }
    assert made[1].spec.origins == ("cdn.shop.example",)
    assert all(r.file.stat().st_size == r.wire_bytes for r in made[1].resources)


def test_what_is_left_out_is_reported(made: tuple[pages.FromHar, pages.BuiltPage]) -> None:
    assert made[0].left_out == {
        "redirections": 1,
        "asked for again": 1,
        "POST": 1,
        "of data:": 1,
        "that failed": 1,
        "films and sounds": 1,
        "after the load event": 1,
    }
    assert made[0].private == {"headers with cookies": 1, "URLs with a query": 3}
    assert "synthesised" in str(made[0])


def test_nothing_private_is_in_the_page(made: tuple[pages.FromHar, pages.BuiltPage]) -> None:
    files = [file for file in made[0].folder.rglob("*") if file.is_file()]
    assert len(files) == len(made[1].resources) + 2
    assert not [file.name for file in files if b"s3cr3t" in file.read_bytes()]


def test_a_page_is_the_same_each_time(made: tuple[pages.FromHar, pages.BuiltPage], tmp_path: Path) -> None:
    from_har(write(tmp_path, ENTRIES, PAGE), tmp_path / "shop")
    for file in made[0].folder.iterdir():
        assert (tmp_path / "shop" / file.name).read_bytes() == file.read_bytes(), file.name


def test_code_of_the_har_keeps_what_it_says_but_its_urls(tmp_path: Path) -> None:
    text = '<!DOCTYPE html><p>Hello</p><img src="/a.png?user=s3cr3t"><img src="b.png"><a href="/other?x=1">'
    size = len(text)
    entries = [
        entry(SITE + "home/", "text/html", 0.0, size, content={"text": text, "size": size}),
        entry(
            SITE + "a.png?user=s3cr3t",
            "image/png",
            0.1,
            5,
            content={"text": "aGVsbG8=", "encoding": "base64", "size": 5},
        ),
        entry(SITE + "home/b.png", "image/png", 0.2),
    ]
    result = from_har(write(tmp_path, entries), tmp_path / "shop")
    body = (tmp_path / "shop" / "0.html").read_text()
    rewritten = text.replace("/a.png?user=s3cr3t", "/a.png").replace('"b.png"', '"/home/b.png"')
    assert body == rewritten + " " * (size - len(rewritten))
    assert (tmp_path / "shop" / "1.bin").read_bytes() == b"hello"
    assert "recording's own" in result.code
    again = from_har(write(tmp_path, entries), tmp_path / "again", synthesise=True)
    assert "Hello" not in (tmp_path / "again" / "0.html").read_text()
    assert again.code == "synthesised, as asked"


@pytest.mark.parametrize("name", ["encyclopedia", "news-portal", "wikipedia.org"])
def test_recorded_pages_are_what_they_were(tmp_path: Path, name: str) -> None:
    result = from_har(HARS / f"{name}.har", tmp_path / "sites" / "copy")
    copy = pages.build(pages.load_pages(tmp_path / "sites"), tmp_path / "built")["copy"].spec
    original = pages.load_pages(pages.find_spec_dir())[name]
    assert {r.key for r in copy.resources} == {r.key for r in original.resources}
    # Of what a script writes into the document, a recording says no more than that it came after a script.
    after = {r.key: r.after if r.after in ("", "/") else r.after[-3:] for r in copy.resources}
    assert after == {r.key: r.after if r.after in ("", "/") else r.after[-3:] for r in original.resources}
    recorded = json.loads((result.folder / RECORDED).read_text())
    total = sum(request["wire_bytes"] for request in recorded["requests"])
    assert copy.wire_bytes == pytest.approx(total, rel=0.01)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "must be a JSON object"),
        ({"log": {}}, "entries"),
        ({"log": {"entries": [{"startedDateTime": "now"}]}}, "startedDateTime"),
        ({"log": {"entries": [entry(SITE, "image/png", 0.0)]}}, "no document"),
        ({"log": {"entries": [entry("https://[/", "text/html", 0.0)]}}, "no document"),
    ],
)
def test_what_is_no_recording_of_a_page_is_refused(tmp_path: Path, values: object, message: str) -> None:
    har = tmp_path / "site.har"
    har.write_text(json.dumps(values))
    with pytest.raises(PageError, match=message):
        from_har(har, tmp_path / "page")
    assert not (tmp_path / "page").exists()


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(PageError, match="exists already"):
        from_har(write(tmp_path, ENTRIES), tmp_path)


def request(path: str, ms: float, size: int) -> RequestEvent:
    """A request as the server tells it."""
    return RequestEvent(
        time_ns=int(ms * 1e6), done_ns=0, listener="h3", remote="", server_name="", host="a.example", method="GET",
        path=path, status=200, bytes=size, handshake_complete=True, resumed=False, address_validated=True,
    )  # fmt: skip


def test_a_failed_request_is_no_likeness() -> None:
    recorded = PageRecording(
        (RecordedRequest("https://a.example/", 0.0, 600), RecordedRequest("https://a.example/a%20b", 1.0, 10))
    )
    events = [request("/", 0, 600), request("/a%20b", 1, 10)]
    assert likeness(recorded, events, 9.0).like
    failed = likeness(recorded, [events[0], replace(events[1], status=404)], 9.0)
    assert not failed.like
    assert failed.failed == ("https://a.example/a%20b (404)",)
    assert "failed   https://a.example/a%20b (404)" in str(failed)


def test_a_page_is_distinguished_from_its_recording() -> None:
    wanted = [("/", 0.0, 600), ("/a", 30.0, 300), ("/b", 60.0, 100)]
    recorded = PageRecording(
        tuple(RecordedRequest(f"https://a.example{path}", ms, size) for path, ms, size in wanted), 80.0
    )
    same = likeness(recorded, [request("/", 5, 600), request("/a", 40, 300), request("/b", 65, 100)], 90.0)
    assert same.like
    assert (same.swapped, same.apart_ms) == (0.0, 0.0)
    swapped = likeness(recorded, [request("/", 0, 600), request("/a", 90, 300), request("/b", 60, 100)], 90.0)
    assert swapped.like
    assert swapped.swapped == pytest.approx(1 / 3)
    icon = [request("/", 5, 600), request("/favicon.ico", 6, 10), request("/a", 40, 300), request("/b", 65, 100)]
    assert likeness(recorded, icon, 90.0).like
    untimed = PageRecording(tuple(RecordedRequest(f"https://a.example{path}", None, size) for path, _, size in wanted))
    similarity = likeness(untimed, icon, 90.0)
    assert similarity.like
    assert "order      the recording has no times\nwaterfall  load event 90 ms" in str(similarity)
    for events in (
        [request("/", 0, 600), request("/a", 30, 300)],
        [request("/", 0, 600), request("/a", 30, 300), request("/b", 60, 100), request("/c", 70, 1)],
        [request("/", 0, 600), request("/a", 30, 300), request("/b", 60, 150)],
        [],
    ):
        assert not likeness(recorded, events, 90.0).like


@pytest.mark.parametrize(("hosts", "aliases"), [(1, 2), (3, 2), (198, 2), (199, 0), (200, 0)])
def test_a_page_has_aliases_where_the_testbed_has_addresses_for_them(tmp_path: Path, hosts: int, aliases: int) -> None:
    others = [entry(f"https://cdn.h{n}.example/a.png", "image/png", 0.1, **by(SITE)) for n in range(1, hosts)]
    page = pages.from_har(write(tmp_path, [entry(SITE, "text/html", 0), *others]), tmp_path / "pages" / "page").folder
    spec = pages.load_pages(pages.find_spec_dir(), page)["page"]
    assert (spec.lookups, len(spec.aliases)) == (hosts, aliases)
    of_own_site = [alias.endswith(spec.host) for alias in spec.aliases]
    assert of_own_site == [hosts == 1] * aliases
