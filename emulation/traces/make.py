"""Generate the traces of this folder from a fixed seed: `python emulation/traces/make.py`."""

import random
from pathlib import Path

HERE = Path(__file__).parent
OPPORTUNITY_BITS = 1504 * 8


def cellular(mean_mbit: float, draw: random.Random, *, length_ms: int = 10_000, step_ms: int = 200) -> list[int]:
    """Return the times of delivery opportunities, ms. The rate changes every 0.2 s; two gaps of 0.3 s are handovers."""
    times, rate, due = [], mean_mbit, 0.0
    for ms in range(1, length_ms + 1):
        if ms % step_ms == 0:
            rate = min(3 * mean_mbit, max(mean_mbit / 5, rate * draw.lognormvariate(0, 0.35)))
        if not any(begin <= ms < begin + 300 for begin in (3_100, 7_600)):
            due += rate * 1e3 / OPPORTUNITY_BITS
        times += [ms] * int(due)
        due -= int(due)
    return [*times, length_ms] if times[-1] < length_ms else times


def leo(draw: random.Random) -> list[str]:
    """Return the lines of a trace of eight satellites, 15 s each. At each handover, packets are held for 40 ms."""
    lines = ["duration_ms,rtt_ms,download_mbit,upload_mbit"]
    for _ in range(8):
        rtt_ms = round(draw.uniform(28, 60), 1)
        lines += [f"14960,{rtt_ms},80,12", f"40,{rtt_ms},0,0"]
    return lines


if __name__ == "__main__":
    draw = random.Random(16)
    for name, mean_mbit in (("cellular.down", 6.0), ("cellular.up", 2.0)):
        (HERE / name).write_text("\n".join(map(str, cellular(mean_mbit, draw))) + "\n", encoding="ascii")
    (HERE / "leo.csv").write_text("\n".join(leo(draw)) + "\n", encoding="ascii")
