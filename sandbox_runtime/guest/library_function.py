"""A function of the library as a script sees it: callable, and telling what it takes."""

import ast
import inspect
import re
import sys

from sandbox_runtime.guest.calls import Call, Calls
from sandbox_runtime.guest.values import Uncrossable

_HEAD = re.compile(r"async def [\w.]+(?=\()")
_CUT = ", ...)"
"""How the host shows that there are more parameters."""


class LibraryFunction(Uncrossable):
    """Makes calls that start when they are awaited.

    Its signature is the host's, in one line: `async def git.git_log(*, count: int = 10) -> list[dict]`, or nothing.
    """

    def __init__(self, calls: Calls, namespace: str, name: str, signature: str) -> None:
        self.__name__ = name
        self.__qualname__ = f"{namespace}.{name}"
        self.__module__ = namespace
        self.__doc__ = (
            f'{signature}\n\nIts documentation: docs_search(query="{self.__qualname__}")'
            if signature
            else None
        )
        self._calls = calls
        self._signature = signature
        if sys.version_info >= (3, 12):
            inspect.markcoroutinefunction(self)

    def __call__(self, *positional: object, **arguments: object) -> Call:
        """A call. Arguments by position go to the host as `*0`, `*1`: it knows their names."""
        given = {f"*{index}": value for index, value in enumerate(positional)}
        return self._calls.create(self.__qualname__, given | arguments)

    @property
    def __signature__(self) -> inspect.Signature:
        return _parsed(self._signature)

    def __repr__(self) -> str:
        return f"<async function {self.__qualname__}{_HEAD.sub('', self._signature, count=1)}>"

    def advice(self) -> str:
        return f"it is {self!r}: call it"


class _Shown(str):
    """A type or a default by its text, which is shown without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


def _parsed(signature: str) -> inspect.Signature:
    """The signature as Python knows it; nothing in it is evaluated but literals."""
    text = _HEAD.sub("def f", signature, count=1).replace(_CUT, ", **more)", 1)
    try:
        function = ast.parse(f"{text}: ...").body[0]
    except SyntaxError:
        function = None
    if not isinstance(function, ast.FunctionDef):
        return inspect.Signature([inspect.Parameter("arguments", inspect.Parameter.VAR_KEYWORD)])
    told = function.args
    parameters = [
        _parameter(argument, inspect.Parameter.KEYWORD_ONLY, default)
        for argument, default in zip(told.kwonlyargs, told.kw_defaults, strict=True)
    ]
    if told.kwarg is not None:
        parameters.append(_parameter(told.kwarg, inspect.Parameter.VAR_KEYWORD, None))
    return inspect.Signature(parameters, return_annotation=_annotation(function.returns))


def _parameter(
    argument: ast.arg, kind: "inspect._ParameterKind", default: ast.expr | None
) -> inspect.Parameter:
    value = inspect.Parameter.empty if default is None else _literal(default)
    return inspect.Parameter(argument.arg, kind, default=value, annotation=_annotation(argument.annotation))


def _annotation(told: ast.expr | None) -> object:
    if told is None:
        return inspect.Parameter.empty
    if isinstance(told, ast.Constant) and isinstance(told.value, str):
        return _Shown(told.value)
    return _Shown(ast.unparse(told))


def _literal(told: ast.expr) -> object:
    """A default that is too long for the host to show is `...`, and so is one that is no literal."""
    try:
        value = ast.literal_eval(told)
    except ValueError:
        value = ...
    return _Shown("...") if value is ... else value
