"""Page specifications: read `page.toml`, check every key, say what to do about each fault."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any

from crosslayer import places
from crosslayer.pages import _make
from crosslayer.pages._errors import PageError

SPEC_FILE = "page.toml"

CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ttf": "font/ttf",
}
"""Content type by suffix of the source or path; other types are stated with `content_type`."""

STUDIES = ("coalescing", "web")
"""Studies that have pages of their own (`study` of a specification)."""

_HOST = re.compile(r"(?=.{1,253}$)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
_PAGE_KEYS = {"title": str, "study": str, "host": str, "aliases": list, "origins": list, "resource": list}
_RESOURCE_KEYS = {
    "path": str,
    "origin": str,
    "after": str,
    "source": str,
    "make": dict,
    "content_type": str,
    "encoding": str,
    "wire_bytes": int,
    "plain_bytes": int,
    "sha256": str,
}
_TYPE_NAMES = {str: "a string", int: "a whole number", list: "a list", dict: "a table"}


@dataclass(frozen=True, slots=True)
class ResourceSpec:
    """One thing the page fetches, as its specification states it."""

    path: str
    """Path of the URL, starting with `/`."""
    origin: str
    """Host name it is fetched from; empty for the page's own host and its aliases."""
    after: str
    """Key of the resource whose arrival makes the browser ask for this one; empty for the document."""
    source: Path | None
    """File the body is taken from as it is; `None` where the body is made."""
    make: Mapping[str, str | int]
    """`kind` and parameters of a made body (`crosslayer.pages._make`); empty where there is a source."""
    content_type: str
    """Value of the `content-type` field."""
    gzip: bool
    """Sent gzip-compressed."""
    wire_bytes: int
    """Exact length of the body on the wire, after compression, in bytes."""
    plain_bytes: int | None
    """Exact length before compression, in bytes, where it is prescribed."""
    sha256: str
    """SHA-256 the source must have (vendored code), as lower-case hex; empty where none is prescribed."""

    @property
    def key(self) -> str:
        """What `after` calls this resource: its path, or its whole URL on another origin."""
        return f"https://{self.origin}{self.path}" if self.origin else self.path


