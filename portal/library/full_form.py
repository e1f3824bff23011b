"""Functions in full, as a model reads them: the head of the brief line, with comments, types and documentation."""

import ast
import re
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Final

from portal.base.plain_text import comment, docstring, literal_text, one_line
from portal.library.function import LONGEST_PARAMETER_DOC, Function, lean_parameter
from portal.library.schema_types import Definition, respelt

LONGEST_SHAPE: Final = 160
"""Characters of a type in place. A longer one, and one whose keys have comments, is defined before the function."""

_MAX_KEYS: Final = 10
_LITERAL: Final = re.compile(r"Literal(\[(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[^\]'\"])*\])")


def full_forms(functions: Sequence[Function], depth: int | None = None) -> list[str]:
    """The form of each function, after the types that no earlier form of its namespace has.

    With a `depth`, types below so many levels of the result are their keys only; below 0, the result is `Any`.
    """
    shown: set[tuple[str, str]] = set()
    forms = []
    for function in functions:
        spellings, types = _types(function, depth)
        new = [each.source({}) for each in types if (function.namespace, each.name) not in shown]
        shown.update((function.namespace, each.name) for each in types)
        forms.append("\n\n".join([*new, _head(function, spellings)]))
    return forms


def _types(function: Function, depth: int | None) -> tuple[Mapping[str, str], list[Definition]]:
    """How the types that it needs are written in place, by name, and the definitions of the others."""
    definitions, annotations = function.definitions, [each.annotation for each in function.parameters]
    kept, result = definitions.levels(*annotations, function.others), definitions.levels(function.returns)
    most = len(result) if depth is None else max(depth, 0)
    deep = {*chain(*result[most:])}.difference(*kept)
    spellings = {name: "Any" if depth == -1 else _keys(definitions.by_name[name]) for name in deep}
    needed = {*chain(*kept, *result)} - deep
    undecided, named = {*needed}, list[Definition]()
    for each in definitions.by_name.values():
        if each.name in needed:
            shape = _shape(each, spellings)
            if len(shape) <= LONGEST_SHAPE and undecided.isdisjoint(each.mentioned):
                spellings[each.name] = shape
            else:
                named.append(each)
            undecided.discard(each.name)
    own = {each.name: each.name for each in named}
    return spellings, [each.respelt(spellings | own) for each in named]


def _shape(of: Definition, spellings: Mapping[str, str]) -> str:
    """`{name: str, color?: 'red'|'blue'}`; the whole source of what cannot be written in place."""
    if of.fields is None or any(each.doc for each in of.fields):
        return of.source({}).ljust(LONGEST_SHAPE + 1)
    is_partial, fields = of.text.startswith(", total=False"), []
    for each in of.fields:
        type_ = each.type.removeprefix("NotRequired[")
        is_optional = type_ != each.type
        mark = "?" if is_optional or is_partial else ""
        fields.append(f"{_key(each.key)}{mark}: {_text(type_[:-1] if is_optional else type_, spellings)}")
    return f"{{{', '.join(fields + ['…'] * (', extra_items=' in of.text))}}}"


def _keys(of: Definition) -> str:
    keys = [one_line(_key(each.key), 40) for each in of.fields or ()]
    return f"{{{', '.join(keys[:_MAX_KEYS] + ['…'] * (len(keys) > _MAX_KEYS))}}}" if keys else "Any"


def _key(key: str) -> str:
    return key if key.isidentifier() and key.isascii() else literal_text(key)


def _text(annotation: str, spellings: Mapping[str, str]) -> str:
    """An annotation with types in place, and `'a'|'b'` for `Literal['a', 'b']`."""
    plain = _LITERAL.sub(lambda found: "|".join(map(literal_text, ast.literal_eval(found[1]))), annotation)
    return respelt(plain, spellings)


def _head(of: Function, spellings: Mapping[str, str]) -> str:
    shown = [lean_parameter(each, _text(each.annotation, spellings)) for each in of.parameters]
    shown += filter(None, [_text(of.others, spellings).removesuffix(": Any")])
    arguments = ", ".join(shown)
    if any(each.doc for each in of.parameters):
        docs = [*(f",{comment(each.doc, LONGEST_PARAMETER_DOC)}" for each in of.parameters), ""]
        arguments = "".join(f"\n    {text}{doc}" for text, doc in zip(shown, docs, strict=False)) + "\n"
    head = f"{of.qualified}({arguments}) -> {_text(of.returns, spellings)}{of.comments}"
    return f"{head}\n{docstring(of.documentation, indent='    ')}" if of.documentation else head
