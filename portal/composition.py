"""The composition root: builds all long-lived objects of the portal, and ends them in order."""

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

import anyio
import anyio.to_thread
import structlog

from manifests.manifest import Manifest, narrowed
from manifests.own_files import state_folder
from portal.accounts.accounts import Accounts
from portal.accounts.logins import person_logins
from portal.audit.audit import open_audit
from portal.authority import Authority, CallRates
from portal.check.checker import Checker, open_checker
from portal.execution import AwaitUpstreams, Execution
from portal.library.catalog import Catalog
from portal.library.observed import Observations, Shapes, ShapeStore, open_observations
from portal.middleware import load_middleware
from portal.passthrough.client_resources import ClientResources, ListChanges
from portal.passthrough.questions import SamplingDepths
from portal.passthrough.rounds import Rounds
from portal.replicas import home_of
from portal.runs.components import Components
from portal.runs.places import Place, held_place, open_store
from portal.runs.records import StoreError
from portal.runs.service import Runs
from portal.runs.shapes import SharedShapes
from portal.runs.store import RunFile
from portal.runs.webhooks import Webhooks, note_states
from portal.runs.writer import RunStore
from portal.search.docs_search import DocsSearch, ScriptSearch
from portal.sessions import Sessions
from portal.telemetry.export import open_telemetry
from portal.telemetry.gauges import observe_portal, observe_runs
from portal.telemetry.requests import UpstreamRequests
from portal.telemetry.telemetry import NO_TELEMETRY, Telemetry
from sandbox_runtime.aot import guest_component
from sandbox_runtime.build_guest import Baked, check_baked
from sandbox_runtime.grants.run_grants import open_grants
from sandbox_runtime.sandbox import QueueLimits, Sandbox, open_sandbox
from upstreams.fleet import Fleet, open_fleet
from upstreams.secret_sources import header_renewals
from upstreams.upstream import Upstream

log = structlog.get_logger()

RunsMode: TypeAlias = Literal["all", "own", "none"]

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
class Portal(View):
    """A running portal, for any transport or command.

    It is itself the view of callers without a profile (other than `open_portal`'s `profile`).
    """

    views: Mapping[str | None, View]
    """The views by profile; None for callers without one."""
    fleet: Fleet
    sandbox: Callable[[], Awaitable[Sandbox]]
    """Opens the sandbox on first use, and waits for it."""
    baked: Baked | None
    """The packages of the operator's own component, if there is one."""
    rounds: Rounds
    runs: Runs
    accounts: Accounts
    resources: ClientResources
    list_changes: ListChanges
    telemetry: Telemetry = NO_TELEMETRY
    sampling_depths: SamplingDepths = field(default_factory=SamplingDepths)


class LazySandbox:
    """A sandbox that opens in the background, because its first start compiles for seconds."""

    def __init__(self, open_one: Callable[[], AbstractAsyncContextManager[Sandbox]]) -> None:
        self._open_one = open_one
        self._wanted = anyio.Event()
        self._opened = anyio.Event()
        self.current: Sandbox | None = None
        """The sandbox, once it is open."""

    async def hold(self) -> None:
        """Open the sandbox when it is requested, and keep it open until cancelled.

        Raises SandboxError: it cannot run on this machine.
        """
        await self._wanted.wait()
        async with self._open_one() as sandbox:
            self.current = sandbox
            self._opened.set()
            await anyio.sleep_forever()

    def want(self) -> None:
        self._wanted.set()

    async def sandbox(self) -> Sandbox:
        """Request the sandbox and wait until it is open."""
        self.want()
        return await self.opened()

    async def opened(self) -> Sandbox:
        """Wait until it is open."""
        await self._opened.wait()
        assert self.current is not None
        return self.current


