"""Client with libcurl and HTTP/3: opens new connections and requests one document, but not the document's resources.

libcurl is that of the package pycurl. It is called by ctypes, because pycurl has no option for the Alt-Svc cache.
"""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

try:
    import pycurl
except ImportError:  # its package is optional
    pycurl = None

_HTTP3_FEATURE: Final = 1 << 25
_ALPN: Final = {2: "http/1.1", 3: "h2", 30: "h3"}
"""ALPN identifier by value of CURLINFO_HTTP_VERSION."""
_ERROR_BUFFER, _ALT_SVC = 10010, 10287
"""Options of <curl/curl.h> that pycurl does not name."""
_ALT_SVC_CTRL, _ALT_SVC_H2, _ALT_SVC_H3 = 286, 1 << 4, 1 << 5
_DOWNLOADED = 0x600008
"""Value of CURLINFO_SIZE_DOWNLOAD_T in <curl/curl.h>."""
_ERROR_BYTES = 256
_Write = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p)


@dataclass(frozen=True, slots=True)
class Fetched:
    """Result of a request."""

    columns: dict[str, Any]
    """Columns of `page_loads`."""
    error: str
    """Reason why no document arrived; empty if it arrived."""


def versions() -> dict[str, str]:
    """Versions of libcurl and of its libraries for QUIC; empty without a libcurl that supports HTTP/3."""
    if pycurl is None or not pycurl.version_info()[4] & _HTTP3_FEATURE:
        return {}
    known = dict(word.partition("/")[::2] for word in pycurl.version.split())
    return {name: known[name] for name in ("libcurl", "ngtcp2", "nghttp3") if name in known}


def fetch(url: str, *, http3: bool, ca_file: Path, timeout_s: float, alt_svc: Path | None = None) -> Fetched:
    """Request a document with a new libcurl handle. Its only state from earlier requests is the file `alt_svc`.

    Parameters
    ----------
    url
        URL of the document.
    http3
        True: as `curl --http3`, i.e. HTTP/3, or HTTP/2 if HTTP/3 does not answer in time. False: HTTP/2, or HTTP/3 if
        `alt_svc` announces it.
    ca_file
        CA certificate, PEM.
    timeout_s
        Time after which the request is ended, seconds.
    alt_svc
        `curl --alt-svc`: file of the Alt-Svc cache, which is read before the request and written after it.
    """
    curl, body = _library(), bytearray()
    message = ctypes.create_string_buffer(_ERROR_BYTES)

    def take(data: int, size: int, count: int, _own: object) -> int:
        body.extend(ctypes.string_at(data, size * count))
        return size * count

    write = _Write(take)
    handle = ctypes.c_void_p(curl.curl_easy_init())
    options: dict[int, Any] = {
        pycurl.URL: url.encode(),
        pycurl.CAINFO: str(ca_file).encode(),
        pycurl.HTTP_VERSION: pycurl.CURL_HTTP_VERSION_3 if http3 else pycurl.CURL_HTTP_VERSION_NONE,
        pycurl.WRITEFUNCTION: write,
        pycurl.TIMEOUT_MS: round(timeout_s * 1e3),
        pycurl.NOSIGNAL: 1,
        _ERROR_BUFFER: message,
    }
    if alt_svc is not None:
        options |= {_ALT_SVC_CTRL: _ALT_SVC_H2 | _ALT_SVC_H3, _ALT_SVC: str(alt_svc).encode()}
    try:
        for option, value in options.items():
            curl.curl_easy_setopt(handle, option, ctypes.c_long(value) if isinstance(value, int) else value)
        started_s = time.time()
        failed = curl.curl_easy_perform(handle)
        columns = _columns(curl, handle) | {"started_s": started_s}
        status = _info(curl, handle, pycurl.RESPONSE_CODE)
    finally:
        curl.curl_easy_cleanup(handle)
    if failed:
        return Fetched({"started_s": started_s}, f"curl: {message.value.decode(errors='replace')}")
    if status != 200 or not body:
        return Fetched({"started_s": started_s}, f"curl: status {status}, {len(body)} bytes")
    return Fetched(columns, "")


def _library() -> ctypes.CDLL:
    """The libcurl that pycurl has loaded."""
    mapped = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    curl = ctypes.CDLL(next(line.split()[-1] for line in mapped if "/libcurl" in line))
    curl.curl_easy_init.restype = ctypes.c_void_p
    curl.curl_easy_setopt.argtypes = curl.curl_easy_getinfo.argtypes = [ctypes.c_void_p, ctypes.c_int]
    curl.curl_easy_perform.argtypes = curl.curl_easy_cleanup.argtypes = [ctypes.c_void_p]
    return curl


def _info(curl: ctypes.CDLL, handle: ctypes.c_void_p, what: int) -> int:
    """Number that libcurl reports for `what`, a CURLINFO of type long or curl_off_t."""
    value = ctypes.c_long()
    curl.curl_easy_getinfo(handle, what, ctypes.byref(value))
    return value.value


def _columns(curl: ctypes.CDLL, handle: ctypes.c_void_p) -> dict[str, Any]:
    """Columns of `page_loads` for a request. Times count from the start of the request."""

    def ms(what: int) -> float:
        return _info(curl, handle, what) / 1e3

    resolved_ms, secured_ms, total_ms = (
        ms(what) for what in (pycurl.NAMELOOKUP_TIME_T, pycurl.APPCONNECT_TIME_T, pycurl.TOTAL_TIME_T)
    )
    return {
        "plt_ms": total_ms,
        "fetch_start_ms": 0.0,
        "domain_lookup_start_ms": 0.0,
        "domain_lookup_end_ms": resolved_ms,
        "connect_start_ms": resolved_ms,
        "connect_ms": secured_ms,
        "request_start_ms": ms(pycurl.PRETRANSFER_TIME_T),
        "response_start_ms": ms(pycurl.STARTTRANSFER_TIME_T),
        "response_end_ms": total_ms,
        "document_protocol": _ALPN.get(_info(curl, handle, pycurl.INFO_HTTP_VERSION), ""),
        "transfer_bytes": _info(curl, handle, _DOWNLOADED) + _info(curl, handle, pycurl.HEADER_SIZE),
        "resource_count": 0,
    }
