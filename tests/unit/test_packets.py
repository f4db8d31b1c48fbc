"""Captures as files: what is written is what is read, nothing else is; and what is drawn of them."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import socket
import struct
import tracemalloc
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crosslayer.campaign.captures import CaptureFiles, handshake_ms, named, netlog_part
from crosslayer.campaign.guest_main import from_json, to_json
from crosslayer.campaign.plan import Plan
from crosslayer.campaign.rounds import FinishedRound
from crosslayer.packets import About, Frame, PacketsError, kept_files, read_kept, read_pcapng, write_pcapng
from crosslayer.report.waterfall import WaterfallLoad, captured, quic_packets, waterfall
from crosslayer.studies.one_connection.modes import MODES

START_NS = 1_790_000_000_123_456_789
MOST_BYTES = 1_000_000


def udp(payload: bytes, *, sent: bool, port: int = 40000, far: int = 443) -> bytes:
    """An Ethernet frame of a datagram between the testbed's client and server."""
    ends = [(b"\x0a\x35\x00\x01", port), (b"\x0a\x35\x00\x02", far)]
    (source, from_port), (destination, to_port) = ends if sent else reversed(ends)
    datagram = struct.pack("!HHHH", from_port, to_port, 8 + len(payload), 0) + payload
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(datagram), 0, 0, 64, socket.IPPROTO_UDP, 0)
    return bytes(12) + b"\x08\x00" + head + source + destination + datagram


def long_header(kind: int, size: int, *, token: bytes = b"") -> bytes:
    """A QUIC packet with a long header, of this size in all."""
    head = bytes([0xC0 | kind << 4]) + (1).to_bytes(4) + b"\x08" + bytes(8) + b"\x00"
    head += bytes([len(token)]) + token if kind == 0 else b""
    return head + (0x4000 | size - len(head) - 2).to_bytes(2) + bytes(size - len(head) - 2)


def a_load() -> tuple[About, list[Frame]]:
    """A load of a page by our own clients: Initial and 0-RTT, the server's flight, and what follows."""
    datagrams = [
        (0.0, True, long_header(0, 700, token=b"token") + long_header(1, 500)),
        (46.0, False, long_header(0, 200) + long_header(2, 900)),
        (46.1, True, long_header(2, 80) + b"\x41" + bytes(40)),
        *((46.2 + n / 5, False, b"\x40" + bytes(1220)) for n in range(12)),
        *((47.1 + n, True, b"\x40" + bytes(35)) for n in range(3)),
    ]
    frames = [
        Frame(START_NS + round(at * 1e6), "eth0", sent, data := udp(payload, sent=sent), len(data))
        for at, sent, payload in datagrams
    ]
    row = {"campaign": "one-connection-1", "round": 0, "page": "wikipedia.org", "started_s": START_NS / 1e9}
    row |= {
        "condition": "main",
        "role": "measured",
        "resolved_ms": 46.0,
        "response_start_ms": 46.2,
        "document_ms": 48.0,
        "load_complete_ms": 49.0,
    }
    request = {"event": "request", "time": START_NS + 23_000_000, "done": START_NS + 24_000_000, "method": "GET"}
    about = About(
        condition="DoH3 0-RTT and page on one connection",
        clock="virtual",
        profile={"name": "4g", "title": "4G", "rtt_ms": 91.85},
        table="resolved_loads",
        rows={"resolved_loads": [row]},
        server=[request | {"path": "/", "remote": "10.53.0.1:40000", "handshake_complete": False}],
    )
    return about, frames


def kept(folder: Path, about: About, frames: list[Frame], keys: str = "") -> Path:
    """A load as a campaign keeps it."""
    for ending, content in kept_files(about, frames, keys).items():
        (folder / f"load{ending}").write_bytes(content)
    return folder / "load.pcapng"


@given(
    st.lists(
        st.builds(
            lambda at, interface, sent, data, more: Frame(at, interface, sent, data, len(data) + more),
            st.integers(0, 2**64 - 1), st.sampled_from(["eth0", "lo", "naïve"]), st.booleans(),
            st.binary(max_size=99), st.integers(0, 2000),
        ),
        max_size=8,
    ),
    st.text(max_size=50),
)  # fmt: skip
@settings(deadline=None)
def test_what_is_written_is_read(frames: list[Frame], comment: str) -> None:
    data = write_pcapng(frames, keys=comment, comment=comment)
    capture = read_pcapng(data, where="it")
    assert (list(capture.frames), capture.keys, capture.comment) == (frames, comment, comment)


