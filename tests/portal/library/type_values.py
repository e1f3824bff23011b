"""The types of a stub read as sets of values: is this value in it, and some that are."""

from collections.abc import Mapping
from typing import Final

from hypothesis import strategies as st

from manifests.json_value import Json
from portal.library.function_draft import FunctionDraft
from portal.library.type_definitions import AliasDefinition, Definition, Field, TypedDictDefinition
from portal.library.type_expressions import DictOf, ListOf, Literal, Named, Type, Union, Word

_ANYTHING: Final = (
    st.none() | st.booleans() | st.integers(-3, 3) | st.just("a") | st.just([1]) | st.just({"a": 1})
)
_WORDS: Final[Mapping[str, st.SearchStrategy[Json]]] = {
    "Any": _ANYTHING,
    "None": st.none(),
    "bool": st.booleans(),
    "int": st.integers(-3, 3),
    "float": st.sampled_from([0.5, 1, 2.5, -3]),
    "str": st.sampled_from(["", "a", "open"]),
}
_MAX_DEPTH: Final = 4


def definitions_of(draft: FunctionDraft) -> dict[str, Definition]:
    return {each.name: each for each in draft.definitions}


def contains(type_: Type, value: Json, known: Mapping[str, Definition]) -> bool:
    """Whether a type checker takes the value as one of the type: 3 is a float, True an int."""
    match type_:
        case Word(word):
            return _is_of_word(word, value)
        case Literal(sources):
            return not isinstance(value, float | list | dict) and repr(value) in sources
        case ListOf(item):
            return isinstance(value, list) and all(contains(item, each, known) for each in value)
        case DictOf(inner):
            return isinstance(value, dict) and all(contains(inner, each, known) for each in value.values())
        case Union(members):
            return any(contains(member, value, known) for member in members)
        case Named(name):
            definition = known[name]
            if isinstance(definition, AliasDefinition):
                return contains(definition.type, value, known)
            return isinstance(value, dict) and _has_fields(definition, value, known)


def values(type_: Type, known: Mapping[str, Definition], depth: int = 0) -> st.SearchStrategy[Json]:
    """Values of the type; of recursive ones those that end soon."""
    match type_:
        case Word(word):
            return _WORDS[word]
        case Literal(sources):
            return st.sampled_from([_literal(source) for source in sources])
        case ListOf(item):
            return st.just([]) if depth > _MAX_DEPTH else st.lists(values(item, known, depth + 1), max_size=2)
        case DictOf(inner):
            keys = st.sampled_from(["a", "b", "new key"])
            return (
                st.dictionaries(keys, values(inner, known, depth + 1), max_size=2)
                if depth <= _MAX_DEPTH
                else st.just({})
            )
        case Union(members):
            return st.one_of([values(member, known, depth) for member in members])
        case Named(name):
            definition = known[name]
            if isinstance(definition, AliasDefinition):
                return values(definition.type, known, depth)
            return _typed_dicts(definition, known, depth + 1)


def _typed_dicts(
    definition: TypedDictDefinition, known: Mapping[str, Definition], depth: int
) -> st.SearchStrategy[Json]:
    needed = [field for field in definition.fields if field.is_required]
    optional = [field for field in definition.fields if not field.is_required and depth <= _MAX_DEPTH]

    def of(fields: list[Field]) -> dict[str, st.SearchStrategy[Json]]:
        return {each.key: st.deferred(lambda each=each: values(each.type, known, depth)) for each in fields}  # type: ignore[misc]

    return st.fixed_dictionaries(of(needed), optional=of(optional))


def _has_fields(
    definition: TypedDictDefinition, value: dict[str, Json], known: Mapping[str, Definition]
) -> bool:
    fields = {field.key: field for field in definition.fields}
    if any(field.is_required and field.key not in value for field in definition.fields):
        return False
    extra = definition.extra
    return all(
        contains(fields[key].type, each, known)
        if key in fields
        else extra is None or contains(extra, each, known)
        for key, each in value.items()
    )


def _is_of_word(word: str, value: Json) -> bool:
    match word:
        case "Any":
            return True
        case "None":
            return value is None
        case "bool":
            return isinstance(value, bool)
        case "int":
            # To a type checker 1.0 is no int, but to JSON it is.
            return isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        case "float":
            return isinstance(value, int | float)
    return word == "str" and isinstance(value, str)


def _literal(source: str) -> Json:
    return {"True": True, "False": False}.get(source, eval(source))  # our own stub's literal