@dataclass(frozen=True, slots=True)
class PageSpec:
    """One page under test, as its `page.toml` states it."""

    name: str
    """Name of the page and of its folder, e.g. `example.org`."""
    title: str
    """What the page is, one line."""
    study: str
    """Study the page was made for, a member of `STUDIES`; empty where it is for none."""
    host: str
    """Host name of the page."""
    aliases: tuple[str, ...]
    """Host names that serve the same resources: the symmetric load procedure primes one of them."""
    origins: tuple[str, ...]
    """Other host names the page's resources are fetched from."""
    resources: tuple[ResourceSpec, ...]
    """Every resource; the document (`/`) first, and none before the one it comes after."""
    folder: Path
    """Folder of the specification."""

    @property
    def wire_bytes(self) -> int:
        """Bodies of all resources on the wire, in bytes."""
        return sum(resource.wire_bytes for resource in self.resources)

    @property
    def lookups(self) -> int:
        """DNS lookups of a load that finds no address cached: one for each host name it fetches from."""
        return 1 + len(self.origins)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Every host name the page needs an address for: its own, the aliases, the other origins."""
        return (self.host, *self.aliases, *self.origins)


def find_spec_dir() -> Path:
    """Folder of the page specifications; `places.PlaceError` where there is none."""
    return places.find("sites").path


def load_pages(spec_dir: Path) -> dict[str, PageSpec]:
    """Read and check every page specification.

    Parameters
    ----------
    spec_dir
        Folder with one folder per page, each holding a `page.toml`.

    Returns
    -------
    dict
        Pages by name, in the order of their names.

    Raises
    ------
    PageError
        For the first fault found, naming the file, the key and what to do.
    """
    try:
        folders = sorted(
            entry for entry in Path(spec_dir).iterdir() if entry.is_dir() and not entry.name.startswith(".")
        )
    except OSError as error:
        raise PageError(
            f"cannot read the page specifications ({error.strerror})",
            where=str(spec_dir),
            next_step="Name a folder like sites/ of a checkout",
        ) from error
    if not folders:
        raise PageError(
            "holds no page", where=str(spec_dir), next_step=f"Add a folder with a {SPEC_FILE}, see sites/README.md"
        )
    pages = {folder.name: _load_page(folder) for folder in folders}
    _check_hosts(pages)
    return pages


def of_study(pages: Mapping[str, PageSpec], study: str) -> tuple[PageSpec, ...]:
    """Pages made for a study (a member of `STUDIES`), by number of lookups, then by bytes on the wire."""
    return tuple(
        sorted((page for page in pages.values() if page.study == study), key=lambda p: (p.lookups, p.wire_bytes))
    )


def _check_hosts(pages: Mapping[str, PageSpec]) -> None:
    owners: dict[str, PageSpec] = {}
    for page in pages.values():
        for host in page.hosts:
            if host in owners:
                raise PageError(
                    f"host name {host!r} is already used by page {owners[host].name}",
                    where=str(page.folder / SPEC_FILE),
                    next_step="Each host name has an address of its own: choose another name",
                )
            owners[host] = page


def _load_page(folder: Path) -> PageSpec:
    file = folder / SPEC_FILE
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise PageError(
            f"the page has no {SPEC_FILE}",
            where=str(folder),
            next_step="Add one (see sites/README.md) or remove the folder",
        ) from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise PageError(f"cannot be read as TOML: {error}", where=str(file), next_step="Correct the file") from error

    where = str(file)
    _check_keys(table, _PAGE_KEYS, required={"title", "host", "resource"}, where=where)
    if table.get("study", STUDIES[0]) not in STUDIES:
        raise PageError(f"'study' is {table['study']!r}", where=where, next_step=f"Known studies: {', '.join(STUDIES)}")
    host = _host(table["host"], "host", where)
    aliases = _hosts(table.get("aliases", []), "aliases", where)
    origins = _hosts(table.get("origins", []), "origins", where)
    if len({host, *aliases, *origins}) != 1 + len(aliases) + len(origins):
        raise PageError(
            "a host name stands twice in 'host', 'aliases' and 'origins'",
            where=where,
            next_step="Name each host once",
        )
    resources = [_load_resource(entry, number, folder, origins) for number, entry in enumerate(table["resource"])]
    # A name nothing is fetched from is never looked up, and `lookups` would count it.
    for origin in origins:
        if all(resource.origin != origin for resource in resources):
            raise PageError(
                f"'origins' has {origin!r}, from which no resource comes",
                where=where,
                next_step="Remove it, or give a resource this 'origin'",
            )
    return PageSpec(
        name=folder.name,
        title=table["title"],
        study=table.get("study", ""),
        host=host,
        aliases=aliases,
        origins=origins,
        resources=_in_order(resources, where),
        folder=folder,
    )


def _load_resource(entry: Any, number: int, folder: Path, origins: Collection[str]) -> ResourceSpec:
    where = f"{folder / SPEC_FILE}, resource {number}"
    if not isinstance(entry, dict):
        raise PageError("'resource' must be a list of tables", where=where, next_step="Write [[resource]]")
    if isinstance(entry.get("path"), str):
        where = f"{folder / SPEC_FILE}, resource {entry['path']}"
    _check_keys(entry, _RESOURCE_KEYS, required={"path", "wire_bytes"}, where=where)

    path, origin = entry["path"], entry.get("origin", "")
    if not re.fullmatch(r"/[!-~]*", path) or "#" in path:
        raise PageError(f"'path' is {path!r}", where=where, next_step="Write the path of the URL, starting with /")
    if "origin" in entry and origin not in origins:
        raise PageError(
            f"'origin' names the unknown origin {origin!r}",
            where=where,
            next_step="Add the host name to 'origins' at the top of the file",
        )
    document = path == "/" and not origin
    if document and "after" in entry:
        raise PageError("the document has an 'after'", where=where, next_step="Remove it: the document comes first")
    for name in ("wire_bytes", "plain_bytes"):
        if entry.get(name, 1) < 1:
            raise PageError(f"{name!r} is {entry[name]}", where=where, next_step="Write a size in bytes, at least 1")
    if ("source" in entry) == ("make" in entry):
        raise PageError(
            "has both 'source' and 'make'" if "source" in entry else "has neither 'source' nor 'make'",
            where=where,
            next_step="Say where the body comes from: a file of the page's folder (source) or a maker (make)",
        )
    source = _source(entry["source"], folder, where) if "source" in entry else None
    make = _make_table(entry["make"], where) if "make" in entry else {}
    if "sha256" in entry and source is None:
        raise PageError("'sha256' without 'source'", where=where, next_step="Only a source file has a fixed SHA-256")
    if not re.fullmatch(r"([0-9a-f]{64})?", entry.get("sha256", "")):
        raise PageError("'sha256' is not 64 lower-case hex digits", where=where, next_step="Take it from sha256sum")

    content_type = entry.get("content_type") or CONTENT_TYPES.get(PurePosixPath(source.name if source else path).suffix)
    if content_type is None:
        raise PageError(
            "its content type is not known from its name", where=where, next_step="State it with 'content_type'"
        )
    encoding = entry.get("encoding", "identity" if content_type == "image/png" else "gzip")
    if encoding not in ("gzip", "identity"):
        raise PageError(f"'encoding' is {encoding!r}", where=where, next_step='Write "gzip" or "identity"')
    return ResourceSpec(
        path=path,
        origin=origin,
        after="" if document else entry.get("after", "/"),
        source=source,
        make=MappingProxyType(make),
        content_type=content_type,
        gzip=encoding == "gzip",
        wire_bytes=entry["wire_bytes"],
        plain_bytes=entry.get("plain_bytes"),
        sha256=entry.get("sha256", ""),
    )


def _check_keys(table: Mapping[str, Any], known: Mapping[str, type], *, required: Collection[str], where: str) -> None:
    """Refuse unknown keys, values of another type and missing keys."""
    for key, value in table.items():
        if key not in known:
            close = difflib.get_close_matches(key, known, 1)
            raise PageError(
                f"unknown key {key!r}",
                where=where,
                next_step=f"Did you mean {close[0]!r}?" if close else f"Known keys: {', '.join(known)}",
            )
        # TOML's true is a Python int too.
        if not isinstance(value, known[key]) or isinstance(value, bool):
            raise PageError(f"{key!r} is {value!r}", where=where, next_step=f"Write {_TYPE_NAMES[known[key]]}")
    for key in known:
        if key in required and key not in table:
            raise PageError(f"key {key!r} is missing", where=where, next_step="Add it, see sites/README.md")


def _host(value: Any, key: str, where: str) -> str:
    if not isinstance(value, str) or not _HOST.fullmatch(value):
        raise PageError(
            f"{key!r} has {value!r}", where=where, next_step="Write host names in lower case, like www.example.org"
        )
    return value


def _hosts(values: list[Any], key: str, where: str) -> tuple[str, ...]:
    return tuple(_host(value, key, where) for value in values)


def _source(value: str, folder: Path, where: str) -> Path:
    source = folder / value
    if not source.resolve().is_relative_to(folder.resolve()):
        raise PageError(
            f"'source' {value!r} leaves the page's folder", where=where, next_step="Keep a page's content in its folder"
        )
    if not source.is_file():
        raise PageError(
            f"'source' names the missing file {value!r}",
            where=where,
            next_step=f"Add it to {folder} or correct the name",
        )
    return source


def _make_table(table: dict[str, Any], where: str) -> dict[str, str | int]:
    kind = table.get("kind")
    maker = _make.MAKERS.get(kind) if isinstance(kind, str) else None
    if maker is None:
        raise PageError(
            f"'make' has the unknown kind {kind!r}" if "kind" in table else "'make' has no 'kind'",
            where=where,
            next_step=f"Known kinds: {', '.join(_make.MAKERS)}",
        )
    _check_keys(
        table, {"kind": str, **maker.parameters}, required=maker.parameters.keys(), where=f"{where}, make ({kind})"
    )
    for key, value in table.items():
        if isinstance(value, int) and not 1 <= value <= _make.LARGEST:
            raise PageError(
                f"{key!r} is {value}", where=f"{where}, make ({kind})", next_step=f"Write 1 to {_make.LARGEST}"
            )
    return table


def _in_order(resources: list[ResourceSpec], where: str) -> tuple[ResourceSpec, ...]:
    """Sort so that the document is first and each resource stands behind the one it comes after."""
    by_key: dict[str, ResourceSpec] = {}
    for resource in resources:
        if resource.key in by_key:
            raise PageError(f"two resources are {resource.key}", where=where, next_step="Give each a path of its own")
        by_key[resource.key] = resource
    if "/" not in by_key:
        raise PageError("no resource has the path '/'", where=where, next_step="Add the page's document")
    for resource in resources:
        if resource.after and resource.after not in by_key:
            close = difflib.get_close_matches(resource.after, by_key, 1)
            raise PageError(
                f"'after' names the unknown resource {resource.after!r}",
                where=f"{where}, resource {resource.path}",
                next_step=f"Did you mean {close[0]!r}?" if close else f"Known: {', '.join(by_key)}",
            )
    placed: dict[str, ResourceSpec] = {}
    while len(placed) < len(resources):
        ready = [r for r in resources if r.key not in placed and (not r.after or r.after in placed)]
        if not ready:
            rest = [r.key for r in resources if r.key not in placed]
            raise PageError(
                f"the resources {', '.join(rest)} wait for each other",
                where=where,
                next_step="Break the cycle in their 'after' keys",
            )
        placed.update((r.key, r) for r in ready)
    return tuple(placed.values())
