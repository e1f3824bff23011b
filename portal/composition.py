"""The composition root: builds everything that lives as long as the portal does, and ends it in order."""

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import anyio

from manifests.manifest import Manifest, narrowed
from manifests.own_files import state_folder
from portal.audit.audit import open_audit
from portal.authority import Authority, CallRates
from portal.check.checker import Checker, open_checker
from portal.execution import AwaitUpstreams, Execution
from portal.library.catalog import Catalog
from portal.library.observed import Observations, ShapeStore, open_observations
from portal.passthrough.client_resources import ClientResources, ListChanges
from portal.passthrough.notifications import LogLevels
from portal.passthrough.questions import SamplingDepths
from portal.passthrough.rounds import Rounds
from portal.search.docs_search import DocsSearch, ScriptSearch
from portal.sessions import Sessions
from sandbox_runtime.build_guest import Baked, check_baked
from sandbox_runtime.grants.run_grants import open_grants
from sandbox_runtime.sandbox import QueueLimits, Sandbox, open_sandbox
from upstreams.fleet import Fleet, open_fleet
from upstreams.secret_sources import header_renewals
from upstreams.upstream import Upstream

_PREFIX = "mcp-code-portal-"


def stub_folder() -> Path:
    """A new folder, owner-only. What portals left that were killed is removed on the way."""
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*-*"):
        process = left.name.removeprefix(_PREFIX).partition("-")[0]
        # It lives, and is somebody else's; or its name is no portal's.
        with suppress(PermissionError, ValueError, OverflowError):
            try:
                os.kill(int(process), 0)
            except ProcessLookupError:
                shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))


@dataclass(frozen=True)
class View:
    """What callers may do, find and run who are bound to one profile, or to none."""

    manifest: Manifest
    authority: Authority
    catalog: Catalog
    docs_search: DocsSearch
    execution: Execution


@dataclass(frozen=True)
class Portal(View):
    """A running portal, behind whichever transport or command uses it.

    It is itself the view of callers who are bound to no profile, as far as the portal itself is bound to none.
    """

    views: Mapping[str | None, View]
    """By profile; None is of callers who are bound to none."""
    fleet: Fleet
    sandbox: Callable[[], Awaitable[Sandbox]]
    """Waits until the sandbox is open, which is only tried once somebody wants it."""
    baked: Baked | None
    """What the operator's own component holds besides what every sandbox has."""
    rounds: Rounds
    resources: ClientResources
    list_changes: ListChanges
    log_levels: LogLevels = field(default_factory=LogLevels)
    sampling_depths: SamplingDepths = field(default_factory=SamplingDepths)


