"""The store of runs for the event loop: one thread writes it, in group commits; and which file a portal uses."""

import asyncio
import fcntl
import hashlib
import os
import queue
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import anyio
import anyio.to_thread
import structlog

from manifests.manifest import Manifest
from manifests.own_files import state_folder
from portal.runs.components import components_folder
from portal.runs.records import StoreError
from portal.runs.store import RunFile

log = structlog.get_logger()

Result = TypeVar("Result")

LOCK_SECONDS: Final = 0.2
MAX_SLOTS: Final = 1_000
"""Default files per manifest: each portal that runs at the same time has its own."""


@dataclass(slots=True)
class _Job:
    work: Callable[[RunFile], object]
    is_lasting: bool
    done: Callable[[Any, Exception | None], None]
    loop: asyncio.AbstractEventLoop


class RunStore:
    """Writes in a thread, so that no commit blocks the event loop. What waits at the same time is one commit."""

    def __init__(self, file: RunFile, reader: RunFile) -> None:
        self._file = file
        self._reader = reader
        self._reading = anyio.Lock()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="store of runs", daemon=True)
        self._thread.start()

    @property
    def path(self) -> Path:
        return self._file.path

    async def write(self, work: Callable[[RunFile], Result], *, is_lasting: bool = False) -> Result:
        """Do some writing in a transaction, and wait until it is committed; with `is_lasting` until it is on the disk.

        A cancelled wait does not undo it. Raises what `work` raises, and StoreError: it cannot be written.
        """
        future = asyncio.get_running_loop().create_future()
        self.submit(work, partial(resolve, future), is_lasting=is_lasting)
        result: Result = await future
        return result

    def submit(
        self,
        work: Callable[[RunFile], object],
        done: Callable[[Any, Exception | None], None],
        *,
        is_lasting: bool = False,
    ) -> None:
        """Do the same without waiting: `done` is called in the event loop with the result, or with the error."""
        self._jobs.put(_Job(work, is_lasting, done, asyncio.get_running_loop()))

    async def read(self, work: Callable[[RunFile], Result]) -> Result:
        """Read in a thread. Raises StoreError: it cannot be read."""
        async with self._reading:
            return await anyio.to_thread.run_sync(work, self._reader)

    async def close(self) -> None:
        """Finish what waits, and close the file."""
        self._jobs.put(None)
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._thread.join)
            async with self._reading:
                self._file.close()
                self._reader.close()

    def _work(self) -> None:
        is_open = True
        while is_open:
            jobs = [self._jobs.get()]
            with suppress(queue.Empty):
                while True:
                    jobs.append(self._jobs.get_nowait())
            is_open = None not in jobs
            self._commit([job for job in jobs if job is not None])

    def _commit(self, jobs: list[_Job]) -> None:
        outcomes: list[tuple[_Job, object, Exception | None]] = []
        try:
            with self._file.transaction(is_lasting=any(job.is_lasting for job in jobs)):
                if len(jobs) == 1:
                    outcomes.append((jobs[0], jobs[0].work(self._file), None))
                else:
                    outcomes += map(self._do, jobs)
        except Exception as error:  # noqa: BLE001  # the waiting tasks raise it
            outcomes = [(job, None, error) for job in jobs]
        for job, result, failure in outcomes:
            # The loop may have ended; then nobody waits.
            with suppress(RuntimeError):
                job.loop.call_soon_threadsafe(job.done, result, failure)

    def _do(self, job: _Job) -> tuple[_Job, object, Exception | None]:
        """One job of several. Raises sqlite3.Error: then nothing of any is written."""
        try:
            with self._file.part():
                return job, job.work(self._file), None
        except sqlite3.Error:
            raise
        except Exception as error:  # noqa: BLE001  # the waiting task raises it
            return job, None, error


def resolve(future: "asyncio.Future[Any]", result: Any, error: Exception | None) -> None:
    """Let a future have its result, or its error, if somebody still waits for it."""
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


