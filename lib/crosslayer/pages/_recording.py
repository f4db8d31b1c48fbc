"""Read recordings of page loads (HAR 1.2) that many different programs write.

A recording must have a list of entries, and an entry must have a start, a URL and a response. All other values are
optional; a value of a wrong type counts as absent. An entry that lacks a required value is left out and counted.

No library is used: haralyzer 2.4 raises exceptions for most files in `tests/data/har`, and har2tree 1.43 raises
exceptions for a quarter of them.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import contextlib
import io
import json
import math
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from pathlib import Path
from typing import Any

from crosslayer.pages._errors import PageError

_EXPORT_AGAIN = "Export the recording again as HAR."
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_MOST_BYTES = 1 << 30
"""Maximum size of a decompressed recording, 1 GiB in bytes; no browser exports more."""
_MOST_MS = 1e9
_Attached = Callable[[str], bytes | None]
"""Takes the name of a separate file of the recording; returns its content, or None if there is no such file."""
_CUT_SHARE, _CUT_LEAST = 0.02, 16
"""The recorder has cut a body that lacks more than this share of its stated size and more than this number of bytes."""
_HEADER_MOST = 1000
"""Largest `_transferSize` of a response that is taken to have no body, only a header, bytes.

If a response has more, a `bodySize` of 0 counts as unknown.
"""
_CACHE_HINTS = ("_fromCache", "_fromDiskCache", "_servedFromCache", "fromCache")
_OF_THE_WEB = re.compile(
    r"utf-8|ascii|iso8859-\d+|cp125\d|cp874|koi8-[ru]|shift_jis|cp932|euc_(jp|kr)|gbk|gb2312|gb18030|big5|utf-16(-[lb]e)?"
)
"""Python's names of the character encodings of web pages."""
_CHARSET = re.compile(r"charset\s*=\s*[\"']?([\w.:-]+)", re.IGNORECASE)


@dataclass(slots=True)
class Entry:
    """A request and its response, as recorded."""

    started_ms: float
    """Start of the request, ms since the Unix epoch; `ended_ms` is the end of the response."""
    ended_ms: float
    method: str
    url: str
    status: int
    """Status code of the response; 0 if there was no response."""
    mime: str
    """Media type in lower case, without parameters; empty if unknown."""
    content_type: str
    """Media type with its parameters, as recorded."""
    charset: str
    """Python's name of the character encoding, from the media type or the body, else `utf-8`."""
    sent: Mapping[str, str]
    """Header fields of the request, names in lower case."""
    received: Mapping[str, str]
    """Header fields of the response, names in lower case."""
    body: bytes | None
    """Body after removal of its content coding, in `charset`; None if the recording has no complete body."""
    cut: bool
    """Whether the recorder cut the body."""
    plain_bytes: int
    """Bytes of the decoded body; 0 if unknown."""
    body_bytes: int | None
    """Bytes of the body on the wire (`bodySize`); None if unknown."""
    transfer_bytes: int | None
    """Bytes of header and body on the wire (`_transferSize`); None if unknown."""
    cached: bool
    """Whether the body came from a cache instead of the network.

    Also true if a 304 response confirmed the cached body.
    """
    initiator: str
    """URL of the resource that caused the request; empty if unknown."""
    resource_type: str
    """`_resourceType` in lower case, e.g. `document` or `xhr`; empty if unknown."""
    page: str
    """Identifier of the page to which the request belongs; empty if unknown."""


@dataclass(slots=True)
class RecordedPage:
    """A page of a recording: one navigation."""

    identifier: str
    started_ms: float | None
    load_ms: float | None
    """Time of the load event, ms after the start of the page; None if unknown."""
    title: str = ""
    """Title of the page; Chromium writes the URL of the document instead."""


@dataclass(slots=True)
class Recording:
    """All entries and pages of a recording, in the order of their start."""

    entries: list[Entry]
    pages: list[RecordedPage] = field(default_factory=list)
    unreadable: Counter[str] = field(default_factory=Counter)
    """Number of entries that were left out, by the required value that they lack."""
    unreadable_urls: list[str] = field(default_factory=list)
    """URLs of the entries that were left out, as far as they have one."""


