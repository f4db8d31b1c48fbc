"""Page specifications and the builder: exact sizes, the same bytes every time, one clear error per fault."""

from __future__ import annotations

import gzip
import hashlib
import json
import struct
import tomllib
import zlib
from pathlib import Path

import pytest

from crosslayer import pages
from crosslayer.pages import PageError, _wire
from crosslayer.resources import ResourceError

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
    return pages.build(pages.load_pages(SITES), tmp_path_factory.mktemp("sites"))


def tree(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file()}


def plain(resource: pages.BuiltResource) -> bytes:
    body = resource.file.read_bytes()
    return gzip.decompress(body) if resource.content_encoding == "gzip" else body


# The pages of the papers


def test_pages_of_the_papers_are_specified() -> None:
    specs = pages.load_pages(SITES)
    of_one_host = {"example.org", "wikipedia.org", "instagram.com", "long-document"}
    assert specs.keys() == {*of_one_host, "warmup", *WEB_LOOKUPS}
    # Those of TNSM 2024 and our own can be primed by an alias, and all they need comes from one host name.
    assert {page.name for page in specs.values() if page.aliases} == of_one_host
    assert all(page.lookups == 1 for page in specs.values() if page.aliases)
    assert specs["example.org"].host == "www.example.org"
    assert specs["warmup"].host == "www.warmup.example"
    assert specs["instagram.com"].hosts == (
        "www.instagram.com",
        "alias-1.instagram.com",
        "alias-2.instagram.com",
    )


def web_pages() -> list[pages.PageSpec]:
    """The pages modelled on IMC 2022, by lookups."""
    specs = pages.load_pages(SITES)
    return sorted((specs[name] for name in WEB_LOOKUPS), key=lambda page: (page.lookups, page.wire_bytes))


def test_web_pages_rise_in_lookups_and_weight() -> None:
    web = web_pages()
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
        (f"`{page.name}`", str(page.lookups), str(len(page.resources)), f"{page.wire_bytes:,}") for page in web_pages()
    ]


def test_every_body_has_its_size(built: dict[str, pages.BuiltPage]) -> None:
    stated = {
        (page.name, entry.get("origin", ""), entry["path"]): entry["wire_bytes"]
        for page in pages.load_pages(SITES).values()
        for entry in tomllib.loads((page.folder / "page.toml").read_text())["resource"]
    }
    sent = {(name, r.host, r.path): r.file.stat().st_size for name, page in built.items() for r in page.resources}
    assert sent == stated
    assert sum(sent.values()) == 5_649_631


def test_made_bodies_are_those_the_committed_campaigns_loaded(built: dict[str, pages.BuiltPage]) -> None:
    digest = hashlib.sha256()
    for body in sorted(SITES.glob("*/made/*")):
        digest.update(f"{body.relative_to(SITES).as_posix()}\0".encode() + body.read_bytes())
    assert digest.hexdigest() == "317b823459266cb34565de9f002adc361990078a356e738e720254d1088f0505"


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
    pages.build(pages.load_pages(SITES), tmp_path)
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
    other = pages.build(pages.load_pages(SITES), tmp_path)
    changed = 0
    for name, page in built.items():
        for mine, others in zip(page.resources, other[name].resources, strict=True):
            assert others.file.stat().st_size == mine.wire_bytes
            assert plain(others) == plain(mine)
            changed += others.file.read_bytes() != mine.file.read_bytes()
    assert changed


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
    first = pages.build(pages.load_pages(sites), out)
    stamps = {name: stamp(page) for name, page in first.items()}
    assert pages.build(pages.load_pages(sites), out) == first
    assert {name: stamp(page) for name, page in first.items()} == stamps
    (out / ".lock").unlink()
    assert pages.is_built(pages.load_pages(sites), out)
    assert not (out / ".lock").exists(), "nothing is written, so the folder may be read-only"

    (one / "index.html").write_text(DOCUMENT.replace("word1 ", "ward1 "))
    again = pages.build(pages.load_pages(sites), out)
    assert b"ward1" in plain(again["one"].resources[0])
    assert stamp(again["one"]) != stamps["one"]
    assert stamp(again["two"]) == stamps["two"]


