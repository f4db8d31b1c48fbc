"""A page from what a browser recorded (HAR 1.2): the same requests, weights and order of discovery, nothing private.

Documents, style sheets and scripts are either all as the HAR has them, with their URLs rewritten, or all made anew: a
made one has the weight of the original and names what the original had fetched. Of a recorded page whose code was
compressed better than gzip can, or whose HAR lacks a body, all code is made.
"""

from __future__ import annotations

import base64
import binascii
import html
import json
import random
import re
import string
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urljoin, urlsplit

import msgspec

from crosslayer.checked import checked, read_json
from crosslayer.pages._errors import PageError
from crosslayer.pages._spec import HOST, SPEC_FILE
from crosslayer.pages._wire import GZIP_PADDING, PADDING_LEAST, PADDING_SHARE, gzip_compress

RECORDED = "recorded.json"
"""File of the page's folder that says when the recorded page asked for what; times in ms after its first request, null
where the recording has none."""

_CODE = {"document": ".html", "style": ".css", "script": ".js"}
_KINDS = (
    ("text/html", "document"),
    ("text/css", "style"),
    ("javascript", "script"),
    ("svg", "drawing"),
    ("image/", "image"),
    ("font", "font"),
)
_IMPORTS = ("style", "image", "drawing", "font")
"""What a style sheet can have fetched."""
_ENDINGS = _CODE | {"drawing": ".svg"}
_GIF = base64.b64decode("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7")
_DNS_PATH = "/dns-query"
"""The server answers DNS there, on every host."""
_LETTERS = string.ascii_letters + string.digits


class _Field(msgspec.Struct):
    name: str
    value: str = ""


class _Request(msgspec.Struct):
    method: str
    url: str
    headers: list[_Field] = []


class _Content(msgspec.Struct, rename="camel"):
    size: int = 0
    mime_type: str = ""
    text: str | None = None
    encoding: str = ""


class _Response(msgspec.Struct, rename="camel"):
    status: int
    content: _Content
    headers: list[_Field] = []
    body_size: int | None = None
    transfer_size: int | None = msgspec.field(default=None, name="_transferSize")


class _Entry(msgspec.Struct):
    started: datetime = msgspec.field(name="startedDateTime")
    request: _Request
    response: _Response
    time: float = 0.0
    initiator: dict[str, Any] | None = msgspec.field(default=None, name="_initiator")


class _Timings(msgspec.Struct, rename="camel"):
    on_load: float | None = None


class _Page(msgspec.Struct):
    started: datetime = msgspec.field(name="startedDateTime")
    timings: _Timings = msgspec.field(name="pageTimings")


class _Log(msgspec.Struct):
    entries: list[_Entry]
    pages: list[_Page] = []


class _Har(msgspec.Struct):
    log: _Log


@dataclass(slots=True)
class _Fetch:
    """A request of the recorded page that its copy makes too."""

    entry: _Entry
    url: SplitResult
    kind: str
    number: int
    path: str = ""
    initiator: _Fetch | None = None
    children: list[_Fetch] = field(default_factory=list)
    wire_bytes: int = 0
    body: bytes = b""

    @property
    def host(self) -> str:
        return self.url.hostname or ""

    @property
    def ended(self) -> datetime:
        return self.entry.started + timedelta(milliseconds=self.entry.time)

    @property
    def encoding(self) -> str:
        """`gzip` where it was compressed, by whatever; else `identity`."""
        return (
            "gzip" if _header(self.entry.response.headers, "content-encoding") not in ("", "identity") else "identity"
        )

    @property
    def name(self) -> str:
        """File of its body."""
        return f"{self.number}{_ENDINGS.get(self.kind, '.bin')}"

    def seen_from(self, host: str) -> str:
        """Its URL in a page of `host`, whose aliases serve it too."""
        return self.path if self.host == host else f"https://{self.host}{self.path}"


@dataclass(frozen=True, slots=True)
class FromHar:
    """What became of a HAR."""

    folder: Path
    """Of the page."""
    resources: int
    hosts: int
    wire_bytes: int
    """Of all bodies."""
    code: str
    """Whence its documents, style sheets and scripts are, in words."""
    left_out: Mapping[str, int]
    """Requests that the page does not make, by reason."""
    private: Mapping[str, int]
    """What was not taken over, in numbers: cookies, credentials, values in URLs."""

    def __str__(self) -> str:
        lines = [
            f"{self.folder}: {self.resources} resources from {self.hosts} host names, {self.wire_bytes:,} bytes",
            f"  code: {self.code}",
        ]
        for title, counts in (("left out", self.left_out), ("private, not taken over", self.private)):
            if counts:
                lines.append(f"  {title}: " + ", ".join(f"{n} {what}" for what, n in counts.items()))
        return "\n".join(lines)


