"""The facts about a script for the check: the functions it uses, their arguments, and its unguarded lines.

The host has the functions' schemas, and only this Python can parse the script, so the check needs both.
"""

import ast
import builtins
import math
import sys
from collections.abc import Iterable, Iterator, Set
from functools import cached_property
from itertools import islice
from typing import Any

from sandbox_runtime.guest.analysis.absences import absences, is_conditional
from sandbox_runtime.guest.analysis.awaits import ForgottenCall, is_condition
from sandbox_runtime.guest.analysis.names import FUNCTIONS, LIBRARY, TYPES, Names, children_of, last_name
from sandbox_runtime.guest.values import clean

UNKNOWN = "\x00"
"""Placeholder for an argument value that is known only at run time."""

FROM_RESULT = "\x01"
"""Like UNKNOWN, for a value that may come from a result, which may differ from its declared type."""

SPREAD = "**"
"""Placeholder name for any other arguments: `f(**options)`."""

_MAX_USES = 1_000
_MAX_ABSENT = 10
_MAX_UNGUARDED = 50_000
_MAX_LITERALS = 10_000  # in all arguments together; further ones are unknown
_MAX_TEXT_CHARS = 10_000
_MAX_PARTS = 1_000
_EXACT_INTEGERS = 1 << 64


class Usage:
    """Analyses one script. Its `forgotten` calls without a `sync_scope` get an `await`.

    `uses` are `[namespace, function, line, end line, arguments]`. The function is empty for a missing namespace, the
    namespace for a call of an unbound bare name, and the arguments are None if the function is only named. Positional
    arguments are called `*0`, `*1`. `problems` are `[line, code, message, hint]`, and the function if it is about the
    result of one, with the name that has it, or "". `unguarded_lines` are the lines outside of any `try`, at module
    level or in a function that is called there.
    """

    def __init__(self, names: Names, forgotten: Iterable[ForgottenCall]) -> None:
        blocked = [call for call in forgotten if call.sync_scope and call.is_used]
        self._names = names
        self._inserted = {call.node for call in forgotten if not call.sync_scope}
        self._literals = _MAX_LITERALS
        texts = {node.value for node in names.all_of(ast.Constant) if isinstance(node.value, str)}
        self._texts = texts.union(*(text.split(".") for text in texts if len(text) < _MAX_TEXT_CHARS)) - {""}
        is_star = any(alias.name == "*" for alias in names.all_of(ast.alias))
        self._binds_unseen = is_star or not names.ids.isdisjoint(_BINDING)
        self._checks_types = not names.ids.isdisjoint(_TYPE_CHECKS) or any(names.all_of(ast.Match))
        reachability = _Reachability(names)
        known = names.namespaces
        uses = [use for use in (*self._mentions(), *self._imports()) if not self._is_probed(use, known)]
        # It tests for no module of Python: `json` is in the text "users.json".
        unbound = self._unbound_calls()
        uses += [use for use in unbound if not self._is_probed(use, known | sys.stdlib_module_names)]
        kept = [use for use in uses if use[2] not in reachability.typing]
        self.uses = sorted(kept, key=lambda use: use[2])[:_MAX_USES]
        unawaited = [
            [
                call.node.lineno,
                "not_awaited",
                f"{call.function}(...) is never awaited, and no `await` is inserted in {call.sync_scope}",
                call.remedy,
            ]
            for call in blocked
        ]
        absent = islice(absences(names, reachability.lines, self._texts), _MAX_ABSENT)
        uncalled = self._uncalled()
        mains = (function.lineno for function in uncalled if function.name == "main")
        self.unguarded_lines = sorted(reachability.lines.union(mains))[:_MAX_UNGUARDED]
        found = [
            *unawaited,
            *self._undefined(),
            *self._misuses(),
            *self._taken_apart(),
            *self._awaiting_blocks(),
        ]
        self.problems = sorted([*found, *absent, *map(_not_called, uncalled)])[:_MAX_USES]

    def _mentions(self) -> Iterator[list[Any]]:
        stored = (node for node in self._names.all_of(ast.Attribute) if not isinstance(node.ctx, ast.Load))
        replaced = {self._names.path(node) for node in stored}
        for node in (*self._names.all_of(ast.Name), *self._names.all_of(ast.Attribute)):
            path = self._names.function(node) if isinstance(node.ctx, ast.Load) else None
            if (
                path is not None
                and path not in replaced
                and not _is_special(path)
                and not self._is_type(node)
            ):
                yield self._use(node, path[1], path[2])

    def _is_type(self, node: ast.expr) -> bool:
        """Whether the node is in an annotation, or a type alias or variable, which Python does not evaluate."""
        part: ast.AST = node
        while not isinstance(part, ast.stmt):
            parent = self._names.parents[part]
            own = (getattr(parent, "annotation", None), getattr(parent, "returns", None))
            if part in own or isinstance(parent, TYPES):
                return True
            part = parent
        return False

    def _imports(self) -> Iterator[list[Any]]:
        imported = [(alias.name, alias) for alias in self._names.all_of(ast.alias)]
        for name, alias in imported:
            statement = self._names.parents[alias]
            start = ""
            if isinstance(statement, ast.ImportFrom):
                start = f"{statement.module}." if statement.module and not statement.level else "."
            path = self._names.library_path(tuple((start + name).removesuffix(".*").split("."))) or ()
            is_absent = (
                len(path) == 2
                and path[0] == LIBRARY
                and path[1] not in self._names.namespaces | self._names.known
            )
            if (len(path) == 3 or is_absent) and not _is_special(path):
                yield [path[1], "" if is_absent else path[2], alias.lineno, alias.lineno, None]

    def _unbound_calls(self) -> Iterator[list[Any]]:
        if self._binds_unseen:
            return
        for node in self._names.all_of(ast.Call):
            function = root = node.func
            while isinstance(root, ast.Attribute):
                root = root.value
            path = self._names.path(function) or ()
            if root in self._names.hidden:
                continue
            is_tools = len(path) == 2 and path[0] == LIBRARY
            if is_tools and path[1] not in self._names.namespaces and not _is_special(path):
                yield self._use(function, "", path[1])
            elif isinstance(root, ast.Name) and root.id not in _OTHER_LANGUAGES and self._is_unbound(root):
                namespace = "" if root is function else root.id
                yield self._use(function, namespace, last_name(function))

    def _is_unbound(self, name: ast.Name) -> bool:
        if self._names.is_bound(name) or self._names.path(name) is not None:
            return False
        return not (hasattr(builtins, name.id) or name.id.startswith("__") or name.id in _THERE)

    def _is_missing(self, name: ast.Name) -> bool:
        """Whether an unbound name fails where it stands, and is not told as the namespace of a call."""
        node: ast.AST = name
        while isinstance(parent := self._names.parents[node], ast.Attribute):
            node = parent
        is_told = node is not name and isinstance(parent, ast.Call) and parent.func is node
        return not (
            is_told or name.id in self._texts or self._is_type(name) or is_conditional(self._names, name)
        )

    def _use(self, node: ast.expr, namespace: str, function: str) -> list[Any]:
        call = self._names.parents[node]
        if isinstance(call, ast.Call) and call.func is node:
            return [namespace, function, call.lineno, call.end_lineno, self._arguments(call)]
        return [namespace, function, node.lineno, node.end_lineno, None]

    def _arguments(self, call: ast.Call) -> dict[str, Any]:
        given: dict[str, Any] = {}
        for index, argument in enumerate(call.args):
            is_spread = isinstance(argument, ast.Starred)
            given[SPREAD if is_spread else f"*{index}"] = UNKNOWN if is_spread else self._value(argument)
        for keyword in call.keywords:
            value = self._value(self._spread(keyword) or keyword.value)
            if keyword.arg is not None:
                given[keyword.arg] = value
            elif isinstance(value, dict):
                given.update(value)
            else:
                given[SPREAD] = UNKNOWN
        return given

    def _spread(self, keyword: ast.keyword) -> ast.expr | None:
        """The dict of `**options`, if the name has no other use."""
        if keyword.arg is not None or not isinstance(keyword.value, ast.Name):
            return None
        same = [node for node in self._names.all_of(ast.Name) if node.id == keyword.value.id]
        uses = (ast.keyword, ast.Assign)
        is_only_spread = all(isinstance(self._names.parents[node], uses) for node in same)
        return self._names.only_value(keyword.value) if is_only_spread else None

    def _value(self, node: ast.expr) -> Any:
        self._literals -= 1
        if self._literals < 0:
            return FROM_RESULT
        if isinstance(node, ast.Constant):
            return node.value if _is_plain(node.value) else UNKNOWN
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            value = self._value(node.operand)
            return -value if type(value) in (int, float) else UNKNOWN
        if isinstance(node, (ast.List, ast.Tuple)):
            is_spread = any(isinstance(part, ast.Starred) for part in node.elts)
            return UNKNOWN if is_spread else [self._value(part) for part in node.elts]
        if isinstance(node, ast.Dict):
            keys = [key.value if isinstance(key, ast.Constant) else None for key in node.keys]
            if all(isinstance(key, str) and _is_plain(key) for key in keys):
                return {str(key): self._value(value) for key, value in zip(keys, node.values, strict=True)}
        used = _names_in(node, self._names)
        return FROM_RESULT if used is None or (used and not used.isdisjoint(self._tainted)) else UNKNOWN

    @cached_property
    def _tainted(self) -> frozenset[str]:
        return _tainted(self._names)

    def _is_probed(self, use: list[Any], known: Set[str]) -> bool:
        """Whether the script may test for it first: `if hasattr(github, "search")`, `"jira" in dir(tools)`."""
        namespace, function = use[:2]
        return function in self._texts or (namespace not in known and namespace in self._texts)

    def _undefined(self) -> Iterator[list[Any]]:
        """Names that the script does not bind. Each is told once."""
        told = set[str]()
        for node in self._names.all_of(ast.Name):
            if node.id in told or not self._is_unbound(node):
                continue
            if node.id in _OTHER_LANGUAGES:
                hint = f"Write {_OTHER_LANGUAGES[node.id]}."
                yield [node.lineno, "not_python", f"Python has no name {node.id!r}", hint]
            elif not self._binds_unseen and self._is_missing(node):
                told.add(node.id)
                yield [node.lineno, "not_defined", f"name {node.id!r} is not defined", _NOT_DEFINED, node.id]

    def _misuses(self) -> Iterator[list[Any]]:
        names = self._names
        for node in names.all_of(ast.Await):
            if path := names.function(node.value):
                function = ".".join(path[1:])
                message = f"{function} is awaited, but not called"
                yield [node.lineno, "not_called", message, f"Write {function}(...)."]
        for call in names.all_of(ast.Call):
            path = names.path(call.func) or ()
            if len(path) == 2 and path[0] == LIBRARY and path[1] in names.namespaces:
                message = f"{path[1]} is a namespace, not a function"
                yield [call.lineno, "not_a_function", message, "Call one of its functions."]
            if is_condition(names, call) and names.is_async(call.func):
                name = last_name(call.func)
                message = f"{name}(...) is never awaited, so this condition is always true"
                yield [call.lineno, "not_awaited", message, f"Write `await {name}(...)`."]
        for part in () if self._checks_types else names.all_of(ast.Attribute):
            is_of_json = part.attr in _OF_JSON or names.path(part) is not None
            function = "" if is_of_json else self._result_of(part.value)
            if function:
                is_called = getattr(names.parents[part], "func", None) is part
                is_field = part.attr not in _OF_ENVELOPES and not is_called
                hint = f'Write ["{part.attr}"].' if is_field else "A call returns the data itself."
                hint = _OF_OTHERS.get(part.attr, hint)
                message = f"{function} returns plain data, which has no attribute {part.attr!r}"
                name = getattr(part.value, "id", "") if part.attr in _OF_ENVELOPES else ""
                about = [function, name] if part.attr not in _OF_OTHERS else []
                yield [part.end_lineno, "unknown_field", message, hint, *about]

    def _taken_apart(self) -> Iterator[list[Any]]:
        """Finds whole results that are iterated, measured or searched, which uses only the keys of a dict."""
        names = self._names
        keys = {
            getattr(node.slice, "id", getattr(node.slice, "value", None))
            for node in names.all_of(ast.Subscript)
        }
        taken = [
            (node.iter, "iterating it gives")
            for node in names.all_of(ast.For, ast.comprehension)
            if getattr(node.target, "id", "") not in keys
        ]
        taken += [
            (node.comparators[0], "`in` looks at")
            for node in names.all_of(ast.Compare)
            if type(node.ops[0]) in _IN and getattr(node.left, "value", "") not in keys
        ]
        for call in names.all_of(ast.Call):
            if last_name(call.func) in _COUNTING and len(call.args) == 1 and isinstance(call.func, ast.Name):
                taken.append((call.args[0], f"{call.func.id}() takes"))
            key = (
                getattr(call.args[0], "value", None) if call.args and last_name(call.func) == "get" else None
            )
            if isinstance(key, str) and (function := self._result_of(getattr(call.func, "value", None))):
                yield [call.lineno, "keys_only", f"{function} declares no field {key!r}", "", function]
        for node, effect in taken:
            if function := self._result_of(node):
                message = f"{effect} the keys of what {function} returns"
                yield [node.lineno, "keys_only", message, "", function, getattr(node, "id", "")]

    def _awaiting_blocks(self) -> Iterator[list[Any]]:
        """`async for` and `async with` over a call, whose result is a plain value."""
        for node in self._names.all_of(ast.AsyncFor, ast.comprehension, ast.withitem):
            is_block = isinstance(node, ast.withitem)
            taken, start = (node.context_expr, "... =") if is_block else (node.iter, "for ... in")
            if getattr(node, "is_async", True) and (function := self._result_of(taken)):
                message = f"{function} returns a value, not an asynchronous iterator or a context manager"
                yield [taken.lineno, "not_awaited", message, f"Write `{start} await {function}(...)`."]

    def _uncalled(self) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        """`main`, or the last function of a script that only defines some, if nothing calls it.

        None for a session's later scripts: code that the session defined may call it.
        """
        module = self._names.module.node
        assert isinstance(module, ast.Module)
        named = self._names.ids
        used = named.union(self._texts, (node.attr for node in self._names.all_of(ast.Attribute)))
        only_defines = all(isinstance(statement, _DEFINING) for statement in module.body)
        last = module.body[-1] if only_defines and module.body else None
        is_first = all(name.startswith("__") for name in self._names.known)
        if not is_first or not named.isdisjoint({*_BINDING, "eval"}):
            return []
        functions = [each for each in module.body if isinstance(each, FUNCTIONS) and not each.decorator_list]
        return [each for each in functions if each.name not in used and (each.name == "main" or each is last)]

    def _result_of(self, node: ast.expr | None) -> str:
        """The function that certainly produced a value, directly or through a name bound once; or ""."""
        if isinstance(node, ast.Name):
            node = self._names.only_value(node)
        while isinstance(node, (ast.NamedExpr, ast.Await)):
            node = node.value
        if not isinstance(node, ast.Call):
            return ""
        is_awaited = node in self._inserted or isinstance(self._names.parents[node], ast.Await)
        path = self._names.function(node.func) if is_awaited else None
        return ".".join(path[1:]) if path else ""


