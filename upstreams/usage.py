"""How an upstream's connection is used."""

from collections.abc import Iterator
from contextlib import contextmanager

import anyio

from upstreams.errors import UpstreamTimeoutError


class Usage:
    """Who uses it now, how many calls were answered, and whether one waited in vain."""

    def __init__(self) -> None:
        self.answers = 0
        self._users = 0
        self._last_used = anyio.current_time()
        self._doubted = anyio.Event()

    @contextmanager
    def one_call(self) -> Iterator[None]:
        """Around one call."""
        self._users += 1
        try:
            yield
            self.answers += 1
        except UpstreamTimeoutError:
            self._doubted.set()
            raise
        finally:
            self._users -= 1
            self._last_used = anyio.current_time()

    async def doubt(self) -> None:
        """Return when a call met its deadline; those that did while nobody waited count as one."""
        await self._doubted.wait()
        self._doubted = anyio.Event()

    async def idleness(self, seconds: float) -> None:
        """Return when nobody has used it for so long."""
        while True:
            idle_seconds = 0.0 if self._users else anyio.current_time() - self._last_used
            if idle_seconds >= seconds:
                return
            await anyio.sleep(seconds - idle_seconds)
