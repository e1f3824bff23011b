"""The stdio transport: one JSON-RPC message per line.

The SDK's stdio client is not used: it adds five variables to the environment, reads lines of any length with quadratic
copying, fails on invalid UTF-8, and takes four seconds to close.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import AsyncResource, ObjectReceiveStream
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification, JSONRPCRequest

from manifests.json_value import Json
from manifests.portal_manifest import StdioUpstream
from upstreams.errors import UpstreamCutOffError, UpstreamUnreadError
from upstreams.health import Diagnostics
from upstreams.transports.child_process import crash_reason, open_child
from upstreams.transports.messages import InboundLimits, MessageReader, encoded
from upstreams.transports.wire import Ending, Wire

_MAX_UNREAD_BYTES: Final = 64 * 1024 * 1024
_SHORT_BYTES: Final = 32 * 1024
_NOTIFICATION_SECONDS: Final = 0.05


@asynccontextmanager
async def open_stdio_wire(
    spec: StdioUpstream, folder: Path, mask: Callable[[Json, bytes], Json], diagnostics: Diagnostics
) -> AsyncIterator[Wire]:
    """Start a child of `folder` and open its wire. On exit the child and all its descendants are gone.

    `mask` masks the child's messages; see `MessageReader`. Call it from the event loop's thread: the kernel ties the
    supervisor's death signal to that thread. Raises UpstreamUnavailableError: it cannot be started.
    """
    # Looked up at every attempt: the command may have been installed since.
    async with open_child(spec, folder, diagnostics.redact) as child:
        former = diagnostics.stderr()
        diagnostics.stderr = lambda: child.stderr.lines() or former
        reader = MessageReader(InboundLimits(spec.message_bytes), diagnostics, mask)
        stdin = ChildInput(child.stdin)
        inbox, received = anyio.create_memory_object_stream[SessionMessage](math.inf)
        ending = Ending(
            lambda: child.exit_status(stdin.fault or "closed its stdout"),
            lambda: crash_reason(child.stderr.lines()),
            child.stderr.forget,
        )
        incoming = Inbox(received, child.stdout)
        wire = Wire(incoming, stdin, reader.limits, send_at_once=stdin.send_at_once, ending=ending)
        child.stdout.set_protocol(ChildOutput(child.stdout, wire, inbox, reader))
        child.stdout.resume_reading()
        yield wire


@dataclass(eq=False)
class ChildOutput(asyncio.Protocol):
    """Parses the child's stdout as it arrives. Answers go to the wire at once, unless earlier messages still wait in
    `inbox` for the SDK; then nothing more is read until it is empty. The wire is cut off if the child sends more than
    the reader's limits allow.
    """

    stdout: asyncio.ReadTransport
    wire: Wire
    inbox: MemoryObjectSendStream[SessionMessage]
    reader: MessageReader
    _partial: bytearray = field(default_factory=bytearray)

    def data_received(self, data: bytes) -> None:
        try:
            self._read(data)
            if self.inbox.statistics().current_buffer_used:
                self.stdout.pause_reading()
        except UpstreamCutOffError as error:
            self.wire.ending.cut_off(error)
            self.stdout.close()
        except anyio.BrokenResourceError:
            pass  # the connection is closing

    def connection_lost(self, exc: Exception | None) -> None:
        self.inbox.close()

    def _read(self, chunk: bytes) -> None:
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            if self._partial:
                line, self._partial = bytes(self._partial + line), bytearray()
            self.reader.limits.check_message(len(line))
            for message in self.reader.read_leniently(line):
                if self.inbox.statistics().current_buffer_used or self.wire.is_wanted(message):
                    self.inbox.send_nowait(message)
        self._partial += rest
        self.reader.limits.check_message(len(self._partial))


class Inbox(ObjectReceiveStream[SessionMessage]):
    """What waits for the SDK, as its read stream. Allowed messages may be many, and take twenty times their bytes."""

    def __init__(
        self, received: MemoryObjectReceiveStream[SessionMessage], stdout: asyncio.ReadTransport
    ) -> None:
        self._received = received
        self._stdout = stdout

    async def receive(self) -> SessionMessage:
        if not self._received.statistics().current_buffer_used:
            self._stdout.resume_reading()
        return await self._received.receive()

    async def aclose(self) -> None:
        await self._received.aclose()


class ChildInput(AsyncResource):
    """The child's stdin as the SDK's write stream."""

    def __init__(self, stdin: asyncio.StreamWriter) -> None:
        self.fault = ""
        """Why further messages do not arrive; "" if they do."""
        self._stdin = stdin
        self._turn = anyio.Lock(fast_acquire=True)
        self._queued_lines = 0
        self._unread_bytes = 0

    def send_at_once(self, item: SessionMessage) -> bool:
        """Send a request of at most 32 KiB without a wait, if none waits to be read. Returns whether it was sent.

        Raises UpstreamUnreadError: as `send`.
        """
        is_busy = self._turn.locked() or self._stdin.transport.get_write_buffer_size()
        if (
            self.fault
            or is_busy
            or self._stdin.is_closing()
            or len(line := encoded(item.message) + b"\n") > _SHORT_BYTES
        ):
            return False
        self._stdin.write(line)
        if self._stdin.is_closing():  # nothing was written
            self.fault = "closed its stdin"
            raise UpstreamUnreadError(self.fault)
        return True

    async def send(self, item: SessionMessage) -> None:
        """Queue a message and wait until the child reads it. Requests are sent one after another.

        A cancelled wait leaves the whole line in the queue. With 64 MiB unread, the child counts as gone.

        Raises:
            UpstreamUnreadError: The child certainly did not get the whole request.
            anyio.BrokenResourceError: It may have got the request, and gets nothing further.
        """
        line = encoded(item.message) + b"\n"
        if isinstance(item.message, JSONRPCRequest):
            async with self._turn:
                await self._queue(line)
            return
        # A cancellation notice must not delay its caller beyond the deadline.
        is_notice = isinstance(item.message, JSONRPCNotification)
        with anyio.move_on_after(_NOTIFICATION_SECONDS if is_notice else None):
            try:
                await self._queue(line)
            except UpstreamUnreadError:
                raise anyio.BrokenResourceError from None

    async def _queue(self, line: bytes) -> None:
        if self._unread_bytes + len(line) > _MAX_UNREAD_BYTES:
            self.fault = self.fault or "stopped reading its stdin"
        if self.fault:
            raise UpstreamUnreadError(self.fault)
        self._unread_bytes += len(line)
        self._queued_lines += 1
        number = self._queued_lines
        try:
            self._stdin.write(line)
            await self._stdin.drain()
        except OSError as error:
            self.fault = self.fault or "closed its stdin"
            # The wait had not ended, so the end of the last queued line is unread.
            if number == self._queued_lines:
                raise UpstreamUnreadError(self.fault) from error
            raise anyio.BrokenResourceError from error
        self._unread_bytes = 0

    async def aclose(self) -> None:
        """Do nothing: the process owns the pipe."""
