"""Chooses the login that a call uses, the portal's or that of the person who calls. Keeps logins in the store of runs.

Rule 1: a person's login and connection serve only the runs of that person, identified by `Caller.run_owner`.
Rule 2: callers who did not sign in have no personal logins. Only without `server.auth`, and over stdio, the portal's
own login stands for the only person there is.
"""

import json
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Final

import anyio
import anyio.to_thread
from cryptography.fernet import InvalidToken
from pydantic import ValidationError

from manifests.manifest import Manifest
from manifests.portal_manifest import HttpUpstream
from portal.base.caller import LOCAL, Caller
from portal.records.audit.audit import NO_AUDIT, Audit
from portal.records.store.places import open_store, place_of
from portal.records.store.records import StoreError, fernet_of
from portal.records.store.run_tables import RunTables
from portal.records.store.writer import RunStore
from upstreams.errors import UpstreamCallerError, UpstreamUnavailableError
from upstreams.fleet import Fleet, login_store
from upstreams.oauth.authorization_server import OAuthUnreachableError
from upstreams.oauth.tokens import Login, LoginEndedError, LoginStore
from upstreams.people import PORTAL, Person

LINK_SECONDS: Final = 3_600
"""How long a link to sign in is valid."""

PATH: Final = "/oauth/sign-in"

LOGIN: Final = "login"
_LOCK: Final = "login lock"

LEASE_SECONDS: Final = 15.0
"""A lock that has not changed for this long is taken over. Longer than the longest refresh; no clocks are compared."""

_PAUSE_SECONDS: Final = 0.1


class SignInSeal:
    """Seals the texts in URLs. Only portals with this `runs.key` can make and read them."""

    def __init__(self, key: str) -> None:
        self._fernet = fernet_of(key, "sign-in")

    def close(self, step: str, *parts: str) -> str:
        return self._fernet.encrypt(json.dumps([step, *parts]).encode()).decode().rstrip("=")

    def open(self, text: str, step: str, seconds: int) -> list[str] | None:
        """Return what was sealed for this step within the last `seconds`; None for anything else."""
        try:
            content = self._fernet.decrypt(f"{text}{'=' * (-len(text) % 4)}".encode(), ttl=seconds)
        except (InvalidToken, UnicodeEncodeError):
            return None
        sealed, *parts = json.loads(content)
        return parts if sealed == step else None


class Accounts:
    """Finds the logins of people at the upstreams of one portal."""

    def __init__(
        self, manifest: Manifest, fleet: Fleet, store: RunStore | None, audit: Audit = NO_AUDIT
    ) -> None:
        self.auth = manifest.portal.server.auth
        self.fleet = fleet
        self.store = store
        self.audit = audit
        key = manifest.portal.runs.key
        self.seal = SignInSeal(key.get_secret_value()) if key else None

    def spec(self, upstream: str) -> HttpUpstream | None:
        """The manifest's section of an upstream where people sign in; None for any other name."""
        spec = self.fleet.spec(upstream)
        return spec if isinstance(spec, HttpUpstream) and spec.is_per_caller else None

    def person(self, upstream: str, caller: Caller) -> Person | None:
        """Return the person whose credentials a call uses; None for the portal's. Raises UpstreamCallerError."""
        is_named = bool(self.fleet.settings(upstream).caller_headers)
        if self.spec(upstream) is None and not is_named:
            return None
        if caller.claims is not None:
            return Person(caller.run_owner, dict(caller.claims))
        if self.auth is None or (caller == LOCAL and not is_named):
            return None
        raise UpstreamCallerError(
            f"upstream {upstream!r} needs to know which person calls, and no one signed in"
        )

    def logins(self, upstream: str, owner: str) -> "PersonLogins":
        """The person's login. Raises UpstreamUnavailableError: without a store, or if people cannot sign in there."""
        if self.store is None:
            why = "logins of people need the store of runs, which cannot be used; the portal's log says why"
            raise UpstreamUnavailableError(f"upstream {upstream!r}: {why}")
        spec = self.spec(upstream)
        if spec is None:  # a reload has changed it
            raise UpstreamUnavailableError(f"upstream {upstream!r}: nobody signs in there any more")
        return PersonLogins(self.store, upstream, spec.url, owner)

    def link(self, upstream: str, owner: str) -> str:
        """The URL where this person signs in to an upstream; it works for no one else."""
        assert self.auth is not None and self.seal is not None, "the manifest was refused otherwise"
        return f"{self.auth.base_url}{PATH}/start/{self.seal.close('link', upstream, owner)}"


