"""Queries as they go over the wire, and every way an answer can be wrong."""

from __future__ import annotations

import struct

import dns.edns
import dns.flags
import dns.message
import dns.opcode
import dns.rcode
import dns.rrset
import pytest

from crosslayer.dns import ClientSettings, DnsError, Protocol, Query, Question, build_query, check_answer
from crosslayer.dns.message import framed, matches, unframed

QUESTION = Question("www.example.org")
SETTINGS = ClientSettings()


def make_query(protocol: Protocol = Protocol.DOTCP) -> Query:
    return build_query(QUESTION, protocol, SETTINGS)


def make_answer(query: Query, rcode: dns.rcode.Rcode = dns.rcode.NOERROR) -> dns.message.Message:
    answer = dns.message.make_response(query.message)
    answer.set_rcode(rcode)
    if rcode == dns.rcode.NOERROR:
        answer.answer.append(dns.rrset.from_text("www.example.org.", 300, "IN", "A", "10.53.1.1", "10.53.1.2"))
    return answer


@pytest.mark.parametrize("protocol", Protocol)
def test_the_id_is_zero_exactly_where_the_transport_says_so(protocol: Protocol) -> None:
    ids = {make_query(protocol).message.id for _ in range(8)}
    if protocol in (Protocol.DOQ, Protocol.DOH, Protocol.DOH3):
        assert ids == {0}
    else:
        assert len(ids) > 1


@pytest.mark.parametrize("protocol", Protocol)
def test_encrypted_queries_are_padded_to_blocks(protocol: Protocol) -> None:
    query = make_query(protocol)
    padded = any(option.otype == dns.edns.OptionType.PADDING for option in query.message.options)
    on_the_wire = dns.message.from_wire(query.wire)
    assert on_the_wire.payload == 1232
    if protocol in (Protocol.DOUDP, Protocol.DOTCP):
        assert not padded
        # Header, question and an empty OPT record (RFC 1035, RFC 6891): 12 + 17 + 4 + 11.
        assert len(query.wire) == 44
    else:
        assert len(query.wire) == 128
        assert any(option.otype == dns.edns.OptionType.PADDING for option in on_the_wire.options)


def test_a_client_cookie_takes_twelve_bytes_and_is_another_each_time() -> None:
    first, second = (build_query(QUESTION, Protocol.DOUDP, ClientSettings(cookie=True)) for _ in range(2))
    assert len(first.wire) == 44 + 12
    assert [option.otype for option in first.message.options] == [dns.edns.OptionType.COOKIE]
    assert first.wire[-8:] != second.wire[-8:]
    assert len(build_query(QUESTION, Protocol.DOQ, ClientSettings(cookie=True)).wire) == 128


def test_padding_is_a_parameter() -> None:
    assert len(build_query(QUESTION, Protocol.DOQ, ClientSettings(padding_block_bytes=468)).wire) == 468
    assert len(build_query(QUESTION, Protocol.DOQ, ClientSettings(padding_block_bytes=0)).wire) == 44


@pytest.mark.parametrize("question", [Question("a..b"), Question("x" * 64), Question("example.org", "NONSENSE")])
def test_a_bad_question_is_refused(question: Question) -> None:
    with pytest.raises(DnsError, match="not a DNS question"):
        build_query(question, Protocol.DOUDP, SETTINGS)


def test_a_good_answer() -> None:
    query = make_query()
    answer = check_answer(make_answer(query).to_wire(), query)
    # dnspython shuffles records when it writes them.
    assert (answer.rcode, sorted(answer.records), answer.error) == ("NOERROR", ["10.53.1.1", "10.53.1.2"], None)


def test_the_rcode_is_recorded_and_is_the_error() -> None:
    query = make_query()
    answer = check_answer(make_answer(query, dns.rcode.NXDOMAIN).to_wire(), query)
    assert (answer.rcode, answer.records, answer.error) == ("NXDOMAIN", (), "rcode NXDOMAIN")


def test_wrong_id() -> None:
    query = make_query()
    wire = bytearray(make_answer(query).to_wire())
    wire[1] ^= 1
    assert check_answer(bytes(wire), query).error == "wrong id"


