"""Convert the values of a TOML or JSON file to typed values. Errors name the file and the key in plain words.

Types, ranges and choices are declared in the fields' types (`Annotated[float, Meta(ge=0)]`, `Literal`). A rule about
several fields is checked in `__post_init__`, which raises `FieldError`.
"""

from __future__ import annotations

import difflib
import io
import json
import math
import re
import reprlib
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from crosslayer.errors import CrosslayerError

T = TypeVar("T")

_KINDS = {
    "int": ("a whole number", "Write it without quotes or unit."),
    "float": ("a number", "Write it without quotes or unit."),
    "str": ("text", "Put it in quotes."),
    "bool": ("true or false", "Write true or false, without quotes."),
    "array": ("a list", "Put it in [square brackets]."),
    "object": ("a table", "Write it as keys and values."),
}
"""For each TOML type: its name in error messages, and the advice (`next_step`) if a value is not of this type."""
_JSON_KINDS = _KINDS | {
    "str": ("a string", "Put it in double quotes."),
    "array": ("an array", "JSON arrays are in square brackets."),
    "object": ("an object", "JSON objects are in braces."),
}
_BOUNDS = {
    "of length >=": "have a length of at least",
    "of length <=": "have a length of at most",
    ">=": "be at least",
    ">": "be above",
    "<=": "be at most",
    "<": "be below",
    "matching regex": "be of the form",
}
_MOST_BYTES = 50_000_000
"""Maximum size of a file, bytes, because devices such as /dev/zero never end."""
_type_info: Callable[[object], inspect.Type] = cache(inspect.type_info)


class FieldError(ValueError):
    """A fault in the value of a field: what is wrong (no full stop), the key of the field, and the next step.

    Types that `checked` converts to may raise it in their `__post_init__`.
    """

    def __init__(self, what: str, *, key: str = "", next_step: str = "") -> None:
        super().__init__(what)
        self.what, self.key, self.next_step = what, key, next_step


def checked(
    values: object,
    type_: type[T],
    *,
    where: str,
    error: type[CrosslayerError],
    next_step: str = "Correct the file.",
    foreign_keys: bool = False,
    json_file: bool = False,
) -> T:
    """Convert plain values to a dataclass or Struct. Conversion is strict: no text for a number, no unknown key.

    Parameters
    ----------
    values
        The result of `read_toml` or `read_json`, or a part of it.
    type_
        A dataclass or Struct. Its fields may be dataclasses or Structs too, and lists and tables of them.
    where
        The file; if `values` is only a part of the file, also the name of this part.
    error
        Exception class of the calling package.
    next_step
        Next step for a missing key and for faults without a more specific next step.
    foreign_keys
        Ignore keys that the type does not have, because the format is defined elsewhere.
    json_file
        The values are from JSON; errors use its terms.

    Raises
    ------
    CrosslayerError
        If a value cannot be used. It has the class `error`; its `where` is the parameter `where` and the key, e.g.
        `plan.toml, key 'links[0]'`.
    """
    try:
        _raise_first_fault(values, _type_info(type_), "", foreign_keys=foreign_keys)
        return msgspec.convert(values, type_)
    except FieldError as fault:
        field_error = fault
    except msgspec.ValidationError as fault:
        field_error = _as_field_error(fault, values, _JSON_KINDS if json_file else _KINDS)
    raise error(
        field_error.what,
        where=f"{where}, key '{field_error.key}'" if field_error.key else where,
        next_step=field_error.next_step or next_step,
    )


def read_toml(path: Path, error: type[CrosslayerError], next_step: str = "Name a file that can be read.") -> Any:
    """Read a TOML file; returns its tables as plain values.

    Raises
    ------
    CrosslayerError
        Of the class `error`, naming the file; `next_step` is used if the file cannot be read.
    """
    return _read(path, tomllib.loads, "TOML", error, next_step, "Correct that line.")


def read_json(path: Path, error: type[CrosslayerError], next_step: str = "Name a file that can be read.") -> Any:
    """Read a JSON file; returns its value and raises like `read_toml`.

    `next_step` is also the advice if the file is not valid JSON. Programs write JSON files, so users need not correct
    them.
    """
    return _read(path, json.loads, "JSON", error, next_step, next_step)


