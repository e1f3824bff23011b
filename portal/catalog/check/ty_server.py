"""Runs ty as a language server (LSP over pipes), locked down, and restarts it when necessary."""

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
from ty import find_ty_bin

from manifests.json_value import Json
from sandbox_runtime.fair_queue import Turns
from sandbox_runtime.worker_process import boot_command, cpu_seconds

log = structlog.get_logger()

ANSWER_SECONDS: Final = 2.0
"""Time limit of a type check. After that the script runs unchecked. Excludes the wait for other callers' scripts."""

LONG_SECONDS: Final = 0.1
"""CPU seconds of ty for one script that are free. The caller owes the rest."""

MOST_OWED_SECONDS: Final = 1.0
"""The scripts of a caller that owes more run unchecked, so that those of others need not wait for them."""

PAID_BACK: Final = 0.05
"""Seconds that a caller pays back each second."""

MAX_DOCUMENTS: Final = 5_000
"""Scripts after which ty is restarted, in case it leaks memory (46 MB after 2,000)."""

REST_SECONDS: Final = 60.0
"""ty ends when no script has used it for this time, at most twice as long. It holds 43 MB, and starts in 0.06 s."""

RETRY_SECONDS: Final = 30.0
"""Pause after a failed start of ty. During the pause no script waits for it."""

_WARM_SECONDS: Final = 30.0
_MAX_HEADER_BYTES: Final = 4096
_CREATED, _DELETED = 1, 3
_CONFINED: Final = ("sandbox_runtime.worker.lockdown", "run_confined")


class TypeChecker:
    """One `ty server`, started on demand and restarted when it is lost. Safe for concurrent use; callers take turns."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self._server: TyServer | None = None
        self._is_used = False
        self._turns = Turns(1)
        self._changed: set[Path] = set()
        self._retry_at = 0.0
        self._paid_at: dict[str, float] = {}
        """By caller: the time at which its debt is paid back."""

    async def keep(self) -> None:
        """Start ty, so that the first script does not wait for it, and end it whenever it rests."""
        with anyio.move_on_after(_WARM_SECONDS):
            async with self._turns.turn(""):
                await self._ensure_server()
        while True:
            await anyio.sleep(REST_SECONDS)
            await self.end_if_unused()

    async def end_if_unused(self) -> None:
        """End ty if no script has used it since the last time this was asked."""
        async with self._turns.turn(""):
            if not self._is_used:
                await self.close()
            self._is_used = False

    async def close(self) -> None:
        """End ty; the next script starts it again."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop()

    def update(self, changed: Collection[Path]) -> None:
        """Tell ty about written or removed stubs, before the next script."""
        self._changed |= {path.resolve() for path in changed}

    async def findings(
        self, namespaces: Collection[str], source: str, caller: str = ""
    ) -> "list[Finding] | None":
        """ty's findings in a script with these namespaces; None if it is late, or the caller owes too much."""
        imported = "import asyncio, portal, tools\nfrom portal import ToolError\nfrom tools import "
        preamble = imported + ", ".join(namespaces)
        async with self._turns.turn(caller):
            if self._paid_at.get(caller, 0) < anyio.current_time() + MOST_OWED_SECONDS / PAID_BACK:
                with anyio.move_on_after(ANSWER_SECONDS):
                    return await self._ask(preamble, source, caller)
        return None

    def _charge(self, caller: str, seconds: float) -> None:
        now = anyio.current_time()
        self._paid_at = {each: at for each, at in self._paid_at.items() if at > now}
        if seconds > LONG_SECONDS:
            self._paid_at[caller] = self._paid_at.get(caller, now) + (seconds - LONG_SECONDS) / PAID_BACK

    async def _ask(self, preamble: str, source: str, caller: str) -> "list[Finding] | None":
        """Ask ty, starting it if necessary, and once more if it died."""
        self._is_used = True
        for _ in range(2):
            server = await self._ensure_server()
            if server is None:
                return None
            if self._changed:
                server.files_changed(self._changed)
                self._changed.clear()
            began, seconds = server.computed_seconds(), ANSWER_SECONDS
            try:
                found = await server.findings(preamble, source)
                seconds = min(server.computed_seconds() - began, ANSWER_SECONDS)
                return found
            except TyServerError as error:
                log.warning("type_checker_lost", error=str(error))
                await self.close()
            except BaseException:
                # After a cancellation the pipe may have the rest of an old answer.
                await self.close()
                raise
            finally:
                self._charge(caller, seconds)  # a caller that made ty die also pays for its start
        return None

    async def _ensure_server(self) -> "TyServer | None":
        if self._server is not None and self._server.documents >= MAX_DOCUMENTS:
            await self.close()
        if self._server is None and anyio.current_time() >= self._retry_at:
            try:
                self._server = await TyServer.start(self._folder)
            except (TyServerError, OSError) as error:
                self._retry_at = anyio.current_time() + RETRY_SECONDS
                log.warning("type_checker_not_started", error=str(error))
        return self._server


class TyServerError(Exception):
    """The server died or sent an invalid message, and must be restarted."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One diagnostic of ty. Lines count from 1, columns from 0, in characters."""

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
    """A running ty over one folder of stubs.

    It gets nothing of the portal's environment, and ends with its standard input, however the portal ends. It parses
    text of strangers, so it is confined to the stubs (`run_confined`). Not safe for concurrent use.
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
        """Start a server whose root is `folder`, and let it load what every script needs.

        Raises:
            OSError: ty cannot be started.
            TyServerError: It did not answer like a language server.
        """
        # These folders have no virtual environment and no user settings for ty to find.
        environment = {name: str(folder) for name in ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME")}
        process = await anyio.open_process(
            boot_command(*_CONFINED, str(folder), find_ty_bin(), "server"),
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env=environment,
            start_new_session=True,  # Ctrl-C is for the portal
        )
        server = cls(process, folder)
        try:
            await server._initialize()
            await server.findings("import tools", "await tools")
        except BaseException:
            await server.stop()
            raise
        return server

    async def findings(self, preamble: str, script: str) -> list[Finding]:
        """ty's findings in a script that follows a preamble.

        Both are cells of a notebook: only there ty allows a top-level `await`, and the script keeps its line numbers.
        All scripts use one notebook, which is faster than one each.
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

    def computed_seconds(self) -> float:
        """Its CPU time so far; the wall time where the system does not report that."""
        computed = cpu_seconds(self._process.pid)
        return anyio.current_time() if computed is None else computed

    def files_changed(self, files: Collection[Path]) -> None:
        """Report written or removed stubs; ty also accepts a change reported as a creation."""
        changes = [{"uri": file.as_uri(), "type": _CREATED if file.exists() else _DELETED} for file in files]
        self._notify("workspace/didChangeWatchedFiles", {"changes": changes})

    async def stop(self) -> None:
        """Kill the process, which has nothing to save."""
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
            if "method" in message and "id" in message:  # a request from the server: accept its defaults
                await self._send({"id": message["id"], "result": None})
            elif message.get("id") == number:
                if "result" not in message:
                    raise TyServerError(f"ty refused {method}")
                return message["result"]

    def _notify(self, method: str, parameters: Json) -> None:
        """Queue a message that has no answer; it is sent with the next request."""
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
    """Turn every failure of a process that dies, or that answers unexpectedly, into a TyServerError."""
    try:
        yield
    except (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream) as error:
        raise TyServerError("ty went away") from error
    except (anyio.IncompleteRead, anyio.DelimiterNotFound, ValueError, KeyError, TypeError) as error:
        raise TyServerError("ty sent an invalid message") from error
