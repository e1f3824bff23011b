"""One open, negotiated connection to an upstream: how it is made, and calls and listings on it."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from math import inf
from typing import Final, TypeAlias

import anyio
from mcp.client import ClientSession
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
    find_invalid_x_mcp_header,
    mcp_param_headers,
    x_mcp_header_map,
)
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    LOG_LEVEL_META_KEY,
    METHOD_NOT_FOUND,
    PROTOCOL_VERSION_META_KEY,
    UNSUPPORTED_PROTOCOL_VERSION,
    Implementation,
    LoggingLevel,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from manifests.json_value import Json
from upstreams.errors import (
    UpstreamAnswerError,
    UpstreamArgumentError,
    UpstreamCutOffError,
    UpstreamDownError,
    UpstreamError,
    UpstreamIncompleteError,
    UpstreamLostError,
    UpstreamRefusedError,
    UpstreamTimeoutError,
    UpstreamUnansweredError,
    UpstreamUnauthorizedError,
    UpstreamUnavailableError,
    UpstreamUnreadError,
)
from upstreams.health import Diagnostics
from upstreams.notifications import LogHandler, Notifications, reaches
from upstreams.questions import ActiveCall, ServerRequestHandler, ServerRequestRouter
from upstreams.tools import RecordedTool, ToolResult, read_listing, read_result
from upstreams.transports.messages import failure_of, unsendable
from upstreams.transports.wire import ProgressHandler, Wire, is_closed, with_stderr

LOG_LEVEL_SECONDS: Final = 2.0
"""How long the first call of a client waits until the upstream has set the level of what it logs."""

REFUSAL_GRACE_SECONDS: Final = 10.0
"""A connection that took the place of one that was refused is not replaced for a refusal before it is so old."""

IDEMPOTENCY_KEY_META: Final = "dev.mcp-code-portal/idempotency-key"
"""In `_meta` of every call of a script: text that is the same when the same call is sent again, and of no other call.

