"""Make a page from a web archive (WARC 1.1, ISO 28500) or from a folder that a browser saved.

Both are converted to HAR first.
"""

from __future__ import annotations

import base64
import io
import mimetypes
import re
import zlib
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from crosslayer.pages._errors import PageError
from crosslayer.pages._har import FromHar, page_of
from crosslayer.pages._recording import recording_of
from crosslayer.pages._references import base_of, named_in
from crosslayer.pages._spec import HOST
from crosslayer.pages._urls import parse

_SAVED_FROM = re.compile(rb"<!-- saved from url=\(\d+\)(\S+) -->")
_EPOCH = "1970-01-01T00:00:00+00:00"
_CODE = (".html", ".htm", ".xhtml", ".css", ".js", ".mjs")
_DOCUMENTS = (".html", ".htm", ".xhtml")
_SAVED_AGAIN = ".download"
"""Suffix that Chromium adds to the names of saved scripts."""


def from_warc(warc: Path, folder: Path, *, synthesise: bool = False) -> FromHar:
    """Make a page from a web archive: a folder like those in `sites/`, as `from_har` does.

    The initiator of a resource is the URL in the Referer field of its request. An archive has no load event, so all its
    responses belong to the page, in the order of the archive.

    Raises
    ------
    PageError
        As `from_har`, and if the file is no WARC.
    """
    from warcio.archiveiterator import ArchiveIterator  # here, because it would delay every command with pages

    left_out: Counter[str] = Counter()
    asked: dict[str, dict[str, Any]] = {}
    came: list[dict[str, Any]] = []
    try:
        content = warc.read_bytes()
    except OSError as error:
        raise PageError(f"cannot be read ({error.strerror})", where=str(warc), next_step="Name a WARC.") from error
    content = _plain(content, warc)
    if not content.startswith(b"WARC/"):
        what = "is an ARC, the format before WARC" if content.startswith(b"filedesc:") else "is no WARC"
        raise PageError(what, where=str(warc), next_step="Name a file that ends with .warc or .warc.gz.")
    try:
        for record in ArchiveIterator(io.BytesIO(content)):
            fields = record.rec_headers
            url = str(fields.get_header("WARC-Target-URI") or "").strip("<>")
            if record.rec_type == "request" and record.http_headers is not None:
                asked[url] = {"method": record.http_headers.protocol, "headers": _headers(record.http_headers)}
            elif record.rec_type == "response" and record.http_headers is not None:
                came.append(_response(record, url))
            elif record.rec_type in ("revisit", "resource"):
                left_out[f"{record.rec_type} records"] += 1
            _check_whole(record, warc)
    except PageError:
        raise
    except Exception as error:  # warcio does not catch exceptions of broken records
        raise PageError(
            f"is no WARC ({error or type(error).__name__})",
            where=str(warc),
            next_step="Name a file that ends with .warc or .warc.gz.",
        ) from error
    for number, entry in enumerate(came):
        entry["request"] |= asked.get(entry["request"]["url"], {})
        entry["startedDateTime"] = _after(_EPOCH, number)  # many archives have whole seconds only, so the order counts
    recording = recording_of({"log": {"entries": came}}, str(warc))
    return page_of(recording, warc, folder, synthesise=synthesise, timed=False, left_out=left_out)


def _plain(content: bytes, warc: Path) -> bytes:
    """Decompressed content of an archive; other content stays unchanged.

    A compressed archive has one gzip member for each record, as in the standard, or one for all records.
    """
    plain = []
    while content[:2] == b"\x1f\x8b":
        decoder = zlib.decompressobj(zlib.MAX_WBITS | 16)
        try:
            plain.append(decoder.decompress(content))
        except zlib.error as error:
            raise PageError(f"is no WARC ({error})", where=str(warc), next_step="Fetch the archive again.") from error
        if not decoder.eof:
            raise _truncated(warc)
        content = decoder.unused_data
    if plain and content.strip(b"\0"):
        raise PageError("has other data after its gzip records", where=str(warc), next_step="Fetch the archive again.")
    return b"".join(plain) if plain else content


def _check_whole(record: Any, warc: Path) -> None:
    """Raise `PageError` if the archive ends before the stated end of a record."""
    record.raw_stream.read()
    limited = getattr(record.raw_stream, "limit", 0)
    if limited:
        raise _truncated(warc)


def _truncated(warc: Path) -> PageError:
    return PageError(
        "is truncated: its last record is not whole", where=str(warc), next_step="Fetch the archive again."
    )


def _response(record: Any, url: str) -> dict[str, Any]:
    """HAR entry made from a response record of an archive."""
    headers = record.http_headers
    coded = record.raw_stream
    if "chunked" in (headers.get_header("Transfer-Encoding") or "").lower():
        from warcio.bufferedreaders import ChunkedDataReader

        coded = ChunkedDataReader(coded, decomp_type=None)
    wire = coded.read()
    encoding = (headers.get_header("Content-Encoding") or "").lower()
    body = _decoded(wire, encoding)
    content: dict[str, Any] = {"mimeType": headers.get_header("Content-Type") or "", "size": len(body or wire)}
    if body is not None:
        content |= {"text": base64.b64encode(body).decode("ascii"), "encoding": "base64"}
    status = headers.get_statuscode()
    return {
        "request": {"method": "GET", "url": url},
        "response": {
            "status": int(status) if status.isdigit() else 0,
            "headers": _headers(headers),
            "bodySize": len(wire),
            "content": content,
        },
    }


