"""Describes an uncaught exception with the script's own frames only, and a hint what to do."""

import asyncio
import contextlib
import difflib
import errno
import inspect
import json
import linecache
import os
import posix
import re
import socket
import traceback
import types
from collections.abc import Collection, Iterator, Sequence
from itertools import chain, islice
from typing import Any

from sandbox_runtime.guest.analysis.absences import NO_FILES, NO_INPUT, NO_SOCKETS, missing_module
from sandbox_runtime.guest.calls import ToolError
from sandbox_runtime.guest.portal_module import PortalModule
from sandbox_runtime.guest.results import Results
from sandbox_runtime.guest.script import FILENAME

_MAX_MESSAGE_CHARS = 2000
_MAX_TRACEBACK_CHARS = 4000
_MAX_DETAIL_CHARS = 300
_MAX_FRAMES = 100
_JAVASCRIPT = re.compile(
    r"^\s*(?:const|let|var)\s+[\w{\[]|^\s*(?:async\s+)?function\b|=>|===|console\.log|^\s*//", re.MULTILINE
)
_PYTHON = (
    "This is JavaScript, and the call runs Python. Write `issue = await tickets.get_issue(id=3)`, `print(issue)`, "
    'or use kernel="javascript" if execute_code has that argument.'
)
_FILES = "Scripts can only access files in /workspace, their working directory. They have no processes and no sockets."
_FILE_NUMBERS = {errno.ENOENT, errno.EBADF, errno.EACCES, errno.EPERM, errno.ENOTSUP}
_RUNTIME = {
    "EOF when reading a line": NO_INPUT,
    "can't start new thread": "There are no threads here. Use asyncio.gather for parallel calls.",
    "no running event loop": "A task runs only while the script awaits. Write `await` before the call, or `await` the "
    "task later in the script.",
}
_GATHER = asyncio.gather.__code__
_GATHERED = (
    "asyncio.gather expects calls that are not awaited: `await asyncio.gather(a(), b())`, or for a list "
    "`await asyncio.gather(*calls)`."
)
_PORTAL = re.compile(r"PortalModule\.([a-z]\w*)\(\) ")
_NAME = re.compile(r"""(?<![\w."'])[A-Za-z_]\w*""")
_MAX_NAMED = 2
_MAX_KEYS = 8
_MAX_ITEMS = 1_000
_MAX_DEPTH = 2
_LONGEST_KEY = 40


def describe(error: BaseException, namespaces: Collection[str], results: Results) -> dict[str, Any]:
    """Code, message, line, hint and traceback of an uncaught exception."""
    report = traceback.TracebackException.from_exception(error, limit=-_MAX_FRAMES)
    for part in _parts(report):
        part.stack = traceback.StackSummary.from_list(
            [frame for frame in part.stack if frame.filename == FILENAME]
        )
    return {
        "code": error.code if isinstance(error, ToolError) else "script_error",
        "message": _shorten(_message(error, report), _MAX_MESSAGE_CHARS),
        "line": innermost_line(error),
        "hint": _shorten(_hint(error, namespaces) or _shapes(error, results), _MAX_MESSAGE_CHARS),
        "traceback": _shorten("".join(report.format()), _MAX_TRACEBACK_CHARS),
    }


def describe_syntax(error: Exception, script: str) -> dict[str, Any]:
    """Message, line, hint and traceback of a script that does not parse."""
    report = traceback.TracebackException(type(error), error, None)
    line = error.lineno if isinstance(error, SyntaxError) else None
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return {
        "message": _shorten(f"{type(error).__name__}: {text}", _MAX_MESSAGE_CHARS),
        "line": line,
        "hint": _PYTHON if _JAVASCRIPT.search(script) else "",
        "traceback": _shorten("".join(report.format_exception_only()), _MAX_TRACEBACK_CHARS),
    }


def _message(error: BaseException, report: traceback.TracebackException) -> str:
    if isinstance(error, ToolError):
        return _told(error)
    if isinstance(error, BaseExceptionGroup):
        leaves = "; ".join(f"{type(leaf).__name__}: {_told(leaf)}" for leaf in error.exceptions[:5])
        return f"{type(error).__name__}: {error}: {leaves}"
    if isinstance(error, asyncio.CancelledError):
        return "CancelledError: the script's own task was cancelled"
    only = list(report.format_exception_only())
    text = "".join(only[3:] if isinstance(error, SyntaxError) and len(only) > 3 else only)
    return text.strip()


def _told(error: BaseException) -> str:
    """The message of an error, with those of a ToolError's data and blocks that it lacks, shortened."""
    text = str(error)
    if not isinstance(error, ToolError):
        return text
    with contextlib.suppress(Exception):  # a script can give an error any data and blocks
        others = [each for each in error.blocks if each.get("type") != "text"]
        for name, value in (("data", error.data), ("blocks", others)):
            shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
            if value not in (None, []) and shown not in text:
                text += f"\n{name}: {_shorten(shown, _MAX_DETAIL_CHARS)}"
    return text


def innermost_line(error: BaseException) -> int | None:
    """The last line of the script that an exception passed through."""
    if found := _innermost_frame(error):
        return found[1]
    if isinstance(error, SyntaxError) and error.filename == FILENAME:
        return error.lineno
    return None