def from_har(har: Path, folder: Path, *, made: bool = False) -> FromHar:
    """Write the page that a HAR recorded as a folder of `sites/`.

    Parameters
    ----------
    har
        As browsers export it. What it asked for first and got as HTML is the document.
    folder
        Of the new page, whose name it gives; must not be there.
    made
        Make all code anew, also where the HAR has it: nobody's text is in the page then.

    Returns
    -------
    FromHar
        What the page has and what was left out.

    Raises
    ------
    PageError
        For a file that is no HAR, one without a document, and a folder that is there or cannot be written.
    """
    return page_of(read_json(har, PageError), har, folder, made=made)


def page_of(
    har: Any,
    source: Path,
    folder: Path,
    *,
    made: bool,
    timed: bool = True,
    left_out: Mapping[str, int] | None = None,
) -> FromHar:
    """As `from_har`, of a HAR as a value.

    `source` is what it was made from, and `left_out` what was left out by then; unless `timed`, its times tell the
    order alone.
    """
    log = checked(har, _Har, where=str(source), error=PageError, foreign_keys=True).log
    if folder.exists():
        raise PageError("is there already", where=str(folder), next_step="Name a folder that is not.")
    left_out = Counter(left_out or {})
    fetches = _fetches(log, left_out, source)
    document = fetches[0]
    _place(fetches)
    reason = "made anew, as asked" if made else _take_over(fetches)
    if reason:
        for fetch in fetches:
            if fetch.kind in _CODE:
                _make_code(fetch, document)
    for fetch in fetches:
        if fetch.kind not in _CODE:
            _leaf(fetch)
    try:
        folder.mkdir(parents=True)
        for fetch in fetches:
            (folder / fetch.name).write_bytes(fetch.body)
        (folder / SPEC_FILE).write_text(_toml(fetches, source), encoding="utf-8")
        (folder / RECORDED).write_text(_recorded(fetches, log, timed), encoding="utf-8")
    except OSError as error:
        raise PageError(
            f"cannot be written ({error.strerror})", where=str(folder), next_step="Name another folder."
        ) from error
    return FromHar(
        folder=folder,
        resources=len(fetches),
        hosts=len({fetch.host for fetch in fetches}),
        wire_bytes=sum(fetch.wire_bytes for fetch in fetches),
        code=reason or "the recording's own, URLs rewritten; it may hold what its user saw (--made makes it anew)",
        left_out=dict(left_out),
        private=_private(fetches),
    )


def _fetches(log: _Log, left_out: Counter[str], source: Path) -> list[_Fetch]:
    """What the copy asks for, in the order it was asked for, the document first."""
    until = _load_event(log)
    found: dict[str, _Fetch] = {}
    for entry in sorted(log.entries, key=lambda entry: entry.started):
        url = _split(entry.request.url)
        kind = next((kind for part, kind in _KINDS if part in entry.response.content.mime_type), "other")
        if why := _unfit(entry, url, kind, until):
            left_out[why] += 1
        elif found or kind == "document":
            if _exact(url) in found:
                left_out["asked for again"] += 1
            else:
                found[_exact(url)] = _Fetch(entry, url, kind, len(found))
        else:
            left_out["before the document"] += 1
    if not found:
        raise PageError(
            "has no document that was fetched",
            where=str(source),
            next_step="Record the load of a page, from its start.",
        )
    return list(found.values())


def _load_event(log: _Log) -> datetime | None:
    """When the page had loaded; None where the HAR does not say."""
    if not log.pages or not (after_ms := log.pages[0].timings.on_load) or after_ms < 0:
        return None
    return log.pages[0].started + timedelta(milliseconds=after_ms)


def _unfit(entry: _Entry, url: SplitResult, kind: str, until: datetime | None) -> str:
    """Why the copy does not ask for it; empty where it does."""
    status, mime = entry.response.status, entry.response.content.mime_type
    if url.scheme not in ("http", "https"):
        return f"of {url.scheme}:"
    if not HOST.fullmatch(url.hostname or ""):
        return "without a host name"
    if 300 <= status < 400 and status != 304:
        return "redirections"
    if not 200 <= status < 400:
        return "that failed"
    if entry.request.method != "GET":
        return entry.request.method
    if mime.startswith(("video/", "audio/")):
        return "films and sounds"
    if until and entry.started > until:
        return "after the load event"
    return ""


