"""One negotiated connection to an upstream: calls and listings."""

import asyncio
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from math import inf
from typing import Final

import anyio
import mcp_types as types
from mcp.client import ClientSession
from mcp.shared import inbound
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from opentelemetry.context import get_current
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from manifests.json_value import Json
from upstreams import errors
from upstreams.health import Diagnostics
from upstreams.questions import ActiveCall, ServerRequestHandler, ServerRequestRouter
from upstreams.tools import RecordedTool, ToolResult, read_listing, read_result
from upstreams.transports.messages import failure_of
from upstreams.transports.wire import ProgressHandler, Wire, is_closed

MOST_EXTENSION: Final = 10
"""Each progress report restarts a call's time limit; in total the call has at most this many times the limit."""

REFUSAL_GRACE_SECONDS: Final = 10.0

IDEMPOTENCY_KEY_META: Final = "dev.mcp-code-portal/idempotency-key"
"""The `_meta` key of an idempotency key: the same text for every attempt of a call, and unique to the call.

Source: MCP 2026-07-28, basic#_meta: a vendor's key has a reversed domain before the slash.
"""

_TRACE_CONTEXT: Final = TraceContextTextMapPropagator()
"""Adds the current span to `_meta`, if there is one. Source: SEP-414."""


@dataclass(eq=False, slots=True)
class Call:
    """One request of a caller, for as many attempts as it takes: `tools/call`, or another method; see `Upstream`."""

    method: str
    params: dict[str, Json]
    seconds: float
    on_sent: Callable[[bool], None]
    key: str | None = None
    progress: ProgressHandler | None = None
    request_handler: ServerRequestHandler | None = None

    @property
    def tool(self) -> str:
        """The tool's name; "" for other methods."""
        return self.params["name"] if self.method == "tools/call" else ""


@dataclass
class Retirement:
    """Whether a session takes no new calls. Calls in flight may still be answered."""

    is_retired: bool = False
    was_refused: bool = False
    """Whether the upstream refused its credentials or had lost the session."""
    _grace_until: float = -inf

    def begin_grace(self, now: float) -> None:
        """For `REFUSAL_GRACE_SECONDS` a refusal does not retire the session, because it replaces a refused one."""
        self._grace_until = now + REFUSAL_GRACE_SECONDS

    def note(self, failure: errors.UpstreamError, now: float, *, has_answered: bool) -> bool:
        """Retire the session, if a new connection may help after this failure of a call. Returns whether it does."""
        is_lost = isinstance(failure, errors.UpstreamSessionError | errors.UpstreamForgottenError)
        is_refusal = is_lost or isinstance(
            failure, errors.UpstreamUnauthorizedError | errors.UpstreamDownError
        )
        if is_refusal and now < self._grace_until and not (is_lost and has_answered):
            return False  # a new connection did not help just now
        if not is_refusal and not isinstance(failure, errors.UpstreamUnavailableError):
            return False
        self.is_retired, self.was_refused = True, self.was_refused or is_refusal
        return True


