"""ty as a server, spoken to over the Language Server Protocol on its pipes, and kept warm whatever becomes of it."""

import json
import os
import subprocess
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import anyio
import structlog
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream
from ty._find_ty import find_ty_bin  # its own `python -m ty` uses it; there is no public name

from manifests.json_value import Json

log = structlog.get_logger()

ANSWER_SECONDS: Final = 2.0
"""How long a script waits for its types to be checked; it runs unchecked after that."""

MAX_DOCUMENTS: Final = 5_000
"""Scripts after which ty is started anew. It forgets each with the next one (46 MB after 2,000), so far."""

RETRY_SECONDS: Final = 30.0
"""A type checker that does not start is not tried again for as long; nobody waits for it meanwhile."""

_WARM_SECONDS: Final = 30.0
_MAX_HEADER_BYTES: Final = 4096
_CREATED, _DELETED = 1, 3


class TypeChecker:
    """One `ty server`, started when it is needed and again when it is lost. Safe to use by many scripts at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self._server: TyServer | None = None
        self._turn = anyio.Lock(fast_acquire=True)  # the question is on its way before the asker goes on
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
            if self._server is not None:
                self._server.files_changed({path.resolve() for path in changed})

    async def findings(self, namespaces: Collection[str], source: str) -> "list[Finding] | None":
        """What ty finds in a script that may use these namespaces; None if it has no answer in time."""
        imported = "import asyncio, portal, tools\nfrom portal import ToolError\nfrom tools import "
        preamble = imported + ", ".join(namespaces)
        with anyio.move_on_after(ANSWER_SECONDS):
            async with self._turn:
                return await self._asked(preamble, source)
        return None

    async def _asked(self, preamble: str, source: str) -> "list[Finding] | None":
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

    async def _running(self) -> "TyServer | None":
        if self._server is not None and self._server.documents >= MAX_DOCUMENTS:
            await self._stop()
        if self._server is None and not self.is_out:
            try:
                self._server = await TyServer.start(self._folder)
            except (TyServerError, OSError) as error:
                self._retry_at = anyio.current_time() + RETRY_SECONDS
                log.warning("type_checker_not_started", error=str(error))
        return self._server

    async def _stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.stop()


class TyServerError(Exception):
    """The server died, or said what nobody understands; a new one has to be started."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One diagnostic as ty gave it. Lines count from 1 and columns from 0, in characters."""

    rule: str
    message: str
    line: int
    column: int
    end_line: int
    end_column: int

    @classmethod
    def of(cls, item: Json) -> Self:
        start, end = item["range"]["start"], item["range"]["end"]
        places = start["line"] + 1, start["character"], end["line"] + 1, end["character"]
        return cls(str(item.get("code") or ""), item["message"], *places)