def _place(fetches: list[_Fetch]) -> None:
    """Give each its path, its weight, and what had it fetched."""
    document = fetches[0]
    document.path = "/"
    taken = {(document.host, "/"), *((fetch.host, _DNS_PATH) for fetch in fetches)}
    by_url = {name(fetch.url): fetch for name in (_plain, _exact) for fetch in reversed(fetches)}
    for fetch in fetches:
        fetch.wire_bytes = _weight(fetch.entry.response)
        if fetch is document:
            continue
        base = re.sub(r"[^!-~]|#", "_", fetch.url.path) or "/"
        fetch.path, again = base, 1
        while (fetch.host, fetch.path) in taken:
            again += 1
            fetch.path = f"{base}~{again}"
        taken.add((fetch.host, fetch.path))
        named = _split(_initiator(fetch.entry))
        by = by_url.get(_exact(named)) or by_url.get(_plain(named)) or document
        able = by.kind in ("document", "script") or (by.kind == "style" and fetch.kind in _IMPORTS)
        by = by if able and by.number < fetch.number else document
        fetch.initiator = _script_before(fetch, fetches) if by is document else by
        fetch.initiator.children.append(fetch)


def _script_before(fetch: _Fetch, fetches: list[_Fetch]) -> _Fetch:
    """What a parser is said to have found: by the document, or by the script that came last if that was after it.

    Chromium says "parser" too of what a script writes into the document; a preload scanner would have been earlier.
    """
    came = [other for other in fetches[: fetch.number] if other.ended <= fetch.entry.started]
    scripts = [other for other in came if other.kind == "script" and other.ended > fetches[0].ended]
    return max(scripts, key=lambda other: other.ended, default=fetches[0])


def _initiator(entry: _Entry) -> str:
    """URL of what had it fetched: Chromium's `_initiator`, else its referrer; empty where neither says."""
    told = entry.initiator or {}
    stack = told.get("stack")
    while isinstance(stack, dict):
        for frame in stack.get("callFrames") or ():
            if isinstance(frame, dict) and frame.get("url"):
                return str(frame["url"])
        stack = stack.get("parent")
    return str(told.get("url") or _header(entry.request.headers, "referer"))


def _weight(response: _Response) -> int:
    """Bytes of a body on the wire, as well as the HAR knows: browsers differ in what they say of HTTP/2 and later."""
    for size in (response.body_size, response.transfer_size, response.content.size):
        if size and size > 0:
            return size
    return 1


def _take_over(fetches: list[_Fetch]) -> str:
    """Give documents, style sheets and scripts the bodies that the HAR has; says why not, where it lacks one."""
    known = {_exact(fetch.url): fetch for fetch in fetches}
    bodies: dict[int, tuple[bytes, int]] = {}
    for fetch in fetches:
        if fetch.kind not in _CODE:
            continue
        body = _text(fetch.entry.response.content)
        if body is None:
            return f"made anew, since the recording has no body of {fetch.host}{fetch.url.path}"
        rewritten = _rewritten(body.decode("utf-8", "replace"), fetch, known, fetches[0]).encode()
        weight = len(rewritten)
        if fetch.encoding == "gzip":
            size = len(gzip_compress(rewritten))
            spare = min(fetch.wire_bytes - size, max(PADDING_LEAST, int(PADDING_SHARE * size)))
            if spare < 0:
                return f"made anew, since gzip does not bring {fetch.host}{fetch.url.path} to {fetch.wire_bytes} bytes"
            weight = size + (spare if spare in GZIP_PADDING else 0)
        bodies[fetch.number] = rewritten, weight
    for fetch in fetches:
        if fetch.number in bodies:
            fetch.body, fetch.wire_bytes = bodies[fetch.number]
    return ""


def _rewritten(text: str, fetch: _Fetch, known: Mapping[str, _Fetch], document: _Fetch) -> str:
    """A body whose URLs lead to what the copy has; those that do already stay, since scripts put URLs together."""
    of = document if fetch.kind == "script" else fetch
    old_base, new_base = of.entry.request.url, f"https://{of.host}{of.path}"

    def new(match: re.Match[str]) -> str:
        told = html.unescape(match[1])
        old, now = _split(_joined(old_base, told)), _split(_joined(new_base, told))
        target = known.get(_exact(old))
        if target is None or (
            not old.query and (now.hostname, now.path) == (target.host, target.path) and ":" not in told
        ):
            return match[0]
        return match[0].replace(match[1], target.seen_from(document.host))

    return re.sub(r"""(?<=["'(=])([^"'()<>\s=][^"'()<>\s]*)(?=["')>\s])""", new, text)


