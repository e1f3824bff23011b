"""The portal as its callers see it: one view for each profile."""

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import anyio
from anyio.abc import TaskGroup, TaskStatus

from manifests.manifest import Manifest, narrowed
from manifests.portal_manifest import Capabilities, Profile
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
    """The views by profile; None for callers without one.

    A view stays open until the portal ends. Without a manifest for its profile it grants nothing.
    """

    def __init__(self, tasks: TaskGroup, observations: Observations) -> None:
        self.closed = anyio.Event()
        self.by_profile: dict[str | None, View] = {}
        self.authorities: dict[str | None, Authority] = {}
        self.waiting: list[str] = []
        """Files whose change waits for the operator; all searches tell it."""
        self._tasks = tasks
        self._observations = observations
        self._rates = CallRates()  # shared by all views, and so are the budgets
        self._parts: dict[str | None, ViewParts] = {}
        self._served: _Served | None = None

    async def open(self, manifests: Mapping[str | None, Manifest]) -> None:
        """Open the parts of the views that are not open yet."""
        for profile in manifests.keys() - self._parts.keys():
            parts = self._parts[profile] = await self._tasks.start(self._hold, manifests[profile])
            self.authorities[profile] = parts.authority

    def note_change(self, upstream: Upstream) -> None:
        """An upstream's state or tools changed."""
        for parts in self._parts.values():
            parts.catalog.note_change()

    def serve(
        self, tasks: TaskGroup, fleet: Fleet, grants: OpenGrants, execution: Callable[..., Execution]
    ) -> None:
        """Set what all views share. `execution` takes what differs between them; catalogs are kept in `tasks`."""
        self._served = _Served(tasks, fleet, grants, execution)

    def adopt(self, manifests: Mapping[str | None, Manifest]) -> None:
        """Decide, search and run by these manifests from now on. Scripts that are running keep their files, network and
        environment; their next calls are decided by the new rules.
        """
        assert self._served is not None
        for profile, parts in self._parts.items():
            own = manifests.get(profile) or _without_grants(manifests[None], profile)
            parts.authority.adopt(own)
            if profile not in self.by_profile:
                self._served.tasks.start_soon(parts.catalog.keep, self._served.fleet)
            self.by_profile[profile] = self._view(self._served, own, parts, self.by_profile.get(profile))
            parts.catalog.note_change()

    def _view(self, served: "_Served", own: Manifest, parts: ViewParts, former: View | None) -> View:
        search = DocsSearch(own, parts.catalog, served.fleet, self.waiting)
        grants = served.grants.narrowed(own.portal.capabilities, own.where)
        port = partial(ScriptSearch, search)
        if former is None:
            runs = served.execution(**vars(parts), grants=grants, port=port)
        else:
            runs = replace(former.execution, grants=grants, port=port)  # with the history of its sessions
        return View(own, parts.authority, parts.catalog, search, runs)

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


@dataclass(frozen=True)
class _Served:
    tasks: TaskGroup
    fleet: Fleet
    grants: OpenGrants
    execution: Callable[..., Execution]


def manifests_of(
    manifest: Manifest, profile: str | None, bound: Collection[str]
) -> dict[str | None, Manifest]:
    """The manifests of all views: of the callers with a profile of `bound`, and of all others with `profile`."""
    others = narrowed(manifest, profile) if profile else manifest
    return {None: others, **{name: narrowed(manifest, name) for name in bound}}


def _without_grants(manifest: Manifest, profile: str | None) -> Manifest:
    """The manifest of a profile that nobody has any more, for requests and scripts that began before."""
    limits = manifest.portal.capabilities.limits
    nothing = {"upstreams": {}, "fallback": {}, "capabilities": Capabilities(limits=limits)}
    profiles = {} if profile is None else {profile: Profile()}
    portal = manifest.portal.model_copy(update={**nothing, "profiles": profiles})
    return replace(manifest, portal=portal, profile=profile)