@asynccontextmanager
async def open_login(
    manifest: Manifest, name: str, spec: HttpUpstream
) -> "AsyncIterator[PersonLogins | LoginStore]":
    """Open the portal's own login at an upstream: in a file or the keyring, or in a store of runs that machines share.

    Raises StoreError.
    """
    if not manifest.portal.runs.is_shared:
        yield login_store(name, spec)
        return
    store = await anyio.to_thread.run_sync(open_store, place_of(manifest), manifest)
    try:
        yield PersonLogins(store, name, spec.url, PORTAL)
    finally:
        await store.close()


class PersonLogins:
    """Implements `upstreams.oauth.tokens.Logins` for all portals with one store. Without `url`, it can only delete."""

    def __init__(self, store: RunStore, upstream: str, url: str | None, owner: str) -> None:
        self._store = store
        self._url = url
        self._of = owner, upstream

    async def load(self) -> Login | None:
        with _store_errors():
            return self._login(await self._store.read(lambda tables: tables.get(LOGIN, *self._of)))

    async def save(self, login: Login) -> None:
        """Keep a login instead of any other. Raises OAuthUnreachableError."""
        value = login.model_dump_json().encode()
        with _store_errors():
            await self._store.write(lambda tables: tables.put(LOGIN, *self._of, value), is_lasting=True)

    async def replace(self, before: Login, after: Login) -> Login:
        def swap(tables: RunTables) -> Login | None:
            tables.lock(LOGIN, *self._of)
            known = self._login(tables.get(LOGIN, *self._of))
            if known == before:
                tables.put(LOGIN, *self._of, after.model_dump_json().encode())
                return after
            return known

        with _store_errors():
            kept = await self._store.write(swap, is_lasting=True)
        if kept is None:
            raise LoginEndedError("the login was deleted")
        return kept

    async def ended(self, login: Login) -> None:
        """Delete the login, so that the person is asked again."""
        await self.delete(login)

    async def delete(self, only: Login | None = None) -> Login | None:
        """Delete the login, or only this one. Returns what was deleted. Raises OAuthUnreachableError."""

        def drop(tables: RunTables) -> Login | None:
            tables.lock(LOGIN, *self._of)
            known = self._login(tables.get(LOGIN, *self._of))
            if known is None or only not in (None, known):
                return None
            tables.drop(LOGIN, *self._of)
            return known

        with _store_errors():
            return await self._store.write(drop, is_lasting=True)

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        own, seen, since = secrets.token_bytes(16), b"", anyio.current_time()
        try:
            with _store_errors():
                while True:
                    is_stale = anyio.current_time() - since >= LEASE_SECONDS
                    holder = await self._store.write(partial(self._take, own, seen if is_stale else None))
                    if holder == own:
                        break
                    if holder != seen:
                        seen, since = holder, anyio.current_time()
                    await anyio.sleep(_PAUSE_SECONDS)
            yield
        finally:
            with anyio.CancelScope(shield=True), _store_errors():
                await self._store.write(partial(self._release, own))

    def _take(self, own: bytes, stale: bytes | None, tables: RunTables) -> bytes:
        """Take the lock if it is free or `stale`. Returns the mark of its holder now."""
        tables.lock(_LOCK, *self._of)
        holder = tables.get(_LOCK, *self._of)
        if holder and holder != stale:
            return holder
        tables.put(_LOCK, *self._of, own)
        return own

    def _release(self, own: bytes, tables: RunTables) -> None:
        if tables.get(_LOCK, *self._of) == own:
            tables.drop(_LOCK, *self._of)

    def _login(self, content: bytes | None) -> Login | None:
        try:
            login = None if content is None else Login.model_validate_json(content)
        except ValidationError:
            return None
        return login if login is not None and self._url in (None, login.url) else None


@contextmanager
def _store_errors() -> Iterator[None]:
    try:
        yield
    except StoreError:
        raise OAuthUnreachableError("the store of runs cannot be used; the portal's log says why") from None