Source: MCP 2026-07-28, basic#_meta: a name of our own has a reversed domain before the slash.
"""

_DISTRIBUTION: Final = "mcp-code-portal"

WireOpener: TypeAlias = Callable[[Diagnostics], AbstractAsyncContextManager[Wire]]
"""Reaches one upstream over its transport; raises UpstreamError when it cannot."""


class HandshakeFirstError(UpstreamUnavailableError):
    """The server ended when asked for its revision; servers like that want `initialize` before all else."""


@asynccontextmanager
async def open_session(
    open_wire: WireOpener,
    diagnostics: Diagnostics,
    questions: ServerRequestRouter,
    *,
    seconds: float,
    handshake_first: bool,
) -> AsyncIterator["Session"]:
    """Connect, negotiate the era and list the tools, all within `seconds`.

    Raises UpstreamError: it cannot be reached, or does not speak MCP; the message says which.
    """
    notifications = Notifications(diagnostics, questions.handle_log)
    async with open_wire(diagnostics) as wire:
        wire.on_notification, wire.on_answer = notifications.handle, questions.abandoned.answered
        async with ClientSession(
            dispatcher=wire,
            read_timeout_seconds=seconds + 1,
            message_handler=notifications,
            client_info=client_info(),
            **questions.callbacks(),
        ) as client:
            try:
                with anyio.fail_after(seconds):
                    await _negotiate(client, wire, handshake_first)
                    session = Session(wire, client, diagnostics, notifications, questions)
                    await session.list_tools()
            except TimeoutError:
                reason = f"was not ready within {seconds:g} s"
                raise UpstreamUnavailableError(with_stderr(reason, wire.last_stderr_line())) from None
            except MCPError as error:
                raise await _start_failure(error, wire) from error
            except (UpstreamLostError, UpstreamTimeoutError, UpstreamUnreadError) as error:
                raise UpstreamUnavailableError(await wire.explain_end()) from error
            yield session


async def _negotiate(client: ClientSession, wire: Wire, handshake_first: bool) -> None:
    """Settle the era: the 2026-07-28 probe, then the older handshake; what the SDK's `auto` mode does, which
    can only be had together with a dispatcher of its own."""
    if not handshake_first:
        try:
            await client.discover()
            return
        except MCPError as error:
            failure = failure_of(error.error)
            is_unread = isinstance(failure, UpstreamUnreadError)
            if isinstance(failure, UpstreamUnavailableError) and not is_unread:
                raise failure from error
            if (is_unread or is_closed(error.error)) and not wire.cut_off_reason:
                raise HandshakeFirstError(await wire.explain_end()) from error
        except (ValidationError, RuntimeError):
            pass  # no sensible answer to the probe is what an older server gives
    try:
        await client.initialize()
    except MCPError as error:
        # A slow starter may have read the probe, given up by then, first: that has settled the era.
        if error.code != UNSUPPORTED_PROTOCOL_VERSION:
            raise
        await client.discover()
    except (ValidationError, RuntimeError) as error:
        problem = str(error).splitlines()[0]
        raise UpstreamAnswerError(f"does not answer initialize as MCP says: {problem}") from error


async def _start_failure(error: MCPError, wire: Wire) -> UpstreamError:
    failure = failure_of(error.error)
    if failure and not isinstance(failure, UpstreamUnreadError):
        return failure
    if failure or is_closed(error.error):
        return UpstreamUnavailableError(await wire.explain_end())
    return UpstreamRefusedError(f"refused to start: {error}", rpc_code=error.code)


@dataclass(eq=False)
class Session:
    """Calls and listings on one connection; all of it raw JSON, each with a deadline.

    Requests say which revision they are of: before 2026-07-28 in a header, since then in `_meta`, too, with the client
    and what it is capable of. The SDK's session adds the same to requests that it types itself.

    Source: MCP 2026-07-28, basic#_meta and basic/transports#standard-request-headers; 2025-06-18,
    basic/transports#protocol-version-header.
    """

    wire: Wire
    client: ClientSession
    diagnostics: Diagnostics
    notifications: Notifications
    questions: ServerRequestRouter
    is_retired: bool = False
    """Whether it is too old for another call, while those that are under way may still be answered."""
    was_refused: bool = False
    """Whether it was retired because the upstream did not take its credentials."""
    tools: tuple[RecordedTool, ...] = ()
    _header_maps: dict[str, dict[tuple[str, ...], str]] = field(default_factory=dict)
    """Which arguments each tool wants repeated as headers (`x-mcp-header`)."""
    _calls: int = 0
    _last_call_ended: anyio.Event = field(default_factory=anyio.Event)
    _grace_until: float = -inf
    _log_level: LoggingLevel | None = None

    def __post_init__(self) -> None:
        self._version = self.client.protocol_version or ""
        self.is_modern = self._version in MODERN_PROTOCOL_VERSIONS
        """Whether it speaks 2026-07-28 or later, without a handshake."""
        self._meta: dict[str, Json] = {}
        if self.is_modern:
            info = client_info().model_dump(by_alias=True, mode="json", exclude_none=True)
            # An upstream that asks anyway gets an error.
            self._meta = {CLIENT_INFO_META_KEY: info, CLIENT_CAPABILITIES_META_KEY: {}}
            self._meta[PROTOCOL_VERSION_META_KEY] = self._version

    @property
    def server(self) -> str:
        """Name and version as the server gives them; empty when it does not."""
        info = self.client.server_info
        return f"{info.name} {info.version}".strip() if info else ""

    @property
    def instructions(self) -> str | None:
        return self.client.instructions

    def start_grace_period(self) -> None:
        """The one before was retired because it was refused."""
        self._grace_until = anyio.current_time() + REFUSAL_GRACE_SECONDS

    async def last_call(self) -> None:
        """Return when no call is under way; each has its deadline."""
        while self._calls:
            self._last_call_ended = anyio.Event()
            await self._last_call_ended.wait()

    async def is_alive(self, seconds: float) -> bool:
        """Whether the upstream answers anything at all to a question that costs it nothing."""
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
        key: str | None = None,
        progress: ProgressHandler | None = None,
        log_handler: LogHandler | None = None,
        request_handler: ServerRequestHandler | None = None,
    ) -> ToolResult:
        """One tools/call; see `Upstream.call`. If the caller is cancelled or `seconds` are over, the upstream is told.

        Runs in the caller's task, so no failure of the connection can cancel it.
        """
        meta: dict[str, Json] = {} if key is None else {IDEMPOTENCY_KEY_META: key}
        capabilities = self.questions.capabilities(request_handler)
        if self.is_modern and capabilities:  # before 2026-07-28 the handshake said what may be asked
            meta[CLIENT_CAPABILITIES_META_KEY] = capabilities
        if self.is_modern and log_handler is not None:
            meta[LOG_LEVEL_META_KEY] = log_handler.level

        async def send(answers: dict[str, Json]) -> dict[str, Json]:
            params = {"name": tool, "arguments": arguments, **answers}
            return await self._send("tools/call", params, meta, active.owner, progress)

        async with self._under_way(arguments, seconds, log_handler, request_handler) as active:
            if log_handler is not None:
                await self._lower_log_level(log_handler.level)
            raw = await self.questions.rounds(send, active)
        _require_complete(raw)
        return read_result(raw, null_is_a_value=self.is_modern)

    async def ask(self, method: str, params: dict[str, Json], *, seconds: float) -> dict[str, Json]:
        """The raw result of any other request, in its caller's task as `call` is. Raises UpstreamError."""
        # What it says meanwhile may be about this, and this is nobody's who could be told or asked.
        async with self._under_way(params, seconds, None, None):
            raw = await self._send(method, params, {}, None, None)
        _require_complete(raw)
        return raw

    @asynccontextmanager
    async def _under_way(
        self,
        arguments: dict[str, Json],
        seconds: float,
        log_handler: LogHandler | None,
        request_handler: ServerRequestHandler | None,
    ) -> AsyncIterator[ActiveCall]:
        """Around a request of a caller, whose failures become an UpstreamError."""
        if self.wire.ended.is_set():
            raise UpstreamUnavailableError(await self.wire.explain_end())
        if fault := unsendable(arguments):
            raise UpstreamArgumentError(f"the arguments cannot be sent as JSON: {fault}")
        self._calls += 1
        try:
            with (
                anyio.fail_after(seconds),
                self.questions.track(request_handler, log_handler) as active,
            ):
                yield active
        except TimeoutError:
            in_time = f"within {round(seconds, 2):g} s (call_seconds)"
            if active.unanswered:
                asked = f"what it asked ({active.unanswered}) was not answered"
                raise UpstreamUnansweredError(f"{asked} {in_time}") from None
            raise UpstreamTimeoutError(f"no answer {in_time}") from None
        except MCPError as error:
            failure = await self._failure(error)
            # That a later round was refused or not taken says nothing of what the first one did.
            raise (UpstreamIncompleteError(str(failure)) if active.has_begun else failure) from error
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
        """One request, which the upstream may go on with although its caller is gone."""
        options = CallOptions(headers=self._headers(method, params))
        params = self._with_meta(params, meta)
        if self.wire.closes_requests:
            return await self.wire.send_raw_request(method, params, options, progress=progress)
        with self.questions.abandoned.sending(owner) as request_id:
            options["request_id"] = request_id
            return await self.wire.send_raw_request(method, params, options, progress=progress)

    async def _request(self, method: str, params: dict[str, Json] | None = None) -> dict[str, Json]:
        """One request of the connection itself."""
        options = CallOptions(headers=self._headers(method, {}))
        return await self.wire.send_raw_request(method, self._with_meta(params or {}, {}), options)

    def _with_meta(self, params: dict[str, Json], meta: dict[str, Json]) -> dict[str, Json]:
        whole = {**self._meta, **meta}
        return {**params, "_meta": whole} if whole else params

    def _headers(self, method: str, params: Mapping[str, Json]) -> dict[str, str]:
        headers = {MCP_PROTOCOL_VERSION_HEADER: self._version}
        if not self.is_modern:
            return headers
        headers[MCP_METHOD_HEADER] = method
        named = params.get(NAME_BEARING_METHODS.get(method, ""))
        if isinstance(named, str):
            headers[MCP_NAME_HEADER] = encode_header_value(named)
        if method == "tools/call" and (header_map := self._header_maps.get(str(named))):
            headers |= mcp_param_headers(header_map, params["arguments"])
        return headers

    async def _failure(self, error: MCPError) -> UpstreamError:
        failure = failure_of(error.error)
        if failure is not None:
            self._retire_if_refused(failure)
            return failure
        if is_closed(error.error):
            if self.wire.cut_off_reason:
                return UpstreamCutOffError(f"was cut off: it {self.wire.cut_off_reason}")
            return UpstreamLostError(await self.wire.explain_end())
        return UpstreamRefusedError(error.message, rpc_code=error.code)

    def _retire_if_refused(self, failure: UpstreamError) -> None:
        """Have a new connection opened for the next calls where that may help; calls under way end on this one."""
        is_refusal = isinstance(failure, UpstreamUnauthorizedError | UpstreamDownError)
        if is_refusal and anyio.current_time() < self._grace_until:
            return  # a new connection did not help just now
        if is_refusal or isinstance(failure, UpstreamUnavailableError):
            self.was_refused = self.was_refused or is_refusal
            self.is_retired = True
            # Why a server reads no more is told better once it is known how it ended.
            self.wire.give_up("" if isinstance(failure, UpstreamUnreadError) else str(failure))

    async def list_tools(self) -> None:
        """Read `tools` anew; a server without tools/list has none. Raises UpstreamError: they could not be had."""
        try:
            tools = await read_listing(self._page, self.diagnostics)
        except UpstreamRefusedError as error:
            if error.rpc_code != METHOD_NOT_FOUND:
                raise
            self.diagnostics.note("offers no tools: it does not know tools/list")
            tools = ()
        self.tools = tuple(tool for tool in tools if not self.is_modern or self._has_usable_headers(tool))
        maps = (
            {tool.name: x_mcp_header_map(tool.input_schema) for tool in self.tools} if self.is_modern else {}
        )
        self._header_maps = {name: headers for name, headers in maps.items() if headers}

    async def _page(self, cursor: str | None) -> dict[str, Json]:
        try:
            return await self._request("tools/list", {} if cursor is None else {"cursor": cursor})
        except MCPError as error:
            raise await self._failure(error) from error

    def _has_usable_headers(self, tool: RecordedTool) -> bool:
        """2026-07-28 wants tools excluded whose `x-mcp-header` cannot be obeyed."""
        problem = find_invalid_x_mcp_header(tool.input_schema)
        if problem is not None:
            self.diagnostics.note(f"tool {tool.name!r} was left out: invalid x-mcp-header ({problem})")
        return problem is None

    async def _lower_log_level(self, wanted: LoggingLevel) -> None:
        """Where the era has one level for all calls of a connection, have it be the least severe that was wanted."""
        capabilities = self.client.server_capabilities
        is_low = self._log_level is not None and reaches(wanted, self._log_level)
        if self.is_modern or is_low or not (capabilities and capabilities.logging):
            return
        self._log_level = wanted
        try:
            with anyio.move_on_after(LOG_LEVEL_SECONDS):
                await self._request("logging/setLevel", {"level": wanted})
        except MCPError as error:
            self.diagnostics.note(f"does not set the level of what it logs: {error}")

    async def listen(self) -> None:
        """Ask the upstream to tell of changes, as long as this is not cancelled."""
        if self.is_modern:
            await self.notifications.listen(self.client, self.wire)


@cache
def client_info() -> Implementation:
    """How the portal introduces itself to upstreams. Looking up its own version takes a millisecond."""
    try:
        return Implementation(name=_DISTRIBUTION, version=version(_DISTRIBUTION))
    except PackageNotFoundError:  # run from a checkout that was never installed
        return Implementation(name=_DISTRIBUTION, version="0")


def _require_complete(raw: dict[str, Json]) -> None:
    kind = raw.get("resultType", "complete")
    if kind == "input_required":
        raise UpstreamRefusedError("it asks for more input, which the portal cannot give")
    if kind != "complete":
        raise UpstreamAnswerError(f"answered with an unknown type of result: {kind!r}")
