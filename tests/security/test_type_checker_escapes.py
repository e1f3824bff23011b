"""The type checker reads untrusted scripts: what it can still do to the machine if one of them took it over. The
harmless twins: what it needs works, and it finds what is wrong (tests/portal/catalog/check, all under the same
lock-down).
"""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from portal.catalog.check.language_server import _CONFINED, TypeChecker
from portal.catalog.check.typescript_server import TypescriptServer, find_typescript
from sandbox_runtime.worker_process import boot_command

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="other systems lack some of it"
)

ATTEMPTS = {
    "read what all may read": "open('/etc/passwd').close()",
    "read a file of its user": "open(secret).close()",
    "read by a link": "os.readlink('/proc/self/cwd'); open('/proc/self/root/etc/passwd').close()",
    "read its parent": "open(f'/proc/{os.getppid()}/environ').close()",
    "list a folder": "os.listdir('/')",
    "write a file": "open('/tmp/escaped', 'w').close()",
    "write beside what it reads": "open(os.path.join(sys.base_prefix, 'escaped'), 'w').close()",
    "remove a file": "os.unlink(secret)",
    "open a connection": "socket.socket()",
    "send a datagram": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
    "reach a local service": "socket.socket(socket.AF_UNIX)",
    "start a process": "os.posix_spawn('/bin/true', ['true'], {})",
    "fork": "os.fork()",
    "run another program": "os.execv('/bin/true', ['true'])",
    "run a program from memory": "os.memfd_create('x')",
    "trace another": "check(libc.ptrace(16, os.getppid(), 0, 0))",
    "limit its parent": "resource.prlimit(os.getppid(), resource.RLIMIT_CORE)",
    "slow its parent down": "os.setpriority(os.PRIO_PROCESS, os.getppid(), os.getpriority(0, os.getppid()))",
    "move its parent": "os.sched_setaffinity(os.getppid(), os.sched_getaffinity(os.getppid()))",
    # To itself, because a new kernel has a measure of its own against signals to others.
    "queue a signal": "check(libc.syscall(129, os.getpid(), 0, (ctypes.c_int * 32)(0, 0, -1)))",
    "have a pipe send signals": "fcntl.fcntl(os.pipe()[0], fcntl.F_SETOWN, os.getppid())",
    "leave its namespaces": "check(libc.unshare(0x10000000))",
    "use rings": "check(libc.syscall(425, 8, ctypes.create_string_buffer(120)))",
    "fill the memory": "mmap.mmap(-1, 3 << 29, mmap.MAP_PRIVATE)",
    "compute for ever": "resource.setrlimit(resource.RLIMIT_CPU, (9999, 9999))",
}
HARMLESS = {
    "read its folder": "os.listdir(sys.base_prefix); open(os.__file__).close()",
    "start threads": "thread = threading.Thread(target=int); thread.start(); thread.join()",
    "use memory": "mmap.mmap(-1, 1 << 28, mmap.MAP_PRIVATE).close()",
    "use pipes": "end = os.pipe()[1]; os.set_blocking(end, False); os.write(end, b'1')",
    "look at its own limits": "resource.getrlimit(resource.RLIMIT_NOFILE)",
}
PROGRAM = """
import ctypes, fcntl, json, mmap, os, resource, socket, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
secret = sys.argv[2]
def check(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")
refused = []
for name, attempt in json.loads(sys.argv[1]).items():
    try:
        exec(attempt)
    except (OSError, ValueError):
        refused.append(name)
print(json.dumps(refused))
"""


def confined(attempts: dict[str, str], secret: Path) -> "subprocess.CompletedProcess[str]":
    """Python in the place of ty, with its installation in the place of the stubs."""
    program = (os.path.realpath(sys.executable), "-I", "-S", "-c", PROGRAM, json.dumps(attempts), str(secret))
    command = boot_command(*_CONFINED, sys.base_prefix, *program)
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env={})


def test_every_way_out_of_the_type_checker_is_refused(tmp_path: Path) -> None:
    secret = tmp_path / "portal.yaml"
    secret.write_text("upstreams: {}")
    done = confined(ATTEMPTS, secret)
    assert json.loads(done.stdout or "[]") == [*ATTEMPTS], done.stderr
    assert secret.exists()


def test_what_the_type_checker_needs_still_works(tmp_path: Path) -> None:
    assert json.loads(confined(HARMLESS, tmp_path).stdout) == []


@pytest.mark.parametrize("signal", ["os.kill(os.getppid(), 0)", "os.abort()"])
def test_signals_end_the_type_checker(signal: str, tmp_path: Path) -> None:
    assert confined({"signal": signal}, tmp_path).returncode < 0


SECRET = "declare const secret: { word: string }\n"
ASKING = [
    '/// <reference path="{}" />\nsecret.wrod',
    '/// <reference types="{}" />\nsecret.wrod',
    'import secret from "{}"\nsecret.wrod',
    'const secret: typeof import("{}") = null!\nsecret.wrod',
    '// @ts-ignore\nimport "{}"\nsecret.wrod',
]


@pytest.mark.anyio
@pytest.mark.skipif(find_typescript() is None, reason="the extra `typescript` is not installed")
async def test_no_script_has_typescript_read_a_file_outside_its_folder(tmp_path: Path) -> None:
    inside, outside = tmp_path / "stubs", tmp_path / "outside"
    for folder in (inside, outside):
        folder.mkdir()
        (folder / "secret.d.ts").write_text(SECRET)
        (folder / "exported.d.ts").write_text(f"{SECRET}export default secret")

    async def told(text: str) -> list[str]:
        found = await types.findings([], text) or []
        return [each.message for each in found if "word" in each.message]

    types = TypeChecker(inside, TypescriptServer)
    try:
        assert await told("secret.wrod") != []  # what is in its folder is read
        assert await told('import it from "./exported"\nit.wrod') != []
        (inside / "secret.d.ts").unlink()
        types.update([inside / "secret.d.ts"])
        for path in (
            outside / "secret.d.ts",
            outside / "exported",
            "../outside/secret.d.ts",
            "../outside/exported",
        ):
            for text in ASKING:
                assert await told(text.format(path)) == []
    finally:
        await types.close()
