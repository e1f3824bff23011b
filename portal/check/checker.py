"""Checks scripts against the library before they run."""

import hashlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
import anyio.lowlevel

from portal.check.findings import Diagnostic, TypeFindings, syntax_diagnostics
from portal.check.ty_server import Finding, TypeChecker
from portal.library.library import Library
from portal.snapshot import Snapshot
from sandbox_runtime.result import Prepared

MAX_SOURCE_CHARACTERS: Final = 100_000
"""Of a longer script the types are not checked."""

_MAX_REMEMBERED: Final = 500
_MOST_FOUND: Final = 50
"""Findings of a script that is remembered; one with thousands is a mistake that nobody makes twice."""

_UNCHECKED: Final = Diagnostic(
    1,
    "the types of this script were not checked before it ran: the type checker gave no answer",
    "",
    False,
    "unchecked",
)
_OF_THE_WHOLE_LIBRARY: Final = frozenset(
    {"unknown_function", "not_granted", "quarantined", "upstream_unavailable"}
)
"""Codes of what depends on all functions that are there, not on those of the script's namespaces."""


@asynccontextmanager
async def open_checker(folder: Path, *, repairs: bool = True) -> AsyncIterator["Checker"]:
    """A checker over the stubs in `folder`. It gets warm in the background; nothing waits for it.

    `repairs` says whether calls are repaired where it is certain what was meant; then that refuses no script.
    """
    types = TypeChecker(folder)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(types.warm)
        try:
            yield Checker(types, repairs=repairs)
        finally:
            tasks.cancel_scope.cancel()
            await types.close()


class Checker:
    """Finds what is wrong with a script's library calls. Safe to use by many runs at once.

    A check never fails: without an answer from the type checker in time, a script is told that its types were not
    checked. Of a type checker that cannot be started, the first script is told.
    """

    def __init__(self, types: TypeChecker, *, repairs: bool = True) -> None:
        self._types = types
        self._repairs = repairs
        self._library: Library | None = None
        self._remembered: OrderedDict[bytes, Sequence[Diagnostic]] = OrderedDict()
        self._is_outage_told = False

    async def update(self, library: Library, changed: Collection[Path]) -> None:
        """The library whose stubs are on disk now, and which of their files changed."""
        self._library = None
        if changed:
            await self._types.update(changed)
        self._library = library

    async def check(self, prepared: Prepared, snapshot: Snapshot) -> Sequence[Diagnostic]:
        """What is wrong with the script's use of the library, in the order of its lines.

        The same script with the same definitions gets the same answer, without being looked at again.
        """
        if not (prepared.names or prepared.uses):
            return ()
        key = _key(prepared, snapshot.library)
        if key in self._remembered:
            self._remembered.move_to_end(key)
            return self._remembered[key]
        found, is_whole = await self._found(prepared, snapshot)
        if is_whole and len(found) <= _MOST_FOUND:
            self._remembered[key] = found
            if len(self._remembered) > _MAX_REMEMBERED:
                self._remembered.popitem(last=False)
        return found

    async def _found(self, prepared: Prepared, snapshot: Snapshot) -> tuple[Sequence[Diagnostic], bool]:
        """The diagnostics, and whether they would be the same another time.

        What ty says counts if its stubs are the snapshot's library before it is asked and still when it has answered.
        """
        library = snapshot.library
        names = sorted(prepared.names & library.namespaces.keys())
        typed: list[Finding] | None = [] if not names else None

        async def ask() -> None:
            nonlocal typed
            found = await self._types.findings(names, prepared.source)
            typed = found if library is self._library else None

        is_on_disk = snapshot.is_on_disk and library is self._library
        async with anyio.create_task_group() as tasks:
            if names and len(prepared.source) <= MAX_SOURCE_CHARACTERS and is_on_disk:
                tasks.start_soon(ask)
                await anyio.lowlevel.checkpoint()  # ty works while this thread does
            found = [*syntax_diagnostics(prepared, snapshot, repairs=self._repairs)]
        is_whole = typed is not None and not any(each.code in _OF_THE_WHOLE_LIBRARY for each in found)
        if typed is None:
            if not (
                self._is_outage_told and self._types.is_out
            ):  # of an outage only the first script is told
                found.append(_UNCHECKED)
            self._is_outage_told = self._types.is_out
        else:
            wrong = {(each.line, each.code) for each in found}
            added = TypeFindings(prepared, snapshot, repairs=self._repairs).diagnostics(typed)
            found += (each for each in added if (each.line, each.code) not in wrong)
        return sorted(dict.fromkeys(found), key=lambda each: each.line), is_whole


def _key(prepared: Prepared, library: Library) -> bytes:
    """What the diagnostics depend on."""
    namespaces = ((name, library.namespaces.get(name)) for name in sorted(prepared.names))
    versions = [(name, namespace and namespace.version) for name, namespace in namespaces]
    known = (prepared.source, versions, prepared.uses, prepared.problems, prepared.certain)
    return hashlib.sha256(repr(known).encode(errors="surrogatepass")).digest()
