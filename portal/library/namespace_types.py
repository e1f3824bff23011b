"""The types of one namespace: its tools' types side by side, shared where they are the same."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from portal.library.type_definitions import Definition, called, mentioned, shape
from portal.library.type_expressions import BUILTIN_WORDS, TYPING_WORDS

_RESERVED: Final = frozenset({*BUILTIN_WORDS, *TYPING_WORDS, "None", "True", "False"})


class NamespaceTypes:
    """All definitions of a namespace's module. A type that two tools define alike is there once; of types that
    only share a name, the one that most tools define keeps it, and the others get their function's name in front.

    Where as many tools define another, all do: whoever imports the type is to miss it when a tool is added, and not to
    get another in its place.
    """

    def __init__(self, functions: Iterable[str], wanted: Iterable[Sequence[Definition]] = ()) -> None:
        self.definitions: dict[str, Definition] = {}
        self._reserved = _RESERVED.union(functions)
        self._shapes = _commonest(wanted)

    def admit(self, owner: str, definitions: Iterable[Definition]) -> Mapping[str, str]:
        """Take in one tool's definitions; says what each is called from now on, where not as before."""
        wanted = {definition.name: definition for definition in definitions}
        names: dict[str, str] = {}
        conflicts = [name for name, definition in wanted.items() if self._is_taken(definition)]
        while conflicts:
            name = conflicts.pop()
            names[name] = self._free_name(owner, name, {*wanted, *names.values()})
            # Whatever mentions a renamed type is no longer the type that is already there.
            conflicts += [
                other
                for other, definition in wanted.items()
                if other not in names
                and other not in conflicts
                and other in self.definitions
                and name in mentioned(definition)
            ]
        for definition in wanted.values():
            final = called(definition, names)
            self.definitions.setdefault(final.name, final)
        return names

    def needed(self, names: Iterable[str]) -> Iterator[Definition]:
        """The definitions with these names and all that they mention, the mentioned first."""
        done: set[str] = set()
        stack = [(name, False) for name in reversed(list(names))]
        while stack:
            name, is_ready = stack.pop()
            if is_ready:
                yield self.definitions[name]
            elif name not in done:
                done.add(name)
                stack.append((name, True))
                stack += [(inner, False) for inner in mentioned(self.definitions[name]) if inner not in done]

    def _is_taken(self, definition: Definition) -> bool:
        name = definition.name
        known = [each[name] for each in (self.definitions, self._shapes) if name in each]
        return name in self._reserved or any(
            each is None or shape(each) != shape(definition) for each in known
        )

    def _free_name(self, owner: str, name: str, taken: Iterable[str]) -> str:
        unavailable = {*taken, *self.definitions, *self._reserved}
        wanted = f"{owner}{name}"
        free, number = wanted, 2
        while free in unavailable:
            free, number = f"{wanted}{number}", number + 1
        return free


def _commonest(wanted: Iterable[Sequence[Definition]]) -> Mapping[str, Definition | None]:
    """Of each name that several tools give to types, the shape that most of them mean; None if as many mean another."""
    named: dict[str, list[Definition]] = {}
    for definitions in wanted:
        for definition in definitions:
            named.setdefault(definition.name, []).append(definition)
    return {
        name: _first(Counter(map(shape, several)).most_common(2))
        for name, several in named.items()
        if len(several) > 1
    }


def _first(counted: Sequence[tuple[Definition, int]]) -> Definition | None:
    (definition, count), *others = counted
    return None if others and others[0][1] == count else definition
