"""Locks a worker down on Linux before it runs a script: no files, network, new processes, or most system calls.

It limits a guest that escaped the engine. Everything that the worker needs is loaded and open before. Measures that the
kernel does not support are skipped, and not reported. `run_confined` does the same for a program that reads untrusted
text and has to load itself first.
"""

import contextlib
import ctypes
import os
import platform
import re
import resource
import signal
import struct
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1


def end_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends (Linux only).

    The signal comes when the thread that started this process ends, so that thread must live as long as the parent.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)  # the parent ended before `prctl`


MEASURES = ("no_new_privs", "landlock", "rlimits", "seccomp")
"""The possible measures. Landlock is reported with its version."""

_PR_SET_NO_NEW_PRIVS = 38
_LANDLOCK_CREATE_RULESET, _LANDLOCK_RESTRICT_SELF = 444, 446
_LANDLOCK_ADD_RULE, _LANDLOCK_PATH_BENEATH = 445, 1
_LANDLOCK_VERSION = 1
# Access rights by the version of Landlock that added them. A ruleset that handles one and allows nothing denies it.
_LANDLOCK_FILES = {1: (1 << 13) - 1, 2: 1 << 13, 3: 1 << 14, 5: 1 << 15}
_EXECUTE, _READ_FILE, _READ_FOLDER = 1 << 0, 1 << 2, 1 << 3
_LANDLOCK_TCP = {4: 0b11}
_LANDLOCK_SCOPES = {6: 0b11}  # abstract sockets and signals

_MOST_DATA_BYTES = 2 << 30
"""Limit of the whole process: twice the largest memory_mib."""

_CONFINED_DATA_BYTES = 1 << 30
_CONFINED_CPU_SECONDS = 600