@given(st.data())
@settings(deadline=None)
def test_any_capture_is_read_or_refused(data: st.DataObject) -> None:
    """Cut short, bits changed, or anything at all: no other error, and no more than there is."""
    about, frames = a_load()
    whole = write_pcapng(frames[:3], keys="A B C\n", comment=about.condition)
    changed = bytearray(whole[: data.draw(st.integers(0, len(whole)))])
    for index in data.draw(st.lists(st.integers(0, max(0, len(changed) - 1)), max_size=4)) if changed else ():
        changed[index] ^= data.draw(st.integers(1, 255))
    for content in (bytes(changed), data.draw(st.binary(max_size=99))):
        try:
            read = read_pcapng(content, where="it")
        except PacketsError:
            continue
        assert sum(len(frame.data) for frame in read.frames) <= len(content)


@pytest.mark.parametrize("content", [b"", b"\x0a\x0d\x0d\x0a", b"\xd4\xc3\xb2\xa1" + bytes(20), bytes(64)])
def test_another_kind_of_file_is_named(tmp_path: Path, content: bytes) -> None:
    (file := tmp_path / "x.pcapng").write_bytes(content)
    with pytest.raises(PacketsError, match=re.escape(str(file))):
        read_kept(file)


@given(st.binary(max_size=80), st.integers(0, 3000))
@settings(deadline=None)
def test_parts_of_a_datagram_are_no_more_than_it(payload: bytes, length: int) -> None:
    parts = quic_packets(payload, length)
    assert sum(size for _, size in parts) <= length
    assert all(size > 0 for _, size in parts)


def test_parts_of_a_datagram() -> None:
    first = long_header(0, 300, token=b"t" * 20) + long_header(1, 500)
    assert quic_packets(first, 800) == [("Initial", 300), ("0-RTT", 500)]
    assert quic_packets(first[:60], 800) == [("Initial", 300)]  # headers are all that was kept of it
    assert quic_packets(b"\x41" + bytes(30), 31) == [("1-RTT", 31)]
    assert quic_packets(long_header(2, 100) + bytes(20), 120) == [("Handshake", 100)]  # padded


def test_a_load_has_less_than_a_megabyte_and_says_what_is_missing(tmp_path: Path) -> None:
    about, _ = a_load()
    data = udp(b"\x40" + os.urandom(1200), sent=False)
    frames = [Frame(START_NS + n, "eth0", False, data, len(data)) for n in range(9000)]
    file = kept(tmp_path, about, frames)
    assert file.stat().st_size < MOST_BYTES
    conditions, capture = read_kept(file)
    assert conditions is not None
    assert conditions.missing == len(frames) - len(capture.frames) > 0
    assert capture.frames[0].data == data
    assert capture.frames[-1].data == data[: len(capture.frames[-1].data)]
    page = waterfall(file)
    assert len(page.encode()) < MOST_BYTES
    assert f"{conditions.missing} packets are not in the file" in page


def test_a_load_is_drawn(tmp_path: Path) -> None:
    page = waterfall(kept(tmp_path, *a_load(), keys="CLIENT_RANDOM 1 2\n"))
    for text in (
        "<h1>DoH3 0-RTT and page on one connection</h1>", "wikipedia.org", "RTT 91.85 ms", "round 0", "page complete",
        "Document: waiting", "GET /, early data", "0.000 ms, sent, 1208 bytes: Initial + 0-RTT", "QUIC to 10.53.0.2",
        "Handshake packet", "wireshark load.pcapng",
    ):  # fmt: skip
        assert text in page, text
    assert "http" not in page.replace("http-equiv", "")  # nothing is fetched


