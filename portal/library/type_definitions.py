"""What a namespace's module defines beside its functions: typed dicts, and names for long literals."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from keyword import iskeyword
from typing import TypeAlias

from portal.library.docstrings import comment
from portal.library.literals import literal_text
from portal.library.type_expressions import (
    BUILTIN_WORDS,
    PLAIN,
    TYPING_WORDS,
    Spelling,
    Type,
    names_in,
    renamed,
    render,
)


@dataclass(frozen=True, slots=True)
class Field:
    """One key of a typed dict, as on the wire; `doc` is plain text for its comment."""

    key: str
    type: Type
    is_required: bool
    doc: str = ""


@dataclass(frozen=True, slots=True)
class TypedDictDefinition:
    """A typed dict; `extra` is the type of keys that the schema allows without naming them, if it says so."""

    name: str
    fields: tuple[Field, ...]
    extra: Type | None = None


@dataclass(frozen=True, slots=True)
class AliasDefinition:
    """A name for a type that is too long to be written where it is used."""

    name: str
    type: Type


Definition: TypeAlias = TypedDictDefinition | AliasDefinition


def shape(definition: Definition) -> Definition:
    """What makes two definitions the same: all but the comments."""
    if isinstance(definition, AliasDefinition):
        return definition
    return replace(definition, fields=tuple(replace(field, doc="") for field in definition.fields))


def mentioned(definition: Definition) -> Iterator[str]:
    """The names of other definitions (or its own) that a definition mentions."""
    if isinstance(definition, AliasDefinition):
        yield from names_in(definition.type)
        return
    for field in definition.fields:
        yield from names_in(field.type)
    if definition.extra is not None:
        yield from names_in(definition.extra)


def called(definition: Definition, names: Mapping[str, str]) -> Definition:
    """The same definition with other names for itself and what it mentions."""
    name = names.get(definition.name, definition.name)
    if isinstance(definition, AliasDefinition):
        return AliasDefinition(name, renamed(definition.type, names))
    fields = tuple(replace(field, type=renamed(field.type, names)) for field in definition.fields)
    extra = None if definition.extra is None else renamed(definition.extra, names)
    return TypedDictDefinition(name, fields, extra)


def definition_text(definition: Definition, spelling: Spelling = PLAIN) -> str:
    """The definition's source, without a newline behind it."""
    if isinstance(definition, AliasDefinition):
        return f"{definition.name} = {render(definition.type, spelling)}"
    if definition.fields and all(_is_attribute(each, definition, spelling) for each in definition.fields):
        return _class_text(definition, spelling)
    return _call_text(definition, spelling)


def _is_attribute(field: Field, definition: TypedDictDefinition, spelling: Spelling) -> bool:
    """Whether the key can be written as a class attribute without changing what annotations mean."""
    key = field.key
    return (
        key.isascii()
        and key.isidentifier()
        and not iskeyword(key)
        and not key.startswith("__")
        and key not in TYPING_WORDS
        and key not in BUILTIN_WORDS
        and key not in mentioned(definition)
        and key not in spelling.values()
    )


def _class_text(definition: TypedDictDefinition, spelling: Spelling) -> str:
    is_partial = not any(field.is_required for field in definition.fields)
    lines = [
        f"    {field.key}: {_field_type(field, is_partial, spelling)}{comment(field.doc)}"
        for field in definition.fields
    ]
    keywords = _keywords(definition, is_partial, spelling)
    return "\n".join([f"class {definition.name}({_typed_dict(spelling)}{keywords}):", *lines])


def _call_text(definition: TypedDictDefinition, spelling: Spelling) -> str:
    is_partial = not any(field.is_required for field in definition.fields)
    lines = [
        f"    {literal_text(field.key)}: {_field_type(field, is_partial, spelling)},{comment(field.doc)}"
        for field in definition.fields
    ]
    keywords = _keywords(definition, is_partial, spelling)
    start = f'{definition.name} = {_typed_dict(spelling)}("{definition.name}", {{'
    return "\n".join([start, *lines, f"}}{keywords})"])


def _field_type(field: Field, is_partial: bool, spelling: Spelling) -> str:
    text = render(field.type, spelling)
    if field.is_required or is_partial:
        return text
    return f"{spelling.get('NotRequired', 'NotRequired')}[{text}]"


def _keywords(definition: TypedDictDefinition, is_partial: bool, spelling: Spelling) -> str:
    total = ", total=False" if is_partial else ""
    extra = f", extra_items={render(definition.extra, spelling)}" if definition.extra is not None else ""
    return total + extra


def _typed_dict(spelling: Spelling) -> str:
    return spelling.get("TypedDict", "TypedDict")
