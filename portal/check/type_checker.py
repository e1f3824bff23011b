"""Keeps a type checker warm over a folder of stubs, whatever becomes of it."""

from collections.abc import Collection
from pathlib import Path
from typing import Final

import anyio
import structlog

from portal.check.ty_server import Finding, TyServer, TyServerError

log = structlog.get_logger()

ANSWER_SECONDS: Final = 2.0
"""How long a script waits for its types to be checked; it runs unchecked after that."""

MAX_DOCUMENTS: Final = 10_000
"""Scripts after which ty is started anew. It forgets each with the next one (46 MB after 2,000), so far."""

MAX_RESIDENT_BYTES: Final = 512 * 1024 * 1024
"""Memory after which ty is started anew, where the system tells."""

RETRY_SECONDS: Final = 30.0
"""A type checker that does not start is not tried again for as long; nobody waits for it meanwhile."""

_WARM_SECONDS: Final = 30.0


class TypeChecker:
    """One `ty server`, started when it is needed and again when it is lost. Safe to use by many scripts at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self._server: TyServer | None = None
        self._turn = anyio.Lock(fast_acquire=True)  # the question is on its way before the asker goes on
        self._files: set[Path] = set()
        self._retry_at = 0.0

    @property
    def is_out(self) -> bool:
        """Whether it could not be started, a short time ago."""
        return anyio.current_time() < self._retry_at

    async def warm(self) -> None:
        """Start ty, so that the first script need not wait for it."""
        with anyio.move_on_after(_WARM_SECONDS):
            async with self._turn:
                await self._asked("import tools", "await tools")

    async def close(self) -> None:
        with anyio.CancelScope(shield=True):
            await self._stop()

    async def update(self, changed: Collection[Path]) -> None:
        """Take notice of stubs that were written or removed."""
        async with self._turn:
            files = {path.resolve() for path in changed}
            if self._server is not None:
                self._server.files_changed(files, self._files)
            self._files = {file for file in self._files | files if file.exists()}

    async def findings(self, namespaces: Collection[str], source: str) -> list[Finding] | None:
        """What ty finds in a script that may use these namespaces; None if it has no answer in time."""
        preamble = f"import tools\nfrom tools import {', '.join(namespaces)}"
        with anyio.move_on_after(ANSWER_SECONDS):
            async with self._turn:
                return await self._asked(preamble, source)
        return None

    async def _asked(self, preamble: str, source: str) -> list[Finding] | None:
        """Ask ty, starting it if it does not run, and once more if it died on the question."""
        for _ in range(2):
            server = await self._running()
            if server is None:
                return None
            try:
                return await server.findings(preamble, source)
            except TyServerError as error:
                log.warning("type_checker_lost", error=str(error))
                await self._stop()
            except BaseException:
                # Cancelled amid an answer: what comes next on the pipe is not the next one's.
                await self._stop()
                raise
        return None

    async def _running(self) -> TyServer | None:
        if self._server is not None and _is_worn(self._server):
            await self._stop()
        if self._server is None and not self.is_out:
            try:
                self._server = await TyServer.start(self._folder)
            except (TyServerError, OSError) as error:
                self._retry_at = anyio.current_time() + RETRY_SECONDS
                log.warning("type_checker_not_started", error=str(error))
            else:
                self._files = set(self._folder.rglob("*.pyi"))
        return self._server

    async def _stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.stop()


def _is_worn(server: TyServer) -> bool:
    if server.documents >= MAX_DOCUMENTS:
        return True
    return server.documents % 50 == 49 and (server.resident_bytes() or 0) > MAX_RESIDENT_BYTES
