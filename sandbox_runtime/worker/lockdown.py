"""What a worker gives up, on Linux, before it runs a script: files, network, new processes, most system calls.

A guest that broke out of the engine would find itself here. Everything the worker needs is loaded and open
by then. Each measure that this kernel lacks is left out, and missing from what is reported.
"""

import contextlib
import ctypes
import os
import platform
import resource
import signal
import struct
import sys
from typing import Any

_PR_SET_PDEATHSIG = 1


def end_with_parent(parent: int) -> None:
    """Have the system kill this process when its parent ends, where it can (Linux).

    The signal comes when the parent's thread that started this process ends, so that must be a lasting one.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)  # it ended before the line above


MEASURES = ("no_new_privs", "landlock", "rlimits", "seccomp")
"""What a worker can be locked down with; of Landlock its version is told, too."""

_PR_SET_NO_NEW_PRIVS = 38
_LANDLOCK_CREATE_RULESET, _LANDLOCK_RESTRICT_SELF = 444, 446
_LANDLOCK_VERSION = 1
# Access rights that each version of Landlock added; a ruleset that names one and allows none denies it.
_LANDLOCK_FILES = {1: (1 << 13) - 1, 2: 1 << 13, 3: 1 << 14, 5: 1 << 15}
_LANDLOCK_TCP = {4: 0b11}
_LANDLOCK_SCOPES = {6: 0b11}  # abstract sockets and signals

_MOST_DATA_BYTES = 2 << 30
"""Twice the most that a manifest can let a script fill: the engine's own growth ends here, whatever drives it."""

_SECCOMP = 317
_SECCOMP_SET_MODE_FILTER, _SECCOMP_FILTER_FLAG_TSYNC = 1, 1
_AUDIT_ARCH_X86_64 = 0xC000003E
_X32_CALLS = 0x40000000
_ALLOW, _KILL, _REFUSE = 0x7FFF0000, 0x80000000, 0x00050001  # the last one is EPERM
_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_CALL_OFFSET, _ARCH_OFFSET, _THIRD_ARGUMENT_OFFSET = 0, 4, 32
_PROT_EXEC = 4
# Numbers of x86_64. getrandom is needed only after some hundred instances: a filter wants a soak, not a try.
_ALLOWED_CALLS = {
    "read": 0,
    "write": 1,
    "brk": 12,
    "rt_sigreturn": 15,
    "pread64": 17,
    "sched_yield": 24,
    "madvise": 28,
    "sendto": 44,
    "recvfrom": 45,
    "munmap": 11,
    "getppid": 110,
    "futex": 202,
    "clock_gettime": 228,
    "clock_nanosleep": 230,
    "exit_group": 231,
    "epoll_wait": 232,
    "pselect6": 270,
    "getrandom": 318,
}
# What a thread does as it starts; one may still be at it, and libc takes a refusal for the end of the world.
_ALLOWED_AT_THREAD_START = {
    "rt_sigprocmask": 14,
    "sigaltstack": 131,
    "gettid": 186,
    "sched_getaffinity": 204,
    "set_robust_list": 273,
    "rseq": 334,
}
_ALLOWED_WITHOUT_EXEC = {"mmap": 9, "mprotect": 10}
# What libc ends the process with, and the engine's handler of signals makes way with. Refused, both try for ever.
_FATAL_CALLS = {"rt_sigaction": 13, "kill": 62, "tkill": 200, "tgkill": 234}


def harden() -> list[str]:
    """Give up privileges and files. Comes before any thread: Landlock binds the calling one and those it starts."""
    if sys.platform != "linux":
        return []
    libc = ctypes.CDLL(None, use_errno=True)
    done = []
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0:
        done.append("no_new_privs")
    version = _landlock(libc)
    if version:
        done.append(f"landlock-{version}")
    return done


def seal() -> list[str]:
    """Give up new descriptors, processes, and every system call that a worker does not make.

    Comes when everything is open and all threads run.
    """
    if sys.platform != "linux":
        return []
    # Of address space a guest reserves gigabytes that nobody uses; what a worker fills, this bounds.
    most = {"DATA": _MOST_DATA_BYTES}
    for name in ("NOFILE", "NPROC", "CORE", "FSIZE", "MEMLOCK", "MSGQUEUE", "DATA"):
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (most.get(name, 0),) * 2)
    # Its numbers are those of one machine type; on others the measures above have to do.
    if platform.machine() != "x86_64" or not _seccomp(ctypes.CDLL(None, use_errno=True)):
        return ["rlimits"]
    return ["rlimits", "seccomp"]


def _landlock(libc: Any) -> int:
    """Deny all files, TCP, and signals to others. Returns the version of Landlock, 0 if there is none."""
    version: int = libc.syscall(_LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), _LANDLOCK_VERSION)
    if version < 1:
        return 0
    rights = [
        sum(bits for since, bits in table.items() if version >= since)
        for table in (_LANDLOCK_FILES, _LANDLOCK_TCP, _LANDLOCK_SCOPES)
    ]
    fields = 1 if version < 4 else 2 if version < 6 else 3
    ruleset = struct.pack(f"<{fields}Q", *rights[:fields])
    descriptor: int = libc.syscall(_LANDLOCK_CREATE_RULESET, ruleset, ctypes.c_size_t(len(ruleset)), 0)
    if descriptor < 0:
        return 0
    restricted = libc.syscall(_LANDLOCK_RESTRICT_SELF, descriptor, 0) == 0
    os.close(descriptor)
    return version if restricted else 0


def _seccomp(libc: Any) -> bool:
    program = _filter()
    code = ctypes.create_string_buffer(program, len(program))
    description = struct.pack("<H6xQ", len(program) // 8, ctypes.addressof(code))
    sealed: int = libc.syscall(_SECCOMP, _SECCOMP_SET_MODE_FILTER, _SECCOMP_FILTER_FLAG_TSYNC, description)
    return sealed == 0


def _filter() -> bytes:
    """The BPF program: a list of calls to allow, two of them unless they ask for executable memory."""
    steps = [
        (_LOAD, 0, 0, _ARCH_OFFSET),
        (_JUMP_EQUAL, 1, 0, _AUDIT_ARCH_X86_64),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _CALL_OFFSET),
        (_JUMP_AT_LEAST, 0, 1, _X32_CALLS),
        (_RETURN, 0, 0, _KILL),
    ]
    for number in _ALLOWED_WITHOUT_EXEC.values():
        steps += [
            (_JUMP_EQUAL, 0, 4, number),
            (_LOAD, 0, 0, _THIRD_ARGUMENT_OFFSET),
            (_JUMP_BITS, 0, 1, _PROT_EXEC),
            (_RETURN, 0, 0, _REFUSE),
            (_RETURN, 0, 0, _ALLOW),
        ]
    for number in (*_ALLOWED_CALLS.values(), *_ALLOWED_AT_THREAD_START.values()):
        steps += [(_JUMP_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ALLOW)]
    for number in _FATAL_CALLS.values():
        steps += [(_JUMP_EQUAL, 0, 1, number), (_RETURN, 0, 0, _KILL)]
    steps.append((_RETURN, 0, 0, _REFUSE))
    return b"".join(struct.pack("<HBBI", *step) for step in steps)