def read_recording(file: Path) -> Recording:
    """Read a HAR file: UTF-8 with or without a byte order mark, UTF-16 or UTF-32, also in gzip or ZIP.

    Playwright writes bodies into separate files, in the ZIP or in the folder of the HAR.

    Raises
    ------
    PageError
        If the file cannot be read or is no HAR.
    """
    try:
        content = file.read_bytes()
    except OSError as error:
        raise PageError(
            f"cannot be read ({error.strerror})", where=str(file), next_step="Name a file that can be read."
        ) from error
    attached = _files_of_folder(file)
    if content[:2] == b"\x1f\x8b":
        content = _gunzipped(content, file)
    elif content[:4] == b"PK\x03\x04":
        content, attached = _unzipped(content, file)
    if not content.strip():
        raise PageError("is empty", where=str(file), next_step=_EXPORT_AGAIN)
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        what = "is HTML or XML, not HAR" if content.lstrip()[:1] == b"<" else f"is not JSON ({error})"
        raise PageError(what, where=str(file), next_step=_EXPORT_AGAIN) from error
    return recording_of(value, str(file), attached)


def _files_of_folder(har: Path) -> _Attached:
    """Function that reads a file from the folder of a HAR by its name.

    It returns None for a name that contains a folder.
    """

    def read(name: str) -> bytes | None:
        file = har.parent / name
        if Path(name).name != name or file.is_symlink() or not file.is_file():
            return None
        with contextlib.suppress(OSError):
            return file.read_bytes()
        return None

    return read


def _unzipped(content: bytes, file: Path) -> tuple[bytes, _Attached]:
    """Content of the HAR in a ZIP, and a function that returns the other files of the ZIP by name."""
    files: dict[str, bytes] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if sum(member.file_size for member in archive.infolist()) > _MOST_BYTES:
                raise PageError("is too large", where=str(file), next_step=_EXPORT_AGAIN)
            files = {member.filename: archive.read(member) for member in archive.infolist() if not member.is_dir()}
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError, ValueError, zlib.error) as error:
        raise PageError(f"is no ZIP that can be read ({error})", where=str(file), next_step=_EXPORT_AGAIN) from error
    hars = [name for name in files if name.lower().endswith(".har")]
    if len(hars) != 1:
        raise PageError(
            f"is a ZIP with {len(hars)} HAR files", where=str(file), next_step="Unpack it, and name one HAR."
        )
    folder = hars[0].rpartition("/")[0]
    return files[hars[0]], lambda name: files.get(f"{folder}/{name}" if folder else name)


def _gunzipped(content: bytes, file: Path) -> bytes:
    plain = b""
    while content[:2] == b"\x1f\x8b":  # member by member
        decoder = zlib.decompressobj(zlib.MAX_WBITS | 16)
        try:
            plain += decoder.decompress(content, _MOST_BYTES + 1 - len(plain))
        except zlib.error as error:
            raise PageError(f"is no gzip file ({error})", where=str(file), next_step=_EXPORT_AGAIN) from error
        if len(plain) > _MOST_BYTES or not decoder.eof:
            what = "is too large" if len(plain) > _MOST_BYTES else "is a truncated gzip file"
            raise PageError(what, where=str(file), next_step=_EXPORT_AGAIN)
        content = decoder.unused_data
    return plain


def recording_of(value: Any, where: str, attached: _Attached = lambda _name: None) -> Recording:
    """Make a recording from the JSON value of a HAR.

    `attached` returns the separate files that the HAR names. Errors are those of `read_recording`.
    """
    log = _required(value, "log", dict, where)
    entries = _required(log, "entries", list, where, "log.")
    zone = _zone(log)
    unreadable: Counter[str] = Counter()
    urls = []
    read = []
    for entry in entries:
        entry = _object(entry)
        request, response = _object(entry.get("request")), _object(entry.get("response"))
        if not _text(request.get("url")):
            # Recordings without any URL often lack readable times too, so the start is named first.
            lacks = "startedDateTime" if _time(entry.get("startedDateTime"), zone) is None else "request.url"
            unreadable[f"without a readable {lacks}"] += 1
        elif _time(entry.get("startedDateTime"), zone) is None:
            unreadable["without a readable startedDateTime"] += 1
            urls.append(request["url"])
        elif not response:
            unreadable["without a response"] += 1
            urls.append(request["url"])
        else:
            read.append(_entry(entry, request, response, zone, attached))
    pages = [_page(_object(page), zone) for page in _list(log.get("pages"))]
    read.sort(key=lambda entry: entry.started_ms)
    pages.sort(key=lambda page: math.inf if page.started_ms is None else page.started_ms)
    return Recording(read, pages, unreadable, urls)


