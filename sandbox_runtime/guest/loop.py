"""An event loop that waits in the host: only timers and calls can wake a script."""

import _thread
import asyncio
import asyncio.base_events
import asyncio.events
import concurrent.futures
import concurrent.futures.thread
import contextlib
import math
import queue
import select
import selectors
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

from sandbox_runtime.guest.calls import Calls, DeadlockError
from sandbox_runtime.guest.tracebacks import describe

_POLLS_PER_EXCHANGE = 16
_DEADLOCK = "the script is deadlocked: no call, timer or other task is left to wake it"


class HostLoop(asyncio.base_events.BaseEventLoop):
    """The standard event loop on one blocking host function instead of a selector."""

    def __init__(self, calls: Calls) -> None:
        super().__init__()
        self._calls = calls
        self._selector = self
        self._polls = 0
        self._main: asyncio.Future[Any] | None = None
        self._is_deadlocked = False
        # A timer must not fire a clock step early.
        self._clock_resolution = 1e-9
        self._is_time_idle = False

    def drive(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine to its end, then cancel its remaining tasks, as `asyncio.run` does."""
        self._polls = 0  # so that a run exchanges at the same steps, whatever ran before it
        try:
            return self.run_until_complete(self.create_task(coroutine))
        finally:
            self._end_leftovers()

    def run_until_complete(self, future: Any) -> Any:
        outer, self._main = self._main, asyncio.ensure_future(future, loop=self)
        self._is_deadlocked = False
        try:
            return super().run_until_complete(self._main)
        except asyncio.CancelledError as error:
            if not self._is_deadlocked:
                raise
            raise DeadlockError(_DEADLOCK).with_traceback(error.__traceback__) from None
        finally:
            self._main = outer

    def time(self) -> float:
        """The monotonic clock. Right after a poll without timers it returns 0, because the loop does not use it."""
        if self._is_time_idle:
            self._is_time_idle = False
            return 0.0
        return super().time()

    def select(self, timeout: float | None) -> tuple[()]:
        """Wait for events and deliver answers."""
        if timeout is None:
            if self._calls.is_waiting:
                self._calls.exchange(-1)
            else:
                self._end_deadlock()
        elif timeout > 0:
            self._calls.exchange(_milliseconds(timeout))
        else:
            # A busy script must neither starve answers nor pay for an exchange at every step.
            self._polls += 1
            if self._polls % _POLLS_PER_EXCHANGE == 0 and self._calls.is_waiting:
                self._calls.exchange(0)
        # The next caller of `time` is the loop itself, to find due timers.
        self._is_time_idle = not self._scheduled  # type: ignore[attr-defined]
        return ()

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        """Run the function at once: there are no threads."""
        return asyncio.wrap_future(InlineExecutor().submit(func, *args), loop=self)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Print the failure of an unawaited task in one line. Cancellation at the script's end is not a failure."""
        error = context.get("exception")
        if error is None:
            super().default_exception_handler(context)
        elif not isinstance(error, asyncio.CancelledError):
            report = describe(error, (), self._calls.results)
            place = f"script.py:{report['line']}: " if report["line"] else ""
            sys.stderr.write(f"{place}{context['message']}: {report['message']}\n")

    def _end_leftovers(self) -> None:
        self._calls.end()
        if leftovers := asyncio.all_tasks(self):
            for task in leftovers:
                task.cancel()
            with contextlib.suppress(DeadlockError):
                self.run_until_complete(asyncio.gather(*leftovers, return_exceptions=True))

    def _end_deadlock(self) -> None:
        """Cancel the main task, so that the error shows the line where it waits."""
        self._is_deadlocked = True
        if self._main is None or not self._main.cancel():
            self.stop()

    def _process_events(self, event_list: object) -> None:
        """Do nothing: `select` delivers the answers."""

    def _write_to_self(self) -> None:
        """Do nothing: no other thread can wake this loop."""


class HostLoopPolicy:
    """Makes `asyncio.run` and others use a HostLoop."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._current: Any = None

    def get_event_loop(self) -> Any:
        if self._current is None or self._current.is_closed():
            self._current = self.new_event_loop()
        return self._current

    def set_event_loop(self, loop: Any) -> None:
        self._current = loop

    def new_event_loop(self) -> HostLoop:
        return HostLoop(self._calls)


def install(calls: Calls) -> HostLoop:
    """Make every wait happen in the host. Returns the loop for scripts with top-level await."""
    policy = HostLoopPolicy(calls)
    asyncio.events._event_loop_policy = policy  # type: ignore[attr-defined]
    asyncio.run = _nesting(asyncio.run)
    # A script may use the class by name; the original needs sockets.
    initial = {"__init__": lambda loop, selector=None: HostLoop.__init__(loop, calls)}
    vars(asyncio).update(
        dict.fromkeys(("EventLoop", "SelectorEventLoop"), type("EventLoop", (HostLoop,), initial))
    )
    time.sleep = _sleep_of(calls)  # type: ignore[assignment]  # whole numbers are floats enough
    _install_futures()
    _install_locks()
    # WASI's own wait would end the run.
    select.select = _select_of(select.select)
    del select.poll
    selectors.DefaultSelector = selectors.SelectSelector  # type: ignore[misc,assignment]
    selectors.SelectSelector._select = staticmethod(select.select)  # type: ignore[attr-defined]
    for module in (concurrent.futures, concurrent.futures.thread):
        vars(module)["ThreadPoolExecutor"] = InlineExecutor
    return policy.new_event_loop()


def _nesting(run: Callable[..., Any]) -> Callable[..., Any]:
    """Let `asyncio.run(main())` work within a top-level await; the outer loop pauses."""

    def nested_run(main: Any, *, debug: bool | None = None, loop_factory: Any = None) -> Any:
        outer = asyncio._get_running_loop()
        if asyncio.isfuture(main) and outer is None:
            return main.get_loop().run_until_complete(main)  # `asyncio.run(asyncio.gather(...))`
        if outer is None:
            return run(main, debug=debug, loop_factory=loop_factory)
        task: Any = asyncio.current_task()
        asyncio.tasks._leave_task(outer, task)
        asyncio._set_running_loop(None)
        try:
            return run(main, debug=debug, loop_factory=loop_factory)
        finally:
            asyncio._set_running_loop(outer)
            asyncio.tasks._enter_task(outer, task)

    return nested_run


def _sleep_of(calls: Calls) -> Callable[[float], None]:
    def sleep(seconds: float, /) -> None:
        """Wait in the host, where limits apply. WASI's own sleep cannot be interrupted."""
        if seconds < 0:
            raise ValueError("sleep length must be non-negative")
        end = time.monotonic() + seconds
        while True:
            left = end - time.monotonic()
            if left <= 0:
                return
            calls.exchange(_milliseconds(min(left, 86400)))

    return sleep


def _milliseconds(seconds: float) -> int:
    """Round up, except for the rounding error of a difference of two times."""
    return math.ceil(seconds * 1000 - 1e-6)


_ONE_THREAD = (
    "the script is deadlocked: only another thread could free this lock, event or queue, and there is none"
)


class InlineExecutor(concurrent.futures.Executor):
    """Replaces `ThreadPoolExecutor`: runs the work at once, in `submit`."""

    def __init__(self, max_workers: int | None = None, *_: object, **__: object) -> None:
        self._max_workers = max_workers

    def submit(
        self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> "concurrent.futures.Future[Any]":
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001  # the script's own error, returned through its future
            future.set_exception(error)
        return future


class _Task(asyncio.Task):  # type: ignore[type-arg]  # the C class takes no arguments at run time here
    __slots__ = ()


_Task.__module__, _Task.__name__, _Task.__qualname__ = asyncio.Task.__module__, "Task", "Task"


def _install_futures() -> None:
    """Make iterating a task or an `asyncio.gather(...)` an error that says to await it.

    In Python iterating a finished one yields nothing, so a script with a missing `await` would continue without rows.
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
    future.__bool__ = lambda _: True  # otherwise Python uses its length


class _Lock:
    """A lock that can be held once."""

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self._lock = _thread.allocate_lock()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if blocking and timeout == -1 and self._lock.locked():
            raise DeadlockError(_ONE_THREAD)
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
    """Make events, conditions, semaphores and queues, which all use this lock, wait with `time.sleep`.

    There is only one thread, so nothing releases a lock during a wait, and a timed wait always takes its full time.
    """
    names: dict[str, Any] = vars(threading)
    names["Lock"] = names["_allocate_lock"] = _Lock
    # The native one has its own internal lock.
    queue.SimpleQueue = queue._PySimpleQueue  # type: ignore[attr-defined,misc]


def _select_of(original: Callable[..., Any]) -> Callable[..., Any]:
    def select_in_host(
        rlist: Any, wlist: Any, xlist: Any, timeout: float | None = None, /
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Wait in the host if there are no files. Files are always ready."""
        if rlist or wlist:
            return original(rlist, wlist, ())  # type: ignore[no-any-return]
        time.sleep(math.inf if timeout is None else timeout)
        return [], [], []

    return select_in_host
