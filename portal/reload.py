"""Lets a changed manifest take effect while the portal serves.

Rule 1: a manifest that cannot be used changes nothing, and neither does an attempt that fails.
Rule 2: what changes, changes between two steps of the event loop. No request sees half of it.
"""

import os
import signal
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

import anyio
import anyio.to_thread
import structlog
from anyio.abc import TaskStatus

from manifests.constraints import Section
from manifests.errors import ManifestError, Problem
from manifests.loader import load_manifest
from manifests.manifest import Manifest, validation_problems
from manifests.own_files import lock_path
from manifests.portal_manifest import ServerSettings, StdioUpstream
from manifests.references import env_path
from portal.accounts.accounts import Accounts
from portal.approvers import Approvers
from portal.audit.audit import Audit
from portal.errors import PortalError
from portal.passthrough.client_resources import ListChanges
from portal.runs.service import Runs
from portal.telemetry.telemetry import Telemetry
from portal.views import Views, manifests_of
from upstreams.fleet import Fleet, FleetChanges, UpstreamSettings
from upstreams.secret_sources import fetch_secrets, header_renewals

log = structlog.get_logger()

Bound: TypeAlias = Callable[[Manifest], Collection[str]]
"""The profiles to which a manifest binds callers."""

Fingerprint: TypeAlias = tuple[tuple[int, ...], ...]

CHANGING_SERVER_KEYS: Final = frozenset({"token", "tokens", "allowed_hosts", "allowed_origins"})
"""The keys of `server` that take effect at once: who may call. The others configure what lives as long as the process
does."""

POLL_SECONDS: Final = 1.0
"""How often the files are looked at. A change is applied when it is this old: somebody may be saving half a file."""

SETTLE_SECONDS: Final = 0.2
"""Before a reload the files must not change for so long: somebody may be writing them. It also bounds the reloads."""


def adopt_upstreams(fleet: Fleet, manifest: Manifest, changes: ListChanges) -> FleetChanges:
    """Let the fleet be the upstreams of this manifest."""
    renewals = header_renewals(manifest)
    defaults = {name: value for name, value in manifest.portal.defaults.env.items() if value}
    settings = {
        name: UpstreamSettings(
            spec.model_copy(update={"env": {**defaults, **spec.env}})
            if isinstance(spec, StdioUpstream)
            else spec,
            manifest.credentials.get(name, frozenset()),
            renewals.get(name),
            manifest.written.get(name),
            manifest.caller_headers.get(name, {}),
        )
        for name, spec in manifest.portal.upstreams.items()
    }
    found = fleet.adopt(settings, manifest.hidden)
    for upstream in fleet:
        upstream.on_offering_change = changes.note
    return found


def without_fixed(running: Manifest, wanted: Manifest) -> tuple[Manifest, list[str]]:
    """`wanted`, with what only a restart changes as in `running`; and the keys that wait for one.

    Raises ManifestError: the two do not fit together.
    """
    old, new = running.portal, wanted.portal
    fixed = ServerSettings.model_fields.keys() - CHANGING_SERVER_KEYS
    if old.server.knows_callers != new.server.knows_callers:  # the routes depend on it
        fixed = fixed | {"token", "tokens"}
    server, of_server = _kept("server.", old.server, new.server, fixed)
    capabilities, of_capabilities = _kept("capabilities.", old.capabilities, new.capabilities, ("files",))
    portal, others = _kept("", old, new, ("audit", "runs", "middleware", "telemetry"))
    portal = portal.model_copy(update={"server": server, "capabilities": capabilities})
    keys = [*of_server, *of_capabilities, *others]
    named = [
        ("upstreams", name, "headers", each) for name, own in wanted.caller_headers.items() for each in own
    ]
    if problems := [*validation_problems(portal, wanted.places, named)]:
        hint = f"Restart to apply it together with {', '.join(keys)}."
        raise ManifestError([replace(each, hint=hint) for each in problems], _file(wanted))
    # What waits for a restart still has its former secrets.
    hidden = wanted.hidden | running.hidden if keys else wanted.hidden
    return replace(wanted, portal=portal, hidden=hidden), keys


AnySection = TypeVar("AnySection", bound=Section)


def _kept(
    prefix: str, old: AnySection, new: AnySection, fixed: Collection[str]
) -> tuple[AnySection, list[str]]:
    """`new` with the `fixed` keys of `old`, and those that differ, with the prefix."""
    kept = {key: getattr(old, key) for key in sorted(fixed) if getattr(old, key) != getattr(new, key)}
    return new.model_copy(update=kept), [f"{prefix}{key}" for key in kept]


