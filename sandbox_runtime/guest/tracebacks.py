"""An uncaught exception, told with the script's own lines and nothing of ours."""

import asyncio
import re
import traceback
from collections.abc import Collection, Iterator
from typing import Any

from sandbox_runtime.guest.hints import hint
from sandbox_runtime.guest.tool_error import ToolError

SCRIPT_NAME = "script.py"
_MAX_MESSAGE_CHARS = 2000
_MAX_TRACEBACK_CHARS = 4000
_MAX_FRAMES = 100
_JAVASCRIPT = re.compile(
    r"^\s*(?:const|let|var)\s+[\w{\[]|^\s*(?:async\s+)?function\b|=>|===|console\.log|^\s*//", re.MULTILINE
)
_PYTHON = "This is JavaScript. Scripts are Python: `issue = await tickets.get_issue(id=3)`, `print(issue)`."


def describe(error: BaseException, namespaces: Collection[str]) -> dict[str, Any]:
    """Code, message, line, hint and traceback of an uncaught exception."""
    report = traceback.TracebackException.from_exception(error, limit=-_MAX_FRAMES)
    for part in _parts(report):
        part.stack = traceback.StackSummary.from_list(
            [frame for frame in part.stack if frame.filename == SCRIPT_NAME]
        )
    line = report.stack[-1].line if report.stack else ""
    return {
        "code": error.code if isinstance(error, ToolError) else "script_error",
        "message": _shorten(_message(error, report), _MAX_MESSAGE_CHARS),
        "line": innermost_line(error),
        "hint": _shorten(hint(error, namespaces, line or ""), _MAX_MESSAGE_CHARS),
        "traceback": _shorten("".join(report.format()), _MAX_TRACEBACK_CHARS),
    }


def describe_syntax(error: Exception, script: str) -> dict[str, Any]:
    """The same for a script that does not parse."""
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
        return str(error)
    if isinstance(error, BaseExceptionGroup):
        leaves = "; ".join(f"{type(leaf).__name__}: {leaf}" for leaf in _leaves(error))
        return f"{type(error).__name__}: {error}: {leaves}"
    if isinstance(error, asyncio.CancelledError):
        return "CancelledError: the script's own task was cancelled"
    only = list(report.format_exception_only())
    text = "".join(only[3:] if isinstance(error, SyntaxError) and len(only) > 3 else only)
    return text.strip()


def _leaves(group: BaseExceptionGroup[Any]) -> Iterator[BaseException]:
    for error in group.exceptions[:5]:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


def innermost_line(error: BaseException) -> int | None:
    """The last line of the script that an exception passed through."""
    lines = [
        line
        for frame, line in traceback.walk_tb(error.__traceback__)
        if frame.f_code.co_filename == SCRIPT_NAME
    ]
    if lines:
        return lines[-1]
    if isinstance(error, SyntaxError) and error.filename == SCRIPT_NAME:
        return error.lineno
    return None


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
