"""Page specifications and the builder: exact sizes, the same bytes every time, one clear error per fault."""

from __future__ import annotations

import gzip
import hashlib
import json
import struct
import textwrap
import zlib
from pathlib import Path

import pytest

from crosslayer import pages
from crosslayer.pages import PageError, _make, _wire
from crosslayer.places import PlaceError

SITES = Path(__file__).resolve().parents[2] / "sites"

PUBLISHED = {
    "example.org": {"/": 650},
    "wikipedia.org": {
        "/": 18252,
        "/images/globe.png": 15857,
        "/images/reader.png": 2039,
        "/images/sprite.svg": 17229,
        "/script.js": 614,
    },
}

# Lookups of the pages the paper's authors loaded in a pilot, by the page that stands for each.
WEB_LOOKUPS = {
    "login-form": 1,  # instagram.com
    "encyclopedia": 1,  # wikipedia.org
    "social-network": 3,  # facebook.com
    "shop": 3,  # amazon.com
    "professional-network": 4,  # linkedin.com
    "device-maker": 4,  # apple.com
    "search-engine": 5,  # google.com
    "news-portal": 6,  # baidu.com
    "video-portal": 7,  # youtube.com
    "software-maker": 8,  # microsoft.com
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pages.BuiltPage]:
    return pages.build(SITES, tmp_path_factory.mktemp("sites"))


def tree(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file()}


def plain(resource: pages.BuiltResource) -> bytes:
    body = resource.file.read_bytes()
    return gzip.decompress(body) if resource.content_encoding == "gzip" else body


# The pages of the study


def test_pages_of_the_study_are_specified() -> None:
    specs = pages.load_pages(SITES)
    assert len(specs) == 14
    assert [page.name for page in pages.of_study(specs, "coalescing")] == [
        "example.org",
        "wikipedia.org",
        "instagram.com",
    ]
    assert all(page.lookups == 1 for page in pages.of_study(specs, "coalescing"))
    assert specs["warmup"].study == ""
    assert specs["example.org"].host == "www.example.org"
    assert specs["warmup"].host == "www.warmup.example"
    assert specs["instagram.com"].hosts == (
        "www.instagram.com",
        "alias-1.instagram.com",
        "alias-2.instagram.com",
    )


def test_web_pages_rise_in_lookups_and_weight() -> None:
    web = pages.of_study(pages.load_pages(SITES), "web")
    assert {page.name: page.lookups for page in web} == WEB_LOOKUPS
    assert [page.name for page in web] == list(WEB_LOOKUPS)
    weights = [page.wire_bytes for page in web]
    assert weights == sorted(set(weights))
    for page in web:
        assert {r.origin for r in page.resources} == {"", *page.origins}
        assert all(host.endswith(".example") for host in page.hosts)
    # The last link of a chain is farther from the document on the pages with more lookups.
    longest = [max(depth(page, resource) for resource in page.resources) for page in web]
    assert longest == [2, 2, 2, 2, 3, 3, 3, 3, 4, 5]


def depth(page: pages.PageSpec, resource: pages.ResourceSpec) -> int:
    """Resources that must have come before this one."""
    by_key = {r.key: r for r in page.resources}
    return 1 + depth(page, by_key[resource.after]) if resource.after else 0


def test_table_of_the_readme_is_that_of_the_specifications() -> None:
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in (SITES / "README.md").read_text().splitlines()
        if line.startswith("| `")
    ]
    assert [(row[0], row[2], row[3], row[4]) for row in rows] == [
        (f"`{page.name}`", str(page.lookups), str(len(page.resources)), f"{page.wire_bytes:,}")
        for page in pages.of_study(pages.load_pages(SITES), "web")
    ]


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_sizes_on_the_wire(built: dict[str, pages.BuiltPage], name: str) -> None:
    assert {r.path: r.file.stat().st_size for r in built[name].resources} == PUBLISHED[name]
    assert built[name].spec.wire_bytes == sum(PUBLISHED[name].values())


