"""What a script does about errors: which of its statements would catch one, and whether anything could."""

import ast
from collections.abc import Collection, Iterable, Iterator
from functools import cached_property
from typing import Final, get_args

from portal.check.known_values import KnownValues
from portal.check.script_tree import ScriptTree

Guard = ast.Try | ast.TryStar | ast.With | ast.AsyncWith
_GUARDS: Final = get_args(Guard)

_EVERY: Final = frozenset({"BaseException", "BaseExceptionGroup", "Exception", "ExceptionGroup"})
_ABSENCE: Final = frozenset({"AttributeError", "ImportError", "ModuleNotFoundError", "NameError"})
_CAUGHT_AS: Final = {
    "invalid_arguments": frozenset({"ToolError", "TypeError"}),
    "unknown_function": _ABSENCE,
    "unknown_namespace": _ABSENCE,
    "not_granted": _ABSENCE | {"ToolError"},
    "quarantined": _ABSENCE | {"ToolError"},
    "upstream_unavailable": _ABSENCE | {"ToolError"},
    "unknown_field": frozenset({"AttributeError"}),
    "not_awaited": frozenset({"TypeError"}),
    "not_a_function": frozenset({"TypeError"}),
}
_SUPPRESS: Final = ("contextlib", "suppress")
_STACKS: Final = frozenset({("contextlib", "ExitStack"), ("contextlib", "AsyncExitStack")})
_MAKE_CONTEXTS: Final = _STACKS | {
    _SUPPRESS,
    ("contextlib", "asynccontextmanager"),
    ("contextlib", "contextmanager"),
}
_KEEP_ERRORS: Final = frozenset(
    {
        ("asyncio", name)
        for name in ("create_task", "ensure_future", "get_event_loop", "get_running_loop", "wait")
    }
)
# Methods of tasks and coroutines that let a script do without what they would come to.
_GIVE_ERRORS: Final = frozenset({"add_done_callback", "cancel", "close", "exception"})
_GATHER: Final = ("asyncio", "gather")


class ErrorHandling:
    """How a script handles the errors that findings of one code foresee.

    `earlier` are the names that scripts before in the session bound: what they did is not known, so it may catch.
    """

    def __init__(self, script: ScriptTree, values: KnownValues, earlier: Collection[str], code: str) -> None:
        self._script = script
        self._values = values
        self._earlier = earlier
        self._caught = _CAUGHT_AS[code] | _EVERY

    @cached_property
    def is_possible(self) -> bool:
        """Whether the script may live on after such an error, anywhere."""
        script = self._script
        return (
            any(map(self.catches, script.all_of(*_GUARDS)))
            or any(map(_asks_for_errors, script.all_of(ast.keyword)))
            or any(node.attr in _GIVE_ERRORS for node in script.all_of(ast.Attribute))
            or any(path in _KEEP_ERRORS for path in script.paths.values())
            or self._gathers_with_care
            or any(name.id in self._earlier for name in script.names)
        )

    @cached_property
    def tasks_are_grouped(self) -> bool:
        """Whether `group.create_task(...)` can only be a task group's, which fails with its tasks."""
        return not any(path in _KEEP_ERRORS for path in self._script.paths.values())

    def catches(self, node: Guard) -> bool:
        """Whether the body of a statement may fail without the script's failing."""
        if isinstance(node, (ast.With, ast.AsyncWith)):
            return any(self._suppresses(item.context_expr) for item in node.items)
        leaves = (ast.Return, ast.Break, ast.Continue)
        if any(isinstance(part, leaves) for statement in node.finalbody for part in ast.walk(statement)):
            return True
        return any(handler.type is None or self._is_caught([handler.type]) for handler in node.handlers)

    @cached_property
    def _gathers_with_care(self) -> bool:
        """Whether it gathers for later, or with options that only the running script knows."""
        return any(
            self._script.paths.get(call.func) == _GATHER
            and (call not in self._script.scopes.awaited or gives_errors(call))
            for call in self._script.all_of(ast.Call)
        )

    def _is_caught(self, types: Iterable[ast.expr]) -> bool:
        return any(self._may_be_caught(type_) for type_ in _flat(types))

    def _may_be_caught(self, type_: ast.expr) -> bool:
        path = self._script.paths.get(type_)
        if path is not None:
            return path[0] == "builtins" and path[-1] in self._caught
        if isinstance(type_, ast.Name) and self._script.is_free(type_) and type_.id not in self._earlier:
            return type_.id in self._caught  # ToolError, which is no builtin of this Python
        return True

    def _suppresses(self, context: ast.expr) -> bool:
        if isinstance(context, ast.Name):
            context = self._values.bound_once(context) or context
        path = self._script.paths.get(context.func) if isinstance(context, ast.Call) else None
        if path == _SUPPRESS and isinstance(context, ast.Call):
            return self._is_caught(context.args)
        if path is not None and path not in _STACKS:
            return False
        return self._has_contexts_of_its_own

    @cached_property
    def _has_contexts_of_its_own(self) -> bool:
        own = self._script.functions.keys() & {"__exit__", "__aexit__"}
        return bool(own or self._earlier) or any(
            path in _MAKE_CONTEXTS for path in self._script.paths.values()
        )


def gives_errors(gather: ast.Call) -> bool:
    """Whether a call of `gather` may give errors back as values."""
    return any(keyword.arg is None or _asks_for_errors(keyword) for keyword in gather.keywords)


def _asks_for_errors(keyword: ast.keyword) -> bool:
    is_off = isinstance(keyword.value, ast.Constant) and keyword.value.value is False
    return keyword.arg == "return_exceptions" and not is_off


def _flat(types: Iterable[ast.expr]) -> Iterator[ast.expr]:
    for type_ in types:
        if isinstance(type_, ast.Tuple):
            yield from type_.elts
        else:
            yield type_
