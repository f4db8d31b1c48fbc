"""Frames as they crossed a network device: taken by the kernel, kept as pcapng with the keys that decrypt them.

Nothing here knows what was measured, or reads what a frame carries.
"""

from crosslayer.packets.kept import ABOUT, PACKETS, About, kept_files, of_lines, read_about, read_kept
from crosslayer.packets.pcapng import Frame, PacketsError, Recorded, read_pcapng, write_pcapng
from crosslayer.packets.ring import Ring

__all__ = [
    "ABOUT",
    "PACKETS",
    "About",
    "Frame",
    "PacketsError",
    "Recorded",
    "Ring",
    "kept_files",
    "of_lines",
    "read_about",
    "read_kept",
    "read_pcapng",
    "write_pcapng",
]