def _required(value: Any, key: str, kind: type, where: str, above: str = "") -> Any:
    if not isinstance(value, dict):
        raise PageError("must be a JSON object with the key 'log'", where=where, next_step=_EXPORT_AGAIN)
    if key not in value:
        raise PageError(f"has no key '{above}{key}', so it is not a HAR", where=where, next_step=_EXPORT_AGAIN)
    if not isinstance(value[key], kind):
        names = "an object" if kind is dict else "an array"
        raise PageError(f"must be {names}", where=f"{where}, key '{above}{key}'", next_step=_EXPORT_AGAIN)
    return value[key]


def _entry(
    entry: dict[str, Any], request: dict[str, Any], response: dict[str, Any], zone: tzinfo, attached: _Attached
) -> Entry:
    content = _object(response.get("content"))
    received = _fields(response.get("headers"))
    content_type, full = _text(content.get("mimeType")), received.get("content-type", "")
    if not content_type or (full.lower().startswith(content_type.lower()) and _CHARSET.search(full)):
        content_type = full  # Chromium leaves the charset out of `mimeType`
    mime = content_type.partition(";")[0].strip().lower()
    size = _whole(content.get("size")) or 0
    raw, charset, cut = _body(content, content_type, mime, size, attached)
    transfer = _whole(response.get("_transferSize", entry.get("_transferSize")))
    body_bytes = _whole(response.get("bodySize"))
    if body_bytes is not None and (body_bytes < 0 or (body_bytes == 0 and (transfer or 0) > _HEADER_MOST)):
        body_bytes = None  # not known, or not counted
    status = _whole(response.get("status")) or 0
    started = _time(entry.get("startedDateTime"), zone) or 0.0
    sent = _fields(request.get("headers"))
    from_cache = any(entry.get(hint) or response.get(hint) for hint in _CACHE_HINTS)
    kept = body_bytes == 0 and max(size, len(raw or b"")) > 0
    return Entry(
        started_ms=started,
        ended_ms=started + min(max(_number(entry.get("time")) or 0.0, 0.0), _MOST_MS),
        method=(_text(request.get("method")) or "GET").upper(),
        url=_text(request.get("url")),
        status=status,
        mime=mime,
        content_type=content_type,
        charset=charset,
        sent=sent,
        received=received,
        body=None if cut else raw,
        cut=cut,
        plain_bytes=size if cut or raw is None else len(raw),
        body_bytes=body_bytes,
        transfer_bytes=transfer if transfer and transfer > 0 else None,
        cached=status == 304 or from_cache or kept,
        initiator=_initiator(entry.get("_initiator")) or sent.get("referer", ""),
        resource_type=(_text(entry.get("_resourceType")) or sent.get("sec-fetch-dest", "")).lower(),
        page=_identifier(entry.get("pageref")),
    )


def _body(
    content: dict[str, Any], content_type: str, mime: str, size: int, attached: _Attached
) -> tuple[bytes | None, str, bool]:
    """Bytes of a body (None if they cannot be read), its charset, and whether the recorder cut it."""
    text = content.get("text")
    if text is None and (body := attached(_text(content.get("_file")))) is not None:
        return body, _charset(content_type, body[:1024].decode("latin-1"), mime), False
    if not isinstance(text, str) or (not text and size > 0):
        return None, "utf-8", False
    if _text(content.get("encoding")).lower() == "base64":
        try:
            body = base64.b64decode(re.sub(r"\s", "", text), validate=True)
        except (binascii.Error, ValueError):
            return None, "utf-8", False
        charset = _charset(content_type, body[:1024].decode("latin-1"), mime)
    else:
        charset = _charset(content_type, text[:1024], mime)
        body = _encoded(text, charset, size)
    return body, charset, len(body) + max(_CUT_LEAST, int(_CUT_SHARE * size)) < size


