"""The typed dicts that stubs define, and their fields, read from the text that the type checker reads."""

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from functools import cached_property
from typing import Final

_DEFINITION: Final = re.compile(
    r"^(?:class (\w+)\(\w+.*\):|(\w+) = \w+\(\"\w+\", \{)\n((?:    .+\n)*)", re.MULTILINE
)
_FIELD: Final = re.compile(r"^    (?:(\w+)|'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"): ", re.MULTILINE)


class DeclaredTypes:
    """The typed dicts of some modules, by name; of two with one name, the fields of the first.

    `observed` are the names of those that nobody declared: they say what real results were like.
    """

    def __init__(self, modules: Iterable[str], observed: Set[str] = frozenset()) -> None:
        self._modules = modules
        self._observed = observed

    def are_observed(self, name: str) -> bool:
        """Whether a type only says what was seen so far."""
        return name in self._observed

    def fields(self, name: str) -> Sequence[str] | None:
        """The keys that a type declares; None if it is no typed dict of these modules."""
        text = self._texts.get(name)
        return None if text is None else ["".join(found) for found in _FIELD.findall(text)]

    @cached_property
    def _texts(self) -> Mapping[str, str]:
        texts: dict[str, str] = {}
        for module in self._modules:
            for found in _DEFINITION.finditer(module):
                texts.setdefault(found[1] or found[2], found[3])
        return texts
