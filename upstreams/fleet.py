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
from manifests.references import CallerHeader
from upstreams.errors import UpstreamUnavailableError
from upstreams.health import Diagnostics
from upstreams.people import IDLE_SECONDS, Headers, LoginsOf, PeoplesUpstreams, Person
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
    from upstreams.oauth.tokens import Logins, LoginStore


class Fleet:
    """The upstreams of a manifest by name, in its order, with the credentials of the portal; `people` has others."""

    def __init__(self, upstreams: Mapping[str, Upstream], people: PeoplesUpstreams) -> None:
        self._upstreams = upstreams
        self.people = people

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
    caller_headers: Mapping[str, Mapping[str, CallerHeader]] | None = None,
    logins: LoginsOf | None = None,
    observer: RequestObserver | None = None,
) -> AsyncIterator[Fleet]:
    """Supervise all upstreams, each in its own task. Returns before any is ready.

    - `on_change` is called in the event loop after each change of an upstream's state or tools. It must not raise.
    - `listings` is the folder for listings of lazy upstreams; None stores none.
    - `secrets` are masked in all text for people, the `credentials` of an upstream also in its results for scripts.
    - `renewals` fetch new headers after a refusal.
    - `written` has the manifest's sections with unresolved references (`ListingStore`).
    - `caller_headers` name claims of callers, and `logins` has those of people, for `Fleet.people`.
    - `observer` sends and observes each request that a caller makes.

    On exit all connections close at once, and no child process is left.
    """
    connecting = anyio.Semaphore(MAX_CONNECTING)
    hidden = {*secrets, *chain.from_iterable(map(secrets_of, specs.values()))}
    redact = Redaction(hidden)

    def open_own(
        name: str, headers: Headers, person: Person, on_own_change: Callable[[Upstream], None]
    ) -> Upstream:
        spec = specs[name]
        assert isinstance(spec, HttpUpstream), "nothing else has credentials of people"
        if spec.is_per_caller and logins is None:  # never with the portal's login instead
            raise UpstreamUnavailableError(f"upstream {name!r}: there is no store for logins of people")
        # Its own redaction: that of all upstreams keeps few tokens.
        own_redact = Redaction(hidden)
        own = spec.model_copy(update={"headers": {**spec.headers, **headers}, "start": "eager"})
        opener = _wire_opener(
            name,
            own,
            folder,
            (credentials or {}).get(name, ()),
            own_redact,
            (renewals or {}).get(name),
            tasks,
            logins(name, person.owner) if logins is not None and spec.is_per_caller else None,
        )
        return Upstream(
            name,
            own,
            opener,
            own_redact,
            on_own_change,
            idle_stop_seconds=IDLE_SECONDS,
            listed_by=upstreams[name],
            observe=observer,
        )

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
            yield Fleet(upstreams, PeoplesUpstreams(open_own, caller_headers or {}, tasks.start_soon))
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
    logins: "Logins | None" = None,
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

        credentials = OAuthTokens(
            name,
            spec,
            configured,
            logins or login_store(name, spec),
            redact,
            tasks.start_soon,
            how_to_sign_in="sign in again" if logins else "",
        )
    return lambda diagnostics: open_http_wire(spec, diagnostics, credentials)