def test_damaged_body_is_built_again(tmp_path: Path) -> None:
    write_page(tmp_path / "sites", "one", page_text())
    (resource,) = pages.build(pages.load_pages(tmp_path / "sites"), tmp_path / "out")["one"].resources
    whole = resource.file.read_bytes()
    resource.file.write_bytes(whole[:-1])
    assert not pages.is_built(pages.load_pages(tmp_path / "sites"), tmp_path / "out")
    pages.build(pages.load_pages(tmp_path / "sites"), tmp_path / "out")
    assert resource.file.read_bytes() == whole


def test_page_that_is_gone_is_removed_and_nothing_else(tmp_path: Path) -> None:
    sites, out = tmp_path / "sites", tmp_path / "out"
    one = write_page(sites, "one", page_text())
    write_page(sites, "two", page_text("www.two.test"))
    pages.build(pages.load_pages(sites), out)
    (out / "mine").mkdir()
    (out / "mine" / "manifest.json").write_text("{}")
    one.rename(tmp_path / "one")
    pages.build(pages.load_pages(sites), out)
    assert sorted(entry.name for entry in out.iterdir() if not entry.name.startswith(".")) == ["mine", "two"]


def test_foreign_folder_is_never_overwritten(tmp_path: Path) -> None:
    sites = tmp_path / "sites"
    write_page(sites, "one", page_text())
    before = tree(sites)
    with pytest.raises(PageError, match="not a page built by crosslayer"):
        pages.build(pages.load_pages(sites), sites)
    assert {k: v for k, v in tree(sites).items() if k != ".lock"} == before


def test_output_that_cannot_be_written(tmp_path: Path) -> None:
    write_page(tmp_path / "sites", "one", page_text())
    (tmp_path / "file").write_text("")
    with pytest.raises(PageError, match=r"file.*cannot build the pages .*choose an output folder"):
        pages.build(pages.load_pages(tmp_path / "sites"), tmp_path / "file" / "out")


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
    page = pages.build(pages.load_pages(tmp_path / "sites"), tmp_path / "out")["one"]
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


# Faults: each names the file, the key and what to do


def resource(**keys: object) -> str:
    values = {"path": '"/x.js"', "source": '"index.html"', "content_type": '"text/javascript"', "wire_bytes": "250"}
    values |= {key: str(value) for key, value in keys.items()}
    return "[[resource]]\n" + "".join(f"{key} = {value}\n" for key, value in values.items() if value != "None")