_SECCOMP = 317
_SECCOMP_SET_MODE_FILTER, _SECCOMP_FILTER_FLAG_TSYNC = 1, 1
_AUDIT_ARCH_X86_64 = 0xC000003E
_X32_CALLS = 0x40000000
_ALLOW, _KILL, _REFUSE = 0x7FFF0000, 0x80000000, 0x00050001  # the last one is EPERM
_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NO_SUCH_CALL = 0x00050026  # ENOSYS, after which libc falls back to another call
_CALL_OFFSET, _ARCH_OFFSET = 0, 4
_FIRST_ARGUMENT_OFFSET, _SECOND_ARGUMENT_OFFSET, _THIRD_ARGUMENT_OFFSET = 16, 24, 32
_PROT_EXEC = 4
_OF_X86_64 = (
    (_LOAD, 0, 0, _ARCH_OFFSET),
    (_JUMP_EQUAL, 1, 0, _AUDIT_ARCH_X86_64),
    (_RETURN, 0, 0, _KILL),
    (_LOAD, 0, 0, _CALL_OFFSET),
    (_JUMP_AT_LEAST, 0, 1, _X32_CALLS),
    (_RETURN, 0, 0, _KILL),
)
"""The beginning of each filter, with the number of the call loaded."""
# Numbers of x86_64. getrandom is needed only after some hundred instances, so test a filter with a long soak.
_ALLOWED_CALLS = {
    "read": 0,
    "write": 1,
    "brk": 12,
    "rt_sigreturn": 15,
    "pread64": 17,
    "select": 23,  # an older glibc waits with it, a newer one with pselect6
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
# Calls of a starting thread. One may still be starting, and libc aborts if they are refused.
_ALLOWED_AT_THREAD_START = {
    "rt_sigprocmask": 14,
    "sigaltstack": 131,
    "gettid": 186,
    "sched_getaffinity": 204,
    "set_robust_list": 273,
    "rseq": 334,
}
_ALLOWED_WITHOUT_EXEC = {"mmap": 9, "mprotect": 10}
# Calls with which libc, and the engine's signal handler, end the process. If they are refused, both retry forever.
_FATAL_CALLS = {"rt_sigaction": 13, "kill": 62, "tkill": 200, "tgkill": 234}

# For a program that starts threads and maps its own code: deny what reaches other processes or bypasses Landlock.
_DENIED_CALLS = (
    41, 53,  # socket, socketpair
    57, 58, 322,  # fork, vfork, execveat
    101, 298, 310, 311, 438,  # ptrace, perf_event_open, process_vm_readv and _writev, pidfd_getfd
    129, 297, 256, 279, 440,  # rt_sigqueueinfo, rt_tgsigqueueinfo, migrate_pages, move_pages, process_madvise
    141, 142, 144, 203, 251, 314,  # setpriority, sched_setparam, -scheduler and -affinity, ioprio_set, sched_setattr
    155, 161, 165, 166, 272, 308,  # pivot_root, chroot, mount, umount2, unshare, setns
    248, 249, 250, 304, 321, 323,  # add_key, request_key, keyctl, open_by_handle_at, bpf, userfaultfd
    319, 424, 425, 447,  # memfd_create, pidfd_send_signal, io_uring_setup, memfd_secret
)  # fmt: skip
_CLONE, _CLONE3, _CLONE_THREAD = 56, 435, 0x10000
_PRLIMIT = 302
_DENIED_REQUESTS = {72: (8, 15), 16: (0x8901, 0x8902)}
"""Of fcntl and ioctl, what has a descriptor signal another: F_SETOWN, F_SETOWN_EX, FIOSETOWN, SIOCSPGRP."""


def harden() -> list[str]:
    """Give up privileges and files. Call it before any thread starts: Landlock binds the calling thread and its own."""
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
    """Give up new descriptors and processes, and all system calls that a worker does not need.

    Call it when everything is open and all threads run.
    """
    if sys.platform != "linux":
        return []
    # RLIMIT_DATA, because a guest reserves gigabytes of unused address space.
    _limit(NOFILE=0, NPROC=0, CORE=0, FSIZE=0, MEMLOCK=0, MSGQUEUE=0, DATA=_MOST_DATA_BYTES)
    # The filter is for x86_64 only; other machines have the measures above.
    if platform.machine() != "x86_64" or not _seccomp(ctypes.CDLL(None, use_errno=True), _filter()):
        return ["rlimits"]
    return ["rlimits", "seccomp"]


def run_confined(folders: str, program: str, *arguments: str) -> None:
    """Become a program that reads nothing but folders, itself and the C library, and has its threads and pipes.

    The paths of the folders are lines.

    It writes no file, has no network, starts no process, and is ended after 600 s of CPU or over 1 GiB. The measures
    are those of a worker: without Landlock it reads all files of its user; without seccomp it may start itself, and
    open sockets other than TCP.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        _limit(CORE=0, FSIZE=0, MEMLOCK=0, MSGQUEUE=0, DATA=_CONFINED_DATA_BYTES, CPU=_CONFINED_CPU_SECONDS)
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        _landlock(
            libc,
            [
                *((folder, _READ_FILE | _READ_FOLDER) for folder in folders.splitlines()),
                (program, _READ_FILE | _EXECUTE),
                *_c_library(),
            ],
        )
        if platform.machine() == "x86_64":
            _seccomp(libc, _deny_filter())
    os.execv(program, [program, *arguments])


def _c_library() -> Iterator[tuple[str, int]]:
    """The files that loading a program needs: the loader, and the folders of the loader and of libc."""
    yield "/etc/ld.so.cache", _READ_FILE
    for path in map(Path, set(re.findall(r"/.*/(?:ld|libc)[-.].*", Path("/proc/self/maps").read_text()))):
        yield str(path.parent), _READ_FILE
        if path.name.startswith("ld"):
            yield str(path), _READ_FILE | _EXECUTE


def _limit(**limits: int) -> None:
    for name, most in limits.items():
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (most, most))


def _landlock(libc: Any, allowed: Iterable[tuple[str, int]] = ()) -> int:
    """Deny all files but the allowed rights beneath some paths, TCP, and signals to others.

    Returns the version of Landlock, 0 if the kernel lacks it.
    """
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
    for path, right in allowed:
        with contextlib.suppress(OSError):
            beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
            rule = struct.pack("<Qi", right, beneath)
            libc.syscall(_LANDLOCK_ADD_RULE, descriptor, _LANDLOCK_PATH_BENEATH, rule, 0)
            os.close(beneath)
    restricted = libc.syscall(_LANDLOCK_RESTRICT_SELF, descriptor, 0) == 0
    os.close(descriptor)
    return version if restricted else 0


def _seccomp(libc: Any, program: bytes) -> bool:
    code = ctypes.create_string_buffer(program, len(program))
    description = struct.pack("<H6xQ", len(program) // 8, ctypes.addressof(code))
    sealed: int = libc.syscall(_SECCOMP, _SECCOMP_SET_MODE_FILTER, _SECCOMP_FILTER_FLAG_TSYNC, description)
    return sealed == 0


def _filter() -> bytes:
    """The BPF program: an allow-list of calls, two of them only without executable memory."""
    steps = [*_OF_X86_64]
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


def _deny_filter() -> bytes:
    """The BPF program of a confined one: a deny-list, `prlimit` of itself only, and `clone` for threads only."""
    steps = [*_OF_X86_64]
    for number in _DENIED_CALLS:
        steps += [(_JUMP_EQUAL, 0, 1, number), (_RETURN, 0, 0, _REFUSE)]
    for number in (_FATAL_CALLS[name] for name in ("kill", "tkill", "tgkill")):
        steps += [(_JUMP_EQUAL, 0, 1, number), (_RETURN, 0, 0, _KILL)]
    for number, requests in _DENIED_REQUESTS.items():
        steps += [(_JUMP_EQUAL, 0, 2 + 2 * len(requests), number), (_LOAD, 0, 0, _SECOND_ARGUMENT_OFFSET)]
        for request in requests:
            steps += [(_JUMP_EQUAL, 0, 1, request), (_RETURN, 0, 0, _REFUSE)]
        steps.append((_RETURN, 0, 0, _ALLOW))
    steps += [
        (_JUMP_EQUAL, 0, 4, _PRLIMIT),
        (_LOAD, 0, 0, _FIRST_ARGUMENT_OFFSET),
        (_JUMP_EQUAL, 0, 1, 0),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _REFUSE),
        (_JUMP_EQUAL, 0, 1, _CLONE3),  # its flags are in memory
        (_RETURN, 0, 0, _NO_SUCH_CALL),
        (_JUMP_EQUAL, 0, 3, _CLONE),
        (_LOAD, 0, 0, _FIRST_ARGUMENT_OFFSET),
        (_JUMP_BITS, 1, 0, _CLONE_THREAD),
        (_RETURN, 0, 0, _REFUSE),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("<HBBI", *step) for step in steps)
