"""`select.select` and `select.poll`, waiting in the host: the engine's own wait ends the run, even one of no time."""

import errno
import math
import os
import select
import selectors
from collections.abc import Callable
from typing import Any

_READY = select.POLLIN | select.POLLOUT
_ANY = _READY | select.POLLPRI

Sleep = Callable[[float], None]


def install(sleep: Sleep) -> None:
    """Let both sleep with `sleep`."""
    poll = _poll_of(sleep)
    select.select = _select_of(select.select, sleep)
    select.poll = poll  # type: ignore[misc,assignment]
    # It took the original when it was imported.
    selectors.PollSelector._selector_cls = poll  # type: ignore[attr-defined]


def _select_of(select: Callable[..., Any], sleep: Sleep) -> Callable[..., Any]:
    def select_in_host(
        rlist: Any, wlist: Any, xlist: Any, timeout: float | None = None, /
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Wait, as scripts do that call `select` without files. What files there are, are always ready."""
        if rlist or wlist:
            return select(rlist, wlist, ())  # type: ignore[no-any-return]
        sleep(math.inf if timeout is None else timeout)
        return [], [], []

    return select_in_host


def _poll_of(sleep: Sleep) -> type:
    class poll:  # noqa: N801  # as Python calls it
        """What files there are, are always ready; without one it only waits."""

        def __init__(self) -> None:
            self._asked: dict[int, int] = {}

        def register(self, fd: Any, eventmask: int = _ANY, /) -> None:
            self._asked[_number(fd)] = eventmask

        def modify(self, fd: Any, eventmask: int, /) -> None:
            number = _number(fd)
            if number not in self._asked:
                raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
            self._asked[number] = eventmask

        def unregister(self, fd: Any, /) -> None:
            del self._asked[_number(fd)]

        def poll(self, timeout: float | None = None, /) -> list[tuple[int, int]]:
            """`timeout` is in milliseconds; without one, or with a negative one, it has no end."""
            ready = [(number, asked & _READY) for number, asked in self._asked.items() if asked & _READY]
            if not ready:
                sleep(math.inf if timeout is None or timeout < 0 else timeout / 1000)
            return ready

    return poll


def _number(file: Any) -> int:
    return file if isinstance(file, int) else int(file.fileno())
