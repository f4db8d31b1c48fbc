"""How close the links are to their profiles: idle RTT, UDP and TCP rates both ways, and how fast the testbed is up.

    python -m tests.benchmarks.bench_link [--write] [--backend uml]

Must hold (issue "the main job"): RTT within 1 % or 0.15 ms, rates within 3 %, up in 6 s with uml and 2 s with netem.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
import time
from typing import Any

from crosslayer import pages
from crosslayer.links import FRAME_BYTES, load_profiles
from crosslayer.testbed import namespaces, network
from crosslayer.testbed.testbed import Testbed
from tests.benchmarks._common import report

LINKS = ("fiber", "cable", "dsl", "4g", "4g-medium")
SEGMENT_BYTES = 1448  # of 1500 bytes of IP, with TCP timestamps


def tcp_rate_mbit(direction: str, nominal_mbit: float, rtt_ms: float) -> float:
    """Link-layer rate of a bulk TCP transfer after its start, Mbit/s (payload times 1514/1448)."""
    listener_side = network.CLIENT if direction == "down" else network.SERVER
    sender_side = network.SERVER if direction == "down" else network.CLIENT
    address = network.CLIENT_ADDRESS if direction == "down" else network.SERVER_ADDRESS
    with namespaces.namespace(listener_side):
        listener = socket.create_server((address, 0))
    seconds = 3.0 + 20 * rtt_ms / 1e3
    stop = threading.Event()

    def send() -> None:
        with namespaces.namespace(sender_side):
            sender = socket.create_connection(listener.getsockname())
        block = bytes(1 << 14)
        with sender, contextlib.suppress(OSError):
            while not stop.is_set():
                sender.send(block)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    receiver, _peer = listener.accept()
    begin = time.perf_counter()
    first, last, counted = 0.0, 0.0, 0
    while (now := time.perf_counter()) - begin < seconds:
        got = len(receiver.recv(1 << 18))
        if now - begin < seconds / 2:
            first = time.perf_counter()
        else:
            counted += got
            last = time.perf_counter()
    stop.set()
    receiver.close()
    listener.close()
    thread.join()
    return counted * 8 / (last - first) / 1e6 * FRAME_BYTES / SEGMENT_BYTES


def main() -> None:
    """Measure every link once."""
    namespaces.enter([sys.executable, "-m", "tests.benchmarks.bench_link", *sys.argv[1:]])
    backend = sys.argv[sys.argv.index("--backend") + 1] if "--backend" in sys.argv else "auto"
    profiles = load_profiles()
    specs = pages.load_pages(pages.find_spec_dir())
    begin = time.perf_counter()
    with Testbed(backend) as testbed, testbed.serve(specs):
        first = testbed.set_link(profiles["fiber"])
        up_s = time.perf_counter() - begin
        result: dict[str, Any] = {
            "backend": testbed.backend.name,
            "testbed_up_s": round(up_s, 2),
            "first_check": first.verdict,
            "links": {},
        }
        for name in LINKS:
            link = profiles[name]
            check = testbed.set_link(link)
            assert check.rtt_ms is not None
            assert link.download_mbit is not None
            assert link.upload_mbit is not None
            result["links"][name] = {
                "nominal_rtt_ms": round(link.rtt_ms, 3),
                "rtt_ms": round(check.rtt_ms, 3),
                "rtt_error_ms": round(check.rtt_ms - link.rtt_ms, 3),
                "udp_down_ratio": round((check.down_mbit or 0) / link.download_mbit, 4),
                "udp_up_ratio": round((check.up_mbit or 0) / link.upload_mbit, 4),
                "tcp_down_ratio": round(tcp_rate_mbit("down", link.download_mbit, link.rtt_ms) / link.download_mbit, 4),
                "tcp_up_ratio": round(tcp_rate_mbit("up", link.upload_mbit, link.rtt_ms) / link.upload_mbit, 4),
                "verdict": check.verdict,
            }
    report("link", result)


if __name__ == "__main__":
    main()
