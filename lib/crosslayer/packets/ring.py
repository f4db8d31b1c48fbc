"""Capture every frame of a network namespace in a ring buffer shared with the kernel (TPACKET_V2).

A capture runs no code of this process, so it does not disturb the measurement. The ring is large enough for every page
load. The buffer of an ordinary socket is too small for some loads, because only root may enlarge it enough.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import socket
import struct

from crosslayer.packets.pcapng import Frame, PacketsError

FRAMES_MOST = 1 << 14
"""Default capacity of a ring, frames."""

# From <linux/if_packet.h>, <linux/if_ether.h>, <asm-generic/socket.h>; Python has no constants for them.
_ETH_P_ALL = 0x0003
_SOL_PACKET = 263
_PACKET_RX_RING, _PACKET_STATISTICS, _PACKET_VERSION = 5, 6, 10
_TPACKET_V2 = 1
_SO_ATTACH_FILTER = 26
_BPF_RETURN = 0x06
_PACKET_OUTGOING = 4
_TO_USER, _TO_KERNEL = 1, 0
_SLOT_BYTES = 2048
"""Size of a slot: an Ethernet frame and the kernel's header, bytes."""
_BLOCK_BYTES = 1 << 16
_HEAD = struct.Struct("=IIIHHII")  # tpacket2_hdr: status, len, snaplen, mac, net, sec, nsec
_ADDRESS_AT = 32  # a sockaddr_ll follows the header, aligned to 16 bytes
_ADDRESS = struct.Struct("=HHiHB")
_LOOPBACK = 772  # ARPHRD_LOOPBACK
_DNS_PORT = 53
_KEEP_BYTES = 0xFFFF


class Ring:
    """A packet socket of the current namespace that stores frames between `start` and `take`.

    On the loopback device it stores only DNS over UDP, because the other traffic there controls the browser.

    Parameters
    ----------
    device
        The device to capture; empty for all.
    frames
        Capacity of the ring, frames; the kernel drops and counts further frames.
    frame_bytes
        Size of a slot for a frame and the kernel's header, bytes; longer frames are truncated.

    Raises
    ------
    PacketsError
        If the namespace allows no packet sockets, or the kernel lacks the memory.
    """

    def __init__(self, device: str = "", *, frames: int = FRAMES_MOST, frame_bytes: int = _SLOT_BYTES) -> None:
        self._device, self._slots, self._slot_bytes = device, frames, frame_bytes
        try:
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
            self._keep(0)
            self._socket.setsockopt(_SOL_PACKET, _PACKET_VERSION, _TPACKET_V2)
            blocks = frames * frame_bytes // _BLOCK_BYTES
            request = struct.pack("=IIII", _BLOCK_BYTES, blocks, frame_bytes, frames)
            self._socket.setsockopt(_SOL_PACKET, _PACKET_RX_RING, request)
            self._memory = mmap.mmap(self._socket.fileno(), blocks * _BLOCK_BYTES)
            self._memory.madvise(mmap.MADV_DONTFORK)  # a User-Mode Linux kernel crashes if it must copy such a mapping
            if device:
                self._socket.bind((device, _ETH_P_ALL))
        except OSError as fault:
            raise PacketsError(
                f"packets cannot be captured here ({os.strerror(fault.errno or 0)})",
                where="AF_PACKET",
                next_step="Run inside the testbed, on a kernel with packet sockets (CONFIG_PACKET) and 32 MB to spare.",
            ) from None
        self._next = 0

    def close(self) -> None:
        """Free the ring's memory and close its socket."""
        self._memory.close()
        self._socket.close()

    def start(self) -> None:
        """Start capturing frames."""
        self._keep(_KEEP_BYTES)

    def take(self) -> tuple[list[Frame], int]:
        """Stop capturing; returns the frames since `start`, in order, and the number of dropped frames."""
        self._keep(0)
        frames = []
        while (frame := self._taken()) is not None:
            frames += frame
        _, dropped = struct.unpack("=II", self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))
        return frames, int(dropped)

    def _taken(self) -> list[Frame] | None:
        """The next slot's frame; None if the kernel has not filled the slot.

        The result is a list with the frame, or an empty list if the frame is to be ignored.
        """
        slot = self._next * self._slot_bytes
        status, length, kept, link_at, _, seconds, nanoseconds = _HEAD.unpack_from(self._memory, slot)
        if not status & _TO_USER:
            return None
        _, _, device, hardware, direction = _ADDRESS.unpack_from(self._memory, slot + _ADDRESS_AT)
        data = self._memory[slot + link_at : slot + link_at + kept]
        struct.pack_into("=I", self._memory, slot, _TO_KERNEL)
        self._next = (self._next + 1) % self._slots
        sent = direction == _PACKET_OUTGOING
        if hardware == _LOOPBACK and (sent or not _is_dns(data)):  # loopback frames appear twice: sent and received
            return []
        # A named device may be in another namespace, so its index has no meaning in this one.
        name = self._device or socket.if_indextoname(device)
        return [Frame(seconds * 1_000_000_000 + nanoseconds, name, sent, data, length)]

    def _keep(self, bytes_: int) -> None:
        program = ctypes.create_string_buffer(struct.pack("=HBBI", _BPF_RETURN, 0, 0, bytes_), 8)
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("@HP", 1, ctypes.addressof(program)))


def _is_dns(frame: bytes) -> bool:
    """Whether an IPv4 frame is UDP from or to port 53."""
    transport = 14 + (frame[14] & 0x0F) * 4 if len(frame) > 14 else 0
    if len(frame) < transport + 4 or not transport or frame[23] != socket.IPPROTO_UDP:
        return False
    return _DNS_PORT in struct.unpack_from("!HH", frame, transport)
