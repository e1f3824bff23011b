"""Starts a stdio server under its supervisor and carries its lines.

The SDK's stdio client is not used: it adds five variables to the environment, reads a line of any length with
quadratic copying, dies on bytes that are no UTF-8, and takes four seconds to close.
"""

import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, Self

import anyio
from anyio.abc import AsyncResource, ByteReceiveStream, ByteSendStream, Process
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification, JSONRPCRequest

from upstreams.child_end import EOF_GRACE_SECONDS, ChildEnd, has_ended
from upstreams.diagnostics import Diagnostics
from upstreams.errors import UpstreamAnswerError, UpstreamUnavailableError, UpstreamUnreadError
from upstreams.json_rpc import Found, MessageReader
from upstreams.masking import Mask
from upstreams.pace import Pace
from upstreams.piled_text import PiledText
from upstreams.room import Held
from upstreams.scrubber import Scrubber
from upstreams.stderr_tail import StderrTail
from upstreams.stdio_child import StdioChild
from upstreams.steps import turns_of_others
from upstreams.wire import Failures, Wire
from upstreams.wire_text import END_BYTES, MAX_MESSAGE_BYTES

_REST_OF_STDERR_SECONDS: Final = 0.3
_MAX_SKIPPED_BYTES: Final = 256 * 1024 * 1024
_MAX_UNREAD_BYTES: Final = 64 * 1024 * 1024
_NOISE_AT_ONCE: Final = 50
_NOISE_LINE_BYTES: Final = 1024
"""A longer line counts once more for each."""

_SKIPPED_BYTES_A_SECOND: Final = 40 * 1024 * 1024
"""Of a line that is not looked at; after each piece of it, so that somebody else's call meets one or two."""

_NOISE_PAUSE_SECONDS: Final = 0.01
_LONGEST_PAUSE_SECONDS: Final = 5.0


@asynccontextmanager
async def open_stdio_wire(
    child: StdioChild, scrub: Scrubber, diagnostics: Diagnostics, mask: Mask, held: Held
) -> AsyncIterator[Wire]:
    """A running child and its wire; on leaving, the child and all its descendants are gone (`ChildEnd`).

    What it sends is read without what `mask` takes out, as far as it can be `held`.

    Started from the event loop's thread: the kernel ties the supervisor's death signal to that thread.
    """
    process = await _start(child)
    assert process.stdin and process.stdout and process.stderr
    child_end = ChildEnd(process)
    failures = Failures()
    stderr = StderrTail(scrub)

    output = ChildOutput(process.stdout, MessageReader(failures, diagnostics, mask), held)
    stdin = ChildInput(process.stdin, failures)

    async def exit_status() -> str:
        status = output.fault or await _describe_exit(process, stdin.fault or "closed its stdout")
        with anyio.move_on_after(_REST_OF_STDERR_SECONDS):
            await stderr.finished.wait()
        return status

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stderr.follow, process.stderr)
        tasks.start_soon(child_end.guard)
        try:
            yield Wire(
                output,
                stdin,
                send_line=stdin.send_line,
                failures=failures,
                last_words=stderr.last_words,
                exit_status=exit_status,
            )
        finally:
            held.release()
            with anyio.CancelScope(shield=True):
                await child_end.end()
            tasks.cancel_scope.cancel()


async def _start(child: StdioChild) -> Process:
    try:
        return await anyio.open_process(
            child.command, cwd=child.folder, env=child.environment, start_new_session=True
        )
    except (OSError, ValueError) as error:
        raise UpstreamUnavailableError(f"could not be started: {error}{_advice(error)}") from error


def _advice(error: OSError | ValueError) -> str:
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return (
            "; let the portal have more open files (ulimit -Hn), or start fewer servers with it (start: lazy)"
        )
    return ""


async def _describe_exit(process: Process, fault: str) -> str:
    """How it ended, or its `fault` if it lives on."""
    if not await has_ended(process, EOF_GRACE_SECONDS):
        return fault
    status = process.returncode or 0
    # The supervisor reports a signal the way shells do.
    return f"ended by signal {status - 128}" if status > 128 else f"exited with status {status}"


class EndlessLineError(Exception):
    """The child writes a line that does not end."""


