"""DNS messages: build queries and check answers. Both happen outside the measured time. No I/O, no clock."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass

import dns.edns
import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.opcode
import dns.rcode
import dns.rdatatype

from crosslayer.dns.errors import DnsError
from crosslayer.dns.model import ClientSettings, Protocol, Question

MAX_MESSAGE_BYTES = 65535
"""Maximum size of a message, bytes: the largest value of the two-byte length field of stream transports."""

_HEADER_BYTES = 12
_COOKIE_BYTES = 8
_RESPONSE_BIT = 0x80


@dataclass(frozen=True, slots=True)
class Query:
    """A DNS query in wire format and as an object of dnspython, with which the answer is compared."""

    wire: bytes
    """The DNS message without any framing."""
    message: dns.message.Message


@dataclass(frozen=True, slots=True)
class Answer:
    """A checked answer."""

    rcode: str | None
    """Response code, e.g. NOERROR; None if the message could not be read."""
    records: tuple[str, ...]
    error: str | None
    """What is wrong with the answer; None if it is good."""
    ttl_s: int | None = None
    """Smallest TTL of the answer section, seconds; None without a record."""
    nsid: str | None = None
    """Name server identifier (RFC 5001): its text if it is printable ASCII, otherwise hexadecimal digits."""
    extended_error: int | None = None
    """INFO-CODE of the first extended DNS error (RFC 8914); None without one."""


def build_query(question: Question, protocol: Protocol, settings: ClientSettings, *, nsid: bool = False) -> Query:
    """Build the query for one transport; `DnsError` if the name or the type is invalid.

    `nsid` requests the name server identifier (RFC 5001).

    The message ID is 0 on DoQ (RFC 9250, section 4.2.1), DoH and DoH3 (RFC 8484, section 4.1) and random elsewhere.
    Queries over encrypted transports are padded (RFC 8467).
    """
    try:
        name = dns.name.from_text(question.name)
        rdtype = dns.rdatatype.from_text(question.type)
    except (dns.exception.DNSException, UnicodeError, ValueError) as error:
        raise DnsError(
            f"not a DNS question: {error}",
            where=f"{question.name!r} {question.type!r}",
            next_step="Give a domain name and the mnemonic of a record type.",
        ) from None
    options: list[dns.edns.Option] = []
    if settings.cookie:
        options.append(dns.edns.CookieOption(os.urandom(_COOKIE_BYTES), b""))
    if nsid:
        options.append(dns.edns.NSIDOption(b""))
    message = dns.message.make_query(
        name,
        rdtype,
        use_edns=0,
        payload=settings.udp_payload_bytes,
        id=0 if protocol.transport.over_quic or protocol.transport.over_http else None,
        options=options,
        pad=settings.padding_block_bytes if protocol.transport.encrypted else 0,
    )
    return Query(message.to_wire(), message)


def matches(wire: bytes, query: Query) -> bool:
    """Whether a datagram may be the answer to `query`: it is a response with the query's ID.

    A DoUDP client ignores all other datagrams (RFC 5452, section 9.1). The check is part of the measured time.
    """
    return len(wire) >= _HEADER_BYTES and wire[:2] == query.wire[:2] and bool(wire[2] & _RESPONSE_BIT)


def framed(wire: bytes) -> bytes:
    """The message preceded by its two-byte length, as stream transports send it (RFC 1035, section 4.2.2)."""
    return struct.pack("!H", len(wire)) + wire


def unframed(buffer: bytes | bytearray) -> bytes | None:
    """The first message in the received bytes of a stream; None while it is incomplete."""
    if len(buffer) < 2:
        return None
    end = 2 + int(struct.unpack_from("!H", buffer)[0])
    return bytes(buffer[2:end]) if len(buffer) >= end else None


def check_answer(wire: bytes, query: Query, *, max_bytes: int = MAX_MESSAGE_BYTES) -> Answer:
    """Check an answer, given without framing; `max_bytes` is the maximum size that the client announced.

    `error` is the first of these texts that applies: "oversized", "wrong id", "not a response", "malformed", "wrong
    question", "truncated", "rcode NAME", "answer of another name", "cname loop". There is one exception: a malformed
    answer with the flag TC is "truncated", not "malformed".
    """
    if len(wire) > max_bytes:
        return Answer(None, (), "oversized")
    if len(wire) < _HEADER_BYTES:
        return Answer(None, (), "malformed")
    if wire[:2] != query.wire[:2]:
        return Answer(None, (), "wrong id")
    if not wire[2] & _RESPONSE_BIT:
        return Answer(None, (), "not a response")
    try:
        message = dns.message.from_wire(wire)
        records = tuple(rdata.to_text() for rrset in message.answer for rdata in rrset)
    except (dns.exception.DNSException, ValueError, struct.error):
        # A truncated message may end in the middle of a record; the TC flag in its header is still valid.
        truncated = bool(int.from_bytes(wire[2:4]) & dns.flags.TC)
        return Answer(None, (), "truncated" if truncated else "malformed")
    rcode = dns.rcode.to_text(message.rcode())
    if message.opcode() != dns.opcode.QUERY or message.question != query.message.question:
        error: str | None = "wrong question"
    elif message.flags & dns.flags.TC:
        error = "truncated"
    elif message.rcode() != dns.rcode.NOERROR:
        error = f"rcode {rcode}"
    else:
        error = _unrelated(message)
    ttl_s = min((rrset.ttl for rrset in message.answer), default=None)
    return Answer(rcode, records, error, ttl_s, _nsid(message), _extended_error(message))


def _nsid(message: dns.message.Message) -> str | None:
    for option in message.options:
        if isinstance(option, dns.edns.NSIDOption):
            text = option.nsid.decode("latin-1")
            return text if text.isascii() and text.isprintable() else option.nsid.hex()
    return None


def _extended_error(message: dns.message.Message) -> int | None:
    return next((int(option.code) for option in message.options if isinstance(option, dns.edns.EDEOption)), None)


def _unrelated(message: dns.message.Message) -> str | None:
    """Reason why the answer section of a response does not match its question; None if it matches.

    An empty section is valid (NODATA). A chain of CNAME records is valid even if the message has no record of the last
    name.
    """
    assert isinstance(message, dns.message.QueryMessage), "the opcode was checked"
    try:
        chain = message.resolve_chaining()
    except dns.message.ChainTooLong:
        return "cname loop"
    wanted = message.question[0].rdtype
    if chain.answer is not None or wanted == dns.rdatatype.ANY or not message.answer:
        return None
    of_the_type = any(rrset.rdtype == wanted for rrset in message.answer)
    return "answer of another name" if of_the_type or not chain.cnames else None