class Session:
    """Calls and listings on one connection, as raw JSON and with deadlines."""

    def __init__(self, wire: Wire, client: ClientSession, questions: ServerRequestRouter) -> None:
        self.wire = wire
        self.client = client
        self.questions = questions
        self.revision = Revision(client.protocol_version or "")
        self.answers = 0
        """Calls with a readable answer."""
        self._loop = asyncio.get_running_loop()
        self.retirement = Retirement()
        self._call_timed_out = anyio.Event()

    async def watch(self, seconds: float) -> None:
        """Give the wire up if no answer comes for `seconds` after a call timed out. Runs until cancelled."""
        while True:
            await self._call_timed_out.wait()
            self._call_timed_out = anyio.Event()
            answers = self.answers
            # A single-threaded server may be too busy for a ping, and still answer calls.
            if not await self._is_alive(seconds) and self.answers == answers:
                self.wire.ending.give_up(f"did not answer for {seconds:g} s after a call without an answer")

    async def _is_alive(self, seconds: float) -> bool:
        try:
            with anyio.fail_after(seconds):
                await self._send("server/discover" if self.revision.is_modern else "ping", {})
        except TimeoutError:
            return False
        except MCPError as error:
            # A refusal is an answer, too. One that retires the session leaves the calls in flight alone.
            return not isinstance(await self._failure(error), errors.UpstreamLostError)
        return True

    async def call(self, call: Call, deadline: float) -> ToolResult:
        """Send one tools/call; see `Upstream.call`. On cancellation or after the deadline the upstream is notified.

        Each progress gives it `call.seconds` again, so its request always has a token for progress.
        """
        meta: dict[str, Json] = {} if call.key is None else {IDEMPOTENCY_KEY_META: call.key}
        is_modern = self.revision.is_modern  # before 2026-07-28 the handshake declares them
        if is_modern and (capabilities := self.questions.capabilities(call.request_handler)):
            meta[types.CLIENT_CAPABILITIES_META_KEY] = capabilities
        raw = await self._answered(call, deadline, meta)
        return read_result(raw, null_is_a_value=is_modern)

    async def ask(self, call: Call, deadline: float) -> dict[str, Json]:
        """The raw result of any other request. Raises UpstreamError."""
        return self.revision.page(await self._answered(call, deadline, {}))

    async def _answered(self, call: Call, deadline: float, meta: dict[str, Json]) -> dict[str, Json]:
        """The complete raw answer. Runs in the caller's task, so no failure of the connection can cancel the caller."""
        if self.wire.ending.ended.is_set():
            raise errors.UpstreamUnavailableError(await self.wire.ending.explain())
        began = self._loop.time()
        scope = anyio.CancelScope(deadline=deadline)
        active = self.questions.begin(call.request_handler)

        def note(done: float, total: float | None, message: str | None) -> None:
            most = deadline + (MOST_EXTENSION - 1) * call.seconds
            scope.deadline = max(scope.deadline, min(self._loop.time() + call.seconds, most))
            if call.progress is not None:
                call.progress(done, total, message)

        async def send(answers: dict[str, Json]) -> dict[str, Json]:
            return await self._send(call.method, {**call.params, **answers}, meta, [active.owner], note)

        try:
            with scope:
                # Only a tool's call reports progress, and may be answered with requests for input.
                if call.tool:
                    raw = await self.questions.rounds(send, active)
                else:
                    raw = await self._send(call.method, call.params, meta, [None])
                complete = _complete(raw)
                self.answers += 1
                return complete
        except anyio.get_cancelled_exc_class():
            self._give_up(active, is_late=scope.deadline - self._loop.time() <= call.seconds / 2)
            raise
        except MCPError as error:
            failure = await self._failure(error)
            # A failed repetition does not show whether the first round took effect.
            if active.has_begun:
                failure = errors.UpstreamIncompleteError(str(failure), data=failure.data)
            raise failure from error
        finally:
            self.questions.end(active)
        raise self._late(active, max(0.0, scope.deadline - began))

    def _give_up(self, active: ActiveCall, *, is_late: bool) -> None:
        # By default a script ends before its calls time out, and a server that hangs has to be noticed anyway.
        if is_late and not active.unanswered and not active.questions:
            self._call_timed_out.set()

    def _late(self, active: ActiveCall, seconds: float) -> errors.UpstreamError:
        limit = f"call_seconds; with progress {MOST_EXTENSION} times as long at most"
        in_time = f"within {round(seconds, 2):g} s ({limit})"
        if active.unanswered:
            return errors.UpstreamUnansweredError(
                f"its request {active.unanswered} was not answered {in_time}"
            )
        self._call_timed_out.set()
        return errors.UpstreamTimeoutError(f"no answer {in_time}")

    async def _send(
        self,
        method: str,
        params: dict[str, Json],
        meta: Mapping[str, Json] | None = None,
        owners: Collection[str | None] = (),
        progress: ProgressHandler | None = None,
    ) -> dict[str, Json]:
        """Send one request, by default of the connection itself. The upstream may continue others for their owners."""
        try:
            options = CallOptions(headers=self.revision.headers(method, params))
        except UnicodeEncodeError as error:  # before the transport can say so
            raise errors.UpstreamArgumentError(f"the arguments cannot be sent in a header: {error}") from None
        params = self.revision.params(params, meta or {}, is_traced=bool(owners))
        return await self.wire.send_raw_request(method, params, options, progress=progress, owners=owners)

    async def _failure(self, error: MCPError) -> errors.UpstreamError:
        failure, ending = failure_of(error.error), self.wire.ending
        if failure is not None:
            if self.retirement.note(failure, self._loop.time(), has_answered=self.answers > 0):
                # For an unread stdin, the exit status explains more than the failure.
                ending.give_up("" if isinstance(failure, errors.UpstreamUnreadError) else str(failure))
            return failure
        if is_closed(error.error):
            if ending.cut_off_reason:
                return errors.UpstreamCutOffError(f"was cut off: it {ending.cut_off_reason}")
            return errors.UpstreamLostError(await ending.explain())
        data, message = error.error.data, error.message
        if not message.strip() and data is not None:
            message = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
        kind = errors.kind_of_refusal(error.code, message)
        return kind(message or f"error {error.code}", rpc_code=error.code, data=data)

    async def list_tools(self, diagnostics: Diagnostics, *, is_whole: bool) -> tuple[RecordedTool, ...]:
        """The tools; a server without tools/list has none. Raises UpstreamError: as `pages` does."""
        try:
            tools = await read_listing(self._page, diagnostics, is_whole=is_whole)
        except errors.UpstreamRefusedError as error:
            if error.rpc_code != types.METHOD_NOT_FOUND:
                raise
            diagnostics.note("has no tools: it does not support tools/list")
            return ()
        faults = {tool.name: self.revision.fault_of(tool) for tool in tools}
        for name, fault in faults.items():
            if fault is not None:
                diagnostics.note(f"tool {name!r} was left out: invalid x-mcp-header ({fault})")
        return tuple(tool for tool in tools if faults[tool.name] is None)

    async def _page(self, cursor: Json) -> dict[str, Json]:
        try:
            params = {} if cursor is None else {"cursor": cursor}
            return self.revision.page(await self._send("tools/list", params))
        except MCPError as error:
            failure = await self._failure(error)
            if isinstance(failure, errors.UpstreamRefusedError):
                failure.args = (f"its answer to tools/list is an error: {failure}",)
            raise failure from error


