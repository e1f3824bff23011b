"""The composition root: builds all long-lived objects of the portal, and ends them in order."""

import os
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Literal, TypeAlias

import anyio
import anyio.to_thread
import structlog

from manifests.manifest import Manifest
from manifests.own_files import state_folder
from portal.app.kernels import Kernels
from portal.app.reload import Bound, Reload
from portal.app.replicas import home_of
from portal.app.running import is_portal_port
from portal.base.errors import TelemetryError
from portal.calls.fetch import Fetchers
from portal.calls.run import Gateway
from portal.identity.accounts import Accounts, PersonLogins
from portal.library.observed import open_observations
from portal.middleware import load_middleware
from portal.records.audit.audit import open_audit
from portal.records.store import places
from portal.records.store.records import StoreError
from portal.records.store.writer import RunStore
from portal.records.telemetry.instruments import NO_TELEMETRY, Telemetry
from portal.records.telemetry.observers import observe_portal, observe_runs, record_attempt
from portal.runs.components import Components
from portal.runs.decisions import add_messages
from portal.runs.dispatcher import Dispatcher
from portal.runs.execution import AwaitUpstreams, Execution
from portal.runs.leases import Address, public_url
from portal.runs.service import Runs
from portal.runs.sessions import Sessions
from portal.runs.shapes import shapes_of
from portal.runs.webhooks import Webhooks
from portal.runs.workspaces import open_workspace
from portal.server.client_resources import ClientResources, ListChanges
from portal.server.portal import Portal
from portal.server.rounds import Rounds
from portal.server.views import InEffect, Views
from sandbox_runtime.build_guest import check_baked
from sandbox_runtime.grants.files import open_workspaces as open_granted_files
from sandbox_runtime.sandbox import Sandbox
from upstreams.fleet import Fleet, Opener
from upstreams.redaction import Redaction

log = structlog.get_logger()

RunsHere: TypeAlias = Literal["all", "own", "unkept", "none"]
"""Which runs a portal has: all of its store, only those that it begins itself, or unkept ones, without a store. With
"none" it has no sandbox either."""


@dataclass(frozen=True, kw_only=True)
class OpenPortal(Portal):
    reload: Reload


