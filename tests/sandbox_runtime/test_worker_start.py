"""Where the machine has no more open files, processes or threads for a worker, as long as it has none."""

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from sandbox_runtime.errors import WorkerStartError
from sandbox_runtime.launchers import SpawnLauncher
from sandbox_runtime.sandbox import open_sandbox

pytestmark = pytest.mark.anyio

DEADLINE_SECONDS = 20.0
SHORTAGES = [
    OSError(errno.EMFILE, os.strerror(errno.EMFILE), "/srv/portal"),
    BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)),
    RuntimeError("can't start new thread"),
]


class ShortLauncher(SpawnLauncher):
    """Starts nothing while there is a `shortage`."""

    shortage: Exception | None = None

    def __init__(self, compiled: Path) -> None:
        super().__init__(compiled)
        self.refused = anyio.Event()

    async def launch(self, end: socket.socket) -> Callable[[], None]:
        if self.shortage is not None:
            self.refused.set()
            raise self.shortage
        return await super().launch(end)


class Launchers:
    """Makes them, and keeps them."""

    def __init__(self) -> None:
        self.made: list[ShortLauncher] = []
        self.shortage: Exception | None = None

    def __call__(self, compiled: Path) -> ShortLauncher:
        self.made.append(ShortLauncher(compiled))
        self.made[-1].shortage = self.shortage
        return self.made[-1]


@pytest.mark.parametrize("shortage", SHORTAGES, ids=lambda error: type(error).__name__)
async def test_session_that_finds_no_room_says_what_is_missing_and_the_next_one_starts(
    shortage: Exception,
) -> None:
    launchers = Launchers()
    async with open_sandbox(workers=1, progress=print, launch=launchers) as sandbox:
        launchers.made[0].shortage = shortage
        with pytest.raises(WorkerStartError) as caught:
            await sandbox.open_session()
        assert str(caught.value) in str(shortage)
        assert "/srv" not in str(caught.value)
        launchers.made[0].shortage = None
        (await sandbox.open_session()).close()
