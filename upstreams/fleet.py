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
    """The upstreams of a manifest, by their keys, in its order."""

    def __init__(self, upstreams: Mapping[str, Upstream]) -> None:
        self._upstreams = upstreams

    def __iter__(self) -> Iterator[Upstream]:
        return iter(self._upstreams.values())

    def __len__(self) -> int:
        return len(self._upstreams)

    def __getitem__(self, name: str) -> Upstream:
        return self._upstreams[name]

    def want_all(self) -> None:
        """Have those connected, too, that wait for their first call."""
        for upstream in self:
            upstream.want()

    async def settled(self, seconds: float, names: Collection[str] | None = None) -> list[Upstream]:
        """Wait until no upstream (of `names`) is starting, at most `seconds`; those that still are."""
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
) -> AsyncIterator[Fleet]:
    """Supervise all upstreams, each in its own task; returns before any is ready.

    `listings` is where lazy ones keep what they offer; None is nowhere. `secrets` are hidden in whatever any of them
    sends to be read by people, the `credentials` of an upstream in whatever it sends to scripts. `renewals` get refused
    headers anew. `written` are the sections of the manifest with references as such (`ListingStore`). `on_change` is
    called in the event loop whenever the state or the tools of an upstream changed; it must not raise. On leaving, all
    are closed at once, and no process of theirs is left.
    """
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
    """Where the tokens of an upstream are kept."""
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
            # Looked up at every attempt: the command may have been installed since.
            command = ChildCommand.of(spec, folder, os.environ)
            return open_stdio_wire(command, diagnostics, mask, spec.message_bytes)

        return start
    credentials = HttpCredentials(spec, configured, redact, renew)
    if spec.oauth is not None:
        # Here, because no other upstream has need of what it imports.
        from upstreams.oauth.tokens import OAuthTokens

        credentials = OAuthTokens(name, spec, configured, login_store(name, spec), redact, tasks.start_soon)
    return lambda diagnostics: open_http_wire(spec, diagnostics, credentials)
