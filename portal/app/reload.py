"""Applies a changed manifest while the portal serves, once a person has accepted the change.

Rule 1: an unusable manifest changes nothing, nor does a failed attempt.
Rule 2: a change takes effect between two steps of the event loop. No request sees half of it.
Rule 3: nothing in a change runs before it takes effect: no command, no upstream, no middleware.
"""

import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

import anyio
import anyio.to_thread
import structlog
from anyio.abc import TaskStatus

from manifests.constraints import Section
from manifests.errors import ManifestError, Problem
from manifests.exposure import writable_files
from manifests.loader import check_written, parse_manifest, read_files
from manifests.manifest import Manifest, validation_problems
from manifests.own_files import ManifestFiles, differing, lock_path
from manifests.portal_manifest import ServerSettings, StdioUpstream
from manifests.references import env_path
from portal.app.accepted import Acceptance, keep_accepted, reload_hint
from portal.app.hang_ups import at_hang_up
from portal.base.errors import PortalError
from portal.catalog.authority import Authority, Policy
from portal.catalog.catalog import decided_tools
from portal.records.audit.audit import Audit
from portal.runs.service import Runs
from portal.server.client_resources import ListChanges
from portal.server.views import Views
from upstreams.fleet import Fleet, UpstreamSettings
from upstreams.secret_sources import fetch_secrets, header_renewals
from upstreams.upstream import Upstream

log = structlog.get_logger()

Bound: TypeAlias = Callable[[Manifest], Collection[str]]
"""The profiles to which a manifest binds callers."""

Fingerprint: TypeAlias = tuple[tuple[int, ...], ...]

CHANGING_SERVER_KEYS: Final = frozenset({"token", "tokens", "allowed_hosts", "allowed_origins"})
"""The keys of `server` that take effect at once: who may call. The others configure objects that live as long as the
process."""

POLL_SECONDS: Final = 1.0
"""How often the files are checked. A change is applied when it is this old: a file may be half saved before."""

SETTLE_SECONDS: Final = 0.2
"""How long the files must stay unchanged after a signal, as they may still be being written. Also limits reloads."""


def upstream_settings(manifest: Manifest) -> dict[str, UpstreamSettings]:
    renewals = header_renewals(manifest)
    defaults = {name: value for name, value in manifest.portal.defaults.env.items() if value}
    programs = {k: v for k, v in manifest.hashes.items() if Path(k).stem != Path(_file(manifest)).stem}
    return {
        name: UpstreamSettings(
            spec.model_copy(update={"env": {**defaults, **spec.env}})
            if isinstance(spec, StdioUpstream)
            else spec,
            manifest.credentials.get(name, frozenset()),
            renewals.get(name),
            manifest.section(name),
            manifest.caller_headers.get(name, {}),
            programs if name in renewals else {},
        )
        for name, spec in manifest.portal.upstreams.items()
    }


def without_fixed(running: Manifest, wanted: Manifest) -> tuple[Manifest, list[str]]:
    """Return `wanted` with the values of `running` for the keys that only a restart changes, and the differing ones.

    Raises ManifestError: the combination is not valid.
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
    if running.modules != wanted.modules and "middleware" not in keys:
        keys.append("middleware")
    if problems := [*validation_problems(portal, wanted.places, wanted.caller_headers)]:
        hint = f"Restart to apply it together with {', '.join(keys)}."
        raise ManifestError([replace(each, hint=hint) for each in problems], _file(wanted))
    # Keys that wait for a restart still use their former secrets, which must stay masked.
    hidden = wanted.hidden | running.hidden if keys else wanted.hidden
    return replace(wanted, portal=portal, hidden=hidden, modules=running.modules), keys


AnySection = TypeVar("AnySection", bound=Section)


def _kept(
    prefix: str, old: AnySection, new: AnySection, fixed: Collection[str]
) -> tuple[AnySection, list[str]]:
    """Return `new` with the `fixed` keys of `old`, and the keys that differ, with the prefix."""
    kept = {key: getattr(old, key) for key in sorted(fixed) if getattr(old, key) != getattr(new, key)}
    return new.model_copy(update=kept), [f"{prefix}{key}" for key in kept]


def _file(manifest: Manifest) -> str:
    return manifest.path.name if manifest.path else "portal.yaml"


@dataclass(frozen=True, eq=False)
class Reload:
    views: Views
    fleet: Fleet
    runs: Runs
    audit: Audit
    list_changes: ListChanges
    bound: Bound

    async def apply(self, wanted: Manifest) -> Manifest:
        """Apply a manifest, except for what only a restart can change. Returns what took effect.

        One call at a time. Raises ManifestError: it cannot be used, and nothing has changed.
        """
        manifest, waiting = without_fixed(self.views.manifest, wanted)
        profile = self.views.profile
        if profile is not None and profile not in manifest.portal.profiles:
            message = f"there is no profile {profile!r}, which --profile names"
            raise ManifestError(
                [Problem(message, hint="Keep it, or restart with another one.")], _file(wanted)
            )
        changes = await self.replace(manifest)
        self.list_changes.note()
        self.audit.reloaded(manifest)
        log.info("manifest_reloaded", **changes)
        if waiting:
            log.warning("manifest_change_ignored", keys=waiting, hint="restart to apply")
        return manifest

    async def replace(self, manifest: Manifest) -> Mapping[str, Sequence[str]]:
        """Switch to this manifest, with a view for each profile of `bound`. Returns what `Fleet.replace` does."""
        prepared = await self.views.prepared(manifest, self.bound(manifest))
        settings = upstream_settings(manifest)
        # No await from here on, so that no request sees half of the change (rule 2).
        changes = self.fleet.replace(settings, manifest.hidden)
        self.views.switch(prepared)
        self.runs.replace(self.views[None].manifest)
        return changes


async def warn_of_writable_files(authority: Authority, fleet: Fleet) -> None:
    """Log the upstreams through which a script could write the portal's own files, once all have listed their tools."""
    await fleet.settled(inf)
    for text, is_named in await file_warnings(authority.policy, fleet):
        (log.warning if is_named else log.info)("files_exposed", problem=text)


