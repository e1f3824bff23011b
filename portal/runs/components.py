"""Guest components of runs that began before an upgrade: kept while an open run needs them, and opened on demand."""

import hashlib
import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from subprocess import TimeoutExpired

import anyio
import anyio.to_thread
import structlog

from manifests.kernels import KernelName
from manifests.own_files import write_whole
from portal.records.store.records import DamagedRowError, StoreError
from portal.records.store.run_tables import RunTables
from portal.records.store.writer import RunStore
from sandbox_runtime.errors import (
    CacheError,
    ComponentError,
    RecordError,
    ReplayInterruptedError,
    WorkerStartError,
)
from sandbox_runtime.kernels import KERNELS
from sandbox_runtime.sandbox import Sandbox, open_sandbox

log = structlog.get_logger()


@dataclass(eq=False)
class Components:
    """The components that the runs of one store began in. In a folder, and in a store that machines share, too."""

    folder: Path
    stack: AsyncExitStack
    progress: Callable[[str], None]
    store: RunStore | None = None
    _present: set[str] = field(default_factory=set)
    """Those that runs begin in."""
    _opened: dict[str, Sandbox] = field(default_factory=dict)
    _opening: anyio.Lock = field(default_factory=anyio.Lock)

    async def keep(self, component: Path, sha256: str) -> None:
        """Keep the component that runs begin in from now on. It is a hard link where possible, which costs no disk."""
        self._present.add(sha256)
        try:
            await anyio.to_thread.run_sync(self._keep, component, self._path(sha256))
            if self.store is None or await self.store.write(partial(RunTables.use_component, sha256=sha256)):
                return
            # Not within the transaction: it takes seconds, and Postgres ends a transaction that is idle for five.
            seal = self.store.seal
            content = await anyio.to_thread.run_sync(lambda: seal.close(component.read_bytes()))
            await self.store.write(partial(RunTables.put_component, sha256=sha256, content=content))
        except (OSError, StoreError) as error:
            log.warning("component_not_kept", reason=getattr(error, "strerror", None) or str(error))

    async def sandbox(self, sha256: str, kernel: KernelName) -> Sandbox:
        """The sandbox of a kept component. The first time it compiles, for seconds.

        Raises RecordError: it is gone or damaged. Raises ReplayInterruptedError: the store or this machine is to
        blame, so it can be tried again.
        """
        async with self._opening:
            if sha256 not in self._opened:
                path, named = self._path(sha256), f"guest component {sha256[:12]}..."
                opening = open_sandbox(
                    workers=1, component=path, kernel=KERNELS[kernel], progress=self.progress
                )
                try:
                    if not path.exists() and not await self._fetch(sha256):
                        raise RecordError(f"it began in the {named}, which is not kept here")
                    self._opened[sha256] = await self.stack.enter_async_context(opening)
                except (ComponentError, DamagedRowError) as error:
                    raise RecordError(f"its {named} cannot be run: {error}") from error
                except (CacheError, WorkerStartError, StoreError, OSError, TimeoutExpired) as error:
                    log.error("component_not_opened", reason=getattr(error, "strerror", None) or str(error))
                    raise ReplayInterruptedError(f"its {named} cannot be opened now") from error
            return self._opened[sha256]

    async def _fetch(self, sha256: str) -> bool:
        """Get a component that another portal keeps in the store. Returns whether it is there."""
        if self.store is None:
            return False
        content = await self.store.read(partial(RunTables.get, kind="component", owner="", name=sha256))
        if content is None or hashlib.sha256(content).hexdigest() != sha256:
            return False

        def write() -> None:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_whole(self._path(sha256), content, is_lasting=False)

        await anyio.to_thread.run_sync(write)
        return True

    async def delete_others(self, needed: set[str], has_replicas: bool = False) -> None:
        """Delete the components that no open run needs, unless other portals keep them here. Raises StoreError."""
        if self.store is not None:
            for sha256 in self._present:
                await self.store.write(partial(RunTables.use_component, sha256=sha256))
        elif has_replicas:
            return
        for path in self.folder.glob("*.wasm"):
            if path.stem not in needed | self._present:
                path.unlink(missing_ok=True)

    def _path(self, sha256: str) -> Path:
        return self.folder / f"{sha256}.wasm"

    def _keep(self, component: Path, to: Path) -> None:
        if not to.exists():
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            try:
                os.link(component, to)
            except OSError:  # another file system, or one without links; or it exists by now
                write_whole(to, component.read_bytes(), is_lasting=False)
