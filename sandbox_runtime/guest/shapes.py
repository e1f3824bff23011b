"""Says what a script's values look like: for errors about a value that is not what the script took it for."""

import linecache
import re
import traceback
from collections.abc import Callable
from typing import Any

from sandbox_runtime.guest.script import FILENAME

_NAME = re.compile(r"""(?<![\w."'])[A-Za-z_]\w*""")
_MAX_NAMED = 2
_MAX_KEYS = 8
_MAX_DEPTH = 2
_LONGEST_KEY = 40


def shape(value: object, depth: int = _MAX_DEPTH) -> str:
    """`{range: str, values: list[list]}`: of a list by its first item, of a dict by its first keys."""
    if isinstance(value, dict) and value and depth:
        fields = [
            f"{str(key)[:_LONGEST_KEY]}: {shape(each, depth - 1)}"
            for key, each in [*value.items()][:_MAX_KEYS]
        ]
        return f"{{{', '.join([*fields, *(['...'] if len(value) > _MAX_KEYS else [])])}}}"
    if isinstance(value, list) and value and depth:
        return f"list[{shape(value[0], depth - 1)}]"
    return "None" if value is None else type(value).__name__


def shapes_at(error: BaseException, origin: Callable[[object], str]) -> str:
    """The shapes of the variables in the script's line that raised, and whose results they are; or "".

    `origin` names the function that returned a value, or "".
    """
    frames = [
        frame for frame in traceback.walk_tb(error.__traceback__) if frame[0].f_code.co_filename == FILENAME
    ]
    if not frames:
        return ""
    frame, line = frames[-1]
    text = linecache.getline(FILENAME, line)
    variables: dict[str, Any] = {**frame.f_globals, **frame.f_locals}
    told = []
    for name in dict.fromkeys(_NAME.findall(text)):
        value = variables.get(name)
        if type(value) in (dict, list, str, int, float, bool):
            function = origin(value)
            told.append(f"{name} is {shape(value)}" + (f", from {function}" if function else ""))
    return "; ".join(told[:_MAX_NAMED])
