"""The bodies of a copied page: recorded bodies with rewritten references, or synthesised bodies of the same size.

The code of a page is its documents, style sheets and scripts. It is either all recorded or all synthesised. Synthesised
code makes the same requests as recorded code and computes nothing. Code is synthesised if the caller asks for it, or if
a recorded body cannot be used.
"""

from __future__ import annotations

import base64
import html
import json
import random
import re
import string
from collections.abc import Callable
from xml.etree import ElementTree

from crosslayer.pages._cold_load import ColdLoad
from crosslayer.pages._fetches import CODE, Fetch, Fetches
from crosslayer.pages._references import References
from crosslayer.pages._wire import GZIP_PADDING, PADDING_LEAST, PADDING_SHARE, gzip_compress

AS_RECORDED = "the recording's own, URLs rewritten; it may hold what its user saw (--synthesise replaces it)"
_GIF = base64.b64decode("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7")
_LETTERS = string.ascii_letters + string.digits
_COMMENTS = {"document": ("<!--", "-->"), "style": ("/*", "*/"), "script": ("\n/*", "*/")}
_TYPES = {
    "document": "text/html; charset=utf-8",
    "style": "text/css; charset=utf-8",
    "script": "text/javascript; charset=utf-8",
    "drawing": "image/svg+xml",
}
_NOTED_SHARE = 0.005
"""A note reports the page's weight if it differs from the recorded weight by more than this share of the latter."""
_WORKER = re.compile(rb"serviceWorker[\s\S]{0,200}?\bregister\s*\(")


def write_bodies(page: Fetches, load: ColdLoad, *, synthesise: bool) -> str:
    """Set the body, the final weight and the content type of every request.

    Returns a text that says that documents, style sheets and scripts are as recorded, or why they are synthesised.
    """
    reason = "synthesised, as asked" if synthesise else _keep_code(page, load)
    if reason:
        hosts = {fetch.host for fetch in page.fetches if fetch.kind == "document"}
        for fetch in page.fetches:
            if fetch.kind in CODE:
                _make_code(fetch, hosts)
    for fetch in page.fetches:
        if fetch.kind not in CODE:
            _leaf(fetch)
    more = sum(fetch.wire_bytes - fetch.recorded_bytes for fetch in page.fetches)
    total = sum(fetch.recorded_bytes for fetch in page.fetches)
    if abs(more) > _NOTED_SHARE * total:
        page.notes.append(
            f"the page weighs {total + more:,} bytes, recorded {total:,}: its references alone are that long, or a "
            "body is larger than stated"
        )
    return reason or AS_RECORDED


def _keep_code(page: Fetches, load: ColdLoad) -> str:
    """Set the recorded bodies of documents, style sheets and scripts.

    Returns the reason if a body cannot be used; an empty text if all bodies are set.
    """
    targets = {str(fetch.resource.url): fetch for fetch in page.fetches}
    targets |= {url: targets[end] for url, end in load.redirected.items()}
    references = References(targets, load.absent - load.redirected.keys(), set())
    bodies: dict[int, tuple[bytes, int]] = {}
    # Documents come last: an `integrity` attribute stays only if the body of its file is unchanged.
    for fetch in sorted(page.fetches, key=lambda fetch: fetch.kind == "document"):
        if fetch.kind not in CODE:
            continue
        entry, shown = fetch.resource.entry, f"{fetch.resource.url.host}{fetch.resource.url.path}"
        if entry.cut:
            return f"synthesised, since the recorder cut the body of {shown}"
        if entry.body is None or (fetch.kind == "document" and not entry.body.strip()):
            return f"synthesised, since the recording has no body of {shown}"
        if not "<>\"'=()/".encode(entry.charset, "replace").isascii() or len("<".encode(entry.charset)) != 1:
            return f"synthesised, since {shown} is in {entry.charset}"
        if _WORKER.search(entry.body):
            return f"synthesised, since {shown} registers a service worker, which would answer the measured load"
        body = references.rewritten(fetch, entry.body)
        body, weight = _fitted(fetch, body)
        if fetch.encoding == "gzip" and weight > fetch.wire_bytes:
            return f"synthesised, since gzip does not bring {shown} to {fetch.wire_bytes} bytes"
        if body != entry.body:
            references.changed.add(fetch.number)
        bodies[fetch.number] = body, weight
    for fetch in page.fetches:
        if fetch.number in bodies:
            fetch.body, fetch.wire_bytes = bodies[fetch.number]
            fetch.content_type = _content_type(fetch)
    if references.unsigned:
        page.notes.append(
            f"{references.unsigned} 'integrity' attributes removed, since the files have new URLs in them"
        )
    return ""


