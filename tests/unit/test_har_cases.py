"""Recordings as many programs write them: each becomes a page with its exact requests, or an error with a reason."""

from __future__ import annotations

import html
import json
import re
import tempfile
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crosslayer import pages
from crosslayer.errors import CrosslayerError
from crosslayer.pages import FromHar, PageError, PageSpec, from_har, normal_path
from har_cases import HARS, PAGES, REFUSED, contents, damaged

EXAMPLES = 60
"""Damaged recordings; `setup/test-long recordings` tries a thousand."""


def made(folder: Path, name: str, *, page: int = 1, anew: bool = False) -> tuple[FromHar, PageSpec]:
    done = from_har(HARS / name, folder / "sites" / "page", page=page, synthesise=anew)
    return done, pages.load_pages(folder / "sites")["page"]


def written(folder: Path, har: object) -> Path:
    file = folder / "site.har"
    file.write_text(json.dumps(har))
    return file


def test_every_recording_has_an_outcome() -> None:
    assert {file.name for file in HARS.iterdir()} == PAGES.keys() | REFUSED.keys()


@pytest.mark.parametrize("anew", [False, True], ids=["as recorded", "synthesised"])
@pytest.mark.parametrize("name", PAGES)
def test_a_recording_becomes_a_page_with_its_requests(tmp_path: Path, name: str, anew: bool) -> None:
    _done, page = made(tmp_path, name, anew=anew)
    host, keys = PAGES[name]
    assert page.host == host
    by_number = sorted(page.resources, key=lambda resource: int(resource.source.partition(".")[0]))
    assert [resource.key for resource in by_number] == keys
    built = pages.build(pages.load_pages(tmp_path / "sites"), tmp_path / "built")["page"]
    assert all(resource.file.stat().st_size == resource.wire_bytes for resource in built.resources)


@pytest.mark.parametrize("name", REFUSED)
def test_no_recording_of_a_page_is_refused_with_the_reason(tmp_path: Path, name: str) -> None:
    with pytest.raises(PageError, match=re.escape(REFUSED[name])) as error:
        from_har(HARS / name, tmp_path / "page")
    assert error.value.where.startswith(str(HARS / name))
    assert error.value.next_step
    assert not list(tmp_path.iterdir())


def test_hints_that_are_missing_change_nothing(tmp_path: Path) -> None:
    whole = {"time_null.har", "pages_null.har", "headers_null.har", "no_pagetimings.har", "init_string.har"}
    bodies = set()
    for name in whole:
        made(tmp_path / name, name)
        page = tmp_path / name / "sites" / "page"
        bodies.add((page / "0.html").read_bytes() + (page / "1.js").read_bytes())
    assert len(bodies) == 1


def test_one_page_of_several_is_chosen_and_the_others_are_reported(tmp_path: Path) -> None:
    for name in ("two_pages.har", "pages_swapped.har"):
        first, page = made(tmp_path / name / "1", name)
        assert page.host == "www.syn.test"
        assert first.others == ("2 is https://www.other.test/ (2 requests)",)
        _second, page = made(tmp_path / name / "2", name, page=2)
        assert page.host == "www.other.test"
        with pytest.raises(PageError, match="has 2 pages with a document, not a page 3") as error:
            made(tmp_path / name / "3", name, page=3)
        assert "1 is https://www.syn.test/" in error.value.next_step
    done, _page = made(tmp_path / "placeholder", "placeholder_onload.har")
    assert done.left_out == {"pages without a document": 1}
    _done, page = made(tmp_path / "login", "two_docs_login.har", page=2)
    assert [resource.key for resource in page.resources] == ["/", "/a.js"]


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        ("bodysize_on_cached.har", [123, 40000]),
        ("memory_cache.har", [123, 40000]),
        ("truncated_text.har", [189, 30000]),
        ("latin1.har", [5034]),
        ("sjis_b64.har", [6067, 400]),
        ("gz_tiny.har", [500, 93]),
        ("long_query.har", [30124, 400]),
        ("empty_js.har", [123, 1]),
    ],
)
def test_bodies_have_the_recorded_weight(tmp_path: Path, name: str, weights: list[int]) -> None:
    _done, page = made(tmp_path, name)
    assert [resource.wire_bytes for resource in page.resources] == weights


@pytest.mark.parametrize("name", ["latin1.har", "sjis_b64.har"])
def test_other_charsets_keep_their_bytes(tmp_path: Path, name: str) -> None:
    made(tmp_path, name)
    content = json.loads(contents(name))["log"]["entries"][0]["response"]["content"]
    charset = content["mimeType"].partition("charset=")[2]
    body = (tmp_path / "sites" / "page" / "0.html").read_bytes()
    assert body.decode(charset)
    assert len(body) == content["size"]


