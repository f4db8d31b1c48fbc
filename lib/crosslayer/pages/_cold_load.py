"""Select the requests of one page load from a recording."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from crosslayer.pages._errors import PageError
from crosslayer.pages._recording import Entry, RecordedPage, Recording
from crosslayer.pages._references import outside_load
from crosslayer.pages._urls import Url, parse

KINDS = (
    ("text/html", "document"),
    ("application/xhtml", "document"),
    ("text/css", "style"),
    ("javascript", "script"),
    ("ecmascript", "script"),
    ("svg", "drawing"),
    ("image/", "image"),
    ("font", "font"),
)
"""Parts of media types, and the kind of resource that each part indicates; the first match counts."""
_VAGUE = ("", "text/plain", "application/octet-stream", "binary/octet-stream", "x-unknown")
_BY_TYPE = {"document": "document", "stylesheet": "style", "style": "style", "script": "script", "font": "font"}
_BY_ENDING = {
    ".html": "document",
    ".htm": "document",
    ".css": "style",
    ".js": "script",
    ".mjs": "script",
    ".svg": "drawing",
    **dict.fromkeys((".png", ".jpg", ".jpeg", ".gif", ".webp", ".avif", ".ico"), "image"),
    **dict.fromkeys((".woff", ".woff2", ".ttf", ".otf"), "font"),
}
_BY_SCRIPT = ("xhr", "fetch", "xmlhttprequest", "empty")
"""Request types (`Entry.resource_type`) whose response a script reads, whatever its media type."""
_OUTSIDE_TYPES = ("image/x-icon", "image/vnd.microsoft.icon", "application/manifest+json")
_AGAIN = "Record the load of a page from its start, with an empty cache."


@dataclass(frozen=True, slots=True)
class Resource:
    """A request that the copy of the page makes too."""

    entry: Entry
    url: Url
    kind: str
    """`document`, `style`, `script`, `drawing`, `image`, `font` or `other`."""


@dataclass(frozen=True, slots=True)
class ColdLoad:
    """One page load of a recording: the requests that the copy makes, and those that were left out."""

    resources: tuple[Resource, ...]
    """Resources in the order of their requests; the document is first."""
    load_ms: float | None
    """Time of the load event, ms since the Unix epoch; None if unknown."""
    left_out: Counter[str]
    """Number of requests that the copy does not make, by reason."""
    redirected: Mapping[str, str]
    """For each recorded URL that redirected to a resource: the URL of this resource."""
    absent: frozenset[str]
    """URLs that were requested and are not in the copy."""
    others: tuple[str, ...]
    """One text for each other page of the recording: the page's number, its URL and its number of requests."""


@dataclass(slots=True)
class _Navigation:
    """The entries of one page of a recording."""

    page: RecordedPage
    entries: list[Entry]

    @property
    def started_ms(self) -> float:
        if self.page.started_ms is not None:
            return self.page.started_ms
        return self.entries[0].started_ms if self.entries else float("inf")


