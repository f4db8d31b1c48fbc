"""Positions and autonomous systems of resolvers: from lists, from databases, and on the map."""

from __future__ import annotations

import ipaddress
import struct
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from crosslayer.resolvers import ResolversError
from crosslayer.resolvers.frames import fastest
from crosslayer.resolvers.listed import read
from crosslayer.resolvers.locations import AddressLocation, location_rows, look_up, positions
from crosslayer.studies.resolvers.figures import FIGURES, systems

LIST = """
[[resolver]]
name = "mine"
address = ["192.0.2.53"]
transports = {{ doudp = 53 }}
{0}
"""
FIGURE = next(figure for figure in FIGURES if figure.name == "imc22-fig1")


def test_a_list_has_positions_and_systems(tmp_path: Path) -> None:
    file = tmp_path / "list.toml"
    file.write_text(LIST.format('asn = 64496\nas_name = "EXAMPLE"\nlatitude = 50.1\nlongitude = 8.7'), encoding="ascii")
    assert read([str(file)]).locations == {"192.0.2.53": AddressLocation(64496, "EXAMPLE", 50.1, 8.7)}
    file.write_text(LIST.format(""), encoding="ascii")
    assert read([str(file)]).locations == {}


@pytest.mark.parametrize("keys", ["latitude = 91.0\nlongitude = 0.0", "latitude = 50.0", "asn = 0"])
def test_a_faulty_position_is_an_error_that_names_the_key(tmp_path: Path, keys: str) -> None:
    file = tmp_path / "list.toml"
    file.write_text(LIST.format(keys), encoding="ascii")
    with pytest.raises(ResolversError, match=keys.partition(" ")[0]):
        read([str(file)])


def test_positions_of_vantage_points() -> None:
    located = positions(["oslo=59.9,10.7", "lima=-12,-77"], ["oslo", "lima"])
    assert located["lima"] == AddressLocation(latitude=-12.0, longitude=-77.0)
    for text in ("oslo", "oslo=59.9", "oslo=99,1", "oslo=a,b", "rome=1,1"):
        with pytest.raises(ResolversError):
            positions([text], ["oslo"])


def mmdb(records: dict[str, dict[str, Any]]) -> bytes:
    """A database of IPv4 networks in MaxMind's format 2.0, with record size 24."""

    def encoded(value: Any) -> bytes:
        if isinstance(value, dict):
            return bytes([0xE0 | len(value)]) + b"".join(encoded(key) + encoded(one) for key, one in value.items())
        if isinstance(value, str):
            size = len(value)
            return (bytes([0x40 | size]) if size < 29 else bytes([0x5D, size - 29])) + value.encode()
        if isinstance(value, float):
            return b"\x68" + struct.pack("!d", value)
        if isinstance(value, list):
            return bytes([len(value), 0x04]) + b"".join(map(encoded, value))
        if isinstance(value, bytes):
            return value
        return b"\xc4" + struct.pack("!I", value)  # uint32

    nodes: list[list[tuple[str, int] | None]] = [[None, None]]
    data = b""
    for network, record in records.items():
        parsed = ipaddress.ip_network(network)
        at = 0
        for depth in range(parsed.prefixlen):
            bit = int(parsed.network_address) >> (31 - depth) & 1
            if depth == parsed.prefixlen - 1:
                nodes[at][bit] = ("data", len(data))
            else:
                following = nodes[at][bit]
                if following is None:
                    nodes.append([None, None])
                    following = nodes[at][bit] = ("node", len(nodes) - 1)
                at = following[1]
        data += encoded(record)
    tree = b""
    for node in nodes:
        for kind, value in (one or ("none", 0) for one in node):
            number = {"none": len(nodes), "node": value, "data": len(nodes) + 16 + value}[kind]
            tree += number.to_bytes(3, "big")
    size, version, major, minor = (b"\xa2" + struct.pack("!H", number) for number in (24, 4, 2, 0))  # uint16
    metadata = {
        "node_count": len(nodes), "record_size": size, "ip_version": version, "database_type": "Test",
        "languages": ["en"], "binary_format_major_version": major, "binary_format_minor_version": minor,
        "build_epoch": b"\x08\x02" + struct.pack("!Q", 1), "description": {"en": "t"},
    }  # fmt: skip
    return tree + bytes(16) + data + b"\xab\xcd\xefMaxMind.com" + encoded(metadata)