def test_what_differs_is_reported(tmp_path: Path) -> None:
    for name, note in (
        ("bodysize_on_cached.har", "2 of 2 responses recorded with a warm cache"),
        ("truncated_text.har", "1 cut by the recorder"),
        ("localhost.har", "localhost is served as localhost.test"),
        ("ports.har", "ports 3000, 8080 of dev.syn.test served on port 443"),
        ("sri_rewritten.har", "1 'integrity' attributes removed"),
        ("sw.har", "registers a service worker"),
        ("userinfo.har", "2 URLs with a user name"),
    ):
        done, _page = made(tmp_path / name, name)
        assert note in str(done), name


@pytest.mark.parametrize(
    ("sizes", "size"),
    [
        ({"bodySize": -1, "_transferSize": 1887}, None),  # Chromium's developer tools, HTTP/2
        ({"bodySize": 1887, "headersSize": 0, "_transferSize": 1887}, None),  # Playwright
        ({"bodySize": 1974, "headersSize": 208}, 1766),  # Firefox: the size is that on the wire, too
    ],
)
def test_header_and_body_counted_together_weigh_the_content_length(
    tmp_path: Path, sizes: dict[str, int], size: int | None
) -> None:
    text = "<!DOCTYPE html>" + "".join(f"<p>Paragraph {n} of {n * n} words.</p>" for n in range(150))
    headers = [{"name": "content-encoding", "value": "gzip"}, {"name": "content-length", "value": "1766"}]
    content = {"size": size or len(text), "mimeType": "text/html", "text": text}
    entry = {
        "startedDateTime": "2026-01-01T00:00:00Z",
        "request": {"method": "GET", "url": "https://www.syn.test/"},
        "response": {"status": 200, "headers": headers, "content": content, **sizes},
    }
    done = from_har(written(tmp_path, {"log": {"entries": [entry]}}), tmp_path / "sites" / "page")
    (resource,) = pages.load_pages(tmp_path / "sites")["page"].resources
    assert (resource.wire_bytes, resource.encoding) == (1766, "gzip")
    assert not done.synthesised


def test_an_unlabelled_compressed_text_is_compressed_to_its_weight(tmp_path: Path) -> None:
    text = "<!DOCTYPE html>" + "".join(f"<p>Paragraph {n} of {n * n} words.</p>" for n in range(150))
    content = {"size": len(text), "mimeType": "text/html", "text": text}
    entry = {
        "startedDateTime": "2026-01-01T00:00:00Z",
        "request": {"method": "GET", "url": "https://www.syn.test/"},
        "response": {"status": 200, "bodySize": 1766, "content": content},
    }
    done = from_har(written(tmp_path, {"log": {"entries": [entry]}}), tmp_path / "sites" / "page")
    (resource,) = pages.load_pages(tmp_path / "sites")["page"].resources
    assert (resource.wire_bytes, resource.encoding) == (1766, "gzip")
    assert not done.synthesised


def test_a_load_of_too_many_hosts_is_refused(tmp_path: Path) -> None:
    har = json.loads(contents("chain_hosts.har"))
    picture = har["log"]["entries"][1]
    for number in range(301):
        url = f"https://h{number}.syn.test/a.js"
        har["log"]["entries"].append(picture | {"request": picture["request"] | {"url": url}})
    with pytest.raises(PageError, match="has 304 host names; the testbed has addresses for 200"):
        from_har(written(tmp_path, har), tmp_path / "page")


def test_redirections_of_a_resource_lead_to_it(tmp_path: Path) -> None:
    har = json.loads(contents("pct_one.har"))
    document, picture = har["log"]["entries"]
    redirected = json.loads(json.dumps(picture))
    redirected["request"]["url"] = "https://www.syn.test/old.png"
    redirected["response"] |= {"status": 302, "headers": [{"name": "Location", "value": "/a%20b.png"}]}
    content = document["response"]["content"]
    content["text"] = content["text"].replace("/a%20b.png", "/old.png")
    content["size"] = document["response"]["bodySize"] = len(content["text"])
    har["log"]["entries"].insert(1, redirected)
    from_har(written(tmp_path, har), tmp_path / "page")
    assert b'src="/a%20b.png"' in (tmp_path / "page" / "0.html").read_bytes()