def test_example_document_has_the_published_length(built: dict[str, pages.BuiltPage]) -> None:
    (document,) = built["example.org"].resources
    assert len(plain(document)) == 1256


def test_wikipedia_script_is_sent_without_compression(built: dict[str, pages.BuiltPage]) -> None:
    encodings = {r.path: r.content_encoding for r in built["wikipedia.org"].resources}
    assert encodings["/script.js"] == ""
    assert encodings["/"] == encodings["/images/sprite.svg"] == "gzip"


def test_instagram_has_the_published_structure(built: dict[str, pages.BuiltPage]) -> None:
    page = built["instagram.com"]
    types = [r.content_type.partition(";")[0] for r in page.resources]
    assert (types.count("text/javascript"), types.count("text/css"), types.count("text/html")) == (7, 2, 1)
    assert sum(r.file.stat().st_size for r in page.resources) == page.spec.wire_bytes == 1_300_000
    pictures = [r for r in page.resources if r.content_type == "image/png"]
    assert pictures
    assert {r.after for r in pictures} == {"/scripts/app.js"}
    # As compressible as minified code is: a body of one repeated line would weigh the same on the wire.
    for script in page.resources:
        if script.content_type.startswith("text/javascript") and script.wire_bytes > 10_000:
            assert 2.5 < len(plain(script)) / script.wire_bytes < 4.5


def test_react_is_the_vendored_release(built: dict[str, pages.BuiltPage]) -> None:
    react = next(r for r in built["instagram.com"].resources if r.path == "/scripts/react-dom.production.min.js")
    vendored = SITES / "instagram.com/vendor/react-dom.production.min.js"
    assert plain(react) == vendored.read_bytes()
    assert b"18.3.1" in plain(react)
    assert "MIT License" in (vendored.parent / "LICENSE").read_text()


def test_manifest_is_what_the_server_reads(built: dict[str, pages.BuiltPage]) -> None:
    for page in built.values():
        manifest = json.loads((page.folder / "manifest.json").read_text())
        assert manifest["page"] == page.spec.name
        assert manifest["host"] == page.spec.host
        assert manifest["aliases"] == list(page.spec.aliases)
        assert manifest["resources"][0]["path"] == "/"
        for entry, resource in zip(manifest["resources"], page.resources, strict=True):
            assert (page.folder / entry["file"]).stat().st_size == entry["wire_bytes"] == resource.wire_bytes
            assert entry["content_encoding"] in ("gzip", "")


def test_no_document_lets_the_browser_ask_for_a_favicon(built: dict[str, pages.BuiltPage]) -> None:
    for page in built.values():
        assert b'<link rel="icon" href="data:,">' in plain(page.resources[0])


def test_pictures_are_whole_png_files(built: dict[str, pages.BuiltPage]) -> None:
    count = 0
    for page in built.values():
        for resource in page.resources:
            if resource.content_type != "image/png":
                continue
            count += 1
            body, at, chunks = resource.file.read_bytes(), 8, {}
            assert body.startswith(b"\x89PNG\r\n\x1a\n")
            while at < len(body):
                (length,) = struct.unpack_from(">I", body, at)
                kind, data = body[at + 4 : at + 8], body[at + 8 : at + 8 + length]
                assert struct.unpack_from(">I", body, at + 8 + length)[0] == zlib.crc32(kind + data)
                chunks[kind] = data
                at += 12 + length
            assert at == len(body)
            assert list(chunks) == [b"IHDR", b"paDd", b"IDAT", b"IEND"]
            width, height, _, colour = struct.unpack_from(">IIBB", chunks[b"IHDR"])
            assert len(zlib.decompress(chunks[b"IDAT"])) == height * (1 + width * {2: 3, 6: 4}[colour])
    assert count == 97


# Determinism


