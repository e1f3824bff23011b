"""One open, negotiated connection to an upstream."""

from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from typing import Final

import anyio
from mcp.client import ClientSession
from mcp.shared.dispatcher import CallOptions, ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import find_invalid_x_mcp_header
from mcp_types import LOG_LEVEL_META_KEY, METHOD_NOT_FOUND, PARSE_ERROR

from manifests.json_value import Json
from upstreams.changes import Changes
from upstreams.diagnostics import Diagnostics
from upstreams.envelope import IDEMPOTENCY_KEY_META, Envelope
from upstreams.errors import (
    UpstreamAnswerError,
    UpstreamArgumentError,
    UpstreamError,
    UpstreamHalfwayError,
    UpstreamLostError,
    UpstreamRefusedError,
    UpstreamTimeoutError,
    UpstreamUnansweredError,
    UpstreamUnavailableError,
    UpstreamUnreadError,
)
from upstreams.log_messages import LogHearer
from upstreams.questions import QuestionDesk, Questioned
from upstreams.recorded_tool import RecordedTool
from upstreams.refusals import (
    LOOK_SECONDS,
    LOOK_TIMES,
    YOUNG_SECONDS,
    Looks,
    is_refusal,
    of_call,
    was_renewed,
)
from upstreams.sent_json import unsendable
from upstreams.tool_listing import read_listing
from upstreams.tool_result import ToolResult, read_result
from upstreams.wire import Wire, is_closed, is_unreadable_stream

LOG_LEVEL_SECONDS: Final = 30.0
"""How long an upstream may take to set the level of what it logs; nobody waits for it."""

_UNNOTICED_SECONDS: Final = 0.05


