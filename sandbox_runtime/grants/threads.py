"""Threads for work that may hang: a disk, a name server."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_Done = TypeVar("_Done")


class Threads:
    """At most so many of them, whatever becomes of those who wait.

    Who gives up waiting leaves the thread behind; it is free again when its work ends, and not before. Otherwise a
    script could leave behind as many as it likes.
    """

    def __init__(self, most: int) -> None:
        self._executor = ThreadPoolExecutor(most, thread_name_prefix="grants")

    async def run(self, work: Callable[[], _Done]) -> _Done:
        """What the work returns or raises. Waits for a free thread."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)
