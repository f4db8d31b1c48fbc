"""Page specifications: read `page.toml` and check every key. Each error tells the user what to do next."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from msgspec import Meta

from crosslayer import resources
from crosslayer.decode import FieldError, checked, read_toml
from crosslayer.pages._errors import PageError
from crosslayer.pages._urls import normal_path

SPEC_FILE = "page.toml"
WARMUP = "warmup"
"""Name of the page that is loaded before the measured page."""

CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".webp": "image/webp",
    ".ttf": "font/ttf",
    ".woff2": "font/woff2",
}
"""Content type by suffix of the source file, without `.gz`; for other suffixes, `content_type` is required."""
_COMPRESSED = ("image/png", "image/jpeg", "image/webp", "font/woff2")
"""Content types that are already compressed, so that `encoding` is `identity` by default."""

HOST = re.compile(r"(?=.{1,253}$)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
_README = "sites/README.md explains every key."

HOSTS_MOST = 200
"""Maximum number of host names of a page. The testbed has 254 addresses, and other pages need some of them."""

Bytes = Annotated[int, Meta(ge=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceSpec:
    """One resource of a page: a `[[resource]]` of its specification."""

    path: str
    """Path of the URL, starting with `/`."""
    source: str
    """File with the body, in the page's folder; a file that ends in `.gz` is sent unchanged as compressed body."""
    wire_bytes: Bytes
    """Exact length of the body on the wire, after compression, in bytes."""
    origin: str = ""
    """Host name that serves the resource; empty for the page's own host and its aliases."""
    after: str = ""
    """Key of the resource whose arrival makes the browser request this one; empty for the document."""
    content_type: str = ""
    """Value of the `content-type` field."""
    encoding: Literal["", "gzip", "identity"] = ""
    """`gzip` if the resource is sent compressed, else `identity`."""
    plain_bytes: Bytes | None = None
    """Exact length before compression, in bytes; None if it is not prescribed."""
    sha256: str = ""
    """SHA-256 that the source must have (for vendored code), as lower-case hex; empty if none is prescribed."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"/[!-~]*", self.path) or "#" in self.path:
            raise FieldError(f"is {self.path!r}", key="path", next_step="Write the path of the URL, starting with /.")
        document = self.path == "/" and not self.origin
        if document and self.after:
            raise FieldError("is set for the document", key="after", next_step="Remove it: the document comes first.")
        if not re.fullmatch(r"([0-9a-f]{64})?", self.sha256):
            raise FieldError("is not 64 lower-case hex digits", key="sha256", next_step="Take it from sha256sum.")
        kept = self.source.endswith(".gz")
        if kept and self.encoding == "identity":
            raise FieldError(f"is 'identity', but {self.source} is compressed", key="encoding", next_step="Remove it.")
        content_type = self.content_type or CONTENT_TYPES.get(PurePosixPath(self.source.removesuffix(".gz")).suffix)
        if not content_type:
            raise FieldError("is not known from the name of 'source'", key="content_type", next_step="State it.")
        compress = kept or content_type not in _COMPRESSED
        defaults = {
            "after": self.after if document else self.after or "/",
            "content_type": content_type,
            "encoding": self.encoding or ("gzip" if compress else "identity"),
        }
        for name, value in defaults.items():
            object.__setattr__(self, name, value)

    @property
    def key(self) -> str:
        """Name of this resource in `after` of other resources: its path, or its URL if it has an `origin`."""
        return f"https://{self.origin}{self.path}" if self.origin else self.path


@dataclass(frozen=True, slots=True)
class PageSpec:
    """One page under test, as its `page.toml` states it."""

    name: str
    """Name of the page and of its folder, e.g. `example.org`."""
    title: str
    """Description of the page, one line."""
    host: str
    """Host name of the page."""
    aliases: tuple[str, ...]
    """Further host names that serve the same resources; a priming load can use one of them instead of `host`."""
    origins: tuple[str, ...]
    """Other host names that serve resources of the page."""
    resources: tuple[ResourceSpec, ...]
    """Every resource. The document (`/`) is first, and each resource follows the one that it names in `after`."""
    folder: Path
    """Folder of the specification."""

    @property
    def wire_bytes(self) -> int:
        """Size of all bodies on the wire, in bytes."""
        return sum(resource.wire_bytes for resource in self.resources)

    @property
    def lookups(self) -> int:
        """Number of DNS lookups of a load without cached addresses: one for each host name."""
        return len(self.looked_up)

    @property
    def looked_up(self) -> tuple[str, ...]:
        """Every host name that a load looks up: the page's own and the other origins."""
        return (self.host, *self.origins)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Every host name that needs an address: the page's own, the aliases and the other origins."""
        return (self.host, *self.aliases, *self.origins)


@dataclass(frozen=True, slots=True)
class _PageFile:
    """The keys of a `page.toml`."""

    title: str
    host: str
    resource: tuple[dict[str, Any], ...]
    aliases: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for key, hosts in (("host", [self.host]), ("aliases", self.aliases), ("origins", self.origins)):
            for host in hosts:
                if not HOST.fullmatch(host):
                    raise FieldError(
                        f"has {host!r}", key=key, next_step="Write host names in lower case, like www.example.org."
                    )
        if len({self.host, *self.aliases, *self.origins}) != 1 + len(self.aliases) + len(self.origins):
            raise FieldError(
                "a host name occurs twice in 'host', 'aliases' and 'origins'", next_step="Name each host once."
            )
        if 1 + len(self.aliases) + len(self.origins) > HOSTS_MOST:
            raise FieldError(
                f"names {len(self.origins)} hosts", key="origins", next_step=f"A page may have {HOSTS_MOST} host names."
            )


