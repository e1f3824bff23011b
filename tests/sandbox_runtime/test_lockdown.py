"""A script that broke out of the engine can do nothing to the machine."""

import json
import platform
import socket
import subprocess
import sys

import pytest

from manifests.grants import Limits
from sandbox_runtime.sandbox import Sandbox
from sandbox_runtime.worker.lockdown import MEASURES

ATTEMPTS = {
    "read a file": "open('/etc/hostname').close()",
    "list a folder": "os.listdir('/')",
    "write a file": "open('/tmp/escaped', 'w').close()",
    "change the folder": "os.chdir('/')",
    "open a socket": "socket.socket()",
    "start a process": "os.posix_spawn('/bin/true', ['true'], {})",
    "fork": "os.fork()",
    "run a program": "os.execv('/bin/true', ['true'])",
    "start a thread": "threading.Thread(target=int).start()",
    "make memory executable": "mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC)",
    "raise its limits": "resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))",
    "trace another": "check(libc.ptrace(16, os.getppid(), 0, 0))",
    "load a library": "ctypes.CDLL('libBrokenLocale.so.1')",  # glibc's, which no Python has loaded before
    "fill the machine": "mmap.mmap(-1, 3 << 30, mmap.MAP_PRIVATE)",
}
FATAL = {
    "kill its parent": "os.kill(os.getppid(), 0)",
    "abort": "os.abort()",
    "catch a signal": "signal.signal(signal.SIGSEGV, signal.SIG_DFL)",
}
"""Calls that end the process at once: if they were refused, an abort would retry for ever."""

HARMLESS = {
    "use memory": "mmap.mmap(-1, 1 << 30, mmap.MAP_PRIVATE).close()",
    "reserve what it does not use": "mmap.mmap(-1, 8 << 30, mmap.MAP_PRIVATE, 0).close()",
    "draw random bytes": "os.urandom(100_000)",
    "sleep": "time.sleep(0.001)",
    "tell the time": "time.process_time()",
    "look at its parent": "os.getppid()",
    "answer": "end.send(b'')",
}
if platform.machine() == "x86_64":  # as a C library of 2020 waits, whatever this machine has
    HARMLESS["select"] = "check(libc.syscall(23, 0, None, None, None, (ctypes.c_long * 2)(0, 1000)))"
PROGRAM = """
import ctypes, json, mmap, os, resource, signal, socket, subprocess, sys, threading, time
from sandbox_runtime.worker.lockdown import harden, seal
end = socket.socket(fileno=int(sys.argv[1]))
libc = ctypes.CDLL(None, use_errno=True)
def check(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")
done = harden()
threading.Thread(target=int).start()  # as a worker does: the first one of a process does more than the others
done += seal()
refused = {}
for name, attempt in json.loads(sys.argv[2]).items():
    try:
        exec(attempt)
    except (OSError, RuntimeError, ValueError) as error:
        refused[name] = type(error).__name__
end.sendall(json.dumps([done, refused]).encode())
os._exit(0)
"""


def attempt(attempts: dict[str, str]) -> tuple[set[str], set[str]]:
    """The rights that a locked-down process gave up, and the attempts that failed."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert status(attempts, theirs) == 0, "a refused call must not kill"
        protections, refused = json.loads(ours.recv(1 << 16))
    return set(protections), set(refused)


def status(attempts: dict[str, str], end: socket.socket) -> int:
    """How a locked-down process ends that makes the attempts."""
    command = [sys.executable, "-c", PROGRAM, str(end.fileno()), json.dumps(attempts)]
    return subprocess.run(command, pass_fds=[end.fileno()], timeout=60, check=False).returncode


def test_every_way_out_is_refused() -> None:
    protections, refused = attempt(ATTEMPTS)
    if "seccomp" in protections:
        assert refused == set(ATTEMPTS)
    elif any(name.startswith("landlock") for name in protections):
        assert refused >= {
            "read a file",
            "list a folder",
            "write a file",
            "run a program",
            "raise its limits",
        }


@pytest.mark.parametrize("name", FATAL)
def test_what_would_be_tried_for_ever_ends_the_process(name: str) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert status({name: FATAL[name]}, theirs) < 0


def test_what_a_worker_needs_still_works() -> None:
    assert attempt(HARMLESS)[1] == set()


async def test_workers_report_what_protects_them(sandbox: Sandbox) -> None:
    async with sandbox.run(Limits(), str):
        pass  # at least one worker has started
    if sys.platform == "linux":
        assert {"no_new_privs", "rlimits"} <= set(sandbox.protections)
        assert ("seccomp" in sandbox.protections) == (platform.machine() == "x86_64")
    else:
        assert sandbox.protections == ()
    there = {name.partition("-")[0] for name in sandbox.protections}
    assert there | set(sandbox.missing_protections) == set(MEASURES)
    assert not there & set(sandbox.missing_protections)
