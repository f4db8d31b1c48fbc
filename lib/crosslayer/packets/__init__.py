"""Frames as they crossed a network device: taken by the kernel, kept as pcapng with the keys that decrypt them.

Nothing here knows what was measured, or reads what a frame carries.
"""

from crosslayer.packets.pcapng import Frame, PacketsError, Recorded, read_pcapng, write_pcapng
from crosslayer.packets.ring import Ring

__all__ = ["Frame", "PacketsError", "Recorded", "Ring", "read_pcapng", "write_pcapng"]
