"""Made pictures as SVG, drawn from a seed; `make.py` turns them into PNG, with as much grain as their weight takes."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence

Pick = Callable[[], float]


def _svg(width: int, height: int, *parts: str) -> str:
    """A picture whose parts stand in the one group that grain is laid on."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">'
        f'<g id="grained">{"".join(parts)}</g></svg>'
    )


def _box(left: float, top: float, right: float, bottom: float, radius: float, fill: str, opacity: float = 1) -> str:
    radius = min(radius, (right - left) / 2, (bottom - top) / 2)
    return (
        f'<rect x="{left:.2f}" y="{top:.2f}" width="{right - left:.2f}" height="{bottom - top:.2f}" '
        f'rx="{max(radius, 0):.2f}" fill="{fill}" opacity="{opacity}"/>'
    )


def _shape(points: Iterable[tuple[float, float]], fill: str) -> str:
    return f'<path shape-rendering="crispEdges" fill="{fill}" d="M{"L".join(f"{x:.2f} {y:.2f}" for x, y in points)}z"/>'


def _gradient(name: str, *tones: str) -> str:
    """From the first tone at the top to the last at the bottom."""
    last = max(len(tones) - 1, 1)
    stops = "".join(f'<stop offset="{number / last}" stop-color="{tone}"/>' for number, tone in enumerate(tones))
    return f'<linearGradient id="{name}" x2="0" y2="1">{stops}</linearGradient>'


def _mix(first: str, second: str, share: float) -> str:
    """Colour `share` of the way from `first` to `second`."""
    pairs = zip(bytes.fromhex(first[1:]), bytes.fromhex(second[1:]), strict=True)
    return "#" + bytes(round(a + (b - a) * share) for a, b in pairs).hex()


def _one(pick: Pick, tones: str) -> str:
    parts = tones.split()
    return "#" + parts[int(pick() * len(parts))]


def globe(*, width: int, height: int, seed: int) -> str:
    """A globe laid with mosaic tiles, transparent around it; it fills the smaller side."""
    pick = random.Random(f"globe {seed}").random
    palette = "1f5673 2a7f8e 4fa8a3 8fc7b5 d9c58b e0a458 c8553d e9e3d0"
    radius, bands, tilt = min(width, height) / 2 - 1, 11, 0.42
    parts = [f'<circle cx="{width / 2}" cy="{height / 2}" r="{radius:.2f}" fill="#d5d3c8"/>']
    for band in range(bands):
        low, high = ((band + edge) / bands * math.pi - math.pi / 2 for edge in (0.04, 0.96))
        around = max(3, round(30 * math.cos((low + high) / 2)))
        for tile in range(around):
            west, east = ((tile + edge + 0.5 * (band % 2)) / around * math.tau for edge in (0.03, 0.97))
            tone, corners = _one(pick, palette), []
            for latitude, longitude in ((low, west), (low, east), (high, east), (high, west)):
                across, depth = math.cos(latitude) * math.sin(longitude), math.cos(latitude) * math.cos(longitude)
                up, near = (
                    math.sin(latitude) * math.cos(tilt) - depth * math.sin(tilt),
                    depth * math.cos(tilt) + math.sin(latitude) * math.sin(tilt),
                )
                corners.append((across, -up, near))
            if min(near for *_, near in corners) > -0.05:
                light = max(0.0, min(1.0, sum(near - 0.5 * across for across, _, near in corners) / 4))
                parts.append(
                    _shape(
                        ((width / 2 + radius * x, height / 2 + radius * y) for x, y, _ in corners),
                        _mix("#0c1826", tone, 0.4 + 0.6 * light),
                    )
                )
    return _svg(width, height, *parts)


