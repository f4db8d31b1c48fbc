"""libcurl with HTTP/3 as a client: one document on new connections, without its resources."""

from __future__ import annotations

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
"""Values of CURLINFO_HTTP_VERSION."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """Result of a request."""

    columns: dict[str, Any]
    """Columns of `page_loads`."""
    error: str
    """Why no document came; empty if it came."""


def versions() -> dict[str, str]:
    """Versions of libcurl and of its libraries for QUIC; empty where there is no libcurl with HTTP/3."""
    if pycurl is None or not pycurl.version_info()[4] & _HTTP3_FEATURE:
        return {}
    known = dict(word.partition("/")[::2] for word in pycurl.version.split())
    return {name: known[name] for name in ("libcurl", "ngtcp2", "nghttp3") if name in known}


def fetch(url: str, *, http3: bool, ca_file: Path, timeout_s: float) -> Fetched:
    """Request a document in a new libcurl, which knows nothing of earlier requests.

    Parameters
    ----------
    url
        URL of the document.
    http3
        `curl --http3`: HTTP/3, or HTTP/2 where HTTP/3 does not answer in time. Otherwise HTTP/2.
    ca_file
        CA certificate, PEM.
    timeout_s
        Time after which the request is ended, seconds.
    """
    curl, body = pycurl.Curl(), bytearray()
    for option, value in (
        (pycurl.URL, url),
        (pycurl.CAINFO, str(ca_file)),
        (pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_3 if http3 else pycurl.CURL_HTTP_VERSION_2TLS),
        (pycurl.WRITEFUNCTION, body.extend),
        (pycurl.TIMEOUT_MS, round(timeout_s * 1e3)),
    ):
        curl.setopt(option, value)
    started_s = time.time()
    try:
        curl.perform()
    except pycurl.error as error:
        return Fetched({"started_s": started_s}, f"curl: {error.args[1]}")
    finally:
        columns = _columns(curl) | {"started_s": started_s}
        status = curl.getinfo(pycurl.RESPONSE_CODE)
        curl.close()
    if status != 200 or not body:
        return Fetched({"started_s": started_s}, f"curl: status {status}, {len(body)} bytes")
    return Fetched(columns, "")


def _columns(curl: Any) -> dict[str, Any]:
    """Times of a request after its start, as columns of `page_loads`."""

    def ms(option: int) -> float:
        return float(curl.getinfo(option)) / 1e3

    resolved_ms, secured_ms, total_ms = (
        ms(option) for option in (pycurl.NAMELOOKUP_TIME_T, pycurl.APPCONNECT_TIME_T, pycurl.TOTAL_TIME_T)
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
        "document_protocol": _ALPN.get(curl.getinfo(pycurl.INFO_HTTP_VERSION), ""),
        "transfer_bytes": int(curl.getinfo(pycurl.SIZE_DOWNLOAD) + curl.getinfo(pycurl.HEADER_SIZE)),
        "resource_count": 0,
    }
