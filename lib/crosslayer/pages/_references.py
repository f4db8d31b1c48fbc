"""Rewrite the references in recorded code to the URLs of the copy.

A reference to a resource of the copy becomes the path of the resource, or its URL if its host is not that of the base
URL. A reference to a resource that was requested but is not in the copy becomes `data:,`, so that the copy makes no
failing requests.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crosslayer.pages._urls import Url, parse

if TYPE_CHECKING:
    from crosslayer.pages._fetches import Fetch

_NOTHING = "data:,"
_WORD = r"""[^"'()<>\s=,](?:[^"'()<>\s]*[^"'()<>\s,])?"""
_REFERENCE = re.compile(
    r"""(?P<name>\b(?:src|href|srcset|imagesrcset|data|poster|action|background)\s*=\s*|\burl\(\s*|@import\s+)"""
    r"""(?:"(?P<double>[^"<>]*)"|'(?P<single>[^'<>]*)')"""
    rf"""|(?<=["'(=])\s*(?P<word>{_WORD})\s*(?=["')>\s,])""",
    re.IGNORECASE,
)
_CANDIDATE = re.compile(rf"(?:(?<=^)|(?<=[\s,])){_WORD}(?=[\s,]|$)")
"""Pattern of a URL in a `srcset`, or of the descriptor after a URL, e.g. `2x`."""
_TAG = re.compile(
    r"""<(?:script|link|img|iframe|frame|source|embed|input|track)\b(?:[^>"']|"[^"]*"|'[^']*')*>""", re.IGNORECASE
)
"""Pattern of a tag with attributes that make a browser request resources."""
_LOADED = re.compile(
    r"""(?<![\w-])(?P<name>src|href|srcset|imagesrcset)(?P<equals>\s*=\s*)"""
    r"""(?:"(?P<double>[^"]*)"|'(?P<single>[^']*)'|(?P<bare>[^\s"'>]+))""",
    re.IGNORECASE,
)
_LINKED = re.compile(
    r"""<link\b[^>]*\brel\s*=\s*["']?[^"'>]*\b(?:stylesheet|icon|preload|modulepreload|manifest|prefetch)\b""",
    re.IGNORECASE,
)
_OUTSIDE = re.compile(
    r"""<link\b[^>]*\brel\s*=\s*["']?[^"'>]*(?<![\w-])(?:icon|apple-touch-icon|manifest)\b""", re.IGNORECASE
)
"""Pattern of a tag that names an icon or an app manifest, which browsers request at their own time or never."""
_CONNECTED = re.compile(r"""<link\b[^>]*\brel\s*=\s*["']?[^"'>]*\b(?:preconnect|dns-prefetch)\b""", re.IGNORECASE)
"""Pattern of a tag that makes a browser look up a host name."""
_DESCRIPTOR = re.compile(r"\d+(\.\d+)?[wxh]")
_INTEGRITY = re.compile(r"""\sintegrity\s*=\s*(?:"[^"]*"|'[^']*'|[^\s>]+)""", re.IGNORECASE)
_TARGET = re.compile(r"""\b(?:src|href)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>]+))""", re.IGNORECASE)
_BASE = re.compile(r"""(<base\b[^>]*?\bhref\s*=\s*)(?:"([^"]*)"|'([^']*)'|([^\s>]+))""", re.IGNORECASE)
_ABSOLUTE = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.IGNORECASE)
_LIKE_A_FILE = re.compile(r"[/.?]")