def _not_called(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[Any]:
    call = f"{'await ' if isinstance(function, ast.AsyncFunctionDef) else ''}{function.name}(...)"
    message = f"`{function.name}` is never called"
    return [function.lineno, "not_called", message, f"End the script with `{call}`."]


class _Reachability:
    """Finds the unguarded lines of a script, and those for type checkers only."""

    def __init__(self, names: Names) -> None:
        self.lines: set[int] = set()
        self.typing: set[int] = set()
        functions = set(names.all_of(*FUNCTIONS))
        classes = {part: owner.name for owner in names.all_of(ast.ClassDef) for part in owner.body}
        defined = {function.name for function in functions} | {*classes.values()}
        module = names.module.node
        assert isinstance(module, ast.Module)
        self._block(module.body)
        mentions: dict[str, set[int]] = {}
        for node in names.all_of(ast.Name, ast.Attribute) if functions else ():
            name = node.id if isinstance(node, ast.Name) else node.attr
            if name in defined and (isinstance(node, ast.Name) or names.path(node) is None):
                mentions.setdefault(name, set()).add(node.lineno)

        def is_reached(name: str) -> bool:
            return name.startswith("__") or not self.lines.isdisjoint(mentions.get(name, ()))

        while called := {
            function
            for function in functions
            if is_reached(function.name) and is_reached(classes.get(function, "__main__"))
        }:
            functions -= called
            for function in called:
                self._block(function.body)

    def _block(self, statements: Iterable[ast.stmt]) -> None:
        for statement in statements:
            if isinstance(statement, FUNCTIONS):
                defaults = (each for each in (*statement.args.defaults, *statement.args.kw_defaults) if each)
                self._note(*statement.decorator_list, *defaults)
            elif isinstance(statement, (ast.Try, ast.TryStar)):
                self._block([] if statement.handlers else [*statement.body, *statement.orelse])
                self._block(statement.finalbody)
            elif isinstance(statement, ast.If) and last_name(statement.test) == "TYPE_CHECKING":
                self.typing.update(range(statement.lineno, (statement.body[-1].end_lineno or 0) + 1))
                self._block(statement.orelse)
            elif hasattr(statement, "body") or isinstance(statement, ast.Match):
                self._compound(statement)
            else:
                self._note(statement)

    def _compound(self, statement: ast.stmt) -> None:
        """Visit the head of a statement and its blocks; a `with suppress(...)` counts as a `try`."""
        head = [part for part in children_of(statement) if isinstance(part, ast.expr)]
        head += [item.context_expr for item in getattr(statement, "items", ())]
        self._note(*head)
        if any(isinstance(part, ast.Call) and last_name(part.func) == "suppress" for part in head):
            return
        for part in (statement, *getattr(statement, "cases", ())):
            self._block(getattr(part, "body", ()))
            self._block(getattr(part, "orelse", ()))

    def _note(self, *nodes: ast.stmt | ast.expr) -> None:
        for node in nodes:
            self.lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))