async def file_warnings(policy: Policy, upstreams: Iterable[Upstream]) -> list[tuple[str, bool]]:
    """The warnings of `writable_files` about these upstreams, by the tools that they list now."""
    writers = {}
    for each in upstreams:
        granted = (tool for tool, decision in decided_tools(policy, each) if decision.granted)
        writers[each.name] = [tool for tool in granted if not tool.hints.readonly]
    return await anyio.to_thread.run_sync(lambda: [*writable_files(policy.manifest, writers, os.environ)])


class ManifestKeeper:
    """Keeps a running portal on the accepted files. `waiting` lists the files that differ, for other readers."""

    def __init__(
        self,
        manifest: Manifest,
        apply: Callable[[Manifest], Awaitable[object]],
        announce: Callable[[Mapping[str, str]], None],
        waiting: list[str],
    ) -> None:
        assert manifest.path is not None, "without a file, nothing can change"
        self.path, self.apply, self.announce, self.waiting = manifest.path, apply, announce, waiting
        self.waiting[:] = manifest.waiting
        self.acceptance = Acceptance(self.path)
        self._is_watched = manifest.portal.server.reload == "watch"
        self._running = self._read = manifest.hashes
        self._known: Fingerprint | None = None
        self._seen: tuple[int, ...] = ()
        """The version of the record of accepted files. Each version is tried once."""
        self._reported: Mapping[str, str] = {}  # the files that wait, or are wrong
        self._signalled = anyio.Event()

    async def keep(
        self, until: anyio.CancelScope, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Watch the files and SIGHUP until `until` is cancelled. Changes during a reload are seen after it."""
        with until, at_hang_up(lambda: self._signalled.set()):
            task_status.started()
            await self._watch()

    async def _watch(self) -> None:
        before: Fingerprint | None = None
        while True:
            if is_decided := self._signalled.is_set():  # by a person with a shell
                await anyio.sleep(SETTLE_SECONDS)
            with anyio.move_on_after(POLL_SECONDS):
                await self._signalled.wait()
            is_settled, before = before == (now := self._fingerprint()), now
            if is_recorded := self._seen != (record := _version(self.acceptance.record)):
                self._seen, self._known = record, None  # a change may be withdrawn
            try:
                if is_recorded and self._recorded() != self._running:
                    await self._accept()
                elif is_settled and (is_decided or now != self._known):
                    await self._look(now, is_decided=is_decided)
            except (ManifestError, PortalError, OSError) as error:
                log.error("manifest_rejected", reason=str(error), hint="the portal goes on as before")
            except Exception:  # a defect must not end the portal
                log.exception("manifest_rejected", hint="the portal goes on as far as it can")

    def _recorded(self) -> Mapping[str, str]:
        """The hashes of the files that a person accepted last. They do not run if they could not be applied."""
        return self.acceptance.hashes() or self._running

    async def _accept(self) -> None:
        """Switch to the files that a person accepted, whatever they contain now."""
        self._known = None
        if files := await anyio.to_thread.run_sync(self.acceptance.files, abandon_on_cancel=True):
            await self._run(files)

    async def _look(self, now: Fingerprint, *, is_decided: bool) -> None:
        """Switch to the files if a person decided or they are watched; else log that they wait, or what is wrong."""
        try:
            files = await anyio.to_thread.run_sync(read_files, self.path, os.environ, abandon_on_cancel=True)
        except Exception:  # told once, and what a person decided was not for a later change
            self._known, self._signalled = now, anyio.Event()
            raise
        self._read = files.hashes
        if self._fingerprint() != now:  # they are being written, or name other files now
            return
        self._known = now
        if is_decided:
            self._signalled = anyio.Event()
        changed = differing(self._running, files.hashes)
        if is_decided or (changed and self._is_watched):
            await self._run(files)
            if self.acceptance.hashes() != files.hashes:
                keep_accepted(files)
            return
        differ = changed or differing(self._running, self._recorded())
        if self.waiting and not differ:
            log.info("manifest_change_withdrawn")
        is_new, self._reported = files.hashes != self._reported, files.hashes
        self.waiting[:] = differ
        if differ:
            self.acceptance.hold()  # again, in case the start could not
        if differ and is_new:
            await anyio.to_thread.run_sync(check_written, files, os.environ, abandon_on_cancel=True)
            log.warning("manifest_change_waits", files=differ, hint=reload_hint(self.path))

    async def _run(self, files: ManifestFiles) -> None:
        """Apply the files, which runs their commands. Raises."""
        manifest = await anyio.to_thread.run_sync(
            parse_manifest, files, os.environ, fetch_secrets, abandon_on_cancel=True
        )
        await self.apply(self.acceptance.with_copies(manifest))
        self.announce(files.hashes)
        self.waiting.clear()
        self._running, self._reported = files.hashes, {}
        self._known = None  # compare the files again

    def _fingerprint(self) -> Fingerprint:
        env, lock = env_path(self.path).name, lock_path(self.path).name
        names = {self.path.name, env, lock, *self._running, *self._read}
        return tuple(_version(self.path.parent / name) for name in sorted(names))


def _version(path: Path) -> tuple[int, ...]:
    """A fingerprint of a file's version, also behind a link; () if it does not exist."""
    try:
        status = path.stat()
    except OSError:
        return ()
    return status.st_ctime_ns, status.st_size, status.st_ino, status.st_dev
