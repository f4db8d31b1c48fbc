"""Run a command under the restrictions of a container: `python refusing.py COMMAND...`.

Like Docker's default profile, a seccomp filter refuses new namespaces, mounts and TUN devices; /dev/shm is noexec.
This file imports only the standard library.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys

_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000
_EPERM, _ENOSYS = 1, 38
_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_NUMBER, _FIRST, _SECOND = 0, 16, 24
"""Offsets in `struct seccomp_data` of the system call's number and of the low halves of its first two arguments."""
_MOUNT, _UNSHARE, _CLONE, _CLONE3, _IOCTL = 165, 272, 56, 435, 16
_NEW_NAMESPACES = 0x7E020000
_TUNSETIFF = 0x400454CA
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _FILTER = 38, 22, 2
_MS_NOEXEC = 8


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def _program() -> bytes:
    def step(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
        return struct.pack("HBBI", code, yes, no, value)

    refuse = step(_RETURN, _REFUSE | _EPERM)
    whole = step(_LOAD, _NUMBER)
    for number in (_MOUNT, _UNSHARE):
        whole += step(_EQUAL, number, 0, 1) + refuse
    whole += step(_EQUAL, _CLONE3, 0, 1) + step(_RETURN, _REFUSE | _ENOSYS)
    for number, argument, test, value in (
        (_CLONE, _FIRST, _ANY_BIT, _NEW_NAMESPACES),
        (_IOCTL, _SECOND, _EQUAL, _TUNSETIFF),
    ):
        whole += step(_EQUAL, number, 0, 4) + step(_LOAD, argument) + step(test, value, 0, 1) + refuse
        whole += step(_LOAD, _NUMBER)
    return whole + step(_RETURN, _ALLOW)


def main(command: list[str]) -> None:
    """Install the restrictions and execute the command."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", _MS_NOEXEC, b"size=64m") != 0:
        sys.exit(f"/dev/shm: {os.strerror(ctypes.get_errno())}")
    code = ctypes.create_string_buffer(whole := _program(), len(whole))
    program = _Program(len(whole) // 8, ctypes.addressof(code))
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        sys.exit("no_new_privs is refused")
    if libc.prctl(_PR_SET_SECCOMP, _FILTER, ctypes.byref(program), 0, 0) != 0:
        sys.exit(f"seccomp: {os.strerror(ctypes.get_errno())}")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
