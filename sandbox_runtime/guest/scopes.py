"""Which scope of a script binds which name, read from its syntax tree without running it."""

import ast
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_LEAVES = {ast.Constant, ast.Load, ast.Store, ast.Del}
# Who catches one of these has thought of a name that is not there.
_GUARDS = {"AttributeError", "NameError", "ImportError", "ModuleNotFoundError", "Exception", "BaseException"}


@dataclass(eq=False, slots=True)
class Binding:
    """One place that gives a name a value: an import, a definition, or an assignment.

    `value` is what a plain `name = value` assigns, `statement` the index of the top-level statement around it;
    `is_last` says that the statement does nothing after binding the name, and all else before it; `source` is what it
    evaluates before that, in a loop's head, a `with` and in `name := value`.
    """

    node: ast.AST
    scope: "Scope"
    statement: int
    value: ast.expr | None = None
    imported: tuple[str, ...] = ()
    is_last: bool = False
    source: ast.expr | None = None


@dataclass(eq=False)
class Scope:
    """A region of the script with names of its own."""

    kind: Literal["module", "function", "comprehension", "class"]
    parent: "Scope | None"
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    elsewhere: dict[str, "Scope"] = field(default_factory=dict)

    def owner(self, name: str) -> "Scope | None":
        """The scope whose variable `name` means here; None for a builtin, or a name nobody binds."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.elsewhere:
                return scope.elsewhere[name]
            if name in scope.bindings and (scope is self or scope.kind != "class"):
                return scope
            scope = scope.parent
        return None

    @property
    def runs_at_once(self) -> bool:
        """True if its code runs where it stands, not when something is called later."""
        return self.kind == "module" or (
            self.kind == "comprehension" and self.parent is not None and self.parent.runs_at_once
        )


class Mention(NamedTuple):
    """A name, or a dotted name, that the script reads; guarded if it handles the name's absence itself."""

    node: ast.Name | ast.Attribute
    scope: Scope
    statement: int
    is_guarded: bool


class Import(NamedTuple):
    """A dotted name that an import statement asks for; without its last part for `import *`."""

    path: tuple[str, ...]
    line: int
    is_guarded: bool


class _Place(NamedTuple):
    scope: Scope
    statement: int
    is_guarded: bool
    source: ast.expr | None = None

    def inside(self, scope: Scope) -> "_Place":
        return _Place(scope, self.statement, self.is_guarded)


