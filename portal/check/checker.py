"""Checks scripts against the library before they run; keeps a type checker warm for it."""

import hashlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
import anyio.lowlevel
import structlog

from portal.check.argument_check import argument_diagnostics
from portal.check.diagnostic import Diagnostic
from portal.check.findings import FindingReader
from portal.check.known_values import KnownValues
from portal.check.script_calls import ScriptCalls
from portal.check.ty_server import Finding, TyServer, TyServerError
from portal.library.library import Library
from sandbox_runtime.prepared import Prepared

log = structlog.get_logger()

ANSWER_SECONDS: Final = 2.0
"""How long a script waits for its types to be checked; it runs unchecked after that."""

MAX_SOURCE_CHARACTERS: Final = 200_000
"""Longer scripts run without a check: reading one takes as long as it is, and everybody waits for it."""

MAX_DOCUMENTS: Final = 10_000
"""Scripts after which ty is started anew. It forgets each with the next one (46 MB after 2,000), so far."""

MAX_RESIDENT_BYTES: Final = 512 * 1024 * 1024
"""Memory after which ty is started anew, where the system tells."""

_MAX_REMEMBERED: Final = 500
_WARM_SECONDS: Final = 30.0


@asynccontextmanager
async def open_checker(folder: Path) -> AsyncIterator["Checker"]:
    """A checker over the stubs in `folder`. It gets warm in the background; nothing waits for it."""
    checker = Checker(folder)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(checker.warm)
        try:
            yield checker
        finally:
            tasks.cancel_scope.cancel()
            await checker.close()


class Checker:
    """Finds what is wrong with a script's library calls. Safe to use by many runs at once.

    A check never fails: without an answer from ty in time, a script is told that its types were not checked.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self._server: TyServer | None = None
        self._turn = anyio.Lock()
        self._files: set[Path] = set()
        self._library: Library | None = None
        self._remembered: OrderedDict[bytes, Sequence[Diagnostic]] = OrderedDict()

    async def warm(self) -> None:
        """Start ty, so that the first script need not wait for it."""
        with anyio.move_on_after(_WARM_SECONDS):
            async with self._turn:
                await self._findings("import tools", "await tools")

    async def close(self) -> None:
        with anyio.CancelScope(shield=True):
            await self._stop()

    async def update(self, changed: Collection[Path]) -> None:
        """Take notice of stubs that were written or removed. No earlier answer is given again."""
        self._remembered.clear()
        async with self._turn:
            files = {path.resolve() for path in changed}
            if self._server is not None:
                self._server.files_changed(files, self._files)
            self._files = {file for file in self._files | files if file.exists()}

    async def check(self, prepared: Prepared, library: Library) -> Sequence[Diagnostic]:
        """What is wrong with the script's use of the library, in the order of its lines.

        A script that mentions no part of the library has nothing to check. Answers are remembered for as
        long as the library stays the same.
        """
        names = sorted(prepared.names & library.namespaces.keys())
        if not names:
            return ()
        if library is not self._library:
            self._library = library
            self._remembered.clear()
        key = hashlib.sha256(repr((prepared.source, names, prepared.uses)).encode()).digest()
        remembered = self._remembered.get(key)
        if remembered is not None:
            self._remembered.move_to_end(key)
            return remembered
        diagnostics, is_whole = await self._check(prepared, library, names)
        if is_whole and library is self._library:
            self._remembered[key] = diagnostics
            if len(self._remembered) > _MAX_REMEMBERED:
                self._remembered.popitem(last=False)
        return diagnostics

    async def _check(
        self, prepared: Prepared, library: Library, names: list[str]
    ) -> tuple[Sequence[Diagnostic], bool]:
        """The diagnostics, and whether ty had its say."""
        typed: list[Finding] | None = None

        async def ask() -> None:
            nonlocal typed
            typed = await self._answer(names, prepared.source)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await anyio.lowlevel.checkpoint()  # ty works while this thread does
            calls = None
            if len(prepared.source) <= MAX_SOURCE_CHARACTERS:
                calls = ScriptCalls.read(prepared.source, prepared.uses, library.functions)
            values = KnownValues(() if calls is None else calls.nodes)
            by_node = {} if calls is None else calls.by_node
            found = [told for call in by_node.values() for told in argument_diagnostics(call, values)]
        if typed is None:
            found.append(_UNCHECKED)
        elif calls is not None:
            modules = [library.module(name) for name in names]
            reader = FindingReader(prepared.source, calls, values, lambda name: _defines(modules, name))
            found += reader.diagnostics(typed)
        return sorted(dict.fromkeys(found), key=lambda diagnostic: diagnostic.line), typed is not None

    async def _answer(self, names: list[str], source: str) -> list[Finding] | None:
        """ty's findings; None if it has none to give in time."""
        if len(source) > MAX_SOURCE_CHARACTERS:
            return None
        preamble = f"import tools\nfrom tools import {', '.join(names)}"
        with anyio.move_on_after(ANSWER_SECONDS):
            async with self._turn:
                return await self._findings(preamble, source)
        return None

    async def _findings(self, preamble: str, source: str) -> list[Finding] | None:
        """Ask ty, starting it if it does not run, and once more if it died on the question."""
        for _ in range(2):
            try:
                return await (await self._running()).findings(preamble, source)
            except (TyServerError, OSError) as error:
                log.warning("type_checker_lost", error=str(error))
                await self._stop()
            except BaseException:
                await (
                    self._stop()
                )  # cancelled amid an answer: what comes next on the pipe is not the next one's
                raise
        return None

    async def _running(self) -> TyServer:
        server = self._server
        if server is not None and _is_worn(server):
            await self._stop()
            server = None
        if server is None:
            server = self._server = await TyServer.start(self._folder)
            self._files = set(self._folder.rglob("*.pyi"))
        return server

    async def _stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.stop()


_UNCHECKED: Final = Diagnostic(
    1,
    "the types of this script were not checked before it ran: the type checker gave no answer in time",
    "",
    False,
    "unchecked",
)


def _is_worn(server: TyServer) -> bool:
    if server.documents >= MAX_DOCUMENTS:
        return True
    return server.documents % 50 == 49 and (server.resident_bytes() or 0) > MAX_RESIDENT_BYTES


def _defines(modules: list[str], name: str) -> bool:
    """Whether one of the library's modules defines a typed dict of that name."""
    return any(f"\nclass {name}(" in module or f"\n{name} = TypedDict(" in module for module in modules)
