"""The page loader on a UDP socket: a DoH3 client that also loads pages."""

from __future__ import annotations

import gzip
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

from crosslayer.dns.quic import DoH3Client
from crosslayer.dns.sessions import Session
from crosslayer.h3.core import PageCore
from crosslayer.h3.load import PageFetch
from crosslayer.pages import PageSpec


class PageClient(DoH3Client):
    """A DoH3 client that can also load pages on its connection, before, after or without a query.

    `begin` only queues the request for the page. The next packets carry the request; with early data, these are the
    packets of the first flight. Failed loads raise `DnsError`, like failed queries.
    """

    core_class = PageCore
    _core: PageCore

    def begin(self, page: PageSpec) -> PageFetch:
        """Queue the request for a page's document; `finish` or `query` sends it."""
        if page.origins:
            raise self._fault(f"{page.name} has origins on other connections")
        fetch = PageFetch(self._core, page, time.monotonic())
        self._fetches.append(fetch)
        return fetch

    def finish(self, fetch: PageFetch) -> None:
        """Wait until a page is complete, and compare its bytes with those of its source files.

        Raises `DnsError` if the load fails or the bytes differ.
        """
        self._deadline = time.monotonic() + self.settings.timeout_s
        with self._faults():
            self._run_until(lambda: fetch.done)
        if fault := difference(fetch):
            raise self._fault(fault)

    @property
    def first_flight_bytes(self) -> int:
        """UDP payload sent before any packet was received, bytes."""
        return self._core.first_flight_bytes

    @property
    def settings_s(self) -> float | None:
        """Time at which the server's SETTINGS arrived, on the scale of `time.monotonic`, s; None before."""
        return self._core.settings_s

    def wait_for_settings(self) -> None:
        """Wait for the server's SETTINGS; `DnsError` if they do not arrive."""
        self._deadline = time.monotonic() + self.settings.timeout_s
        with self._faults():
            self._run_until(lambda: self._core.settings_s is not None)

    def wait_for_ticket(self) -> None:
        """Wait until ticket and token have arrived, at most `ClientSettings.ticket_wait_s`."""
        self._deadline = time.monotonic() + self.settings.ticket_wait_s
        with self._faults(), suppress(TimeoutError):
            self._run_until(lambda: bool(self._core.session.ticket is not None and self._core.session.token))

    def _prepare(self, session: Session) -> None:
        super()._prepare(session)
        self._fetches: list[PageFetch] = []

    def _run_until(self, done: Callable[[], bool]) -> None:
        super()._run_until(lambda: self._advance() or done())

    def _advance(self) -> bool:
        """Send the requests that are due in each load.

        Always returns False, so that `_run_until` can call it in its condition, before `or done()`.
        """
        for fetch in self._fetches:
            try:
                fetch.advance(time.monotonic())
            except ValueError as error:
                raise self._fault(str(error)) from None
        return False


def difference(fetch: PageFetch) -> str | None:
    """First difference between a received page and its specification or sources; None if there is none."""
    specs = {resource.path: resource for resource in fetch.page.resources}
    for path, response in fetch.responses.items():
        spec = specs.get(path)
        if spec is None:
            return f"asked for {path}, which is not of the page"
        if (status := response.headers.get(b":status", b"").decode("latin-1")) != "200":
            return f"http status {status} for {path}"
        if len(response.body) != spec.wire_bytes:
            return f"{path} has {len(response.body)} bytes instead of {spec.wire_bytes}"
        try:
            plain = gzip.decompress(response.body) if spec.encoding == "gzip" else bytes(response.body)
        except (OSError, EOFError, zlib.error) as error:
            return f"{path} is no gzip stream: {error}"
        if plain != _source(fetch.page.folder / spec.source):
            return f"{path} has other bytes than its source"
    return None


@cache
def _source(file: Path) -> bytes:
    """Content of a page's source file, decompressed."""
    content = file.read_bytes()
    return gzip.decompress(content) if file.suffix == ".gz" else content
