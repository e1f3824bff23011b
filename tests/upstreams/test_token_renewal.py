"""Where tokens of OAuth are kept: for their owner alone, whole, and for one upstream. When they are renewed, when
somebody has to sign in again, and when it is only a matter of waiting.
"""

import json
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import anyio
import anyio.to_thread
import keyring
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from manifests.json_value import Json
from tests.own_keyring import OwnKeyring
from tests.upstreams.oauth_peer import NAME, ProtectedServer, headers_of, logged_in, saying, tokens_of
from tests.upstreams.peers import DEADLINE_SECONDS, open_fleet
from upstreams.errors import UpstreamError, UpstreamNeedsLoginError
from upstreams.oauth import tokens as module
from upstreams.oauth.authorization_server import Client, OAuthError, OAuthUnreachableError
from upstreams.oauth.documents import Token
from upstreams.oauth.tokens import Login, LoginStore

pytestmark = pytest.mark.usefixtures("own_state")


async def test_token_that_expired_before_anybody_took_it_is_renewed_again(server: ProtectedServer) -> None:
    """The upstream was away for longer than the token lived."""
    server.authorization.expires_in = 0
    spec = server.spec()
    first = await logged_in(spec)
    async with tokens_of(spec) as kept:
        seen = {(await kept.headers())["authorization"] for _ in range(3)}
    assert len({*seen, f"Bearer {first.access_token}"}) == 4
    assert server.authorization.grants == ["authorization_code", *["refresh_token"] * 3]


async def test_refused_refresh_token_needs_a_login(server: ProtectedServer) -> None:
    refusals: list[tuple[Json, int]] = [
        ({"error": "bad_refresh_token", "error_description": "expired"}, 200),  # as of GitHub
        ({"ok": False, "error": "invalid_refresh_token"}, 200),  # as of Slack
        ({"error": "invalid_grant"}, 400),
    ]

    async def refuse(request: Request) -> Response:
        body, status = refusals.pop(0)
        return JSONResponse(body, status_code=status)

    spec = server.spec()
    await logged_in(spec)
    server.authorization.answers["/token"] = refuse
    for left in (2, 1, 0):
        async with tokens_of(spec) as kept:
            for _ in range(3):
                with pytest.raises(UpstreamNeedsLoginError):
                    await kept.renewed(await kept.headers())
        assert len(refusals) == left, "it is asked once"


async def test_refusal_of_a_renewal_names_the_setting_that_mends_it(server: ProtectedServer) -> None:
    spec = server.spec()
    await logged_in(spec)
    server.authorization.answers["/token"] = saying({"error": "invalid_target"}, 400)
    async with tokens_of(spec) as kept:
        with pytest.raises(UpstreamNeedsLoginError, match="invalid_target") as caught:
            await kept.renewed(await kept.headers())
    assert "oauth.send_resource" in caught.value.remedy


async def test_authorization_server_out_of_order_is_waited_for(server: ProtectedServer) -> None:
    spec = server.spec()
    await logged_in(spec)
    async with tokens_of(spec) as kept:
        for error, status in ("", 503), ("temporarily_unavailable", 200), ("server_error", 400):
            server.authorization.answers["/token"] = saying({"error": error}, status)
            with pytest.raises(UpstreamError) as caught:
                await kept.renewed(await kept.headers())
            assert caught.value.outcome == "not_started"
            assert not isinstance(caught.value, UpstreamNeedsLoginError)
        del server.authorization.answers["/token"]
        assert await kept.renewed(await kept.headers())


async def test_login_at_another_server_than_the_manifest_names_is_none(server: ProtectedServer) -> None:
    await logged_in(server.spec())
    async with tokens_of(server.spec(issuer="https://other.example")) as kept:
        with pytest.raises(UpstreamNeedsLoginError):
            await kept.headers()
    assert await headers_of(server.spec(issuer=server.authorization.issuer))
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


async def test_portal_stops_though_the_keyring_is_locked(
    server: ProtectedServer, locked_keyring: LockedKeyring
) -> None:
    spec = server.spec(keep_in="keyring")
    async with open_fleet({NAME: spec}, Path(), lambda upstream: None):
        await anyio.to_thread.run_sync(locked_keyring.is_asked.wait, DEADLINE_SECONDS)
    assert locked_keyring.is_waiting, "and the portal did not wait for it"


URL = "https://tickets.example/mcp"
LOGIN = Login(
    url=URL,
    issuer="https://login.example",
    token_endpoint="https://login.example/token",
    resource=URL,
    client=Client(client_id="portal", client_secret="canary-secret"),
    access_token="canary-access",
    refresh_token="canary-refresh",
    obtained_at=1.0,
)


def files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def store(folder: Path, name: str = "tickets", url: str = URL) -> LoginStore:
    return LoginStore(folder, name, url, "file")


async def test_login_is_kept_for_its_owner_alone_whatever_the_file_mask_says(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        async with store(tmp_path / "logins").locked():
            await store(tmp_path / "logins").save(LOGIN)
    finally:
        os.umask(before)
    assert await store(tmp_path / "logins").load() == LOGIN
    modes = {path.suffix: stat.S_IMODE(path.stat().st_mode) for path in files(tmp_path / "logins")}
    assert modes == {".json": 0o600, ".lock": 0o600}
    assert stat.S_IMODE((tmp_path / "logins").stat().st_mode) == 0o700


async def test_login_belongs_to_its_name_and_its_url(tmp_path: Path) -> None:
    await store(tmp_path).save(LOGIN)
    assert await store(tmp_path, name="other").load() is None
    assert await store(tmp_path, url="https://other.example/mcp").load() is None


async def test_file_that_makes_no_sense_is_none(tmp_path: Path) -> None:
    await store(tmp_path).save(LOGIN)
    (file,) = files(tmp_path)
    for text in ("", "[]", '{"format": 2}', "\x00", json.dumps({"url": URL}), "[" * 100_000):
        file.write_text(text)
        assert await store(tmp_path).load() is None


@pytest.mark.parametrize("mode", [0o640, 0o604])
async def test_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    await store(tmp_path).save(LOGIN)
    (file,) = files(tmp_path)
    file.chmod(mode)
    with pytest.raises(OAuthError):
        await store(tmp_path).load()


@pytest.mark.parametrize("refresh_token", ["r" * 16_385, "first line\nsecond"])
async def test_token_that_would_take_long_to_mask_is_refused(refresh_token: str) -> None:
    token = Token(access_token="a", refresh_token=refresh_token)
    with pytest.raises(OAuthUnreachableError):
        Login.of(token, LOGIN.model_dump())
    assert Login.of(Token(access_token="a", refresh_token="r" * 16_384), LOGIN.model_dump())


async def test_what_holds_tokens_does_not_show_them() -> None:
    assert "canary" not in repr(LOGIN) + str(LOGIN)


async def test_only_one_holds_a_login_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOCK_SECONDS", 0.1)
    async with store(tmp_path).locked():
        with pytest.raises(OAuthUnreachableError):
            async with store(tmp_path).locked():
                pytest.fail("two hold it")
        async with store(tmp_path, name="other").locked():
            pass
    with anyio.fail_after(10):
        async with store(tmp_path).locked():
            pass


async def test_login_in_the_keyring_is_in_no_file(tmp_path: Path, own_keyring: OwnKeyring) -> None:
    kept = LoginStore(tmp_path, "tickets", URL, "keyring")
    assert await kept.load() is None
    await kept.save(LOGIN)
    assert await kept.load() == LOGIN
    assert files(tmp_path) == []
    await kept.delete()
    await kept.delete()
    assert (await kept.load(), own_keyring.kept) == (None, {})
