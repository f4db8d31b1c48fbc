"""Answers DNS queries from a zone, and checks that queries conform to RFC 9250 (DoQ) and RFC 8484 (DoH).

This module uses no clock and reads only the zone's file.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import dns.edns
import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.opcode
import dns.rcode
import dns.rdatatype
import dns.zone

MESSAGE_TYPE = "application/dns-message"
_PADDING_BLOCK = 468
"""Block length of padded answers, bytes, as recommended by RFC 8467, section 4.1."""
_UDP_BYTES = 512
_HEADER_BYTES = 12


class MalformedError(ValueError):
    """A message is no DNS query, or violates the rules of its transport."""


@dataclass(frozen=True, slots=True)
class ZoneAnswer:
    """The answer to a query."""

    wire: bytes
    name: str
    """Name of the question, with its final dot."""
    type: str
    rcode: str
    ttl_s: int
    """Smallest TTL of the answer's records; 0 without records."""


class DnsZone:
    """A root zone, read from a file, from which queries are answered."""

    def __init__(self, file: Path) -> None:
        self._zone = dns.zone.from_file(str(file), origin=".", relativize=False)

    def answer(self, wire: bytes, *, encrypted: bool, early: bool = False) -> ZoneAnswer:
        """Answer a DNS message; `MalformedError` if it is no query.

        `encrypted`: the query arrived over an encrypted transport. The answer is padded if the query was (RFC 7830).

        `early`: the query arrived as early data. Operations that must not be replayed are refused (RFC 9250, section
        4.5).
        """
        query = _parsed(wire)
        response = dns.message.make_response(query)
        name, rdtype = query.question[0].name, query.question[0].rdtype
        node = self._zone.nodes.get(name)
        if query.opcode() != dns.opcode.QUERY:
            response.set_rcode(dns.rcode.REFUSED if early else dns.rcode.NOTIMP)
        elif node is None:
            response.set_rcode(dns.rcode.NXDOMAIN)
        else:
            response.flags |= dns.flags.AA
            records = self._zone.get_rrset(name, rdtype)
            response.answer = [] if records is None else [records]
        padded = encrypted and any(option.otype == dns.edns.OptionType.PADDING for option in query.options)
        if query.edns >= 0:
            response.use_edns(0, payload=query.payload, pad=_PADDING_BLOCK if padded else 0)
        limit = 65535 if encrypted else max(_UDP_BYTES, query.payload)
        try:
            sent = response.to_wire(max_size=limit)
        except dns.exception.TooBig:
            response.flags |= dns.flags.TC
            response.answer = []
            sent = response.to_wire(max_size=limit)
        rcode = dns.rcode.to_text(response.rcode())
        ttl_s = min((rrset.ttl for rrset in response.answer), default=0)
        return ZoneAnswer(sent, name.to_text(), dns.rdatatype.to_text(rdtype), rcode, ttl_s)


def _parsed(wire: bytes) -> dns.message.Message:
    if len(wire) < _HEADER_BYTES:
        raise MalformedError("shorter than a header")
    try:
        query = dns.message.from_wire(wire)
    except (dns.exception.DNSException, ValueError) as error:
        raise MalformedError(str(error)) from error
    if query.flags & dns.flags.QR or len(query.question) != 1:
        raise MalformedError("a response, or not one question")
    return query


def doq_query(stream: bytes) -> bytes:
    """The DNS query in the data of a DoQ stream that has ended (RFC 9250, section 4.2).

    `MalformedError` if the data violates the protocol.
    """
    length = int.from_bytes(stream[:2])
    if len(stream) < 2 or len(stream) != 2 + length:
        raise MalformedError("not one whole message on the stream")
    wire = stream[2:]
    query = _parsed(wire)
    if query.id:
        raise MalformedError("the message ID is not 0")
    if any(option.otype == dns.edns.OptionType.KEEPALIVE for option in query.options):
        raise MalformedError("option edns-tcp-keepalive")
    return wire


def doh_query(method: str, query: str, headers: Mapping[bytes, bytes], body: bytes) -> bytes | int:
    """The DNS query of an HTTP request (RFC 8484, section 4.1), or the HTTP status that refuses the request."""
    if method == "POST":
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().decode("latin-1").lower()
        return body if kind == MESSAGE_TYPE else 415
    if method != "GET":
        return 405
    values = [value for key, _, value in (part.partition("=") for part in query.split("&")) if key == "dns"]
    if len(values) != 1:
        return 400
    try:
        return base64.b64decode(values[0] + "=" * (-len(values[0]) % 4), altchars="-_", validate=True)
    except (binascii.Error, ValueError):
        return 400
