"""The portal as its callers see it: one view for each profile."""

import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

from anyio.abc import TaskGroup, TaskStatus

from manifests.manifest import Manifest, narrowed
from manifests.portal_manifest import Capabilities, Profile
from portal.calls.broker import Broker
from portal.calls.script_search import ScriptSearch
from portal.catalog.authority import Authority, CallRates, Policy
from portal.catalog.catalog import Catalog
from portal.catalog.check.checker import Checker, open_checker
from portal.catalog.docs_search import DocsSearch
from portal.library.observed import Observations
from portal.runs.execution import Execution
from sandbox_runtime.call_port import CallPort
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


NewExecution: TypeAlias = Callable[
    [Authority, Catalog, Checker | None, Callable[[Broker], CallPort]], Execution
]


class Views:
    """The views by profile; None for callers without one. All ask for the policy that is in effect at the moment.

    A view stays open until `tasks` end. If its profile is removed from the manifest, it grants nothing.
    """

    def __init__(
        self, tasks: TaskGroup, fleet: Fleet, observations: Observations, new_execution: NewExecution
    ) -> None:
        self.waiting: list[str] = []
        """Files with changes that wait for the operator; all searches report them."""
        self._tasks, self._fleet, self._observations = tasks, fleet, observations
        self._new_execution = new_execution
        self._rates = CallRates()  # shared by all views, so that budgets are too
        self._views: dict[str | None, View] = {}
        self._policies: Mapping[str | None, Policy] = {}

    def __getitem__(self, profile: str | None) -> View:
        return self._views[profile]

    async def open(self, manifests: Mapping[str | None, Manifest]) -> None:
        """Open the views that are not open yet. No caller has them before `switch`."""
        for profile in manifests.keys() - self._views.keys():
            self._policies = {**self._policies, profile: Policy(manifests[profile])}
            self._views[profile] = await self._tasks.start(self._hold, profile)

    def switch(self, manifests: Mapping[str | None, Manifest]) -> None:
        """Let the policies of these manifests take effect, in all views at once."""
        self._policies = {
            each: Policy(manifests.get(each) or _without_grants(manifests[None], each))
            for each in self._views
        }
        self.note_change()

    def note_change(self) -> None:
        """Note that the manifest, or an upstream's state or tools, changed."""
        for view in self._views.values():
            view.catalog.note_change()

    async def _hold(self, profile: str | None, *, task_status: TaskStatus[View]) -> None:
        authority = Authority(lambda: self._policies[profile], self._rates)
        manifest = authority.manifest
        settings, stubs = manifest.portal.server, stub_folder()
        async with AsyncExitStack() as stack:
            stack.callback(shutil.rmtree, stubs, ignore_errors=True)
            checker = None
            if settings.check != "off":
                checker = await stack.enter_async_context(open_checker(stubs, repairs=settings.repairs))
            catalog = Catalog(authority, stubs, checker, self._observations)
            search = DocsSearch(authority, catalog, self._fleet, self.waiting)
            execution = self._new_execution(authority, catalog, checker, partial(ScriptSearch, search))
            task_status.started(View(authority, catalog, search, execution))
            await catalog.keep(self._fleet)


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
