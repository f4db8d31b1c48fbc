"""The makers of pages' bodies (`sites/make.py`): each kept size comes out again, and the same bytes of code."""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import struct
import subprocess
import sys
import textwrap
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from fontTools.ttLib import TTFont

from crosslayer import pages
from crosslayer.pages import PageError

SITES = Path(__file__).resolve().parents[2] / "sites"


@pytest.fixture(scope="module")
def make() -> Iterator[ModuleType]:
    """The program `sites/make.py` as a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SITES))
        import make

        yield make


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-B", str(SITES / "make.py"), *arguments], capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_every_kept_body_comes_out_at_its_size() -> None:
    kept = {str(file): file.stat().st_size for file in SITES.glob("*/made/*")}
    assert len(kept) == 141
    done = run("--check")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = [re.fullmatch(r"(.+): (\d+) bytes", line) for line in done.stdout.splitlines()]
    assert {line[1]: int(line[2]) for line in lines if line} == kept
    assert {str(file): file.stat().st_size for file in SITES.glob("*/made/*")} == kept


@pytest.mark.slow
def test_made_code_is_the_code_that_is_kept(make: ModuleType) -> None:
    code = {maker.__name__ for maker in make.CODE} - {"font"}
    count = 0
    for recipes in SITES.glob("*/make.toml"):
        for file, maker, _ in make.recipes(recipes.parent):
            if file.suffix == ".gz" and not file.name.endswith(".ttf.gz"):
                assert gzip.decompress(file.read_bytes()) == maker(), file
                count += 1
    assert count == 35
    assert code == {"modules", "messages", "styles", "sprite"}


@pytest.mark.parametrize(
    ("kind", "values", "digest"),
    [
        (
            "modules",
            {"name": "m", "count": 20, "seed": 1},
            "42a71098eae9bfa2612b70e9e7da3fc6f3a70d6d3cf25b70fdd009b6119e1020",
        ),
        (
            "messages",
            {"name": "m", "count": 50, "seed": 1},
            "cca6454e20e6eceb5b0ca5d1a0dc9698fa8acb4efe835a2a4d0d2b4f865b3602",
        ),
        ("styles", {"count": 200, "seed": 1}, "fd28d0131b4db80d64f488be6a977a0d85934611fb060f85488709d1736a8651"),
    ],
)
def test_made_code_is_the_same_on_every_machine(
    make: ModuleType, kind: str, values: dict[str, str | int], digest: str
) -> None:
    assert hashlib.sha256(make.MAKERS[kind](**values)).hexdigest() == digest


def test_made_fonts_have_the_checksums_and_glyphs_they_state(make: ModuleType) -> None:
    file = make.MAKERS["font"](name="Test", stroke=90)
    assert sum(struct.unpack(f">{len(file) // 4}I", file)) % (1 << 32) == 0xB1B0AFBA  # OpenType, section "head"
    font = TTFont(io.BytesIO(file), checkChecksums=2)
    tags = [file[at : at + 4] for at in range(12, 12 + 16 * len(font.reader.keys()), 16)]
    assert tags == sorted(tag.encode() for tag in font.reader.keys())  # noqa: SIM118
    result = font.getBestCmap()
    # Each of the glyphs but .notdef belongs to one character.
    assert sorted(font.getGlyphID(name) for name in result.values()) == list(range(1, font["maxp"].numGlyphs))
    assert set("Hamburgefonstiv 0123456789.,!?’–") <= set(map(chr, result))
    assert len(font["hmtx"].metrics) == font["maxp"].numGlyphs
    assert font["glyf"][result[ord(" ")]].numberOfContours == 0
    assert font["glyf"][result[ord("g")]].numberOfContours > 0
    assert font["name"].getDebugName(1) == "Test"


def test_made_fonts_depend_on_their_stroke(make: ModuleType) -> None:
    thin, bold = (make.MAKERS["font"](name="Test", stroke=stroke) for stroke in (70, 130))
    assert thin != bold
    assert thin == make.MAKERS["font"](name="Test", stroke=70)


@pytest.mark.parametrize("kind", ["globe", "emblem", "scene", "landscape", "portrait", "product"])
def test_made_pictures_depend_on_their_seed(make: ModuleType, kind: str) -> None:
    def picture(seed: int) -> bytes:
        image: bytes = make.drawn(make.MAKERS[kind](width=40, height=60, seed=seed), 0.5)
        return image

    assert picture(1) == picture(1)
    assert picture(1) != picture(5)


def test_made_pictures_are_whole_png_files_of_their_size(make: ModuleType) -> None:
    body = make.picture(Path("x.png"), make.MAKERS["product"](width=90, height=60, seed=1), 5_000)
    assert len(body) == 5_000
    at, chunks = 8, {}
    while at < len(body):
        (length,) = struct.unpack_from(">I", body, at)
        kind, data = body[at + 4 : at + 8], body[at + 8 : at + 8 + length]
        assert struct.unpack_from(">I", body, at + 8 + length)[0] == zlib.crc32(kind + data)
        chunks[kind] = data
        at += 12 + length
    assert list(chunks) == [b"IHDR", b"paDd", b"IDAT", b"IEND"]
    assert struct.unpack_from(">II", chunks[b"IHDR"]) == (90, 60)
    assert len(zlib.decompress(chunks[b"IDAT"])) == 60 * (1 + 90 * 4)


def write_page(folder: Path, recipes: str, page: str = "") -> Path:
    folder.mkdir(parents=True)
    (folder / "make.toml").write_text(recipes)
    (folder / "page.toml").write_text(page or '[[resource]]\nsource = "made/p.png"\nwire_bytes = 5_000\n')
    return folder


def test_only_what_is_missing_is_made(tmp_path: Path) -> None:
    folder = write_page(tmp_path / "own", '"p.png" = { kind = "product", width = 90, height = 60, seed = 1 }\n')
    assert "5000 bytes, written" in run(str(folder)).stdout
    body = folder / "made" / "p.png"
    assert body.stat().st_size == 5_000
    body.write_bytes(b"my own")
    assert run(str(folder)).stdout == ""
    assert body.read_bytes() == b"my own"


def test_the_examples_of_the_readme(tmp_path: Path) -> None:
    page, recipes = (
        textwrap.dedent("   " + text.partition("```")[0].lstrip())
        for text in (SITES / "README.md").read_text().split("```toml\n")[1:]
    )
    folder = write_page(tmp_path / "sites" / "shop", recipes, page)
    (folder / "index.html").write_text(" ".join(f"{n**3:x}" for n in range(880)))
    done = run(str(folder))
    assert done.returncode == 0, done.stderr
    shop = pages.build(pages.load_pages(tmp_path / "sites"), tmp_path / "out")["shop"]
    assert shop.spec.hosts == (
        "www.shop.example", "alias-1.shop.example", "alias-2.shop.example", "cdn.shop.example",
    )  # fmt: skip
    assert [r.path for r in shop.resources] == ["/", "/app.js", "/picture.png"]


# Faults: each names the file, the key and what to do


BAD_RECIPES = {
    "not TOML": ("p = ]", r"make\.toml: is not TOML"),
    "unknown maker": ('"p.png" = { kind = "gif" }', r"key 'p\.png': has the unknown kind 'gif'. Known kinds: globe, "),
    "no maker": ('"p.png" = { width = 9 }', r"has no 'kind'"),
    "no table": ('"p.png" = 3', r"has no 'kind'"),
    "maker's key": ('"p.png" = { kind = "phone", size = 9 }', r"has size, where phone takes width, height"),
    "maker's missing key": ('"p.png" = { kind = "phone", width = 9 }', r"has width, where phone takes width, height"),
    "maker's range": ('"p.png" = { kind = "phone", width = 9, height = 1000000 }', r"'height' is 1000000. Write .* to"),
    "maker's type": ('"p.png" = { kind = "phone", width = 9, height = "9" }', r"'height' is '9'. Write a whole number"),
    "bool for number": ('"p.png" = { kind = "phone", width = 9, height = true }', r"'height' is True"),
    "no resource": ('"q.png" = { kind = "phone", width = 9, height = 9 }', r"no resource has the source 'made/q\.png'"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "message"), BAD_RECIPES.values(), ids=BAD_RECIPES.keys())
def test_bad_recipe_gives_its_error(make: ModuleType, tmp_path: Path, text: str, message: str) -> None:
    folder = write_page(tmp_path / "one", text)
    with pytest.raises(PageError, match=message) as caught:
        list(make.recipes(folder))
    assert str(folder / "make.toml") in caught.value.where
    assert caught.value.next_step


@pytest.mark.parametrize("size", [100, 500_000])
def test_a_picture_that_cannot_have_its_size(make: ModuleType, size: int) -> None:
    svg = make.MAKERS["product"](width=90, height=60, seed=1)
    with pytest.raises(PageError, match=rf"x\.png: comes out at \d+ bytes, .*'wire_bytes' {size}. Change its width"):
        make.picture(Path("x.png"), svg, size)


def test_the_program_names_the_fault_and_fails(tmp_path: Path) -> None:
    done = run(str(write_page(tmp_path / "one", '"p.png" = { kind = "gif" }')))
    assert done.returncode == 1
    assert "unknown kind 'gif'" in done.stderr
    assert "Traceback" not in done.stderr