def _joined(base: str, reference: str) -> str:
    try:
        return urljoin(base, reference)
    except ValueError:
        return ""


def _make_code(fetch: _Fetch, document: _Fetch) -> None:
    """A document, style sheet or script of its weight that has fetched what the original had fetched."""
    write: dict[str, Callable[[_Fetch, str], str]] = {"document": _made_html, "style": _made_css, "script": _made_js}
    begin, end = ("<!--", "-->") if fetch.kind == "document" else ("/*", "*/")
    _weigh(fetch, write[fetch.kind](fetch, document.host), begin, end)


def _made_html(fetch: _Fetch, host: str) -> str:
    lines = ['<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>A recorded page</title>']
    lines.append('<link rel="icon" href="data:,"><body><p>A page made after a recording.</p>')
    tags = {
        "style": '<link rel="stylesheet" href="{}">',
        "script": '<script src="{}"></script>',
        "image": '<img alt="" src="{}">',
        "drawing": '<img alt="" src="{}">',
        "font": '<link rel="preload" as="font" crossorigin href="{}">',
        "document": '<iframe hidden src="{}"></iframe>',
        "other": '<script>fetch("{}",{{mode:"no-cors"}})</script>',
    }
    lines += [tags[child.kind].format(html.escape(child.seen_from(host))) for child in fetch.children]
    lines += [f'<i id="r{used.number}">a</i>' for used in _used_by_styles(fetch)]
    return "\n".join(lines) + "\n"


def _used_by_styles(fetch: _Fetch) -> list[_Fetch]:
    """Pictures and fonts of the style sheets of a document: a browser fetches them for an element that has them."""
    found: list[_Fetch] = []
    for child in fetch.children:
        if child.kind == "style":
            found += [used for used in child.children if used.kind != "style"]
        if child.kind in ("style", "script"):
            found += _used_by_styles(child)
    return found


def _made_css(fetch: _Fetch, host: str) -> str:
    rules = {
        "style": '@import "{url}";',
        "image": '#r{n}{{background:url("{url}")}}',
        "drawing": '#r{n}{{background:url("{url}")}}',
        "font": '@font-face{{font-family:r{n};src:url("{url}")}}#r{n}{{font-family:r{n}}}',
    }
    children = sorted(fetch.children, key=lambda child: child.kind != "style")  # @import comes first
    return "\n".join(rules[c.kind].format(url=c.seen_from(host), n=c.number) for c in children) + "\n"


def _made_js(fetch: _Fetch, host: str) -> str:
    element = "(function(e){{{set};document.head.appendChild(e)}})(document.createElement('{tag}'));"
    calls = {
        "style": element.format(set="e.rel='stylesheet';e.href={url}", tag="link"),
        "script": element.format(set="e.src={url}", tag="script"),
        "image": "(new Image).src={url};",
        "drawing": "(new Image).src={url};",
        "font": "new FontFace('r','url('+{url}+')').load().catch(function(){{}});",
        "document": "(function(e){{e.hidden=true;e.src={url};document.body.appendChild(e)}})"
        "(document.createElement('iframe'));",
        "other": "fetch({url},{{mode:'no-cors'}});",
    }
    calls = {kind: call.replace("{{", "{").replace("}}", "}") for kind, call in calls.items()}
    return "\n".join(calls[c.kind].replace("{url}", json.dumps(c.seen_from(host))) for c in fetch.children) + "\n"


def _leaf(fetch: _Fetch) -> None:
    """The HAR's body where it has one of that weight, else one of the right type and weight."""
    body = _text(fetch.entry.response.content)
    if fetch.kind == "drawing":
        _weigh(fetch, '<svg xmlns="http://www.w3.org/2000/svg"/>\n', "<!--", "-->")
    elif fetch.kind in ("image", "font") and body and fetch.encoding == "identity":
        fetch.body, fetch.wire_bytes = body, len(body)
    elif fetch.kind == "image":
        filler = random.Random(fetch.path).randbytes(fetch.wire_bytes)
        fetch.body = (_GIF + filler)[: fetch.wire_bytes]  # what follows a GIF's end is not looked at
    elif fetch.encoding == "gzip":
        _weigh(fetch, "", "", "")
    else:
        fetch.body = "".join(random.Random(fetch.path).choices(_LETTERS, k=fetch.wire_bytes)).encode()


