"""Checks a script's use of the library before it runs, from its syntax and with a type checker of its language.

Type checkers report much that runs correctly, so only findings about library calls and their results are used.
"""

import hashlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.lowlevel

from manifests.kernels import JAVASCRIPT, PYTHON, KernelName
from portal.catalog.check.diagnostics import Diagnostic, syntax_diagnostics
from portal.catalog.check.language_server import Finding, TypeChecker
from portal.catalog.check.ty_findings import TypeFindings
from portal.catalog.check.ty_server import TyServer
from portal.catalog.check.typescript_findings import TypescriptFindings
from portal.catalog.check.typescript_server import TypescriptServer, find_typescript
from portal.catalog.snapshot import Snapshot
from portal.library.library import Library, write_declarations, write_stubs
from sandbox_runtime.result import LibraryUse, Prepared

MAX_SOURCE_CHARACTERS: Final = 100_000
"""The types of a longer script are not checked."""

_MAX_REMEMBERED: Final = 500
_MOST_FOUND: Final = 50
"""Scripts with more findings are not cached."""

_UNCHECKED: Final = Diagnostic(
    1,
    "the types of this script were not checked: the type checker did not answer, or former checks took too long",
    "",
    False,
    "unchecked",
)
_UNCACHEABLE_CODES: Final = frozenset(
    {"unknown_function", "not_granted", "quarantined", "upstream_unavailable"}
)
"""Codes of findings that depend on the whole library, not only on the script's namespaces."""


@asynccontextmanager
async def open_checker(
    folder: Path, *, repairs: bool = True, kernels: Collection[KernelName] = (PYTHON,)
) -> AsyncIterator["Checker"]:
    """Open a checker over the stubs in `folder`. In the background it starts type checkers, and ends them at rest.

    JavaScript has one if a compiler is installed; else its types are not checked.
    `repairs` says whether invalid arguments are repaired where the meaning is certain; they then refuse no script.
    """
    types = TypeChecker(folder, TyServer)
    has_javascript = JAVASCRIPT in kernels and find_typescript() is not None
    typescript = TypeChecker(folder, TypescriptServer) if has_javascript else None
    async with anyio.create_task_group() as tasks:
        for each in filter(None, (types, typescript)):
            tasks.start_soon(each.keep)
        try:
            yield Checker(types, typescript, repairs=repairs)
        finally:
            tasks.cancel_scope.cancel()
            for each in filter(None, (types, typescript)):
                await each.close()


class Checker:
    """Checks the library calls of scripts. Safe for concurrent use.

    A check never fails. If the type checker does not answer in time, or the caller has used too much of its time, a
    notice says that the types were not checked.
    """

    def __init__(
        self, types: TypeChecker, typescript: TypeChecker | None = None, *, repairs: bool = True
    ) -> None:
        self._types = types
        self._typescript = typescript
        self._repairs = repairs
        self._remembered: OrderedDict[bytes, Sequence[Diagnostic]] = OrderedDict()

    @property
    def reads_declarations(self) -> bool:
        """Whether it needs TypeScript declarations beside Python's stubs."""
        return self._typescript is not None

    async def update(self, library: Library, changed: Collection[Path] | None) -> None:
        """Tell of the library whose stubs are on disk now, and its changed files; None if they are not known."""
        for types, write in (self._types, write_stubs), (self._typescript, write_declarations):
            if types is None:
                continue
            if changed is None:
                await types.end()  # its next process reads all of them
            else:
                types.update(changed, partial(write, library))

    async def check(
        self, prepared: Prepared, snapshot: Snapshot, caller: str = "", kernel: KernelName = PYTHON
    ) -> Sequence[Diagnostic]:
        """The findings about a script's use of the library, by line. `caller` identifies it in the fair queues.

        The stubs on disk must stay those of the snapshot: see `Catalog.steady`. Results are cached for the same script
        and definitions.
        """
        if not (prepared.names or prepared.uses or prepared.problems):
            return ()
        prepared = replace(prepared, uses=tuple(_renamed(use, snapshot) for use in prepared.uses))
        key = _key(prepared, snapshot.library, kernel)
        if key in self._remembered:
            self._remembered.move_to_end(key)
            return self._remembered[key]
        found, is_cacheable = await self._found(prepared, snapshot, caller, kernel)
        if is_cacheable and len(found) <= _MOST_FOUND:
            self._remembered[key] = found
            if len(self._remembered) > _MAX_REMEMBERED:
                self._remembered.popitem(last=False)
        return found

    async def _found(
        self, prepared: Prepared, snapshot: Snapshot, caller: str, kernel: KernelName
    ) -> tuple[Sequence[Diagnostic], bool]:
        """The diagnostics, and whether they may be cached."""
        names = sorted(prepared.names & snapshot.library.namespaces.keys())
        types = self._types if kernel == PYTHON else self._typescript
        typed: list[Finding] | None = [] if not names or types is None else None

        async def ask(types: TypeChecker) -> None:
            nonlocal typed
            typed = await types.findings(names, prepared.source, caller)

        async with anyio.create_task_group() as tasks:
            if names and types and len(prepared.source) <= MAX_SOURCE_CHARACTERS and snapshot.is_on_disk:
                tasks.start_soon(ask, types)
                await anyio.lowlevel.checkpoint()  # it works while this thread does
            found = [*syntax_diagnostics(prepared, snapshot, repairs=self._repairs, kernel=kernel)]
        is_cacheable = typed is not None and not any(each.code in _UNCACHEABLE_CODES for each in found)
        if typed is None:
            found.append(_UNCHECKED)
        elif typed:
            wrong = {(each.line, each.code) for each in found}
            worded = TypeFindings if kernel == PYTHON else TypescriptFindings
            added = worded(prepared, snapshot, repairs=self._repairs).diagnostics(typed)
            found += (each for each in added if (each.line, each.code) not in wrong)
        return sorted(dict.fromkeys(found), key=lambda each: each.line), is_cacheable


def _renamed(use: LibraryUse, snapshot: Snapshot) -> LibraryUse:
    namespace, _, function = snapshot.canonical(f"{use.namespace}.{use.function}").partition(".")
    return use._replace(namespace=namespace, function=function)


def _key(prepared: Prepared, library: Library, kernel: KernelName) -> bytes:
    """A cache key of everything that the diagnostics depend on."""
    namespaces = ((name, library.namespaces.get(name)) for name in sorted(prepared.names))
    versions = [(name, namespace and namespace.version) for name, namespace in namespaces]
    known = (kernel, prepared.source, versions, prepared.uses, prepared.problems, prepared.unguarded_lines)
    return hashlib.sha256(repr(known).encode(errors="surrogatepass")).digest()
