"""Made fonts: a round, even sans serif drawn from skeletons, as a TrueType file that a browser accepts.

Skeletons are in hundredths of an em: capitals 70 high, small letters 50. A stroke is a list of points
`x,y` and arcs `@x,y,rx,ry,FROM,TO` (centre, radii, degrees) that are joined by lines; strokes are parted by `;`.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Iterator, Sequence

_Point = tuple[float, float]

_BOWL = "@22,25,22,25,0,360"
_SKELETONS = {
    "A": "0,0 30,70 60,0;11,25 49,25",
    "B": "0,37 0,70 26,70 @26,53.5,16.5,16.5,90,-90 0,37 0,0 28,0 @28,18.5,18.5,18.5,-90,90",
    "C": "@35,35,35,35,45,315",
    "D": "0,0 0,70 22,70 @22,35,35,35,90,-90 0,0",
    "E": "42,70 0,70 0,0 42,0;0,36 36,36",
    "F": "42,70 0,70 0,0;0,36 36,36",
    "G": "@35,35,35,35,45,360 40,35",
    "H": "0,0 0,70;54,0 54,70;0,36 54,36",
    "I": "0,0 0,70",
    "J": "34,70 @17,17,17,17,0,-180",
    "K": "0,0 0,70;48,70 0,28;16,41 50,0",
    "L": "0,70 0,0 40,0",
    "M": "0,0 0,70 33,22 66,70 66,0",
    "N": "0,0 0,70 54,0 54,70",
    "O": "@35,35,35,35,0,360",
    "P": "0,0 0,70 24,70 @24,50.5,19.5,19.5,90,-90 0,31",
    "Q": "@35,35,35,35,0,360;46,22 68,-4",
    "R": "0,0 0,70 24,70 @24,50.5,19.5,19.5,90,-90 0,31;24,31 46,0",
    "S": "@22,52.5,19,17.5,30,270 @22,17.5,21,17.5,90,-150",
    "T": "0,70 54,70;27,70 27,0",
    "U": "0,70 @26,26,26,26,180,360 52,70",
    "V": "0,70 29,0 58,70",
    "W": "0,70 21,0 42,62 63,0 84,70",
    "X": "0,0 54,70;0,70 54,0",
    "Y": "0,70 28,34 56,70;28,34 28,0",
    "Z": "0,70 50,70 0,0 50,0",
    "a": f"{_BOWL};44,50 44,0",
    "b": f"0,72 0,0;{_BOWL}",
    "c": "@24,25,24,25,50,310",
    "d": f"{_BOWL};44,72 44,0",
    "e": "2,25 46,25 @23,25,23,25,0,310",
    "f": "24,72 @24,58,14,14,90,180 10,0;0,50 24,50",
    "g": f"{_BOWL};44,50 44,0 @22,0,22,20,0,-150",
    "h": "0,72 0,0;0,28 @20,28,20,22,180,0 40,0",
    "i": "0,50 0,0;0,68 0,69",
    "j": "12,50 12,-6 @0,-6,12,14,0,-80;12,68 12,69",
    "k": "0,72 0,0;38,50 0,19;13,29 40,0",
    "l": "0,72 0,0",
    "m": "0,50 0,0;0,30 @17,30,17,20,180,0 34,0;34,30 @51,30,17,20,180,0 68,0",
    "n": "0,50 0,0;0,28 @20,28,20,22,180,0 40,0",
    "o": "@23,25,23,25,0,360",
    "p": f"0,50 0,-20;{_BOWL}",
    "q": f"{_BOWL};44,50 44,-20",
    "r": "0,50 0,0;0,28 @18,28,18,22,180,70",
    "s": "@17,37,15,13,30,270 @17,12,17,12,90,-150",
    "t": "12,66 12,14 @26,14,14,14,180,270;0,50 28,50",
    "u": "0,50 @20,22,20,22,180,360 40,50 40,0",
    "v": "0,50 22,0 44,50",
    "w": "0,50 17,0 34,46 51,0 68,50",
    "x": "0,0 42,50;0,50 42,0",
    "y": "0,50 23,0;46,50 15,-20",
    "z": "0,50 38,50 0,0 38,0",
    "0": "@23,35,23,35,0,360",
    "1": "0,58 16,70 16,0",
    "2": "@21,49,21,21,165,-35 0,0 44,0",
    "3": "@20,53,18,17,150,-90 @20,18,22,18,90,-150",
    "4": "34,0 34,70 0,20 46,20",
    "5": "40,70 6,70 3,40 @20,23,22,23,130,-150",
    "6": "34,70 3,32;@22,22,22,22,0,360",
    "7": "0,70 44,70 14,0",
    "8": "@22,53,18,17,0,360;@22,18,22,18,0,360",
    "9": "@22,48,22,22,0,360;41,39 12,0",
    ".": "0,0 0,1",
    ",": "4,2 0,-12",
    ":": "0,0 0,1;0,44 0,45",
    "!": "0,70 0,22;0,0 0,1",
    "?": "@18,52,18,18,165,-90 18,22;18,0 18,1",
    "'": "0,70 0,56",
    "’": "0,70 0,56",
    "-": "0,27 24,27",
    "–": "0,27 44,27",
    "+": "0,30 40,30;20,10 20,50",
    "/": "0,-8 28,76",
    "$": "@22,52.5,19,17.5,30,270 @22,17.5,21,17.5,90,-150;22,78 22,-8",
    "%": "@11,56,11,14,0,360;@51,14,11,14,0,360;50,70 12,0",
    "&": "58,0 8,52 @20,57,13,13,200,-30 10,32 @21,18,21,18,150,340 52,32",
}

_EM = 1000
_ASCENT, _DESCENT = 860, -260
_ARC_STEP_DEGREES = 15
_DISC_CORNERS = 12
_ON_CURVE, _SHORT_X, _SHORT_Y, _POSITIVE_X, _POSITIVE_Y = 1, 2, 4, 16, 32
_OVERLAPS = 64


def font(*, name: str, stroke: int) -> bytes:
    """TrueType font of Latin letters, digits and punctuation.

    Parameters
    ----------
    name
        Name of the family.
    stroke
        Width of the lines, in thousandths of an em: 80 is regular, 130 bold.
    """
    bearing = 55 + stroke / 2
    glyphs: list[bytes] = [b"", b""]  # .notdef and the space
    advances = [500, 270]
    contours_most = points_most = 0
    left_edges = [0, 0]
    characters = sorted(_SKELETONS)
    for character in characters:
        runs = [run for part in _SKELETONS[character].split(";") for run in _runs(part)]
        contours = [
            [(round(x + bearing), round(y)) for x, y in contour]
            for run in runs
            for contour in _outline(run, stroke / 2)
        ]
        glyphs.append(_glyph(contours))
        advances.append(round(max(x for run in runs for x, _ in run) + 2 * bearing))
        left_edges.append(min(x for contour in contours for x, _ in contour))
        contours_most = max(contours_most, len(contours))
        points_most = max(points_most, sum(map(len, contours)))
    return _file(
        {
            b"OS/2": _os2(stroke, characters),
            b"cmap": _cmap({ord(c): number for number, c in enumerate([" ", *characters], start=1)}),
            b"glyf": b"".join(glyphs),
            b"head": struct.pack(
                ">IIIIHHQQhhhhHHhhh",
                0x10000, 0x10000, 0, 0x5F0F3CF5, 3, _EM, 0, 0, 0, _DESCENT, _EM, _ASCENT, 0, 8, 2, 1, 0,
            ),
            b"hhea": struct.pack(
                ">IhhhHhhhhhhhhhhhH",
                0x10000, _ASCENT, _DESCENT, 0, max(advances), min(left_edges), 0, _EM, 1, *[0] * 7, len(glyphs),
            ),
            b"hmtx": b"".join(struct.pack(">Hh", *pair) for pair in zip(advances, left_edges, strict=True)),
            b"loca": b"".join(struct.pack(">I", sum(map(len, glyphs[:n]))) for n in range(len(glyphs) + 1)),
            b"maxp": struct.pack(
                ">IHHHHHHHHHHHHHH", 0x10000, len(glyphs), points_most, contours_most, 0, 0, 1, *[0] * 8
            ),
            b"name": _names(name),
            b"post": struct.pack(">IIhhIIIII", 0x30000, 0, -100, 50, 0, 0, 0, 0, 0),
        }
    )  # fmt: skip


def _runs(stroke: str) -> Iterator[list[_Point]]:
    """Lines and arcs of a stroke, in thousandths of an em."""
    last: _Point | None = None
    for word in stroke.split():
        if word.startswith("@"):
            x, y, across, up, first, end = (float(value) for value in word[1:].split(","))
            steps = round(abs(end - first) / _ARC_STEP_DEGREES)
            angles = [math.radians(first + (end - first) * n / steps) for n in range(steps + 1)]
            arc = [(10 * (x + across * math.cos(a)), 10 * (y + up * math.sin(a))) for a in angles]
        else:
            x, y = (float(value) for value in word.split(","))
            arc = [(10 * x, 10 * y)]
        if last is not None and math.dist(last, arc[0]) > 1:
            yield [last, arc[0]]
        if len(arc) > 1:
            yield arc
        last = arc[-1]


def _outline(run: Sequence[_Point], half: float) -> Iterator[list[_Point]]:
    """The line `2 * half` wide along `run`, and a disc at each end; all clockwise, so that they may overlap."""
    directions = [
        ((q[0] - p[0]) / math.dist(p, q), (q[1] - p[1]) / math.dist(p, q)) for p, q in itertools.pairwise(run)
    ]
    left, right = [], []
    for (x, y), before, after in zip(run, [directions[0], *directions], [*directions, directions[-1]], strict=True):
        # The corner of a parallel line lies on the bisector, farther out the sharper it is.
        stretch = half / (1 + before[0] * after[0] + before[1] * after[1])
        shift = -(before[1] + after[1]) * stretch, (before[0] + after[0]) * stretch
        left.append((x + shift[0], y + shift[1]))
        right.append((x - shift[0], y - shift[1]))
    yield left + right[::-1]
    for x, y in (run[0], run[-1]):
        turns = [-math.tau * n / _DISC_CORNERS for n in range(_DISC_CORNERS)]
        yield [(x + half * math.cos(a), y + half * math.sin(a)) for a in turns]


def _glyph(contours: Sequence[Sequence[tuple[int, int]]]) -> bytes:
    """One entry of the `glyf` table, padded to four bytes."""
    points = [point for contour in contours for point in contour]
    ends, end = [], -1
    for contour in contours:
        end += len(contour)
        ends.append(end)
    flags, across, up = bytearray(), bytearray(), bytearray()
    last = (0, 0)
    for point in points:
        flag = _ON_CURVE
        for axis, out, short, positive in ((0, across, _SHORT_X, _POSITIVE_X), (1, up, _SHORT_Y, _POSITIVE_Y)):
            step = point[axis] - last[axis]
            if -256 < step < 256:
                flag |= short | (positive if step >= 0 else 0)
                out.append(abs(step))
            else:
                out += struct.pack(">h", step)
        flags.append(flag)
        last = point
    flags[0] |= _OVERLAPS
    edges = [function(point[axis] for point in points) for function in (min, max) for axis in (0, 1)]
    entry = struct.pack(f">hhhhh{len(ends)}HH", len(ends), *edges, *ends, 0) + flags + across + up
    return entry + bytes(-len(entry) % 4)


def _cmap(glyphs: dict[int, int]) -> bytes:
    """Table from characters to glyphs, format 4: a segment for each character and the one that ends them."""
    codes = [*sorted(glyphs), 0xFFFF]
    shifts = [(glyphs[code] - code) % 65536 for code in codes[:-1]] + [1]
    count = len(codes)
    power = 1 << (count.bit_length() - 1)
    head = struct.pack(
        ">HHHHHHH", 4, 16 + 8 * count, 0, 2 * count, 2 * power, power.bit_length() - 1, 2 * (count - power)
    )
    ends = struct.pack(f">{count}HH", *codes, 0)
    rest = struct.pack(f">{count}H{count}H{count}H", *codes, *shifts, *[0] * count)
    return struct.pack(">HHHHI", 0, 1, 3, 1, 12) + head + ends + rest


def _os2(stroke: int, characters: Sequence[str]) -> bytes:
    weight = 700 if stroke >= 110 else 400
    return struct.pack(
        ">HhHHHhhhhhhhhhhh10sIIII4sHHHhhhHHIIhhHHH",
        3, 500, weight, 5, 0, 650, 700, 0, 140, 650, 700, 0, 480, stroke, 250, 0, bytes(10), 1, 0, 0, 0, b"XLYR",
        0x20 if weight == 700 else 0x40, 0x20, ord(max(characters)), _ASCENT, _DESCENT, 0, _ASCENT, -_DESCENT,
        1, 0, 500, 700, 0, 0x20, 0,
    )  # fmt: skip


def _names(family: str) -> bytes:
    texts = [
        (number, text.encode("utf-16-be"))
        for number, text in (
            (1, family),
            (2, "Regular"),
            (3, f"{family} 1"),
            (4, family),
            (5, "Version 1"),
            (6, family),
        )
    ]
    records, offset = b"", 0
    for number, text in texts:
        records += struct.pack(">HHHHHH", 3, 1, 0x409, number, len(text), offset)
        offset += len(text)
    return struct.pack(">HHH", 0, len(texts), 6 + len(records)) + records + b"".join(text for _, text in texts)


def _file(tables: dict[bytes, bytes]) -> bytes:
    """Table directory and tables, with their checksums and that of the whole file."""
    power = 1 << (len(tables).bit_length() - 1)
    directory = struct.pack(
        ">IHHHH", 0x10000, len(tables), 16 * power, power.bit_length() - 1, 16 * (len(tables) - power)
    )
    offset = len(directory) + 16 * len(tables)
    body = b""
    head_at = 0
    for tag, table in sorted(tables.items()):
        if tag == b"head":
            head_at = offset + len(body)
        directory += struct.pack(">4sIII", tag, _checksum(table), offset + len(body), len(table))
        body += table + bytes(-len(table) % 4)
    whole = directory + body
    adjustment = struct.pack(">I", (0xB1B0AFBA - _checksum(whole)) % (1 << 32))
    return whole[: head_at + 8] + adjustment + whole[head_at + 12 :]


def _checksum(data: bytes) -> int:
    data += bytes(-len(data) % 4)
    total: int = sum(word for (word,) in struct.iter_unpack(">I", data))
    return total % (1 << 32)