def _weigh(fetch: _Fetch, text: str, begin: str, end: str) -> None:
    """Bring a text to the weight of a fetch by a comment; a text that is heavier as it is keeps its own weight."""
    draw = random.Random(fetch.path)
    noise = "".join(draw.choices(_LETTERS, k=2 * fetch.wire_bytes))
    plain = fetch.entry.response.content.size

    def body(letters: int) -> bytes:
        rest = max(plain - len(text) - len(begin) - len(end) - letters, 0)
        return f"{text}{begin}{noise[:letters]}{' ' * rest}{end}".encode()

    if fetch.encoding == "identity":
        short = fetch.wire_bytes - len(text) - len(begin) - len(end)
        fetch.body = f"{text}{begin}{noise[:short]}{end}".encode() if short >= 0 else text.encode()
        fetch.wire_bytes = len(fetch.body)
        return
    most = fetch.wire_bytes - GZIP_PADDING[0] - min(PADDING_LEAST, int(PADDING_SHARE * fetch.wire_bytes)) // 2
    low, high = 0, len(noise)
    while low < high:  # the most letters whose gzip leaves room for the padding that makes the weight exact
        middle = (low + high + 1) // 2
        low, high = (middle, high) if len(gzip_compress(body(middle))) <= most else (low, middle - 1)
    fetch.body = body(low)
    if len(gzip_compress(fetch.body)) > most:
        fetch.body = text.encode()
        fetch.wire_bytes = len(gzip_compress(fetch.body)) + GZIP_PADDING[0]


def _text(content: _Content) -> bytes | None:
    """A body of the HAR; None where it has none that can be read."""
    if content.text is None or (not content.text and content.size):
        return None
    if content.encoding == "base64":
        try:
            return base64.b64decode(content.text, validate=True)
        except (binascii.Error, ValueError):
            return None
    return content.text.encode("utf-8", "surrogatepass")


def _toml(fetches: list[_Fetch], source: Path) -> str:
    document = fetches[0]
    origins = list(dict.fromkeys(fetch.host for fetch in fetches if fetch.host != document.host))
    # An alias is primed for H3 1-RTT, which only pages of one origin can have measured.
    aliases = [] if origins else [f"alias-{n}.{document.host}" for n in (1, 2)]
    lines = [
        f"# Made from {source.name} by `crosslayer page`.",
        f"title = {json.dumps(f'A recorded page of {document.host}')}",
        f"host = {json.dumps(document.host)}",
        f"aliases = {json.dumps(aliases)}",
        f"origins = {json.dumps(origins)}",
    ]
    for fetch in fetches:
        mime = re.sub(r"[^!-~ ]", "", fetch.entry.response.content.mime_type) or "application/octet-stream"
        lines += [
            "",
            "[[resource]]",
            f"path = {json.dumps(fetch.path)}",
            *([f"origin = {json.dumps(fetch.host)}"] if fetch.host != document.host else []),
            f"source = {json.dumps(fetch.name)}",
            f"wire_bytes = {fetch.wire_bytes}",
            f"content_type = {json.dumps(mime)}",
            f'encoding = "{fetch.encoding}"',
        ]
        if fetch.initiator and fetch.initiator is not document:
            by = fetch.initiator
            lines.append(f"after = {json.dumps(by.path if by.host == document.host else by.seen_from(''))}")
    return "\n".join(lines) + "\n"


def _recorded(fetches: list[_Fetch], log: _Log, timed: bool) -> str:
    begin = fetches[0].entry.started
    until = _load_event(log)
    requests = [
        {
            "url": f"https://{fetch.host}{fetch.path}",
            "start_ms": round((fetch.entry.started - begin).total_seconds() * 1e3, 3) if timed else None,
            "wire_bytes": _weight(fetch.entry.response),
        }
        for fetch in fetches
    ]
    load_ms = round((until - begin).total_seconds() * 1e3, 3) if until else None
    return json.dumps({"load_ms": load_ms, "requests": requests}, indent=1) + "\n"


def _private(fetches: list[_Fetch]) -> dict[str, int]:
    sent = [name.name.lower() for fetch in fetches for name in fetch.entry.request.headers]
    counts = {
        "headers with cookies": sent.count("cookie"),
        "headers with credentials": sent.count("authorization"),
        "URLs with a query": sum(bool(fetch.url.query) for fetch in fetches),
    }
    return {what: n for what, n in counts.items() if n}


def _header(headers: list[_Field], name: str) -> str:
    return next((header.value for header in headers if header.name.lower() == name), "")


def _split(url: str) -> SplitResult:
    """A URL in its parts; empty ones where it is none."""
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("https:")


def _plain(url: SplitResult) -> str:
    """A URL without scheme, query and fragment."""
    return f"{url.hostname or ''}{url.path or '/'}"


def _exact(url: SplitResult) -> str:
    """A URL without scheme and fragment."""
    return f"{_plain(url)}?{url.query}"
