"""The composition root: builds everything that lives as long as the portal does, and ends it in order."""

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

import anyio

from manifests.manifest import Manifest
from portal.catalog import Catalog
from portal.check.checker import open_checker
from portal.docs_search import DocsSearch
from portal.execution import Execution
from portal.sessions import Sessions
from portal.stub_folder import stub_folder
from sandbox_runtime.sandbox import Sandbox, open_sandbox
from sandbox_runtime.turns import QueueLimits
from upstreams.fleet import Fleet, open_fleet


@dataclass(frozen=True)
class Portal:
    """A running portal, behind whichever transport or command uses it."""

    manifest: Manifest
    fleet: Fleet
    catalog: Catalog
    docs_search: DocsSearch
    execution: Execution
    sandbox: Callable[[], Awaitable[Sandbox]]
    """Waits until the sandbox is open, which is only tried once somebody wants it."""


class SandboxOpening:
    """A sandbox that is being opened while the portal already answers: its first start compiles for seconds."""

    def __init__(self, workers: int | None, queue: QueueLimits, progress: Callable[[str], None]) -> None:
        self._workers = workers
        self._queue = queue
        self._progress = progress
        self._wanted = anyio.Event()
        self._opened = anyio.Event()
        self._sandbox: Sandbox | None = None

    async def hold(self) -> None:
        """Open the sandbox as soon as it is wanted, and keep it until cancelled.

        Raises:
            SandboxError: It cannot run on this machine.
        """
        await self._wanted.wait()
        async with open_sandbox(workers=self._workers, queue=self._queue, progress=self._progress) as sandbox:
            self._sandbox = sandbox
            self._opened.set()
            await anyio.sleep_forever()

    def want(self) -> None:
        self._wanted.set()

    async def sandbox(self) -> Sandbox:
        """The sandbox, as soon as it is open."""
        self.want()
        await self._opened.wait()
        assert self._sandbox is not None
        return self._sandbox


@asynccontextmanager
async def open_portal(
    manifest: Manifest, progress: Callable[[str], None], *, runs_scripts: bool = True
) -> AsyncIterator[Portal]:
    """Start upstreams, sandbox and checker side by side; nothing here waits for any of them.

    `progress` hears a line whenever something takes seconds. Without `runs_scripts` the sandbox stays closed until
    somebody runs one after all.

    Raises:
        ExceptionGroup: Of a SandboxError, at any time: the sandbox cannot run on this machine.
    """
    settings = manifest.portal.server
    async with AsyncExitStack() as stack:
        stubs = stub_folder()
        stack.callback(shutil.rmtree, stubs, ignore_errors=True)
        checker = None if settings.check == "off" else await stack.enter_async_context(open_checker(stubs))
        catalog = Catalog(manifest, stubs, checker)
        fleet = await stack.enter_async_context(
            open_fleet(manifest.portal.upstreams, manifest.folder, catalog.note_change)
        )
        queue = QueueLimits(settings.queue, settings.queue_seconds, partial(manifest.where, "server"))
        opening = SandboxOpening(settings.workers, queue, progress)
        sessions = Sessions(settings)
        execution = Execution(manifest, catalog, fleet, opening.sandbox, checker, sessions)
        if runs_scripts:
            opening.want()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(catalog.keep, fleet)
            tasks.start_soon(opening.hold)
            tasks.start_soon(sessions.keep)
            search = DocsSearch(manifest, catalog, fleet)
            yield Portal(manifest, fleet, catalog, search, execution, opening.sandbox)
            tasks.cancel_scope.cancel()
