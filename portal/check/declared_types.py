"""The typed dicts that stubs define, and their fields, read from the text that the type checker reads."""

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Final

_DEFINITION: Final = re.compile(
    r"^(?:class (\w+)\(\w+.*\):|(\w+) = \w+\(\"\w+\", \{)\n((?:    .+\n)*)", re.MULTILINE
)
_FIELD: Final = re.compile(r"^    (?:(\w+)|'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"): ", re.MULTILINE)


@dataclass(frozen=True)
class DeclaredType:
    """The keys that one typed dict declares; one that `is_observed` only says what real results were like."""

    fields: tuple[str, ...]
    is_observed: bool


class DeclaredTypes:
    """The typed dicts of some modules, each given with the names of those in it that nobody declared."""

    def __init__(self, modules: Iterable[tuple[str, Set[str]]]) -> None:
        self._modules = modules

    def named(self, name: str) -> Sequence[DeclaredType]:
        """The types of one name, which may be one of each module; none if it is no typed dict."""
        return [
            DeclaredType(tuple("".join(found) for found in _FIELD.findall(text)), name in observed)
            for text, observed in self._texts.get(name, ())
        ]

    @cached_property
    def _texts(self) -> Mapping[str, Sequence[tuple[str, Set[str]]]]:
        texts: dict[str, list[tuple[str, Set[str]]]] = {}
        for module, observed in self._modules:
            for found in _DEFINITION.finditer(module):
                texts.setdefault(found[1] or found[2], []).append((found[3], observed))
        return texts
