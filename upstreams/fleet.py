"""All upstreams of a portal."""

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
from anyio.abc import TaskGroup

from manifests.grants import ToolRules
from manifests.json_value import Json
from manifests.own_files import state_folder
from manifests.portal_manifest import HttpUpstream, StdioUpstream
from manifests.references import CallerHeader
from upstreams.connector import WireOpener
from upstreams.errors import UpstreamUnavailableError
from upstreams.people import IDLE_SECONDS, PORTAL, Headers, LoginsOf, OnChange, PeoplesUpstreams, Person
from upstreams.redaction import Redaction, secrets_of
from upstreams.secret_sources import HeaderRenewal
from upstreams.tools import ListingStore, UpstreamListing
from upstreams.transports.http import open_http_wire
from upstreams.transports.http_credentials import HttpCredentials
from upstreams.transports.stdio import open_stdio_wire
from upstreams.upstream import RequestObserver, Upstream

if TYPE_CHECKING:
    from upstreams.oauth.tokens import Logins, LoginStore

MAX_CONNECTING: Final = max(16, 8 * (os.cpu_count() or 1))
"""Upstreams that connect at once, without those of people: a server needs about a second of CPU to start."""

MAX_REMOVED: Final = 1_000
"""At most this many removed upstreams are remembered, because running scripts may still name them."""


class Fleet:
    """The upstreams of a manifest by name, in its order, with the portal's credentials; `people` has personal ones."""

    def __init__(self, opener: "Opener") -> None:
        self._opener = opener
        self._upstreams: dict[str, Upstream] = {}
        self._settings: dict[str, UpstreamSettings] = {}
        self._removed: dict[str, Upstream] = {}
        self.people = PeoplesUpstreams(
            self._open_own, lambda name: self.settings(name).caller_headers, opener.tasks.start_soon
        )

    def __iter__(self) -> Iterator[Upstream]:
        return iter([*self._upstreams.values()])

    def __getitem__(self, name: str) -> Upstream:
        """The upstream of this name; a removed one refuses all calls."""
        return self._upstreams[name] if name in self._upstreams else self._removed[name]

    def replace(
        self, settings: Mapping[str, "UpstreamSettings"], secrets: Collection[str]
    ) -> Mapping[str, Sequence[str]]:
        """Start new upstreams, restart those whose settings changed, and remove the others. Does not wait.

        Returns the names of the `added`, `removed` and `restarted` ones, for the log.
        Calls in flight end on the connection on which they began. Later calls wait for the new one.
        """
        former, known = self._upstreams, self._settings
        own_secrets = chain.from_iterable(secrets_of(each.spec) for each in settings.values())
        self._opener.redact.replace({*secrets, *own_secrets})
        removed = [name for name in former if name not in settings]
        changed = [name for name in settings if name in known and not settings[name].connects_as(known[name])]
        self._upstreams = {
            name: former[name] if name in former and name not in changed else self._opener.open(name, each)
            for name, each in settings.items()
        }
        self._settings = dict(settings)
        for name in changed:
            old, new = former[name], self._upstreams[name]
            new.apply(UpstreamListing(old.tools, old.server, old.instructions))  # until there is a new one
            old.availability.stop("it was changed in the manifest", new.availability)
            self.people.remove(name, "it was changed in the manifest")
        for name in removed:
            former[name].remove("it was removed from the manifest")
            self.people.remove(name, "it was removed from the manifest")
            self._removed[name] = former[name]
        for name in [*self._removed][:-MAX_REMOVED]:
            del self._removed[name]
        added = [name for name in settings if name not in former]
        return {"added": added, "removed": removed, "restarted": changed}

    def spec(self, name: str) -> StdioUpstream | HttpUpstream | None:
        """The section of an upstream; None for a name that the manifest does not have."""
        return self._settings[name].spec if name in self._settings else None

    def settings(self, name: str) -> "UpstreamSettings":
        """Raises UpstreamUnavailableError: the upstream was removed from the manifest."""
        if name not in self._settings:
            raise UpstreamUnavailableError(f"upstream {name!r}: it was removed from the manifest")
        return self._settings[name]

    def want_all(self) -> None:
        """Connect all upstreams, also those that wait for their first call."""
        for upstream in self:
            upstream.availability.want()

    async def settled(self, seconds: float, names: Collection[str] | None = None) -> list[Upstream]:
        """Wait at most `seconds` until no upstream (of `names`) is starting. Returns those that still are."""
        watched = [upstream for upstream in self if names is None or upstream.name in names]
        with anyio.move_on_after(seconds):
            for upstream in watched:
                await upstream.started()
        return [upstream for upstream in watched if upstream.state.status == "starting"]

    def _open_own(self, name: str, headers: Headers, person: Person, on_change: OnChange) -> Upstream:
        return self._opener.open_own(self.settings(name), self[name], headers, person, on_change)


