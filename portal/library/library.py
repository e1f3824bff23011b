"""All functions and their types, as of one moment."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cached_property
from types import MappingProxyType
from typing import Final, Self

from portal.library.function import Function
from portal.library.namespace import MISMATCHED, LibrarySource, Namespace, compile_namespace
from portal.library.plain_text import one_line

_NEAR_ENOUGH: Final = 0.6
_VERY_NEAR: Final = 0.75
_LONGEST_NAME: Final = 80


class Library:
    """An immutable set of namespaces. A changed upstream makes a new library, which shares the namespaces
    that did not change; a running script keeps the library that it was checked against, or adds namespaces to it.
    """

    def __init__(self, namespaces: Iterable[Namespace]) -> None:
        self.namespaces: Mapping[str, Namespace] = MappingProxyType({each.name: each for each in namespaces})
        self.functions: Mapping[str, Function] = MappingProxyType(
            {
                function.qualified: function
                for namespace in self.namespaces.values()
                for function in namespace.functions.values()
            }
        )

    @cached_property
    def diagnostics(self) -> tuple[str, ...]:
        """Functions whose results were otherwise than declared, and where."""
        found = (each for each in self.functions.values() if each.remark.startswith(MISMATCHED))
        return tuple(f"{each.qualified}: {one_line(each.remark, 230)}" for each in found)

    @classmethod
    def compile(cls, sources: Iterable[LibrarySource], previous: "Library | None" = None) -> Self:
        """Compile the upstreams' tools, reusing namespaces of `previous` whose tools are still the same.

        Never raises, whatever the tools are. Of two upstreams that want one namespace the first one has it.
        """
        compiled: dict[str, Namespace] = {}
        for source in sources:
            if source.namespace not in compiled:
                compiled[source.namespace] = _namespace(source, previous)
        return cls(compiled.values())

    def nearest(self, qualified: str, n: int = 3) -> list[str]:
        """Functions whose names a misspelt `namespace.function`, or a bare `function`, may have meant.

        First those in the namespace itself or one like it, then the same name elsewhere. Comparing letter by letter
        takes about 10 us a name, so all of 11,000 functions are compared only if that gives nothing.
        """
        namespace, _, function = qualified.rpartition(".")
        near = [namespace] if namespace in self.namespaces else nearest_names(namespace, self.namespaces, n)
        found = [
            f"{each}.{name}"
            for each in near
            for name in nearest_names(function, self.namespaces[each].functions, n)
        ]
        found += [
            f"{each}.{function}" for each, space in self.namespaces.items() if function in space.functions
        ]
        if not found:
            homes = {each.name: each.qualified for each in reversed([*self.functions.values()])}
            found = [homes[name] for name in nearest_names(function, homes, n, _VERY_NEAR)]
        return list(dict.fromkeys(found))[:n]

    def module(self, namespace: str) -> str:
        """The `.pyi` text of one namespace."""
        return self.namespaces[namespace].module

    def table(self, namespaces: Iterable[str]) -> Mapping[str, Mapping[str, str]]:
        """Signatures by function by namespace, of those namespaces that exist."""
        return {
            name: {function.name: function.signature for function in self.namespaces[name].functions.values()}
            for name in namespaces
            if name in self.namespaces
        }


def _namespace(source: LibrarySource, previous: Library | None) -> Namespace:
    former = previous.namespaces.get(source.namespace) if previous is not None else None
    is_same = former is not None and source.digest is not None and former.digest == source.digest
    return former if former is not None and is_same else compile_namespace(source)


def nearest_names(name: str, names: Iterable[str], n: int = 3, nearness: float = _NEAR_ENOUGH) -> list[str]:
    """The names most like this one, letter by letter or word by word in any order; the nearest first."""
    plain = {each[:_LONGEST_NAME].lower(): each for each in names}
    sorted_words = {_in_word_order(each): original for each, original in plain.items()}
    wanted = name[:_LONGEST_NAME].lower()
    found = [plain[match] for match in get_close_matches(wanted, plain, n, nearness)]
    wanted = _in_word_order(wanted)
    found += [sorted_words[match] for match in get_close_matches(wanted, sorted_words, n, nearness)]
    return list(dict.fromkeys(found))[:n]


def _in_word_order(name: str) -> str:
    return "_".join(sorted(name.split("_")))