def run_files(manifest: Manifest) -> list[Path]:
    """The files that portals with this manifest have written, for the command line."""
    if manifest.portal.runs.store:
        path = manifest.folder / manifest.portal.runs.store
        return [path] if path.exists() else []
    return sorted(_default_folder(manifest).glob("*.sqlite"), key=lambda path: (len(path.name), path.name))


@contextmanager
def held_file(manifest: Manifest) -> Iterator[Path]:
    """The file of this portal, which no other portal uses meanwhile.

    Without `runs.store` it is the first in the state folder that no other portal with this manifest uses.
    Raises StoreError: another portal uses the file of `runs.store`, or it cannot be created.
    """
    written = manifest.portal.runs.store
    if written:
        path = manifest.folder / written
        # The command line takes the lock for a moment to see whether a portal holds it.
        with _locked(path, LOCK_SECONDS) as is_held:
            if not is_held:
                raise StoreError(
                    f"another portal uses the store of runs {path}. Stop it, or name another file in runs.store"
                )
            yield path
        return
    folder = _default_folder(manifest)
    for slot in range(MAX_SLOTS):
        path = folder / f"{slot}.sqlite"
        with _locked(path) as is_held:
            if is_held:
                yield path
                return
    raise StoreError(f"{MAX_SLOTS} portals use this manifest: {folder}")


@contextmanager
def _locked(path: Path, seconds: float = 0.0, kind: int = fcntl.LOCK_EX) -> Iterator[bool]:
    """Hold the lock of a file, if nobody else holds it for so many seconds. It ends with the process."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreError(
            f"the store of runs {path} cannot be created: {error.strerror}. Name another file in runs.store"
        ) from error
    try:
        deadline = time.monotonic() + seconds
        while not (is_taken := _take(lock, kind)) and time.monotonic() < deadline:
            time.sleep(0.02)
        yield is_taken
    finally:
        os.close(lock)


def _take(lock: int, kind: int) -> bool:
    with suppress(BlockingIOError):
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
        return True
    return False


@contextmanager
def unmoved(path: Path) -> Iterator[bool]:
    """Keep portals from moving the file of an ended one meanwhile. Yields whether it is still there."""
    # If a portal keeps the lock, the file is its own. One that moves the file has it for a moment.
    with _locked(path, LOCK_SECONDS, fcntl.LOCK_SH):
        yield path.exists()


def is_held(path: Path) -> bool:
    """Whether a portal uses the file now."""
    with _locked(path) as is_free:
        return not is_free


def _default_folder(manifest: Manifest) -> Path:
    path = manifest.path.resolve() if manifest.path else manifest.folder.resolve()
    name = hashlib.sha256(str(path).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return state_folder(os.environ) / "runs" / name


def open_file(path: Path, manifest: Manifest) -> RunFile:
    """Open a file of this manifest. Raises StoreError."""
    key = manifest.portal.runs.key
    return RunFile(path, None if key is None else key.get_secret_value())


def open_store(path: Path, manifest: Manifest) -> RunStore:
    """Open the store in this file, and move into it what portals left that have ended. Blocks. Raises StoreError."""
    file = open_file(path, manifest)
    for other in run_files(manifest) if not manifest.portal.runs.store else []:
        if other != path:
            _adopt(file, other)
    return RunStore(file, open_file(path, manifest))


def _adopt(file: RunFile, other: Path) -> None:
    """Move everything from another file, if no portal uses it. One that cannot be read stays."""
    with _locked(other) as is_free:
        if not is_free:
            return
        try:
            file.take_over(other)
        except StoreError as error:
            log.error("runs_not_taken_over", reason=str(error))
            return
        components = components_folder(other)
        for component in components.glob("*.wasm"):
            components_folder(file.path).mkdir(exist_ok=True, mode=0o700)
            component.replace(components_folder(file.path) / component.name)
        shutil.rmtree(components, ignore_errors=True)
        for suffix in ("", "-wal", "-shm"):
            other.with_name(other.name + suffix).unlink(missing_ok=True)