class Connection:
    """Calls and listings on one connection; all of it raw JSON, each with a deadline."""

    def __init__(
        self,
        wire: Wire,
        session: ClientSession,
        envelope: Envelope,
        diagnostics: Diagnostics,
        changes: Changes,
        questions: QuestionDesk,
    ) -> None:
        self._wire = wire
        self._session = session
        self._envelope = envelope
        self._diagnostics = diagnostics
        self._changes = changes
        self._questions = questions
        self._calls = 0
        self._last_call_ended: anyio.Event | None = None
        self.is_retired = False
        """Whether it is too old for another call, while those that are under way may still be answered."""
        self.was_refused = False
        """Whether it was retired because the upstream did not take its session or its credentials."""
        self._young_until = -inf
        self._looks = Looks(self._takes_others)
        self._page_seconds = 0.0
        """What the slowest page of its listing took."""
        self.tools: tuple[RecordedTool, ...] = ()

    @property
    def server(self) -> str:
        """Name and version as the server gives them; empty when it does not."""
        info = self._session.server_info
        return f"{info.name} {info.version}".strip() if info else ""

    @property
    def is_modern(self) -> bool:
        """Whether it speaks 2026-07-28 or later, without a handshake."""
        return self._envelope.is_modern

    @property
    def instructions(self) -> str | None:
        return self._session.instructions

    @property
    def has_ended(self) -> bool:
        return self._wire.ended.is_set()

    def give_up(self, reason: str) -> None:
        """End it, with all its calls: whoever holds it should open a new one."""
        self._wire.give_up(reason)

    def retire(self, reason: str) -> None:
        """Have a new one opened for the next calls, and let those of this one go on: see `last_call`."""
        self.is_retired = True
        self._wire.give_up(reason)

    def replaces_refused(self) -> None:
        """The one before was retired as refused: this one has just shown that it is taken."""
        self._young_until = anyio.current_time() + YOUNG_SECONDS

    async def last_call(self) -> None:
        """Return when no call is under way; each has its deadline."""
        while self._calls:
            self._last_call_ended = self._last_call_ended or anyio.Event()
            await self._last_call_ended.wait()

    async def is_alive(self, seconds: float) -> bool:
        """Whether the upstream answers anything at all to a question that costs it nothing."""
        return await self._is_answered("server/discover" if self.is_modern else "ping", seconds)

    async def _is_answered(self, method: str, seconds: float) -> bool:
        try:
            with anyio.fail_after(seconds):
                await self._wire.send_raw_request(
                    method, self._envelope.params({}), self._envelope.options(method)
                )
        except TimeoutError:
            return False
        except MCPError as error:
            return self._wire.failures.claim(error) is None and not is_closed(error.error)
        return True

    async def call(
        self,
        tool: str,
        arguments: dict[str, Json],
        *,
        seconds: float,
        of_seconds: float,
        key: str | None = None,
        progress: ProgressFnT | None = None,
        log_hearer: LogHearer | None = None,
        questioned: Questioned | None = None,
    ) -> ToolResult:
        """One tools/call. Runs in the caller's task, so no failure of the connection can cancel it.

        `key` goes along in `_meta`, for an upstream that wants to know whether it saw this call before. `progress` and
        `log_hearer` hear what the upstream says of itself meanwhile, `questioned` is whom it may ask.

        When the caller is cancelled or `seconds` are over, which are what is left of `of_seconds`, the upstream is told
        (the SDK sends notifications/cancelled, or since 2026-07-28 on HTTP closes the request).

        Raises:
            UpstreamError: See `upstreams/errors.py`; which of them says what may have happened.
        """
        if self._wire.ended.is_set():
            raise UpstreamUnavailableError(await self._wire.explain_end())
        _require_sendable(arguments)
        meta: dict[str, Json] = {} if key is None else {IDEMPOTENCY_KEY_META: key}
        if log_hearer is not None and self.is_modern:
            meta[LOG_LEVEL_META_KEY] = log_hearer.level
        meta |= self._envelope.declared(self._questions.capabilities(questioned))
        options = self._envelope.call_options(tool, arguments, progress)
        owner = next((each.owner for each in (questioned, log_hearer) if each is not None), None)

        deadline = anyio.current_time() + seconds
        is_begun = False

        async def send(answers: dict[str, Json]) -> dict[str, Json]:
            params = self._envelope.params({"name": tool, "arguments": arguments, **answers}, meta)
            return await self._send("tools/call", params, options, owner)

        async def send_again(answers: dict[str, Json]) -> dict[str, Json]:
            nonlocal is_begun
            is_begun = True
            return await send(answers)

        try:
            with (
                anyio.fail_after(seconds) as time,
                self._under_way(),
                self._changes.log_hearers.hearing(log_hearer),
                self._questions.serving(questioned, time) as served,
            ):
                raw = await self._questions.rounds(await send({}), send_again, served)
        except TimeoutError:
            if served.unanswered:
                asked = f"what it asked ({served.unanswered}) was not answered"
                raise UpstreamUnansweredError(f"{asked} {in_time(seconds, of_seconds)}") from None
            raise UpstreamTimeoutError(f"no answer {in_time(seconds, of_seconds)}") from None
        except MCPError as error:
            failure = await self._failure(error, deadline)
            # That a later round was refused or not taken says nothing of what the first one did.
            raise (UpstreamHalfwayError(str(failure)) if is_begun else failure) from error
        return self._result(raw)

    async def ask(
        self, method: str, params: dict[str, Json], *, seconds: float, of_seconds: float
    ) -> dict[str, Json]:
        """Any other request, in its caller's task as `call` is; the raw result.

        Raises:
            UpstreamError: See `upstreams/errors.py`.
        """
        if self._wire.ended.is_set():
            raise UpstreamUnavailableError(await self._wire.explain_end())
        _require_sendable(params)
        options = self._envelope.options(method, params)
        deadline = anyio.current_time() + seconds
        try:
            with (
                anyio.fail_after(seconds) as time,
                self._under_way(),
                # What it says meanwhile may be about this, and this is nobody's who could be told or asked.
                self._changes.log_hearers.hearing(None),
                self._questions.serving(None, time),
            ):
                raw = await self._send(method, self._envelope.params(params), options, None)
        except TimeoutError:
            raise UpstreamTimeoutError(f"no answer {in_time(seconds, of_seconds)}") from None
        except MCPError as error:
            raise await self._failure(error, deadline) from error
        _require_complete(raw)
        return raw

    async def _send(
        self, method: str, params: dict[str, Json], options: CallOptions, owner: str | None
    ) -> dict[str, Json]:
        """One request, which the upstream may go on with although its caller is gone."""
        if self.is_modern and self._wire.closes_requests:
            return await self._wire.send_raw_request(method, params, options)
        with self._questions.given_up.sending(owner) as request_id:
            return await self._wire.send_raw_request(method, params, {**options, "request_id": request_id})

    @contextmanager
    def _under_way(self) -> Iterator[None]:
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1
            if not self._calls and self._last_call_ended is not None:
                self._last_call_ended.set()
                self._last_call_ended = None

    def _result(self, raw: dict[str, Json]) -> ToolResult:
        _require_complete(raw)
        return read_result(raw, null_is_a_value=self._envelope.is_modern)

    async def _failure(self, error: MCPError, deadline: float = inf) -> UpstreamError:
        if failure := self._wire.failures.claim(error):
            return await self._as_it_concerns(failure, deadline)
        if is_unreadable_stream(error.error):
            return UpstreamAnswerError("the answer comes in an event that is longer than the portal reads")
        if is_closed(error.error):
            return UpstreamLostError(await self._wire.explain_end())
        if error.code == PARSE_ERROR and error.message.startswith("Failed to parse"):
            return UpstreamAnswerError("the answer is no JSON-RPC response")
        return UpstreamRefusedError(error.message, rpc_code=error.code)

    async def _as_it_concerns(self, failure: UpstreamError, deadline: float) -> UpstreamError:
        """The same, of the call alone where another connection would not help; else this one is retired."""
        is_refused, now = is_refusal(failure), anyio.current_time()
        may_be_of_call = is_refused and (was_renewed(failure) or now < self._young_until)
        if may_be_of_call and await self._looks.takes_others(max(0.0, deadline - now)):
            return of_call(failure)
        if is_refused or isinstance(failure, UpstreamUnavailableError):
            # What this request could not use, a session or a credential, others that are under way have used already.
            # Why a server reads no more is told better once it is known how it ended.
            self.was_refused = self.was_refused or is_refused
            self.retire("" if isinstance(failure, UpstreamUnreadError) else str(failure))
        return failure

    async def _takes_others(self) -> bool:
        # A ping is answered by many without a look at the session or the credentials, the tools by fewer.
        return await self._is_answered("tools/list", max(LOOK_SECONDS, LOOK_TIMES * self._page_seconds))

    async def list_tools(self) -> None:
        """Read `tools` anew. A server that has no tools/list has no tools.

        Raises:
            UpstreamError: The listing could not be had; `tools` are as before.
        """
        try:
            tools = await read_listing(self._page, self._diagnostics)
        except UpstreamRefusedError as error:
            if error.rpc_code != METHOD_NOT_FOUND:
                raise
            self._diagnostics.note("offers no tools: it does not know tools/list")
            tools = ()
        self.tools = tuple(tool for tool in tools if self._has_usable_headers(tool))
        self._envelope.learn_headers(self.tools)

    async def _page(self, cursor: str | None) -> dict[str, Json]:
        params = self._envelope.params({} if cursor is None else {"cursor": cursor})
        began = anyio.current_time()
        try:
            return await self._wire.send_raw_request(
                "tools/list", params, self._envelope.options("tools/list")
            )
        except MCPError as error:
            raise await self._failure(error) from error
        finally:
            self._page_seconds = max(self._page_seconds, anyio.current_time() - began)

    def _has_usable_headers(self, tool: RecordedTool) -> bool:
        """2026-07-28 wants tools excluded whose `x-mcp-header` cannot be obeyed."""
        if not self._envelope.is_modern:
            return True
        problem = find_invalid_x_mcp_header(tool.input_schema)
        if problem is not None:
            self._diagnostics.note(f"tool {tool.name!r} was left out: invalid x-mcp-header ({problem})")
        return problem is None

    async def wait_for_change(self) -> None:
        """Return when the upstream says that its tools changed."""
        await self._changes.wait()

    async def wait_for_offerings(self) -> None:
        """Return when the upstream says that its resources or prompts changed."""
        await self._changes.wait_for_offerings()

    async def keep_log_level(self) -> None:
        """Where the era has one level for all calls of a connection, have it be what those who hear them want."""
        capabilities = self._session.server_capabilities
        if self.is_modern or not (capabilities and capabilities.logging):
            return
        method = "logging/setLevel"
        while True:
            level = await self._changes.log_hearers.more_wanted()
            try:
                with anyio.move_on_after(LOG_LEVEL_SECONDS):
                    await self._wire.send_raw_request(
                        method, self._envelope.params({"level": level}), self._envelope.options(method)
                    )
            except MCPError as error:
                self._diagnostics.note(f"does not set the level of what it logs: {error}")

    async def listen(self) -> None:
        """Ask the upstream to say so, as long as this is not cancelled."""
        if self.is_modern:
            await self._changes.listen(self._session, self._wire)

    async def wait_until_ended(self) -> str:
        """Why it ended."""
        await self._wire.ended.wait()
        return await self._wire.explain_end()


def in_time(left_seconds: float, seconds: float) -> str:
    """How long something had, when that was not enough."""
    whole = f"{round(seconds, 2):g} s (call_seconds)"
    if seconds - left_seconds < _UNNOTICED_SECONDS:
        return f"within {whole}"
    return f"within the {round(left_seconds, 2):g} s that were left of {whole}"


def _require_complete(raw: dict[str, Json]) -> None:
    kind = raw.get("resultType", "complete")
    if kind == "input_required":
        raise UpstreamRefusedError("it asks for more input, which the portal cannot give")
    if kind != "complete":
        raise UpstreamAnswerError(f"answered with an unknown type of result: {kind!r}")


def _require_sendable(arguments: dict[str, Json]) -> None:
    if fault := unsendable(arguments):
        raise UpstreamArgumentError(f"the arguments cannot be sent as JSON: {fault}")