@asynccontextmanager
async def open_portal(
    manifest: Manifest,
    progress: Callable[[str], None],
    *,
    runs_scripts: bool = True,
    profile: str | None = None,
    bound: Collection[str] = (),
    await_upstreams: AwaitUpstreams | None = None,
    runs: RunsMode = "all",
) -> AsyncIterator[Portal]:
    """Start upstreams, sandbox and checker concurrently, without waiting for them.

    `progress` is called with a line when something takes seconds. Without `runs_scripts` the sandbox opens only when a
    script runs, and there is no store of runs. With `runs` "own" the portal goes on only with runs that it began
    itself; with "none" it has no store. `profile` applies to all callers except those bound to a profile in `bound`.
    `await_upstreams` waits for the upstreams of a script; by default at most `server.start_seconds`.

    Raises:
        AuditError: The audit log cannot be written to.
        PortalError: Middleware cannot be loaded, or the packages for telemetry are missing.
        BakedComponentError: The manifest's component cannot be used.
        StoreError: The store of runs that the manifest names cannot be used.
        ExceptionGroup: With a SandboxError, at any time: the sandbox cannot run on this machine.
    """
    settings = manifest.portal.server
    component = manifest.folder / settings.component if settings.component else None
    baked = check_baked(component) if component else None
    middleware = load_middleware(manifest.portal.middleware, manifest.folder)
    manifests: dict[str | None, Manifest] = {None: narrowed(manifest, profile) if profile else manifest}
    manifests |= {name: narrowed(manifest, name) for name in bound}
    async with AsyncExitStack() as stack:
        telemetry = NO_TELEMETRY
        if runs_scripts:
            telemetry = await stack.enter_async_context(open_telemetry(manifest))
        audit = open_audit(manifest)
        stack.callback(audit.close)
        is_kept = runs_scripts and runs != "none"
        place, kept = await _open_store(stack, manifest) if is_kept else (None, None)
        grants = await stack.enter_async_context(
            open_grants(manifest.portal.capabilities, manifest.folder, manifest.where)
        )
        observations = await stack.enter_async_context(_open_observations(manifest, kept))
        rates = CallRates()  # shared by all views, and so are the budgets
        parts: dict[str | None, _ViewParts] = {
            name: await _open_view_parts(stack, each, rates, observations) for name, each in manifests.items()
        }

        def note_change(upstream: Upstream) -> None:
            for part in parts.values():
                part.catalog.note_change(upstream)

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
                manifest.caller_headers,
                partial(person_logins, kept, manifest.portal.upstreams) if kept else None,
                UpstreamRequests(telemetry) if telemetry.is_on else None,
            )
        )
        accounts = Accounts(manifest, fleet, kept, audit)
        queue = QueueLimits(settings.queue, settings.queue_seconds, partial(manifest.where, "server"))
        lazy = LazySandbox(
            partial(
                open_sandbox, workers=settings.workers, component=component, queue=queue, progress=progress
            )
        )
        observe_portal(telemetry, audit, fleet, lambda: lazy.current)
        sessions = Sessions(settings, home_of(kept))
        awaiting = await_upstreams or (lambda fleet, names: fleet.settled(settings.start_seconds, names))

        components = Components(place.components if place else Path("none"), stack, progress, kept)

        def view(part: _ViewParts) -> View:
            own = part.authority.manifest
            search = DocsSearch(own, part.catalog, fleet)
            execution = Execution(
                authority=part.authority,
                catalog=part.catalog,
                fleet=fleet,
                sandbox=lazy.sandbox,
                checker=part.checker,
                sessions=sessions,
                grants=grants.narrowed(own.portal.capabilities, own.where),
                observations=observations,
                port=partial(ScriptSearch, search),
                audit=audit,
                middleware=middleware,
                await_upstreams=awaiting,
                runs=service,
                accounts=accounts,
                telemetry=telemetry,
            )
            return View(own, part.authority, part.catalog, search, execution)

        if runs_scripts:
            lazy.want()
        async with anyio.create_task_group() as tasks:
            for part in parts.values():
                tasks.start_soon(part.catalog.keep, fleet)
            tasks.start_soon(lazy.hold)
            tasks.start_soon(sessions.keep)
            service = Runs(manifest, kept, components, tasks, takes_all=runs == "all")
            views = {name: view(part) for name, part in parts.items()}
            service.executions = [each.execution for each in views.values()]
            if kept is not None:
                tasks.start_soon(service.keep)
                tasks.start_soon(observe_runs, telemetry, kept)
                tasks.start_soon(Webhooks(manifest, service, kept).keep)
                tasks.start_soon(_keep_component, lazy, components, component or guest_component())
            changes = ListChanges()
            if settings.offers:
                tasks.start_soon(changes.keep)
                for upstream in fleet:
                    upstream.on_offering_change = changes.note
            authorities = {name: each.authority for name, each in views.items()}
            resources = ClientResources(authorities, fleet, audit, changes, accounts)
            rounds = Rounds(tasks, home=home_of(kept))
            yield Portal(
                **vars(views[None]),
                views=views,
                fleet=fleet,
                sandbox=lazy.sandbox,
                baked=baked,
                rounds=rounds,
                runs=service,
                accounts=accounts,
                resources=resources,
                list_changes=changes,
                telemetry=telemetry,
            )
            tasks.cancel_scope.cancel()


async def _keep_component(lazy: LazySandbox, components: Components, component: Path) -> None:
    await components.keep(component, (await lazy.opened()).component)


async def _open_store(
    stack: AsyncExitStack, manifest: Manifest
) -> tuple[Place, RunStore] | tuple[None, None]:
    """The store of runs, and where it is; None if the default one cannot be used.

    Raises StoreError: the manifest names one, which cannot be used.
    """
    try:
        place = stack.enter_context(held_place(manifest))
        store = await anyio.to_thread.run_sync(open_store, place, manifest)
    except StoreError as error:
        # A default store that cannot be created, as in a container without a writable home, is no reason not to serve.
        if manifest.portal.runs.store or not isinstance(error.__cause__, OSError):
            raise
        log.warning("runs_not_durable", reason=str(error))
        return None, None
    stack.push_async_callback(store.close)
    await store.write(partial(note_states, webhooks=manifest.portal.runs.webhooks))
    if store.is_shared:
        await store.write(partial(RunFile.beat, url=""))
    return place, store


@dataclass(frozen=True)
class _ViewParts:
    """The parts of a view that exist before the fleet."""

    authority: Authority
    catalog: Catalog
    checker: Checker | None


async def _open_view_parts(
    stack: AsyncExitStack, manifest: Manifest, rates: CallRates, observations: Observations
) -> _ViewParts:
    settings, stubs = manifest.portal.server, stub_folder()
    stack.callback(shutil.rmtree, stubs, ignore_errors=True)
    checker = None
    if settings.check != "off":
        checker = await stack.enter_async_context(open_checker(stubs, repairs=settings.repairs))
    authority = Authority(manifest, rates)
    return _ViewParts(authority, Catalog(authority, stubs, checker, observations), checker)


@asynccontextmanager
async def _open_observations(manifest: Manifest, kept: RunStore | None) -> AsyncIterator[Observations]:
    settings = manifest.portal.server
    if not settings.observe_results:
        yield Observations(None)
        return
    own = settings.observed_folder
    folder = manifest.folder / own if own else state_folder(os.environ) / "observed"
    shapes: Shapes = ShapeStore(folder, str(manifest.folder.resolve()))
    if kept is not None and kept.is_shared and own is None:
        shapes = SharedShapes(kept)
    async with open_observations(shapes) as observations:
        yield observations
