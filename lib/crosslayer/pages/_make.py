"""The makers: bodies computed from a few parameters instead of kept as files, the same on every machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from crosslayer.pages import _fonts, _pictures, _scripts

LARGEST = 5_000
"""Largest number a parameter may have: a guard against builds that never end."""


@dataclass(frozen=True, slots=True)
class Maker:
    """One kind of made body."""

    function: Callable[..., bytes]
    """Makes the body; takes the parameters as keyword arguments."""
    parameters: Mapping[str, type]
    """Parameters a specification has to give, with their types."""


_SIZE = {"width": int, "height": int}

MAKERS: Mapping[str, Maker] = MappingProxyType(
    {
        "globe": Maker(_pictures.globe, {**_SIZE, "seed": int}),
        "emblem": Maker(_pictures.emblem, {**_SIZE, "seed": int, "grain": int}),
        "phone": Maker(_pictures.phone, _SIZE),
        "scene": Maker(_pictures.scene, {**_SIZE, "seed": int, "grain": int}),
        "landscape": Maker(_pictures.landscape, {**_SIZE, "seed": int, "grain": int}),
        "portrait": Maker(_pictures.portrait, {**_SIZE, "seed": int, "grain": int}),
        "product": Maker(_pictures.product, {**_SIZE, "seed": int, "grain": int}),
        "sprite": Maker(_pictures.sprite, {"cell": int, "points": int, "seed": int}),
        "modules": Maker(_scripts.modules, {"name": str, "count": int, "seed": int}),
        "messages": Maker(_scripts.messages, {"name": str, "count": int, "seed": int}),
        "font": Maker(_fonts.font, {"name": str, "stroke": int}),
        "styles": Maker(_scripts.styles, {"count": int, "seed": int}),
    }
)
"""Every maker by the `kind` a specification calls it."""


def make(table: Mapping[str, Any]) -> bytes:
    """Make the body a checked `make` table describes."""
    parameters = {key: value for key, value in table.items() if key != "kind"}
    return MAKERS[table["kind"]].function(**parameters)
