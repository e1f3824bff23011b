"""Functions in full, as a model reads them: the head of the brief line, with comments, types and documentation."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from portal.library.function import LONGEST_PARAMETER_DOC, Function, Parameter
from portal.library.plain_text import comment, docstring, literal_text, one_line
from portal.library.schema_types import Definition, respelt, words

LONGEST_SHAPE: Final = 160
"""Characters of a type in place. A longer one, and one whose keys have comments, is defined before the function."""

_MAX_KEYS: Final = 10
_SHOWN_BY_DEFAULT: Final = frozenset({"bool", "float", "int", "str"})
_STRING: Final = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
_LITERAL: Final = re.compile(rf"Literal\[((?:{_STRING}|[^\]'\"])*)\]")
_VALUE: Final = re.compile(rf"{_STRING}|[^,\s]+")


def full_forms(functions: Sequence[Function], depth: int | None = None) -> list[str]:
    """The form of each function, after the types that no earlier form of its namespace has.

    With a `depth`, types below so many levels of the result are their keys only; below 0, the result is `Any`.
    """
    shown: set[tuple[str, str]] = set()
    forms = []
    for function in functions:
        form = _FullForm(function, _cut_types(function, depth))
        head, types = form.head(), form.types()
        new = [source for name, source in types.items() if (function.namespace, name) not in shown]
        shown.update((function.namespace, name) for name in types)
        forms.append("\n\n".join([*new, head]))
    return forms


def result_depth(function: Function) -> int:
    """The levels of types in its result."""
    return len([*_levels(function)])


def _levels(function: Function) -> Iterator[list[str]]:
    """The types of its result by level: those that it mentions, those that these mention, and so on."""
    by_name, seen = function.definitions.by_name, set[str]()
    level = sorted(words(function.returns) & by_name.keys())
    while level:
        yield level
        seen.update(level)
        level = sorted({name for each in level for name in by_name[each].mentioned & by_name.keys()} - seen)


def _cut_types(function: Function, depth: int | None) -> Mapping[str, str]:
    """What is shown for the types of its result that are too deep. Those of its arguments are kept."""
    if depth is None:
        return {}
    definitions = function.definitions
    kept = definitions.needed(*(each.annotation for each in function.parameters), function.others)
    deep = {name for at, level in enumerate(_levels(function)) if at >= depth for name in level}
    deep -= {each.name for each in kept}
    return {name: "Any" if depth < 0 else _keys(definitions.by_name[name]) for name in deep}


def _keys(definition: Definition) -> str:
    if definition.fields is None:
        return "Any"
    keys = [one_line(_key(each.key), 40) for each in definition.fields[:_MAX_KEYS]]
    return f"{{{', '.join([*keys, *(['…'] if len(definition.fields) > _MAX_KEYS else [])])}}}"


def _key(key: str) -> str:
    return key if key.isidentifier() and key.isascii() else literal_text(key)


@dataclass
class _FullForm:
    """One function. `cut` holds what is shown instead of some types."""

    function: Function
    cut: Mapping[str, str]
    _spellings: dict[str, str] = field(default_factory=dict)
    """By type: its text in place, or its name."""

    def head(self) -> str:
        of = self.function
        shown = [self._parameter(each) for each in of.parameters]
        if any(each.doc for each in of.parameters):
            docs = (f",{comment(each.doc, LONGEST_PARAMETER_DOC)}" for each in of.parameters)
            lines = [*map("".join, zip(shown, docs, strict=True)), *filter(None, [self._text(of.others)])]
            arguments = "".join(f"\n    {line}" for line in lines) + "\n"
        else:
            arguments = ", ".join(filter(None, [*shown, self._text(of.others)]))
        head = f"{of.qualified}({arguments}) -> {self._text(of.returns)}{of.comments}"
        return f"{head}\n{docstring(of.documentation, indent='    ')}" if of.documentation else head

    def types(self) -> dict[str, str]:
        """The sources of the types that are mentioned by name, by name. Call it after `head`."""
        by_name, sources = self.function.definitions.by_name, dict[str, str]()
        waiting = [*self._spellings]
        for name in waiting:  # which grows
            if self._spellings[name] == name and name not in sources:
                others = by_name[name].mentioned & by_name.keys()
                waiting += [each for each in sorted(others) if each not in self._spellings]
                spellings = {each: self._spelling(each) for each in others}
                sources[name] = by_name[name].respelt(spellings | {name: name}).source({})
        return {name: sources[name] for name in by_name if name in sources}

    def _parameter(self, parameter: Parameter) -> str:
        """`title: str`, `limit=10`, `state?: str` if no default is known but None."""
        name, default, shape = parameter.name, parameter.default_source, self._text(parameter.annotation)
        if parameter.required:
            return f"{name}: {shape}"
        if default in ("...", "None"):
            return f"{name}?: {shape.removesuffix(' | None') if default == 'None' else shape}"
        return f"{name}={default}" if shape in _SHOWN_BY_DEFAULT else f"{name}: {shape} = {default}"

    def _text(self, annotation: str) -> str:
        mentioned = words(annotation) & self.function.definitions.by_name.keys()
        return _plain(respelt(annotation, {each: self._spelling(each) for each in mentioned}))

    def _spelling(self, name: str) -> str:
        if name not in self._spellings:
            shape = _Shape(self.function.definitions.by_name, self.cut)
            text = self.cut.get(name) or shape.text(name)
            self._spellings[name] = text if shape.left >= 0 else name
            for each in shape.kept if shape.left >= 0 else ():
                self._spellings.setdefault(each, each)
        return self._spellings[name]


@dataclass
class _Shape:
    """One try to write a type in place. It failed if no characters are `left`."""

    by_name: Mapping[str, Definition]
    cut: Mapping[str, str]
    left: int = LONGEST_SHAPE
    kept: list[str] = field(default_factory=list)
    """Types in it that stay names, as their keys have comments."""
    _open: list[str] = field(default_factory=list)

    def text(self, name: str) -> str:
        of = self.by_name[name]
        if name in self.cut:
            self.left -= len(self.cut[name])
            return self.cut[name]
        if of.fields is None or any(each.doc for each in of.fields):
            self.kept.append(name)
            self.left -= 0 if self._open else LONGEST_SHAPE + 1
            return name
        self.left -= LONGEST_SHAPE + 1 if name in self._open else 2
        self._open.append(name)
        fields = ", ".join(self._field(each.key, each.type, of.text) for each in of.fields if self.left >= 0)
        self._open.pop()
        return f"{{{fields}{', …' if ', extra_items=' in of.text else ''}}}"

    def _field(self, key: str, type_: str, behind: str) -> str:
        is_optional = type_.startswith("NotRequired[")
        type_ = type_.removeprefix("NotRequired[")[:-1] if is_optional else type_
        mark = "?" if is_optional or behind.startswith(", total=False") else ""
        mentioned = words(type_) & self.by_name.keys()
        self.left -= len(f"{_key(key)}{mark}: {type_}, ") - sum(map(len, mentioned))
        spellings = {name: self.text(name) for name in sorted(mentioned) if self.left >= 0}
        return f"{_key(key)}{mark}: {_plain(respelt(type_, spellings))}"


def _plain(annotation: str) -> str:
    """With `'a'|'b'` for `Literal['a', 'b']`."""
    return _LITERAL.sub(lambda found: "|".join(_VALUE.findall(found[1])), annotation)
