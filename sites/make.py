"""Make the bodies of pages that nobody writes by hand: pictures, fonts, and code by the hundred kilobytes.

    python sites/make.py [--check] [PAGE_FOLDER ...]

A page's `make.toml` says what is in its folder `made/`: `"hero.png" = { kind = "landscape", width = 960, height = 300,
seed = 74 }`. Each file becomes exactly as long as `wire_bytes` of its resource in `page.toml` says, and is sent as it
is; `.gz` are compressed here. Files that are there are kept, since measurements were made with them: delete one to have
it made again. `--check` makes every one, writes none, and says which do not come out at their size.
"""

from __future__ import annotations

import argparse
import inspect
import struct
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import vl_convert
from _make import fonts, pictures, scripts

from crosslayer.decode import read_toml
from crosslayer.errors import CrosslayerError
from crosslayer.pages import SPEC_FILE, PageError, fitted

RECIPES = "make.toml"
LARGEST = 5_000
"""Largest number of a recipe: a guard against drawing without end."""
PICTURES = (
    pictures.globe, pictures.emblem, pictures.phone, pictures.scene, pictures.landscape, pictures.portrait,
    pictures.product,
)  # fmt: skip
CODE = (scripts.modules, scripts.messages, scripts.styles, fonts.font, pictures.sprite)
MAKERS: dict[str, Callable[..., Any]] = {maker.__name__: maker for maker in (*PICTURES, *CODE)}

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
PNG_PADDING_LEAST = 12
"""Length, type and checksum of one chunk, in bytes."""
PNG_PADDING_SHARE, PNG_PADDING_MOST = 0.06, 64
"""Padding may be this share of a picture, or so many bytes, as of compressed bodies."""
GRAIN = """
<filter id="grain" x="0" y="0" width="1" height="1" color-interpolation-filters="sRGB">
<feTurbulence type="fractalNoise" baseFrequency="0.9" seed="1"/>
<feColorMatrix values="1 0 0 0 0  1 0 0 0 0  1 0 0 0 0  0 0 0 0 0.08"/>
<feComposite in2="SourceAlpha" operator="in" result="grain"/>
<feFlood x="0" y="0" width="100%" height="{share:.4%}"/>
<feComposite in="grain" operator="in" result="some"/>
<feMerge><feMergeNode in="SourceGraphic"/><feMergeNode in="some"/></feMerge>
</filter><g filter="url(#grain)">"""


def main() -> int:
    """Make or check, and return the exit status: 1 where a body cannot be made."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="make every body, write none")
    parser.add_argument("folders", nargs="*", type=Path, metavar="PAGE_FOLDER", help="all pages beside this program")
    options = parser.parse_args()
    recipe_folders = sorted(file.parent for file in Path(__file__).parent.glob(f"*/{RECIPES}"))
    failures = 0
    for folder in options.folders or recipe_folders:
        try:
            for file, maker, wire_bytes in recipes(folder):
                if options.check or not file.exists():
                    body = body_of(file, maker(), wire_bytes)
                    if not options.check:
                        file.parent.mkdir(exist_ok=True)
                        file.write_bytes(body)
                    print(f"{file}: {len(body)} bytes{'' if options.check else ', written'}")
        except CrosslayerError as error:
            print(error, file=sys.stderr)
            failures += 1
    return 1 if failures else 0


def recipes(folder: Path) -> Iterator[tuple[Path, Callable[[], Any], int]]:
    """Files to make of one page, their makers, and their lengths in bytes.

    Raises
    ------
    PageError
        Naming file and key.
    """
    where = folder / RECIPES
    resources = read_toml(folder / SPEC_FILE, PageError).get("resource", [])
    sizes = {resource.get("source"): resource.get("wire_bytes") for resource in resources}
    for name, recipe in read_toml(where, PageError).items():
        recipe_key = f"{where}, key '{name}'"
        kind = recipe.get("kind") if isinstance(recipe, dict) else None
        maker = MAKERS.get(kind) if isinstance(kind, str) else None
        if maker is None:
            what = f"has the unknown kind {kind!r}" if kind is not None else "has no 'kind'"
            raise PageError(what, where=recipe_key, next_step=f"Known kinds: {', '.join(MAKERS)}.")
        wanted = inspect.get_annotations(maker, eval_str=True)
        del wanted["return"]
        values = {key: value for key, value in recipe.items() if key != "kind"}
        if values.keys() != wanted.keys():
            raise PageError(
                f"has {', '.join(values) or 'nothing'}, where {kind} takes {', '.join(wanted)}",
                where=recipe_key,
                next_step="Give these keys and no other.",
            )
        for key, value in values.items():
            if type(value) is not wanted[key] or (isinstance(value, int) and not 1 <= value <= LARGEST):
                expected = f"a whole number from 1 to {LARGEST}" if wanted[key] is int else "text"
                raise PageError(f"{key!r} is {value!r}", where=recipe_key, next_step=f"Write {expected}.")
        size = sizes.get(f"made/{name}")
        if not isinstance(size, int):
            raise PageError(
                f"no resource has the source 'made/{name}'", where=recipe_key, next_step="Add it to page.toml."
            )
        yield folder / "made" / name, lambda maker=maker, values=values: maker(**values), size


def body_of(file: Path, made: str | bytes, wire_bytes: int) -> bytes:
    """The body of exactly `wire_bytes` of what a maker made: a picture's SVG, or what is to be compressed."""
    if file.suffix == ".png" and isinstance(made, str):
        return picture(file, made, wire_bytes)
    if file.suffix == ".gz" and isinstance(made, bytes):
        return fitted(made, wire_bytes, where=str(file))
    raise PageError("is no name for this kind", where=str(file), next_step="Pictures are .png, the others .gz.")


