"""Pools of threads, without threads: the work is done at once, where it is handed in."""

import concurrent.futures
import concurrent.futures.thread
from collections.abc import Callable
from typing import Any


class InlineExecutor(concurrent.futures.Executor):
    """Stands in for `ThreadPoolExecutor`, so that scripts written for it work, one call after the other."""

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


def install() -> None:
    concurrent.futures.ThreadPoolExecutor = InlineExecutor  # type: ignore[misc,assignment]
    concurrent.futures.thread.ThreadPoolExecutor = InlineExecutor  # type: ignore[misc,assignment]