def test_a_query_is_not_an_answer() -> None:
    query = make_query()
    assert check_answer(query.wire, query).error == "not a response"


def test_wrong_question() -> None:
    query = make_query()
    other = build_query(Question("www.example.net"), Protocol.DOTCP, SETTINGS)
    wire = query.wire[:2] + dns.message.make_response(other.message).to_wire()[2:]
    assert check_answer(wire, query).error == "wrong question"
    no_question = struct.pack("!HHHHHH", query.message.id, 0x8180, 0, 0, 0, 0)
    assert check_answer(no_question, query).error == "wrong question"


def test_wrong_opcode() -> None:
    query = make_query()
    answer = make_answer(query)
    answer.set_opcode(dns.opcode.STATUS)
    assert check_answer(answer.to_wire(), query).error == "wrong question"


def test_truncated_also_where_the_message_ends_within_a_record() -> None:
    query = make_query()
    answer = make_answer(query)
    answer.flags |= dns.flags.TC
    wire = answer.to_wire()
    assert check_answer(wire, query).error == "truncated"
    assert check_answer(wire[:-3], query).error == "truncated"


@pytest.mark.parametrize("cut", [0, 1, 11, 20, 60])
def test_malformed(cut: int) -> None:
    query = make_query()
    assert check_answer(make_answer(query).to_wire()[:cut], query).error == "malformed"


def test_trailing_bytes_are_malformed() -> None:
    query = make_query()
    assert check_answer(make_answer(query).to_wire() + b"\0", query).error == "malformed"


def test_oversized() -> None:
    query = make_query()
    wire = make_answer(query).to_wire()
    assert check_answer(wire, query, max_bytes=len(wire)).error is None
    assert check_answer(wire, query, max_bytes=len(wire) - 1).error == "oversized"


def test_what_a_doudp_client_takes_for_an_answer() -> None:
    query = make_query(Protocol.DOUDP)
    wire = make_answer(query).to_wire()
    assert matches(wire, query)
    assert not matches(query.wire, query)
    assert not matches(bytes([wire[0] ^ 0xFF]) + wire[1:], query)
    assert not matches(wire[:11], query)


def test_framing() -> None:
    stream = framed(b"abc")
    assert stream == b"\0\3abc"
    assert [unframed(stream[:end]) for end in range(6)] == [None, None, None, None, None, b"abc"]
    assert unframed(stream + b"more") == b"abc"


@pytest.mark.parametrize(
    ("records", "error"),
    [
        (["www.example.org. 300 IN CNAME a.example.org.", "a.example.org. 300 IN A 192.0.2.1"], None),
        (["a.example.org. 300 IN A 192.0.2.1", "WWW.example.org. 300 IN CNAME A.example.org."], None),
        (["www.example.org. 300 IN CNAME elsewhere.example."], None),
        ([], None),
        (["other.example.org. 300 IN A 192.0.2.1"], "answer of another name"),
        (["other.example.org. 300 IN CNAME a.example.org."], "answer of another name"),
        (
            ["www.example.org. 300 IN CNAME a.example.org.", "b.example.org. 300 IN A 192.0.2.1"],
            "answer of another name",
        ),
        (["www.example.org. 300 IN CNAME www.example.org."], "cname loop"),
        (
            ["www.example.org. 300 IN CNAME a.example.org.", "a.example.org. 300 IN CNAME www.example.org."],
            "cname loop",
        ),
        (
            [
                "www.example.org. 300 IN CNAME a.example.org.",
                "a.example.org. 300 IN CNAME www.example.org.",
                "b.example.org. 300 IN A 192.0.2.1",
            ],
            "cname loop",
        ),
    ],
)
def test_the_answer_section_is_about_the_question(records: list[str], error: str | None) -> None:
    query = make_query()
    answer = dns.message.make_response(query.message)
    for record in records:
        owner, ttl, rdclass, rdtype, value = record.split()
        answer.answer.append(dns.rrset.from_text(owner, int(ttl), rdclass, rdtype, value))
    assert check_answer(answer.to_wire(), query).error == error