def _file(manifest: Manifest) -> str:
    return manifest.path.name if manifest.path else "portal.yaml"


@dataclass(eq=False)
class Reload:
    """Changes a running portal. `manifest` is the present one; `profile` is that of callers who are bound to none."""

    manifest: Manifest
    profile: str | None
    views: Views
    fleet: Fleet
    runs: Runs
    audit: Audit
    list_changes: ListChanges
    accounts: Accounts
    telemetry: Telemetry

    async def apply(self, wanted: Manifest, bound: Bound = lambda manifest: ()) -> Manifest:
        """Let a manifest take effect, except for what only a restart changes. Returns what took effect.

        One call at a time. Raises ManifestError: it cannot be used. Nothing has changed then.
        """
        manifest, waiting = without_fixed(self.manifest, wanted)
        if self.profile is not None and self.profile not in manifest.portal.profiles:
            message = f"there is no profile {self.profile!r}, which --profile names"
            raise ManifestError(
                [Problem(message, hint="Keep it, or restart with another one.")], _file(wanted)
            )
        manifests = manifests_of(manifest, self.profile, bound(manifest))
        await self.views.open(manifests)
        # From here on nothing waits.
        self.manifest = manifest
        changes = adopt_upstreams(self.fleet, manifest, self.list_changes)
        self.accounts.adopt(manifest)
        self.views.adopt(manifests)
        self.runs.mask.replace(manifest.hidden)
        if self.telemetry.mask is not None:
            self.telemetry.mask.replace(self.fleet.secrets)
        self.runs.executions = [self.views.by_profile[name].execution for name in manifests]
        self.runs.approvers = Approvers.of(manifest.portal.capabilities, self.profile)
        self.runs.note_change()
        self.list_changes.note()
        self.audit.reloaded(manifest)
        log.info("manifest_reloaded", added=changes.added, removed=changes.removed, restarted=changes.changed)
        if waiting:
            log.warning("manifest_change_ignored", keys=waiting, hint="restart to apply")
        return manifest


async def keep_manifest(
    path: Path,
    apply: Callable[[Manifest], Awaitable[object]],
    *,
    is_watched: bool,
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Apply the manifest at `path` again at each SIGHUP and, if it `is_watched`, after each change, until cancelled.

    Changes and signals during a reload cause one more.
    """
    requests, received = anyio.create_memory_object_stream[None](1)

    def request() -> None:
        with suppress(anyio.WouldBlock):  # one is waiting already
            requests.send_nowait(None)

    async with requests, received, anyio.create_task_group() as tasks:
        await tasks.start(_on_signal, request)
        if is_watched:
            await tasks.start(_on_change, path, request)
        task_status.started()
        async for _ in received:
            await _reload(path, apply)


async def _reload(path: Path, apply: Callable[[Manifest], Awaitable[object]]) -> None:
    try:
        await apply(await _loaded(path))
    except (ManifestError, PortalError, OSError) as error:
        log.error("manifest_rejected", reason=str(error), hint="the portal goes on as before")


async def _loaded(path: Path) -> Manifest:
    """The manifest, from files that nobody changed meanwhile. Raises ManifestError."""
    before: Fingerprint | None = None
    while True:
        while before != (now := _fingerprint(path)):
            before = now
            await anyio.sleep(SETTLE_SECONDS)
        manifest = await anyio.to_thread.run_sync(
            load_manifest, path, os.environ, fetch_secrets, abandon_on_cancel=True
        )
        if _fingerprint(path) == before:
            return manifest


async def _on_signal(request: Callable[[], None], *, task_status: TaskStatus[None]) -> None:
    had_terminal = _has_terminal()
    with anyio.open_signal_receiver(signal.SIGHUP) as signals:
        task_status.started()
        async for _ in signals:
            if had_terminal and not _has_terminal():  # its window was closed, which ends a program
                os.kill(os.getpid(), signal.SIGTERM)
            request()


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


async def _on_change(path: Path, request: Callable[[], None], *, task_status: TaskStatus[None]) -> None:
    known = before = _fingerprint(path)
    task_status.started()
    while True:
        await anyio.sleep(POLL_SECONDS)
        now = _fingerprint(path)
        if now == before and now != known:
            known = now
            request()
        before = now


def _fingerprint(path: Path) -> Fingerprint:
    return tuple(map(_version, (path, env_path(path), lock_path(path))))


def _version(path: Path) -> tuple[int, ...]:
    """What differs between two versions of a file, also behind a link; () if it does not exist."""
    try:
        status = path.stat()
    except OSError:
        return ()
    return status.st_mtime_ns, status.st_size, status.st_ino, status.st_dev