def emblem(*, width: int, height: int, seed: int) -> str:
    """A small application icon: a sun over waves on a square with round corners."""
    phase = random.Random(f"emblem {seed}").random() * math.tau
    top = ("#27476e", "#7a3b69", "#1f6f5c", "#34568b")[seed % 4]
    bottom = ("#5da9a1", "#f08a5d", "#c9d36a", "#f3b562")[seed % 4]
    waves = []
    for layer in range(3):
        crest = [
            (x, height * (0.56 + 0.13 * layer) + height * 0.05 * math.sin(x / width * 9.4 + phase + layer * 1.9))
            for x in range(width + 1)
        ]
        waves.append(_shape([*crest, (width, height), (0, height)], _mix(bottom, "#ffffff", 0.25 + 0.3 * layer)))
    return _svg(
        width,
        height,
        f"<defs>{_gradient('sky', top, bottom)}"
        f'<clipPath id="round"><rect width="{width}" height="{height}" rx="{width / 4.5:.2f}"/></clipPath></defs>',
        '<g clip-path="url(#round)">',
        _box(0, 0, width, height, 0, "url(#sky)"),
        f'<circle cx="{width / 2}" cy="{height * 0.43:.2f}" r="{width / 4.4:.2f}" fill="#fff6e0"/>',
        *waves,
        "</g>",
    )


def phone(*, width: int, height: int) -> str:
    """A telephone seen from the front, transparent around it; its empty screen is inset by 14 and 16 pixels."""
    return _svg(
        width,
        height,
        _box(1, 0, width - 1, height, 38, "#b4b9c1"),
        _box(3.5, 2.5, width - 3.5, height - 2.5, 35.5, "#15171a"),
        _box(14, 16, width - 14, height - 16, 26, "#f6f7f9"),
    )


# Sky above, sky at the horizon, sun, then the ranges from the farthest to the nearest.
_LIGHTS = (
    "24426b f4b183 fff1cf c98f83 93657a 5b4569 2b2c4b",
    "4f9ad6 d9eef7 fffbe8 9dc3d1 6a9fa6 3f7a6d 1f4d3f",
    "10223f 3a6b8c f3f7ff 345a78 26435f 182d47 0b1a2e",
    "e9a15b fbe3b5 fffdf2 e0a868 c47f4a 96553a 5a322b",
)


def landscape(*, width: int, height: int, seed: int) -> str:
    """A landscape photograph: sky, sun and four ranges of hills, in one of four kinds of light."""
    return _svg(width, height, *_hills(width, height, random.Random(f"scene {seed}").random, seed))


def scene(*, width: int, height: int, seed: int) -> str:
    """A landscape photograph in a telephone's picture viewer."""
    pick = random.Random(f"scene {seed}").random
    hills = _hills(width, height, pick, seed)
    step = (width - 20) / 4
    bars = [_box(12 + step * n, 12, 8 + step * (n + 1), 15, 1.5, "#ffffff", 0.95 if n < 2 else 0.4) for n in range(4)]
    person = [_box(12, 24, 44, 56, 16, "#ffffff"), _box(14, 26, 42, 54, 14, _mix("#e07a5f", "#3d5a80", pick()))]
    buttons = [
        _box(width - 82 + 38 * n, height - 48, width - 50 + 38 * n, height - 16, 16, "#ffffff", 0.4) for n in (0, 1)
    ]
    lines = [_box(52, 31, 130, 38, 3.5, "#ffffff"), _box(14, height - 48, width - 92, height - 16, 16, "#ffffff", 0.28)]
    return _svg(width, height, *hills, *bars, *person, *lines, *buttons)


def _hills(width: int, height: int, pick: Pick, seed: int) -> Sequence[str]:
    zenith, horizon, sun, *ranges = (f"#{tone}" for tone in _LIGHTS[seed % len(_LIGHTS)].split())
    x, y, radius = width * (0.3 + 0.4 * pick()), height * (0.3 + 0.12 * pick()), min(width, height)
    glow = f'<radialGradient id="glow"><stop stop-color="{sun}"/><stop offset="1" stop-color="{sun}" stop-opacity="0"/>'
    parts = [
        f"<defs>{_gradient('sky', zenith, horizon, horizon)}{glow}</radialGradient></defs>",
        _box(0, 0, width, height, 0, "url(#sky)"),
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius / 2}" fill="url(#glow)" opacity="0.5"/>',
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius * 0.085:.2f}" fill="{sun}"/>',
    ]
    for number, tone in enumerate(ranges):
        waves = [
            (0.055 / k**1.1, k * (1.2 + pick()) * math.pi / width, pick() * math.tau) for k in (1, 2, 4, 9, 19, 41)
        ]
        level = 0.5 + 0.13 * number
        ridge = [
            (x, height * (level + sum(size * math.sin(rate * x + phase) for size, rate, phase in waves)))
            for x in range(width + 1)
        ]
        parts.append(_shape([*ridge, (width, height), (0, height)], tone))
    return parts


