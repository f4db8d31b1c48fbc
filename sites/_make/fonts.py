"""Made fonts: a round, even sans serif drawn from skeletons, as a TrueType file that a browser accepts.

Skeletons are in hundredths of an em: capitals 70 high, small letters 50. A stroke is a list of points
`x,y` and arcs `@x,y,rx,ry,FROM,TO` (centre, radii, degrees) that are joined by lines; strokes are parted by `;`.
"""

from __future__ import annotations

import io
import itertools
import math
from collections.abc import Iterator, Sequence

from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from fontTools.ttLib.tables._g_l_y_f import Glyph, flagOverlapSimple

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

_EM, _ASCENT, _DESCENT = 1000, 860, -260
_ARC_STEP_DEGREES = 15
_DISC_CORNERS = 12


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
    glyphs = {".notdef": Glyph(), "space": Glyph()}
    metrics = {".notdef": (500, 0), "space": (270, 0)}
    characters = {ord(" "): "space"}
    for character in sorted(_SKELETONS):
        runs = [run for part in _SKELETONS[character].split(";") for run in _runs(part)]
        pen = TTGlyphPen(None)
        for outline in itertools.chain.from_iterable(_outline(run, stroke / 2) for run in runs):
            first, *rest = ((round(x + bearing), round(y)) for x, y in outline)
            pen.moveTo(first)
            for point in rest:
                pen.lineTo(point)
            pen.closePath()
        own = characters[ord(character)] = f"u{ord(character):04x}"
        glyphs[own] = pen.glyph()
        glyphs[own].flags[0] |= flagOverlapSimple
        left = min(x for x, _ in glyphs[own].coordinates)
        metrics[own] = (round(max(x for run in runs for x, _ in run) + 2 * bearing), left)
    bold = stroke >= 110
    builder = FontBuilder(_EM)
    builder.font.recalcTimestamp = False
    builder.setupGlyphOrder(list(glyphs))
    builder.setupCharacterMap(characters)
    builder.setupGlyf(glyphs)
    builder.setupHorizontalMetrics(metrics)
    builder.setupHorizontalHeader(ascent=_ASCENT, descent=_DESCENT)
    builder.setupNameTable(
        {"familyName": name, "styleName": "Regular", "uniqueFontIdentifier": f"{name} 1", "fullName": name}
    )
    builder.setupOS2(
        usWeightClass=700 if bold else 400, fsSelection=0x20 if bold else 0x40, sTypoAscender=_ASCENT,
        sTypoDescender=_DESCENT, usWinAscent=_ASCENT, usWinDescent=-_DESCENT, sxHeight=500, sCapHeight=700,
    )  # fmt: skip
    builder.setupPost(underlinePosition=-100, underlineThickness=50)
    builder.updateHead(created=0, modified=0, macStyle=int(bold))
    file = io.BytesIO()
    builder.save(file)
    return file.getvalue()


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