def find_spec_dir() -> Path:
    """Folder of the page specifications; raises `resources.ResourceError` if there is no such folder."""
    return resources.locate("sites").path


def own_pages(path: Path) -> tuple[Path, ...]:
    """Folders of all pages in `path`, a folder of the user; only `path` if it is itself a page.

    Raises
    ------
    PageError
        If there is no page.
    """
    folders = (
        (path,) if (path / SPEC_FILE).is_file() else tuple(file.parent for file in sorted(path.glob(f"*/{SPEC_FILE}")))
    )
    if not folders:
        raise PageError(
            "is neither a page nor a folder of pages",
            where=str(path),
            next_step=f"Add a {SPEC_FILE}, see sites/README.md",
        )
    return tuple(folder.resolve() for folder in folders)


def load_pages(spec_dir: Path, *own: Path) -> dict[str, PageSpec]:
    """Read and check every page specification.

    Parameters
    ----------
    spec_dir
        Folder with one folder per page, each with a `page.toml`. Folders whose name begins with a dot or underscore
        are ignored.
    *own
        Further folders, each of which is the folder of one page. A page of `spec_dir` that shares a host name with one
        of these pages is left out, because a name has only one server. `warmup` is never left out, because it is loaded
        with every page.

    Returns
    -------
    dict
        Pages by name, in the order of their names.

    Raises
    ------
    PageError
        For the first fault; the message names the file and the key, and tells the user what to do next.
    """
    try:
        folders = sorted(entry for entry in Path(spec_dir).iterdir() if entry.is_dir() and entry.name[0] not in "._")
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
    for folder in own:
        if folder.name in pages:
            raise PageError("is the name of another page", where=str(folder), next_step="Rename the folder")
        pages[folder.name] = _load_page(folder)
    ours = {folder.name for folder in own}
    taken = {host for name in ours for host in pages[name].hosts}
    left = {
        name: page for name, page in pages.items() if name in ours or name == WARMUP or taken.isdisjoint(page.hosts)
    }
    _check_hosts(left.values())
    return left


def _check_hosts(pages: Iterable[PageSpec]) -> None:
    owners: dict[str, str] = {}
    for page in pages:
        for host in page.hosts:
            if host in owners:
                raise PageError(
                    f"host name {host!r} is already used by page {owners[host]}",
                    where=str(page.folder / SPEC_FILE),
                    next_step="Each host name has an address of its own: choose another name",
                )
            owners[host] = page.name


def _load_page(folder: Path) -> PageSpec:
    file = folder / SPEC_FILE
    if not file.exists():
        raise PageError(
            f"the page has no {SPEC_FILE}",
            where=str(folder),
            next_step="Add one (see sites/README.md) or remove the folder",
        )
    page = checked(read_toml(file, PageError), _PageFile, where=str(file), error=PageError, next_step=_README)
    resources = [_load_resource(entry, number, folder, page.origins) for number, entry in enumerate(page.resource)]
    # A host name without resources is never looked up, but `lookups` would count it.
    for origin in page.origins:
        if all(resource.origin != origin for resource in resources):
            raise PageError(
                f"has {origin!r}, from which no resource comes",
                where=f"{file}, key 'origins'",
                next_step="Remove it, or give a resource this 'origin'",
            )
    return PageSpec(
        name=folder.name,
        title=page.title,
        host=page.host,
        aliases=page.aliases,
        origins=page.origins,
        resources=_in_order(resources, str(file)),
        folder=folder,
    )


def _load_resource(entry: dict[str, Any], number: int, folder: Path, origins: Collection[str]) -> ResourceSpec:
    where = f"{folder / SPEC_FILE}, resource {entry.get('path', number)}"
    resource = checked(entry, ResourceSpec, where=where, error=PageError, next_step=_README)
    if "origin" in entry and resource.origin not in origins:
        raise PageError(
            f"names the unknown origin {resource.origin!r}",
            where=f"{where}, key 'origin'",
            next_step="Add the host name to 'origins' at the top of the file",
        )
    source = folder / resource.source
    try:
        inside, is_file = source.resolve().is_relative_to(folder.resolve()), source.is_file()
    except (OSError, ValueError, RuntimeError) as error:  # too long; NUL; a loop of symbolic links
        reason = (
            error.strerror
            if isinstance(error, OSError)
            else "its name has a null byte"
            if "\0" in resource.source
            else error
        )
        raise PageError(
            f"cannot be opened ({reason})", where=f"{where}, key 'source'", next_step="Name a file of the page's folder"
        ) from error
    if not inside:
        raise PageError(
            f"{resource.source!r} leaves the page's folder",
            where=f"{where}, key 'source'",
            next_step="Keep a page's content in its folder",
        )
    if not is_file:
        raise PageError(
            f"names the missing file {resource.source!r}",
            where=f"{where}, key 'source'",
            next_step=f"Add it to {folder} or correct the name",
        )
    return resource


def _in_order(resources: list[ResourceSpec], where: str) -> tuple[ResourceSpec, ...]:
    """Sort so that the document is first and each resource follows the one that it names in `after`."""
    by_key: dict[str, ResourceSpec] = {}
    normal: set[tuple[str, str]] = set()
    for resource in resources:
        served = (resource.origin, normal_path(resource.path))
        if served in normal:
            raise PageError(f"two resources are {resource.key}", where=where, next_step="Give each a path of its own")
        normal.add(served)
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
