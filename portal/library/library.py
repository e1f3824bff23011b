"""All functions and their types, as of one moment."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Self

from portal.library.function import Function
from portal.library.namespace import LibrarySource, Namespace, compile_namespace, source_digest
from portal.library.namespace_cache import NamespaceCache
from portal.library.nearest_names import nearest_functions


class Library:
    """An immutable set of namespaces. A changed upstream makes a new library, which shares the namespaces
    that did not change; a running script keeps the library that it was checked against, or adds namespaces to it.
    """

    def __init__(
        self,
        namespaces: Iterable[Namespace],
        diagnostics: Sequence[str] = (),
        sources: Mapping[str, LibrarySource] | None = None,
    ) -> None:
        self._sources = sources or {}
        self.namespaces: Mapping[str, Namespace] = MappingProxyType({each.name: each for each in namespaces})
        self.functions: Mapping[str, Function] = MappingProxyType(
            {
                function.qualified: function
                for namespace in self.namespaces.values()
                for function in namespace.functions.values()
            }
        )
        self.diagnostics: tuple[str, ...] = (
            *diagnostics,
            *(note for namespace in self.namespaces.values() for note in namespace.diagnostics),
        )

    @classmethod
    def compile(
        cls,
        sources: Sequence[LibrarySource],
        previous: "Library | None" = None,
        cache: NamespaceCache | None = None,
    ) -> Self:
        """Compile the upstreams' tools, reusing namespaces of `previous` whose tools are still the same.

        A namespace that `previous` does not have is taken from `cache`, or put there.

        Never raises, whatever the tools are; what had to be given up is in `diagnostics`.
        """
        compiled: dict[str, Namespace] = {}
        compiled_from: dict[str, LibrarySource] = {}
        notes = []
        for source in sources:
            if source.namespace in compiled:
                notes.append(f"{source.namespace}: two upstreams want this namespace; the first one has it")
                continue
            compiled[source.namespace] = _namespace(source, previous, cache)
            compiled_from[source.namespace] = source
        return cls(compiled.values(), notes, compiled_from)

    def compiled(self, source: LibrarySource) -> Namespace | None:
        """The namespace that was compiled from this very source."""
        is_same = self._sources.get(source.namespace) is source
        return self.namespaces[source.namespace] if is_same else None

    def nearest(self, qualified: str, n: int = 3) -> list[str]:
        """Functions whose names a misspelt `namespace.function`, or a bare `function`, may have meant."""
        return nearest_functions(qualified, self.namespaces, n)

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


def _namespace(source: LibrarySource, previous: Library | None, cache: NamespaceCache | None) -> Namespace:
    if previous is not None and (same := previous.compiled(source)) is not None:
        return same
    digest = source_digest(source)
    former = previous.namespaces.get(source.namespace) if previous is not None else None
    if former is not None and digest is not None and former.digest == digest:
        return former
    # A change while scripts run is not kept: each new result would write the whole namespace again.
    if former is not None or digest is None or cache is None:
        return compile_namespace(source, digest, former)
    kept = cache.load(source, digest)
    if kept is None:
        kept = compile_namespace(source, digest)
        cache.store(kept)
    return kept