def test_text_of_a_capture_is_escaped(tmp_path: Path) -> None:
    """Names and numbers from elsewhere: as text, or not at all."""
    about, frames = a_load()
    bad = "</title><script>alert(1)</script>"
    row = about.rows["resolved_loads"][0] | {
        "page": bad,
        "resolved_ms": "1",
        "load_complete_ms": float("inf"),
        "error": bad,
    }
    event = {"event": bad, "time": "soon", "remote": 7}
    request = {"event": "request", "time": START_NS, "done": None, "path": bad}
    resource = {"url": f"https://[{bad}", "request_start_ms": 1.0, "response_start_ms": 2.0, "response_end_ms": -1}
    about = dataclasses.replace(
        about, condition=bad, profile={"rtt_ms": -5, "title": bad}, server=[event, request],
        rows={"resolved_loads": [row], "resources": [resource], "lookups": [{"name": bad}]},
    )  # fmt: skip
    page = waterfall(kept(tmp_path, about, frames))
    assert "<script" not in page
    for row, rtt in (
        ({"load_complete_ms": -1e9, "resolved_ms": -5.0}, 1e-300),
        ({"load_complete_ms": 1e18, "started_s": 1e18}, 1e18),
    ):
        odd = dataclasses.replace(about, profile={"rtt_ms": rtt}, rows={"resolved_loads": [row]})
        assert "<svg" in waterfall(kept(tmp_path, odd, frames))
    (tmp_path / "load.json").write_text(json.dumps({"condition": 3}))
    with pytest.raises(PacketsError, match=r"load\.json"):
        waterfall(tmp_path / "load.pcapng")


def test_a_capture_alone_is_drawn(tmp_path: Path) -> None:
    file = kept(tmp_path, *a_load())
    file.with_suffix(".json").unlink()
    assert "Packets at the client" in waterfall(file)
    assert captured(tmp_path) == [WaterfallLoad(file, None, {})]
    file.write_bytes(write_pcapng([]))
    assert "<svg" in waterfall(file)


def foreign(frames: list[Frame]) -> bytes:
    """The same as another program captures it, whose packets have no directions."""
    return write_pcapng(dataclasses.replace(frame, sent=None) for frame in frames)


def test_a_capture_without_directions_has_the_client_that_begins(tmp_path: Path) -> None:
    _, frames = a_load()
    file = tmp_path / "load.pcapng"
    file.write_bytes(write_pcapng(frames))
    reported = waterfall(file)
    file.write_bytes(foreign(frames))
    assert [frame.sent for frame in read_pcapng(file.read_bytes(), where="it").frames] == [None] * len(frames)
    assert waterfall(file) == reported
    assert reported.count("our port 40000") == 1
    for word in ("sent", "received"):
        assert f" ms, {word}, " in reported


def test_a_capture_without_directions_and_beginnings_is_refused(tmp_path: Path) -> None:
    _, frames = a_load()
    file = tmp_path / "load.pcapng"
    file.write_bytes(foreign(frames[3:]))
    with pytest.raises(PacketsError, match=r"has no direction of its packets, and no connection begins in it"):
        waterfall(file)


def test_what_others_send_in_a_capture_without_directions_is_counted(tmp_path: Path) -> None:
    _, frames = a_load()
    noise = bytearray(udp(b"x" * 50, sent=True, port=5353, far=5353))
    noise[26:30], noise[30:34] = b"\x0a\x35\x00\x09", b"\xe0\x00\x00\xfb"
    other = Frame(frames[-1].at_ns + 1, "eth0", None, bytes(noise), len(noise))
    file = tmp_path / "load.pcapng"
    file.write_bytes(foreign([*frames, other]))
    page = waterfall(file)
    assert "224.0.0.251" not in page
    assert "our port 40000" in page


def test_captures_come_out_of_a_guest() -> None:
    part = FinishedRound(None, 0, {}, 0, "netem", {}, captured=(CaptureFiles("a", {".pcapng": bytes(range(256))}),))
    assert from_json(json.dumps(to_json(part)).encode()) == part


def test_captured_loads_are_listed_the_slowest_first_whatever_their_round(tmp_path: Path) -> None:
    about, frames = a_load()
    for number, page, length_ms in ((0, "a", 200.0), (1, "a", 300.0), (2, "a", 100.0), (0, "b", 400.0)):
        row = about.rows["resolved_loads"][0] | {"round": number, "page": page, "load_complete_ms": length_ms}
        folder = tmp_path / page / str(number)
        folder.mkdir(parents=True)
        kept(folder, dataclasses.replace(about, rows={"resolved_loads": [row]}), frames)
    results = [(load.conditions["page"], load.length_ms) for load in captured(tmp_path)]
    assert results == [("a", 300.0), ("a", 200.0), ("a", 100.0), ("b", 400.0)]


