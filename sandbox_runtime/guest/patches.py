"""What CPython on WASI lacks: threads, locks that wait, and sleeping in the host instead of in the engine."""

import _thread
import asyncio
import concurrent.futures
import concurrent.futures.thread
import math
import queue
import select
import selectors
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn

from sandbox_runtime.guest.errors import DeadlockError

_DEADLOCK = (
    "the script waits for a lock, an event or a queue that only another thread could free, and there is none"
)


def install() -> None:
    """Let whatever waits do it with `time.sleep`. WASI's own wait ends the run."""
    _install_futures()
    _install_locks()
    select.select = _select_of(select.select)
    del select.poll
    selectors.DefaultSelector = selectors.SelectSelector  # type: ignore[misc,assignment]
    selectors.SelectSelector._select = staticmethod(select.select)  # type: ignore[attr-defined]
    for module in (concurrent.futures, concurrent.futures.thread):
        vars(module)["ThreadPoolExecutor"] = InlineExecutor


class InlineExecutor(concurrent.futures.Executor):
    """Stands in for `ThreadPoolExecutor`: the work is done at once, where it is handed in."""

    def __init__(self, max_workers: int | None = None, *_: object, **__: object) -> None:
        self._max_workers = max_workers

    def submit(
        self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> "concurrent.futures.Future[Any]":
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001  # the script's own error, handed back through its future
            future.set_exception(error)
        return future


class _Task(asyncio.Task):  # type: ignore[type-arg]  # the C class takes no arguments at run time here
    __slots__ = ()


_Task.__module__, _Task.__name__, _Task.__qualname__ = asyncio.Task.__module__, "Task", "Task"


def _install_futures() -> None:
    """Let tasks, and what `asyncio.gather` gives, say that they were not awaited.

    Python's give nothing when they are done and iterated: a script that forgot an `await` would go on with no rows.
    """
    names: dict[str, Any] = vars(asyncio.tasks)
    names["Task"] = asyncio.Task = _Task  # type: ignore[misc]
    _refuse_uses(_Task, "the task was not awaited: write `await` before it")
    _refuse_uses(
        names["_GatheringFuture"], "`asyncio.gather(...)` was not awaited: write `await asyncio.gather(...)`"
    )


def _refuse_uses(future: Any, message: str) -> None:
    def refuse(_: object, *__: object) -> NoReturn:
        raise TypeError(message)

    for name in ("__iter__", "__getitem__", "__len__", "__contains__"):
        setattr(future, name, refuse)
    future.__bool__ = lambda _: True  # or its length would be asked for


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
            time.sleep(timeout)
        return False

    def release(self) -> None:
        self._lock.release()

    def locked(self) -> bool:
        return self._lock.locked()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def __repr__(self) -> str:
        return repr(self._lock)


_Lock.__module__, _Lock.__name__, _Lock.__qualname__ = "_thread", "lock", "lock"


def _install_locks() -> None:
    """Let events, conditions, semaphores and queues wait with `time.sleep`: all stand on this lock.

    Whoever waits is the only thread there is, so nobody lets go of a lock meanwhile: a wait has its full time.
    """
    names: dict[str, Any] = vars(threading)
    names["Lock"] = names["_allocate_lock"] = _Lock
    # The native one has a lock of its own inside.
    queue.SimpleQueue = queue._PySimpleQueue  # type: ignore[attr-defined,misc]


def _select_of(original: Callable[..., Any]) -> Callable[..., Any]:
    def select_in_host(
        rlist: Any, wlist: Any, xlist: Any, timeout: float | None = None, /
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Wait, as scripts do that call `select` without files. What files there are, are always ready."""
        if rlist or wlist:
            return original(rlist, wlist, ())  # type: ignore[no-any-return]
        time.sleep(math.inf if timeout is None else timeout)
        return [], [], []

    return select_in_host
