"""A resolver behind the emulated link, with the RTT and the answer times of a measured resolver."""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

from crosslayer.links import LinkError
from crosslayer.testbed import namespaces, network
from crosslayer.testbed.errors import TestbedError
from crosslayer.testbed.server import Server

NAME = "like.resolvers.test"
"""Name in the resolver's certificate."""


@dataclass(frozen=True, slots=True)
class MeasuredTimes:
    """Measured times of a resolver, ms."""

    resolver: str
    """Name of the resolver, and of the vantage point from which it was measured."""
    rtts_ms: tuple[float, ...]
    """RTTs of the path to the resolver."""
    hits_ms: tuple[float, ...]
    """Times of answers from the resolver's cache, without the RTT."""
    misses_ms: tuple[float, ...]
    """Times of answers to names that were not in the resolver's cache, without the RTT."""

    def drawn_rtt_ms(self, seed: str) -> float:
        """Draw one of `rtts_ms` with a seed."""
        return random.Random(seed).choice(self.rtts_ms)

    def check_link(self, link: str, rtt_ms: float) -> None:
        """Raise `LinkError` if the link's RTT exceeds the resolver's smallest RTT.

        The path to the resolver includes the link, so the resolver's RTT cannot be smaller than the link's.
        """
        nearest_ms = min(self.rtts_ms)
        if nearest_ms < rtt_ms:
            raise LinkError(
                f"{self.resolver} was measured with an RTT of {nearest_ms:.1f} ms, less than the {rtt_ms:g} ms of the "
                "link",
                where=f"link {link}",
                next_step=f"Choose a link with a smaller RTT, such as rtt-{nearest_ms:.0f}.",
            )


class LikeResolver:
    """A running resolver at the far end of the link, with the times of a measured resolver.

    As a context manager, it removes the resolver at the end of the block. For each query, the time of the answer is
    drawn from the measured times. `set_rtt` sets the RTT.

    Parameters
    ----------
    times
        Measured times of the resolver.
    addresses
        IPv4 address of each host name that exists.
    folder
        Private folder of the resolver's files.
    congestion_control
        TCP algorithm; None keeps the machine's default.
    seed
        Seed of the drawn answer times.
    https_records
        As for `Server.start`.

    Raises
    ------
    TestbedError
        If the resolver does not start.
    """

    def __init__(
        self,
        times: MeasuredTimes,
        addresses: Mapping[str, str],
        folder: Path,
        *,
        congestion_control: str | None = None,
        seed: int = 1,
        https_records: bool = False,
    ) -> None:
        self.times = times
        folder.mkdir(mode=0o700, exist_ok=True)
        own = folder / "own.json"
        own.write_text(
            json.dumps({"hit_ms": times.hits_ms, "miss_ms": times.misses_ms, "seed": seed}), encoding="ascii"
        )
        with contextlib.ExitStack() as stack:
            self._host, self.address = stack.enter_context(network.far_host(0, congestion_control))
            network.wait_for_carrier([self._host, network.LINK])
            self.server = stack.enter_context(
                Server.start(
                    partial(network.spawn, self._host),
                    pages_dir=None,
                    addresses={**addresses, NAME: self.address},
                    folder=folder / "server",
                    early_data=False,
                    https_records=https_records,
                    own_times=own,
                )
            )
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_fault: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the resolver and remove its host."""
        self._stack.close()

    def set_rtt(self, rtt_ms: float, link_rtt_ms: float) -> None:
        """Set the RTT between client and resolver, ms.

        netem on the resolver's veth pair adds the difference from the link's RTT. `TestbedError` if that fails.
        """
        half_us = max(0.0, rtt_ms - link_rtt_ms) * 500
        for namespace, device in ((network.LINK, f"to-{self._host}"), (self._host, "eth0")):
            tc = [namespaces.tool("tc"), "qdisc", "replace", "dev", device, "root"]
            command = namespaces.command_in(namespace, [*tc, "netem", "limit", "100000", "delay", f"{half_us:.3f}us"])
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise TestbedError(
                    f"this kernel cannot delay the resolver's packets: {done.stderr.strip()}",
                    where="--resolver-like",
                    next_step="Use --clock virtual, or a kernel with sch_netem.",
                )
