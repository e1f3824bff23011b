"""Where the tokens of one upstream are kept, for this portal and all others of the same user."""

import fcntl
import hashlib
import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Final, Literal

import anyio
import anyio.to_thread
from pydantic import ValidationError

from manifests.references import SecretError
from manifests.whole_file import write_whole
from upstreams.oauth.errors import OAuthError, OAuthUnreachableError
from upstreams.oauth.login import Login
from upstreams.system_keyring import drop_from_keyring, keep_in_keyring, keyring_password

MAX_LOGIN_BYTES: Final = 1024 * 1024
LOCK_SECONDS: Final = 15.0
_LOCK_PAUSE_SECONDS: Final = 0.05
_SERVICE: Final = "mcp-code-portal"


class LoginStore:
    """One login: a file that only its owner can read (mode 0600), or an entry of the system keyring.

    It belongs to an upstream's name and URL together: under another URL there is none.
    """

    def __init__(self, folder: Path, name: str, url: str, keep_in: Literal["file", "keyring"]) -> None:
        self._folder = folder
        self._url = url
        self._key = hashlib.sha256(json.dumps([name, url]).encode("utf-8", "surrogatepass")).hexdigest()
        self._file = folder / f"{self._key}.json"
        self._is_file = keep_in == "file"

    async def load(self) -> Login | None:
        """The login; None if there is none that is of use.

        Raises:
            OAuthError: There may be one that others can read, or that cannot be got at.
        """
        # A keyring that is locked waits for its owner: nobody else has to.
        return await anyio.to_thread.run_sync(self._load, abandon_on_cancel=True)

    async def save(self, login: Login) -> None:
        """Keep it in place of the one before: whole, or not at all.

        Raises:
            OAuthError: It cannot be kept.
        """
        await anyio.to_thread.run_sync(self._save, login.model_dump_json())

    async def delete(self) -> None:
        """Keep none any more.

        Raises:
            OAuthError: It is still there.
        """
        await anyio.to_thread.run_sync(self._delete, abandon_on_cancel=True)

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """Alone among all portals of the user: a refresh token that two of them use may be the end of both.

        Raises:
            OAuthUnreachableError: Another holds it for longer than a refresh can take.
        """
        with _explained():
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(
                self._file.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
            )
        try:
            await _lock(descriptor)
            yield
        finally:
            os.close(descriptor)

    def _load(self) -> Login | None:
        content = self._content()
        if content is None:
            return None
        try:
            login = Login.model_validate_json(content)
        except ValidationError:
            return None
        return login if login.url == self._url else None

    def _content(self) -> str | bytes | None:
        with _explained():
            if not self._is_file:
                return keyring_password(_SERVICE, self._key)
            try:
                descriptor = os.open(self._file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
            except FileNotFoundError:
                return None
            with os.fdopen(descriptor, "rb") as file:
                status = os.fstat(descriptor)
                if status.st_uid != os.geteuid() or status.st_mode & 0o077:
                    raise OAuthError("the file of its tokens is not its owner's alone; log out, and in again")
                return file.read(MAX_LOGIN_BYTES)

    def _save(self, text: str) -> None:
        with _explained():
            if self._is_file:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                write_whole(self._file, text.encode())
            else:
                keep_in_keyring(_SERVICE, self._key, text)

    def _delete(self) -> None:
        with _explained():
            if not self._is_file:
                drop_from_keyring(_SERVICE, self._key)
            with suppress(FileNotFoundError):
                self._file.unlink()


async def _lock(descriptor: int) -> None:
    deadline = anyio.current_time() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if anyio.current_time() >= deadline:
                raise OAuthUnreachableError(
                    "another portal is renewing its tokens and does not end"
                ) from None
            await anyio.sleep(_LOCK_PAUSE_SECONDS)
        else:
            return


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except SecretError as error:
        raise OAuthError(f"{error}. {error.hint}".rstrip()) from None
    except OSError as error:
        raise OAuthError(f"its tokens cannot be kept or read: {error.strerror or 'unknown reason'}") from None