def portrait(*, width: int, height: int, seed: int) -> str:
    """A person's head and shoulders, drawn flat as on profile pictures."""
    pick = random.Random(f"portrait {seed}").random
    wall = _one(pick, "d8e2dc ffe5d9 cdb4db bde0fe f1dca7 c9d6c3 e2c2b3 a9c5d6")
    skin = _one(pick, "f1c9a5 d9a074 a8724a 7a4a2c f6d7bd c68958")
    hair = _one(pick, "2b2118 4a2f1d 6b4423 1c1c22 8d6a43 9a9a96")
    cloth = _one(pick, "31572c 264653 9b2226 6d597a bc6c25 33415c 457b9d 3d405b")
    neck, unit = _mix(skin, "#3c1e14", 0.18), min(width, height) / 100

    def part(left: float, up: float, right: float, down: float, radius: float, tone: str) -> str:
        """A part in hundredths of the smaller side: across from the middle, up from the lower edge."""
        middle = width / 2
        return _box(
            middle + left * unit, height - up * unit, middle + right * unit, height - down * unit, radius * unit, tone
        )

    long_hair = pick() < 0.5
    sides = [part(-21, 74, -16, 56, 2.4, hair), part(16, 74, 21, 56, 2.4, hair)]
    return _svg(
        width,
        height,
        f"<defs>{_gradient('wall', _mix(wall, '#ffffff', 0.35), wall)}</defs>",
        _box(0, 0, width, height, 0, "url(#wall)"),
        part(-25, 86, 25, 18, 22, hair) if long_hair else "",
        part(-9, 44, 9, 16, 8, neck),
        part(-38, 28, 38, -40, 24, cloth),
        part(-9, 30, 9, 20, 5, neck),
        part(-19, 80, 19, 34, 19, skin),
        part(-21, 85, 21, 66, 9.4, hair),
        *(() if long_hair else sides),
    )


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


def product(*, width: int, height: int, seed: int) -> str:
    """A thing for sale on a plain ground; `seed` picks thing (the remainder modulo 12), colour and ground."""
    pick = random.Random(f"product {seed}").random
    main = _one(pick, "c8553d 2a6f97 588157 e0a458 6d597a 3d5a80 bc4749 468189 d68c45 5f6f52")
    above, below = (("#f4f1ec", "#d9d4cb"), ("#eef2f5", "#cfd8df"), ("#f6efe6", "#e3d2bd"), ("#eaf0ea", "#cbd8cc"))[
        int(pick() * 4)
    ]
    side = min(width, height)
    unit, left, top = side / 100, (width - side) / 2, (height - side) / 2
    tones = {
        "m": main,
        "s": _mix(main, "#14161e", 0.35),
        "l": _mix(main, "#ffffff", 0.8),
        "b": "#2b2d33",
        "g": _mix(above, below, 0.5),
    }
    parts = _PRODUCTS[seed % len(_PRODUCTS)]
    ground = top + (max(part[3] for part in parts) - 1) * unit
    return _svg(
        width,
        height,
        f"<defs>{_gradient('ground', above, below)}<radialGradient id='shadow'><stop stop-color='#282420' "
        "stop-opacity='.35'/><stop offset='1' stop-color='#282420' stop-opacity='0'/></radialGradient></defs>",
        _box(0, 0, width, height, 0, "url(#ground)"),
        f'<ellipse cx="{left + 50 * unit:.1f}" cy="{ground:.1f}" rx="{36 * unit:.1f}" ry="{5 * unit:.1f}" '
        'fill="url(#shadow)"/>',
        *(
            _box(left + x * unit, top + y * unit, left + right * unit, top + bottom * unit, radius * unit, tones[tone])
            for x, y, right, bottom, radius, tone in parts
        ),
    )


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
