"""One negotiated connection to an upstream: opening it, calls and listings."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from math import inf
from typing import Any, Final, TypeAlias

import anyio
import mcp_types as types
from mcp.client import ClientSession
from mcp.shared import inbound
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from pydantic import ValidationError

from manifests.json_value import Json
from upstreams import errors
from upstreams.health import Diagnostics
from upstreams.notifications import Notifications
from upstreams.questions import ActiveCall, ServerRequestHandler, ServerRequestRouter
from upstreams.tools import RecordedTool, ToolResult, read_listing, read_result
from upstreams.transports.messages import failure_of, unsendable
from upstreams.transports.wire import ProgressHandler, Wire, is_closed, with_stderr

PROBE_SECONDS: Final = 0.5
HTTP_PROBE_SECONDS: Final = 10.0
"""A server that has not answered the probe by then is also sent the handshake. The first is for a shared stream."""

MOST_EXTENSION: Final = 10
"""Each progress report restarts a call's time limit; in total the call has at most this many times the limit."""

REFUSAL_GRACE_SECONDS: Final = 10.0
"""A connection that replaced a refused one is not itself replaced after a refusal within this time."""

IDEMPOTENCY_KEY_META: Final = "dev.mcp-code-portal/idempotency-key"
"""The `_meta` key of an idempotency key: the same text for every attempt of a call, and unique to the call.

Source: MCP 2026-07-28, basic#_meta: a vendor's key has a reversed domain before the slash.
"""

_TRACE_CONTEXT: Final = TraceContextTextMapPropagator()
"""Adds the current span to `_meta`, if there is one. Source: SEP-414."""

_DISTRIBUTION: Final = "mcp-code-portal"

_GONE: Final = (errors.UpstreamLostError, errors.UpstreamTimeoutError, errors.UpstreamUnreadError)

WireOpener: TypeAlias = Callable[[Diagnostics], AbstractAsyncContextManager[Wire]]
"""Connects to one upstream over its transport. Raises UpstreamError."""


class HandshakeFirstError(errors.UpstreamUnavailableError):
    """The server ended during or after the probe of its revision. Such servers require `initialize` first."""


class HandshakeUnansweredError(HandshakeFirstError):
    """It answered neither the probe nor the handshake after it in time. It may just be slow."""


@asynccontextmanager
async def open_session(
    open_wire: WireOpener,
    diagnostics: Diagnostics,
    questions: ServerRequestRouter,
    *,
    seconds: float,
    handshake_first: bool,
    tools: tuple[RecordedTool, ...] | None = None,
) -> AsyncIterator["Session"]:
    """Connect, negotiate the protocol revision and list the tools, all within `seconds`. Known `tools` are not listed.

    Raises UpstreamError: it cannot be reached, or does not speak MCP.
    """
    notifications = Notifications(diagnostics)
    async with open_wire(diagnostics) as wire:
        wire.on_notification, wire.on_answer = notifications.handle, questions.abandoned.answered
        wire.has_abandoned = lambda: bool(questions.abandoned.owners())
        async with ClientSession(
            dispatcher=wire,
            read_timeout_seconds=seconds + 1,
            message_handler=notifications,
            client_info=client_info(),
            **questions.callbacks(),
        ) as client:
            try:
                with anyio.fail_after(seconds):
                    ignored_probe = await _negotiate(client, wire, handshake_first)
                    diagnostics.forget()
                    session = Session(wire, client, diagnostics, notifications, questions, ignored_probe)
                    if tools is None:
                        await session.list_tools()
                    else:
                        session.take(tools)
                await wire.forget_stderr()
            except TimeoutError:
                reason = with_stderr(f"was not ready within {seconds:g} s", wire.last_stderr_line())
                if client.protocol_version or handshake_first or wire.closes_requests:
                    raise errors.UpstreamUnavailableError(reason) from None
                raise HandshakeUnansweredError(reason) from None
            except MCPError as error:
                raise await _start_failure(error, wire) from error
            except _GONE as error:
                raise errors.UpstreamUnavailableError(await wire.explain_end()) from error
            yield session


