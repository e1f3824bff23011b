"""Which process is at the other end of a Unix socket, and from which it descends."""

import ctypes
import os
import socket
import struct
import sys
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """The user and the process at the other end, as the kernel knows them from the time when it connected.

    Sources: unix(7) on Linux; on macOS unix(4), `struct xucred` of sys/ucred.h, and LOCAL_PEERPID of sys/un.h.
    """
    if sys.platform == "darwin":
        of_local, peercred, peerpid = 0, 1, 2
        _, uid = struct.unpack_from("II", connection.getsockopt(of_local, peercred, 76))
        (pid,) = struct.unpack("i", connection.getsockopt(of_local, peerpid, 4))
        return uid, pid
    pid, uid, _ = struct.unpack("iii", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return uid, pid


def is_from(connection: socket.socket, pid: int) -> bool:
    """Whether this process of this user is at the other end; of a listener, whether it called `listen`."""
    with suppress(OSError):
        return peer_of(connection) == (os.geteuid(), pid)
    return False


def is_descendant(pid: int, ancestors: Collection[int]) -> bool:
    """Whether a process descends from one of these, or has ended: then it may have.

    One whose parent has ended, as daemons are on purpose, descends from whoever adopted it.
    """
    while parent := parent_of(pid):
        if parent in ancestors:
            return True
        pid = parent
    # Ended just now, and with it the way to its ancestors? Or hidden by the system, as another user's may be?
    return parent is None and not _is_hidden(pid)


def _is_hidden(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return False


def parent_of(pid: int) -> int | None:
    """The parent of a process; 0 if it has none here, None if the process has ended or is hidden."""
    if sys.platform == "darwin":
        short_info, size, parent_at = 13, 64, 4  # `struct proc_bsdshortinfo` of sys/proc_info.h
        info = ctypes.create_string_buffer(size)
        if ctypes.CDLL(None).proc_pidinfo(pid, short_info, ctypes.c_uint64(0), info, size) != size:
            return None
        return int.from_bytes(info.raw[parent_at : parent_at + 4], "little")
    with suppress(OSError):
        # The name of the program, in parentheses, may contain anything.
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
    return None