def test_recorded_code_requests_nothing_that_the_load_did_not(tmp_path: Path) -> None:
    har = json.loads(contents("pct_one.har"))
    text = (
        '<!DOCTYPE html><link rel="preconnect" href="https://www.syn.test"><link rel=dns-prefetch href="//other.test">'
        '<link rel="icon" href="/i.ico"><link rel="canonical" href="/c"><a href="/d"><script src=e.js></script>'
        '<img srcset="/small.png 1x, /a%20b.png 2x"><img data-src="/lazy.png" src="#"><img src="/a%20b.png">'
    )
    content = har["log"]["entries"][0]["response"]["content"]
    content["text"], content["size"] = text, len(text)
    har["log"]["entries"][0]["response"]["bodySize"] = len(text)
    from_har(written(tmp_path, har), tmp_path / "page")
    body = (tmp_path / "page" / "0.html").read_text().partition("<!-- ")[0].rstrip()
    assert body == (
        '<!DOCTYPE html><link rel="preconnect" href="/"><link rel=dns-prefetch href="data:,">'
        '<link rel="icon" href="data:,"><link rel="canonical" href="/c"><a href="/d"><script src="data:,"></script>'
        '<img srcset="/a%20b.png 1x, /a%20b.png 2x"><img data-src="/lazy.png" src="#"><img src="/a%20b.png">'
    )


def with_pictures(text: str, *paths: str) -> dict[str, Any]:
    """A recording of a document and of pictures of its host."""
    har: dict[str, Any] = json.loads(contents("pct_one.har"))
    document, picture = har["log"]["entries"]
    document["response"]["content"] |= {"text": text, "size": len(text)}
    document["response"]["bodySize"] = len(text)
    har["log"]["entries"] = [document]
    for path in paths:
        request = picture["request"] | {"url": f"https://www.syn.test{path}"}
        har["log"]["entries"].append(picture | {"request": request})
    return har


def test_icons_and_app_manifests_are_left_out_unless_the_page_uses_them(tmp_path: Path) -> None:
    text = (
        '<!DOCTYPE html><link rel="shortcut icon" href="/i.ico"><link href=/t.png rel=apple-touch-icon>'
        '<link rel=icon href="/logo.png"><img src="/logo.png"><link rel="manifest" href="/app.json">'
    )
    har = with_pictures(text, "/i.ico", "/logo.png", "/t.png", "/favicon.ico", "/app.json")
    done = from_har(written(tmp_path, har), tmp_path / "sites" / "page")
    page = pages.load_pages(tmp_path / "sites")["page"]
    assert [resource.key for resource in page.resources] == ["/", "/logo.png"]
    assert done.left_out == {"icons and app manifests": 4}
    body = (tmp_path / "sites" / "page" / "0.html").read_text()
    assert '<link rel="shortcut icon" href="data:,"><link href="data:," rel=apple-touch-icon>' in body
    assert '<link rel=icon href="data:,"><img src="/logo.png">' in body


