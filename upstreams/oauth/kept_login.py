"""The login of one upstream as a running portal knows it: the one in the store, or a newer one not kept there yet."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Final, TypeAlias

import anyio
import structlog

from upstreams.oauth.errors import OAuthError
from upstreams.oauth.login import Login
from upstreams.oauth.login_store import LoginStore

log = structlog.get_logger()

SAVE_PAUSE_SECONDS: Final = 5.0

StartTask: TypeAlias = Callable[..., object]
"""As a task group's `start_soon`, of one that lives as long as the upstream."""


class KeptLogin:
    """A refresh token is often good for one refresh, so what came of it is not let go of because a disk is full.

    It stays in memory, and takes the place of the one that it was renewed from and of no other: somebody may have
    signed in or out meanwhile.
    """

    def __init__(self, name: str, store: LoginStore, start: StartTask) -> None:
        self._name = name
        self._store = store
        self._start = start
        self._stored: Login | None = None
        """What was in the store when it was last looked at."""
        self._unsaved: Login | None = None
        self._is_waiting = False

    def locked(self) -> AbstractAsyncContextManager[None]:
        """As of the store; `load` and `save` are called within."""
        return self._store.locked()

    async def load(self) -> Login | None:
        """The login; None if there is none that is of use.

        Raises:
            OAuthError: As of the store.
        """
        stored = await self._store.load()
        if self._unsaved is not None and stored == self._stored:
            return self._unsaved
        self._stored, self._unsaved = stored, None
        return stored

    async def save(self, login: Login) -> None:
        """Keep it in place of what was loaded. Where that fails, it is tried again and again."""
        self._unsaved = login
        try:
            await self._store_unsaved(login)
        except OAuthError as error:
            log.warning("login_not_kept", upstream=self._name, reason=str(error))
            if not self._is_waiting:
                self._is_waiting = True
                self._start(self._save_later)

    async def _save_later(self) -> None:
        while self._unsaved is not None:
            await anyio.sleep(SAVE_PAUSE_SECONDS)
            # An OSError is of a lock: whatever the disk does, it must not end what this runs within.
            with suppress(OAuthError, OSError):
                async with self.locked():
                    login = await self.load()
                    if login is not None and login is self._unsaved:
                        await self._store_unsaved(login)
                        log.info("login_kept", upstream=self._name)
        self._is_waiting = False

    async def _store_unsaved(self, login: Login) -> None:
        await self._store.save(login)
        self._stored, self._unsaved = login, None