def _content_type(fetch: Fetch) -> str:
    """Content type of recorded code. Malformed XHTML becomes HTML, because browsers show an error for it."""
    entry = fetch.resource.entry
    if "xhtml" in entry.mime:
        try:
            ElementTree.fromstring(fetch.body)
        except (ElementTree.ParseError, ValueError, LookupError):
            return f"text/html; charset={entry.charset}"
    known = re.sub(r"[^!-~ ]", "", entry.content_type)
    fits = {"document": "html", "style": "css", "script": "script"}[fetch.kind] in entry.mime
    return known if known and fits else _TYPES[fetch.kind]


def _fitted(fetch: Fetch, body: bytes) -> tuple[bytes, int]:
    """Pad recorded code to its recorded weight with a comment at its end.

    Returns the body and its weight on the wire. Code that is heavier than recorded, e.g. because of longer references,
    is not padded.
    """
    begin, end = (part.encode() for part in _COMMENTS[fetch.kind])
    if fetch.encoding == "identity":
        spare = fetch.wire_bytes - len(body)
        if spare <= 0:
            return body, len(body)
        noise = spare - len(begin) - len(end)
        if noise < 0:
            return body + b" " * spare, fetch.wire_bytes
        return body + begin + b" " * noise + end, fetch.wire_bytes
    size = len(gzip_compress(body))
    spare = fetch.wire_bytes - size
    if spare <= _padding_most(size):
        return body, size + (spare if spare in GZIP_PADDING else 0)
    noise_text = _noise(fetch, 2 * fetch.wire_bytes)
    letters = _most(
        len(noise_text),
        lambda n: len(gzip_compress(body + begin + noise_text[:n] + end)) <= fetch.wire_bytes - GZIP_PADDING[0],
    )
    return body + begin + noise_text[:letters] + end, fetch.wire_bytes


def _make_code(fetch: Fetch, document_hosts: set[str]) -> None:
    """Synthesise a document, style sheet or script with the weight and the requests of the original."""
    own = fetch.host if fetch.kind != "script" else None
    if fetch.kind == "script" and len(document_hosts) == 1:
        own = next(iter(document_hosts))
    write: dict[str, Callable[[Fetch, str | None], str]] = {
        "document": _made_html,
        "style": _made_css,
        "script": _made_js,
    }
    text = write[fetch.kind](fetch, own) if fetch.children or fetch.kind == "document" else ""
    begin, end = _COMMENTS[fetch.kind]
    _weigh(fetch, text, begin, end)
    if fetch.kind == "document" and not fetch.recorded_bytes:
        fetch.recorded_bytes = fetch.wire_bytes
    fetch.content_type = _TYPES[fetch.kind]


def _made_html(fetch: Fetch, host: str | None) -> str:
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
    lines += [tags[child.kind].format(html.escape(child.reference(host))) for child in fetch.children]
    lines += [f'<i id="r{used.number}">a</i>' for used in _used_by_styles(fetch)]
    return "\n".join(lines) + "\n"


def _used_by_styles(fetch: Fetch) -> list[Fetch]:
    """Pictures and fonts of a document's style sheets, which a browser fetches only if an element uses them."""
    used: list[Fetch] = []
    for child in fetch.children:
        if child.kind == "style":
            used += [one for one in child.children if one.kind != "style"]
        if child.kind in ("style", "script"):
            used += _used_by_styles(child)
    return used