class TyServer:
    """A warm type checker over one folder of stubs.

    It sees nothing of the portal's environment, and ends when its standard input does: with the portal,
    however that ends. Not safe for concurrent use: one question at a time.
    """

    def __init__(self, process: Process, folder: Path) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._process = process
        self._stdin = process.stdin
        self._stdout = BufferedByteReceiveStream(process.stdout)
        self._folder = folder
        self._requests = 0
        self._unsent: list[Json] = []
        self._notebook = f"{folder.as_uri()}/script.ipynb"
        cells = self._notebook.replace("file:", "vscode-notebook-cell:", 1)
        self._cells = (f"{cells}#preamble", f"{cells}#script")
        self.documents = 0

    @classmethod
    async def start(cls, folder: Path) -> Self:
        """Start a server whose root is `folder`.

        Raises:
            OSError: There is no ty to start.
            TyServerError: It did not answer as a language server does.
        """
        # ty looks for a virtual environment and for settings of a user: there are none for it to find.
        environment = {name: str(folder) for name in ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME")}
        process = await anyio.open_process(
            [find_ty_bin(), "server"],
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env=environment,
            start_new_session=True,  # Ctrl-C is for the portal
        )
        server = cls(process, folder)
        try:
            await server._initialize()
        except BaseException:
            await server.stop()
            raise
        return server

    async def findings(self, preamble: str, script: str) -> list[Finding]:
        """What ty has to say about a script that follows a preamble.

        Both are cells of a notebook: there, and only there, ty lets a top-level `await` pass, and the script
        keeps its own line numbers. It is one notebook for all scripts, which is faster than one for each.
        """
        self.documents += 1
        notebook = {"uri": self._notebook, "version": self.documents}
        texts = dict(zip(self._cells, (preamble, script), strict=True))
        if self.documents == 1:
            cells = [{"kind": 2, "document": uri} for uri in texts]
            document = {"languageId": "python", "version": 1}
            opened = {
                "notebookDocument": {**notebook, "notebookType": "jupyter-notebook", "cells": cells},
                "cellTextDocuments": [{**document, "uri": uri, "text": text} for uri, text in texts.items()],
            }
            self._notify("notebookDocument/didOpen", opened)
        else:
            contents = [
                {"document": {"uri": uri, "version": self.documents}, "changes": [{"text": text}]}
                for uri, text in texts.items()
            ]
            change = {"cells": {"textContent": contents}}
            self._notify("notebookDocument/didChange", {"notebookDocument": notebook, "change": change})
        *_, cell = self._cells
        answer = await self._request("textDocument/diagnostic", {"textDocument": {"uri": cell}})
        with _as_server_error():
            return [Finding.of(item) for item in answer["items"]]

    def files_changed(self, files: Collection[Path]) -> None:
        """Tell that stubs were written or removed since the last question; ty takes an old one that is new, too."""
        changes = [{"uri": file.as_uri(), "type": _CREATED if file.exists() else _DELETED} for file in files]
        self._notify("workspace/didChangeWatchedFiles", {"changes": changes})

    async def stop(self) -> None:
        """End the process; it has nothing to save."""
        with anyio.CancelScope(shield=True):
            if self._process.returncode is None:
                self._process.kill()
            await self._process.aclose()

    async def _initialize(self) -> None:
        root = {"uri": self._folder.as_uri(), "name": "library"}
        capabilities = {
            "textDocument": {"diagnostic": {"dynamicRegistration": False}},
            "notebookDocument": {"synchronization": {"dynamicRegistration": False}},
            "workspace": {"didChangeWatchedFiles": {"dynamicRegistration": False}},
            "general": {"positionEncodings": ["utf-32"]},
        }
        parameters = {"processId": os.getpid(), "workspaceFolders": [root], "capabilities": capabilities}
        answer = await self._request("initialize", {"rootUri": root["uri"], **parameters})
        if answer["capabilities"].get("positionEncoding") != "utf-32":
            raise TyServerError("ty does not count columns in characters")
        self._notify("initialized", {})

    async def _request(self, method: str, parameters: Json) -> Json:
        self._requests += 1
        number = self._requests
        await self._send({"id": number, "method": method, "params": parameters})
        while True:
            message = await self._receive()
            if "method" in message and "id" in message:
                await self._send({"id": message["id"], "result": None})  # it asked something: its defaults do
            elif message.get("id") == number:
                if "result" not in message:
                    raise TyServerError(f"ty refused {method}")
                return message["result"]

    def _notify(self, method: str, parameters: Json) -> None:
        """Say something that has no answer; it goes out with the next request."""
        self._unsent.append({"method": method, "params": parameters})

    async def _send(self, message: Json) -> None:
        bodies = [json.dumps({"jsonrpc": "2.0", **each}).encode() for each in (*self._unsent, message)]
        self._unsent.clear()
        with _as_server_error():
            await self._stdin.send(
                b"".join(b"Content-Length: %d\r\n\r\n%b" % (len(body), body) for body in bodies)
            )

    async def _receive(self) -> Json:
        with _as_server_error():
            header = await self._stdout.receive_until(b"\r\n\r\n", _MAX_HEADER_BYTES)
            fields = dict(line.split(b":", 1) for line in header.lower().split(b"\r\n"))
            return json.loads(await self._stdout.receive_exactly(int(fields[b"content-length"])))


@contextmanager
def _as_server_error() -> Iterator[None]:
    """Give one name to whatever goes wrong with a process that dies, or answers in another way than it did."""
    try:
        yield
    except (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream) as error:
        raise TyServerError("ty went away") from error
    except (anyio.IncompleteRead, anyio.DelimiterNotFound, ValueError, KeyError, TypeError) as error:
        raise TyServerError("ty sent what is no message") from error
