"""Compiles the guest component ahead of time for this machine, into a private cache.

Compiling takes 5 s, loading the compiled form 5 ms. `python -m sandbox_runtime.aot [COMPONENT]` fills the cache with
the components of all kernels, for images that should start at once.
"""

import contextlib
import errno
import hashlib
import importlib.metadata
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from manifests.kernels import PYTHON
from manifests.own_files import cache_folder
from sandbox_runtime.errors import CacheError, ComponentError, WorkerStartError
from sandbox_runtime.kernels import KERNELS, Kernel
from sandbox_runtime.worker.configuration import CONFIGURATION, NOT_WRITTEN
from sandbox_runtime.worker_process import start_process

CACHE_VARIABLE = "MCP_CODE_PORTAL_CACHE"
_COMPILE_SECONDS = 180
_UNUSED_SECONDS = 180 * 86400


def guest_component(kernel: Kernel = KERNELS[PYTHON]) -> Path:
    """The component of a kernel in this package. Raises ComponentError if it is missing."""
    path = Path(__file__).resolve().with_name(kernel.file)
    if not path.is_file():
        raise ComponentError(
            f"the sandbox's {kernel.language}, sandbox_runtime/{kernel.file}, is missing", kernel.builder
        )
    return path


def default_cache(environ: Mapping[str, str]) -> Path:
    """$MCP_CODE_PORTAL_CACHE, or the system's cache folder."""
    return Path(environ[CACHE_VARIABLE]) if environ.get(CACHE_VARIABLE) else cache_folder(environ)


def component_sha256(component: Path) -> str:
    """The hash of a component, in hex. Takes 20 ms."""
    # In chunks: the allocator could keep the 30 MB of a whole read.
    with component.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class AotCache:
    """Compiled components in one folder.

    They are loaded as native code, so the folder must belong to this user (or root), be writable by no one else, and
    not be mounted noexec. Otherwise a temporary folder is used until `close`.
    """

    def __init__(self, folder: Path, progress: Callable[[str], None]) -> None:
        self._folder = folder
        self._progress = progress
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._is_closed = False
        self._compiling: subprocess.Popen[bytes] | None = None

    def compiled(self, component: Path, sha256: str | None = None) -> Path:
        """The compiled form of `component`, compiled if it is missing.

        Raises:
            ComponentError: It does not compile, or the cache was closed in between.
            CacheError: There is no folder for it, not even a temporary one.
        """
        name = f"guest-{_key(sha256 or component_sha256(component))}.cwasm"
        with contextlib.suppress(OSError):  # read-only, or full
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = self._folder.stat()
            is_private = status.st_uid in (os.geteuid(), 0) and not status.st_mode & 0o022
            if is_private and not _is_noexec(self._folder):
                return self._compile_once(component, self._folder / name)
        self._progress(
            f"the cache folder {self._folder} cannot be used; set {CACHE_VARIABLE} to a private one to start faster"
        )
        try:
            self._temporary = self._temporary or tempfile.TemporaryDirectory(prefix="mcp-code-portal-")
            if _is_noexec(Path(self._temporary.name)):
                raise CacheError(
                    f"{self._temporary.name} is mounted noexec, and the compiled sandbox is code"
                )
            return self._compile_once(component, Path(self._temporary.name) / name)
        except OSError as error:
            raise CacheError(f"there is no space for the compiled sandbox (50 MB): {error}") from error

    def close(self) -> None:
        """Kill a running compilation, which other threads may wait for. It leaves nothing behind."""
        self._is_closed = True
        if (child := self._compiling) is not None:
            child.kill()
        if self._temporary is not None:
            self._temporary.cleanup()

    def _compile_once(self, component: Path, target: Path) -> Path:
        """Compile into `target` if it is missing. Of concurrent portals the first to finish wins."""
        if not target.is_file():
            self._progress("preparing the sandbox for this machine, once (about 5 s)")
            partial = target.with_suffix(f".{os.getpid()}.partial")
            try:
                self._compile(component, partial)
                if not target.is_file():
                    partial.replace(target)
            finally:
                partial.unlink(missing_ok=True)
        # Remove files that no portal opened for half a year, longer than one runs: every version leaves 70 MB behind.
        with contextlib.suppress(OSError):
            os.utime(target)
            for other in target.parent.glob("guest-*"):
                if time.time() - other.stat().st_mtime > _UNUSED_SECONDS:
                    other.unlink()
        return target

    def _compile(self, component: Path, target: Path) -> None:
        """Compile in a child process: the engine may abort its process, and needs 350 MB to compile."""
        with start_process(
            "sandbox_runtime.worker.engine", "compile_file", str(component.absolute()), str(target)
        ) as child:
            self._compiling = child
            try:
                # `close` may have run before this child existed.
                status = -1 if self._is_closed else child.wait(_COMPILE_SECONDS)
            finally:
                child.kill()
                self._compiling = None
        if status == NOT_WRITTEN:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target.parent))
        if -status in (signal.SIGKILL, signal.SIGTERM):  # such as by a machine without memory
            raise WorkerStartError(f"the compiler of the guest component was ended by signal {-status}")
        if status != 0:
            raise ComponentError(f"the guest component did not compile (status {status})")


def _is_noexec(folder: Path) -> bool:
    """Whether the system loads no code from the folder (Linux), as from /tmp on many hardened machines."""
    return bool(os.statvfs(folder).f_flag & getattr(os, "ST_NOEXEC", 0))


def _key(sha256: str) -> str:
    """A hash of everything that compiled code depends on."""
    cpu = platform.processor()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    machine = (platform.system(), platform.machine(), cpu)
    parts = (sha256, importlib.metadata.version("wasmtime"), CONFIGURATION, *machine)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def main() -> None:
    cache = AotCache(default_cache(os.environ), lambda text: print(text, file=sys.stderr))  # noqa: T201
    given = [Path(argument) for argument in sys.argv[1:]]
    for component in given or map(guest_component, KERNELS.values()):
        print(cache.compiled(component))  # noqa: T201  # a command prints


if __name__ == "__main__":
    main()
