"""What a script's expressions are that no call can carry, because JSON has nothing like it."""

import ast
from types import MappingProxyType
from typing import Final

_LIST: Final = "use list(value)"
_TEXT: Final = "use str(value)"
_MOMENT: Final = "use value.isoformat()"
_BYTES: Final = "use value.decode()"
_DISPLAYS: Final = MappingProxyType[type[ast.expr], tuple[str, str]](
    {
        ast.Set: ("a set", _LIST),
        ast.SetComp: ("a set", _LIST),
        ast.GeneratorExp: ("a generator", _LIST),
        ast.Lambda: ("a function", "call it"),
    }
)
_CONSTANTS: Final = MappingProxyType[type, tuple[str, str]](
    {bytes: ("bytes", _BYTES), complex: ("a complex", _TEXT)}
)
_MADE_BY: Final = MappingProxyType(
    {
        **{
            ("builtins", name): (f"a {name}", _LIST)
            for name in ("filter", "frozenset", "map", "range", "set", "zip")
        },
        ("builtins", "enumerate"): ("an enumerate", _LIST),
        ("builtins", "bytes"): ("bytes", _BYTES),
        **{("datetime", "date", name): ("a date", _MOMENT) for name in ("fromisoformat", "today")},
        **{("datetime", "datetime", name): ("a datetime", _MOMENT) for name in ("fromisoformat", "now", "today")},
        **{("datetime", name): (f"a {name}", _MOMENT) for name in ("date", "datetime", "time")},
        ("datetime", "timedelta"): ("a timedelta", "use value.total_seconds()"),
        ("decimal", "Decimal"): ("a Decimal", "use str(value) or float(value)"),
        ("pathlib", "Path"): ("a Path", _TEXT),
        ("uuid", "uuid4"): ("a UUID", _TEXT),
    }
)  # fmt: skip


def written(node: ast.expr) -> tuple[str, str] | None:
    """What an expression is that is written out, and what to write instead; None if it may be JSON."""
    return _CONSTANTS.get(type(node.value)) if isinstance(node, ast.Constant) else _DISPLAYS.get(type(node))


def made_by(path: tuple[str, ...]) -> tuple[str, str] | None:
    """The same for what a call of a builtin, or of the standard library, returns."""
    return _MADE_BY.get(path)