class Scopes:
    """All scopes of a script, what they bind, and what of its tree other readers need.

    `mentions` are the dotted names it reads, `imports` those it imports; `awaited` are the operands of its
    awaits, `followed` the expressions with a `.name`, `[...]` or `(...)` behind them; `attributes` are the
    names of the attributes it assigns to.
    """

    def __init__(self, tree: ast.Module) -> None:
        self.module = Scope("module", None)
        self.of: dict[ast.AST, Scope] = {}
        self.mentions: list[Mention] = []
        self.imports: list[Import] = []
        self.calls: list[ast.Call] = []
        self.awaited: set[ast.expr] = set()
        self.followed: set[ast.expr] = set()
        self.classes: list[ast.ClassDef] = []
        self.attributes: set[str] = set()
        self._todo: list[tuple[ast.AST, _Place]] = []
        self._bound: list[tuple[Scope, str, Binding]] = []
        self._nonlocal: list[tuple[Scope, str]] = []
        for index, statement in enumerate(tree.body):
            self._todo.append((statement, _Place(self.module, index, False)))
            self._read()
        self._settle()

    def _read(self) -> None:
        todo = self._todo
        while todo:
            node, place = todo.pop()
            kind = type(node)
            read = _READERS.get(kind)
            if read is not None:
                read(self, node, place)
            elif kind not in _LEAVES:
                self._read_parts(node, place)

    def _read_parts(self, node: ast.AST, place: _Place) -> None:
        for name in node._fields:
            part = getattr(node, name, None)
            if isinstance(part, list):
                self._todo.extend((item, place) for item in part if isinstance(item, ast.AST))
            elif isinstance(part, ast.AST):
                self._todo.append((part, place))

    def _later(self, nodes: Iterable[ast.AST | None], place: _Place) -> None:
        self._todo.extend((node, place) for node in nodes if node is not None)

    def _bind(self, name: str, node: ast.AST, place: _Place, value: ast.expr | None = None) -> None:
        binding = Binding(node, place.scope, place.statement, value, source=place.source)
        self._bound.append((place.scope, name, binding))

    def _settle(self) -> None:
        """Hand out what was bound, once every `global` and `nonlocal` is known."""
        for scope, name, binding in self._bound:
            if name not in scope.elsewhere and (scope, name) not in self._nonlocal:
                scope.bindings.setdefault(name, []).append(binding)
        for scope, name in self._nonlocal:
            owner = scope.parent.owner(name) if scope.parent else None
            scope.elsewhere[name] = owner or self.module
        for scope, name, binding in self._bound:
            if name in scope.elsewhere:
                scope.elsewhere[name].bindings.setdefault(name, []).append(binding)

    # What each kind of node binds, and in which scope its parts are read.

    def _read_name(self, node: ast.Name, place: _Place) -> None:
        if isinstance(node.ctx, ast.Load):
            self.mentions.append(Mention(node, place.scope, place.statement, place.is_guarded))
        else:
            self._bind(node.id, node, place)

    def _read_attribute(self, node: ast.Attribute, place: _Place) -> None:
        if not isinstance(node.ctx, ast.Load):
            self.attributes.add(node.attr)
        root: ast.expr = node
        while isinstance(root, ast.Attribute):
            root = root.value
        if isinstance(root, ast.Name):
            self.mentions.append(Mention(node, place.scope, place.statement, place.is_guarded))
        else:
            self.followed.add(root)
            self._todo.append((root, place))

    def _read_subscript(self, node: ast.Subscript, place: _Place) -> None:
        self.followed.add(node.value)
        self._todo += [(node.value, place), (node.slice, place)]

    def _read_await(self, node: ast.Await, place: _Place) -> None:
        self.awaited.add(node.value)
        self._todo.append((node.value, place))

    def _read_call(self, node: ast.Call, place: _Place) -> None:
        self.calls.append(node)
        self.followed.add(node.func)
        self._later([node.func, *node.args, *node.keywords], place)

    def _read_assignment(self, node: ast.Assign, place: _Place) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name):
                self._bind_last(target, place, node.value)
            elif isinstance(target, ast.Tuple) and all(isinstance(part, ast.Name) for part in target.elts):
                for part in target.elts:
                    self._bind_last(part, place, None)
            else:
                self._later([target], place)
        self._later([node.value], place)

    def _read_annotated(self, node: ast.AnnAssign, place: _Place) -> None:
        if isinstance(node.target, ast.Name):
            self._bind_last(node.target, place, node.value)
        self._later([None if isinstance(node.target, ast.Name) else node.target, node.value], place)

    def _bind_last(self, target: ast.expr, place: _Place, value: ast.expr | None) -> None:
        if isinstance(target, ast.Name):
            binding = Binding(target, place.scope, place.statement, value, is_last=True)
            self._bound.append((place.scope, target.id, binding))

    def _read_loop(self, node: ast.For | ast.AsyncFor, place: _Place) -> None:
        self._later([node.target], place._replace(source=node.iter))
        self._later([node.iter, *node.body, *node.orelse], place)

    def _read_context(self, node: ast.withitem, place: _Place) -> None:
        self._later([node.optional_vars], place._replace(source=node.context_expr))
        self._later([node.context_expr], place)

    def _read_walrus(self, node: ast.NamedExpr, place: _Place) -> None:
        scope = place.scope
        while scope.kind == "comprehension" and scope.parent is not None:
            scope = scope.parent
        self._bind(node.target.id, node.target, place.inside(scope)._replace(source=node.value), node.value)
        self._later([node.value], place)

    def _read_import(self, node: ast.Import, place: _Place) -> None:
        for alias in node.names:
            path = tuple(alias.name.split("."))
            self._import(alias.asname or path[0], node, path if alias.asname else path[:1], place)
            self.imports.append(Import(path, node.lineno, place.is_guarded))

    def _read_import_from(self, node: ast.ImportFrom, place: _Place) -> None:
        module = tuple((node.module or "").split(".")) if node.level == 0 else ("",)
        for alias in node.names:
            path = (*module, alias.name) if alias.name != "*" else module
            self._import(alias.asname or alias.name, node, path, place)
            self.imports.append(Import(path, node.lineno, place.is_guarded))

    def _import(self, name: str, node: ast.stmt, path: tuple[str, ...], place: _Place) -> None:
        binding = Binding(node, place.scope, place.statement, imported=path)
        self._bound.append((place.scope, name, binding))

    def _read_global(self, node: ast.Global, place: _Place) -> None:
        if place.scope is not self.module:
            place.scope.elsewhere.update(dict.fromkeys(node.names, self.module))

    def _read_nonlocal(self, node: ast.Nonlocal, place: _Place) -> None:
        self._nonlocal += [(place.scope, name) for name in node.names]

    def _read_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, place: _Place) -> None:
        self._bind(node.name, node, place)
        self._later(node.decorator_list, place)
        self._later(node.body, self._function(node, place))

    def _read_lambda(self, node: ast.Lambda, place: _Place) -> None:
        self._later([node.body], self._function(node, place))

    def _function(self, node: Function, place: _Place) -> _Place:
        self._later([*node.args.defaults, *node.args.kw_defaults], place)
        inner = place.inside(self._open(node, "function", place.scope))
        for parameter in parameters(node):
            self._bind(parameter.arg, parameter, inner)
        return inner

    def _read_class(self, node: ast.ClassDef, place: _Place) -> None:
        self.classes.append(node)
        self._bind(node.name, node, place)
        self._later([*node.decorator_list, *node.bases, *node.keywords], place)
        self._later(node.body, place.inside(self._open(node, "class", place.scope)))

    def _read_comprehension(self, node: Comprehension, place: _Place) -> None:
        inner = place.inside(self._open(node, "comprehension", place.scope))
        self._later([node.generators[0].iter], place)
        for index, generator in enumerate(node.generators):
            self._later([generator.target, *generator.ifs], inner)
            self._later([generator.iter] if index else [], inner)
        elements = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
        self._later(elements, inner)

    def _open(
        self, node: ast.AST, kind: Literal["function", "comprehension", "class"], parent: Scope
    ) -> Scope:
        scope = self.of[node] = Scope(kind, parent)
        return scope

    def _read_handler(self, node: ast.ExceptHandler, place: _Place) -> None:
        if node.name:
            self._bind(node.name, node, place)
        self._later([node.type, *node.body], place)

    def _read_capture(self, node: ast.MatchAs | ast.MatchStar | ast.MatchMapping, place: _Place) -> None:
        name = node.rest if isinstance(node, ast.MatchMapping) else node.name
        if name:
            self._bind(name, node, place)
        self._read_parts(node, place)

    def _read_type_alias(self, node: ast.AST, place: _Place) -> None:
        self._later([getattr(node, "name", None)], place)  # the value is not evaluated where it stands

    def _read_try(self, node: ast.Try, place: _Place) -> None:
        catches = any(
            handler.type is None or any(name.id in _GUARDS for name in _names(handler.type))
            for handler in node.handlers
        )
        guarded = _Place(place.scope, place.statement, place.is_guarded or catches)
        self._later(node.body, guarded)
        self._later([*node.handlers, *node.orelse, *node.finalbody], place)

    def _read_condition(self, node: ast.If | ast.IfExp, place: _Place) -> None:
        asks = any(name.id == "hasattr" for name in _names(node.test))
        guarded = _Place(place.scope, place.statement, place.is_guarded or asks)
        self._later([node.test], place)
        for part in (node.body, node.orelse):
            self._later(part if isinstance(part, list) else [part], guarded)