def _made_css(fetch: Fetch, host: str | None) -> str:
    rules = {
        "style": '@import "{url}";',
        "image": '#r{n}{{background:url("{url}")}}',
        "drawing": '#r{n}{{background:url("{url}")}}',
        "font": '@font-face{{font-family:r{n};src:url("{url}")}}#r{n}{{font-family:r{n}}}',
    }
    children = sorted(fetch.children, key=lambda child: child.kind != "style")  # @import comes first
    return "\n".join(rules[c.kind].format(url=c.reference(host), n=c.number) for c in children) + "\n"


def _made_js(fetch: Fetch, host: str | None) -> str:
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
    return "\n".join(calls[c.kind].replace("{url}", json.dumps(c.reference(host))) for c in fetch.children) + "\n"


def _leaf(fetch: Fetch) -> None:
    """Set the body of a resource that is no code.

    An image or font keeps its recorded body; without a recorded body, it becomes filler of the same weight. A drawing
    (SVG) always becomes an empty SVG of the same weight. Other resources become filler.
    """
    entry = fetch.resource.entry
    fetch.content_type = re.sub(r"[^!-~ ]", "", entry.content_type) or _TYPES.get(
        fetch.kind, "application/octet-stream"
    )
    if fetch.kind == "drawing":
        _weigh(fetch, '<svg xmlns="http://www.w3.org/2000/svg"/>\n', "<!--", "-->")
    elif fetch.kind == "font" and entry.body:
        fetch.body, fetch.wire_bytes = entry.body, len(entry.body)
    elif fetch.kind in ("image", "font"):
        filler = random.Random(fetch.path).randbytes(fetch.wire_bytes)
        # Decoders ignore bytes after the end of a picture.
        fetch.body = ((entry.body or _GIF) + filler)[: max(fetch.wire_bytes, len(entry.body or b""))]
        fetch.wire_bytes = len(fetch.body)
    else:
        _weigh(fetch, "", "", "")


def _weigh(fetch: Fetch, text: str, begin: str, end: str) -> None:
    """Set a text as the response body of a request, and pad it with a comment to the recorded weight of the body.

    A text that is heavier keeps its own weight.
    """
    noise = _noise(fetch, 2 * fetch.wire_bytes).decode("ascii")
    plain = fetch.resource.entry.plain_bytes

    def body(letters: int) -> bytes:
        rest = max(plain - len(text) - len(begin) - len(end) - letters, 0)
        return f"{text}{begin}{noise[:letters]}{' ' * rest}{end}".encode()

    if fetch.encoding == "gzip":
        most = fetch.wire_bytes - GZIP_PADDING[0] - min(PADDING_LEAST, int(PADDING_SHARE * fetch.wire_bytes)) // 2
        letters = _most(len(noise), lambda n: len(gzip_compress(body(n))) <= most)
        fetch.body = body(letters)
        size = len(gzip_compress(fetch.body))
        if size <= most and fetch.wire_bytes - size <= _padding_most(fetch.wire_bytes):
            return
        least = len(gzip_compress(text.encode())) + GZIP_PADDING[0]
        if text and least > fetch.wire_bytes:
            fetch.body, fetch.wire_bytes = text.encode(), least
            return
        fetch.encoding = "identity"  # too small for compression to an exact size
    short = fetch.wire_bytes - len(text) - len(begin) - len(end)
    if short >= 0:
        fetch.body = f"{text}{begin}{noise[:short]}{end}".encode()
    else:
        fetch.body = (text + " " * (fetch.wire_bytes - len(text))).encode()
    fetch.wire_bytes = len(fetch.body)


def _noise(fetch: Fetch, letters: int) -> bytes:
    """Random letters, which compress badly; the same path always gives the same letters."""
    return "".join(random.Random(fetch.path).choices(_LETTERS, k=letters)).encode()


def _most(limit: int, fits: Callable[[int], bool]) -> int:
    """Largest number up to `limit` for which `fits` is true, by bisection; 0 if there is no such number.

    If a number fits, all smaller numbers must fit too.
    """
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _padding_most(size: int) -> int:
    return min(max(PADDING_LEAST, int(PADDING_SHARE * size)), GZIP_PADDING[-1])
