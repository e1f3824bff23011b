"""The types of a stub read as sets of values: is this value in it, and some that are."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from hypothesis import strategies as st

from manifests.json_value import Json
from portal.library.function import Function

_ANYTHING: Final = (
    st.none() | st.booleans() | st.integers(-3, 3) | st.just("a") | st.just([1]) | st.just({"a": 1})
)
_WORDS: Final[Mapping[str, st.SearchStrategy[Json]]] = {
    "Any": _ANYTHING,
    "bool": st.booleans(),
    "int": st.integers(-3, 3),
    "float": st.sampled_from([0.5, 1, 2.5, -3]),
    "str": st.sampled_from(["", "a", "open"]),
}
_MAX_DEPTH: Final = 4


@dataclass(frozen=True)
class TypedDictText:
    fields: Mapping[str, ast.expr]
    required: frozenset[str]
    extra: ast.expr | None


class StubTypes:
    """The types that a function's stub defines and mentions."""

    def __init__(self, function: Function) -> None:
        self._known: dict[str, TypedDictText | ast.expr] = {}
        for text in function.types:
            [node] = ast.parse(text).body
            if isinstance(node, ast.ClassDef):
                fields = {
                    each.target.id: each.annotation for each in node.body if isinstance(each, ast.AnnAssign)
                }  # type: ignore[union-attr]
                self._known[node.name] = _typed_dict(fields, node.keywords)
            else:
                assert isinstance(node, ast.Assign)
                name, value = node.targets[0].id, node.value  # type: ignore[attr-defined]
                if isinstance(value, ast.Call):
                    keys = value.args[1]
                    assert isinstance(keys, ast.Dict)
                    fields = {
                        ast.literal_eval(key): each
                        for key, each in zip(keys.keys, keys.values, strict=True)
                        if key
                    }
                    self._known[name] = _typed_dict(fields, value.keywords)
                else:
                    self._known[name] = value

    def contains(self, annotation: str, value: Json) -> bool:
        """Whether a type checker takes the value as one of the type: 3 is a float, True an int."""
        return self._contains(ast.parse(annotation, mode="eval").body, value)

    def values(self, annotation: str) -> st.SearchStrategy[Json]:
        """Values of the type; of recursive ones those that end soon."""
        return self._values(ast.parse(annotation, mode="eval").body, 0)

    def _contains(self, node: ast.expr, value: Json) -> bool:
        match node:
            case ast.BinOp(left, _, right):
                return self._contains(left, value) or self._contains(right, value)
            case ast.Constant(None):
                return value is None
            case ast.Name(name) if name in self._known:
                known = self._known[name]
                if isinstance(known, ast.expr):
                    return self._contains(known, value)
                return isinstance(value, dict) and self._has_fields(known, value)
            case ast.Name(name):
                return _is_of_word(name, value)
            case ast.Subscript(ast.Name("Literal"), inner):
                return not isinstance(value, float) and any(
                    type(each) is type(value) and each == value for each in _literals(inner)
                )
            case ast.Subscript(ast.Name("list"), item):
                return isinstance(value, list) and all(self._contains(item, each) for each in value)
            case ast.Subscript(ast.Name("dict"), ast.Tuple([_, inner])):
                return isinstance(value, dict) and all(self._contains(inner, each) for each in value.values())
        raise AssertionError(ast.dump(node))

    def _has_fields(self, known: TypedDictText, value: dict[str, Json]) -> bool:
        others = [key for key in value if key not in known.fields]
        return (
            known.required <= value.keys()
            and all(self._contains(known.fields[key], value[key]) for key in value if key in known.fields)
            and (known.extra is None or all(self._contains(known.extra, value[key]) for key in others))
        )

    def _values(self, node: ast.expr, depth: int) -> st.SearchStrategy[Json]:
        match node:
            case ast.BinOp(left, _, right):
                return self._values(left, depth) | self._values(right, depth)
            case ast.Constant(None):
                return st.none()
            case ast.Name(name) if name in self._known:
                known = self._known[name]
                if isinstance(known, ast.expr):
                    return self._values(known, depth)
                keys = [key for key in known.fields if key in known.required or depth <= _MAX_DEPTH]
                of = {
                    key: st.deferred(lambda key=key: self._values(known.fields[key], depth + 1))
                    for key in keys
                }  # type: ignore[misc]
                needed = {key: each for key, each in of.items() if key in known.required}
                return st.fixed_dictionaries(
                    needed, optional={key: of[key] for key in of if key not in needed}
                )
            case ast.Name(name):
                return _WORDS[name]
            case ast.Subscript(ast.Name("Literal"), inner):
                return st.sampled_from(_literals(inner))
            case ast.Subscript(ast.Name("list"), item):
                return (
                    st.just([]) if depth > _MAX_DEPTH else st.lists(self._values(item, depth + 1), max_size=2)
                )
            case ast.Subscript(ast.Name("dict"), ast.Tuple([_, inner])):
                keys_of = st.sampled_from(["a", "b", "new key"])
                some = st.dictionaries(keys_of, self._values(inner, depth + 1), max_size=2)
                return st.just({}) if depth > _MAX_DEPTH else some
        raise AssertionError(ast.dump(node))


def _typed_dict(fields: Mapping[str, ast.expr], keywords: list[ast.keyword]) -> TypedDictText:
    told = {each.arg: each.value for each in keywords}
    plain: dict[str, ast.expr] = {}
    required = set()
    for key, annotation in fields.items():
        match annotation:
            case ast.Subscript(ast.Name("NotRequired"), inner):
                plain[key] = inner
            case _:
                plain[key] = annotation
                required.add(key)
    return TypedDictText(plain, frozenset(() if "total" in told else required), told.get("extra_items"))


def _literals(node: ast.expr) -> list[Json]:
    return [ast.literal_eval(each) for each in (node.elts if isinstance(node, ast.Tuple) else [node])]


def _is_of_word(word: str, value: Json) -> bool:
    match word:
        case "Any":
            return True
        case "bool":
            return isinstance(value, bool)
        case "int":
            # To a type checker 1.0 is no int, but to JSON it is.
            return isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        case "float":
            return isinstance(value, int | float)
    return word == "str" and isinstance(value, str)
