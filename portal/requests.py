"""The arguments of the two tools, read from what a client sent."""

import sys
from collections.abc import Callable
from typing import Final, TypeAlias

from manifests.json_value import Json
from portal.definitions import DOCS_SEARCH, EXECUTE_CODE, MAX_SEARCH_LIMIT
from portal.docs_search import DocsSearchRequest
from portal.execution import ExecuteCode

Reader: TypeAlias = Callable[[Json], Json]
"""Returns the value it was given, perhaps mended, or raises ValueError saying what is allowed."""


class RequestError(Exception):
    """A client's arguments do not fit the tool's inputSchema; nothing was done."""

    code = "invalid_arguments"


def docs_search_request(arguments: dict[str, Json]) -> DocsSearchRequest:
    """Raises RequestError naming every argument that does not fit."""
    return DocsSearchRequest(**_read(DOCS_SEARCH, _DOCS_SEARCH, arguments))


def execute_code_request(arguments: dict[str, Json]) -> ExecuteCode:
    """Raises RequestError naming every argument that does not fit."""
    given = _read(EXECUTE_CODE, _EXECUTE_CODE, arguments)
    if "code" not in given:
        raise RequestError("execute_code needs `code`: the Python script to run, as a string")
    return ExecuteCode(**given)


def _read(tool: str, readers: dict[str, Reader], arguments: dict[str, Json]) -> dict[str, Json]:
    """The arguments that were given; null, and an empty name, count as left out, as models write them."""
    read: dict[str, Json] = {}
    faults = []
    for name, value in arguments.items():
        if name not in readers:
            faults.append(f"there is no argument {name[:60]!r}; there are {', '.join(readers)}")
        elif value is not None and not (value == "" and name in _NAMES):
            try:
                read[name] = readers[name](value)
            except ValueError as error:
                faults.append(f"`{name}` {error}, not {_shown(value)}")
    if faults:
        raise RequestError(f"{tool}: " + "; ".join(faults))
    return read


def _shown(value: Json) -> str:
    try:
        text = repr(value)
    except ValueError:  # an integer of more digits than Python writes
        text = "that"
    return text if len(text) <= 60 else text[:57] + "..."


def _text(value: Json) -> str:
    if not isinstance(value, str):
        raise ValueError("is a string")
    return value


def _detail(value: Json) -> str:
    if value not in ("brief", "full"):
        raise ValueError('is "brief" or "full"')
    return str(value)


def _limit(value: Json) -> int:
    number = int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value
    if not isinstance(number, bool) and number in range(1, MAX_SEARCH_LIMIT + 1):
        return int(number)
    raise ValueError(f"is a whole number from 1 to {MAX_SEARCH_LIMIT}")


def _seconds(value: Json) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= sys.float_info.max:
        raise ValueError("is a number of seconds above 0")
    return float(value)


_DOCS_SEARCH: Final[dict[str, Reader]] = {
    "query": _text,
    "detail": _detail,
    "upstream": _text,
    "limit": _limit,
}
_NAMES: Final = frozenset({"upstream", "session"})
_EXECUTE_CODE: Final[dict[str, Reader]] = {"code": _text, "session": _text, "timeout_seconds": _seconds}
