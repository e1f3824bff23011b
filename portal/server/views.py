"""The portal as its callers see it: one view for each profile."""

import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from anyio.abc import TaskGroup, TaskStatus

from manifests.manifest import Manifest, narrowed
from manifests.portal_manifest import Capabilities, Profile
from portal.catalog.authority import Authority, CallRates, Policy
from portal.catalog.catalog import Catalog
from portal.catalog.check.checker import Checker, open_checker
from portal.catalog.docs_search import DocsSearch
from portal.library.observed import Observations
from portal.runs.dispatcher import GoOn
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


@dataclass(frozen=True)
class InEffect:
    """What one manifest decides, for each profile. A reload makes another one."""

    manifest: Manifest
    """The manifest before a profile narrows it."""
    bound: Collection[str | None] = ()
    """The profiles that callers have."""
    policies: Mapping[str | None, Policy] = field(default_factory=dict)


@dataclass(eq=False)
class Views:
    """The views by profile; None for callers without one, who get `profile`. All ask for what is in effect.

    A view stays open until `tasks` end. If its profile is removed from the manifest, it grants nothing.
    """

    _now: InEffect
    profile: str | None
    tasks: TaskGroup
    fleet: Fleet
    observations: Observations
    new_execution: Callable[[Authority, Catalog, Checker | None, DocsSearch], Execution]
    waiting: list[str] = field(default_factory=list)
    """Files with changes that wait for the operator; all searches report them."""
    rates: CallRates = field(default_factory=CallRates)
    """Shared by all views, so that budgets are too."""
    _views: dict[str | None, View] = field(default_factory=dict)

    @property
    def manifest(self) -> Manifest:
        """The manifest that is in effect, before a profile narrows it."""
        return self._now.manifest

    def __getitem__(self, profile: str | None) -> View:
        return self._views[profile]

    def go_on(self) -> Mapping[str | None, GoOn]:
        """What goes on with runs, by the profiles that callers have now."""
        executions = (self._views[each].execution for each in self._now.bound)
        return {each.profile: each.segment for each in executions}

    async def prepared(self, manifest: Manifest, bound: Collection[str]) -> InEffect:
        """What will be in effect after `switch`. Opens the views of new profiles, which no caller has yet."""
        own: dict[str | None, Manifest] = {name: narrowed(manifest, name) for name in bound}
        own[None] = others = narrowed(manifest, self.profile) if self.profile else manifest
        gone = {each: _without_grants(others, each) for each in self._views.keys() - own.keys()}
        policies = {each: Policy(found) for each, found in {**own, **gone}.items()}
        for profile in own.keys() - self._views.keys():
            # Its view needs a policy before the switch.
            self._now = replace(self._now, policies={**self._now.policies, profile: policies[profile]})
            self._views[profile] = await self.tasks.start(self._hold, profile)
        return InEffect(manifest, own.keys(), policies)

    def switch(self, prepared: InEffect) -> None:
        """Let it take effect for all callers, and for all running scripts."""
        self._now = prepared
        self.note_change()

    def note_change(self) -> None:
        """Note that the manifest, or an upstream's state or tools, changed."""
        for view in self._views.values():
            view.catalog.note_change()

    async def _hold(self, profile: str | None, *, task_status: TaskStatus[View]) -> None:
        authority = Authority(lambda: self._now.policies[profile], self.rates)
        checker: Checker | None = None
        settings = authority.manifest.portal.server
        async with AsyncExitStack() as stack:
            if settings.check != "off":
                stubs = stub_folder()
                stack.callback(shutil.rmtree, stubs, ignore_errors=True)
                opening = open_checker(stubs, repairs=settings.repairs, kernels=settings.switched_on)
                checker = await stack.enter_async_context(opening)
            catalog = Catalog(authority, checker, self.observations)
            search = DocsSearch(authority, catalog, self.fleet, self.waiting)
            execution = self.new_execution(authority, catalog, checker, search)
            task_status.started(View(authority, catalog, search, execution))
            await catalog.keep(self.fleet)


def _without_grants(manifest: Manifest, profile: str | None) -> Manifest:
    """The manifest of a profile that callers no longer have, for requests and scripts that began before."""
    limits = manifest.portal.capabilities.limits
    nothing = {"upstreams": {}, "fallback": {}, "capabilities": Capabilities(limits=limits)}
    profiles = {} if profile is None else {profile: Profile()}
    portal = manifest.portal.model_copy(update={**nothing, "profiles": profiles})
    return replace(manifest, portal=portal, profile=profile)
