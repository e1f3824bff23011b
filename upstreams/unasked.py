"""Keeps an upstream that talks without being asked from taking the portal's time from the others."""

from collections.abc import Callable
from typing import Any, Final, Self, TypeAlias

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCMessage, JSONRPCNotification, JSONRPCResponse

from upstreams.unasked_bytes import MeasuredMessage, UnaskedBytes

MESSAGES_A_SECOND: Final = 100.0
MESSAGES_AT_ONCE: Final = 20.0
DROPPED_AT_ONCE: Final = 10
DROPPED_PAUSE_SECONDS: Final = 0.004

Answer: TypeAlias = JSONRPCResponse | JSONRPCError


class UnaskedStream:
    """An upstream's messages, of which those that are no answers come at a hundred a second.

    Each of them costs the portal up to a millisecond, in which nobody else is served. Twenty may come at once. A
    request beyond that waits, and with it what the upstream says after it; a notification is dropped, and `on_excess`
    hears its method. An answer is dropped unless it `is_awaited`; where those are many, `on_excess` hears None. Each
    other one goes to `take_answer`, and no further if that takes it. `taken` says what a message stands for. Long ones
    are rested from, where it is known how long they are, unless such an answer `is_asked_for`: each call has one,
    and one that comes too late is not to hold up those of other calls.

    Source: the SDK's stream protocol, which has no public name.
    """

    def __init__(
        self,
        stream: Any,
        on_excess: Callable[[str | None], None],
        is_asked_for: Callable[[Answer], bool],
        is_awaited: Callable[[Answer], bool],
        take_answer: Callable[[Answer], bool] = lambda answer: False,
        taken: Callable[[JSONRPCMessage], JSONRPCMessage] = lambda message: message,
    ) -> None:
        self._stream = stream
        self._on_excess = on_excess
        self._is_asked_for = is_asked_for
        self._is_awaited = is_awaited
        self._take_answer = take_answer
        self._taken = taken
        self._left = MESSAGES_AT_ONCE
        self._dropped = 0
        self._as_of = anyio.current_time()
        self._bytes = UnaskedBytes()

    @property
    def last_context(self) -> Any:
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Any:
        while True:
            await self._bytes.rest()
            item = await self._stream.__anext__()
            text_bytes = item.text_bytes if isinstance(item, MeasuredMessage) else 0
            message = self._taken(item.message) if isinstance(item, SessionMessage) else None
            if message is not None and message is not item.message:
                item = SessionMessage(message, item.metadata)
            if isinstance(message, JSONRPCResponse | JSONRPCError):
                is_asked_for = self._is_asked_for(message)
                if not self._is_awaited(message):
                    self._bytes.note(0 if is_asked_for else text_bytes)
                    if await self._rest_from_dropping():
                        self._on_excess(None)
                elif not self._take_answer(message):
                    return item
                continue
            self._bytes.note(text_bytes)
            wait_seconds = self._wait_seconds()
            if wait_seconds <= 0:
                self._left -= 1
                if not _has_readable_numbers(message):
                    continue
                return item
            if isinstance(message, JSONRPCNotification):
                self._on_excess(message.method)
                await self._rest_from_dropping()
                continue
            await anyio.sleep(wait_seconds)
            self._left -= 1
            return item

    async def _rest_from_dropping(self) -> bool:
        """Whether it was time to: reading what is dropped takes time, too."""
        self._dropped += 1
        is_many = self._dropped % DROPPED_AT_ONCE == 0
        if is_many:
            await anyio.sleep(DROPPED_PAUSE_SECONDS)
        return is_many

    def _wait_seconds(self) -> float:
        """Until the next one may come."""
        now = anyio.current_time()
        self._left = min(MESSAGES_AT_ONCE, self._left + (now - self._as_of) * MESSAGES_A_SECOND)
        self._as_of = now
        return (1 - self._left) / MESSAGES_A_SECOND

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        return await self.receive()

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> bool | None:
        result: bool | None = await self._stream.__aexit__(*error)
        return result


def _has_readable_numbers(message: object) -> bool:
    """The SDK makes floats of what a notice of progress says; one that is too large would end the connection."""
    if not isinstance(message, JSONRPCNotification) or message.method != "notifications/progress":
        return True
    params = message.params or {}
    for number in (params.get("progress"), params.get("total")):
        if isinstance(number, int):
            try:
                float(number)
            except OverflowError:
                return False
    return True
