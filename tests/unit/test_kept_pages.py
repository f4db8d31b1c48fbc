"""Pages made from web archives and from saved folders."""

from __future__ import annotations

import gzip
import json
import uuid
from pathlib import Path

import pytest

from crosslayer import pages
from crosslayer.pages import RECORDED, PageError, from_folder, from_warc

SITE, CDN = "https://www.shop.example/", "https://cdn.shop.example/"
HTML = (
    b'<!DOCTYPE html><link rel="stylesheet" href="https://cdn.shop.example/a.css?v=1"><img src="/one.png"><p>Hello</p>'
)
CSS = b"body { background: url('two.png') } " + b"/* " + b"x" * 3000 + b" */"


def chunked(body: bytes) -> bytes:
    half = len(body) // 2
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:half], body[half:], b""))


def record(kind: str, url: str, http: bytes) -> bytes:
    """As ISO 28500 has it."""
    head = (
        f"WARC/1.1\r\nWARC-Type: {kind}\r\nWARC-Target-URI: {url}\r\nWARC-Date: 2026-11-22T10:00:00Z\r\n"
        f"WARC-Record-ID: <urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, kind + url)}>\r\n"
        f"Content-Type: application/http;msgtype={kind}\r\nContent-Length: {len(http)}\r\n\r\n"
    )
    return head.encode() + http + b"\r\n\r\n"


def archive(folder: Path, *, name: str = "site.warc.gz") -> Path:
    """Document, style sheet (gzip, chunked), two pictures, one of them by the style sheet; a page that is gone."""
    pieces = []

    def add(url: str, mime: str, body: bytes, by: str = "", status: str = "200 OK", more: str = "") -> None:
        referer = f"Referer: {by}\r\n" if by else ""
        asked = f"GET {url} HTTP/1.1\r\nHost: any\r\nCookie: s3cr3t\r\n{referer}\r\n".encode()
        came = f"HTTP/1.1 {status}\r\nContent-Type: {mime}\r\n{more}\r\n".encode() + body
        pieces.extend([record("request", url, asked), record("response", url, came)])

    add(SITE, "text/html; charset=utf-8", HTML)
    coded = "Transfer-Encoding: chunked\r\nContent-Encoding: gzip\r\n"
    add(CDN + "a.css?v=1", "text/css", chunked(gzip.compress(CSS, mtime=0)), SITE, more=coded)
    add(SITE + "one.png", "image/png", b"\x89PNG" + bytes(96), SITE)
    add(CDN + "two.png", "image/png", b"\x89PNG" + bytes(496), CDN + "a.css?v=1")
    add(SITE + "gone.png", "image/png", b"no", SITE, status="404 Not Found")
    file = folder / name
    file.write_bytes(b"".join(gzip.compress(piece) if name.endswith(".gz") else piece for piece in pieces))
    return file


@pytest.mark.parametrize("name", ["site.warc", "site.warc.gz"])
def test_a_web_archive_becomes_the_page_that_it_has(tmp_path: Path, name: str) -> None:
    done = from_warc(archive(tmp_path, name=name), tmp_path / "pages" / "shop")
    assert (done.resources, done.hosts) == (4, 2)
    assert done.code.startswith("the recording's own")
    assert done.left_out == {"that failed": 1}
    assert done.private == {"headers with cookies": 4, "URLs with a query": 1}
    page = pages.load_pages(tmp_path / "pages")["shop"]
    assert (page.host, page.origins) == ("www.shop.example", ("cdn.shop.example",))
    by_path = {resource.path: resource for resource in page.resources}
    assert set(by_path) == {"/", "/a.css", "/one.png", "/two.png"}
    assert by_path["/two.png"].after == "https://cdn.shop.example/a.css"
    assert [by_path[path].wire_bytes for path in ("/one.png", "/two.png")] == [100, 500]
    assert by_path["/a.css"].encoding == "gzip"
    assert abs(by_path["/a.css"].wire_bytes - len(gzip.compress(CSS, mtime=0))) < 40
    assert "s3cr3t" not in "".join(file.read_text(errors="replace") for file in (tmp_path / "pages/shop").iterdir())


def test_an_archive_says_nothing_of_times(tmp_path: Path) -> None:
    from_warc(archive(tmp_path), tmp_path / "shop")
    recorded = json.loads((tmp_path / "shop" / RECORDED).read_text())
    assert {request["start_ms"] for request in recorded["requests"]} == {None}


def saved(folder: Path, document: str = "index.html", noted: str = "") -> Path:
    """As browsers save a page: the document, and a folder with its files."""
    page = folder / "saved"
    (page / "shop_files").mkdir(parents=True)
    (page / document).write_text(
        f'<!DOCTYPE html>\n{noted}<link rel="stylesheet" href="shop_files/a%20b.css">'
        "<script src=shop_files/app.js></script>"
    )
    (page / "shop_files" / "a b.css").write_text("p { background: url(./two.png) }")
    (page / "shop_files" / "app.js").write_text("document.write(\"<img src='shop_files/late.png'>\")")
    for name, size in (("two.png", 500), ("late.png", 300), ("unused.png", 10)):
        (page / "shop_files" / name).write_bytes(b"\x89PNG" + bytes(size - 4))
    (page / "shop_files" / "hosts").symlink_to("/etc/hosts")
    return page


