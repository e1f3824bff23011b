"""The portal as its callers see it: one view for each profile."""

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
from anyio.abc import TaskGroup, TaskStatus

from manifests.manifest import Manifest
from portal.authority import Authority, CallRates
from portal.check.checker import Checker, open_checker
from portal.execution import Execution
from portal.library.catalog import Catalog
from portal.library.observed import Observations
from portal.search.docs_search import DocsSearch, ScriptSearch
from sandbox_runtime.grants.run_grants import OpenGrants
from upstreams.fleet import Fleet
from upstreams.upstream import Upstream

_PREFIX = "mcp-code-portal-"


def stub_folder() -> Path:
    """Create a folder of mode 0700. Also removes the folders of portals that were killed."""
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*-*"):
        process = left.name.removeprefix(_PREFIX).partition("-")[0]
        # The process is another user's, or the name is not a portal's.
        with suppress(PermissionError, ValueError, OverflowError):
            try:
                os.kill(int(process), 0)
            except ProcessLookupError:
                shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))


@dataclass(frozen=True)
class View:
    """The portal as the callers of one profile, or of none, see it."""

    manifest: Manifest
    authority: Authority
    catalog: Catalog
    docs_search: DocsSearch
    execution: Execution


@dataclass(frozen=True)
class ViewParts:
    """The parts of a view that exist before the fleet."""

    authority: Authority
    catalog: Catalog
    checker: Checker | None


@asynccontextmanager
async def open_views(observations: Observations) -> AsyncIterator["Views"]:
    """Keeps the stub files and checkers of all views until it is left."""
    async with anyio.create_task_group() as tasks:
        views = Views(tasks, observations)
        try:
            yield views
        finally:
            views.closed.set()


class Views:
    """The views by profile; None for callers without one."""

    def __init__(self, tasks: TaskGroup, observations: Observations) -> None:
        self.closed = anyio.Event()
        self.by_profile: dict[str | None, View] = {}
        self._tasks = tasks
        self._observations = observations
        self._rates = CallRates()  # shared by all views, and so are the budgets
        self._parts: dict[str | None, ViewParts] = {}

    @property
    def authorities(self) -> Mapping[str | None, Authority]:
        return {profile: parts.authority for profile, parts in self._parts.items()}

    async def open(self, manifests: Mapping[str | None, Manifest]) -> None:
        """Open the parts of each view."""
        for profile, manifest in manifests.items():
            self._parts[profile] = await self._tasks.start(self._hold, manifest)

    def note_change(self, upstream: Upstream) -> None:
        """An upstream's state or tools changed."""
        for parts in self._parts.values():
            parts.catalog.note_change(upstream)

    def keep(self, tasks: TaskGroup, fleet: Fleet) -> None:
        """Keep the catalogs up to date in `tasks`."""
        for parts in self._parts.values():
            tasks.start_soon(parts.catalog.keep, fleet)

    def show(
        self,
        manifests: Mapping[str | None, Manifest],
        fleet: Fleet,
        grants: OpenGrants,
        execution: Callable[..., Execution],
    ) -> None:
        """Build the views. `execution` takes what differs between them."""
        for profile, own in manifests.items():
            parts = self._parts[profile]
            search = DocsSearch(own, parts.catalog, fleet)
            runs = execution(
                authority=parts.authority,
                catalog=parts.catalog,
                checker=parts.checker,
                grants=grants.narrowed(own.portal.capabilities, own.where),
                port=partial(ScriptSearch, search),
            )
            self.by_profile[profile] = View(own, parts.authority, parts.catalog, search, runs)

    async def _hold(self, manifest: Manifest, *, task_status: TaskStatus[ViewParts]) -> None:
        settings, stubs = manifest.portal.server, stub_folder()
        async with AsyncExitStack() as stack:
            stack.callback(shutil.rmtree, stubs, ignore_errors=True)
            checker = None
            if settings.check != "off":
                checker = await stack.enter_async_context(open_checker(stubs, repairs=settings.repairs))
            authority = Authority(manifest, self._rates)
            catalog = Catalog(authority, stubs, checker, self._observations)
            task_status.started(ViewParts(authority, catalog, checker))
            await self.closed.wait()
