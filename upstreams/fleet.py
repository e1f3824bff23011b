"""All upstreams of a portal."""

import os
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup

from manifests.json_value import Json
from manifests.own_files import state_folder
from manifests.portal_manifest import HttpUpstream, StdioUpstream
from upstreams.health import Diagnostics
from upstreams.redaction import Redaction, secrets_of
from upstreams.session import WireOpener
from upstreams.supervisor import MAX_CONNECTING, RequestObserver
from upstreams.tools import ListingStore
from upstreams.transports.child_process import ChildCommand
from upstreams.transports.http import open_http_wire
from upstreams.transports.http_credentials import HeaderRenewal, HttpCredentials
from upstreams.transports.stdio import open_stdio_wire
from upstreams.transports.wire import Wire
from upstreams.upstream import Upstream

if TYPE_CHECKING:
    from upstreams.oauth.tokens import LoginStore


class Fleet:
    """The upstreams of a manifest by name, in its order."""

    def __init__(self, upstreams: Mapping[str, Upstream]) -> None:
        self._upstreams = upstreams

    def __iter__(self) -> Iterator[Upstream]:
        return iter(self._upstreams.values())

    def __len__(self) -> int:
        return len(self._upstreams)

    def __getitem__(self, name: str) -> Upstream:
        return self._upstreams[name]

    def want_all(self) -> None:
        """Connect all upstreams, also those that wait for their first call."""
        for upstream in self:
            upstream.want()

    async def settled(self, seconds: float, names: Collection[str] | None = None) -> list[Upstream]:
        """Wait at most `seconds` until no upstream (of `names`) is starting. Returns those that still are."""
        watched = [upstream for upstream in self if names is None or upstream.name in names]
        with anyio.move_on_after(seconds):
            for upstream in watched:
                await upstream.started()
        return [upstream for upstream in watched if upstream.state.status == "starting"]


@asynccontextmanager
async def open_fleet(
    specs: Mapping[str, StdioUpstream | HttpUpstream],
    folder: Path,
    on_change: Callable[[Upstream], None],
    listings: Path | None = None,
    secrets: Collection[str] = (),
    credentials: Mapping[str, Collection[str]] | None = None,
    renewals: Mapping[str, HeaderRenewal] | None = None,
    written: Mapping[str, Json] | None = None,
    observer: RequestObserver | None = None,
) -> AsyncIterator[Fleet]:
    """Supervise all upstreams, each in its own task. Returns before any is ready.

    - `on_change` is called in the event loop after each change of an upstream's state or tools. It must not raise.
    - `listings` is the folder for listings of lazy upstreams; None stores none.
    - `secrets` are masked in all text for people, the `credentials` of an upstream also in its results for scripts.
    - `renewals` fetch new headers after a refusal.
    - `written` has the manifest's sections with unresolved references (`ListingStore`).
    - `observer` sends and observes each request that a caller makes.

    On exit all connections close at once, and no child process is left.
    """
    connecting = anyio.Semaphore(MAX_CONNECTING)
    redact = Redaction({*secrets, *chain.from_iterable(map(secrets_of, specs.values()))})
    async with anyio.create_task_group() as tasks:
        upstreams = {
            name: Upstream(
                name,
                spec,
                _wire_opener(
                    name,
                    spec,
                    folder,
                    (credentials or {}).get(name, ()),
                    redact,
                    (renewals or {}).get(name),
                    tasks,
                ),
                redact,
                on_change,
                ListingStore(listings, name, spec, folder, (written or {}).get(name)) if listings else None,
                connecting,
                observe=observer,
            )
            for name, spec in specs.items()
        }
        for upstream in upstreams.values():
            tasks.start_soon(upstream.run, name=f"upstream {upstream.name}")
        try:
            yield Fleet(upstreams)
        finally:
            tasks.cancel_scope.cancel()


def login_store(name: str, spec: HttpUpstream) -> "LoginStore":
    """The store for an upstream's tokens."""
    from upstreams.oauth.tokens import LoginStore

    keep_in = spec.oauth.keep_in if spec.oauth else "file"
    return LoginStore(state_folder(os.environ) / "logins", name, spec.url, keep_in)


def _wire_opener(
    name: str,
    spec: StdioUpstream | HttpUpstream,
    folder: Path,
    configured: Collection[str],
    redact: Redaction,
    renew: HeaderRenewal | None,
    tasks: TaskGroup,
) -> WireOpener:
    configured = {*configured, *secrets_of(spec)}
    if isinstance(spec, StdioUpstream):
        mask = Redaction(configured).in_json

        def start(diagnostics: Diagnostics) -> AbstractAsyncContextManager[Wire]:
            # Looked up at every attempt: the command may have been installed meanwhile.
            command = ChildCommand.of(spec, folder, os.environ)
            return open_stdio_wire(command, diagnostics, mask, spec.message_bytes)

        return start
    credentials = HttpCredentials(spec, configured, redact, renew)
    if spec.oauth is not None:
        # Imported here, because only OAuth needs it.
        from upstreams.oauth.tokens import OAuthTokens

        credentials = OAuthTokens(name, spec, configured, login_store(name, spec), redact, tasks.start_soon)
    return lambda diagnostics: open_http_wire(spec, diagnostics, credentials)
