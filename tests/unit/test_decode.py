"""Plain values to typed ones: what is right passes, and each fault names file, key, value and what to do."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta, Struct

from crosslayer.decode import FieldError, checked, read_json, read_toml
from crosslayer.errors import CrosslayerError


class RoomError(CrosslayerError):
    """The exception of a package."""


class Part(Struct):
    name: Annotated[str, Meta(pattern="^[a-z]+$")]
    share: float = 0.0


@dataclass(frozen=True)
class Whole:
    size: Literal["small", "large"]
    rounds: Annotated[int, Meta(ge=1)] = 1
    rtt_ms: Annotated[float, Meta(ge=0)] = 0.0
    rate_mbit: Annotated[float, Meta(gt=0)] | None = None
    percent: Annotated[float, Meta(ge=0, le=100)] = 0.0
    names: Annotated[tuple[str, ...], Meta(min_length=1)] = ("a",)
    parts: list[Part] = field(default_factory=list)
    table: dict[str, Part] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.percent and not self.rtt_ms:
            raise FieldError("needs a delay", key="percent", next_step="Give rtt_ms.")


def test_what_is_right_comes_through() -> None:
    values = {
        "size": "small",
        "rtt_ms": 3,
        "names": ["x", "y"],
        "parts": [{"name": "p"}],
        "table": {"t-1": {"name": "q"}},
    }
    whole = checked(values, Whole, where="x.toml", error=RoomError)
    assert whole == Whole("small", rtt_ms=3.0, names=("x", "y"), parts=[Part("p")], table={"t-1": Part("q")})
    assert isinstance(whole.rtt_ms, float)


@pytest.mark.parametrize(
    ("values", "where", "what", "next_step"),
    [
        (3, "x.toml", "must be a table, is 3", "keys and values"),
        ({}, "x.toml, key 'size'", "is missing", "See the README."),
        ({"siz": "small"}, "x.toml, key 'siz'", "is an unknown key", "Did you mean 'size'?"),
        ({"zzz": 1}, "x.toml, key 'zzz'", "is an unknown key", "Keys are: size, rounds, "),
        ({"size": "huge"}, "x.toml, key 'size'", "is 'huge'", "Choose one of: large, small."),
        ({"size": 3}, "x.toml, key 'size'", "is 3", "Choose one of: large, small."),
        ({"rounds": "9"}, "x.toml, key 'rounds'", "must be a whole number, is '9'", "without quotes"),
        ({"rounds": 1.5}, "x.toml, key 'rounds'", "must be a whole number, is 1.5", "without"),
        ({"rounds": True}, "x.toml, key 'rounds'", "must be a whole number, is True", "without"),
        ({"rounds": 0}, "x.toml, key 'rounds'", "must be at least 1, is 0", "See the README."),
        ({"rtt_ms": -1}, "x.toml, key 'rtt_ms'", "must not be negative, is -1", "positive"),
        ({"rtt_ms": float("nan")}, "x.toml, key 'rtt_ms'", "must be a number, is nan", "digits"),
        ({"rate_mbit": float("inf")}, "x.toml, key 'rate_mbit'", "must be a number, is inf", "digits"),
        ({"rtt_ms": 10**400}, "x.toml, key 'rtt_ms'", "is too large, is 1000", "README"),
        ({"rate_mbit": 0}, "x.toml, key 'rate_mbit'", "must be above 0, is 0", "README"),
        ({"rate_mbit": "x"}, "x.toml, key 'rate_mbit'", "must be a number, is 'x'", "without quotes"),
        ({"percent": 101, "rtt_ms": 1}, "x.toml, key 'percent'", "must be at most 100, is 101", "README"),
        ({"percent": 1}, "x.toml, key 'percent'", "needs a delay", "Give rtt_ms."),
        ({"names": []}, "x.toml, key 'names'", "must have a length of at least 1, is []", "README"),
        ({"names": "a"}, "x.toml, key 'names'", "must be a list, is 'a'", "square brackets"),
        ({"names": ["a", 3]}, "x.toml, key 'names[1]'", "must be text, is 3", "quotes"),
        ({"parts": [{"name": "p"}, {"nam": 1}]}, "x.toml, key 'parts[1].nam'", "is an unknown key", "mean 'name'"),
        ({"parts": [{"name": "p"}, {}]}, "x.toml, key 'parts[1].name'", "is missing", "README"),
        ({"parts": [{"name": "P"}]}, "x.toml, key 'parts[0].name'", "must be of the form '^[a-z]+$', is 'P'", "README"),
        ({"table": {"t-1": {"x": 1}}}, "x.toml, key 'table.t-1.x'", "is an unknown key", "Keys are: name, share."),
    ],
)  # fmt: skip
def test_a_fault_is_named_by_file_and_key(values: Any, where: str, what: str, next_step: str) -> None:
    if values and isinstance(values, dict) and "size" not in values and "siz" not in values:
        values["size"] = "small"
    with pytest.raises(RoomError) as caught:
        checked(values, Whole, where="x.toml", error=RoomError, next_step="See the README.")
    assert caught.value.where == where
    assert what in caught.value.what
    assert next_step in caught.value.next_step


_SIMPLE = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.dates()
_NAMES = st.sampled_from(["small", "p", "name", "size", "", "a b"])
_PLAIN = st.recursive(
    _SIMPLE | _NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from([*Whole.__dataclass_fields__, "other"]), _PLAIN))
def test_hostile_values_are_decoded_or_refused(values: dict[str, Any]) -> None:
    try:
        whole = checked(values, Whole, where="x.toml", error=RoomError)
    except RoomError as error:
        checks = (error.where.startswith("x.toml"), bool(error.what), bool(error.next_step))
    else:
        checks = (isinstance(whole, Whole),)
    assert all(checks)


@pytest.mark.parametrize(("read", "text"), [(read_toml, "a = ]"), (read_json, "{"), (read_toml, "a = " + "[" * 99999)])
def test_a_file_that_cannot_be_read(tmp_path: Path, read: Any, text: str) -> None:
    file = tmp_path / "file"
    with pytest.raises(RoomError, match=r"file: cannot be read \(No such file"):
        read(file, RoomError)
    file.write_bytes(b"\xff")
    with pytest.raises(RoomError, match=r"file: is not UTF-8\. Save it as text in UTF-8\."):
        read(file, RoomError)
    file.write_text(text)
    with pytest.raises(RoomError, match=r"file: is not (TOML|JSON)"):
        read(file, RoomError)
    file.write_text("a = 1" if read is read_toml else '{"a": 1}')
    assert read(file, RoomError) == {"a": 1}


def test_json_is_refused_in_terms_of_json() -> None:
    for value, type_, what, next_step in (
        (3, Part, "must be an object, is 3", "JSON objects are in braces."),
        ({"name": 3}, Part, "must be a string, is 3", "Put it in double quotes."),
        ("a", list[int], "must be an array, is 'a'", "JSON arrays are in square brackets."),
    ):
        with pytest.raises(RoomError) as caught:
            checked(value, type_, where="x.json", error=RoomError, json_file=True)
        assert (caught.value.what, caught.value.next_step) == (what, next_step)