class Revision:
    """Adds the headers and `_meta` of a revision to raw requests.

    Requests carry their protocol revision: before 2026-07-28 in a header, since then also in `_meta`, with the client
    and its capabilities. The SDK's session adds the same to its own typed requests.

    Source: MCP 2026-07-28, basic#_meta and basic/transports#standard-request-headers; 2025-06-18,
    basic/transports#protocol-version-header.
    """

    def __init__(self, version: str) -> None:
        self.version = version
        self.is_modern = version in MODERN_PROTOCOL_VERSIONS
        """Whether it is 2026-07-28 or later, without a handshake."""
        self._meta: dict[str, Json] = {}
        if self.is_modern:
            info = client_info().model_dump(by_alias=True, mode="json", exclude_none=True)
            # Declares no capabilities: an upstream that asks anyway gets an error.
            self._meta = {types.CLIENT_INFO_META_KEY: info, types.CLIENT_CAPABILITIES_META_KEY: {}}
            self._meta[types.PROTOCOL_VERSION_META_KEY] = version
        self._header_maps: dict[str, dict[tuple[str, ...], str]] = {}
        """The arguments of each tool to repeat as headers (`x-mcp-header`)."""

    def use(self, tools: Iterable[RecordedTool]) -> None:
        """Repeat the arguments of these tools as headers, where their schemas and the revision say so."""
        if self.is_modern:
            maps = {tool.name: inbound.x_mcp_header_map(tool.input_schema) for tool in tools}
            self._header_maps = {name: headers for name, headers in maps.items() if headers}

    def fault_of(self, tool: RecordedTool) -> str | None:
        """Why its `x-mcp-header` is invalid. Tools with such a one are excluded since 2026-07-28."""
        return inbound.find_invalid_x_mcp_header(tool.input_schema) if self.is_modern else None

    def params(
        self, params: dict[str, Json], meta: Mapping[str, Json], *, is_traced: bool = False
    ) -> dict[str, Json]:
        """The params of a request, with this `_meta`, the revision's own, and the current span if `is_traced`."""
        whole = {**self._meta, **meta}
        if is_traced and get_current():  # finding out that there is no span takes longer
            _TRACE_CONTEXT.inject(whole)
        return {**params, "_meta": whole} if whole else params

    def headers(self, method: str, params: Mapping[str, Json]) -> dict[str, str]:
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

    def page(self, raw: dict[str, Json]) -> dict[str, Json]:
        """The page without an empty cursor, which ends a listing before 2026-07-28."""
        is_last = raw.get("nextCursor") == "" and not self.is_modern
        return {**raw, "nextCursor": None} if is_last else raw


def _complete(raw: dict[str, Json]) -> dict[str, Json]:
    kind = raw.get("resultType", "complete")
    if kind == "input_required":
        raise errors.UpstreamRefusedError("it asks for input, which the portal cannot give here")
    if kind != "complete":
        raise errors.UpstreamAnswerError(f"its answer has an unknown resultType: {kind!r}")
    return raw


@cache
def client_info() -> types.Implementation:
    """The portal's name and version for upstreams. Cached: looking up the version takes a millisecond."""
    return types.Implementation(name="mcp-code-portal", version=version("mcp-code-portal"))
