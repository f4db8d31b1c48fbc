"""Make a page from a HAR 1.2: the same requests, weights and order of discovery, but no cookies and credentials."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from crosslayer.pages._bodies import write_bodies
from crosslayer.pages._build import build
from crosslayer.pages._cold_load import ColdLoad, cold_load
from crosslayer.pages._errors import PageError
from crosslayer.pages._fetches import Fetch, fetches_of
from crosslayer.pages._recording import Recording, read_recording
from crosslayer.pages._spec import HOSTS_MOST, SPEC_FILE, load_pages

RECORDED = "recorded.json"
"""File in the page's folder with the recorded load event and requests; times are ms after the first request."""


@dataclass(frozen=True, slots=True)
class FromHar:
    """Summary of a page that was made from a recording."""

    folder: Path
    """Folder of the page."""
    resources: int
    hosts: int
    wire_bytes: int
    """Bytes of all bodies on the wire."""
    code: str
    """Text that says that documents, style sheets and scripts are as recorded, or why they are synthesised."""
    synthesised: bool
    """Whether documents, style sheets and scripts are synthesised."""
    left_out: Mapping[str, int]
    """Number of requests that the page does not make, by reason."""
    private: Mapping[str, int]
    """Number of requests whose private data were not copied, by kind: cookies, credentials, values in URLs."""
    others: tuple[str, ...] = ()
    """One text for each other page of the recording: the page's number, its URL and its number of requests."""
    notes: tuple[str, ...] = ()
    """Differences from the recording, as sentences without a full stop."""

    def __str__(self) -> str:
        resources = "1 resource" if self.resources == 1 else f"{self.resources} resources"
        hosts = "1 host name" if self.hosts == 1 else f"{self.hosts} host names"
        lines = [
            f"{self.folder}: {resources} from {hosts}, {self.wire_bytes:,} bytes",
            f"  code: {self.code}",
        ]
        for title, counts in (("left out", self.left_out), ("private, not taken over", self.private)):
            if counts:
                lines.append(f"  {title}: " + ", ".join(f"{n} {what}" for what, n in counts.items()))
        if self.others:
            lines.append(f"  other pages of the recording (--page): {'; '.join(self.others)}")
        lines += [f"  {note}" for note in self.notes]
        return "\n".join(lines)


def from_har(har: Path, folder: Path, *, synthesise: bool = False, page: int = 1) -> FromHar:
    """Make a page from a HAR: a folder like those in `sites/`.

    Parameters
    ----------
    har
        Export of a browser, proxy or test tool, also in gzip or ZIP.
    folder
        Folder of the new page, named like the page; it must not exist.
    synthesise
        Whether to synthesise documents, style sheets and scripts even if the HAR has them. The page then contains no
        recorded text.
    page
        Number of the page in the recording. Pages that have a document are counted from 1 in the order of their start.

    Returns
    -------
    FromHar
        Summary of the page and of what was left out.

    Raises
    ------
    PageError
        If the file is no HAR, the HAR has no such page, or the testbed cannot serve the page. Also if the folder
        exists, has no valid name or cannot be written. No folder is left behind.
    """
    return page_of(read_recording(har), har, folder, synthesise=synthesise, page=page)


def page_of(
    recording: Recording,
    source: Path,
    folder: Path,
    *,
    synthesise: bool,
    page: int = 1,
    timed: bool = True,
    left_out: Mapping[str, int] | None = None,
) -> FromHar:
    """Make a page from a recording, as `from_har` does.

    `source` is the file or folder of the recording. `left_out` has the number of requests that were left out earlier,
    by reason. If `timed` is False, the recorded times have no meaning except their order.
    """
    if folder.exists():
        raise PageError("exists already", where=str(folder), next_step="Name a new folder.")
    if not folder.name or folder.name[0] in "._":
        raise PageError("is not the name of a page", where=str(folder), next_step="Begin it with a letter or a digit.")
    load = cold_load(recording, str(source), page)
    requests = fetches_of(load, str(source))
    code = write_bodies(requests, load, synthesise=synthesise)
    fetches = requests.fetches
    _write(folder, fetches, load, source, timed=timed)
    return FromHar(
        folder=folder,
        resources=len(fetches),
        hosts=len({fetch.host for fetch in fetches}),
        wire_bytes=sum(fetch.wire_bytes for fetch in fetches),
        code=code,
        synthesised=code.startswith("synthesised"),
        left_out={what: n for what, n in {**(left_out or {}), **load.left_out}.items() if n},
        private=_private(fetches),
        others=load.others,
        notes=tuple(requests.notes),
    )