@dataclass(slots=True)
class References:
    """Rewrites the references of a copied page; it knows the resource of the copy for each recorded URL."""

    targets: Mapping[str, Fetch]
    """Maps each recorded URL to its resource in the copy.

    A URL that redirected is mapped to the resource at the end of its redirections.
    """
    absent: frozenset[str]
    """URLs that were requested and are not in the copy."""
    changed: set[int]
    """`Fetch.number` of each request whose body differs from the recorded body."""
    unsigned: int = 0
    """Number of `integrity` attributes that were removed because the files that they protect have changed."""

    def rewritten(self, fetch: Fetch, body: bytes) -> bytes:
        """The body of a document, style sheet or script with the URLs of the copy; its other bytes stay the same."""
        text = body.decode("latin-1")  # one character for each byte, with any charset
        bases = self._bases(fetch)
        reference_host: str | None = fetch.host
        if fetch.kind == "document" and (base := _BASE.search(text)):
            text, bases, reference_host = self._rebased(fetch, text, base)
        elif fetch.kind == "script":
            hosts = {other.host for other in self.targets.values() if other.kind == "document"}
            reference_host = hosts.pop() if len(hosts) == 1 else None
        if fetch.kind == "document":
            text = _TAG.sub(lambda match: self._tag(match[0], bases, fetch), text)

        def word(reference: str, *, named: bool) -> str:
            new = self._new(reference, bases, reference_host, fetch, named=named)
            return reference if new is None else new

        def replaced(match: re.Match[str]) -> str:
            if match["word"] is not None:
                return match[0].replace(match["word"], word(match["word"], named=False))
            value = match["double"] if match["double"] is not None else match["single"]
            quote = '"' if match["double"] is not None else "'"
            if "srcset" in match["name"].lower():
                value = _CANDIDATE.sub(lambda one: word(one[0], named=False), value)
            else:
                value = word(value, named=True)
            return f"{match['name']}{quote}{value}{quote}"

        return _REFERENCE.sub(replaced, text).encode("latin-1", "replace")

    def _bases(self, fetch: Fetch) -> list[tuple[Url, Url]]:
        """Possible base URLs of a file's relative references, as pairs of the recorded URL and the URL in the copy."""
        of = [fetch]
        if fetch.kind == "script":  # its requests are relative to its document, its imports to itself
            document = fetch
            while document.kind != "document" and document.initiator is not None:
                document = document.initiator
            of = [document, fetch]
        return [(one.resource.url, new) for one in of if (new := parse(one.url))]

    def _rebased(self, fetch: Fetch, text: str, base: re.Match[str]) -> tuple[str, list[tuple[Url, Url]], str | None]:
        """Rewrite the URL in a document's `<base>`.

        Returns the document, a list with one pair (the base URL in the recording, the base URL in the copy), and the
        host of the base URL in the copy.
        """
        named = html.unescape(_decoded(next(filter(None, base.groups()[1:]), ""), fetch))
        old = parse(named, fetch.resource.url) or fetch.resource.url
        host = next((other.host for other in self.targets.values() if other.resource.url.host == old.host), fetch.host)
        new = parse(f"https://{host}{old.path}") or old
        start, end = base.span()
        shown = new.path if host == fetch.host else str(new)
        return f'{text[:start]}{base[1]}"{shown}"{text[end:]}', [(old, new)], host

    def _new(
        self, reference: str, bases: list[tuple[Url, Url]], host: str | None, fetch: Fetch, *, named: bool
    ) -> str | None:
        """Rewritten form of a reference; None if the reference stays unchanged."""
        text = html.unescape(_decoded(reference, fetch)).strip()
        if not text or text.startswith(("#", "data:")) or not (named or _LIKE_A_FILE.search(text)):
            return None
        for old_base, new_base in bases:
            old, now = parse(text, old_base), parse(text, new_base)
            if old is None:
                continue
            target = self.targets.get(str(old))
            if target is not None:
                stays = now is not None and now.address == target.url and not old.query
                if stays and not _ABSOLUTE.match(text):
                    return None
                fragment = text.partition("#")[2] if target.kind in ("drawing", "image") else ""
                return target.reference(host) + (f"#{fragment}" if fragment.isascii() and fragment else "")
            if str(old) in self.absent:
                return _NOTHING
        return None

    def _tag(self, tag: str, bases: list[tuple[Url, Url]], fetch: Fetch) -> str:
        """Rewrite a tag so that a browser requests only what the recorded load requested.

        This holds for every size of the browser's screen.
        """
        tag = self._without_integrity(tag, bases, fetch)

        def attribute(match: re.Match[str]) -> str:
            name, value = match["name"].lower(), _value(match)
            if name == "href" and _OUTSIDE.match(tag):
                new = _NOTHING
            elif name == "href" and _CONNECTED.match(tag):
                new = value if self._is_known_host(value, bases, fetch) else _NOTHING
            elif name == "href" and not _LINKED.match(tag):
                return match[0]
            elif "srcset" in name:
                named = [match[0] for match in _CANDIDATE.finditer(value)]
                recorded = [url for url in named if self._target(url, bases, fetch) is not None]
                instead = recorded[0] if recorded else _NOTHING
                kept = {*recorded, *filter(_DESCRIPTOR.fullmatch, named)}
                new = _CANDIDATE.sub(lambda match: match[0] if match[0] in kept else instead, value)
            elif self._is_missing(value, bases, fetch):
                new = _NOTHING
            else:
                new = value
            quote = "'" if match["single"] is not None else '"'
            return match[0] if new == value else f"{match['name']}{match['equals']}{quote}{new}{quote}"

        return _LOADED.sub(attribute, tag)

    def _is_known_host(self, reference: str, bases: list[tuple[Url, Url]], fetch: Fetch) -> bool:
        """Whether a reference is to a host of the copy."""
        url = parse(html.unescape(_decoded(reference, fetch)), bases[0][0])
        return url is not None and any(target.resource.url.host == url.host for target in self.targets.values())

    def _is_missing(self, reference: str, bases: list[tuple[Url, Url]], fetch: Fetch) -> bool:
        """Whether a reference is to an HTTP resource that is not in the copy."""
        url = parse(html.unescape(_decoded(reference, fetch)), bases[0][0])
        if url is None or url.scheme not in ("http", "https") or reference.strip().startswith("#") or not reference:
            return False
        return str(url) not in self.targets

    def _target(self, reference: str, bases: list[tuple[Url, Url]], fetch: Fetch) -> Fetch | None:
        """The resource of the copy that a reference leads to."""
        return self.targets.get(str(parse(html.unescape(_decoded(reference, fetch)), bases[0][0])))

    def _without_integrity(self, tag: str, bases: list[tuple[Url, Url]], fetch: Fetch) -> str:
        if not (signed := _INTEGRITY.search(tag)) or not (named := _TARGET.search(tag)):
            return tag
        target = self._target(next(filter(None, named.groups()), ""), bases, fetch)
        if target is None or target.number not in self.changed:
            return tag
        self.unsigned += 1
        return tag.replace(signed[0], "")