def _innermost_frame(error: BaseException) -> tuple[types.FrameType, int] | None:
    """The last frame of the script that an exception passed through, and its line."""
    found = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_filename == FILENAME:
            found = frame, line
    return found


def _parts(report: traceback.TracebackException) -> Iterator[traceback.TracebackException]:
    seen: set[int] = set()
    todo = [report]
    while todo:
        part = todo.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        todo.extend(other for other in (part.__cause__, part.__context__, *(part.exceptions or ())) if other)


def _shorten(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    half = (most - 40) // 2
    return f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"


def _hint(error: BaseException, namespaces: Collection[str]) -> str:
    """A hint for the model, or ""."""
    match error:
        case ToolError():
            return str(error.hint)
        case NameError() if error.name == "docs_search":
            return 'In a script, use `await portal.search("create issue")`.'
        case NameError() if near := difflib.get_close_matches(error.name or "", namespaces, 1):
            return f"Did you mean the namespace {near[0]}?"
        case ModuleNotFoundError():
            return missing_module(error.name or "", namespaces)
        case ImportError() if error.name == "tools":
            return f"Namespaces: {', '.join(sorted(namespaces)) or 'none'}"
        case TypeError():
            return _arguments_hint(error)
        case RuntimeError() | EOFError():
            return _RUNTIME.get(str(error), "")
        case OSError() if isinstance(error, socket.gaierror) or hasattr(error, "reason"):
            return NO_SOCKETS  # errors of urllib have a `reason`
        case OSError() if error.errno in _FILE_NUMBERS:
            # A mounted workspace replaces this function.
            return NO_FILES if os.getcwd is posix.getcwd else _FILES
    return ""


def _arguments_hint(error: TypeError) -> str:
    """What a call takes whose arguments Python refused, or ""."""
    if any(frame.f_code is _GATHER for frame, _ in traceback.walk_tb(error.__traceback__)):
        return _GATHERED
    if not (found := _PORTAL.match(str(error))) or found[1] not in vars(PortalModule):
        return ""
    given, _, _ = str(inspect.signature(getattr(PortalModule, found[1]))).partition(" -> ")
    return f"It takes: portal.{found[1]}{given}".replace("(self, ", "(").replace("typing.", "")


def _shapes(error: BaseException, results: Results) -> str:
    """Describe the values that an error may be about."""
    with contextlib.suppress(Exception):  # a script's own classes may do anything
        found = _innermost_frame(error)
        if found is not None and isinstance(error, (LookupError, TypeError, AttributeError)):
            return _shapes_at(*found, results)
    return ""


def _shapes_at(frame: types.FrameType, line: int, results: Results) -> str:
    """The shapes of the variables in a line of the script with their origins, and of the results of its calls."""
    variables: dict[str, Any] = {**frame.f_globals, **frame.f_locals}
    told = []
    source = linecache.getline(FILENAME, line)
    for name in dict.fromkeys(_NAME.findall(source)):
        value = variables.get(name)
        if type(value) in (dict, list, str, int, float, bool):
            function = results.origin(value)
            told.append(f"{name} is {_shape([value])}" + (f", from {function}" if function else ""))
            field = str(*value)[:_LONGEST_KEY] if isinstance(value, dict) and len(value) == 1 else source
            told[-1] += f'; write {name}["{field}"]' if function and field not in source else ""
    known, called = results.latest(), re.findall(r"\w+\.\w+(?=\()", source)
    told += [f"{name} returned {_shape([known[name]])}" for name in called if name in known]
    return "; ".join(told[:_MAX_NAMED])


def _shape(values: Sequence[object], depth: int = _MAX_DEPTH) -> str:
    """What values are together, like `{range: str, rows?: list[list] | None}`."""
    kinds: dict[type, list[Any]] = {}
    for each in values:
        kinds.setdefault(type(each), []).append(each)
    return " | ".join(_shape_of(kind, same, depth) for kind, same in kinds.items())


def _shape_of(kind: type, values: list[Any], depth: int) -> str:
    """What values of one kind are: a list by its first items, a dict by its first keys, with `?` if some lack one."""
    if kind is str and values[0].startswith(("{", "[")):
        with contextlib.suppress(ValueError):
            return f"str, of which json.loads makes {_shape([json.loads(values[0])], depth)}"
    is_whole = not depth or not issubclass(kind, (dict, list))
    parts = [] if is_whole else [*islice(chain.from_iterable(values), _MAX_ITEMS)]
    if not parts:
        return "None" if kind is types.NoneType else kind.__name__
    if issubclass(kind, list):
        return f"list[{_shape(parts, depth - 1)}]"
    keys, fields = [*dict.fromkeys(parts)], []
    for key in keys[:_MAX_KEYS]:
        name = key if isinstance(key, str) and key.isidentifier() else repr(key)
        found = [each[key] for each in values if key in each]
        mark = "?" if len(found) < len(values) else ""
        fields.append(f"{name[:_LONGEST_KEY]}{mark}: {_shape(found, depth - 1)}")
    return f"{{{', '.join([*fields, *(['...'] if len(keys) > _MAX_KEYS else [])])}}}"
