"""Runs a type checker as a language server (LSP over pipes), locked down, and restarts it when necessary."""

import json
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final, Self

import anyio
import anyio.to_thread
import structlog
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from manifests.json_value import Json
from manifests.own_files import is_private
from portal.base.errors import PortalError
from portal.library.library import Library
from sandbox_runtime.fair_queue import Turns
from sandbox_runtime.worker_process import boot_command, cpu_seconds

log = structlog.get_logger()

ANSWER_SECONDS: Final = 2.0
"""Time limit of a type check. After that the script runs unchecked. Excludes the wait for other callers' scripts."""

LONG_SECONDS: Final = 0.1
"""CPU seconds of a check that are free. The caller owes the rest."""

MOST_OWED_SECONDS: Final = 1.0
"""The scripts of a caller that owes more run unchecked, so that those of others need not wait for them."""

PAID_BACK: Final = 0.05
"""Seconds that a caller pays back each second."""

MAX_DOCUMENTS: Final = 5_000
"""Scripts after which a server is restarted, in case it leaks memory (ty has 46 MB after 2,000)."""

REST_SECONDS: Final = 60.0
"""A server ends when no script has used it for this time, at most twice as long.

ty holds 43 MB, and starts in 0.06 s.
"""

RETRY_SECONDS: Final = 30.0
"""Pause after a failed start. During the pause no script waits for the server."""

MOST_FINDINGS: Final = 100
"""Findings of one script that are used. Each is looked up in it, which takes up to a millisecond in a long one."""

_LONGEST_MESSAGE: Final = 1_000
_WARM_SECONDS: Final = 30.0
_MAX_HEADER_BYTES: Final = 4096
_MAX_MESSAGE_BYTES: Final = 8 << 20
CREATED, CHANGED, _DELETED = 1, 2, 3
_CONFINED: Final = ("sandbox_runtime.worker.lockdown", "run_confined")


