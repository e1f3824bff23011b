"""The file operations of one run: they travel as calls do, and what the manifest grants answers them."""

import asyncio
from collections import deque
from collections.abc import Callable

from sandbox_runtime.frames import FrameError
from sandbox_runtime.grants.file_service import NOT_GRANTED, FileAnswer, FileService

PREFIX = b"portal.files."
"""How their functions are called; no namespace of a library is called `portal`."""

_MAX_WAITING = 1000
_MAX_WAITING_BYTES = 64 << 20


class FileCalls:
    """One after the other, in the order in which the guest made them. An honest guest has one under way at a time."""

    def __init__(
        self,
        service: FileService | None,
        answer: Callable[[int, FileAnswer], None],
        is_congested: Callable[[], bool],
        fail: Callable[[BaseException], None],
    ) -> None:
        """`answer` takes a call's number and what it came to; `fail` what should not have happened."""
        self._service = service
        self._answer = answer
        self._is_congested = is_congested
        self._fail = fail
        self._waiting: deque[tuple[int, str, memoryview]] = deque()
        self._waiting_bytes = 0
        self._running: asyncio.Task[None] | None = None
        self.refused = 0
        """Operations that were not even tried."""

    def accept(self, identity: int, function: bytes, arguments: memoryview) -> None:
        """Take a call.

        Raises:
            FrameError: No honest guest would have made it.
        """
        is_too_much = self._waiting_bytes + len(arguments) > _MAX_WAITING_BYTES
        if len(self._waiting) >= _MAX_WAITING or (self._waiting and is_too_much):
            raise FrameError("too many file operations at once")
        self._waiting_bytes += len(arguments)
        self._waiting.append((identity, function[len(PREFIX) :].decode("ascii", "replace"), arguments))

    def go_on(self) -> None:
        """Begin the next one, if it can begin."""
        if self._running is None and self._waiting and not self._is_congested():
            operation = self._waiting.popleft()
            self._waiting_bytes -= len(operation[2])
            self._running = asyncio.get_running_loop().create_task(self._perform(*operation))
            self._running.add_done_callback(self._ended)

    def stop(self) -> bool:
        """Forget what waits and cancel what runs; True if that has to be awaited."""
        self._waiting.clear()
        if self._running is not None:
            self._running.cancel()
        return self._running is not None

    async def ended(self) -> None:
        """Wait until nothing runs any more."""
        if self._running is not None:
            await asyncio.wait([self._running])

    async def _perform(self, identity: int, operation: str, arguments: memoryview) -> None:
        answer = NOT_GRANTED if self._service is None else await self._service(operation, arguments)
        self.refused += bool(answer.code)
        self._answer(identity, answer)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._running = None
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)
        self.go_on()
