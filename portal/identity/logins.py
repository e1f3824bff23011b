"""The login of one person at one upstream, in the store of runs."""

import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Final

import anyio
import anyio.to_thread
from pydantic import ValidationError

from manifests.manifest import Manifest
from manifests.portal_manifest import HttpUpstream
from portal.records.store.places import open_store, place_of
from portal.records.store.records import StoreError
from portal.records.store.run_tables import RunTables
from portal.records.store.writer import RunStore
from upstreams.fleet import login_store
from upstreams.oauth.authorization_server import OAuthUnreachableError
from upstreams.oauth.tokens import Login, LoginEndedError, LoginStore
from upstreams.people import PORTAL

LOGIN: Final = "login"
_LOCK: Final = "login lock"

LEASE_SECONDS: Final = 15.0
"""A lock that did not change for so long is taken: longer than the longest refresh. No clocks are compared."""

_PAUSE_SECONDS: Final = 0.1


@asynccontextmanager
async def open_login(
    manifest: Manifest, name: str, spec: HttpUpstream
) -> "AsyncIterator[PersonLogins | LoginStore]":
    """The portal's own login at an upstream: in a file or the keyring; in the store of runs if machines share that.

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
    """Implements `upstreams.oauth.tokens.Logins` for all portals with one store. Without a `url` it is any upstream of
    that name: only to delete the login.
    """

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
        """Delete it, so that the person is asked again."""
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
        """Who holds the lock from now on."""
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