def test_two_builds_are_equal(built: dict[str, pages.BuiltPage], tmp_path: Path) -> None:
    pages.build(SITES, tmp_path)
    first = built["example.org"].folder.parent
    assert tree(first) == tree(tmp_path)


def test_sizes_do_not_depend_on_the_compressor(
    built: dict[str, pages.BuiltPage], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class OtherZlib:
        """Another build of zlib: the same format, slightly larger output."""

        DEFLATED = zlib.DEFLATED
        crc32 = staticmethod(zlib.crc32)

        @staticmethod
        def compressobj(_level: int, method: int, wbits: int) -> zlib._Compress:
            return zlib.compressobj(7, method, wbits)

    monkeypatch.setattr(_wire, "zlib", OtherZlib)
    other = pages.build(SITES, tmp_path)
    changed = 0
    for name, page in built.items():
        for mine, theirs in zip(page.resources, other[name].resources, strict=True):
            assert theirs.file.stat().st_size == mine.wire_bytes
            assert plain(theirs) == plain(mine)
            changed += theirs.file.read_bytes() != mine.file.read_bytes()
    assert changed


@pytest.mark.parametrize(
    ("table", "digest"),
    [
        (
            {"kind": "modules", "name": "m", "count": 20, "seed": 1},
            "42a71098eae9bfa2612b70e9e7da3fc6f3a70d6d3cf25b70fdd009b6119e1020",
        ),
        (
            {"kind": "messages", "name": "m", "count": 50, "seed": 1},
            "cca6454e20e6eceb5b0ca5d1a0dc9698fa8acb4efe835a2a4d0d2b4f865b3602",
        ),
        (
            {"kind": "styles", "count": 200, "seed": 1},
            "fd28d0131b4db80d64f488be6a977a0d85934611fb060f85488709d1736a8651",
        ),
    ],
)
def test_made_code_is_the_same_on_every_machine(table: dict[str, str | int], digest: str) -> None:
    assert hashlib.sha256(_make.make(table)).hexdigest() == digest


def test_made_fonts_have_the_checksums_and_glyphs_they_state() -> None:
    file = _make.make({"kind": "font", "name": "Test", "stroke": 90})
    assert sum(struct.unpack(f">{len(file) // 4}I", file)) % (1 << 32) == 0xB1B0AFBA  # OpenType, section "head"
    (count,) = struct.unpack_from(">4xH", file)
    tables = {}
    for number in range(count):
        tag, checksum, offset, length = struct.unpack_from(">4sIII", file, 12 + 16 * number)
        tables[tag] = file[offset : offset + length]
        if tag != b"head":
            padded = tables[tag] + bytes(-length % 4)
            assert sum(struct.unpack(f">{len(padded) // 4}I", padded)) % (1 << 32) == checksum, tag
    assert list(tables) == sorted(tables)
    (glyphs,) = struct.unpack_from(">4xH", tables[b"maxp"])
    ends = struct.unpack(f">{glyphs + 1}I", tables[b"loca"])
    assert ends[-1] == len(tables[b"glyf"])
    assert list(ends) == sorted(ends)
    assert len(tables[b"hmtx"]) == 4 * glyphs
    # Format 4: each of the glyphs but .notdef belongs to one character.
    (doubled,) = struct.unpack_from(">18xH", tables[b"cmap"])
    codes = struct.unpack_from(f">{doubled // 2}H", tables[b"cmap"], 26)
    shifts = struct.unpack_from(f">{doubled // 2}H", tables[b"cmap"], 28 + 2 * doubled)
    found = {chr(code): (code + shift) % 65536 for code, shift in zip(codes[:-1], shifts[:-1], strict=True)}
    assert sorted(found.values()) == list(range(1, glyphs))
    assert set("Hamburgefonstiv 0123456789.,!?’–") <= set(found)
    assert ends[found[" "]] == ends[found[" "] + 1]  # the space is empty
    assert ends[found["g"]] < ends[found["g"] + 1]


def test_made_fonts_depend_on_their_stroke() -> None:
    thin, bold = (_make.make({"kind": "font", "name": "Test", "stroke": stroke}) for stroke in (70, 130))
    assert thin != bold
    assert thin == _make.make({"kind": "font", "name": "Test", "stroke": 70})


def test_made_pictures_depend_on_their_seed() -> None:
    for kind in ("scene", "landscape", "portrait", "product"):

        def picture(seed: int, kind: str = kind) -> bytes:
            return _make.make({"kind": kind, "width": 40, "height": 60, "seed": seed, "grain": 2})

        assert picture(1) == picture(1)
        assert picture(1) != picture(5)


# Building only what changed


DOCUMENT = "<!DOCTYPE html><title>t</title><p>" + " ".join(f"word{n * n}" for n in range(60))


def write_page(sites: Path, name: str, text: str, **files: str) -> Path:
    folder = sites / name
    folder.mkdir(parents=True)
    (folder / "page.toml").write_text(text)
    (folder / "index.html").write_text(DOCUMENT)
    for file, content in files.items():
        (folder / file.replace("_", ".")).write_text(content)
    return folder


def page_text(host: str = "www.one.test", extra: str = "", wire_bytes: int = 250) -> str:
    return (
        f'title = "t"\nhost = "{host}"\n{extra}\n'
        f'[[resource]]\npath = "/"\nsource = "index.html"\nwire_bytes = {wire_bytes}\n'
    )


def stamp(page: pages.BuiltPage) -> tuple[int, int]:
    status = page.folder.stat()
    return status.st_ino, status.st_mtime_ns


def test_unchanged_page_is_left_alone_and_changed_page_is_built_again(tmp_path: Path) -> None:
    sites, out = tmp_path / "sites", tmp_path / "out"
    one = write_page(sites, "one", page_text())
    write_page(sites, "two", page_text("www.two.test"))
    first = pages.build(sites, out)
    stamps = {name: stamp(page) for name, page in first.items()}
    assert pages.build(sites, out) == first
    assert {name: stamp(page) for name, page in first.items()} == stamps

    (one / "index.html").write_text(DOCUMENT.replace("word1 ", "ward1 "))
    again = pages.build(sites, out)
    assert b"ward1" in plain(again["one"].resources[0])
    assert stamp(again["one"]) != stamps["one"]
    assert stamp(again["two"]) == stamps["two"]


def test_damaged_body_is_built_again(tmp_path: Path) -> None:
    write_page(tmp_path / "sites", "one", page_text())
    (resource,) = pages.build(tmp_path / "sites", tmp_path / "out")["one"].resources
    whole = resource.file.read_bytes()
    resource.file.write_bytes(whole[:-1])
    pages.build(tmp_path / "sites", tmp_path / "out")
    assert resource.file.read_bytes() == whole


def test_page_that_is_gone_is_removed_and_nothing_else(tmp_path: Path) -> None:
    sites, out = tmp_path / "sites", tmp_path / "out"
    one = write_page(sites, "one", page_text())
    write_page(sites, "two", page_text("www.two.test"))
    pages.build(sites, out)
    (out / "mine").mkdir()
    (out / "mine" / "manifest.json").write_text("{}")
    one.rename(tmp_path / "one")
    pages.build(sites, out)
    assert sorted(entry.name for entry in out.iterdir() if not entry.name.startswith(".")) == ["mine", "two"]


def test_foreign_folder_is_never_overwritten(tmp_path: Path) -> None:
    sites = tmp_path / "sites"
    write_page(sites, "one", page_text())
    before = tree(sites)
    with pytest.raises(PageError, match="not a page built by crosslayer"):
        pages.build(sites, sites)
    assert {k: v for k, v in tree(sites).items() if k != ".lock"} == before


def test_output_that_cannot_be_written(tmp_path: Path) -> None:
    write_page(tmp_path / "sites", "one", page_text())
    (tmp_path / "file").write_text("")
    with pytest.raises(PageError, match=r"file.*cannot build the pages .*choose an output folder"):
        pages.build(tmp_path / "sites", tmp_path / "file" / "out")


# Pages of several origins


def test_resources_on_other_origins(tmp_path: Path) -> None:
    text = page_text(
        extra='origins = ["cdn.one.test"]\n'
        '[[resource]]\npath = "/late.js"\norigin = "cdn.one.test"\nsource = "late.js"\n'
        'after = "https://cdn.one.test/early.js"\nwire_bytes = 5\nencoding = "identity"\n'
        '[[resource]]\npath = "/early.js"\norigin = "cdn.one.test"\nsource = "early.js"\n'
        'wire_bytes = 6\nencoding = "identity"\n'
        '[[resource]]\npath = "/early.js"\nsource = "early.js"\nwire_bytes = 6\nencoding = "identity"'
    )
    write_page(tmp_path / "sites", "one", text, late_js="late\n", early_js="early\n")
    page = pages.build(tmp_path / "sites", tmp_path / "out")["one"]
    assert page.spec.hosts == ("www.one.test", "cdn.one.test")
    assert [(r.host, r.path, r.after) for r in page.resources] == [
        ("", "/", ""),
        ("cdn.one.test", "/early.js", "/"),
        ("", "/early.js", "/"),
        ("cdn.one.test", "/late.js", "https://cdn.one.test/early.js"),
    ]
    manifest = json.loads((page.folder / "manifest.json").read_text())
    assert manifest["origins"] == ["cdn.one.test"]
    assert [entry.get("host") for entry in manifest["resources"]] == [None, "cdn.one.test", None, "cdn.one.test"]


def test_the_example_of_the_readme(tmp_path: Path) -> None:
    example = (SITES / "README.md").read_text().partition("```toml\n")[2].partition("```")[0]
    write_page(tmp_path, "shop", textwrap.dedent("   " + example.lstrip()))
    shop = pages.load_pages(tmp_path)["shop"]
    assert shop.hosts == (
        "www.shop.example", "alias-1.shop.example", "alias-2.shop.example", "cdn.shop.example",
    )  # fmt: skip
    assert [r.path for r in shop.resources] == ["/", "/app.js", "/picture.png"]
    for made in shop.resources[1:]:
        text = (
            f'title = "t"\nhost = "{made.path[1:4]}.test"\n[[resource]]\npath = "/"\nwire_bytes = {made.wire_bytes}\n'
        )
        text += f'content_type = "{made.content_type}"\nmake = {json.dumps(dict(made.make))}\n'.replace('":', '" =')
        write_page(tmp_path / "alone", made.path[1:4], text)
    pages.build(tmp_path / "alone", tmp_path / "out")


# Faults: each names the file, the key and what to do


def resource(**keys: object) -> str:
    values = {"path": '"/x.js"', "source": '"index.html"', "content_type": '"text/javascript"', "wire_bytes": "250"}
    values |= {key: str(value) for key, value in keys.items()}
    return "[[resource]]\n" + "".join(f"{key} = {value}\n" for key, value in values.items() if value != "None")


def making(table: str) -> str:
    return resource(source=None, make=table)


BAD_SPECS = {
    "not TOML": ("title = ]", r"page\.toml: cannot be read as TOML.*line 1.*Correct the file"),
    "unknown key": (page_text(extra='hosts = "x"'), r"page\.toml: unknown key 'hosts'. Did you mean 'host'\?"),
    "far unknown key": (page_text(extra="zzz = 1"), r"unknown key 'zzz'. Known keys: title, study, host, aliases"),
    "missing key": ('title = "t"\n', r"key 'host' is missing"),
    "wrong type": (page_text(extra='aliases = "a.test"'), r"'aliases' is 'a\.test'. Write a list"),
    "unknown study": (page_text(extra='study = "net"'), r"'study' is 'net'. Known studies: coalescing, web"),
    "idle origin": (
        page_text(extra='origins = ["cdn.test"]'),
        r"'origins' has 'cdn\.test', from which no resource comes.*Remove it",
    ),
    "wrong host": (page_text(host="WWW.Example"), r"'host' has 'WWW\.Example'. Write host names in lower case"),
    "wrong alias": (page_text(extra="aliases = [1]"), r"'aliases' has 1"),
    "alias twice": (page_text(extra='aliases = ["www.one.test"]'), r"stands twice"),
    "no document": ('title = "t"\nhost = "a.test"\n' + resource(), r"no resource has the path '/'"),
    "resource no list": ('title = "t"\nhost = "a.test"\nresource = [1]', r"'resource' must be a list of tables"),
    "unknown resource key": (page_text() + resource(wire_byte=3), r"resource /x\.js: unknown key 'wire_byte'. Did you"),
    "bool for number": (page_text() + resource(wire_bytes="true"), r"'wire_bytes' is True. Write a whole number"),
    "text for number": (page_text() + resource(wire_bytes='"9"'), r"'wire_bytes' is '9'. Write a whole number"),
    "size zero": (page_text() + resource(wire_bytes=0), r"'wire_bytes' is 0. Write a size"),
    "plain size zero": (page_text() + resource(plain_bytes=-1), r"'plain_bytes' is -1"),
    "path without slash": (page_text() + resource(path='"x.js"'), r"'path' is 'x\.js'.*starting with /"),
    "path twice": (page_text() + resource() + resource(), r"two resources are /x\.js"),
    "no body": (page_text() + resource(source=None), r"neither 'source' nor 'make'"),
    "two bodies": (page_text() + resource(make='{ kind = "phone" }'), r"both 'source' and 'make'"),
    "missing file": (page_text() + resource(source='"no.js"'), r"names the missing file 'no\.js'. Add it"),
    "file outside": (page_text() + resource(source='"../x"'), r"'\.\./x' leaves the page's folder"),
    "unknown origin": (page_text() + resource(origin='"cdn.test"'), r"unknown origin 'cdn\.test'.*Add .*'origins'"),
    "unknown after": (page_text() + resource(after='"/y.js"'), r"'after' names the unknown resource '/y\.js'. Did you"),
    "document after": (
        page_text().replace("wire_bytes", 'after = "/"\nwire_bytes'),
        r"resource /: the document has an 'after'",
    ),
    "cycle": (
        page_text() + resource(after='"/y.js"') + resource(path='"/y.js"', after='"/x.js"'),
        r"/x\.js, /y\.js wait for each other.*Break the cycle",
    ),
    "after itself": (page_text() + resource(after='"/x.js"'), r"/x\.js wait for each other"),
    "unknown type": (
        page_text()
        + making('{ kind = "phone", width = 9, height = 9 }')
        .replace('content_type = "text/javascript"\n', "")
        .replace("/x.js", "/x.xyz"),
        r"content type is not known.*'content_type'",
    ),
    "unknown encoding": (
        page_text() + resource(encoding='"br"'),
        r"'encoding' is 'br'. Write \"gzip\" or \"identity\"",
    ),
    "sha256 of no source": (
        page_text() + making('{ kind = "phone", width = 9, height = 9 }') + 'sha256 = "00"\n',
        r"'sha256' without 'source'",
    ),
    "broken sha256": (page_text() + resource(sha256='"00"'), r"'sha256' is not 64 lower-case hex digits"),
    "unknown maker": (page_text() + making('{ kind = "gif" }'), r"unknown kind 'gif'. Known kinds: globe, "),
    "no maker": (page_text() + making("{ width = 9 }"), r"'make' has no 'kind'"),
    "maker's key": (page_text() + making('{ kind = "phone", size = 9 }'), r"make \(phone\): unknown key 'size'"),
    "maker's missing key": (page_text() + making('{ kind = "phone", width = 9 }'), r"key 'height' is missing"),
    "maker's range": (
        page_text() + making('{ kind = "phone", width = 9, height = 1000000 }'),
        r"'height' is 1000000. Write 1 to",
    ),
}


@pytest.mark.parametrize(("text", "message"), BAD_SPECS.values(), ids=BAD_SPECS.keys())
def test_bad_specification_gives_its_error(tmp_path: Path, text: str, message: str) -> None:
    write_page(tmp_path, "one", text)
    with pytest.raises(PageError, match=message) as caught:
        pages.load_pages(tmp_path)
    assert str(tmp_path / "one" / "page.toml") in caught.value.where
    assert caught.value.next_step


def test_the_specification_the_faults_start_from_is_right(tmp_path: Path) -> None:
    write_page(tmp_path, "one", page_text() + resource() + resource(path='"/y.js"', after='"/x.js"'))
    assert [r.path for r in pages.load_pages(tmp_path)["one"].resources] == ["/", "/x.js", "/y.js"]
    pages.build(tmp_path, tmp_path.parent / "out")


def test_host_of_two_pages(tmp_path: Path) -> None:
    write_page(tmp_path, "one", page_text())
    write_page(tmp_path, "two", page_text())
    with pytest.raises(PageError, match=r"two/page\.toml: host name 'www\.one\.test' is already used by page one"):
        pages.load_pages(tmp_path)


def test_folder_without_specification(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    with pytest.raises(PageError, match=r"one: the page has no page\.toml"):
        pages.load_pages(tmp_path)


def test_folder_without_pages(tmp_path: Path) -> None:
    with pytest.raises(PageError, match="holds no page"):
        pages.load_pages(tmp_path)
    with pytest.raises(PageError, match="cannot read the page specifications"):
        pages.load_pages(tmp_path / "nowhere")


BAD_BODIES = {
    "too large": (page_text(wire_bytes=100), r"content has \d+ bytes, which cannot be brought to 'wire_bytes' 100"),
    "too small": (page_text(wire_bytes=5000), r"cannot be brought to 'wire_bytes' 5000.*4700 to 4994, or exactly 5000"),
    "cannot be padded": (
        page_text() + resource(encoding='"identity"', wire_bytes=2000),
        r"the content has 527 bytes.*so that it has exactly 2000 bytes",
    ),
    "other length": (
        page_text().replace("wire_bytes", "plain_bytes = 1256\nwire_bytes"),
        r"the content has 527 bytes, 'plain_bytes' states 1256. Change the content by \+729 bytes",
    ),
    "other file": (
        page_text().replace("wire_bytes", f'sha256 = "{"0" * 64}"\nwire_bytes'),
        r"index\.html is not the file whose 'sha256' is stated",
    ),
}


@pytest.mark.parametrize(("text", "message"), BAD_BODIES.values(), ids=BAD_BODIES.keys())
def test_body_that_is_not_what_the_specification_states(tmp_path: Path, text: str, message: str) -> None:
    write_page(tmp_path / "sites", "one", text)
    with pytest.raises(PageError, match=message) as caught:
        pages.build(tmp_path / "sites", tmp_path / "out")
    assert str(tmp_path / "sites" / "one" / "page.toml") in caught.value.where
    assert not (tmp_path / "out" / "one").exists()


def test_spec_dir_is_named_or_the_checkouts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CROSSLAYER_SITES", raising=False)
    assert pages.find_spec_dir() == SITES
    monkeypatch.setenv("CROSSLAYER_SITES", str(tmp_path))
    assert pages.find_spec_dir() == tmp_path
    monkeypatch.setenv("CROSSLAYER_SITES", str(tmp_path / "nowhere"))
    with pytest.raises(PlaceError, match="nowhere: cannot be read"):
        pages.find_spec_dir()
