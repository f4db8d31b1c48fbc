"""Locations of resolvers and vantage points, from lists, the user's databases (MMDB) and the command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crosslayer.resolvers.errors import ResolversError
from crosslayer.vocabulary import LocatedKind


@dataclass(frozen=True, slots=True)
class AddressLocation:
    """Autonomous system and position of an address, as far as they are known."""

    asn: int | None = None
    as_name: str = ""
    latitude: float | None = None
    longitude: float | None = None

    def completed(self, other: AddressLocation) -> AddressLocation:
        """This location; `other` supplies the values that it lacks.

        Latitude and longitude are both from this location, or both from `other`.
        """
        mine = self if self.latitude is not None else other
        number = self if self.asn is not None else other
        return AddressLocation(number.asn, number.as_name, mine.latitude, mine.longitude)


def look_up(addresses: Iterable[str], databases: Sequence[Path]) -> dict[str, AddressLocation]:
    """Locations of addresses in MMDB files of cities or autonomous systems.

    Addresses that no file contains are absent. Raises `ResolversError` if a file cannot be read or the package
    `maxminddb` is missing.
    """
    if not databases:
        return {}
    try:
        import maxminddb
    except ImportError:
        raise ResolversError(
            "needs the package maxminddb", where="--mmdb", next_step="Install it: `pip install maxminddb`."
        ) from None
    addresses, located = tuple(addresses), dict[str, AddressLocation]()
    for file in databases:
        try:
            with maxminddb.open_database(str(file)) as database:
                for address in addresses:
                    of_file = _location(_record(database, address))
                    located[address] = located.get(address, AddressLocation()).completed(of_file)
        except (OSError, maxminddb.InvalidDatabaseError) as error:
            raise ResolversError(
                f"cannot be read ({error})", where=str(file), next_step="Name an MMDB file, such as GeoLite2-City.mmdb."
            ) from error
    return {address: one for address, one in located.items() if one != AddressLocation()}


def _record(database: Any, address: str) -> Mapping[str, Any]:
    try:
        record = database.get(address)
    except ValueError:  # an IPv6 address in a database of IPv4 addresses
        return {}
    return record if isinstance(record, Mapping) else {}


def _location(record: Mapping[str, Any]) -> AddressLocation:
    position = record.get("location", {})
    latitude, longitude = (position.get(name) for name in ("latitude", "longitude"))
    known = isinstance(latitude, int | float) and isinstance(longitude, int | float)
    return AddressLocation(
        record.get("autonomous_system_number"),
        record.get("autonomous_system_organization", ""),
        float(latitude) if known else None,
        float(longitude) if known else None,
    )


def positions(texts: Iterable[str], vantages: Sequence[str]) -> dict[str, AddressLocation]:
    """Positions of vantage points from `NAME=LATITUDE,LONGITUDE`; `ResolversError` for the first invalid one."""
    located = {}
    for text in texts:
        name, _, numbers = text.rpartition("=")
        try:
            latitude, longitude = (float(number) for number in numbers.split(","))
        except ValueError:
            latitude, longitude = 99.0, 0.0
        if not (abs(latitude) <= 90 and abs(longitude) <= 180):
            raise ResolversError(
                f"is no position: {text!r}",
                where="--at",
                next_step="Write NAME=LATITUDE,LONGITUDE in degrees: oslo=59.9,10.7.",
            )
        if name not in vantages:
            raise ResolversError(
                f"there is no vantage point {name!r}", where="--at", next_step=f"They are: {', '.join(vantages)}."
            )
        located[name] = AddressLocation(latitude=latitude, longitude=longitude)
    return located


def location_rows(
    resolvers: Mapping[str, AddressLocation], vantages: Mapping[str, AddressLocation]
) -> list[dict[str, Any]]:
    """Rows of the table `resolver_locations`, without the columns that `Journal` adds to every row."""
    kinds = ((LocatedKind.RESOLVER, resolvers), (LocatedKind.VANTAGE_POINT, vantages))
    return [
        {
            "round": -1,
            "kind": kind.value,
            "subject": subject,
            "asn": one.asn,
            "as_name": one.as_name or None,
            "latitude": one.latitude,
            "longitude": one.longitude,
        }
        for kind, located in kinds
        for subject, one in located.items()
    ]