async def _negotiate(client: ClientSession, wire: Wire, handshake_first: bool) -> bool:
    """Negotiate the revision: the probe of 2026-07-28, then the older handshake. Returns whether the probe was ignored.

    The SDK's `auto` mode does the same, but only with its own dispatcher. Servers that do not know the probe answer
    with an error, ignore it, end at once, or (Python SDK before 1.9.2) end when they read the next message. So the
    handshake does not wait long for an answer. A slow server answers both in order; the first one counts.
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
        if attempts[0].done() and await _is_understood(attempts[0], wire):
            return False
        try:
            await (attempts[1] if is_ignored else _initialize(client))
        except MCPError as error:
            if is_ignored and _has_ended(error, wire):
                raise HandshakeFirstError(await wire.explain_end()) from error
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
            raise HandshakeFirstError(await wire.explain_end()) from error
        if isinstance(failure, errors.UpstreamUnavailableError):
            raise failure from error
    except (ValidationError, RuntimeError):
        pass  # an older server does not understand the probe
    else:
        return True
    return False


async def _initialize(client: ClientSession) -> None:
    try:
        await client.initialize()
    except MCPError as error:
        # A slow server may have read the abandoned probe first, which settled the revision.
        if error.code != types.UNSUPPORTED_PROTOCOL_VERSION:
            raise
        await client.discover()
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
    return (is_unread or is_closed(error.error)) and not wire.cut_off_reason


async def _start_failure(error: MCPError, wire: Wire) -> errors.UpstreamError:
    failure = failure_of(error.error)
    if failure and not isinstance(failure, errors.UpstreamUnreadError):
        return failure
    if failure or is_closed(error.error):
        return errors.UpstreamUnavailableError(await wire.explain_end())
    return errors.UpstreamRefusedError(f"refused to start: {error}", rpc_code=error.code)


@dataclass(eq=False)
class Session:
    """Calls and listings on one connection, as raw JSON and with deadlines.

    Requests carry their protocol revision: before 2026-07-28 in a header, since then also in `_meta`, with the client
    and its capabilities. The SDK's session adds the same to its own typed requests.

    Source: MCP 2026-07-28, basic#_meta and basic/transports#standard-request-headers; 2025-06-18,
    basic/transports#protocol-version-header.
    """

    wire: Wire
    client: ClientSession
    diagnostics: Diagnostics
    notifications: Notifications
    questions: ServerRequestRouter
    ignored_probe: bool = False
    """Whether the server used the older handshake after it had not answered the probe in time."""
    is_retired: bool = False
    """Whether it takes no new calls. Calls in flight may still be answered."""
    was_refused: bool = False
    """Whether it was retired because the upstream refused its credentials or had lost the session."""
    has_answered: bool = False
    """Whether a call succeeded."""
    tools: tuple[RecordedTool, ...] = ()
    _header_maps: dict[str, dict[tuple[str, ...], str]] = field(default_factory=dict)
    """The arguments of each tool to repeat as headers (`x-mcp-header`)."""
    _calls: int = 0
    _last_call_ended: anyio.Event = field(default_factory=anyio.Event)
    _grace_until: float = -inf

    def __post_init__(self) -> None:
        self.version = self.client.protocol_version or ""
        self.is_modern = self.version in MODERN_PROTOCOL_VERSIONS
        """Whether it speaks 2026-07-28 or later, without a handshake."""
        self._meta: dict[str, Json] = {}
        if self.is_modern:
            info = client_info().model_dump(by_alias=True, mode="json", exclude_none=True)
            # Declares no capabilities: an upstream that asks anyway gets an error.
            self._meta = {types.CLIENT_INFO_META_KEY: info, types.CLIENT_CAPABILITIES_META_KEY: {}}
            self._meta[types.PROTOCOL_VERSION_META_KEY] = self.version

    @property
    def server(self) -> str:
        """The server's name and version; "" if it gives none."""
        info = self.client.server_info
        return f"{info.name} {info.version}".strip() if info else ""

    @property
    def instructions(self) -> str | None:
        return self.client.instructions

    def start_grace_period(self) -> None:
        """Begin the grace period: this session replaces a refused one."""
        self._grace_until = anyio.current_time() + REFUSAL_GRACE_SECONDS

    async def last_call(self) -> None:
        """Wait until no call is in flight. Each has a deadline."""
        while self._calls:
            self._last_call_ended = anyio.Event()
            await self._last_call_ended.wait()

    async def is_alive(self, seconds: float) -> bool:
        """Whether the upstream answers a cheap request within `seconds`, even with an error."""
        try:
            with anyio.fail_after(seconds):
                await self._request("server/discover" if self.is_modern else "ping")
        except TimeoutError:
            return False
        except MCPError as error:
            return failure_of(error.error) is None and not is_closed(error.error)
        return True

    async def call(
        self,
        tool: str,
        arguments: dict[str, Json],
        *,
        seconds: float,
        call_seconds: float,
        key: str | None = None,
        progress: ProgressHandler | None = None,
        request_handler: ServerRequestHandler | None = None,
    ) -> ToolResult:
        """Send one tools/call; see `Upstream.call`. On cancellation or after `seconds` the upstream is notified.

        Each progress gives it `call_seconds` again, so its request always has a token for progress. Runs in the
        caller's task, so no failure of the connection can cancel the caller.
        """
        meta: dict[str, Json] = {} if key is None else {IDEMPOTENCY_KEY_META: key}
        capabilities = self.questions.capabilities(request_handler)
        if self.is_modern and capabilities:  # before 2026-07-28 the handshake declares them
            meta[types.CLIENT_CAPABILITIES_META_KEY] = capabilities

        async def send(answers: dict[str, Json]) -> dict[str, Json]:
            params = {"name": tool, "arguments": arguments, **answers}
            return await self._send("tools/call", params, meta, active.owner, note)

        def note(done: float, total: float | None, message: str | None) -> None:
            latest = min(anyio.current_time() + call_seconds, end + (MOST_EXTENSION - 1) * call_seconds)
            scope.deadline = max(scope.deadline, latest)
            if progress is not None:
                progress(done, total, message)

        async with self._under_way(arguments, seconds, request_handler) as (active, scope):
            end = scope.deadline
            raw = await self.questions.rounds(send, active)
        _require_complete(raw)
        return read_result(raw, null_is_a_value=self.is_modern)

    async def ask(self, method: str, params: dict[str, Json], *, seconds: float) -> dict[str, Json]:
        """The raw result of any other request, in the caller's task. Raises UpstreamError."""
        # No call is in flight that could answer the upstream's requests.
        async with self._under_way(params, seconds, None):
            raw = await self._send(method, params, {}, None, None)
        _require_complete(raw)
        return self._page_of(raw)

    @asynccontextmanager
    async def _under_way(
        self, arguments: dict[str, Json], seconds: float, request_handler: ServerRequestHandler | None
    ) -> AsyncIterator[tuple[ActiveCall, anyio.CancelScope]]:
        """A context for a caller's request, with its deadline, which turns failures into an UpstreamError."""
        if self.wire.ended.is_set():
            raise errors.UpstreamUnavailableError(await self.wire.explain_end())
        if fault := unsendable(arguments):
            raise errors.UpstreamArgumentError(f"the arguments cannot be sent as JSON: {fault}")
        self._calls += 1
        began = anyio.current_time()
        try:
            with anyio.fail_after(seconds) as scope, self.questions.track(request_handler) as active:
                yield active, scope
            self.has_answered = True
        except TimeoutError:
            limit = f"call_seconds; with progress {MOST_EXTENSION} times as long at most"
            in_time = f"within {round(scope.deadline - began, 2):g} s ({limit})"
            if active.unanswered:
                asked = f"its request {active.unanswered} was not answered"
                raise errors.UpstreamUnansweredError(f"{asked} {in_time}") from None
            raise errors.UpstreamTimeoutError(f"no answer {in_time}") from None
        except MCPError as error:
            failure = await self._failure(error)
            # A failed repetition does not show whether the first round took effect.
            if active.has_begun:
                failure = errors.UpstreamIncompleteError(str(failure), data=failure.data)
            raise failure from error
        finally:
            self._calls -= 1
            if not self._calls:
                self._last_call_ended.set()

    async def _send(
        self,
        method: str,
        params: dict[str, Json],
        meta: dict[str, Json],
        owner: str | None,
        progress: ProgressHandler | None,
    ) -> dict[str, Json]:
        """Send one request, which the upstream may continue after its caller is gone."""
        options = CallOptions(headers=self._headers(method, params))
        meta = dict(meta)
        _TRACE_CONTEXT.inject(meta)
        params = self._with_meta(params, meta)
        # Closing the request ends it: nothing can arrive for it after its caller is gone.
        if self.wire.closes_requests:
            return await self.wire.send_raw_request(method, params, options, progress=progress)
        with self.questions.abandoned.sending(owner) as request_id:
            options["request_id"] = request_id
            return await self.wire.send_raw_request(method, params, options, progress=progress)

    async def _request(self, method: str, params: dict[str, Json] | None = None) -> dict[str, Json]:
        """Send one request of the connection itself."""
        options = CallOptions(headers=self._headers(method, {}))
        return await self.wire.send_raw_request(method, self._with_meta(params or {}, {}), options)

    def _with_meta(self, params: dict[str, Json], meta: dict[str, Json]) -> dict[str, Json]:
        whole = {**self._meta, **meta}
        return {**params, "_meta": whole} if whole else params

    def _headers(self, method: str, params: Mapping[str, Json]) -> dict[str, str]:
        headers = {inbound.MCP_PROTOCOL_VERSION_HEADER: self.version}
        if not self.is_modern:
            return headers
        headers[inbound.MCP_METHOD_HEADER] = method
        named = params.get(inbound.NAME_BEARING_METHODS.get(method, ""))
        if isinstance(named, str):
            headers[inbound.MCP_NAME_HEADER] = inbound.encode_header_value(named)
        if method == "tools/call" and (header_map := self._header_maps.get(str(named))):
            headers |= inbound.mcp_param_headers(header_map, params["arguments"])
        return headers

    async def _failure(self, error: MCPError) -> errors.UpstreamError:
        failure = failure_of(error.error)
        if failure is not None:
            self._retire_if_refused(failure)
            return failure
        if is_closed(error.error):
            if self.wire.cut_off_reason:
                return errors.UpstreamCutOffError(f"was cut off: it {self.wire.cut_off_reason}")
            return errors.UpstreamLostError(await self.wire.explain_end())
        data, message = error.error.data, error.message
        if not message.strip() and data is not None:
            message = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
        kind = errors.kind_of_refusal(error.code, message)
        return kind(message or f"error {error.code}", rpc_code=error.code, data=data)

    def _retire_if_refused(self, failure: errors.UpstreamError) -> None:
        """Make the next calls use a new connection, if that may help. Calls in flight end on this one."""
        is_lost = isinstance(failure, errors.UpstreamSessionError)
        is_refusal = is_lost or isinstance(
            failure, errors.UpstreamUnauthorizedError | errors.UpstreamDownError
        )
        if is_refusal and anyio.current_time() < self._grace_until and not (is_lost and self.has_answered):
            return  # a new connection did not help just now
        if is_refusal or isinstance(failure, errors.UpstreamUnavailableError):
            self.was_refused = self.was_refused or is_refusal
            self.is_retired = True
            # For an unread stdin, the exit status explains more than the failure.
            self.wire.give_up("" if isinstance(failure, errors.UpstreamUnreadError) else str(failure))

    async def list_tools(self) -> None:
        """Update `tools`; a server without tools/list has none. Raises UpstreamError."""
        try:
            tools = await read_listing(self._page, self.diagnostics)
        except errors.UpstreamRefusedError as error:
            if error.rpc_code != types.METHOD_NOT_FOUND:
                raise
            self.diagnostics.note("has no tools: it does not support tools/list")
            tools = ()
        self.take(tool for tool in tools if not self.is_modern or self._has_usable_headers(tool))

    def take(self, tools: Iterable[RecordedTool]) -> None:
        """Adopt those of these tools whose names and headers are usable."""
        self.tools = tuple(tools)
        with_headers = self.tools if self.is_modern else ()
        maps = {tool.name: inbound.x_mcp_header_map(tool.input_schema) for tool in with_headers}
        self._header_maps = {name: headers for name, headers in maps.items() if headers}

    async def _page(self, cursor: Json) -> dict[str, Json]:
        try:
            params = {} if cursor is None else {"cursor": cursor}
            return self._page_of(await self._request("tools/list", params))
        except MCPError as error:
            failure = await self._failure(error)
            if isinstance(failure, errors.UpstreamRefusedError):
                failure.args = (f"its answer to tools/list is an error: {failure}",)
            raise failure from error

    def _page_of(self, raw: dict[str, Json]) -> dict[str, Json]:
        """The page without an empty cursor, which ends a listing before 2026-07-28."""
        is_last = raw.get("nextCursor") == "" and not self.is_modern
        return {**raw, "nextCursor": None} if is_last else raw

    def _has_usable_headers(self, tool: RecordedTool) -> bool:
        """Whether the tool's `x-mcp-header` is valid; since 2026-07-28 tools with an invalid one are excluded."""
        problem = inbound.find_invalid_x_mcp_header(tool.input_schema)
        if problem is not None:
            self.diagnostics.note(f"tool {tool.name!r} was left out: invalid x-mcp-header ({problem})")
        return problem is None

    async def listen(self) -> None:
        """Subscribe to changes until cancelled."""
        if self.is_modern:
            await self.notifications.listen(self.client, self.wire)


@cache
def client_info() -> types.Implementation:
    """The portal's name and version for upstreams. Cached: looking up the version takes a millisecond."""
    try:
        return types.Implementation(name=_DISTRIBUTION, version=version(_DISTRIBUTION))
    except PackageNotFoundError:  # run from a checkout that was never installed
        return types.Implementation(name=_DISTRIBUTION, version="0")


def _require_complete(raw: dict[str, Json]) -> None:
    kind = raw.get("resultType", "complete")
    if kind == "input_required":
        raise errors.UpstreamRefusedError("it asks for input, which the portal cannot give here")
    if kind != "complete":
        raise errors.UpstreamAnswerError(f"its answer has an unknown resultType: {kind!r}")