def test_bodies_in_files_of_their_own_are_read(tmp_path: Path) -> None:
    """As Playwright records with `recordHar: {content: 'attach'}`: in a ZIP, or in the folder of the HAR."""
    har = json.loads(contents("time_null.har"))
    texts = {}
    for number, entry in enumerate(har["log"]["entries"]):
        content = entry["response"]["content"]
        texts[f"{number}.bin"] = content.pop("text").encode()
        content["_file"] = f"{number}.bin"
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, text in texts.items():
        (folder / name).write_bytes(text)
    with zipfile.ZipFile(tmp_path / "site.zip", "w") as archive:
        archive.writestr("har.har", json.dumps(har))
        for name, text in texts.items():
            archive.writestr(name, text)
    from_har(HARS / "time_null.har", tmp_path / "whole")
    for number, file in enumerate((written(folder, har), tmp_path / "site.zip")):
        done = from_har(file, tmp_path / f"page-{number}")
        assert not done.synthesised
        for name in ("0.html", "1.js"):
            assert (tmp_path / f"page-{number}" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.parametrize("name", ["../0.bin", "/etc/hostname", "", ".", "link.bin", "none.bin"])
def test_no_other_file_is_read_for_a_recording(tmp_path: Path, name: str) -> None:
    (tmp_path / "0.bin").write_text("<p>outside")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "link.bin").symlink_to(tmp_path / "0.bin")
    har = json.loads(contents("time_null.har"))
    content = har["log"]["entries"][0]["response"]["content"]
    del content["text"]
    content["_file"] = name
    assert from_har(written(folder, har), tmp_path / "page").synthesised


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({}, "is no ZIP that can be read"),
        ({"a.txt": ""}, "is a ZIP with 0 HAR files"),
        ({"a.har": "", "b.har": ""}, "is a ZIP with 2 HAR files"),
        ({"a.har": "{"}, "is not JSON"),
    ],
)
def test_a_zip_without_one_recording_is_refused(tmp_path: Path, files: dict[str, str], reason: str) -> None:
    file = tmp_path / "site.zip"
    with zipfile.ZipFile(file, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    if not files:
        file.write_bytes(b"PK\x03\x04 and noise")
    with pytest.raises(PageError, match=reason):
        from_har(file, tmp_path / "page")


@pytest.mark.parametrize(
    ("url", "keys"),
    [
        ("https://www.syn.test//a.js", ["/", "//a.js"]),
        ("https:\\\\www.syn.test\\a.js", ["/", "/a.js"]),
        ("https://www.syn.test/a.js?x=1&y=\\", ["/", "/a.js"]),
        ("https://me:p%40ss@www.syn.test/a.js", ["/", "/a.js"]),
        ("https://WWW.SYN.TEST.:443/a.js#top", ["/", "/a.js"]),
    ],
)
def test_forms_of_urls_are_those_of_browsers(tmp_path: Path, url: str, keys: list[str]) -> None:
    har = with_pictures("<!DOCTYPE html><script src='x'></script>")
    document = har["log"]["entries"][0]
    text = f'<!DOCTYPE html><script src="{html.escape(url)}"></script>'
    document["response"]["content"] |= {"text": text, "size": len(text)}
    content = {"mimeType": "text/javascript", "text": "1", "size": 1}
    har["log"]["entries"].append(
        {
            "startedDateTime": document["startedDateTime"],
            "request": {"url": url},
            "response": {"status": 200, "content": content},
        }
    )
    from_har(written(tmp_path, har), tmp_path / "sites" / "page")
    page = pages.load_pages(tmp_path / "sites")["page"]
    assert [resource.key for resource in page.resources] == keys
    body = (tmp_path / "sites" / "page" / "0.html").read_text()
    named = re.search(r'src="([^"]*)"', body)
    assert named is not None
    assert urljoin("https://www.syn.test/", named[1]) == f"https://www.syn.test{keys[1]}"


def test_a_document_of_unknown_type_is_recognised_by_its_body(tmp_path: Path) -> None:
    """Chromium calls it x-unknown."""
    har = with_pictures("<!DOCTYPE html><p>Hello")
    har["log"]["entries"][0]["response"]["content"]["mimeType"] = "x-unknown"
    assert from_har(written(tmp_path, har), tmp_path / "page").resources == 1


def test_a_recorded_error_page_is_named_by_its_status(tmp_path: Path) -> None:
    har = with_pictures("<!DOCTYPE html><p>Gone")
    har["log"]["entries"][0]["response"]["status"] = 404
    with pytest.raises(PageError, match=r"its requests are: 1 that failed \(status 404\)"):
        from_har(written(tmp_path, har), tmp_path / "page")


@pytest.mark.parametrize(
    ("path", "normal"),
    [
        ("/a%20b.png", "/a%20b.png"),
        ("/a b'c.png", "/a%20b%27c.png"),
        ("/%c3%BC.png", "/%C3%BC.png"),
        ("/ü.png", "/%C3%BC.png"),
        ("/x%2fy", "/x%2Fy"),
        ("/%7Euser/%41", "/~user/A"),
        ("/a%3Ab:c@d", "/a%3Ab:c@d"),
        ("/50%", "/50%25"),
        ("/%zz", "/%25zz"),
        ("/a/../b/./c", "/b/c"),
        ("/a/%2e%2e/..", "/"),
        ("", "/"),
    ],
)
def test_paths_have_one_form(path: str, normal: str) -> None:
    """RFC 3986, section 6.2.2: as the server has it (`TestPathsHaveOneForm`), and without dot segments."""
    assert normal_path(path) == normal
    assert normal_path(normal) == normal


@given(st.sampled_from(sorted(PAGES)), st.integers(0, 2**32), st.integers(1, 8), st.booleans())
@settings(max_examples=EXAMPLES)
def test_damaged_recordings_become_pages_or_errors(name: str, seed: int, changes: int, anew: bool) -> None:
    try_damaged(name, seed, changes, anew)


def try_damaged(name: str, seed: int, changes: int, anew: bool) -> None:
    """A damaged recording becomes a page that can be built, or an error of this project; nothing else."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "site.har").write_bytes(damaged(name, seed, changes))
        error = None
        try:
            from_har(folder / "site.har", folder / "sites" / "page", synthesise=anew)
            pages.build(pages.load_pages(folder / "sites"), folder / "built")
        except CrosslayerError as fault:
            error = fault
        kept = (folder / "sites" / "page").exists()
        assert kept is (error is None)
        assert error is None or error.next_step


@given(st.sampled_from(sorted(PAGES)), st.data())
@settings(max_examples=EXAMPLES)
def test_files_that_were_cut_are_refused(name: str, data: st.DataObject) -> None:
    content = (HARS / name).read_bytes()
    with tempfile.TemporaryDirectory() as temporary:
        file = Path(temporary, "cut.har")
        file.write_bytes(content[: data.draw(st.integers(0, len(content) - 3))])
        with pytest.raises(PageError):
            from_har(file, Path(temporary, "page"))