def picture(file: Path, svg: str, wire_bytes: int) -> bytes:
    """Draw an SVG as PNG of exactly that length: as much film grain as it takes, the rest is padding."""
    least = wire_bytes - max(PNG_PADDING_MOST, int(PNG_PADDING_SHARE * wire_bytes))
    most = wire_bytes - PNG_PADDING_LEAST
    aim, share, light, heavy = (least + most) / 2, 0.0, (0.0, 0), (0.0, 0)
    for _ in range(12):
        image = drawn(svg, share)
        if least <= len(image) <= most or len(image) == wire_bytes:
            return pad_png(image, wire_bytes - len(image))
        if len(image) < aim:
            light = (share, len(image))
        else:
            heavy = (share, len(image))
        if not light[1] or light[0] == 1:
            break
        # Length is nearly proportional to the share with grain.
        share = light[0] + (heavy[0] - light[0]) * (aim - light[1]) / (heavy[1] - light[1]) if heavy[1] else 1.0
    raise PageError(
        f"comes out at {len(image)} bytes, which cannot be brought to 'wire_bytes' {wire_bytes}",
        where=str(file),
        next_step="Change its width and height, or 'wire_bytes'.",
    )


def drawn(svg: str, share: float) -> bytes:
    """PNG of an SVG, with grain over the upper `share` of it, compressed as well as zlib can, without other chunks."""
    grained = svg.replace('<g id="grained">', GRAIN.format(share=share)) if share else svg
    image, at, pixels = vl_convert.svg_to_png(grained, scale=1, ppi=72), len(PNG_SIGNATURE), b""
    header = image[at : at + 25]
    while at < len(image):
        length, kind = struct.unpack_from(">I4s", image, at)
        pixels += image[at + 8 : at + 8 + length] if kind == b"IDAT" else b""
        at += 12 + length
    smallest = zlib.compress(zlib.decompress(pixels), 9)
    return PNG_SIGNATURE + header + chunk(b"IDAT", smallest) + chunk(b"IEND", b"")


def chunk(kind: bytes, data: bytes) -> bytes:
    """One chunk of a PNG: length, type, data, checksum."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def pad_png(image: bytes, padding: int) -> bytes:
    """Lengthen a PNG by a private ancillary chunk (PNG specification, section 5.4), 12 bytes or more, or by none.

    It stands before the pixels, so that the picture is complete only when its last byte is there.
    """
    header_end = len(PNG_SIGNATURE) + 25
    return image[:header_end] + (chunk(b"paDd", bytes(padding - 12)) if padding else b"") + image[header_end:]


if __name__ == "__main__":
    sys.exit(main())
