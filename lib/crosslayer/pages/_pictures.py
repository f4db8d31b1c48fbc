"""Made pictures: PNG and SVG drawn from a seed, without any imaging library.

Each has the size, the transparency and about the compressibility of the kind of picture it
stands for; `grain` (film grain, in steps of brightness) makes a photograph weigh what photographs weigh.
"""

from __future__ import annotations

import hashlib
import math
import operator
import random
import struct
import zlib
from collections.abc import Callable, Sequence

from crosslayer.pages._wire import PNG_SIGNATURE, png_chunk

_Colour = tuple[int, int, int]


def _colour(text: str) -> _Colour:
    return int(text[0:2], 16), int(text[2:4], 16), int(text[4:6], 16)


def _mix(first: _Colour, second: _Colour, share: float) -> _Colour:
    """Colour `share` of the way from `first` to `second`."""
    return tuple(round(a + (b - a) * share) for a, b in zip(first, second, strict=True))  # type: ignore[return-value]


class _Canvas:
    """Rows of RGBA pixels."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.rows = [bytearray(4 * width) for _ in range(height)]

    def blend(self, x: int, y: int, colour: _Colour, alpha: float) -> None:
        """Lay a colour over one pixel, whatever is below shining through by 1 - `alpha`."""
        row, at = self.rows[y], 4 * x
        if alpha >= 1:
            row[at : at + 4] = bytes((*colour, 255))
            return
        below = row[at + 3] / 255 * (1 - alpha)
        total = alpha + below
        for channel in range(3):
            row[at + channel] = round((colour[channel] * alpha + row[at + channel] * below) / total)
        row[at + 3] = round(255 * total)

    def fill(self, colour: Callable[[int], _Colour]) -> None:
        """Fill the whole canvas, each row with a colour of its own."""
        for y, row in enumerate(self.rows):
            row[:] = bytes((*colour(y), 255)) * self.width

    def box(
        self, left: float, top: float, right: float, bottom: float, radius: float,
        colour: _Colour | Callable[[int], _Colour], opacity: float = 1.0,
    ) -> None:  # fmt: skip
        """Fill a rectangle with round corners and smooth edges; `colour` may depend on the row."""
        middle_x, middle_y = (left + right) / 2, (top + bottom) / 2
        inner_x, inner_y = (right - left) / 2 - radius, (bottom - top) / 2 - radius
        first_x, last_x = max(0, int(left)), min(self.width, math.ceil(right))
        for y in range(max(0, int(top)), min(self.height, math.ceil(bottom))):
            tone = colour(y) if callable(colour) else colour
            over_y = max(abs(y + 0.5 - middle_y) - inner_y, 0.0)
            # Pixels covered whole need no arithmetic: lay them down as one run.
            whole = inner_x + math.sqrt((radius - 0.5) ** 2 - over_y**2) if over_y <= radius - 0.5 else -1.0
            from_x, to_x = last_x, last_x
            if whole > 0 and opacity == 1:
                from_x = max(first_x, math.ceil(middle_x - whole - 0.5))
                to_x = max(from_x, min(last_x, math.floor(middle_x + whole + 0.5)))
                self.rows[y][4 * from_x : 4 * to_x] = bytes((*tone, 255)) * (to_x - from_x)
            for x in (*range(first_x, from_x), *range(to_x, last_x)):
                over_x = max(abs(x + 0.5 - middle_x) - inner_x, 0.0)
                cover = radius + 0.5 - math.hypot(over_x, over_y)
                if cover > 0:
                    self.blend(x, y, tone, min(cover, 1.0) * opacity)

    def shadow(self, middle_x: float, middle_y: float, across: float, along: float) -> None:
        """Darken an ellipse, most at its middle."""
        for y in range(max(0, int(middle_y - along)), min(self.height, math.ceil(middle_y + along))):
            rest = 1 - ((y + 0.5 - middle_y) / along) ** 2
            reach = across * math.sqrt(max(0.0, rest))
            for x in range(max(0, int(middle_x - reach)), min(self.width, math.ceil(middle_x + reach))):
                depth = rest - ((x + 0.5 - middle_x) / across) ** 2
                if depth > 0:
                    self.blend(x, y, (40, 36, 32), 0.35 * depth)

    def grain(self, amount: int, seed: int) -> None:
        """Change the brightness of each visible pixel by up to half of `amount`, up or down."""
        # hashlib and not random: of random, only random() is promised to stay the same.
        noise = hashlib.shake_128(f"grain {seed}".encode()).digest(self.width * self.height)
        shift = bytes(value * (amount + 1) // 256 for value in range(256))
        clamp = [min(max(value - amount // 2, 0), 255) for value in range(256 + amount)]
        for y, row in enumerate(self.rows):
            steps = noise[y * self.width : (y + 1) * self.width].translate(shift)
            visible = row[3::4]
            for channel in range(3):
                changed = bytes(map(clamp.__getitem__, map(operator.add, row[channel::4], steps)))
                row[channel::4] = bytes(map(operator.mul, changed, map(bool, visible)))

    def png(self) -> bytes:
        """Encode as PNG: RGB if every pixel is opaque, else RGBA."""
        opaque = all(row[3::4].count(255) == self.width for row in self.rows)
        header = struct.pack(">IIBBBBB", self.width, self.height, 8, 2 if opaque else 6, 0, 0, 0)
        channels = 3 if opaque else 4
        data = bytearray()
        for pixels in self.rows:
            row = bytearray(channels * self.width)
            for channel in range(channels):
                row[channel::channels] = pixels[channel::4]
            data += b"\0" + row
        chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(data, 9)), (b"IEND", b""))
        return PNG_SIGNATURE + b"".join(png_chunk(kind, content) for kind, content in chunks)


def globe(*, width: int, height: int, seed: int) -> bytes:
    """PNG of a globe laid with mosaic tiles, transparent around it.

    Parameters
    ----------
    width, height
        Size in pixels; the globe fills the smaller one.
    seed
        Start of the random choices.
    """
    canvas = _Canvas(width, height)
    pick = random.Random(f"globe {seed}").random
    palette = [_colour(c) for c in ("1f5673", "2a7f8e", "4fa8a3", "8fc7b5", "d9c58b", "e0a458", "c8553d", "e9e3d0")]
    bands, tilt = 11, 0.42
    tiles = [[(pick(), pick()) for _ in range(48)] for _ in range(bands)]
    radius = min(width, height) / 2 - 1
    for y in range(height):
        for x in range(width):
            u, v = (x + 0.5 - width / 2) / radius, (y + 0.5 - height / 2) / radius
            distance = math.hypot(u, v)
            if distance >= 1 + 1 / radius:
                continue
            w = math.sqrt(max(1 - u * u - v * v, 0.0))
            up, depth = v * math.cos(tilt) - w * math.sin(tilt), w * math.cos(tilt) + v * math.sin(tilt)
            band_position = (math.asin(max(-1.0, min(1.0, up))) / math.pi + 0.5) * bands
            band = min(int(band_position), bands - 1)
            latitude = ((band + 0.5) / bands - 0.5) * math.pi
            around = round(30 * math.cos(latitude)) if 0 < band < bands - 1 else 1
            stagger = 0.5 * (band % 2)
            tile_position = (math.atan2(u, depth) / math.tau + 0.5) * around + stagger
            tile = int(tile_position) % around
            land, tone = tiles[band][tile]
            joint_y = min(band_position % 1, 1 - band_position % 1) * radius * math.pi / bands
            joint_x = min(tile_position % 1, 1 - tile_position % 1) * radius * math.tau * math.cos(latitude) / around
            joint = round(8 * max(0.0, min(1.0, 1.6 - (joint_y if around == 1 else min(joint_x, joint_y))))) / 8
            wave = math.sin(band * 0.9 + 1.3) + math.sin(tile * 0.7 + band * 0.5 + seed)
            base = palette[int(4 + 4 * land * tone)] if wave + 0.8 * land > 0.9 else palette[int(4 * land)]
            # Each tile is flat and has one shade: a logo is a picture of few colours, and compresses like one.
            longitude = ((int(tile_position) + 0.5 - stagger) / around - 0.5) * math.tau
            tile_up, tile_depth = math.sin(latitude), math.cos(latitude) * math.cos(longitude)
            light = max(
                0.0,
                -0.45 * math.cos(latitude) * math.sin(longitude)
                - 0.6 * (tile_up * math.cos(tilt) + tile_depth * math.sin(tilt))
                + 0.66 * (tile_depth * math.cos(tilt) - tile_up * math.sin(tilt)),
            )
            shaded = _mix((12, 24, 38), _mix(base, (255, 255, 255), 0.12 * tone), 0.38 + 0.62 * light)
            shaded = _mix(shaded, (255, 255, 255), max(0.0, light - 0.9) * 4)
            canvas.blend(x, y, _mix(shaded, (245, 243, 236), 0.75 * joint), min(1.0, (1 - distance) * radius + 1))
    return canvas.png()


def emblem(*, width: int, height: int, seed: int, grain: int) -> bytes:
    """PNG of a small application icon: a sun over waves on a square with round corners.

    Parameters
    ----------
    width, height
        Size in pixels.
    seed
        Start of the random choices.
    grain
        Film grain, in steps of brightness.
    """
    canvas = _Canvas(width, height)
    pick = random.Random(f"emblem {seed}").random
    phase = pick() * math.tau
    top, bottom = (
        _colour(("27476e", "7a3b69", "1f6f5c", "34568b")[seed % 4]),
        _colour(("5da9a1", "f08a5d", "c9d36a", "f3b562")[seed % 4]),
    )
    canvas.box(0, 0, width, height, width / 4.5, lambda y: _mix(top, bottom, y / height))
    reach = width / 4.4
    canvas.box(
        width / 2 - reach, height * 0.2, width / 2 + reach, height * 0.2 + 2 * reach, reach, (255, 246, 224), 0.95
    )
    for layer in range(3):
        shade = _mix(bottom, (255, 255, 255), 0.25 + 0.3 * layer)
        for x in range(width):
            crest = height * (0.56 + 0.13 * layer) + height * 0.05 * math.sin(
                x / width * math.tau * 1.5 + phase + layer * 1.9
            )
            for y in range(int(crest), height):
                if canvas.rows[y][4 * x + 3] == 255:
                    canvas.blend(x, y, shade, min(1.0, y + 1 - crest))
    canvas.grain(grain, seed)
    return canvas.png()


def phone(*, width: int, height: int) -> bytes:
    """PNG of a telephone seen from the front, its screen empty, transparent around it.

    Parameters
    ----------
    width, height
        Size in pixels; the screen is inset by 14 at the sides and 16 at top and bottom.
    """
    canvas = _Canvas(width, height)
    edge, body, light = _colour("8d939c"), _colour("15171a"), _colour("e8ebef")
    canvas.box(1, 0, width - 1, height, 38, lambda y: _mix(light, edge, abs(1 - 2.4 * y / height) / 1.4))
    canvas.box(3.5, 2.5, width - 3.5, height - 2.5, 35.5, lambda y: _mix(edge, body, min(1.0, 0.6 + y / height)))
    for y, length in ((0.19, 0.05), (0.27, 0.09), (0.38, 0.09)):
        canvas.box(0, height * y, 2.5, height * (y + length), 1, edge)
    canvas.box(14, 16, width - 14, height - 16, 26, (246, 247, 249))
    return canvas.png()


# Sky above, sky at the horizon, sun, then the ranges from the farthest to the nearest.
_SCENES = (
    ("24426b", "f4b183", "fff1cf", "c98f83", "93657a", "5b4569", "2b2c4b"),
    ("4f9ad6", "d9eef7", "fffbe8", "9dc3d1", "6a9fa6", "3f7a6d", "1f4d3f"),
    ("10223f", "3a6b8c", "f3f7ff", "345a78", "26435f", "182d47", "0b1a2e"),
    ("e9a15b", "fbe3b5", "fffdf2", "e0a868", "c47f4a", "96553a", "5a322b"),
)


def scene(*, width: int, height: int, seed: int, grain: int) -> bytes:
    """PNG of a landscape photograph in a telephone's picture viewer.

    Parameters
    ----------
    width, height
        Size in pixels.
    seed
        Start of the random choices; also picks one of four kinds of light.
    grain
        Film grain, in steps of brightness.
    """
    canvas, pick = _landscape(width, height, seed)
    canvas.grain(grain, seed)
    _viewer(canvas, pick)
    return canvas.png()


def landscape(*, width: int, height: int, seed: int, grain: int) -> bytes:
    """PNG of a landscape photograph; parameters as of `scene`."""
    canvas, _pick = _landscape(width, height, seed)
    canvas.grain(grain, seed)
    return canvas.png()


def _landscape(width: int, height: int, seed: int) -> tuple[_Canvas, Callable[[], float]]:
    """Sky, sun and four ranges of hills, and the random choices to go on with."""
    canvas = _Canvas(width, height)
    pick = random.Random(f"scene {seed}").random
    zenith, horizon, sun, *ranges = (_colour(c) for c in _SCENES[seed % len(_SCENES)])
    sun_x, sun_y = width * (0.3 + 0.4 * pick()), height * (0.3 + 0.12 * pick())
    scale = min(width, height)
    lit = range(max(0, int(sun_x - scale / 2)), min(width, math.ceil(sun_x + scale / 2)))
    tops: list[list[tuple[int, int]]] = [[] for _ in range(height)]
    for number in range(len(ranges)):
        for x, top in enumerate(_ridge(width, height, 0.5 + 0.13 * number, pick)):
            tops[min(max(math.ceil(top), 0), height - 1)].append((x, number + 1))
    nearest = bytearray(width)  # of each column: 0 for sky, else the nearest range that reaches up to this row
    for y, row in enumerate(canvas.rows):
        for x, number in tops[y]:
            nearest[x] = max(nearest[x], number)
        tones = [_mix(zenith, horizon, min(1.0, y / (0.6 * height)))]
        for number, tone in enumerate(ranges):
            tones.append(_mix(tone, horizon, min(1.0, max(0.0, 0.35 - (y / height - 0.5 - 0.13 * number) * 1.8))))
        for channel in range(3):
            row[channel::4] = nearest.translate(bytes(tone[channel] for tone in tones).ljust(256, b"\0"))
        row[3::4] = b"\xff" * width
        for x in lit if abs(y - sun_y) < scale / 2 else ():
            glow = math.hypot(x - sun_x, y - sun_y) / scale
            if glow < 0.5 and not nearest[x]:
                disc = min(1.0, max(0.75 * (0.5 - glow), (0.085 - glow) * scale + 0.5))
                row[4 * x : 4 * x + 3] = bytes(_mix(tones[0], sun, disc))
    return canvas, pick


def _ridge(width: int, height: int, level: float, pick: Callable[[], float]) -> Sequence[float]:
    """Height of a range of hills for each column."""
    waves = [(0.055 / k**1.1, k * (1.2 + pick()), pick() * math.tau) for k in (1, 2, 4, 9, 19, 41)]
    return [
        height * (level + sum(size * math.sin(rate * math.pi * x / width + phase) for size, rate, phase in waves))
        for x in range(width)
    ]


def _viewer(canvas: _Canvas, pick: Callable[[], float]) -> None:
    """Lay the controls of a picture viewer over a photograph."""
    white, width, height = (255, 255, 255), canvas.width, canvas.height
    step = (width - 20) / 4
    for number in range(4):
        canvas.box(
            10 + step * number + 2, 12, 10 + step * (number + 1) - 2, 15, 1.5, white, 0.95 if number < 2 else 0.4
        )
    canvas.box(12, 24, 44, 56, 16, white, 0.9)
    tone = _mix((224, 122, 95), (61, 90, 128), pick())
    canvas.box(14, 26, 42, 54, 14, tone)
    canvas.box(23, 31, 33, 41, 5, white)
    canvas.box(19, 43, 37, 51, 4, white)
    canvas.box(52, 31, 130, 38, 3.5, white, 0.9)
    canvas.box(52, 43, 98, 48, 2.5, white, 0.55)
    canvas.box(14, height - 48, width - 92, height - 16, 16, white, 0.28)
    canvas.box(26, height - 35, 110, height - 29, 3, white, 0.75)
    for number in range(2):
        left = width - 82 + 38 * number
        canvas.box(left, height - 48, left + 32, height - 16, 16, white, 0.28)
        canvas.box(left + 9, height - 39, left + 23, height - 25, 7, white, 0.9)


def portrait(*, width: int, height: int, seed: int, grain: int) -> bytes:
    """PNG of a person's head and shoulders, drawn flat as on profile pictures.

    Parameters
    ----------
    width, height
        Size in pixels.
    seed
        Start of the random choices.
    grain
        Film grain, in steps of brightness.
    """
    canvas = _Canvas(width, height)
    pick = random.Random(f"portrait {seed}").random
    wall, skin, hair, cloth = (
        _colour(tones[int(pick() * len(tones))])
        for tones in (
            ("d8e2dc", "ffe5d9", "cdb4db", "bde0fe", "f1dca7", "c9d6c3", "e2c2b3", "a9c5d6"),
            ("f1c9a5", "d9a074", "a8724a", "7a4a2c", "f6d7bd", "c68958"),
            ("2b2118", "4a2f1d", "6b4423", "1c1c22", "8d6a43", "9a9a96"),
            ("31572c", "264653", "9b2226", "6d597a", "bc6c25", "33415c", "457b9d", "3d405b"),
        )
    )
    unit, middle = min(width, height) / 100, width / 2
    bottom = height + 0.0
    long_hair = pick() < 0.5

    def part(left: float, up: float, right: float, down: float, radius: float, tone: _Colour) -> None:
        """A part in hundredths of the smaller side: across from the middle, up from the lower edge."""
        canvas.box(
            middle + left * unit, bottom - up * unit, middle + right * unit, bottom - down * unit, radius * unit, tone
        )

    canvas.fill(lambda y: _mix(wall, (255, 255, 255), 0.35 * (1 - y / height)))
    if long_hair:
        part(-25, 86, 25, 18, 22, hair)
    part(-9, 44, 9, 16, 8, _mix(skin, (60, 30, 20), 0.18))
    part(-38, 28, 38, -40, 24, cloth)
    part(-9, 30, 9, 20, 5, _mix(skin, (60, 30, 20), 0.18))
    part(-19, 80, 19, 34, 19, skin)
    part(-21, 85, 21, 66, 9.4, hair)
    if not long_hair:
        part(-21, 74, -16, 56, 2.4, hair)
        part(16, 74, 21, 56, 2.4, hair)
    canvas.grain(grain, seed)
    return canvas.png()


# Things for sale as rounded boxes: left, top, right, bottom, radius in hundredths of the picture's smaller side, and a
# tone: main, shade, light, black, or the ground where something is cut out.
_PRODUCTS: tuple[tuple[tuple[float, float, float, float, float, str], ...], ...] = (
    ((56, 40, 80, 68, 12, "m"), (62, 46, 74, 62, 6, "g"), (26, 28, 64, 80, 7, "m"), (30, 34, 33, 72, 1.5, "l")),
    ((47, 40, 53, 80, 1, "b"), (34, 77, 66, 82, 2.5, "b"), (28, 16, 72, 46, 12, "m"), (28, 40, 72, 46, 2, "s")),
    ((43, 12, 57, 20, 2, "b"), (45, 18, 55, 36, 2, "m"), (35, 32, 65, 84, 9, "m"), (35, 50, 65, 70, 0.5, "l"),
     (39, 54, 61, 57, 1, "b"), (39, 61, 54, 63, 1, "s")),
    ((22, 18, 78, 74, 27.5, "b"), (28, 24, 72, 76, 21.5, "g"), (20, 60, 80, 74.5, 0.5, "g"), (18, 50, 34, 80, 7, "m"),
     (66, 50, 82, 80, 7, "m"), (30, 52, 34, 78, 2, "s"), (66, 52, 70, 78, 2, "s")),
    ((31, 58, 35, 86, 1.5, "b"), (65, 58, 69, 86, 1.5, "b"), (32, 14, 68, 54, 7, "m"), (28, 52, 72, 62, 4, "s")),
    ((22, 20, 78, 76, 27.5, "b"), (26, 24, 74, 72, 23.5, "l"), (49, 32, 51, 49, 1, "b"), (49, 46.5, 64, 49, 1.2, "m"),
     (47, 45, 53, 51, 3, "b")),
    ((18, 26, 82, 68, 4, "b"), (21, 29, 79, 64, 1.5, "m"), (21, 50, 79, 64, 1.5, "s"), (12, 67, 88, 72, 2.5, "l"),
     (42, 67, 58, 69, 1, "b")),
    ((40, 8, 60, 92, 6, "s"), (30, 30, 70, 70, 11, "b"), (34, 34, 66, 66, 8, "m"), (49, 38, 51, 51, 1, "l"),
     (49, 49, 61, 51, 1, "l")),
    ((33, 10, 67, 86, 7, "b"), (35, 12, 65, 84, 5.4, "m"), (35, 52, 65, 84, 5.4, "s"), (45, 14, 55, 16.4, 1.2, "b")),
    ((33, 12, 67, 84, 8, "m"), (38, 46, 62, 70, 11.9, "b"), (43, 51, 57, 65, 6.9, "s"), (43, 20, 57, 34, 6.9, "b")),
    ((38, 10, 62, 30, 9, "b"), (42, 14, 58, 30, 6, "g"), (24, 52, 32, 80, 3, "s"), (68, 52, 76, 80, 3, "s"),
     (28, 18, 72, 84, 14, "m"), (33, 52, 67, 78, 6, "s"), (47, 50, 53, 60, 1, "l")),
    ((29, 16, 71, 84, 2, "m"), (29, 16, 35, 84, 2, "s"), (41, 28, 65, 32, 1, "l"), (41, 37, 57, 40, 1, "l")),
)  # fmt: skip


def product(*, width: int, height: int, seed: int, grain: int) -> bytes:
    """PNG of a thing for sale on a plain ground.

    Parameters
    ----------
    width, height
        Size in pixels; the thing fills the smaller one.
    seed
        Picks the thing (the remainder modulo 12: mug, lamp, bottle, headphones, chair, clock, laptop, watch,
        telephone, loudspeaker, backpack, book), its colour and the ground.
    grain
        Film grain, in steps of brightness.
    """
    canvas = _Canvas(width, height)
    pick = random.Random(f"product {seed}").random
    mains = ("c8553d", "2a6f97", "588157", "e0a458", "6d597a", "3d5a80", "bc4749", "468189", "d68c45", "5f6f52")
    grounds = (("f4f1ec", "d9d4cb"), ("eef2f5", "cfd8df"), ("f6efe6", "e3d2bd"), ("eaf0ea", "cbd8cc"))
    main = _colour(mains[int(pick() * len(mains))])
    above, below = (_colour(c) for c in grounds[int(pick() * len(grounds))])
    unit, left, top = min(width, height) / 100, (width - min(width, height)) / 2, (height - min(width, height)) / 2

    def ground(y: int) -> _Colour:
        return _mix(above, below, y / height)

    tones: dict[str, _Colour | Callable[[int], _Colour]] = {
        "m": lambda y: _mix(_mix(main, (255, 255, 255), 0.22), main, y / height),
        "s": _mix(main, (20, 22, 30), 0.35),
        "l": _mix(main, (255, 255, 255), 0.8),
        "b": _colour("2b2d33"),
        "g": ground,
    }
    canvas.fill(ground)
    parts = _PRODUCTS[seed % len(_PRODUCTS)]
    canvas.shadow(left + 50 * unit, top + (max(part[3] for part in parts) - 1) * unit, 36 * unit, 5 * unit)
    for x, y, right, bottom, radius, tone in parts:
        canvas.box(
            left + x * unit, top + y * unit, left + right * unit, top + bottom * unit, radius * unit, tones[tone]
        )
    canvas.grain(grain, seed)
    return canvas.png()


def sprite(*, cell: int, points: int, seed: int) -> bytes:
    """SVG with twelve line-drawn emblems, one below the other.

    Parameters
    ----------
    cell
        Side of one emblem in pixels.
    points
        Points of each emblem's line.
    seed
        Start of the random choices.
    """
    pick = random.Random(f"sprite {seed}").random
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{cell}" height="{12 * cell}" viewBox="0 0 100 1200">']
    for number in range(12):
        colour = ("1f5673", "b3541e", "2a7f8e", "7a3b69", "4d7c2a", "c8553d")[number % 6]
        curve = _CURVES[number % len(_CURVES)]
        line = _line(curve, points, 3 + number % 5 + int(pick() * 2), pick() * math.tau)
        parts.append(
            f'<g id="emblem-{number + 1}" transform="translate(50 {100 * number + 50})" fill="none" stroke="#{colour}">'
            f'<circle r="48" fill="#{colour}" fill-opacity=".08" stroke-width="1.5"/>'
            f'<path stroke-width="1.3" stroke-linejoin="round" d="{line}"/></g>'
        )
    return ("".join(parts) + "</svg>\n").encode()


def _rosette(t: float, k: int, phase: float) -> tuple[float, float]:
    r = 30 + 14 * math.cos((k + 0.5) * 2 * t)
    return r * math.cos(t * 2 + phase), r * math.sin(t * 2 + phase)


def _spirograph(t: float, k: int, phase: float) -> tuple[float, float]:
    inner = 44 * k / (2 * k + 3)
    outer, reach, t = 44 - inner, 0.85 * inner, t * k
    return (
        outer * math.cos(t + phase) + reach * math.cos(outer / inner * t),
        outer * math.sin(t + phase) - reach * math.sin(outer / inner * t),
    )


def _lattice(t: float, k: int, phase: float) -> tuple[float, float]:
    return 32 * math.sin((k + 1) * t + phase), 32 * math.sin((k + 2) * t)


def _spiral(t: float, k: int, _phase: float) -> tuple[float, float]:
    r = 5 + 38 * t / math.tau + 3 * math.sin(t * 8 * k)
    return r * math.cos(t * k), r * math.sin(t * k)


_CURVES = (_rosette, _spirograph, _lattice, _spiral)


def _line(curve: Callable[[float, int, float], tuple[float, float]], points: int, k: int, phase: float) -> str:
    """Path data of a curve, each point relative to the one before."""
    path, last = [], (0.0, 0.0)
    for number in range(points + 1):
        point = curve(math.tau * number / points, k, phase)
        step = round(point[0] - last[0], 2), round(point[1] - last[1], 2)
        last = last[0] + step[0], last[1] + step[1]
        path.append(f"{'Ml'[number > 0]}{step[0]:g} {step[1]:g}")
    return "".join(path).replace(" -", "-")