def _write(folder: Path, fetches: list[Fetch], load: ColdLoad, source: Path, *, timed: bool) -> None:
    """Write the folder of the page.

    The folder is written under a temporary name. It is renamed after a test build of the page has succeeded.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".crosslayer-") as temporary:
            written = Path(temporary, "sites", folder.name)
            written.mkdir(parents=True)
            for fetch in fetches:
                (written / fetch.name).write_bytes(fetch.body)
            (written / SPEC_FILE).write_text(_toml(fetches, source), encoding="utf-8")
            (written / RECORDED).write_text(_recorded(fetches, load, timed), encoding="utf-8")
            build(load_pages(written.parent), Path(temporary, "built"))
            written.rename(folder)
    except OSError as error:
        raise PageError(
            f"cannot be written ({error.strerror})", where=str(folder), next_step="Name another folder."
        ) from error


def _toml(fetches: list[Fetch], source: Path) -> str:
    document = fetches[0]
    origins = list(dict.fromkeys(fetch.host for fetch in fetches if fetch.host != document.host))
    # Browsers store tickets by the site of the document. After a load of an alias on another site, the page therefore
    # finds no tickets of its other hosts.
    aliases = [f"{document.host}.alias-{n}.test" if origins else f"alias-{n}.{document.host}" for n in (1, 2)]
    if len(aliases[0]) > 253 - len(document.host):
        aliases = [f"alias-{n}.test" for n in (1, 2)]
    if 1 + len(aliases) + len(origins) > HOSTS_MOST:
        aliases = []
    lines = [
        f"# Made from {json.dumps(source.name)} by `crosslayer page`.",
        f"title = {json.dumps(f'A recorded page of {document.host}')}",
        f"host = {json.dumps(document.host)}",
        f"aliases = {json.dumps(aliases)}",
        f"origins = {json.dumps(origins)}",
    ]
    for fetch in fetches:
        lines += [
            "",
            "[[resource]]",
            f"path = {json.dumps(fetch.path)}",
            *([f"origin = {json.dumps(fetch.host)}"] if fetch.host != document.host else []),
            f"source = {json.dumps(fetch.name)}",
            f"wire_bytes = {fetch.wire_bytes}",
            f"content_type = {json.dumps(fetch.content_type)}",
            f'encoding = "{fetch.encoding}"',
        ]
        if fetch.initiator and fetch.initiator is not document:
            lines.append(f"after = {json.dumps(fetch.initiator.reference(document.host))}")
    return "\n".join(lines) + "\n"


def _recorded(fetches: list[Fetch], load: ColdLoad, timed: bool) -> str:
    """Content of `RECORDED`: the load event, and the URL, start and weight of each request.

    The weight is that of the body in the copy, which may differ from the recorded weight. Times are null if they are
    unknown.
    """
    begin = fetches[0].resource.entry.started_ms
    requests = [
        {
            "url": fetch.url,
            "start_ms": round(fetch.resource.entry.started_ms - begin, 3) if timed else None,
            "wire_bytes": fetch.wire_bytes,
        }
        for fetch in fetches
    ]
    load_ms = None if load.load_ms is None else round(load.load_ms - begin, 3)
    return json.dumps({"load_ms": load_ms, "requests": requests}, indent=1) + "\n"


def _private(fetches: list[Fetch]) -> dict[str, int]:
    entries = [fetch.resource.entry for fetch in fetches]
    counts = {
        "headers with cookies": sum("cookie" in entry.sent for entry in entries),
        "headers with credentials": sum("authorization" in entry.sent for entry in entries),
        "URLs with a query": sum(bool(fetch.resource.url.query) for fetch in fetches),
        "URLs with a user name": sum("@" in entry.url.partition("://")[2].partition("/")[0] for entry in entries),
    }
    return {what: n for what, n in counts.items() if n}