@dataclass(eq=False)
class Opener:
    """Opens upstreams with the credentials of the portal or of a person. `tasks` supervises those of the portal."""

    tasks: TaskGroup
    folder: Path
    """The working directory of children, and the base of relative paths."""
    on_change: OnChange
    """Called in the event loop after each change of an upstream's state or tools. It must not raise."""
    on_offering_change: Callable[[], None] = lambda: None
    """Called when an upstream's resources or prompts may have changed."""
    listings: Path | None = None
    """The folder for the last listing of each upstream; None stores none."""
    logins: LoginsOf | None = None
    """The logins of people."""
    portal_logins: LoginsOf | None = None
    """The portal's own logins, if they are not in files."""
    observer: RequestObserver | None = None
    """Sends and observes each request that a caller makes."""
    only: Collection[str] | None = None
    """The upstreams that may start; None for all."""
    redact: Redaction = field(default_factory=lambda: Redaction(()))
    """Masks the secrets of all upstreams."""
    _connecting: anyio.Semaphore = field(default_factory=lambda: anyio.Semaphore(MAX_CONNECTING))

    def open(self, name: str, own: "UpstreamSettings") -> Upstream:
        """Open an upstream with the portal's credentials, and supervise it."""
        wire = self._wire_opener(name, own, self.redact)
        store = ListingStore(self.listings, name, self.folder, own.written) if self.listings else None
        upstream = Upstream(
            name,
            own.spec,
            wire,
            self.redact,
            self.on_change,
            store,
            self._connecting,
            self.on_offering_change,
            observe=self.observer,
        )
        if self.only is None or name in self.only:
            self.tasks.start_soon(upstream.supervisor.run, name=f"upstream {name}")
        return upstream

    def open_own(
        self, own: "UpstreamSettings", shared: Upstream, headers: Headers, person: Person, on_change: OnChange
    ) -> Upstream:
        """Open the person's own connection to an upstream, which lists its tools as `shared` does."""
        name, spec = shared.name, own.spec
        assert isinstance(spec, HttpUpstream), "only HTTP upstreams have personal credentials"
        login = None
        if spec.is_per_caller:
            if self.logins is None:  # never fall back to the portal's login
                raise UpstreamUnavailableError(f"upstream {name!r}: there is no store for logins of people")
            login = self.logins(name, spec.url, person.owner)
        # A redaction of its own: the shared one has one login per upstream.
        redact = Redaction(self.redact.secrets)
        spec = spec.model_copy(update={"headers": {**spec.headers, **headers}, "start": "eager"})
        return Upstream(
            name,
            spec,
            self._wire_opener(name, replace(own, spec=spec), redact, login),
            redact,
            on_change,
            idle_stop_seconds=IDLE_SECONDS,
            listed_by=shared,
            observe=self.observer,
        )

    def _wire_opener(
        self, name: str, settings: "UpstreamSettings", redact: Redaction, login: "Logins | None" = None
    ) -> WireOpener:
        """Opens wires with the person's login; by default with the portal's."""
        spec, configured = settings.spec, {*settings.credentials, *secrets_of(settings.spec)}
        if isinstance(spec, StdioUpstream):
            return partial(open_stdio_wire, spec, self.folder, Redaction(configured).in_parsed)
        credentials = HttpCredentials(name, spec, configured, redact, settings.renew)
        if spec.oauth is not None:
            # Imported here, because only OAuth needs it.
            from upstreams.oauth.tokens import OAuthTokens

            portals, start = self.portal_logins, self.tasks.start_soon
            kept = login or (portals(name, spec.url, PORTAL) if portals else login_store(name, spec))
            how_to_sign_in = "sign in again" if login else ""
            credentials = OAuthTokens(name, spec, configured, kept, redact, start, how_to_sign_in)
        return partial(open_http_wire, spec, credentials)


@dataclass(frozen=True)
class UpstreamSettings:
    """One upstream's section of the manifest, resolved.

    `credentials` are secrets that are masked in its results. `renew` fetches new headers after a refusal, by `programs`
    of these hashes. `written` is its section with unresolved references (`ListingStore`). `caller_headers` name claims.
    """

    spec: StdioUpstream | HttpUpstream
    credentials: frozenset[str] = frozenset()
    renew: HeaderRenewal | None = None
    written: Json = None
    caller_headers: Mapping[str, CallerHeader] = field(default_factory=dict)
    programs: Mapping[str, str] = field(default_factory=dict)

    def connects_as(self, other: "UpstreamSettings") -> bool:
        """Whether a connection with the other settings serves these as well; rules about tools do not concern it."""
        return self._without_rules() == other._without_rules()

    def _without_rules(self) -> "UpstreamSettings":
        written = self.written
        if isinstance(written, dict):
            written = {key: value for key, value in written.items() if key != "tools"}
        spec = self.spec.model_copy(update={"tools": ToolRules()})
        return replace(self, spec=spec, written=written, renew=None)


def login_store(name: str, spec: HttpUpstream) -> "LoginStore":
    from upstreams.oauth.tokens import LoginStore

    keep_in = spec.oauth.keep_in if spec.oauth else "file"
    return LoginStore(state_folder(os.environ) / "logins", name, spec.url, keep_in)