def cold_load(recording: Recording, where: str, number: int = 1) -> ColdLoad:
    """Select the requests of one page of a recording.

    Parameters
    ----------
    where
        Name of the recording in errors.
    number
        Number of the page. Pages that have a document are counted from 1 in the order of their start.

    Raises
    ------
    PageError
        If the recording has no page of this number; the message contains the reason.
    """
    navigations = _navigations(recording)
    documents = [(navigation, entry) for navigation in navigations if (entry := _document(navigation)) is not None]
    if not documents:
        raise _without_document(recording, where)
    if not 1 <= number <= len(documents):
        pages = "1 page" if len(documents) == 1 else f"{len(documents)} pages"
        raise PageError(
            f"has {pages} with a document, not a page {number}",
            where=where,
            next_step=f"Choose one with --page: {'; '.join(_titles(documents))}.",
        )
    navigation, document = documents[number - 1]
    titles = _titles(documents)
    others = tuple(title for index, title in enumerate(titles, 1) if index != number)
    left_out = Counter(recording.unreadable)
    if empty := len(navigations) - len(documents):
        left_out["pages without a document"] += empty
    until = _load_event(navigation, document)
    outside = _outside_load(document, navigation.entries)
    resources: dict[str, Resource] = {}
    absent = {str(url) for text in recording.unreadable_urls if (url := parse(text)) is not None}
    redirections: dict[str, Url] = {}
    for entry in navigation.entries:
        url = parse(entry.url)
        kind = kind_of(entry, url)
        if why := _unfit(entry, url, until):
            left_out[why] += 1
            if url is not None:
                absent.add(str(url))
                target = parse(entry.received.get("location", ""), url)
                if why == "redirections" and target is not None:
                    redirections[str(url)] = target
        elif url is None:
            continue
        elif not resources and entry is not document:
            left_out["before the document"] += 1
            absent.add(str(url))
        elif str(url) in outside:
            left_out["icons and app manifests"] += 1
            absent.add(str(url))
        elif str(url) in resources:
            left_out["asked for again"] += 1
        else:
            resources[str(url)] = Resource(entry, url, kind)
    return ColdLoad(
        resources=tuple(resources.values()),
        load_ms=until,
        left_out=left_out,
        redirected=_ends(redirections, resources),
        absent=frozenset(absent - set(resources)),
        others=others,
    )


def kind_of(entry: Entry, url: Url | None) -> str:
    """Kind of a resource, from its response.

    A response that a script reads is `other`. The media type determines the kind of all other responses. If the media
    type is missing or vague, the resource type decides, then the start of the body, then the ending of the path.
    """
    if entry.resource_type in _BY_SCRIPT:
        return "other"
    kind = next((kind for part, kind in KINDS if part in entry.mime), "other")
    if kind != "other" or entry.mime not in _VAGUE:
        return kind
    if entry.resource_type in _BY_TYPE:
        return _BY_TYPE[entry.resource_type]
    ending = PurePosixPath(url.path).suffix.lower() if url else ""
    begin = (entry.body or b"")[:1024].lstrip().lower()
    if begin.startswith((b"<!doctype html", b"<html")):
        return "document"
    return _BY_ENDING.get(ending, "other")


def _navigations(recording: Recording) -> list[_Navigation]:
    """The pages of a recording with their entries, in the order of their start.

    An entry belongs to the page that the entry names. An entry without a page belongs to the page that started last
    before it.
    """
    pages = {page.identifier: page for page in recording.pages}
    if not any(entry.page for entry in recording.entries) and len(pages) < 2:
        page = next(iter(pages.values()), RecordedPage("", None, None))
        return [_Navigation(page, recording.entries)]
    by_page = {identifier: _Navigation(page, []) for identifier, page in pages.items()}
    nameless = []
    for entry in recording.entries:
        if entry.page:
            new = _Navigation(RecordedPage(entry.page, None, None), [])
            by_page.setdefault(entry.page, new).entries.append(entry)
        else:
            nameless.append(entry)
    navigations = sorted(by_page.values(), key=lambda navigation: navigation.started_ms)
    starts = [navigation.started_ms for navigation in navigations]
    for entry in nameless:
        last = max((n for n, start in enumerate(starts) if start <= entry.started_ms), default=0)
        navigations[last].entries.append(entry)
    for navigation in navigations:
        navigation.entries.sort(key=lambda entry: entry.started_ms)
    return navigations


