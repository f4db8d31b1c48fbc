"""Decode DNS stamps (`sdns://`), as https://dnscrypt.info/stamps-specifications defines them. No I/O.

Every length is checked: a stamp that is cut off, or that has bytes left over, is an error.
"""

from __future__ import annotations

import base64
import binascii
import struct
from dataclasses import dataclass

from crosslayer.resolvers.errors import ResolversError
from crosslayer.vocabulary import Protocol

SCHEME = "sdns://"
_PROTOCOLS = {0x00: Protocol.DOUDP, 0x02: Protocol.DOH, 0x03: Protocol.DOT, 0x04: Protocol.DOQ}
_UNSUPPORTED = {
    0x01: "a DNSCrypt server",
    0x05: "an Oblivious DoH target",
    0x81: "a DNSCrypt relay",
    0x85: "an Oblivious DoH relay",
}
_MORE = 0x80


class UnsupportedStampError(ResolversError):
    """A stamp of a protocol that crosslayer has no client for."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """The content of a stamp, without options and certificate hashes."""

    protocol: Protocol
    address: str
    """Address with an optional port, IPv6 in brackets; empty if the stamp has none."""
    host: str = ""
    """Name in the certificate, with an optional port; empty for plain DNS."""
    path: str = ""
    """Path of DoH; empty for the other protocols."""


def decode(text: str, *, where: str) -> Stamp:
    """Decode a stamp; `ResolversError` if it is faulty, `UnsupportedStampError` if crosslayer has no client for it."""
    encoded = text.removeprefix(SCHEME)
    try:
        data = base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise _fault("is not Base64url text", where) from None
    if not data:
        raise _fault("is empty", where)
    if data[0] in _UNSUPPORTED:
        raise UnsupportedStampError(
            f"is a stamp of {_UNSUPPORTED[data[0]]}, for which crosslayer has no client",
            where=where,
            next_step="Use a stamp of plain DNS, DoT, DoH or DoQ.",
        )
    if data[0] not in _PROTOCOLS:
        raise _fault(f"has the unknown protocol {data[0]:#04x}", where)
    protocol = _PROTOCOLS[data[0]]
    fields = _Fields(data[1:], where)
    fields.take(struct.calcsize("<Q"))  # options: DNSSEC, no logs, no filter
    address = fields.text()
    if not protocol.transport.encrypted:
        stamp = Stamp(protocol, address)
    else:
        fields.array()  # hashes of certificates: clients verify the chain instead
        host = fields.text()
        stamp = Stamp(protocol, address, host, fields.text() if protocol.transport.over_http else "")
        if fields.rest:
            fields.array()  # bootstrap resolvers for the host name: not needed, since an address is required
    if fields.rest:
        raise _fault(f"has {len(fields.rest)} bytes too many", where)
    return stamp


class _Fields:
    """Reads the fields of a stamp, one after the other."""

    def __init__(self, data: bytes, where: str) -> None:
        self.rest = data
        self._where = where

    def take(self, size: int) -> bytes:
        if size > len(self.rest):
            raise _fault("is cut off", self._where)
        data, self.rest = self.rest[:size], self.rest[size:]
        return data

    def text(self) -> str:
        try:
            return self.take(self.take(1)[0]).decode("ascii")
        except UnicodeDecodeError:
            raise _fault("has text that is not ASCII", self._where) from None

    def array(self) -> None:
        more = True
        while more:
            length = self.take(1)[0]
            more = bool(length & _MORE)
            self.take(length & ~_MORE)


def _fault(what: str, where: str) -> ResolversError:
    return ResolversError(f"the stamp {what}", where=where, next_step="Copy the whole stamp, from `sdns://` on.")
