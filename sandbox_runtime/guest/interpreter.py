"""Prepares and runs scripts: the implementation of the component's exports."""

import asyncio
import builtins
import contextlib
import io
import json
import os
import random
import sys
import types
import warnings
from typing import Any

from sandbox_runtime.guest import loop
from sandbox_runtime.guest.calls import Calls, Host, Output, ToolError
from sandbox_runtime.guest.files.workspace_mount import WorkspaceMount
from sandbox_runtime.guest.library import Library
from sandbox_runtime.guest.portal_module import PortalModule, ResultLimitError
from sandbox_runtime.guest.script import Script, unawaited_notices
from sandbox_runtime.guest.tracebacks import describe, describe_syntax, innermost_line
from sandbox_runtime.guest.values import NotJsonError, decode, encode_value, patch_json

_INTERNAL = __file__.rpartition("guest")[0]
_PARSER_STACK = "Parser stack overflowed"  # a MemoryError that is unrelated to memory


class Interpreter:
    """The interpreter of an instance. Its globals live as long as the instance."""

    def __init__(self, host: Host) -> None:
        self._output = Output(host)
        self._calls = Calls(host, self._output)
        self._loop = loop.install(self._calls)
        self._library = Library(self._calls)
        self._portal = PortalModule(host, self._calls)
        self._files = WorkspaceMount(self._calls)
        self._script: Script | None = None
        self._is_seeded = False
        self._main = types.ModuleType("__main__")
        self._install()

    def prepare(self, text: str, namespaces: str) -> str:
        """Parse a script and store it for `execute`. Returns its facts or its error as JSON."""
        self._library.set_namespaces(frozenset(namespaces.split()))
        self._script = None
        try:
            # Namespaces that no earlier run of the session has rebound, and the names that earlier runs bound.
            own, names = self._main.__dict__, self._library.namespaces
            rebound = {name for name in names & own.keys() if not self._library.is_itself(name, own)}
            script = Script.parse(text, names - rebound, own.keys() - (names - rebound))
        except MemoryError as error:
            return encode_value({"error": self._error(error)})[0]
        except Exception as error:  # noqa: BLE001  # any error while parsing is the script's mistake
            return encode_value({"error": describe_syntax(error, text)})[0]
        self._script = script
        usage = script.usage
        prepared = {
            "source": None if script.source == text else script.source,
            "names": sorted(script.names),
            "notices": script.notices,
            "uses": usage.uses if usage else [],
            "problems": usage.problems if usage else [],
            "unguarded_lines": usage.unguarded_lines if usage else [],
        }
        return encode_value(prepared)[0]

    def execute(self, settings: str) -> str:
        """Run the prepared script. Returns a JSON header in one line, then the JSON of the value."""
        script, self._script = self._script, None
        assert script is not None
        self._begin(script, decode(settings))
        header: dict[str, Any] = {}
        value = "null"
        notices: list[str] = []
        try:
            value, notices = self._value(script)
        except BaseException as error:  # noqa: BLE001  # anything a script raises is its result
            header["error"] = self._error(error)
        for name in ("stdout", "stderr"):
            with contextlib.suppress(BaseException):  # a script may have put anything there
                getattr(sys, name).flush()
        with contextlib.suppress(MemoryError):
            self._calls.end()
        unsaved = self._files.save()
        self._output.flush()
        sources = (self._portal, self._output, self._calls)
        header["notices"] = [*notices, *unsaved, *(notice for each in sources for notice in each.notices())]
        return f"{json.dumps(header)}\n{value}"

    def forget(self) -> None:
        """Drop everything that earlier runs left behind."""
        self._script = None
        self._main.__dict__.clear()
        self._main.__dict__.update(__name__="__main__", __builtins__=builtins)
        self._library.set_namespaces(frozenset())

    def _install(self) -> None:
        patch_json()
        names = vars(builtins)
        # asyncio is a builtin name, because most scripts gather calls, and its import is easily forgotten.
        names.update(asyncio=asyncio, ToolError=ToolError, portal=self._portal)
        names.update(exit=sys.exit, quit=sys.exit)
        warnings.formatwarning = _format_own_warning
        sys.modules["portal"] = self._portal
        sys.modules["__main__"] = self._main
        self.forget()
        sys.stdin = io.StringIO()  # empty
        sys.__stdout__ = sys.__stderr__ = sys.stdout = sys.stderr = self._output  # type: ignore[misc,assignment]

    def _begin(self, script: Script, settings: dict[str, Any]) -> None:
        sys.argv = ["script.py"]
        if not self._is_seeded and "seed" in settings:
            random.seed(settings["seed"])  # the state in the image is the same for all instances
            self._is_seeded = True
        sys.stdout = sys.stderr = self._output
        self._output.begin()
        self._calls.begin()
        self._calls.argument_bytes = settings["argument_bytes"]
        self._portal.begin(settings["result_bytes"], settings.get("run_id", ""))
        if "environment" in settings:
            os.environ.update(settings["environment"])
        if "files" in settings:
            self._files.mount(settings["files"])
        self._library.show(script.names, settings["library"])

    def _value(self, script: Script) -> tuple[str, list[str]]:
        variables, name = self._main.__dict__, script.assigned or ""
        try:
            value = script.run(variables, self._loop.drive)
        except SystemExit as error:
            if error.code not in (None, 0):
                raise
            value = None
        is_silent = not (self._output.is_used or vars(self._portal)["__used"])
        is_block = value is ... and script.assigned is not None
        is_meant = is_silent if is_block else value is variables.get(name)  # a shown value is intended, too
        name = name if is_meant and name in variables else ""
        value = variables.get(name) if is_block else value
        try:
            text, notices = encode_value(value, may_consume=not name)
            self._portal.charge(len(text) if text.isascii() else len(text.encode()))
        except (NotJsonError, ResultLimitError) as error:
            if not name:
                raise
            text, notices = "null", [f"`{name}`, the last assignment, is not returned: {error.args[0]}"]
        else:
            if name:
                notices.append(f"the result is `{name}`, the last assignment")
            elif is_block and is_silent:
                notices.append("the script ends without a value: end it with an expression, or print")
        return text, [*notices, *unawaited_notices(variables)]

    def _error(self, error: BaseException) -> dict[str, Any]:
        try:
            return self._explained(error)
        except BaseException:  # noqa: BLE001  # its `str` fails, or there is no stack or memory left
            error.__traceback__ = None
            code = "memory_limit" if isinstance(error, MemoryError) else "script_error"
            return {"code": code, "message": type(error).__name__}

    def _explained(self, error: BaseException) -> dict[str, Any]:
        if isinstance(error, MemoryError) and not str(error).startswith(_PARSER_STACK):
            line = innermost_line(error)
            error.__traceback__ = None  # its frames keep the memory in use
            return {"code": "memory_limit", "line": line}
        if isinstance(error, ResultLimitError):
            return {"code": "result_limit", "bytes": error.args[1]}
        report = describe(error, self._library.namespaces, self._calls.results)
        if isinstance(error, SystemExit):
            code = error.code
            report["code"] = "script_exit"
            report["message"] = (
                f"the script exited with status {code}" if isinstance(code, int) else str(code)[:2000]
            )
        elif isinstance(error, NotJsonError) and report["line"] is None:
            report.update(code="result_not_json", message=str(error), traceback="")
        return report


_format_warning = warnings.formatwarning


def _format_own_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """Format a warning like Python, without the names of internal files."""
    if filename.startswith(_INTERNAL):
        return f"{category.__name__}: {message}\n"
    return _format_warning(message, category, filename, lineno, line)