def _document(navigation: _Navigation) -> Entry | None:
    """The document of a page; None if there is no HTML response.

    Among several HTML responses, three conditions are tried in this order: the URL is the title of the page; the
    resource type is `document`; the response caused another request. The first condition that a response meets decides:
    the document is the first response that meets it. If no response meets any condition, the document is the first HTML
    response.
    """
    candidates = [
        entry
        for entry in navigation.entries
        if not _unfit(entry, url := parse(entry.url), None) and kind_of(entry, url) == "document"
    ]
    if len(candidates) < 2:
        return next(iter(candidates), None)
    titled = parse(navigation.page.title)
    for fits in (
        lambda entry: titled is not None and parse(entry.url) == titled,
        lambda entry: entry.resource_type == "document",
        lambda entry: _causes_others(entry, navigation.entries),
    ):
        if (first := next(filter(fits, candidates), None)) is not None:
            return first
    return candidates[0]


def _causes_others(document: Entry, entries: list[Entry]) -> bool:
    """Whether a document caused another request of the recording.

    It did if it is the initiator of the request, or if its body contains the path of the request.
    """
    url, body = parse(document.url), document.body or b""
    for entry in entries:
        other = parse(entry.url)
        if other is None or other == url:
            continue
        if parse(entry.initiator) == url or (len(other.path) > 1 and other.path.encode() in body):
            return True
    return False


def _outside_load(document: Entry, entries: list[Entry]) -> set[str]:
    """URLs of a page's icons and app manifests, which browsers request at different times or never."""
    url = parse(document.url)
    if url is None:
        return set()
    if document.body is None:
        of_type = {str(parse(entry.url)) for entry in entries if entry.mime in _OUTSIDE_TYPES}
        return of_type | outside_load("", url)
    return outside_load(document.body.decode(document.charset, "replace"), url)


def _load_event(navigation: _Navigation, document: Entry) -> float | None:
    """Time of the load event, ms since the Unix epoch; None if the recording has none after the document's start."""
    if navigation.page.load_ms is None:
        return None
    load_ms = navigation.started_ms + navigation.page.load_ms
    return load_ms if load_ms > document.started_ms else None


def _unfit(entry: Entry, url: Url | None, until: float | None) -> str:
    """Reason why the copy does not repeat a recorded request; empty if it does."""
    if url is None:
        return "without a valid URL"
    if url.scheme not in ("http", "https"):
        return f"of {url.scheme}:"
    if not url.host:
        return "without a host name"
    if 300 <= entry.status < 400 and entry.status != 304:
        return "redirections"
    if not 200 <= entry.status < 400:
        return "that failed"
    if entry.method != "GET":
        return entry.method
    if entry.mime.startswith(("video/", "audio/")):
        return "films and sounds"
    if until is not None and entry.started_ms > until:
        return "after the load event"
    return ""


def _ends(redirections: Mapping[str, Url], resources: Mapping[str, Resource]) -> dict[str, str]:
    """For each URL that redirects to a resource, directly or via other URLs: the URL of this resource."""
    ends = {}
    for url in redirections:
        target, seen = url, {url}
        while target in redirections and str(redirections[target]) not in seen:
            target = str(redirections[target])
            seen.add(target)
        if target in resources:
            ends[url] = target
    return ends


def _titles(documents: list[tuple[_Navigation, Entry]]) -> list[str]:
    return [
        f"{number} is {document.url.partition('?')[0]} ({len(navigation.entries)} requests)"
        for number, (navigation, document) in enumerate(documents, 1)
    ]


def _without_document(recording: Recording, where: str) -> PageError:
    """Error for a recording without a document; the message counts requests by fault or, if they have none, by type."""
    reasons = Counter(recording.unreadable)
    for entry in recording.entries:
        why = _unfit(entry, parse(entry.url), None)
        if why == "that failed" and entry.status:
            why += f" (status {entry.status})"
        reasons[why or f"of type {entry.mime or 'unknown'}"] += 1
    if not reasons:
        return PageError("has no entries, so it has no document", where=where, next_step=_AGAIN)
    counted = ", ".join(f"{n} {why}" for why, n in reasons.most_common(6))
    return PageError(
        f"has no document, an HTML response to GET; its requests are: {counted}", where=where, next_step=_AGAIN
    )