def _charset(content_type: str, begin: str, mime: str) -> str:
    """Python's name of a text's character encoding: from its media type, else its `meta` or `@charset`, else UTF-8."""
    declared = _CHARSET.search(content_type)
    if declared is None and ("html" in mime or "css" in mime):
        declared = _CHARSET.search(begin)
    if declared is None:
        return "utf-8"
    try:
        codec = codecs.lookup(declared[1]).name
    except (LookupError, ValueError):
        return "utf-8"
    return codec if _OF_THE_WEB.fullmatch(codec) else "utf-8"


def _encoded(text: str, charset: str, size: int) -> bytes:
    """A text as bytes: in UTF-8 if that gives the stated size, else in its charset if possible, else in UTF-8."""
    plain = text.encode("utf-8", "surrogatepass")
    if len(plain) != size:
        # On the web ISO-8859-1 means windows-1252 (WHATWG Encoding).
        for name in (charset, *(("cp1252",) if charset == "iso8859-1" else ())):
            with contextlib.suppress(UnicodeError):
                return text.encode(name)
    return plain


def _initiator(value: Any) -> str:
    """URL of an initiator; empty if unknown.

    The recorded value is an object with a call stack (Chromium) or the URL itself (WebPageTest).
    """
    if isinstance(value, str):
        return value
    value = _object(value)
    stack = value.get("stack")
    while isinstance(stack, dict):
        for frame in _list(stack.get("callFrames")):
            if url := _text(_object(frame).get("url")):
                return url
        stack = stack.get("parent")
    return _text(value.get("url"))


def _page(page: dict[str, Any], zone: tzinfo) -> RecordedPage:
    load_ms = _number(_object(page.get("pageTimings")).get("onLoad"))
    return RecordedPage(
        _identifier(page.get("id")),
        _time(page.get("startedDateTime"), zone),
        load_ms if load_ms and 0 < load_ms < _MOST_MS else None,
        _text(page.get("title")),
    )


def _zone(log: dict[str, Any]) -> tzinfo:
    """Time zone for recorded times that name no zone: the first zone that the recording names, else UTC."""
    for item in (*_list(log.get("entries")), *_list(log.get("pages"))):
        moment = _moment(_object(item).get("startedDateTime"))
        if moment is not None and (offset := moment.utcoffset()) is not None:
            return timezone(offset)
    return UTC


def _moment(value: Any) -> datetime | None:
    try:
        return datetime.fromisoformat(value.strip()) if isinstance(value, str) else None
    except ValueError:
        return None


def _time(value: Any, zone: tzinfo) -> float | None:
    """Convert a time in ISO 8601 to ms since the Unix epoch; None for other values.

    `zone` applies to times that name no zone.
    """
    moment = _moment(value)
    if moment is None:
        return None
    return ((moment if moment.tzinfo else moment.replace(tzinfo=zone)) - _EPOCH) / _MS


def _fields(value: Any) -> dict[str, str]:
    """Header fields by name in lower case; of a repeated field, the first value counts.

    The HAR has them as a list or, from some programs, as an object.
    """
    if isinstance(value, dict):
        return {name.lower(): _text(content) for name, content in value.items()}
    fields: dict[str, str] = {}
    for item in _list(value):
        header = _object(item)
        fields.setdefault(_text(header.get("name")).lower(), _text(header.get("value")))
    return fields


def _identifier(value: Any) -> str:
    return str(value) if isinstance(value, (str, int)) else ""


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _number(value: Any) -> float | None:
    """A finite number, also from a string; None for other values."""
    try:
        number = float(value) if isinstance(value, (int, float, str)) else math.nan
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _whole(value: Any) -> int | None:
    number = _number(value)
    return None if number is None or abs(number) > _MOST_BYTES else round(number)
