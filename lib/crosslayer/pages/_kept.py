"""A page from a web archive (WARC 1.1, ISO 28500), or from a folder that a browser saved: both become a HAR first."""

from __future__ import annotations

import base64
import html
import mimetypes
import re
import zlib
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urljoin, urlsplit

from warcio.archiveiterator import ArchiveIterator
from warcio.bufferedreaders import ChunkedDataReader

from crosslayer.pages._errors import PageError
from crosslayer.pages._har import FromHar, page_of
from crosslayer.pages._spec import HOST

_SAVED_FROM = re.compile(rb"<!-- saved from url=\(\d+\)(\S+) -->")
_NAMED = re.compile(r"""["'(=]\s*([^"'()<>\s]+)""")
_EPOCH = "1970-01-01T00:00:00+00:00"
_CODE = (".html", ".htm", ".css", ".js", ".mjs")


def from_warc(warc: Path, folder: Path, *, made: bool = False) -> FromHar:
    """Write the page that a web archive has as a folder of `sites/`, as `from_har` does.

    What had a resource fetched is its referrer. An archive has no load event, so all that is in it belongs to the page,
    in the order of the archive.

    Raises
    ------
    PageError
        As `from_har`; for a file that is no WARC.
    """
    left_out: Counter[str] = Counter()
    asked: dict[str, dict[str, Any]] = {}
    came: list[dict[str, Any]] = []
    try:
        with warc.open("rb") as stream:
            for record in ArchiveIterator(stream):
                told = record.rec_headers
                url = str(told.get_header("WARC-Target-URI") or "").strip("<>")
                if record.rec_type == "request" and record.http_headers is not None:
                    asked[url] = {"method": record.http_headers.protocol, "headers": _headers(record.http_headers)}
                elif record.rec_type == "response" and record.http_headers is not None:
                    came.append(_response(record, url))
                elif record.rec_type in ("revisit", "resource"):
                    left_out[f"{record.rec_type} records"] += 1
    except OSError as error:
        raise PageError(f"cannot be read ({error.strerror})", where=str(warc), next_step="Name a WARC.") from error
    except Exception as error:  # warcio lets through whatever a broken record makes it stumble over
        raise PageError(
            f"is no WARC ({error or type(error).__name__})",
            where=str(warc),
            next_step="Name a file that ends with .warc or .warc.gz.",
        ) from error
    for place, entry in enumerate(came):
        entry["request"] |= asked.get(entry["request"]["url"], {})
        entry["startedDateTime"] = _after(_EPOCH, place)  # archives have seconds at best; their order tells
    return page_of({"log": {"entries": came}}, warc, folder, made=made, timed=False, left_out=left_out)


def _response(record: Any, url: str) -> dict[str, Any]:
    """An entry of a HAR from a response record."""
    headers = record.http_headers
    coded = record.raw_stream
    if "chunked" in (headers.get_header("Transfer-Encoding") or "").lower():
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


def _headers(told: Any) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in told.headers]


def _decoded(wire: bytes, encoding: str) -> bytes | None:
    """A body without its content coding; None of one that is not known here, or does not hold."""
    if encoding in ("", "identity"):
        return wire
    if encoding not in ("gzip", "deflate"):
        return None
    try:
        return zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(wire)  # either by its header
    except zlib.error:
        return None


def _after(begin: str, place: int) -> str:
    """A time so many ms after another."""
    return (datetime.fromisoformat(begin) + timedelta(milliseconds=place)).isoformat()


def from_folder(saved: Path, folder: Path, *, host: str = "", made: bool = False) -> FromHar:
    """Write the page that a browser saved with all its files as a folder of `sites/`, as `from_har` does.

    The document is `index.html`, or the only one of the folder. What had a file fetched is the first of document, style
    sheets and scripts that names it, looked at in that order; what nothing names is left out. All comes from one host,
    uncompressed, with the files' bytes: a saved page knows neither the others nor what went over the network.

    Parameters
    ----------
    host
        Name of the page's host; else what the browser noted in the document ("saved from url").

    Raises
    ------
    PageError
        As `from_har`; for a folder without a document, and where nobody says its host.
    """
    document = _document(saved)
    try:
        noted = _SAVED_FROM.search(document.read_bytes()[:4096])
        host = host or (noted and urlsplit(noted[1].decode("ascii", "replace")).hostname) or ""
        if not HOST.fullmatch(host):
            raise PageError(
                f"its host is {host!r}" if host else "does not say where it was saved from",
                where=str(document),
                next_step="Name its host: --host www.example.org.",
            )
        base = f"https://{host}/"
        files = {
            base + quote(file.relative_to(saved).as_posix()): file
            for file in sorted(saved.rglob("*"))
            if file.is_file() and not file.is_symlink() and file != document
        }
        named = _named(base, document, files)
        entries = [_saved(url, file, by, place) for place, (url, (file, by)) in enumerate(named.items())]
    except OSError as error:
        raise PageError(
            f"cannot be read ({error.strerror})", where=str(error.filename or saved), next_step="Save the page again."
        ) from error
    left_out = {"files that nothing names": len(files) + 1 - len(named)} if len(named) <= len(files) else {}
    return page_of({"log": {"entries": entries}}, saved, folder, made=made, timed=False, left_out=left_out)


def _document(saved: Path) -> Path:
    there = sorted(file for file in saved.glob("*") if file.suffix.lower() in (".html", ".htm"))
    for file in there:
        if file.stem == "index" or len(there) == 1:
            return file
    raise PageError(
        "has no document" if not there else f"has {len(there)} documents",
        where=str(saved),
        next_step="Name the folder in which a browser saved a page, its document among the files, as index.html.",
    )


def _named(base: str, document: Path, files: dict[str, Path]) -> dict[str, tuple[Path, str]]:
    """Files by URL with the URL of what names each, the document first, in the order in which a reader meets them."""
    found: dict[str, tuple[Path, str]] = {base: (document, "")}
    for url in (todo := [base]):  # which grows meanwhile
        file = found[url][0]
        # What a script names is meant from the document.
        of = url if file.suffix.lower() == ".css" else base
        for match in _NAMED.finditer(file.read_text(encoding="utf-8", errors="replace")):
            try:
                target = urljoin(of, quote(unquote(html.unescape(match[1])), safe="/:?#"))
            except ValueError:
                continue
            target = target.partition("#")[0].partition("?")[0]
            if target in files and target not in found:
                found[target] = files[target], url
                if files[target].suffix.lower() in _CODE:
                    todo.append(target)
    return found


def _saved(url: str, file: Path, by: str, place: int) -> dict[str, Any]:
    """An entry of a HAR from a file."""
    body = file.read_bytes()
    mime = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    content = {
        "mimeType": mime,
        "size": len(body),
        "text": base64.b64encode(body).decode("ascii"),
        "encoding": "base64",
    }
    headers = [{"name": "Referer", "value": by}] if by else []
    return {
        "startedDateTime": _after(_EPOCH, place),
        "request": {"method": "GET", "url": url, "headers": headers},
        "response": {"status": 200, "headers": [], "bodySize": len(body), "content": content},
    }
