"""From the page specifications, build the files that the server sends: offline and reproducibly.

A page is built again only if its sources changed.
"""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import json
import shutil
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from crosslayer.pages import _wire
from crosslayer.pages._errors import PageError
from crosslayer.pages._spec import SPEC_FILE, PageSpec, ResourceSpec

MANIFEST = "manifest.json"
_DIGEST = "sources_sha256"


@dataclass(frozen=True, slots=True)
class BuiltResource:
    """A resource as the server sends it."""

    path: str
    """Path of the URL."""
    host: str
    """Host name that serves the resource; empty for the page's own host and its aliases."""
    after: str
    """`ResourceSpec.key` of the resource that makes the browser request this one; empty for the document."""
    file: Path
    """File that holds exactly the body's bytes."""
    content_type: str
    """Value of the `content-type` field."""
    content_encoding: str
    """Value of the `content-encoding` field; empty if there is none."""
    wire_bytes: int
    """Length of the body, in bytes."""


@dataclass(frozen=True, slots=True)
class BuiltPage:
    """One page ready to be served."""

    spec: PageSpec
    """Specification from which the page was built."""
    folder: Path
    """Folder with the page's manifest and bodies."""
    resources: tuple[BuiltResource, ...]
    """Every body, in the order of the specification's resources."""


def build(specs: Mapping[str, PageSpec], out_dir: Path) -> dict[str, BuiltPage]:
    """Build every page into `out_dir`, one folder per page.

    A page with unchanged sources is not built again. The folder of a built page without a specification is removed.
    Several processes may build at the same time.

    Parameters
    ----------
    specs
        Pages by name, as `load_pages` returns them.
    out_dir
        Folder that the server reads; created if it is missing.

    Returns
    -------
    dict
        Built pages by name.

    Raises
    ------
    PageError
        If a body cannot be brought to its stated size, or `out_dir` cannot be written.
    """
    built = {name: _paths(page, out_dir / name) for name, page in specs.items()}
    try:
        out_dir.mkdir(parents=True, exist_ok=True)
        with _locked(out_dir):
            for page in built.values():
                _build_page(page)
            for folder in _without_spec(specs, out_dir):
                shutil.rmtree(folder)
    except OSError as error:
        raise PageError(
            f"cannot build the pages ({error.strerror})",
            where=str(error.filename or out_dir),
            next_step="Free disk space, or choose an output folder you may write to",
        ) from error
    return built


def is_built(specs: Mapping[str, PageSpec], out_dir: Path) -> bool:
    """Whether `out_dir` has exactly these pages, built from their present sources. Nothing is written."""
    built = (_paths(page, out_dir / name) for name, page in specs.items())
    return all(_is_current(page, _source_digest(page.spec)) for page in built) and not any(
        _without_spec(specs, out_dir)
    )


def _without_spec(specs: Mapping[str, PageSpec], out_dir: Path) -> Iterator[Path]:
    """Yield the folders of built pages that have no specification."""
    for manifest in out_dir.glob(f"*/{MANIFEST}"):
        if manifest.parent.name not in specs and _digest_in(manifest):
            yield manifest.parent


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _paths(page: PageSpec, folder: Path) -> BuiltPage:
    return BuiltPage(page, folder, tuple(_built_resource(r, n, folder) for n, r in enumerate(page.resources)))


def _is_current(page: BuiltPage, digest: str) -> bool:
    return _digest_in(page.folder / MANIFEST) == digest and all(
        r.file.is_file() and r.file.stat().st_size == r.wire_bytes for r in page.resources
    )


def _build_page(built: BuiltPage) -> None:
    page, folder = built.spec, built.folder
    digest = _source_digest(page)
    if folder.exists() and not _digest_in(folder / MANIFEST):
        raise PageError(
            "is not a page built by crosslayer and will not be overwritten",
            where=str(folder),
            next_step="Remove it or choose another output folder",
        )
    if _is_current(built, digest):
        return

    # Neither a server nor the next build may find an incomplete page.
    partial = folder.parent / ".partial" / page.name
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for number, resource in enumerate(page.resources):
        file = partial / _body_name(number)
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(_body(page, resource))
    manifest = _manifest(built, digest)
    (partial / MANIFEST).write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)