def test_databases_complete_each_other(tmp_path: Path) -> None:
    pytest.importorskip("maxminddb")
    cities, systems_file = tmp_path / "city.mmdb", tmp_path / "asn.mmdb"
    cities.write_bytes(mmdb({"192.0.2.0/24": {"location": {"latitude": 50.1, "longitude": 8.7}}}))
    known = {"autonomous_system_number": 64496, "autonomous_system_organization": "EXAMPLE"}
    systems_file.write_bytes(mmdb({"192.0.2.0/24": known, "198.51.100.0/24": known}))
    located = look_up(["192.0.2.53", "198.51.100.1", "203.0.113.1", "2001:db8::1"], [cities, systems_file])
    assert located == {
        "192.0.2.53": AddressLocation(64496, "EXAMPLE", 50.1, 8.7),
        "198.51.100.1": AddressLocation(64496, "EXAMPLE"),
    }
    cities.write_bytes(b"no database")
    with pytest.raises(ResolversError, match="cannot be read"):
        look_up(["192.0.2.53"], [cities])


def test_the_map_and_the_table_of_systems() -> None:
    located = {f"192.0.2.{n}": AddressLocation(64496 + n % 3, f"AS {n % 3}", 40.0 + n, 10.0 * n) for n in range(1, 9)}
    rows = location_rows(located, {"oslo": AddressLocation(latitude=59.9, longitude=10.7)})
    frame = pl.DataFrame(rows).drop("round").with_columns(resolver=pl.lit("r"))
    assert systems(frame)["count"].to_list() == [3, 3, 2]
    assert systems(frame)["percent"].sum() == pytest.approx(100, abs=0.2)
    chart = FIGURE.chart(frame).to_dict()
    assert len(chart["layer"]) == 2
    assert FIGURE.chart(frame.head(0)).to_dict()


def test_the_answer_of_the_map_counts_what_has_a_position() -> None:
    rows = [
        {"kind": "vantage-point", "latitude": 50.0, "longitude": 8.0},
        {"kind": "vantage-point", "latitude": None, "longitude": None},
        {"kind": "resolver", "latitude": 59.9, "longitude": 10.7},
    ]
    frame = pl.DataFrame(rows)
    assert FIGURE.verdict is not None
    assert FIGURE.verdict(frame) == "The map shows 1 of 2 vantage points and 1 of 1 addresses of resolvers."
    none = "The map shows 1 of 2 vantage points and no addresses of resolvers: none has a recorded position."
    assert FIGURE.verdict(frame.head(2)) == none


def test_the_answer_of_a_comparison_names_the_fastest_ranked_targets() -> None:
    names = ("resolver", "transport", "median", "group")
    rows = [("a", "DoUDP", 20.0, 1), ("b", "DoUDP", 20.4, 1), ("a", "DoQ", 40.0, 2), ("c", "DoH3", 5.0, None)]
    frame = pl.DataFrame([dict(zip(names, row, strict=True)) for row in rows], schema_overrides={"group": pl.Int64})
    frame = frame.with_columns(label="resolver", measure=pl.lit("first query"))
    assert fastest(frame).replace("\N{NO-BREAK SPACE}", " ") == (
        "Fastest first query: a over DoUDP (20.0 ms), b over DoUDP (20.4 ms). None of the others is clearly slower "
        "than the first of them. Smallest median over an encrypted transport: a over DoQ (40.0 ms)."
    )
    assert fastest(frame.with_columns(group=pl.lit(None, pl.Int64))) == ""