BAD_SPECS = {
    "not TOML": ("title = ]", r"page\.toml: is not TOML.*line 1.*Correct that line"),
    "unknown key": (
        page_text(extra='hosts = "x"'),
        r"page\.toml, key 'hosts': is an unknown key.*Did you mean 'host'\?",
    ),
    "far unknown key": (
        page_text(extra="zzz = 1"),
        r"key 'zzz': is an unknown key.*Keys are: title, host, resource, aliases",
    ),
    "missing key": ('title = "t"\n', r"key 'host': is missing"),
    "wrong type": (page_text(extra='aliases = "a.test"'), r"key 'aliases': must be a list, is 'a\.test'"),
    "study": (page_text(extra='study = "web"'), r"key 'study': is an unknown key"),
    "idle origin": (
        page_text(extra='origins = ["cdn.test"]'),
        r"key 'origins': has 'cdn\.test', from which no resource comes.*Remove it",
    ),
    "wrong host": (page_text(host="WWW.Example"), r"key 'host': has 'WWW\.Example'. Write host names in lower case"),
    "wrong alias": (page_text(extra="aliases = [1]"), r"key 'aliases\[0\]': must be text, is 1"),
    "wrong origin": (page_text(extra='origins = ["-.test"]'), r"key 'origins': has '-\.test'. Write host names"),
    "alias twice": (page_text(extra='aliases = ["www.one.test"]'), r"occurs twice"),
    "no document": ('title = "t"\nhost = "a.test"\n' + resource(), r"no resource has the path '/'"),
    "resource no list": ('title = "t"\nhost = "a.test"\nresource = [1]', r"key 'resource\[0\]': must be a table, is 1"),
    "unknown resource key": (
        page_text() + resource(wire_byte=3),
        r"resource /x\.js, key 'wire_byte': is an unknown key.*Did you mean 'wire_bytes'\?",
    ),
    "bool for number": (
        page_text() + resource(wire_bytes="true"),
        r"key 'wire_bytes': must be a whole number, is True",
    ),
    "text for number": (page_text() + resource(wire_bytes='"9"'), r"key 'wire_bytes': must be a whole number, is '9'"),
    "size zero": (page_text() + resource(wire_bytes=0), r"key 'wire_bytes': must be at least 1, is 0"),
    "plain size zero": (page_text() + resource(plain_bytes=-1), r"key 'plain_bytes': must be at least 1, is -1"),
    "path without slash": (page_text() + resource(path='"x.js"'), r"key 'path': is 'x\.js'.*starting with /"),
    "path twice": (page_text() + resource() + resource(), r"two resources are /x\.js"),
    "no body": (page_text() + resource(source=None), r"resource /x\.js, key 'source': is missing"),
    "body of old": (page_text() + resource(make='{ kind = "phone" }'), r"key 'make': is an unknown key"),
    "missing file": (page_text() + resource(source='"no.js"'), r"names the missing file 'no\.js'. Add it"),
    "file outside": (page_text() + resource(source='"../x"'), r"'\.\./x' leaves the page's folder"),
    "unknown origin": (page_text() + resource(origin='"cdn.test"'), r"unknown origin 'cdn\.test'.*Add .*'origins'"),
    "unknown after": (page_text() + resource(after='"/y.js"'), r"'after' names the unknown resource '/y\.js'. Did you"),
    "document after": (
        page_text().replace("wire_bytes", 'after = "/"\nwire_bytes'),
        r"resource /, key 'after': is set for the document",
    ),
    "cycle": (
        page_text() + resource(after='"/y.js"') + resource(path='"/y.js"', after='"/x.js"'),
        r"/x\.js, /y\.js wait for each other.*Break the cycle",
    ),
    "after itself": (page_text() + resource(after='"/x.js"'), r"/x\.js wait for each other"),
    "unknown type": (
        page_text() + resource(source='"made.xyz"', content_type=None),
        r"key 'content_type': is not known from the name of 'source'",
    ),
    "unknown encoding": (
        page_text() + resource(encoding='"br"'),
        r"key 'encoding': is 'br'. Choose one of: .*gzip, identity",
    ),
    "compressed, but not": (
        page_text() + resource(source='"x.js.gz"', encoding='"identity"'),
        r"key 'encoding': is 'identity', but x\.js\.gz is compressed",
    ),
    "broken sha256": (page_text() + resource(sha256='"00"'), r"key 'sha256': is not 64 lower-case hex digits"),
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
    pages.build(pages.load_pages(tmp_path), tmp_path.parent / "out")


def test_host_of_two_pages(tmp_path: Path) -> None:
    write_page(tmp_path, "one", page_text())
    write_page(tmp_path, "two", page_text())
    with pytest.raises(PageError, match=r"two/page\.toml: host name 'www\.one\.test' is already used by page one"):
        pages.load_pages(tmp_path)


def test_a_page_that_has_a_host_of_the_users_own_gives_way(tmp_path: Path) -> None:
    """A recording of www.wikipedia.org would have none of its names otherwise."""
    sites, mine = tmp_path / "sites", tmp_path / "mine" / "mine"
    for name in ("one", "warmup"):
        write_page(sites, name, page_text().replace("one.test", f"{name}.test"))
    write_page(mine.parent, mine.name, page_text())
    assert set(pages.load_pages(sites, mine)) == {"warmup", "mine"}
    write_page(mine.parent, "other", page_text().replace("one.test", "warmup.test"))
    with pytest.raises(PageError, match="already used by page warmup"):
        pages.load_pages(sites, mine.with_name("other"))


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
    "no gzip": (
        page_text() + resource(source='"x.js.gz"'),
        r"x\.js\.gz is no whole gzip file \(.*\)\. Put the file back",
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
    write_page(tmp_path / "sites", "one", text, x_js_gz="no gzip at all")
    with pytest.raises(PageError, match=message) as caught:
        pages.build(pages.load_pages(tmp_path / "sites"), tmp_path / "out")
    assert str(tmp_path / "sites" / "one" / "page.toml") in caught.value.where
    assert not (tmp_path / "out" / "one").exists()


def test_spec_dir_is_named_or_the_checkouts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CROSSLAYER_SITES", raising=False)
    assert pages.find_spec_dir() == SITES
    monkeypatch.setenv("CROSSLAYER_SITES", str(tmp_path))
    assert pages.find_spec_dir() == tmp_path
    monkeypatch.setenv("CROSSLAYER_SITES", str(tmp_path / "nowhere"))
    with pytest.raises(ResourceError, match="nowhere: cannot be read"):
        pages.find_spec_dir()