@asynccontextmanager
async def open_portal(
    manifest: Manifest,
    progress: Callable[[str], None],
    *,
    profile: str | None = None,
    bound: Bound = lambda manifest: (),
    only: Collection[str] | None = None,
    await_upstreams: AwaitUpstreams | None = None,
    runs: RunsHere = "all",
    address: Address | None = None,
    sandbox: Sandbox | None = None,
) -> AsyncIterator[OpenPortal]:
    """Start upstreams, sandbox and checker concurrently, without waiting for them.

    `progress` is called with a line when something takes seconds. `profile` applies to all callers whom the manifest
    binds to none of `bound`. `only` names the upstreams that may start, by default all. `await_upstreams` waits for
    those of a script; by default at most `server.start_seconds`. `address` is where the portal is served over HTTP.
    `sandbox` is an open sandbox that the portal uses instead of its own, and leaves open.

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
    middleware = load_middleware(manifest.portal.middleware, manifest.folder, manifest.modules)
    async with AsyncExitStack() as stack:
        redact = Redaction(manifest.hidden)
        telemetry = NO_TELEMETRY if runs == "none" else await _open_telemetry(stack, manifest, redact)
        place = places.place_of(manifest)
        kept, shared = await _open_store(stack, manifest, place, address, keeps_runs=runs in ("all", "own"))
        audit = await open_audit(manifest, shared, telemetry.refusals)
        stack.callback(audit.close)
        where_files = partial(manifest.where, "capabilities", "files")
        files = await stack.enter_async_context(
            open_granted_files(manifest.portal.capabilities.files, manifest.folder, where_files)
        )
        observations = await stack.enter_async_context(open_observations(shapes_of(manifest, shared)))
        workspace = await open_workspace(stack, manifest, place, kept)
        changes = ListChanges()
        connections = await stack.enter_async_context(anyio.create_task_group())
        stack.callback(connections.cancel_scope.cancel)  # ends them at once, and leaves no child process
        opener = Opener(
            connections,
            manifest.folder,
            lambda upstream: views.note_change(),  # views are created below
            changes.note,
            listings=state_folder(os.environ) / "listings",
            logins=partial(PersonLogins, kept) if kept else None,
            portal_logins=partial(PersonLogins, shared) if shared else None,
            observer=partial(record_attempt, telemetry) if telemetry.is_on else None,
            only=only,
            redact=redact,
        )
        fleet = Fleet(opener)
        accounts = Accounts(manifest, fleet, kept, audit)
        sessions = Sessions(settings, home_of(shared))
        components = Components(places.components_folder(place), stack, progress, shared)
        kernels = Kernels(manifest, stack, progress, component, components if kept else None, sandbox)
        observe_portal(telemetry, fleet, kernels.opened.values)
        async with anyio.create_task_group() as tasks:
            if runs != "none":
                tasks.start_soon(kernels.hold)
            tasks.start_soon(sessions.keep)
            service = Runs(manifest, kept, tasks, address)
            stack.push_async_callback(service.trail.flush)
            tasks.start_soon(service.trail.keep)
            execution = partial(
                Execution,
                gateway=Gateway(accounts, Fetchers(is_portal_port), observations, middleware, telemetry),
                sandbox=kernels.sandbox,
                sessions=sessions,
                audit=audit,
                await_upstreams=await_upstreams
                or (lambda fleet, names: fleet.settled(settings.start_seconds, names)),
                runs=service,
                files=files,
                workspace=workspace,
            )
            views = Views(InEffect(manifest), profile, tasks, fleet, observations, execution)
            reload = Reload(views, fleet, service, audit, changes, bound)
            await reload.replace(manifest)
            if kept is not None:
                dispatcher = Dispatcher(
                    service, kept, tasks, components, views.go_on, runs == "all", settings.workers
                )
                if address is not None:
                    await service.leases.beat()
                tasks.start_soon(dispatcher.keep)
                tasks.start_soon(observe_runs, telemetry, kept)
                tasks.start_soon(Webhooks(manifest, service, kept).keep)
            if settings.offers:
                tasks.start_soon(changes.keep)
            own = views[None]
            yield OpenPortal(
                own.authority,
                own.catalog,
                own.docs_search,
                own.execution,
                views=views,
                fleet=fleet,
                sandbox=kernels.sandbox,
                baked=baked,
                rounds=Rounds(tasks, home=home_of(shared)),
                runs=service,
                accounts=accounts,
                resources=ClientResources(views, audit, changes, accounts),
                telemetry=telemetry,
                reload=reload,
            )
            tasks.cancel_scope.cancel()


async def _open_telemetry(stack: AsyncExitStack, manifest: Manifest, mask: Redaction) -> Telemetry:
    """The telemetry that the manifest wants. Raises TelemetryError: its packages are not installed."""
    settings = manifest.portal.telemetry
    if settings is None:
        return NO_TELEMETRY
    try:
        # Half a second of imports, only if telemetry is configured.
        await anyio.to_thread.run_sync(import_module, "portal.records.telemetry.export")
        from portal.records.telemetry.export import Exported

        exported = await anyio.to_thread.run_sync(Exported, settings, mask)
    except ImportError as error:
        raise TelemetryError(manifest.where("telemetry"), error.name or "opentelemetry") from error
    stack.push_async_callback(exported.close)
    return exported


async def _open_store(
    stack: AsyncExitStack, manifest: Manifest, place: places.Place, address: Address | None, keeps_runs: bool
) -> tuple[RunStore | None, RunStore | None]:
    """The store of this portal's runs, and the store that machines share: one object, if there are both.

    Both are None if the default one cannot be used. Raises StoreError: the manifest's own one cannot.
    """
    settings = manifest.portal.runs
    if not keeps_runs and not settings.is_shared:
        return None, None
    on_note = partial(add_messages, webhooks=settings.webhooks, base=public_url(settings, address))
    try:
        holder = stack.enter_context(places.present(place))
        store = await anyio.to_thread.run_sync(places.open_store, place, manifest, holder, on_note)
    except StoreError as error:
        # Serve without the default store if it cannot be created, as in a container without a writable home.
        if settings.store or not isinstance(error.__cause__, OSError):
            raise
        log.warning("runs_not_durable", reason=str(error), trail="off")
        return None, None
    stack.push_async_callback(store.close)
    return store if keeps_runs else None, store if settings.is_shared else None