_READERS: dict[type[ast.AST], Callable[[Scopes, Any, _Place], None]] = {
    ast.Name: Scopes._read_name,
    ast.Attribute: Scopes._read_attribute,
    ast.Subscript: Scopes._read_subscript,
    ast.Call: Scopes._read_call,
    ast.Await: Scopes._read_await,
    ast.Assign: Scopes._read_assignment,
    ast.AnnAssign: Scopes._read_annotated,
    ast.NamedExpr: Scopes._read_walrus,
    ast.For: Scopes._read_loop,
    ast.AsyncFor: Scopes._read_loop,
    ast.withitem: Scopes._read_context,
    ast.Import: Scopes._read_import,
    ast.ImportFrom: Scopes._read_import_from,
    ast.Global: Scopes._read_global,
    ast.Nonlocal: Scopes._read_nonlocal,
    ast.FunctionDef: Scopes._read_function,
    ast.AsyncFunctionDef: Scopes._read_function,
    ast.Lambda: Scopes._read_lambda,
    ast.ClassDef: Scopes._read_class,
    ast.ExceptHandler: Scopes._read_handler,
    ast.MatchAs: Scopes._read_capture,
    ast.MatchStar: Scopes._read_capture,
    ast.MatchMapping: Scopes._read_capture,
    ast.Try: Scopes._read_try,
    ast.TryStar: Scopes._read_try,
    ast.If: Scopes._read_condition,
    ast.IfExp: Scopes._read_condition,
    **dict.fromkeys(COMPREHENSIONS, Scopes._read_comprehension),
}
if sys.version_info >= (3, 12):
    _READERS[ast.TypeAlias] = Scopes._read_type_alias


def parameters(node: Function) -> list[ast.arg]:
    """Every parameter of a function: by position, by keyword, `*args`, `**kwargs`."""
    arguments = node.args
    rest = [parameter for parameter in (arguments.vararg, arguments.kwarg) if parameter]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *rest]


def _names(node: ast.AST | None) -> Iterator[ast.Name]:
    return (child for child in ast.walk(node) if isinstance(child, ast.Name)) if node else iter(())