def _tainted(names: Names) -> frozenset[str]:
    """The names whose values may come from results of library calls."""
    flows: dict[str, set[str]] = {}
    tainted: set[str] = set()
    for node in names.all_of(*_ASSIGNING):
        value, targets = _assigned(node)
        if value is None:
            continue
        bound = {part.id for target in targets for part in names.walk(target) if isinstance(part, ast.Name)}
        used = _names_in(value, names)
        if used is None:
            tainted |= bound
        for name in used or ():
            flows.setdefault(name, set()).update(bound)
    todo = [*tainted]
    while todo:
        new = flows.get(todo.pop(), set()) - tainted
        tainted |= new
        todo += new
    return frozenset(tainted)


def _assigned(node: Any) -> tuple[ast.expr | None, list[ast.expr]]:
    """The value that a statement assigns, and the targets."""
    if isinstance(node, ast.withitem):
        return node.context_expr, [node.optional_vars] if node.optional_vars else []
    if isinstance(node, ast.Assign):
        return node.value, node.targets
    return getattr(node, "iter", None) or node.value, [node.target]


def _names_in(value: ast.expr, names: Names) -> set[str] | None:
    """The names in a value; None if it may come from a result without them. A large expression counts as one."""
    found: set[str] = set()
    for number, part in enumerate(names.walk(value)):
        if number == _MAX_PARTS or isinstance(part, ast.Await):
            return None
        if isinstance(part, ast.Name):
            found.add(part.id)
        elif isinstance(part, ast.Call) and names.function(part.func) is not None:
            return None
    return found


