"""Spaces the requests for streams of events that broke off: the SDK makes them as fast as an upstream says, for ever.

Each of them for the answer to a call is one more level of the SDK's stack, which ends the connection when it is full.
"""

import asyncio
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakKeyDictionary

import anyio

MOST_RESUMPTIONS: Final = 100
"""How often the stream that was to bring an answer may break off; then the call is lost."""

PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 60.0
SOUND_SECONDS: Final = 10.0
"""Two requests for one stream are a second apart at least. Where no call waits for it, that doubles, up to a minute,
until a stream holds for ten seconds."""


class EventRequests:
    """Those of one connection."""

    def __init__(self) -> None:
        # The SDK has a task for each call, and one for the stream of what nobody asked for.
        self._of_tasks: WeakKeyDictionary[asyncio.Task[Any], _Requests] = WeakKeyDictionary()

    def begin_call(self) -> None:
        """This task sends a request whose answer may come as events."""
        self._of_tasks[_task()] = _Requests(last=anyio.current_time(), left=MOST_RESUMPTIONS)

    async def turn(self) -> bool:
        """Return when this task may ask for events; whether it may at all."""
        requests = self._of_tasks.setdefault(_task(), _Requests())
        if requests.left is not None:
            if not requests.left:
                return False
            requests.left -= 1
        wait_seconds = requests.wait_seconds(anyio.current_time())
        if wait_seconds > 0:
            await anyio.sleep(wait_seconds)
        requests.last = anyio.current_time()
        return True


@dataclass
class _Requests:
    """Those of one task; `left` is how many more there may be, of those of a call."""

    last: float | None = None
    left: int | None = None
    pause_seconds: float = 0.0

    def wait_seconds(self, now: float) -> float:
        """From now until the next."""
        if self.last is None:
            return 0.0
        self.pause_seconds = next_pause(self.pause_seconds, now - self.last, is_of_call=self.left is not None)
        return self.last + self.pause_seconds - now


def next_pause(pause_seconds: float, held_seconds: float, *, is_of_call: bool) -> float:
    """The least seconds between two requests, after these were and the last stream held so long."""
    if is_of_call or held_seconds >= SOUND_SECONDS or not pause_seconds:
        return PAUSE_SECONDS
    return min(2 * pause_seconds, LONGEST_PAUSE_SECONDS)


def _task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task
    return task
