"""Futures that say what is missing when they are used as if they were their values.

Python's give nothing when they are done and iterated, for the sake of `yield from`: a script that forgot an `await`
would go on with no rows.
"""

import asyncio
from typing import Any, NoReturn

_USES = ("__iter__", "__getitem__", "__len__", "__contains__")


class _Task(asyncio.Task):  # type: ignore[type-arg]  # the C class takes no arguments at run time here
    __slots__ = ()


_Task.__module__, _Task.__name__, _Task.__qualname__ = asyncio.Task.__module__, "Task", "Task"


def install() -> None:
    """Let tasks, and what `asyncio.gather` gives, say that they were not awaited."""
    names: dict[str, Any] = vars(asyncio.tasks)
    names["Task"] = asyncio.Task = _Task  # type: ignore[misc]
    _refuse_uses(_Task, "the task was not awaited: write `await` before it")
    _refuse_uses(
        names["_GatheringFuture"], "`asyncio.gather(...)` was not awaited: write `await asyncio.gather(...)`"
    )


def _refuse_uses(future: Any, message: str) -> None:
    def refuse(_: object, *__: object) -> NoReturn:
        raise TypeError(message)

    for name in _USES:
        setattr(future, name, refuse)
    future.__bool__ = lambda _: True  # or its length would be asked for