def _headers(http: Any) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in http.headers]


def _decoded(wire: bytes, encoding: str) -> bytes | None:
    """A body without its content coding; None if the coding is not supported or the data are invalid."""
    if encoding in ("", "identity"):
        return wire
    if encoding not in ("gzip", "deflate"):
        return None
    try:
        return zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(wire)  # gzip or zlib, according to its header
    except zlib.error:
        return None


def _after(begin: str, number: int) -> str:
    """Time that is `number` ms after `begin`, both in ISO 8601."""
    return (datetime.fromisoformat(begin) + timedelta(milliseconds=number)).isoformat()


def from_folder(saved: Path, folder: Path, *, host: str = "", synthesise: bool = False) -> FromHar:
    """Make a page, i.e. a folder like those in `sites/`, from the folder in which a browser saved a page.

    The document is `index.html`, or the only document of the folder. The search for references starts at the document.
    The initiator of a file is the first file with a reference to it. Files without an initiator are left out. The copy
    serves all files uncompressed from one host, because a saved page records neither other hosts nor sizes on the wire.

    Parameters
    ----------
    host
        Name of the page's host; by default the host of the page's URL, which the browser wrote into the document
        ("saved from url").

    Raises
    ------
    PageError
        As `from_har`, and if the folder has no unique document or its host is unknown.
    """
    document = _document(saved)
    try:
        noted = _SAVED_FROM.search(document.read_bytes()[:4096])
        host = host or (noted and urlsplit(noted[1].decode("ascii", "replace")).hostname) or ""
        if not HOST.fullmatch(host):
            raise PageError(
                f"its host is {host!r}" if host else "does not name its host",
                where=str(document),
                next_step="Name its host: --host www.example.org.",
            )
        base = f"https://{host}/"
        files = {
            str(parse(base + quote(file.relative_to(saved).as_posix()))): file
            for file in sorted(saved.rglob("*"))
            if file.is_file() and not file.is_symlink() and file != document
        }
        named = _named(base, document, files)
        entries = [_saved(url, file, by, number) for number, (url, (file, by)) in enumerate(named.items())]
    except OSError as error:
        raise PageError(
            f"cannot be read ({error.strerror})", where=str(error.filename or saved), next_step="Save the page again."
        ) from error
    left_out = {"files that nothing names": len(files) + 1 - len(named)} if len(named) <= len(files) else {}
    recording = recording_of({"log": {"entries": entries}}, str(saved))
    return page_of(recording, saved, folder, synthesise=synthesise, timed=False, left_out=left_out)


def _document(saved: Path) -> Path:
    """The document of a saved folder; `PageError` if there is no document, or no unique one."""
    if not saved.is_dir():
        what = "is a file, not a folder" if saved.exists() else "is not there"
        raise PageError(
            what,
            where=str(saved),
            next_step="Name the folder in which a browser saved a page, with its document in it.",
        )
    there = sorted(file for file in saved.glob("*") if file.suffix.lower() in _DOCUMENTS)
    for file in there:
        if file.stem == "index" or len(there) == 1:
            return file
    raise PageError(
        "has no document" if not there else f"has {len(there)} documents",
        where=str(saved),
        next_step="Name the folder in which a browser saved a page, its document among the files, as index.html.",
    )


def _named(base: str, document: Path, files: dict[str, Path]) -> dict[str, tuple[Path, str]]:
    """The document and the files that it refers to, directly or via other files, in the order of discovery.

    The keys are the URLs of the files. Each value has the file and the URL of its initiator.
    """
    named: dict[str, tuple[Path, str]] = {base: (document, "")}
    text = document.read_text(encoding="utf-8", errors="replace")
    # A script's references are relative to the document, a style sheet's to itself.
    document_base = parse(base_of(text), parse(base)) or parse(base)
    for url in (todo := [base]):  # grows during the loop
        file = named[url][0]
        style = _name_of(file).suffix.lower() == ".css"
        of = parse(url) if style else document_base
        for reference in named_in(file.read_text(encoding="utf-8", errors="replace"), style=style):
            target = parse(reference, of)
            if target is not None and (key := target.address) in files and key not in named:
                named[key] = files[key], url
                if _name_of(files[key]).suffix.lower() in _CODE:
                    todo.append(key)
    return named


def _name_of(file: Path) -> Path:
    """Path of a file without the suffix that Chromium added when it saved the file."""
    return file.with_suffix("") if file.suffix == _SAVED_AGAIN else file


def _saved(url: str, file: Path, by: str, number: int) -> dict[str, Any]:
    """HAR entry made from a saved file; `by` is the URL of its initiator."""
    body = file.read_bytes()
    mime = mimetypes.guess_type(_name_of(file).name)[0] or "application/octet-stream"
    content = {
        "mimeType": mime,
        "size": len(body),
        "text": base64.b64encode(body).decode("ascii"),
        "encoding": "base64",
    }
    headers = [{"name": "Referer", "value": by}] if by else []
    return {
        "startedDateTime": _after(_EPOCH, number),
        "request": {"method": "GET", "url": url, "headers": headers},
        "response": {"status": 200, "headers": [], "bodySize": len(body), "content": content},
    }
