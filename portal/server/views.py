"""The portal as its callers see it: one view for each profile."""

import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

from anyio.abc import TaskGroup, TaskStatus

from manifests.manifest import Manifest, narrowed
from manifests.portal_manifest import Capabilities, Profile
from portal.catalog.authority import Authority, CallRates
from portal.catalog.catalog import Catalog
from portal.catalog.check.checker import Checker, open_checker
from portal.catalog.docs_search import DocsSearch
from portal.library.observed import Observations
from portal.runs.execution import Execution
from upstreams.fleet import Fleet

_PREFIX = "mcp-code-portal-"


def stub_folder() -> Path:
    """Create a folder of mode 0700. Also removes the folders of portals that were killed."""
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*-*"):
        process = left.name.removeprefix(_PREFIX).partition("-")[0]
        # Another user's process, or not the name of a portal's folder.
        with suppress(PermissionError, ValueError, OverflowError):
            try:
                os.kill(int(process), 0)
            except ProcessLookupError:
                shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))


@dataclass(frozen=True)
class View:
    """The portal as seen by the callers of one profile, or by those without one."""

    authority: Authority
    catalog: Catalog
    docs_search: DocsSearch
    execution: Execution

    @property
    def manifest(self) -> Manifest:
        """The manifest that is in effect."""
        return self.authority.manifest


NewExecution: TypeAlias = Callable[[Authority, Catalog, Checker | None, DocsSearch], Execution]


@dataclass(frozen=True, eq=False)
class Views:
    """The views by profile; None for callers without one.

    A view stays open until `tasks` end. If its profile is removed from the manifest, it grants nothing.
    """

    tasks: TaskGroup
    fleet: Fleet
    observations: Observations
    new_execution: NewExecution
    by_profile: dict[str | None, View] = field(default_factory=dict)
    waiting: list[str] = field(default_factory=list)
    """Files with changes that wait for the operator; all searches report them."""
    rates: CallRates = field(default_factory=CallRates)
    """Shared by all views, so that budgets are too."""

    async def open(self, manifests: Mapping[str | None, Manifest]) -> None:
        """Open the views that are not open yet."""
        for profile in manifests.keys() - self.by_profile.keys():
            self.by_profile[profile] = await self.tasks.start(self._hold, manifests[profile])

    def replace(self, manifests: Mapping[str | None, Manifest]) -> None:
        """Switch all views to reloaded manifests."""
        for profile, view in self.by_profile.items():
            view.authority.replace(manifests.get(profile) or _without_grants(manifests[None], profile))
        self.note_change()

    def note_change(self) -> None:
        """Note that the manifest, or an upstream's state or tools, changed."""
        for view in self.by_profile.values():
            view.catalog.note_change()

    async def _hold(self, manifest: Manifest, *, task_status: TaskStatus[View]) -> None:
        settings, stubs = manifest.portal.server, stub_folder()
        async with AsyncExitStack() as stack:
            stack.callback(shutil.rmtree, stubs, ignore_errors=True)
            checker = None
            if settings.check != "off":
                checker = await stack.enter_async_context(open_checker(stubs, repairs=settings.repairs))
            authority = Authority(manifest, self.rates)
            catalog = Catalog(authority, stubs, checker, self.observations)
            search = DocsSearch(authority, catalog, self.fleet, self.waiting)
            execution = self.new_execution(authority, catalog, checker, search)
            task_status.started(View(authority, catalog, search, execution))
            await catalog.keep(self.fleet)


def manifests_of(
    manifest: Manifest, profile: str | None, bound: Collection[str]
) -> dict[str | None, Manifest]:
    """The manifests of all views: one for each profile in `bound`, and one with `profile` for all other callers."""
    others = narrowed(manifest, profile) if profile else manifest
    return {None: others, **{name: narrowed(manifest, name) for name in bound}}


def _without_grants(manifest: Manifest, profile: str | None) -> Manifest:
    """The manifest of a profile that callers no longer have, for requests and scripts that began before."""
    limits = manifest.portal.capabilities.limits
    nothing = {"upstreams": {}, "fallback": {}, "capabilities": Capabilities(limits=limits)}
    profiles = {} if profile is None else {profile: Profile()}
    portal = manifest.portal.model_copy(update={**nothing, "profiles": profiles})
    return replace(manifest, portal=portal, profile=profile)
