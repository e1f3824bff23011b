"""The grammar of all annotations: Python types as values, so that no text of a schema is ever in one.

What a stub says is rendered from these classes alone. Words and names of types are spelled through a
`Spelling`, because a tool called `list` takes that word away from its namespace's module.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from manifests.json_value import Json
from portal.library.literals import literal_text
from portal.library.schema.json_kinds import is_kind

Spelling: TypeAlias = Mapping[str, str]
"""How words and named types are written, where not as themselves."""

PLAIN: Final[Spelling] = {}

TYPING_WORDS: Final = ("Any", "Literal", "NotRequired", "TypedDict")
BUILTIN_WORDS: Final = ("bool", "dict", "float", "int", "list", "str")


@dataclass(frozen=True, slots=True)
class Word:
    """`Any`, `None` or a builtin scalar."""

    word: str


@dataclass(frozen=True, slots=True)
class Literal:
    """One or more values as source, of which `None` stands apart in a union; see `literal`."""

    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ListOf:
    item: "Type"


@dataclass(frozen=True, slots=True)
class DictOf:
    value: "Type"


@dataclass(frozen=True, slots=True)
class Named:
    """A type that the namespace's module defines."""

    name: str


@dataclass(frozen=True, slots=True)
class Union:
    """Two or more members, none of them a union, at most one a literal; see `union`."""

    members: tuple["Type", ...]


Type: TypeAlias = Word | Literal | ListOf | DictOf | Named | Union

ANY: Final = Word("Any")
NONE: Final = Word("None")


def literal(values: Iterable[Json]) -> Type:
    """Exactly these values, each of which passes `literals.is_literal`."""
    return union([NONE if value is None else Literal((literal_text(value),)) for value in values])


def union(types: Iterable[Type]) -> Type:
    """What fits any of these: flat, without repetition, literals joined, `None` last; `Any` takes all."""
    members: dict[Type, None] = {}
    sources: dict[str, None] = {}
    for member in _flat(types):
        if member == ANY:
            return ANY
        if isinstance(member, Literal):
            sources.update(dict.fromkeys(member.sources))
            members.setdefault(_LITERALS)
        else:
            members.setdefault(member)
    is_nullable = NONE in members
    members.pop(NONE, None)
    joined = [Literal(tuple(sources)) if member == _LITERALS else member for member in members]
    if is_nullable:
        joined.append(NONE)
    return joined[0] if len(joined) == 1 else Union(tuple(joined)) if joined else ANY


def render(type_: Type, spelling: Spelling = PLAIN) -> str:
    """The annotation's source."""
    match type_:
        case Word(word) | Named(word):
            return spelling.get(word, word)
        case Literal(sources):
            return f"{spelling.get('Literal', 'Literal')}[{', '.join(sources)}]"
        case ListOf(item):
            return f"{spelling.get('list', 'list')}[{render(item, spelling)}]"
        case DictOf(value):
            return f"{spelling.get('dict', 'dict')}[{spelling.get('str', 'str')}, {render(value, spelling)}]"
        case Union(members):
            return " | ".join(render(member, spelling) for member in members)


def says_nothing(type_: Type) -> bool:
    """Whether a type tells no more than that there is data: `Any`, `dict[str, Any]`, `list[Any] | None`."""
    match type_:
        case Word(word):
            return word == "Any"
        case ListOf(inner) | DictOf(inner):
            return says_nothing(inner)
        case Union(members):
            return all(says_nothing(member) for member in members if member != NONE)
    return False


def names_in(type_: Type) -> Iterator[str]:
    """The named types that an annotation mentions."""
    match type_:
        case Named(name):
            yield name
        case ListOf(inner) | DictOf(inner):
            yield from names_in(inner)
        case Union(members):
            for member in members:
                yield from names_in(member)


def renamed(type_: Type, names: Mapping[str, str]) -> Type:
    """The same type with named types called otherwise."""
    match type_:
        case Named(name):
            return Named(names.get(name, name))
        case ListOf(item):
            return ListOf(renamed(item, names))
        case DictOf(value):
            return DictOf(renamed(value, names))
        case Union(members):
            return Union(tuple(renamed(member, names) for member in members))
    return type_


def takes_default(type_: Type, value: Json) -> bool:
    """Whether a type checker takes the value, a scalar or an empty container, as one of the type."""
    match type_:
        case Word("Any"):
            return True
        case Word(word):
            return is_kind(value, (_KINDS[word],)) and not (word == "int" and isinstance(value, float))
        case Literal(sources):
            return not isinstance(value, float | list | dict) and literal_text(value) in sources
        case ListOf() | DictOf():
            return isinstance(value, list if isinstance(type_, ListOf) else dict)
        case Union(members):
            return any(takes_default(member, value) for member in members)
    return False


def _flat(types: Iterable[Type]) -> Iterator[Type]:
    for type_ in types:
        if isinstance(type_, Union):
            yield from type_.members
        else:
            yield type_


_LITERALS: Final = Word("Literal")
_KINDS: Final = {"None": "null", "bool": "boolean", "float": "number", "int": "integer", "str": "string"}
