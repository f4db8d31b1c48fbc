"""Packet captures: frames recorded by the kernel, stored as pcapng with the keys that decrypt them.

This package is independent of the measurements. It parses packets only on the loopback device, where it stores only DNS
over UDP.
"""

from crosslayer.packets.kept import ABOUT, PACKETS, About, kept_files, of_lines, read_about, read_kept
from crosslayer.packets.pcapng import Frame, PacketCapture, PacketsError, read_pcapng, write_pcapng
from crosslayer.packets.ring import Ring

__all__ = [
    "ABOUT",
    "PACKETS",
    "About",
    "Frame",
    "PacketCapture",
    "PacketsError",
    "Ring",
    "kept_files",
    "of_lines",
    "read_about",
    "read_kept",
    "read_pcapng",
    "write_pcapng",
]
