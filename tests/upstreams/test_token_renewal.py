"""When tokens of OAuth are renewed, when somebody has to sign in again, and when it is only a matter of waiting."""

import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import keyring
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from manifests.json_value import Json
from manifests.portal_manifest import HttpUpstream
from tests.own_keyring import OwnKeyring
from tests.upstreams.oauth_peer import NAME, ProtectedServer, logged_in, saying
from tests.upstreams.peers import DEADLINE_SECONDS, open_fleet
from upstreams.errors import UpstreamError, UpstreamNeedsLoginError
from upstreams.fleet import login_store
from upstreams.oauth.tokens import OAuthTokens
from upstreams.redaction import Redaction

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("own_state")]


@asynccontextmanager
async def tokens_of(spec: HttpUpstream) -> AsyncIterator[OAuthTokens]:
    async with anyio.create_task_group() as tasks:
        yield OAuthTokens(NAME, spec, (), login_store(NAME, spec), Redaction(()), tasks.start_soon)
        tasks.cancel_scope.cancel()


async def test_token_that_expired_before_anybody_took_it_is_renewed_again(server: ProtectedServer) -> None:
    """The upstream was away for longer than the token lived."""
    server.authorization.expires_in = 0
    spec = server.spec()
    await logged_in(spec)
    async with tokens_of(spec) as kept:
        seen = [await kept.headers() for _ in range(3)]
    assert len({each["authorization"] for each in seen}) == 3
    assert server.authorization.grants == ["authorization_code", *["refresh_token"] * 3]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"error": "bad_refresh_token", "error_description": "expired"}, 200),  # as of GitHub
        ({"ok": False, "error": "invalid_refresh_token"}, 200),  # as of Slack
        ({"error": "invalid_grant"}, 400),
    ],
)
async def test_refused_refresh_token_needs_a_login_and_is_not_tried_again(
    server: ProtectedServer, body: Json, status: int
) -> None:
    asked = 0

    async def refuse(request: Request) -> Response:
        nonlocal asked
        asked += 1
        return JSONResponse(body, status_code=status)

    spec = server.spec()
    await logged_in(spec)
    server.authorization.answers["/token"] = refuse
    async with tokens_of(spec) as kept:
        for _ in range(3):
            with pytest.raises(UpstreamNeedsLoginError):
                await kept.renewed(await kept.headers())
    assert asked == 1


async def test_refusal_of_a_renewal_names_the_setting_that_mends_it(server: ProtectedServer) -> None:
    spec = server.spec()
    await logged_in(spec)
    server.authorization.answers["/token"] = saying({"error": "invalid_target"}, 400)
    async with tokens_of(spec) as kept:
        with pytest.raises(UpstreamNeedsLoginError, match="invalid_target") as caught:
            await kept.renewed(await kept.headers())
    assert "oauth.send_resource" in caught.value.remedy


@pytest.mark.parametrize(
    ("body", "status"), [({"error": "temporarily_unavailable"}, 200), ({"error": "server_error"}, 400)]
)
async def test_authorization_server_that_is_out_of_order_is_waited_for(
    server: ProtectedServer, body: Json, status: int
) -> None:
    spec = server.spec()
    await logged_in(spec)
    async with tokens_of(spec) as kept:
        server.authorization.answers["/token"] = saying(body, status)
        with pytest.raises(UpstreamError) as caught:
            await kept.renewed(await kept.headers())
        assert not isinstance(caught.value, UpstreamNeedsLoginError)
        del server.authorization.answers["/token"]
        assert await kept.renewed(await kept.headers())


async def test_login_at_another_server_than_the_manifest_names_is_none(server: ProtectedServer) -> None:
    await logged_in(server.spec())
    async with tokens_of(server.spec(issuer="https://other.example")) as kept:
        with pytest.raises(UpstreamNeedsLoginError):
            await kept.headers()
    async with tokens_of(server.spec(issuer=server.authorization.issuer)) as kept:
        assert await kept.headers()
    assert server.authorization.grants == ["authorization_code"]


class LockedKeyring(OwnKeyring):
    """Waits for its owner, as one does that is locked."""

    def __init__(self) -> None:
        super().__init__()
        self.is_asked = threading.Event()
        self.is_unlocked = threading.Event()
        self.is_waiting = False

    def get_password(self, service: str, username: str) -> str | None:
        self.is_waiting = True
        self.is_asked.set()
        self.is_unlocked.wait(DEADLINE_SECONDS)
        self.is_waiting = False
        return super().get_password(service, username)


@pytest.fixture
def locked_keyring(own_keyring: OwnKeyring) -> Iterator[LockedKeyring]:
    locked = LockedKeyring()
    keyring.set_keyring(locked)
    yield locked
    locked.is_unlocked.set()


async def test_keyring_that_is_locked_does_not_keep_a_portal_from_stopping(
    server: ProtectedServer, locked_keyring: LockedKeyring
) -> None:
    spec = server.spec(keep_in="keyring")
    async with open_fleet({NAME: spec}, Path(), lambda upstream: None):
        await anyio.to_thread.run_sync(locked_keyring.is_asked.wait, DEADLINE_SECONDS)
    assert locked_keyring.is_waiting, "and the portal did not wait for it"
