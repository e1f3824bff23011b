"""Coroutines of a script's own functions that nothing ever began."""

import inspect
import types
from collections.abc import Iterator
from itertools import islice
from typing import Any

from sandbox_runtime.guest.program import FILENAME

_MAX_LOOKED_AT = 100  # in each container


def never_begun(variables: dict[str, Any]) -> list[str]:
    """Notices about those that lie in the variables of a script. Of one that is dropped Python itself warns."""
    functions = {coroutine.__qualname__: None for coroutine in _coroutines(variables)}
    return [
        f"`{function}(...)` has not been awaited, so it has not run: it needs `await {function}(...)`"
        for function in islice(functions, 10)
    ]


def _coroutines(variables: dict[str, Any]) -> Iterator[types.CoroutineType[Any, Any, Any]]:
    for value in variables.values():
        held = value.values() if type(value) is dict else value
        values = islice(held, _MAX_LOOKED_AT) if type(value) in (list, tuple, set, dict) else (value,)
        for one in values:
            if (
                type(one) is types.CoroutineType
                and one.cr_code.co_filename == FILENAME
                and inspect.getcoroutinestate(one) == inspect.CORO_CREATED
            ):
                yield one