def test_names_of_loads_need_no_quotes_and_differ() -> None:
    names = [named(mode) for mode in MODES]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z0-9.+-]+", name) for name in names)
    assert named("../..") == "-"


def test_a_plan_says_what_is_kept() -> None:
    plan = Plan(study="s", links=("a",), pages=("b",))
    assert (plan.capture, plan.capture_rounds) == ((), 1)


def test_a_handshake_in_a_netlog_is_that_of_the_newest_connection_to_the_host() -> None:
    names = ["QUIC_SESSION", "QUIC_SESSION_PACKET_SENT", "QUIC_SESSION_PACKET_RECEIVED"]

    def event(name: str, source: int, time: int, **params: str) -> dict[str, object]:
        return {"type": names.index(name), "source": {"id": source}, "time": str(time), "params": params}

    def sent(source: int, time: int, level: str) -> dict[str, object]:
        return event("QUIC_SESSION_PACKET_SENT", source, time, encryption_level=f"ENCRYPTION_{level}")

    events = [event("QUIC_SESSION", 1, 100, host="a.example"), sent(1, 101, "INITIAL"), sent(1, 150, "HANDSHAKE")]
    events += [event("QUIC_SESSION", 2, 200, host="a.example"), sent(2, 201, "INITIAL"), sent(2, 205, "INITIAL")]
    events += [event("QUIC_SESSION", 3, 210, host="b.example"), sent(3, 211, "INITIAL"), sent(2, 230, "HANDSHAKE")]
    events += [event("QUIC_SESSION_PACKET_RECEIVED", 2, 240), sent(2, 231, "HANDSHAKE"), sent(2, 250, "FORWARD_SECURE")]
    constants = {"logEventTypes": {name: number for number, name in enumerate(names)}}
    log = json.dumps({"constants": constants, "events": events}).encode()
    assert handshake_ms(log, "a.example") == 30.0
    assert handshake_ms(log, "b.example") is None  # it had not ended
    assert handshake_ms(log, "c.example") is handshake_ms(b"", "a.example") is None
    for other in (b"not JSON", b"[]", b'{"constants": {}}', log.replace(b"logEventTypes", b"eventTypes")):
        assert handshake_ms(other, "a.example") is None, "the netlog of another Chromium must not end a round"


def test_a_part_of_a_netlog_is_one() -> None:
    """From a place on, whole events, the last ones where it is too much; nothing of a log that has nothing new."""
    head = b'{"constants": {"a": 1},\n"events": [\n'
    events = [b'{"n": %d},\n' % n for n in range(100_000)]
    whole = head + b"".join(events)
    cut = len(head + b"".join(events[:99_990]))
    ended = whole.removesuffix(b",\n") + b'],\n"polledData": [{"a": 2},\n{}]}\n'
    for log in (whole, whole + b'{"n": 10', ended):  # Chromium may be writing
        assert json.loads(netlog_part(BytesIO(log), cut))["events"] == [{"n": n} for n in range(99_990, 100_000)]
    last = json.loads(part := netlog_part(BytesIO(whole), 0))
    assert last["constants"] == {"a": 1}
    assert last["events"][-1] == {"n": 99_999}
    assert 700_000 < len(part) < MOST_BYTES
    for log, start in ((whole, len(whole)), (head, 0), (b"", 0)):
        assert netlog_part(BytesIO(log), start) == b""


def test_of_a_long_netlog_the_part_alone_is_read(tmp_path: Path) -> None:
    """What a browser did in a hundred loads is 100 MB, and a process of a guest cannot have that several times."""
    log = tmp_path / "a.netlog"
    with log.open("wb") as file:
        file.write(b'{"constants": {"a": 1},\n"events": [\n')
        for _ in range(64):
            file.write(b'{"n": 0},\n' * 100_000)
        size = file.tell()
        file.write(b'{"n": 1},\n' * 10)
    tracemalloc.start()
    with log.open("rb") as file:
        part = netlog_part(file, size)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert json.loads(part)["events"] == [{"n": 1}] * 10
    assert most < 1_000_000 < size
