"""What a script does about errors: which of its statements would catch one."""

import ast
from collections.abc import Collection, Iterable, Iterator, Set
from functools import cached_property
from typing import Final

from manifests.names import STANDARD_LIBRARY
from portal.check.known_values import KnownValues
from portal.check.script_tree import ScriptTree
from portal.check.tampering import FIND_MODULES

Guard = ast.Try | ast.TryStar | ast.With | ast.AsyncWith

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
    "not_called": frozenset({"TypeError"}),
}
_UNBOUND: Final = frozenset({"NameError", "UnboundLocalError"})
_SUPPRESS: Final = ("contextlib", "suppress")
_STACKS: Final = frozenset({("contextlib", "ExitStack"), ("contextlib", "AsyncExitStack")})
_MAKE_CONTEXTS: Final = _STACKS | {
    _SUPPRESS,
    ("contextlib",),
    ("contextlib", "asynccontextmanager"),
    ("contextlib", "contextmanager"),
}
_EXITS: Final = frozenset({"__exit__", "__aexit__"})
_GATHER_TASKS: Final = ("asyncio", "TaskGroup")


class ErrorHandling:
    """How a script handles the errors that findings of one code foresee.

    `earlier` are the names that scripts before in the session bound: what they did is not known, so it may catch.
    """

    def __init__(self, script: ScriptTree, values: KnownValues, earlier: Collection[str], code: str) -> None:
        self._script = script
        self._values = values
        self._earlier = earlier
        self._caught = _CAUGHT_AS[code] | _EVERY

    def catches(self, node: Guard) -> bool:
        """Whether the body of a statement may fail with such an error without the script's failing."""
        return self._catches(node, self._caught)

    def catches_absence(self, node: Guard) -> bool:
        """The same for a name that is not bound."""
        return self._catches(node, _UNBOUND | _EVERY)

    def catches_any(self, node: Guard) -> bool:
        """Whether it may fail with any error at all, and the rest of it never run."""
        if isinstance(node, (ast.With, ast.AsyncWith)):
            return any(self._suppresses(item.context_expr, None) for item in node.items)
        return bool(node.handlers) or _is_left(node)

    def is_task_of_group(self, call: ast.Call) -> bool:
        """Whether a call is the `create_task` of a task group, which waits for its tasks and fails with them."""
        function = call.func
        if not (isinstance(function, ast.Attribute) and function.attr == "create_task"):
            return False
        if not isinstance(function.value, ast.Name):
            return False
        bindings = self._script.bindings_of(function.value)
        return len(bindings) == 1 and bindings[0].node in self._groups and not self._cancels

    def _catches(self, node: Guard, errors: Set[str]) -> bool:
        if isinstance(node, (ast.With, ast.AsyncWith)):
            return any(self._suppresses(item.context_expr, errors) for item in node.items)
        if _is_left(node):
            return True
        return any(
            handler.type is None or self._is_caught([handler.type], errors) for handler in node.handlers
        )

    def _is_caught(self, types: Iterable[ast.expr], errors: Set[str]) -> bool:
        return any(self._may_be_caught(type_, errors) for type_ in _flat(types))

    def _may_be_caught(self, type_: ast.expr, errors: Set[str]) -> bool:
        path = self._script.paths.get(type_)
        if path is not None:
            is_known = path[0] in STANDARD_LIBRARY and len(path) > 1
            return path[-1] in errors or not (is_known or path[0] == "builtins")
        if isinstance(type_, ast.Name) and self._script.is_free(type_) and type_.id not in self._earlier:
            return type_.id in errors  # ToolError, which is no builtin of this Python
        return True

    def _suppresses(self, context: ast.expr, errors: Set[str] | None) -> bool:
        """Whether a context manager may suppress one of these errors, or any."""
        if isinstance(context, ast.Name):
            context = self._values.bound_once(context) or context
        path = self._script.paths.get(context.func) if isinstance(context, ast.Call) else None
        if path == _SUPPRESS and isinstance(context, ast.Call):
            return errors is None or self._is_caught(context.args, errors)
        if path is not None and path[0] in STANDARD_LIBRARY and path not in _STACKS:
            return False
        return self._has_contexts_of_its_own

    @cached_property
    def _has_contexts_of_its_own(self) -> bool:
        script = self._script
        texts = {node.value for node in script.all_of(ast.Constant) if isinstance(node.value, str)}
        own = script.functions.keys() & _EXITS or script.scopes.attributes & _EXITS or texts & _EXITS
        paths = script.paths.values()
        return bool(own or self._earlier) or any(
            path in _MAKE_CONTEXTS or path[0] in FIND_MODULES for path in paths
        )

    @cached_property
    def _groups(self) -> Set[ast.AST]:
        """The names that task groups are bound to."""
        items = [item for node in self._script.all_of(ast.AsyncWith) for item in node.items]
        return {
            item.optional_vars
            for item in items
            if isinstance(item.context_expr, ast.Call)
            and self._script.paths.get(item.context_expr.func) == _GATHER_TASKS
            and item.optional_vars is not None
        }

    @cached_property
    def _cancels(self) -> bool:
        """Whether it may cancel a task, which its group then waits for in vain."""
        attributes = (node.attr for node in self._script.all_of(ast.Attribute))
        texts = (node.value for node in self._script.all_of(ast.Constant))
        return "cancel" in attributes or "cancel" in texts


def gives_errors(gather: ast.Call) -> bool:
    """Whether a call of `gather` may give errors back as values."""
    return any(keyword.arg is None or _asks_for_errors(keyword) for keyword in gather.keywords)


def _asks_for_errors(keyword: ast.keyword) -> bool:
    is_off = isinstance(keyword.value, ast.Constant) and keyword.value.value is False
    return keyword.arg == "return_exceptions" and not is_off


def _is_left(node: ast.Try | ast.TryStar) -> bool:
    """Whether its `finally` leaves it, and an error with it."""
    leaves = (ast.Return, ast.Break, ast.Continue)
    return any(isinstance(part, leaves) for statement in node.finalbody for part in ast.walk(statement))


def _flat(types: Iterable[ast.expr]) -> Iterator[ast.expr]:
    for type_ in types:
        if isinstance(type_, ast.Tuple):
            yield from type_.elts
        else:
            yield type_
