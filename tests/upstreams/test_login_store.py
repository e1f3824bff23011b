"""Where tokens are kept: for their owner alone, whole, and for one upstream."""

import json
import os
import stat
from pathlib import Path

import anyio
import pytest

from tests.own_keyring import OwnKeyring
from upstreams.oauth import tokens as module
from upstreams.oauth.authorization_server import Client, OAuthError, OAuthUnreachableError
from upstreams.oauth.tokens import Login, LoginStore

pytestmark = pytest.mark.anyio

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


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"format": 2}', "\x00", json.dumps({"url": URL}), "[" * 100_000]
)
async def test_file_that_makes_no_sense_is_none(tmp_path: Path, text: str) -> None:
    await store(tmp_path).save(LOGIN)
    (file,) = files(tmp_path)
    file.write_text(text)
    assert await store(tmp_path).load() is None


@pytest.mark.parametrize("mode", [0o640, 0o604])
async def test_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    await store(tmp_path).save(LOGIN)
    (file,) = files(tmp_path)
    file.chmod(mode)
    with pytest.raises(OAuthError):
        await store(tmp_path).load()


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