class SandboxOpening:
    """A sandbox that is being opened while the portal already answers: its first start compiles for seconds."""

    def __init__(self, open_one: Callable[[], AbstractAsyncContextManager[Sandbox]]) -> None:
        self._open_one = open_one
        self._wanted = anyio.Event()
        self._opened = anyio.Event()
        self._sandbox: Sandbox | None = None

    async def hold(self) -> None:
        """Open the sandbox as soon as it is wanted, and keep it until cancelled.

        Raises SandboxError: it cannot run on this machine.
        """
        await self._wanted.wait()
        async with self._open_one() as sandbox:
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
    manifest: Manifest,
    progress: Callable[[str], None],
    *,
    runs_scripts: bool = True,
    profile: str | None = None,
    bound: Collection[str] = (),
    await_upstreams: AwaitUpstreams | None = None,
) -> AsyncIterator[Portal]:
    """Start upstreams, sandbox and checker side by side; nothing here waits for any of them.

    `progress` hears a line whenever something takes seconds. Without `runs_scripts` the sandbox stays closed until
    somebody runs one after all. `profile` binds all callers but those that are themselves bound to one of `bound`.
    `await_upstreams` waits for those that a script names; by default `server.start_seconds` at most.

    Raises:
        AuditError: The audit log cannot be written to.
        BakedComponentError: The component that the manifest names cannot be used.
        ExceptionGroup: Of a SandboxError, at any time: the sandbox cannot run on this machine.
    """
    settings = manifest.portal.server
    component = manifest.folder / settings.component if settings.component else None
    baked = check_baked(component) if component else None
    manifests: dict[str | None, Manifest] = {None: narrowed(manifest, profile) if profile else manifest}
    manifests |= {name: narrowed(manifest, name) for name in bound}
    async with AsyncExitStack() as stack:
        audit = open_audit(manifest)
        stack.callback(audit.close)
        grants = await stack.enter_async_context(
            open_grants(manifest.portal.capabilities, manifest.folder, manifest.where)
        )
        observations = await stack.enter_async_context(_open_observations(manifest))
        rates = CallRates()  # of all views: a budget of all is spent by all
        shelves: dict[str | None, tuple[Authority, Catalog, Checker | None]] = {}
        for name, each in manifests.items():
            stubs = stub_folder()
            stack.callback(shutil.rmtree, stubs, ignore_errors=True)
            checker = None
            if settings.check != "off":
                checker = await stack.enter_async_context(open_checker(stubs, repairs=settings.repairs))
            authority = Authority(each, rates)
            shelves[name] = authority, Catalog(authority, stubs, checker, observations), checker

        def note_change(upstream: Upstream) -> None:
            for _, catalog, _ in shelves.values():
                catalog.note_change(upstream)

        fleet = await stack.enter_async_context(
            open_fleet(
                manifest.portal.upstreams,
                manifest.folder,
                note_change,
                state_folder(os.environ) / "listings",
                manifest.hidden,
                manifest.credentials,
                header_renewals(manifest),
                manifest.written,
            )
        )
        queue = QueueLimits(settings.queue, settings.queue_seconds, partial(manifest.where, "server"))
        opening = SandboxOpening(
            partial(
                open_sandbox, workers=settings.workers, component=component, queue=queue, progress=progress
            )
        )
        sessions = Sessions(settings)
        awaiting = await_upstreams or (lambda fleet, names: fleet.settled(settings.start_seconds, names))

        def view(authority: Authority, catalog: Catalog, checker: Checker | None) -> View:
            own = authority.manifest
            left = grants.narrowed(own.portal.capabilities, own.where)
            search = DocsSearch(own, catalog, fleet)
            port = partial(ScriptSearch, search)
            parts = authority, catalog, fleet, opening.sandbox, checker, sessions, left
            execution = Execution(*parts, observations, port, audit, awaiting)
            return View(own, authority, catalog, search, execution)

        if runs_scripts:
            opening.want()
        async with anyio.create_task_group() as tasks:
            for _, catalog, _ in shelves.values():
                tasks.start_soon(catalog.keep, fleet)
            tasks.start_soon(opening.hold)
            tasks.start_soon(sessions.keep)
            views = {name: view(*shelf) for name, shelf in shelves.items()}
            changes = ListChanges()
            if settings.offers:
                tasks.start_soon(changes.keep)
                for upstream in fleet:
                    upstream.on_offering_change = changes.note
            authorities = {name: each.authority for name, each in views.items()}
            resources = ClientResources(authorities, fleet, audit, changes)
            rounds = Rounds(tasks)
            yield Portal(
                **vars(views[None]),
                views=views,
                fleet=fleet,
                sandbox=opening.sandbox,
                baked=baked,
                rounds=rounds,
                resources=resources,
                list_changes=changes,
            )
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def _open_observations(manifest: Manifest) -> AsyncIterator[Observations]:
    settings = manifest.portal.server
    if not settings.observe_results:
        yield Observations(None)
        return
    own = settings.observed_folder
    folder = manifest.folder / own if own else state_folder(os.environ) / "observed"
    async with open_observations(ShapeStore(folder, str(manifest.folder.resolve()))) as observations:
        yield observations
