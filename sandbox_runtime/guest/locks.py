"""The locks of `threading`, waiting in the host: the engine's own neither wait nor come back.

Whoever waits is the only thread there is, so nobody lets go of a lock meanwhile: a wait has its full time, or no end.
"""

import _thread
import queue
import threading
from collections.abc import Callable
from typing import Any

from sandbox_runtime.guest.deadlock_error import DeadlockError

_DEADLOCK = (
    "the script waits for a lock, an event or a queue that only another thread could free, and there is none"
)


def install(sleep: Callable[[float], None]) -> None:
    """Let events, conditions, semaphores, queues and futures wait with `sleep`: all stand on this lock."""

    class lock(_Lock):  # noqa: N801  # as Python calls it
        __module__ = "_thread"
        __slots__ = ()

        def wait(self, seconds: float) -> None:
            sleep(seconds)

    names: dict[str, Any] = vars(threading)
    names["Lock"] = names["_allocate_lock"] = lock
    # The native one has a lock of its own inside.
    queue.SimpleQueue = queue._PySimpleQueue  # type: ignore[attr-defined,misc]


class _Lock:
    """A lock that can be held once."""

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self._lock = _thread.allocate_lock()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if blocking and timeout == -1 and self._lock.locked():
            raise DeadlockError(_DEADLOCK)
        if self._lock.acquire(blocking, timeout):
            return True
        if timeout > 0:
            self.wait(timeout)
        return False

    def release(self) -> None:
        self._lock.release()

    def locked(self) -> bool:
        return self._lock.locked()

    def wait(self, seconds: float) -> None:
        raise NotImplementedError

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def __repr__(self) -> str:
        return repr(self._lock)
