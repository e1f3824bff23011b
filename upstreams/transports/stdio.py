"""Carries the lines of a stdio server.

The SDK's stdio client is not used: it adds five variables to the environment, reads a line of any length with
quadratic copying, dies on bytes that are no UTF-8, and takes four seconds to close.
"""

from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import anyio
import anyio.lowlevel
from anyio.abc import AsyncResource, ByteReceiveStream, ByteSendStream, ObjectReceiveStream
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification, JSONRPCRequest

from upstreams.errors import UpstreamUnreadError
from upstreams.health import Diagnostics
from upstreams.transports.child_process import ChildCommand, open_child
from upstreams.transports.messages import InboundLimits, MessageReader
from upstreams.transports.wire import Wire

_MAX_UNREAD_BYTES: Final = 64 * 1024 * 1024
_NOTIFICATION_SECONDS: Final = 0.05
_MESSAGES_PER_TURN: Final = 50


@asynccontextmanager
async def open_stdio_wire(
    command: ChildCommand, diagnostics: Diagnostics, mask: Callable[[bytes], bytes], message_bytes: int
) -> AsyncIterator[Wire]:
    """A running child and its wire; on leaving, the child and all its descendants are gone.

    What it sends is read without what `mask` takes out. Started from the event loop's thread: the kernel ties the
    supervisor's death signal to that thread. Raises UpstreamUnavailableError: it cannot be started.
    """
    async with open_child(command, diagnostics.redact) as child:
        diagnostics.stderr = child.stderr.lines
        limits = InboundLimits(message_bytes)
        stdin = ChildInput(child.stdin)
        yield Wire(
            ChildOutput(child.stdout, MessageReader(limits, diagnostics, mask), limits),
            stdin,
            limits,
            last_stderr_line=child.stderr.last_line,
            exit_status=lambda: child.exit_status(stdin.fault or "closed its stdout"),
        )


@dataclass(eq=False)
class ChildOutput(ObjectReceiveStream[SessionMessage]):
    """The child's stdout as the SDK's read stream; it runs in the dispatcher's task, without one of its own.

    Iterating raises UpstreamCutOffError if the child sends more than `limits` allow.
    """

    stdout: ByteReceiveStream
    reader: MessageReader
    limits: InboundLimits
    _messages: deque[SessionMessage] = field(default_factory=deque)
    _partial: bytearray = field(default_factory=bytearray)
    _taken: int = 0

    async def receive(self) -> SessionMessage:
        while not self._messages:
            try:
                chunk = await self.stdout.receive()
            except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
                raise anyio.EndOfStream from None
            self._read(chunk)
        self._taken += 1
        if self._taken % _MESSAGES_PER_TURN == 0:
            await anyio.lowlevel.checkpoint()
        return self._messages.popleft()

    def _read(self, chunk: bytes) -> None:
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            if self._partial:
                line, self._partial = bytes(self._partial + line), bytearray()
            self.limits.check_message(len(line))
            self._messages += self.reader.read_leniently(line)
        self._partial += rest
        self.limits.check_message(len(self._partial))

    async def aclose(self) -> None:
        """The process owns the pipe."""


class ChildInput(AsyncResource):
    """The child's stdin as the SDK's write stream."""

    def __init__(self, stdin: ByteSendStream) -> None:
        self.fault = ""
        """Why nothing that is sent from now on arrives."""
        self._stdin = stdin
        self._turn = anyio.Lock(fast_acquire=True)
        self._queued_lines = 0
        self._unread_bytes = 0

    async def send(self, item: SessionMessage) -> None:
        """Queue a message, then wait until the child reads it; requests each behind the one before.

        A cancelled wait leaves the line whole in the queue. When 64 MiB lie there unread, the child counts
        as gone.

        Raises:
            UpstreamUnreadError: The child certainly did not get all of a request.
            anyio.BrokenResourceError: It may have got it, and will get nothing else.
        """
        line = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        if isinstance(item.message, JSONRPCRequest):
            async with self._turn:
                await self._queue(line)
            return
        # The courtesy notice that a call was cancelled must not hold its caller beyond the deadline.
        is_notice = isinstance(item.message, JSONRPCNotification)
        with anyio.move_on_after(_NOTIFICATION_SECONDS if is_notice else None):
            try:
                await self._queue(line)
            except UpstreamUnreadError:
                raise anyio.BrokenResourceError from None

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
