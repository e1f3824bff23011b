"""Opens connections to an upstream: negotiates the protocol revision, and remembers what to send first."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import anyio
import mcp_types as types
from mcp.client import ClientSession
from mcp.shared.exceptions import MCPError
from mcp_types.version import LATEST_MODERN_VERSION
from pydantic import ValidationError

from manifests.portal_manifest import UpstreamSection
from upstreams import errors
from upstreams.health import Diagnostics
from upstreams.questions import ServerRequestRouter
from upstreams.redaction import Redaction
from upstreams.session import Session, client_info
from upstreams.tools import ListedUpstream, ListingStore, RecordedTool, UpstreamListing
from upstreams.transports.messages import failure_of
from upstreams.transports.wire import Wire, is_closed

PROBE_SECONDS: Final = 0.5
HTTP_PROBE_SECONDS: Final = 10.0
"""A server that has not answered the probe by then is also sent the handshake. The first is for a shared stream."""
BOTH_SECONDS: Final = 0.25
"""A server that answers the handshake may also answer the probe, so long after it."""

WireOpener: TypeAlias = Callable[[Diagnostics], AbstractAsyncContextManager[Wire]]
"""Connects to one upstream over its transport. Raises UpstreamError."""


class HandshakeFirstError(errors.UpstreamUnavailableError):
    """The server ended during or after the probe of its revision. Such servers require `initialize` first."""


class HandshakeUnansweredError(HandshakeFirstError):
    """It answered neither the probe nor the handshake after it in time. It may just be slow."""


class Handshake:
    """Whether the next connection begins with the older handshake, or with the probe of 2026-07-28."""

    def __init__(self) -> None:
        self.comes_first = False
        self.probe_was_fatal = False
        """Whether the last connection ended with the probe, so that the handshake is tried instead."""

    def succeeded(self, *, is_modern: bool) -> None:
        self.comes_first, self.probe_was_fatal = not is_modern, False

    def failed(self, cause: BaseException) -> bool:
        """Note why a connection failed. Returns whether the next attempt begins at once, with the other request."""
        self.probe_was_fatal = isinstance(cause, HandshakeFirstError) and not self.comes_first
        self.comes_first = self.probe_was_fatal
        # Then the server works, but not with the probe, unless it is only slow.
        return self.probe_was_fatal and not isinstance(cause, HandshakeUnansweredError)


@dataclass(eq=False)
class Connector:
    """Opens connections to one upstream, each within `connecting`, and lists its tools.

    `listed` gets the listing, and starts with the one in the `store`. The tools of `listed_by`, which is another
    connection to the same server, are used instead of an own listing.
    """

    listed: ListedUpstream
    spec: UpstreamSection
    open_wire: WireOpener
    redact: Redaction
    connecting: AbstractAsyncContextManager[object]
    store: ListingStore | None
    listed_by: ListedUpstream | None
    opened: int = 0
    """Connections since the portal started."""
    handshake: Handshake = field(default_factory=Handshake)

    def __post_init__(self) -> None:
        self.diagnostics = Diagnostics(self.redact)
        """Remarks about the latest connection."""

    async def recall(self) -> bool:
        """Begin with what an earlier portal learned. Returns whether the listing of a lazy upstream is known."""
        if self.store is None:
            return False
        self.handshake.comes_first = await self.store.needs_handshake_first()
        known = await self.store.load() if self.spec.start == "lazy" else None
        if known is not None:
            self.listed.apply(known)
        return known is not None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Session]:
        """Connect and list the tools within `connect_seconds`.

        Raises UpstreamError: it cannot be reached, or does not speak MCP.
        """
        former = () if self.handshake.probe_was_fatal else self.diagnostics.stderr()
        self.diagnostics = Diagnostics(self.redact, former)
        async with AsyncExitStack() as stack:
            async with self.connecting:
                wire = await stack.enter_async_context(self.open_wire(self.diagnostics))
                questions = ServerRequestRouter(self.spec, wire.abandoned)
                opening = ClientSession(
                    dispatcher=wire,
                    read_timeout_seconds=self.spec.connect_seconds + 1,
                    client_info=client_info(),
                    **questions.callbacks(),
                )
                client = await stack.enter_async_context(opening)
                session = await self._negotiated(wire, client, questions)
            self.opened += 1
            yield session

    async def _negotiated(self, wire: Wire, client: ClientSession, questions: ServerRequestRouter) -> Session:
        seconds = self.spec.connect_seconds
        handshake_first = self.spec.handshake or self.handshake.comes_first
        try:
            with anyio.fail_after(seconds):
                ignored_probe = await _negotiate(client, wire, handshake_first)
                self.diagnostics.remarks.clear()  # many healthy servers print a greeting on stdout first
                session = Session(wire, client, questions)
                tools = await self._list(session, is_whole=False)
            await wire.ending.forget_stderr()
        except TimeoutError:
            reason = wire.ending.with_stderr(f"was not ready within {seconds:g} s")
            if client.protocol_version or handshake_first or wire.closes_requests:
                raise errors.UpstreamUnavailableError(reason) from None
            raise HandshakeUnansweredError(reason) from None
        except MCPError as error:
            raise await _start_failure(error, wire) from error
        except (errors.UpstreamLostError, errors.UpstreamUnreadError) as error:
            raise errors.UpstreamUnavailableError(await wire.ending.explain()) from error
        if self.store is not None and (ignored_probe or self.handshake.probe_was_fatal):
            await self.store.keep_handshake_first()
        self.handshake.succeeded(is_modern=session.revision.is_modern)
        await self._keep_listing(session, tools)
        return session

    async def relist(self, session: Session) -> bool:
        """List the tools again. Returns whether they changed. After a failure, also of a later page, they stay."""
        seconds = self.spec.connect_seconds
        try:
            with anyio.fail_after(seconds):
                tools = await self._list(session, is_whole=True)
        except (errors.UpstreamError, TimeoutError) as error:
            why = f"no answer within {seconds:g} s" if isinstance(error, TimeoutError) else error
            self.diagnostics.note(f"its tools could not be listed again: {why}")
            return False
        if self.listed_by is not None or _by_name(tools) == _by_name(self.listed.tools):
            return False
        await self._keep_listing(session, tools)
        return True

    async def _keep_listing(self, session: Session, tools: tuple[RecordedTool, ...]) -> None:
        info = session.client.server_info
        server = self.redact.start(f"{info.name} {info.version}".strip()) if info else ""
        listing = UpstreamListing(tools, server, session.client.instructions)
        self.listed.apply(listing)
        if self.store is not None:
            await self.store.save(listing)

    async def _list(self, session: Session, *, is_whole: bool) -> tuple[RecordedTool, ...]:
        if (listed_by := self.listed_by) is None:
            tools = await session.list_tools(self.diagnostics, is_whole=is_whole)
        else:
            tools = listed_by.tools
        session.revision.use(tools)
        return tools


def _by_name(tools: tuple[RecordedTool, ...]) -> dict[str, RecordedTool]:
    """To compare: some servers list in another order each time."""
    return {tool.name: tool for tool in tools}


async def _negotiate(client: ClientSession, wire: Wire, handshake_first: bool) -> bool:
    """Negotiate the revision: the probe of 2026-07-28, then the older handshake. Returns whether the probe was ignored.

    The SDK's `auto` mode does the same, but only with its own dispatcher. Servers that do not know the probe answer
    with an error, ignore it, end at once, or (Python SDK before 1.9.2) end when they read the next message. So the
    handshake does not wait long for an answer. A slow server answers both, those on the Rust SDK in any order, and then
    serves the newer revision; those on the TypeScript SDK serve the older one.
    """
    if handshake_first:
        await _initialize(client)
        return False
    attempts: list[asyncio.Future[Any]] = [asyncio.ensure_future(client.discover())]
    try:
        await asyncio.wait(attempts, timeout=HTTP_PROBE_SECONDS if wire.closes_requests else PROBE_SECONDS)
        if is_ignored := not attempts[0].done():
            attempts.append(asyncio.ensure_future(_initialize(client)))
            await asyncio.wait(attempts, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait(attempts[:1], timeout=BOTH_SECONDS)
        if attempts[0].done() and await _is_understood(attempts[0], wire):
            if is_ignored and await _forgot_the_probe(client, attempts[1]):
                client.adopt(attempts[1].result())
                return False
            for attempt in attempts[1:]:
                attempt.cancel()
            await asyncio.gather(*attempts[1:], return_exceptions=True)
            client.adopt(attempts[0].result())  # it may have been answered first, and the handshake second
            return False
        try:
            await (attempts[1] if is_ignored else _initialize(client))
        except MCPError as error:
            if is_ignored and _has_ended(error, wire):
                raise HandshakeFirstError(await wire.ending.explain()) from error
            raise
        return not attempts[0].done()  # a slow server answers the probe late, but before the handshake
    finally:
        for attempt in attempts:
            attempt.cancel()
        await asyncio.gather(*attempts, return_exceptions=True)


async def _is_understood(probe: "asyncio.Future[Any]", wire: Wire) -> bool:
    """Whether the probe found a modern server. Raises UpstreamError if no handshake can follow."""
    try:
        await probe
    except MCPError as error:
        failure = failure_of(error.error)
        if _has_ended(error, wire):
            raise HandshakeFirstError(await wire.ending.explain()) from error
        if isinstance(failure, errors.UpstreamUnavailableError):
            raise failure from error
    except (ValidationError, RuntimeError):
        pass  # an older server does not understand the probe
    else:
        return True
    return False


async def _forgot_the_probe(client: ClientSession, handshake: "asyncio.Future[Any]") -> bool:
    """Whether the server took the handshake after the probe, and since then serves the older revision alone."""
    await asyncio.wait([handshake], timeout=BOTH_SECONDS)
    if not handshake.done() or handshake.exception() or handshake.result() is None:
        return False
    try:
        await asyncio.wait_for(client.send_discover(LATEST_MODERN_VERSION), BOTH_SECONDS)
    except (MCPError, TimeoutError) as error:
        return isinstance(error, MCPError) and error.code == types.METHOD_NOT_FOUND
    return False


async def _initialize(client: ClientSession) -> types.InitializeResult | None:
    try:
        return await client.initialize()
    except MCPError as error:
        # A slow server may have read the abandoned probe first, which settled the revision.
        if error.code != types.UNSUPPORTED_PROTOCOL_VERSION:
            raise
        await client.discover()
        return None
    except ValidationError as error:
        faults = "; ".join(
            f"`{'.'.join(map(str, each['loc']))}`: {each['msg'].partition(' or inst')[0]}"
            for each in error.errors()[:3]
        )
        raise errors.UpstreamAnswerError(f"its answer to initialize is invalid: {faults}") from error
    except RuntimeError as error:
        raise errors.UpstreamAnswerError(f"its answer to initialize is invalid: {error}") from error


def _has_ended(error: MCPError, wire: Wire) -> bool:
    """Whether the server ended by itself."""
    is_unread = isinstance(failure_of(error.error), errors.UpstreamUnreadError)
    return (is_unread or is_closed(error.error)) and not wire.ending.cut_off_reason


async def _start_failure(error: MCPError, wire: Wire) -> errors.UpstreamError:
    failure = failure_of(error.error)
    if failure and not isinstance(failure, errors.UpstreamUnreadError):
        return failure
    if failure or is_closed(error.error):
        return errors.UpstreamUnavailableError(await wire.ending.explain())
    return errors.UpstreamRefusedError(f"refused to start: {error}", rpc_code=error.code)
