"""What to do next about an exception that ended a script: the mistakes that are made often, and only those."""

import asyncio
import difflib
import errno
import importlib.metadata
import os
import posix
import re
import socket
import sys
import types
from collections.abc import Collection
from traceback import walk_tb

from sandbox_runtime.guest.tool_error import ToolError
from sandbox_runtime.guest.workspace_path import MOUNT

_NO_FILES = (
    "Scripts have no files, processes or network of their own: call upstream functions instead. "
    "An operator can grant a folder with capabilities.files."
)
_FILES = (
    f"Scripts have the files in {MOUNT}, their working directory, and no others; no processes, no sockets."
)
_NO_SOCKETS = (
    "Scripts have no sockets: call upstream functions, or portal.fetch where an operator grants network."
)
_FILE_NUMBERS = {errno.ENOENT, errno.EBADF, errno.EACCES, errno.EPERM, errno.ENOTSUP}
_RUNTIME = {
    "can't start new thread": "There are no threads here: use asyncio.gather for calls in parallel.",
    "no running event loop": "A task runs only while the script awaits: write `await` before the call, or `await` the "
    "task later in the script.",
}
_NOT_HERE = "This module of the standard library needs what the sandbox does not have."
_HTTP_CLIENTS = {"aiohttp", "httpx", "requests", "urllib3"}
_GATHER = asyncio.gather.__code__
_GATHERED = (
    "asyncio.gather takes calls that are not awaited: `await asyncio.gather(a(), b())`, of a list "
    "`await asyncio.gather(*calls)`."
)
_MAX_QUERY_CHARS = 60
_VERY_NEAR = 0.75  # a package that is not there is more often meant than a namespace


def hint(error: BaseException, namespaces: Collection[str], line: str) -> str:
    """One for a model to read, or nothing. `line` is the script's own, on which the error came up."""
    match error:
        case ToolError():
            return str(error.hint)
        case NameError():
            return _undefined_name(error.name or "", namespaces, line)
        case AttributeError():
            return _hidden_namespace(error, namespaces)
        case ModuleNotFoundError():
            return _missing_module(error.name or "", namespaces)
        case ImportError() if error.name == "tools":
            return _all(namespaces)
        case TypeError() if any(frame.f_code is _GATHER for frame, _ in walk_tb(error.__traceback__)):
            return _GATHERED
        case RuntimeError():
            return _RUNTIME.get(str(error), "")
        case OSError() if isinstance(error, socket.gaierror) or hasattr(error, "reason"):
            return _NO_SOCKETS  # what has a reason is urllib's
        case OSError() if error.errno in _FILE_NUMBERS:
            # A workspace that is mounted puts another function there.
            return _NO_FILES if os.getcwd is posix.getcwd else _FILES
    return ""


def look_up(*names: str) -> str:
    """How to find what a script meant by these names."""
    words = " ".join(" ".join(names).replace("_", " ").split())
    return f'docs_search(query="{words[:_MAX_QUERY_CHARS]}")'


def _undefined_name(name: str, namespaces: Collection[str], line: str) -> str:
    """A name that is like a namespace's, or is used like one: `name.something(...)`."""
    if name == "docs_search":
        return 'In a script it is `await portal.search("create issue")`.'
    near = difflib.get_close_matches(name, namespaces, 1)
    used = re.search(rf"(?<![\w.]){re.escape(name)}\.(\w+)\(", line) if name else None
    if near:
        rest = f" Look it up: {look_up(name, used[1])}" if used else ""
        return f"Did you mean the namespace {near[0]}?{rest}"
    return f"If a namespace is meant by {name}, find its functions: {look_up(name, used[1])}" if used else ""


def _hidden_namespace(error: AttributeError, namespaces: Collection[str]) -> str:
    """The namespace that had to be renamed, because a module of Python is called like its upstream."""
    module = error.obj.__name__ if isinstance(error.obj, types.ModuleType) else ""
    namespace = f"{module}_"
    if not module or namespace not in namespaces:
        return ""
    return f"{module} is Python's own module; the upstream's namespace is {namespace}: {namespace}.{error.name}(...)"


def _missing_module(name: str, namespaces: Collection[str]) -> str:
    name = name.removeprefix("tools.")
    if name.partition(".")[0] in _HTTP_CLIENTS:
        return _NO_SOCKETS
    if name.partition(".")[0] in sys.stdlib_module_names:
        return _NOT_HERE
    near = difflib.get_close_matches(name, namespaces, 1, _VERY_NEAR)
    if near:
        return f"Did you mean the namespace {near[0]}? It is there without import."
    packages = ", ".join(sorted(package.name for package in importlib.metadata.distributions()))
    return f"There are Python's standard library, {packages}, and the namespaces that docs_search shows."


def _all(namespaces: Collection[str]) -> str:
    if not namespaces:
        return "There are no namespaces."
    return f"There are these namespaces: {', '.join(sorted(namespaces))}"