class TypeChecker:
    """One server of a kind, started on demand and restarted when it is lost.

    Safe for concurrent use: callers take turns.
    """

    def __init__(self, folder: Path, kind: "type[LanguageServer]") -> None:
        self._folder = folder.resolve()
        self._kind = kind
        self._server: LanguageServer | None = None
        self._is_used = False
        self._turns = Turns(1)
        self._changed: set[Path] = set()
        self._library: Library | None = None
        self._retry_at = 0.0
        self._paid_at: dict[str, float] = {}
        """By caller: the time at which its debt is paid back."""

    async def keep(self) -> None:
        """Start the server, so that the first script does not wait for it, and end it whenever it rests."""
        with anyio.move_on_after(_WARM_SECONDS):
            async with self._turns.turn(""):
                await self._ensure_server()
        while True:
            await anyio.sleep(REST_SECONDS)
            await self.end_if_unused()

    async def end_if_unused(self) -> None:
        """End the server if no script has used it since the last time this was asked."""
        async with self._turns.turn(""):
            if not self._is_used:
                await self.close()
            self._is_used = False

    async def end(self) -> None:
        """End the server between two scripts."""
        async with self._turns.turn(""):
            await self.close()

    async def close(self) -> None:
        """End the server; the next script starts it again."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop()

    def write(self, library: Library) -> Set[Path]:
        """Write the stubs of its language. Returns the files that changed. Raises OSError."""
        return self._kind.write(library, self._folder)

    def update(self, changed: Collection[Path], library: Library | None = None) -> None:
        """Tell the server about written or removed stubs of its language, before the next script.

        Stubs of `library` that are missing when a server starts are written again.
        """
        self._library = library
        self._changed |= {path.resolve() for path in changed if path.suffix == self._kind.SUFFIX}

    async def findings(
        self, namespaces: Collection[str], source: str, caller: str = ""
    ) -> "list[Finding] | None":
        """The findings in a script with these namespaces; None if they are late, or the caller owes too much."""
        async with self._turns.turn(caller):
            if self._paid_at.get(caller, 0) < anyio.current_time() + MOST_OWED_SECONDS / PAID_BACK:
                with anyio.move_on_after(ANSWER_SECONDS):
                    return await self._ask(namespaces, source, caller)
        return None

    def _charge(self, caller: str, seconds: float) -> None:
        now = anyio.current_time()
        self._paid_at = {each: at for each, at in self._paid_at.items() if at > now}
        if seconds > LONG_SECONDS:
            self._paid_at[caller] = self._paid_at.get(caller, now) + (seconds - LONG_SECONDS) / PAID_BACK

    async def _ask(self, namespaces: Collection[str], source: str, caller: str) -> "list[Finding] | None":
        """Ask the server, starting it if necessary, and once more if it died."""
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
                found = await server.findings(namespaces, source)
                seconds = min(server.computed_seconds() - began, ANSWER_SECONDS)
                return found
            except LanguageServerError as error:
                log.warning("type_checker_lost", error=str(error))
                await self.close()
            except BaseException:
                # After a cancellation the pipe may have the rest of an old answer.
                await self.close()
                raise
            finally:
                self._charge(caller, seconds)  # a caller that made it die also pays for its start
        return None

    async def _ensure_server(self) -> "LanguageServer | None":
        if self._server is not None and self._server.documents >= MAX_DOCUMENTS:
            await self.close()
        if self._server is None and anyio.current_time() >= self._retry_at:
            try:
                if self._library is not None:  # the system may have emptied its temporary folder
                    self._folder.mkdir(0o700, exist_ok=True)
                    # Another user of the machine may have made it anew.
                    if self._folder.is_symlink() or not is_private(self._folder):
                        raise LanguageServerError(f"others may write to {self._folder}")
                    await anyio.to_thread.run_sync(self.write, self._library)
                self._server = await self._kind.start(self._folder)
            except (LanguageServerError, OSError, PortalError) as error:
                self._retry_at = anyio.current_time() + RETRY_SECONDS
                log.warning("type_checker_not_started", error=str(error))
        return self._server


class LanguageServerError(Exception):
    """The server died or sent an invalid message, and must be restarted."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One diagnostic. Lines count from 1, columns from 0, in the units of the server's encoding.

    `rule` is ty's name for it, or TypeScript's number.
    """

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
        return cls(str(item.get("code") or ""), item["message"][:_LONGEST_MESSAGE], *places)


class LanguageServer(ABC):
    """A running server over one folder of stubs.

    It gets nothing of the portal's environment, and ends with its standard input, however the portal ends. It parses
    text of strangers, so it is confined to the stubs (`run_confined`). Not safe for concurrent use.
    """

    SUFFIX: ClassVar[str]
    """The last suffix of its stubs."""

    ENCODING: ClassVar[str]
    """What its columns count, as the protocol calls it."""

    WRITTEN: ClassVar[Sequence[int]] = (CREATED,)
    """The events for a file that was written and may be new."""

    ENVIRONMENT: ClassVar[Mapping[str, str]] = {}
    CAPABILITIES: ClassVar[Json] = {}
    """The client capabilities that its kind of document needs."""

    def __init__(self, process: Process, folder: Path) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._process = process
        self._stdin = process.stdin
        self._stdout = BufferedByteReceiveStream(process.stdout)
        self._folder = folder
        self._requests = 0
        self._unsent: list[Json] = []
        self.documents = 0

    @staticmethod
    @abstractmethod
    def write(library: Library, folder: Path) -> Set[Path]:
        """Make the folder hold the stubs of this library. Returns the files that changed. Raises OSError."""

    @classmethod
    @abstractmethod
    def command(cls, folder: Path) -> tuple[Sequence[str], Sequence[str]]:
        """The program with its arguments, and the folders that it reads beside the stubs. Prepares the folder.

        Raises OSError: it cannot be started.
        """

    @abstractmethod
    async def warm_up(self) -> None:
        """Let it load what every script needs. Raises LanguageServerError: it cannot check scripts."""

    @abstractmethod
    def _show(self, namespaces: Collection[str], script: str) -> str:
        """Notify it of the next script (number `documents`) in the place of the former. Returns the URI to ask for."""

    @classmethod
    async def start(cls, folder: Path) -> Self:
        """Start a server whose root is `folder`, and let it load what every script needs.

        Raises:
            OSError: It cannot be started.
            LanguageServerError: It did not answer like a language server.
        """
        command, folders = cls.command(folder)
        # These folders have no virtual environment and no user settings to find.
        environment = {name: str(folder) for name in ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME")}
        process = await anyio.open_process(
            boot_command(*_CONFINED, "\n".join([str(folder), *folders]), *command),
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env={**environment, **cls.ENVIRONMENT},
            start_new_session=True,  # Ctrl-C is for the portal
        )
        server = cls(process, folder)
        try:
            await server._initialize()
            await server.warm_up()
        except BaseException:
            await server.stop()
            raise
        return server

    async def findings(self, namespaces: Collection[str], script: str) -> list[Finding]:
        """The findings in a script that uses these namespaces."""
        self.documents += 1
        uri = self._show(namespaces, script)
        answer = await self._request("textDocument/diagnostic", {"textDocument": {"uri": uri}})
        with _as_server_error():
            return [Finding.of(item) for item in answer["items"]]

    def computed_seconds(self) -> float:
        """Its CPU time so far; the wall time where the system does not report that."""
        computed = cpu_seconds(self._process.pid)
        return anyio.current_time() if computed is None else computed

    def files_changed(self, files: Collection[Path]) -> None:
        """Report written or removed stubs."""
        changes = [
            {"uri": file.as_uri(), "type": event}
            for file in files
            for event in (self.WRITTEN if file.exists() else (_DELETED,))
        ]
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
            "workspace": {"didChangeWatchedFiles": {"dynamicRegistration": False}},
            "general": {"positionEncodings": [self.ENCODING]},
            **self.CAPABILITIES,
        }
        # No process id: it may not look at the portal's process.
        parameters = {"processId": None, "workspaceFolders": [root], "capabilities": capabilities}
        answer = await self._request("initialize", {"rootUri": root["uri"], **parameters})
        if answer["capabilities"].get("positionEncoding") != self.ENCODING:
            raise LanguageServerError(f"it does not count columns in {self.ENCODING}")
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
                    raise LanguageServerError(f"it refused {method}")
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
            if (length := int(fields[b"content-length"])) > _MAX_MESSAGE_BYTES:
                raise LanguageServerError("it sent a message that is too long")
            return json.loads(await self._stdout.receive_exactly(length))


@contextmanager
def _as_server_error() -> Iterator[None]:
    """Turn every failure of a process that dies, or that answers unexpectedly, into a LanguageServerError."""
    try:
        yield
    except (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream) as error:
        raise LanguageServerError("it went away") from error
    except (anyio.IncompleteRead, anyio.DelimiterNotFound, ValueError, KeyError, TypeError) as error:
        raise LanguageServerError("it sent an invalid message") from error
