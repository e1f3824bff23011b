"""The types of one namespace's stubs as Python source; no text of a schema is in them but as a literal or a comment."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from keyword import iskeyword
from typing import Final, Protocol, TypeAlias

from manifests.json_value import Json
from portal.library.plain_text import comment, literal_text

Type: TypeAlias = tuple[str, ...]
"""The members of a union as source, `None` last; one that begins with `=` is the value of a literal."""

ANY: Final[Type] = ("Any",)
NONE: Final[Type] = ("None",)
TYPING_WORDS: Final = ("Any", "Literal", "NotRequired", "TypedDict")
BUILTIN_WORDS: Final = ("bool", "dict", "float", "int", "list", "str")

_RESERVED: Final = frozenset({*BUILTIN_WORDS, *TYPING_WORDS, "None", "True", "False"})
_SAYS_NOTHING: Final = re.compile(r"(?:list\[|dict\[str, )*Any\]*")
_QUOTED: Final = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_WORD: Final = re.compile(r"[^\W\d]\w*")


@dataclass(frozen=True, slots=True)
class Field:
    """One key of a typed dict, as on the wire; `doc` is plain text for its comment."""

    key: str
    type: str
    is_required: bool
    doc: str = ""


def union(types: Iterable[Type]) -> Type:
    """What fits any of these; `Any` takes all."""
    members = dict.fromkeys(member for type_ in types for member in type_)
    if "Any" in members or not members:
        return ANY
    return (*(each for each in members if each != "None"), *(NONE if "None" in members else ()))


def literal(values: Iterable[Json]) -> Type:
    """Exactly these values, each of which passes `is_literal`."""
    return union([NONE if value is None else (f"={literal_text(value)}",) for value in values])


def says_nothing(type_: Type) -> bool:
    """Whether a type tells no more than that there is data: `Any`, `dict[str, Any]`, `list[Any] | None`."""
    return all(_SAYS_NOTHING.fullmatch(each) or each == "None" for each in type_) and type_ != NONE


def module_spelling(functions: Iterable[str]) -> Mapping[str, str]:
    """How a module writes words that functions of its own hide: `_list` where a tool is called `list`."""
    taken = set(functions)
    spelling: dict[str, str] = {}
    for word in (*TYPING_WORDS, *BUILTIN_WORDS):
        if word in taken:
            spelling[word] = f"_{word}"
            while spelling[word] in taken:
                spelling[word] = f"_{spelling[word]}"
    return spelling


class StubTypes:
    """The definitions of one namespace's module. A type that two tools define alike is there once; of types that only
    share a name, the first one keeps it, and the others get their function's name in front.
    """

    def __init__(self, functions: Iterable[str], spelling: Mapping[str, str]) -> None:
        self.definitions: dict[str, str] = {}
        """Their source by their names, without a newline behind it."""
        self._shapes: dict[str, str] = {}
        self._spelling = spelling
        self._reserved = _RESERVED.union(functions)

    def word(self, word: str) -> str:
        """How a word of typing or a builtin is written."""
        return self._spelling.get(word, word)

    def text(self, type_: Type) -> str:
        """The annotation's source."""
        values = ", ".join(each[1:] for each in type_ if each.startswith("="))
        exact = f"{self.word('Literal')}[{values}]"
        told = (
            exact if each.startswith("=") else self.word(each) if each == "Any" else each for each in type_
        )
        return " | ".join(dict.fromkeys(told))

    def list_of(self, item: Type) -> Type:
        return (f"{self.word('list')}[{self.text(item)}]",)

    def dict_of(self, value: Type) -> Type:
        return (f"{self.word('dict')}[{self.word('str')}, {self.text(value)}]",)

    def typed_dict(self, owner: str, wanted: str, fields: Sequence[Field], extra: Type | None) -> Type:
        """Define a typed dict."""
        is_partial = not any(field.is_required for field in fields)
        keywords = ", total=False" if is_partial else ""
        keywords += f", extra_items={self.text(extra)}" if extra is not None else ""
        optional = "{}" if is_partial else f"{self.word('NotRequired')}[{{}}]"
        told = [each.type if each.is_required else optional.format(each.type) for each in fields]
        taken = {*_words(keywords, *told), *TYPING_WORDS, *BUILTIN_WORDS, *self._spelling.values()}
        is_class = bool(fields) and all(_is_attribute(each.key, taken) for each in fields)

        def source(name: str, *, has_docs: bool) -> str:
            docs = [comment(each.doc) if has_docs else "" for each in fields]
            if is_class:
                lines = [
                    f"    {each.key}: {type_}{doc}"
                    for each, type_, doc in zip(fields, told, docs, strict=True)
                ]
                return "\n".join([f"class {name}({self.word('TypedDict')}{keywords}):", *lines])
            keys = [literal_text(each.key) for each in fields]
            lines = [f"    {key}: {type_},{doc}" for key, type_, doc in zip(keys, told, docs, strict=True)]
            return "\n".join([f'{name} = {self.word("TypedDict")}("{name}", {{', *lines, f"}}{keywords})"])

        return self._define(owner, wanted, source)

    def alias(self, owner: str, wanted: str, type_: Type) -> Type:
        """Define a name for a long type."""
        return self._define(owner, wanted, lambda name, has_docs: f"{name} = {self.text(type_)}")

    def needed(self, *texts: str) -> list[str]:
        """The names of the types that some source mentions, and of all that these mention, inner ones first."""
        wanted: set[str] = set()
        waiting = self._mentioned(texts)
        while waiting:
            name = waiting.pop()
            if name not in wanted:
                wanted.add(name)
                waiting += self._mentioned([self._shapes[name]])
        return [name for name in self.definitions if name in wanted]

    def _mentioned(self, texts: Iterable[str]) -> list[str]:
        return [each for each in _words(*texts) if each in self.definitions]

    def _define(self, owner: str, wanted: str, source: "_Source") -> Type:
        for name in _names(owner, wanted):
            shape = source(name, has_docs=False)
            if name not in self._reserved and self._shapes.get(name, shape) == shape:
                self._shapes[name] = shape
                self.definitions.setdefault(name, source(name, has_docs=True))
                return (name,)
        raise AssertionError("there is always another name")


class _Source(Protocol):
    def __call__(self, name: str, *, has_docs: bool) -> str: ...


def _names(owner: str, wanted: str) -> Iterator[str]:
    yield wanted
    if not wanted.startswith(owner):
        wanted = f"{owner}{wanted}"
        yield wanted
    yield from (f"{wanted}{number}" for number in count(2))


def _is_attribute(key: str, taken: Collection[str]) -> bool:
    """Whether the key can be written as a class attribute without changing what annotations mean."""
    is_name = key.isascii() and key.isidentifier() and not iskeyword(key)
    return is_name and not key.startswith("__") and key not in taken


def _words(*texts: str) -> list[str]:
    """The names in some source, without those in literals."""
    return [word for text in texts for word in dict.fromkeys(_WORD.findall(_QUOTED.sub("", text)))]