def _body_name(number: int) -> str:
    return f"body/{number}"


def _built_resource(resource: ResourceSpec, number: int, folder: Path) -> BuiltResource:
    return BuiltResource(
        path=resource.path,
        host=resource.origin,
        after=resource.after,
        file=folder / _body_name(number),
        content_type=resource.content_type,
        content_encoding="gzip" if resource.encoding == "gzip" else "",
        wire_bytes=resource.wire_bytes,
    )


def _manifest(built: BuiltPage, digest: str) -> dict[str, Any]:
    page = built.spec
    return {
        "page": page.name,
        "title": page.title,
        "host": page.host,
        "aliases": list(page.aliases),
        "origins": list(page.origins),
        "resources": [
            {
                "path": r.path,
                "file": r.file.relative_to(built.folder).as_posix(),
                "content_type": r.content_type,
                "content_encoding": r.content_encoding,
                "wire_bytes": r.wire_bytes,
                "after": r.after,
                **({"host": r.host} if r.host else {}),
            }
            for r in built.resources
        ],
        _DIGEST: digest,
    }


def _source_digest(page: PageSpec) -> str:
    """SHA-256 over the page's specification and sources and the code of this package."""
    digest = hashlib.sha256()
    for file in (page.folder / SPEC_FILE, *(page.folder / r.source for r in page.resources)):
        digest.update(_content(file))
    digest.update(_code())
    return digest.hexdigest()


@cache
def _code() -> bytes:
    """Content of all modules of this package."""
    return b"".join(_content(file) for file in sorted(Path(__file__).parent.glob("*.py")))


def _content(file: Path) -> bytes:
    content = file.read_bytes()
    return f"{file.name}\0{len(content)}\0".encode() + content


def _digest_in(manifest: Path) -> str:
    """Digest of a page's sources that its manifest states; empty if there is no manifest of crosslayer."""
    try:
        value = json.loads(manifest.read_text(encoding="utf-8"))[_DIGEST]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return str(value)


def _body(page: PageSpec, resource: ResourceSpec) -> bytes:
    """Body of one resource, exactly `wire_bytes` long."""
    where = f"{page.folder / SPEC_FILE}, resource {resource.path}"
    content = (page.folder / resource.source).read_bytes()
    if resource.sha256 and hashlib.sha256(content).hexdigest() != resource.sha256:
        raise PageError(
            f"{resource.source} is not the file whose 'sha256' is stated",
            where=where,
            next_step="Put the vendored file back, or state the SHA-256 of the new one and check its licence",
        )
    kept = resource.source.endswith(".gz")
    try:
        plain = gzip.decompress(content) if kept else content
    except (OSError, EOFError, zlib.error) as error:
        raise PageError(
            f"{resource.source} is no whole gzip file ({error})", where=where, next_step="Put the file back"
        ) from error
    if resource.plain_bytes is not None and len(plain) != resource.plain_bytes:
        raise PageError(
            f"the content has {len(plain)} bytes, 'plain_bytes' states {resource.plain_bytes}",
            where=where,
            next_step=f"Change the content by {resource.plain_bytes - len(plain):+d} bytes",
        )
    if resource.encoding == "gzip" and not kept:
        return _wire.fitted(content, resource.wire_bytes, where=where)
    if len(content) != resource.wire_bytes:
        raise PageError(
            f"the content has {len(content)} bytes, 'wire_bytes' states {resource.wire_bytes}",
            where=where,
            next_step=f"Change the content (or 'wire_bytes') so that it has exactly {resource.wire_bytes} bytes",
        )
    return content