def test_a_saved_folder_becomes_a_page_of_one_host(tmp_path: Path) -> None:
    noted = "<!-- saved from url=(0025)https://www.shop.example/ -->\n"
    done = from_folder(saved(tmp_path, "shop.html", noted), tmp_path / "pages" / "shop")
    assert (done.resources, done.hosts) == (5, 1)
    assert done.left_out == {"files that nothing names": 1}
    page = pages.load_pages(tmp_path / "pages")["shop"]
    assert page.host == "www.shop.example"
    assert len(page.aliases) == 2
    after = {resource.path: resource.after for resource in page.resources}
    assert set(after) == {"/", *(f"/shop_files/{name}" for name in ("a%20b.css", "app.js", "two.png", "late.png"))}
    assert after["/shop_files/two.png"] == "/shop_files/a%20b.css"
    assert after["/shop_files/late.png"] == "/shop_files/app.js"
    assert {r.path: r.wire_bytes for r in page.resources}["/shop_files/two.png"] == 500


def test_a_saved_folder_has_a_host_by_somebodys_word(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    with pytest.raises(PageError, match="does not name its host") as error:
        from_folder(folder, tmp_path / "a")
    assert "--host" in error.value.next_step
    with pytest.raises(PageError, match="its host is 'no host'"):
        from_folder(folder, tmp_path / "a", host="no host")
    from_folder(folder, tmp_path / "pages" / "a", host="my.example")
    assert pages.load_pages(tmp_path / "pages")["a"].host == "my.example"


def test_an_archive_in_one_gzip_member_is_the_same(tmp_path: Path) -> None:
    file = tmp_path / "one.warc.gz"
    file.write_bytes(gzip.compress(archive(tmp_path, name="site.warc").read_bytes()))
    assert from_warc(file, tmp_path / "shop").resources == 4


def test_an_archive_that_was_cut_is_truncated(tmp_path: Path) -> None:
    for name, lost in (("site.warc", 30), ("site.warc.gz", 10)):
        file = archive(tmp_path, name=name)
        file.write_bytes(file.read_bytes()[:-lost])
        with pytest.raises(PageError, match="is truncated"):
            from_warc(file, tmp_path / f"page-{name}")


def test_an_arc_is_called_one(tmp_path: Path) -> None:
    file = tmp_path / "old.arc"
    file.write_bytes(b"filedesc://old.arc 0.0.0.0 20260101000000 text/plain 76\n1 0 Example\n")
    with pytest.raises(PageError, match="is an ARC, the format before WARC"):
        from_warc(file, tmp_path / "page")


def test_what_is_no_folder_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("<p>")
    for path, reason in ((tmp_path / "page.html", "is a file, not a folder"), (tmp_path / "none", "is not there")):
        with pytest.raises(PageError, match=reason):
            from_folder(path, tmp_path / "page", host="www.shop.example")


def test_files_of_a_saved_page_are_located_whatever_their_names(tmp_path: Path) -> None:
    page = tmp_path / "saved"
    (page / "Schöne Seite_files").mkdir(parents=True)
    files = page / "Schöne Seite_files"
    (page / "index.html").write_text(
        '<base href="./Sch%C3%B6ne%20Seite_files/"><link rel=stylesheet href="main.css">'
        '<img src="a b.png"><img srcset="big.png 2x, small.png 1x"><script src="app.js.download"></script>',
        encoding="utf-8",
    )
    (files / "main.css").write_text('@import "more.css"; p { background: url( Größe.png ) }', encoding="utf-8")
    (files / "more.css").write_text("p { background: url('(1).png') }")
    (files / "app.js.download").write_text('new Image().src = "late.png"')
    for name in ("a b.png", "big.png", "small.png", "Größe.png", "(1).png", "late.png"):
        (files / name).write_bytes(b"\x89PNG" + bytes(90))
    done = from_folder(page, tmp_path / "sites" / "shop", host="www.shop.example")
    assert done.left_out == {}
    spec = pages.load_pages(tmp_path / "sites")["shop"]
    folder = "/Sch%C3%B6ne%20Seite_files/"
    after = {resource.path.removeprefix(folder): resource.after.removeprefix(folder) for resource in spec.resources}
    assert after == {
        "/": "", "main.css": "/", "a%20b.png": "/", "big.png": "/", "small.png": "/", "app.js.download": "/",
        "more.css": "main.css", "Gr%C3%B6%C3%9Fe.png": "main.css", "%281%29.png": "more.css",
        "late.png": "app.js.download",
    }  # fmt: skip


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    whole = archive(tmp_path)
    for name, content in (
        ("text.warc", b"Hello\n"),
        ("empty.warc", b""),
        ("noise.warc.gz", b"\x1f\x8b" + bytes(range(256))),
        ("broken.warc.gz", whole.read_bytes()[:200] + b"?" + whole.read_bytes()[201:]),
    ):
        file = tmp_path / name
        file.write_bytes(content)
        with pytest.raises(PageError) as error:
            from_warc(file, tmp_path / f"page-{name}")
        assert error.value.where == str(file)
    with pytest.raises(PageError, match="cannot be read"):
        from_warc(tmp_path / "none.warc", tmp_path / "none")


def test_a_folder_without_one_document_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PageError, match="has no document"):
        from_folder(tmp_path, tmp_path / "a")
    for name in ("one.html", "two.html"):
        (tmp_path / name).write_text("<p>")
    with pytest.raises(PageError, match="has 2 documents"):
        from_folder(tmp_path, tmp_path / "a")
