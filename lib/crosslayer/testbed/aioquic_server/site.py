"""HTTP responses of the built pages, in memory, by host name and path.

The responses are read from the manifests of the pages, which the testbed's first server (`testbed.server`) reads too.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from crosslayer.decode import checked, read_json
from crosslayer.pages import normal_path
from crosslayer.testbed.errors import TestbedError

_BUILD = "Build the pages again: remove build/sites."


@dataclass(frozen=True, slots=True)
class _PageResource:
    path: str
    file: str
    content_type: str
    wire_bytes: int
    host: str | None = None
    content_encoding: str | None = None


@dataclass(frozen=True, slots=True)
class _Manifest:
    host: str
    resources: tuple[_PageResource, ...]
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SiteResponse:
    """A response, ready to send."""

    headers: tuple[tuple[str, str], ...]
    body: bytes


Site = dict[str, dict[str, SiteResponse]]
"""Responses by host name in lower case, and by path in normal form."""


def load_site(folder: Path) -> Site:
    """Read every built page below a folder.

    `TestbedError` names a manifest that cannot be read, or a file whose size differs from the manifest.
    """
    site: Site = {}
    manifests = sorted(folder.glob("*/manifest.json"))
    if not manifests:
        raise TestbedError("has no PAGE/manifest.json", where=str(folder), next_step=_BUILD)
    for file in manifests:
        page = checked(
            read_json(file, TestbedError, _BUILD),
            _Manifest,
            where=str(file),
            error=TestbedError,
            next_step=_BUILD,
            foreign_keys=True,
            json_file=True,
        )
        for resource in page.resources:
            path = file.parent / resource.file
            body = path.read_bytes()
            if len(body) != resource.wire_bytes:
                raise TestbedError(
                    f"has {len(body)} bytes, not {resource.wire_bytes}", where=str(path), next_step=_BUILD
                )
            headers = headers_for(resource.content_type, len(body), resource.content_encoding or "")
            if resource.host:
                headers = (*headers, ("access-control-allow-origin", "*"))
            for host in [resource.host] if resource.host else [page.host, *page.aliases]:
                site.setdefault(host.lower(), {})[normal_path(resource.path)] = SiteResponse(headers, body)
    return site


def headers_for(content_type: str, length: int, encoding: str = "") -> tuple[tuple[str, str], ...]:
    """Header fields of a response. They forbid caching, so that each load requests every resource again."""
    fields = (
        ("content-type", content_type),
        ("content-length", str(length)),
        ("cache-control", "no-store"),
        ("timing-allow-origin", "*"),
    )
    return (*fields, ("content-encoding", encoding)) if encoding else fields
