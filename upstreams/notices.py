"""What has no answer, sent in the background of a connection: nobody waits for a server that does not take it."""

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
from anyio.abc import TaskGroup

from upstreams.diagnostics import Diagnostics

NOTICE_SECONDS: Final = 2.0
"""How long one may take. A server that hangs reads it all the same when it goes on, if there is room for it."""

SENT_AT_ONCE: Final = 16
MAX_WAITING: Final = 1_000
"""Of one connection and of each kind; one more is dropped."""


class Notices:
    """Those of one kind, so that no reply waits behind cancellations. They end with `tasks`."""

    def __init__(self, tasks: TaskGroup, diagnostics: Diagnostics) -> None:
        self._tasks = tasks
        self._diagnostics = diagnostics
        self._waiting: deque[Callable[[], Awaitable[object]]] = deque()
        self._being_sent = 0

    def send(self, send: Callable[[], Awaitable[object]]) -> None:
        """Have `send` called soon; it raises nothing."""
        if self._being_sent < SENT_AT_ONCE:
            self._being_sent += 1
            self._tasks.start_soon(self._work, send)
        elif len(self._waiting) < MAX_WAITING:
            self._waiting.append(send)
        else:
            self._diagnostics.note("takes notifications and replies so slowly that some were not sent")

    async def _work(self, send: Callable[[], Awaitable[object]]) -> None:
        try:
            while True:
                with anyio.move_on_after(NOTICE_SECONDS):
                    await send()
                if not self._waiting:
                    return
                send = self._waiting.popleft()
        finally:
            self._being_sent -= 1
