"""HTTPS records of the study in wire format (RFC 9460, section 2.2), valid and invalid."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

_MANDATORY, _ALPN, _NO_DEFAULT_ALPN, _PORT, _IPV4HINT, _ECH = range(6)
"""SvcParamKeys (RFC 9460, section 14.3.2; `ech`: RFC 9848)."""
_UNKNOWN = 65280
"""First SvcParamKey for private use."""
_CLOSED_PORT = 444
_NOBODY = bytes([10, 53, 0, 254])
_NOWHERE = "nowhere.example"


def name(text: str) -> bytes:
    """Domain name in wire format, without compression."""
    labels = [label.encode("ascii") for label in text.strip(".").split(".") if label]
    return b"".join(bytes([len(label)]) + label for label in labels) + b"\0"


def record(priority: int, target: str, *parameters: tuple[int, bytes]) -> bytes:
    """RDATA of an HTTPS record with these parameters in this order, even if RFC 9460 forbids them."""
    values = b"".join(struct.pack("!HH", key, len(value)) + value for key, value in parameters)
    return struct.pack("!H", priority) + name(target) + values


def alpn(*protocols: str) -> tuple[int, bytes]:
    """Parameter `alpn` with these application protocols."""
    return _ALPN, b"".join(bytes([len(protocol)]) + protocol.encode("ascii") for protocol in protocols)


_BOTH = alpn("h3", "h2")
_HTTPS_PORT, _OTHER_PORT = (_PORT, struct.pack("!H", 443)), (_PORT, struct.pack("!H", _CLOSED_PORT))


@dataclass(frozen=True, slots=True)
class RecordKind:
    """An HTTPS record, the ECH key of the server, and the kind of visit."""

    about: str
    """Description in figures."""
    rdata: Callable[[str, bytes], bytes] | None = None
    """RDATA as a function of host and ECHConfigList; None if the zone has no HTTPS record."""
    fault: Literal["servfail", "silence"] | None = None
    """Failure of the query: `servfail`, or `silence` (no answer). None if it is answered."""
    ech: Literal["none", "own", "replaced"] = "none"
    """Key with which the server decrypts ClientHellos: none, the key of `rdata`, or another key."""
    h3: Literal["1-rtt", "0-rtt"] = "1-rtt"
    """Handshake of the load. `0-rtt`: the page was loaded before, with the same record."""
    broken: bool = False
    """Whether the record is malformed, unusable or wrong, or the query for it fails. False if there is no record."""


def _good(_host: str, _ech: bytes) -> bytes:
    return record(1, ".", _BOTH)


def _with_ech(_host: str, ech: bytes) -> bytes:
    return record(1, ".", _BOTH, (_ECH, ech))


def _broken(about: str, *parameters: tuple[int, bytes], target: str = ".") -> RecordKind:
    return RecordKind(about, lambda _host, _ech: record(1, target, *parameters), broken=True)


KINDS: Mapping[str, RecordKind] = {
    "none": RecordKind("no record"),
    "whole": RecordKind("valid record", _good),
    "whole-0-rtt": RecordKind("valid record, second visit", _good, h3="0-rtt"),
    # Malformed: a client must reject the whole RRset (section 2.2).
    "cut-short": RecordKind("truncated value", lambda host, ech: _good(host, ech)[:-1], broken=True),
    "keys-unordered": _broken("keys out of order", _HTTPS_PORT, _BOTH),
    "key-twice": _broken("duplicate key", _BOTH, _BOTH),
    "alpn-empty": _broken("empty ALPN identifier", (_ALPN, b"\0\2h2")),
    # Inconsistent, or unusable for this client: a client must ignore the record (sections 2.4.3 and 8).
    "no-default-alone": _broken("no-default-alpn without alpn", (_NO_DEFAULT_ALPN, b"")),
    "mandatory-missing": _broken("mandatory key missing", (_MANDATORY, struct.pack("!H", _PORT)), _BOTH),
    "mandatory-unknown": _broken(
        "mandatory key unknown", (_MANDATORY, struct.pack("!H", _UNKNOWN)), _BOTH, (_UNKNOWN, b"?")
    ),
    "protocol-unknown": _broken("only an unknown protocol", alpn("h9"), (_NO_DEFAULT_ALPN, b"")),
    # Well-formed but wrong.
    "target-missing": _broken("target does not exist", _BOTH, target=_NOWHERE),
    "alias-loop": RecordKind("alias loop", lambda host, _ech: record(0, host), broken=True),
    "port-closed": _broken("closed port", _BOTH, _OTHER_PORT),
    "hint-wrong": _broken("wrong address hint", _BOTH, (_IPV4HINT, _NOBODY)),
    # The query fails.
    "servfail": RecordKind("SERVFAIL", fault="servfail", broken=True),
    "silence": RecordKind("no answer", fault="silence", broken=True),
    "ech": RecordKind("ECH", _with_ech, ech="own"),
    "ech-0-rtt": RecordKind("ECH, second visit", _with_ech, ech="own", h3="0-rtt"),
    "ech-replaced": RecordKind("ECH, key replaced", _with_ech, ech="replaced"),
    "ech-gone": RecordKind("ECH, disabled by the server", _with_ech),
    "ech-unreadable": _broken("unreadable ECH", _BOTH, (_ECH, b"\0\5?????")),
}
"""Kinds of records, by name. These names are the values of the column `condition`."""
