"""Logins of people in the store of runs: replicas renew each once, and lose none."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from manifests.json_value import Json
from portal.identity import accounts
from portal.identity.accounts import PersonLogins, open_login
from tests.portal.peers import opened
from tests.portal.rows import Tables, store_of
from tests.postgres import Postgres
from tests.upstreams.oauth_peer import NAME, ProtectedServer, signed_in
from tests.upstreams.peers import DEADLINE_SECONDS
from upstreams.oauth.authorization_server import OAuthError
from upstreams.oauth.tokens import OAuthTokens
from upstreams.redaction import Redaction


@asynccontextmanager
async def replicas(tables: Tables, server: ProtectedServer) -> AsyncIterator[list[PersonLogins]]:
    """The same person's login, as two portals see it."""
    async with store_of(tables) as one, store_of(tables) as other:
        yield [PersonLogins(store, NAME, server.url, "x//ann") for store in (one, other)]


async def test_two_replicas_renew_a_login_once(tables: Tables, server: ProtectedServer) -> None:
    spec = server.spec()
    async with replicas(tables, server) as both, anyio.create_task_group() as tasks:
        await both[0].save(await signed_in(spec))
        tokens = [OAuthTokens(NAME, spec, (), each, Redaction(()), tasks.start_soon) for each in both]
        before = [await each.headers() for each in tokens]
        assert before[0] == before[1]
        for _ in range(3):
            old = [await each.headers() for each in tokens]
            server.authorization.expire()
            async with anyio.create_task_group() as renewing:
                for each, refused in zip(tokens, old, strict=True):
                    renewing.start_soon(each.renewed, refused)
            new = [await each.headers() for each in tokens]
            assert new[0] == new[1] != old[0]
            for each in tokens:
                each.accepted(new[0])
        assert server.authorization.grants.count("refresh_token") == 3
        assert "reuse" not in server.authorization.grants


async def test_late_replica_takes_the_login_that_another_one_kept(
    tables: Tables, server: ProtectedServer
) -> None:
    async with replicas(tables, server) as (one, other):
        first, second, third = [await signed_in(server.spec()) for _ in range(3)]
        await one.save(first)
        assert await one.replace(first, second) == second
        assert await other.replace(first, third) == second
        assert await other.load() == second
        assert await other.delete(first) is None
        assert await other.delete() == second
        with pytest.raises(OAuthError):
            await one.replace(second, third)
        assert await one.load() is None


async def test_login_of_another_url_or_person_is_none(tables: Tables, server: ProtectedServer) -> None:
    async with replicas(tables, server) as (one, other):
        await one.save(await signed_in(server.spec()))
        store = other._store
        for upstream, url, owner in (
            (NAME, f"{server.url}/other", "x//ann"), (NAME, server.url, "y//ann"), ("other", server.url, "x//ann"),
        ):  # fmt: skip
            assert await PersonLogins(store, upstream, url, owner).load() is None
        assert await other.load() is not None


async def test_lock_of_a_replica_that_died_is_taken(
    tables: Tables, server: ProtectedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with replicas(tables, server) as (one, other):
        await one._store.write(lambda file: file.put("login lock", "x//ann", NAME, b"of a dead one"))
        monkeypatch.setattr(accounts, "LEASE_SECONDS", 0.3)
        with anyio.fail_after(DEADLINE_SECONDS):
            async with other.locked():
                pass
            async with one.locked():
                pass


@pytest.mark.servers
async def test_what_the_operator_signs_in_to_is_used_by_every_replica(
    postgres: Postgres, server: ProtectedServer, tmp_path: Path
) -> None:
    upstream: Json = {"url": server.url, "oauth": {}}
    runs: Json = {"store": postgres.new_database(), "key": "a-key-of-the-tests-0123"}
    spec = server.spec()
    async with opened(tmp_path, {NAME: upstream}, runs=runs) as portal:
        async with open_login(portal.portal.manifest, NAME, spec) as store, store.locked():
            await store.save(await signed_in(spec))
        with anyio.fail_after(DEADLINE_SECONDS):
            while not portal.portal.fleet[NAME].state.is_well:  # noqa: ASYNC110
                await anyio.sleep(0.05)
        assert portal.portal.fleet[NAME].tools
