"""Checks a script's use of the library before it runs, from its syntax and with a type checker of its language.

Type checkers report much that runs correctly, so only findings about library calls and their results are used.
"""

import hashlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Collection, Sequence, Set
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import anyio
import anyio.lowlevel
import structlog

from manifests.kernels import JAVASCRIPT, PYTHON, KernelName
from portal.catalog.check.diagnostics import Diagnostic, syntax_diagnostics
from portal.catalog.check.language_server import TypeChecker
from portal.catalog.check.ty_findings import TypeFindings
from portal.catalog.check.ty_server import TyServer
from portal.catalog.check.typescript_findings import TypescriptFindings
from portal.catalog.check.typescript_server import TypescriptServer, find_typescript
from portal.catalog.snapshot import Snapshot
from portal.library.library import Library
from sandbox_runtime.result import LibraryUse, Prepared

log = structlog.get_logger()

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
    opened = [TypeChecker(folder, TyServer)]
    if JAVASCRIPT in kernels and find_typescript() is not None:
        opened.append(TypeChecker(folder, TypescriptServer))
    async with anyio.create_task_group() as tasks:
        for each in opened:
            tasks.start_soon(each.keep)
        try:
            yield Checker(*opened, repairs=repairs)
        finally:
            tasks.cancel_scope.cancel()
            for each in opened:
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
        self._all = [*filter(None, (types, typescript))]
        self._repairs = repairs
        self._is_on_disk = True
        """Whether the stub files match the library. If the disk is full, valid scripts must not be refused."""
        self._remembered: OrderedDict[bytes, Sequence[Diagnostic]] = OrderedDict()

    def write(self, library: Library) -> Set[Path] | None:
        """Write the stubs of this library, between two checks. Returns the files that changed; None if it failed."""
        try:
            return {path for each in self._all for path in each.write(library)}
        except OSError as error:
            log.error("stubs_not_written", reason=error.strerror)
            return None

    async def update(self, library: Library, changed: Collection[Path] | None) -> None:
        """Tell of the library whose stubs are on disk now, and its changed files; None if they were not written."""
        self._is_on_disk = changed is not None
        for each in self._all:
            if changed is None:
                await each.end()  # its next process reads all of them
            else:
                each.update(changed, library)

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
        typed: Sequence[Diagnostic] | None = None

        async def ask() -> None:
            nonlocal typed
            typed = await self._typed(prepared, snapshot, caller, kernel)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await anyio.lowlevel.checkpoint()  # the type checker works while this thread does
            found = [*syntax_diagnostics(prepared, snapshot, repairs=self._repairs, kernel=kernel)]
        is_cacheable = typed is not None and not any(each.code in _UNCACHEABLE_CODES for each in found)
        wrong = {(each.line, each.code) for each in found}
        added = [_UNCHECKED] if typed is None else typed
        found += (each for each in added if (each.line, each.code) not in wrong)
        found = sorted(dict.fromkeys(found), key=lambda each: each.line)
        if is_cacheable and len(found) <= _MOST_FOUND:
            self._remembered[key] = found
            if len(self._remembered) > _MAX_REMEMBERED:
                self._remembered.popitem(last=False)
        return found

    async def _typed(
        self, prepared: Prepared, snapshot: Snapshot, caller: str, kernel: KernelName
    ) -> Sequence[Diagnostic] | None:
        """What the type checker of the language found, if it has one; None if it did not check the script."""
        is_python = kernel == PYTHON
        types, worded = (self._types, TypeFindings) if is_python else (self._typescript, TypescriptFindings)
        names = sorted(prepared.names & snapshot.library.namespaces.keys())
        if types is None or not names:
            return ()
        if len(prepared.source) > MAX_SOURCE_CHARACTERS or not self._is_on_disk:
            return None
        found = await types.findings(names, prepared.source, caller)
        if not found:
            return None if found is None else ()
        return [*worded(prepared, snapshot, repairs=self._repairs).diagnostics(found)]


def _renamed(use: LibraryUse, snapshot: Snapshot) -> LibraryUse:
    namespace, _, function = snapshot.canonical(f"{use.namespace}.{use.function}").partition(".")
    return use._replace(namespace=namespace, function=function)


def _key(prepared: Prepared, library: Library, kernel: KernelName) -> bytes:
    """A cache key of everything that the diagnostics depend on."""
    namespaces = ((name, library.namespaces.get(name)) for name in sorted(prepared.names))
    versions = [(name, namespace and namespace.version) for name, namespace in namespaces]
    known = (kernel, prepared.source, versions, prepared.uses, prepared.problems, prepared.unguarded_lines)
    return hashlib.sha256(repr(known).encode(errors="surrogatepass")).digest()