def read_text(path: Path, error: type[CrosslayerError], next_step: str = "Name a file that can be read.") -> str:
    """Read a text file in UTF-8, of at most 50 MB; returns it without a byte order mark, its lines ended by LF.

    Raises
    ------
    CrosslayerError
        Of the class `error`, naming the file; `next_step` is used if the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as fault:
        raise error(f"cannot be read ({fault.strerror})", where=str(path), next_step=next_step) from fault
    if len(content) > _MOST_BYTES:
        raise error(f"has more than {_MOST_BYTES} bytes", where=str(path), next_step=next_step)
    try:
        return io.TextIOWrapper(io.BytesIO(content), encoding="utf-8-sig").read()
    except UnicodeDecodeError as fault:
        raise error("is not UTF-8", where=str(path), next_step="Save it as text in UTF-8.") from fault


def _read(
    path: Path, loads: Callable[[str], Any], language: str, error: type[CrosslayerError], unread: str, malformed: str
) -> Any:
    text = read_text(path, error, unread)
    try:
        return loads(text)
    except (ValueError, RecursionError) as fault:
        raise error(f"is not {language}: {fault}", where=str(path), next_step=malformed) from fault


def _raise_first_fault(value: object, kind: inspect.Type, key: str, *, foreign_keys: bool) -> None:
    """Raise `FieldError` for faults that msgspec accepts or reports poorly, e.g. unknown keys or infinite numbers."""
    match kind, value:
        case inspect.UnionType(types=kinds), _:
            for one in kinds if value is not None else ():
                _raise_first_fault(value, one, key, foreign_keys=foreign_keys)
        case inspect.DataclassType(fields=fields) | inspect.StructType(fields=fields), dict():
            known = {field.encode_name: field.type for field in fields}
            for name, item in value.items():
                if name not in known and foreign_keys:
                    continue
                if name not in known:
                    close = difflib.get_close_matches(name, known, 1)
                    step = f"Did you mean '{close[0]}'?" if close else f"Keys are: {', '.join(known)}."
                    raise FieldError("is an unknown key", key=_joined(key, name), next_step=step)
                _raise_first_fault(item, known[name], _joined(key, name), foreign_keys=foreign_keys)
        case ((inspect.ListType(item_type=inner) | inspect.VarTupleType(item_type=inner)), list() | tuple()):
            for number, item in enumerate(value):
                _raise_first_fault(item, inner, f"{key}[{number}]", foreign_keys=foreign_keys)
        case inspect.DictType(value_type=inner), dict():
            for name, item in value.items():
                _raise_first_fault(item, inner, _joined(key, str(name)), foreign_keys=foreign_keys)
        case inspect.LiteralType(values=choices), _ if value not in choices:
            raise _unknown_choice(value, choices, key)
        case inspect.EnumType(cls=cls), _ if value not in [member.value for member in cls]:
            raise _unknown_choice(value, [member.value for member in cls], key)
        case inspect.FloatType(), float() if not math.isfinite(value):
            raise FieldError(f"must be a number, is {value}", key=key, next_step="Write one with digits.")


def choice(name: str, known: Iterable[str], further: str = "", *, say: str = "Choose one of") -> str:
    """Next step for an unknown name: the closest known name, then `say`, all known names, and `further`."""
    names = list(known)
    close = difflib.get_close_matches(name.casefold(), names, 1)
    meant = f"Did you mean '{close[0]}'? " if close else ""
    return f"{meant}{say}: {', '.join(names)}{further}."


def _unknown_choice(value: object, choices: Iterable[object], key: str) -> FieldError:
    step = choice(value if isinstance(value, str) else "", map(str, choices))
    return FieldError(f"is {reprlib.repr(value)}", key=key, next_step=step)


def _joined(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name


def _as_field_error(error: msgspec.ValidationError, values: object, terms: Mapping[str, tuple[str, str]]) -> FieldError:
    """Convert a msgspec error, such as "Expected `float`, got `str` - at `$.links[0].rtt_ms`", to a `FieldError`."""
    text, _, path = str(error).rpartition(" - at `") if " - at `$" in str(error) else (str(error), "", "$")
    key = path.strip("`").removeprefix("$").removeprefix(".").replace("[...]", "")
    if isinstance(cause := error.__cause__, FieldError):
        return FieldError(cause.what, key=_joined(key, cause.key) if cause.key else key, next_step=cause.next_step)
    if missing := re.fullmatch(r"Object missing required field `(.+)`", text):
        return FieldError("is missing", key=_joined(key, missing[1]))
    for part in re.findall(r"\w+", key):
        if isinstance(values, dict):
            values = values.get(part)
        elif isinstance(values, list):
            values = values[int(part)]
    shown = reprlib.repr(values)
    if isinstance(values, int) and abs(values) > sys.float_info.max:  # msgspec's message depends on its version
        return FieldError(f"is too large, is {shown}", key=key)
    if bound := re.fullmatch(f"Expected `[^`]*` ({'|'.join(_BOUNDS)}) (.+?)([.]0)?", text):
        if bound.group(1, 2) == (">=", "0"):
            return FieldError(f"must not be negative, is {shown}", key=key, next_step="Give it as a positive number.")
        return FieldError(f"must {_BOUNDS[bound[1]]} {bound[2]}, is {shown}", key=key)
    if kinds := re.match(r"Expected `([^`]*)`", text):
        named = [terms.get(kind, (kind, "")) for kind in kinds[1].split(" | ") if kind != "null"]
        return FieldError(
            f"must be {' or '.join(name for name, _ in named)}, is {shown}", key=key, next_step=named[0][1]
        )
    return FieldError(f"cannot be used ({text})", key=key)