def named_in(text: str, *, style: bool = False) -> Iterator[str]:
    """Yield every possible reference in a text of HTML, JavaScript or CSS.

    `style` says that the text is CSS; entities are decoded only in other texts.
    """
    for match in _REFERENCE.finditer(text):
        value = next(filter(None, (match["word"], match["double"], match["single"])), "")
        if match["name"] and "srcset" in match["name"].lower():
            yield from (html.unescape(one[0]) for one in _CANDIDATE.finditer(value))
        elif value:
            yield value.strip() if style else html.unescape(value).strip()


def outside_load(text: str, document: Url) -> set[str]:
    """URLs of a document's icons and app manifests, and of the default icon `/favicon.ico`.

    URLs that the document also uses in other ways are left out.
    """
    base = parse(base_of(text), document) or document
    tags = [match[0] for match in _TAG.finditer(text) if _OUTSIDE.match(match[0])]
    hrefs = (_value(match) for tag in tags for match in _LOADED.finditer(tag) if match["name"].lower() == "href")
    rest = _TAG.sub(lambda match: "" if _OUTSIDE.match(match[0]) else match[0], text)
    used = {str(parse(reference, base)) for reference in named_in(rest)}
    return {str(parse(html.unescape(href), base)) for href in (*hrefs, "/favicon.ico")} - used


def _value(attribute: re.Match[str]) -> str:
    """Value of an attribute that `_LOADED` matched, without quotes."""
    return attribute["double"] or attribute["single"] or attribute["bare"] or ""


def base_of(text: str) -> str:
    """URL in a document's `<base>`, perhaps a relative one; empty if there is no `<base>`."""
    base = _BASE.search(text)
    return html.unescape(next(filter(None, base.groups()[1:]), "")) if base else ""


def _decoded(reference: str, fetch: Fetch) -> str:
    """Decode a reference by the charset of its file.

    The reference comes from a text that has one character for each byte of the file.
    """
    return reference.encode("latin-1", "replace").decode(fetch.resource.entry.charset, "replace")