class ChildOutput(AsyncResource):
    """The child's stdout as the SDK's read stream; it runs in the dispatcher's task, without one of its own."""

    def __init__(self, stdout: ByteReceiveStream, reader: MessageReader, held: Held) -> None:
        self.fault = ""
        """Why nothing is read from it any more, when that is the child's doing."""
        self._stdout = stdout
        self._reader = reader
        self._held = held
        self._found: Found = iter(())
        self._partial = PiledText()
        self._pace = Pace()
        self._skipped_bytes = 0
        self._why_skipped: UpstreamAnswerError | None = None
        self._lines_of_noise = 0
        self._pause_seconds = 0.0

    async def receive(self) -> SessionMessage:
        while True:
            # Whoever is cancelled in between finds the rest in it the next time.
            for message in self._found:
                if message is not None:
                    return message
                pause_seconds, self._pause_seconds = self._pause_seconds, 0.0
                await (anyio.sleep(pause_seconds) if pause_seconds else turns_of_others())
            self._found = self._read(await self._stdout.receive())

    def _note_noise(self, lines: int) -> None:
        """A child that prints without end must not keep everybody else waiting."""
        times, self._lines_of_noise = divmod(self._lines_of_noise + lines, _NOISE_AT_ONCE)
        self._pause_seconds = min(self._pause_seconds + times * _NOISE_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)

    def _read(self, chunk: bytes) -> Found:
        """One line after the other, as they are asked for."""
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            yield from self._grow(line)
            yield from self._end_line()
        yield from self._grow(rest)

    def _grow(self, piece: bytes) -> Found:
        self._partial.add(piece)
        if self._why_skipped is None:
            self._why_skipped = self._why_not_held()
            if self._why_skipped is not None:
                # Its call hears so at once: the line may never end.
                yield from self._reader.too_long(self._partial.start(END_BYTES), self._why_skipped)
        if self._why_skipped is not None:
            yield from self._skip()
        elif rest_seconds := self._pace.rest_seconds(piece, len(self._partial)):
            self._pause_seconds += rest_seconds
            yield None

    def _why_not_held(self) -> UpstreamAnswerError | None:
        if len(self._partial) > MAX_MESSAGE_BYTES:
            return UpstreamAnswerError("the answer is unreadable: longer than the portal reads")
        return None if self._held.fits(len(self._partial)) else self._held.refusal()

    def _skip(self) -> Found:
        """Keep only the end of the line."""
        dropped = max(0, len(self._partial) - END_BYTES)
        yield from self._partial.keep_end(END_BYTES)
        self._held.release()
        self._skipped_bytes += dropped
        if self._skipped_bytes > _MAX_SKIPPED_BYTES:
            raise EndlessLineError(f"wrote a line of more than {_MAX_SKIPPED_BYTES} bytes")
        self._pause_seconds += dropped / _SKIPPED_BYTES_A_SECOND
        yield None

    def _end_line(self) -> Found:
        line = yield from self._partial.taken()
        why_skipped, self._why_skipped, self._skipped_bytes = self._why_skipped, None, 0
        reader = self._reader
        messages = reader.end_of_too_long(line, why_skipped) if why_skipped else reader.read(line)
        is_noise = True
        for message in messages:
            is_noise = is_noise and message is None
            yield message
        self._held.release()
        if is_noise:
            self._note_noise(1 + len(line) // _NOISE_LINE_BYTES)
            yield None

    async def aclose(self) -> None:
        """The process owns the pipe."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        try:
            return await self.receive()
        except EndlessLineError as error:
            self.fault = str(error)
            raise StopAsyncIteration from None
        except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            raise StopAsyncIteration from None


class ChildInput(AsyncResource):
    """The child's stdin as the SDK's write stream."""

    def __init__(self, stdin: ByteSendStream, failures: Failures) -> None:
        self.fault = ""
        """Why nothing that is sent from now on arrives."""
        self._stdin = stdin
        self._failures = failures
        self._turn = anyio.Lock(fast_acquire=True)
        self._queued_lines = 0
        self._unread_bytes = 0

    async def send(self, item: SessionMessage) -> None:
        """Any message; see `send_line` of a request. A notification only waits a moment."""
        line = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        if isinstance(item.message, JSONRPCRequest):
            await self.send_line(line)
            return
        # The courtesy notice that a call was cancelled must not hold its caller beyond the deadline.
        with anyio.move_on_after(0.05 if isinstance(item.message, JSONRPCNotification) else None):
            try:
                await self._queue(line)
            except UpstreamUnreadError:
                raise anyio.BrokenResourceError from None

    async def send_line(self, line: bytes) -> None:
        """Queue the line of a request, then wait until the child reads; each behind the one before.

        A cancelled wait leaves the line whole in the queue. When 64 MiB lie there unread, the child counts
        as gone.

        Raises:
            MCPError: The child certainly did not get all of it; carries an `UpstreamUnreadError`.
            anyio.BrokenResourceError: It may have got it, and will get nothing else.
        """
        async with self._turn:
            try:
                await self._queue(line)
            except UpstreamUnreadError as error:
                carried = self._failures.carry(error)
                raise MCPError(carried.code, carried.message, carried.data) from None

    async def _queue(self, line: bytes) -> None:
        if self._unread_bytes + len(line) > _MAX_UNREAD_BYTES:
            self.fault = self.fault or "reads no more of its stdin"
        if self.fault:
            raise UpstreamUnreadError(self.fault)
        self._unread_bytes += len(line)
        self._queued_lines += 1
        number = self._queued_lines
        try:
            await self._stdin.send(line)
        except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            self.fault = self.fault or "closed its stdin"
            # Of the last line in the queue the end was still there: else this would not have waited any more.
            if number == self._queued_lines:
                raise UpstreamUnreadError(self.fault) from error
            raise anyio.BrokenResourceError from error
        self._unread_bytes = 0

    async def aclose(self) -> None:
        """The process owns the pipe."""