_IN = (ast.In, ast.NotIn)
_COUNTING = frozenset({"len", "list", "enumerate", "sorted", "set", "tuple", "max", "min", "any", "all"})
_DEFINING = (*FUNCTIONS, ast.ClassDef, ast.Import, ast.ImportFrom)
_ASSIGNING = (
    *(ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr),
    *(ast.For, ast.AsyncFor, ast.comprehension, ast.withitem),
)


def _is_special(path: tuple[str, ...]) -> bool:
    """Whether a path is a dunder of a module: `github.__name__`."""
    return any(part.startswith("__") for part in path[1:])


def _is_plain(value: object) -> bool:
    """Whether a constant is short JSON."""
    if isinstance(value, str):
        return len(value) <= _MAX_TEXT_CHARS and clean(value) is value
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or (isinstance(value, int) and abs(value) < _EXACT_INTEGERS)


_BINDING = frozenset({"builtins", "exec", "globals", "locals", "vars"})
"""Names with which a script may bind others that its syntax does not show."""

_TYPE_CHECKS = frozenset({"callable", "getattr", "hasattr", "isinstance", "type"})

_NOT_DEFINED = "Import or assign it. Only a session keeps the names of earlier scripts."

_OTHER_LANGUAGES = {
    "true": "True",
    "false": "False",
    "null": "None",
    "undefined": "None",
    "console": "print(...)",
    "JSON": "json.dumps(...) or json.loads(...)",
    "Promise": "await asyncio.gather(...)",
}

_OF_JSON = frozenset(name for kind in (dict, list, str, int, float, type(None)) for name in dir(kind))
"""Attributes of JSON types."""

_OF_ENVELOPES = frozenset({"content", "data", "result", "structured_content", "structuredContent"})
"""Attributes in which other clients return a call's result."""

_OF_OTHERS = dict.fromkeys(("is_error", "isError"), "A failed call raises ToolError.")
_OF_OTHERS["length"] = "Write len(...)."

_THERE = frozenset({LIBRARY, "asyncio", "portal", "ToolError", "exit", "quit", "docs_search"})
"""Names of every script besides Python's builtins, and one whose NameError says what to write."""
