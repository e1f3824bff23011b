"""One upstream: its state, its tools, its resources and prompts, and calls with retries."""

import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from math import inf
from typing import Any, Final, Literal, TypeAlias, TypeVar

import anyio
import structlog
from mcp_types import METHOD_NOT_FOUND, Prompt, Resource, ResourceTemplate
from pydantic import BaseModel, ValidationError

from manifests.json_value import Json
from manifests.names import ToolNames, function_names, identifier, namespace_of
from manifests.portal_manifest import StdioUpstream, UpstreamSection, may_repeat
from upstreams import errors
from upstreams.connector import Connector, WireOpener
from upstreams.health import RECONNECT_WAIT_SECONDS, CircuitBreaker, UpstreamState
from upstreams.questions import ServerRequestHandler
from upstreams.redaction import Redaction
from upstreams.session import Call, Session
from upstreams.supervisor import Availability, Supervisor
from upstreams.tools import (
    MAX_LISTED,
    ListedUpstream,
    ListingStore,
    PageReader,
    RecordedTool,
    ToolResult,
    pages,
)
from upstreams.transports.wire import ProgressHandler

T = TypeVar("T")

log = structlog.get_logger()

Listed: TypeAlias = Literal["resources", "resourceTemplates", "prompts"]

MAX_IDENTIFIER_CHARACTERS: Final = 8_192
"""Limit of a URI or a name. Rows with a longer one are left out."""

_OFFERED: Final[dict[Listed, tuple[str, str, type[BaseModel]]]] = {
    "resources": ("resources/list", "uri", Resource),
    "resourceTemplates": ("resources/templates/list", "uriTemplate", ResourceTemplate),
    "prompts": ("prompts/list", "name", Prompt),
}
"""The method of each listing; of its rows the identifier's field, and the model."""
_FIELDS: Final = ("uri", "uriTemplate", "name", "title", "description", "mimeType", "size", "arguments")
"""Other fields, such as `icons`, are not even validated: they may have a million items."""

MAX_ARGUMENTS: Final = 20_000
"""Arguments of all prompts in one listing. The prompt that exceeds it and those after it are left out."""


RequestObserver: TypeAlias = Callable[
    ["Upstream", Session, str, str, Callable[[], Awaitable[Any]]], Awaitable[Any]
]
"""Sends a request by its last argument, and observes it: the upstream, its session, the method, and the tool or ""."""


class Upstream(ListedUpstream):
    """One MCP server behind the portal. `supervisor` keeps its connection open; calls run in their callers' tasks.

    `on_change` is called with the upstream after its state or its tools changed, `on_offering_change` when its
    resources or prompts may have. `listings` has the listing that an earlier portal stored; a lazy upstream starts
    with it. It connects within `connecting`. After `idle_stop_seconds` without a call it is
    disconnected; None for never. `listed_by` is another connection to the same server, whose tools are used instead of
    an own listing. `observe`, if set, sends and observes each request.
    """

    def __init__(
        self,
        name: str,
        spec: UpstreamSection,
        open_wire: WireOpener,
        redact: Redaction,
        on_change: Callable[["Upstream"], None],
        listings: ListingStore | None = None,
        connecting: AbstractAsyncContextManager[object] | None = None,
        on_offering_change: Callable[[], None] = lambda: None,
        idle_stop_seconds: float | None = None,
        listed_by: "Upstream | None" = None,
        observe: RequestObserver | None = None,
    ) -> None:
        super().__init__(name)
        self.spec = spec
        self.redact = redact
        self.availability = Availability(lambda: on_change(self))
        slot = connecting or nullcontext()
        self.connector = Connector(self, spec, open_wire, redact, slot, listings, listed_by)
        self._circuit = CircuitBreaker(self.availability.now)
        if isinstance(spec, StdioUpstream):
            idle_stop_seconds = spec.idle_stop_seconds
        self.supervisor = Supervisor(
            self.connector, self.availability, self._circuit, on_offering_change, idle_stop_seconds
        )
        self._observe = observe
        self._named_tools: Sequence[RecordedTool] = ()
        self._repeatable: dict[str, bool] = {}
        """What `may_repeat` said about those tools."""

    async def started(self) -> None:
        while self.state.status == "starting":
            await self.availability.changed()

    @property
    def state(self) -> UpstreamState:
        return self.availability.lifecycle.state

    @property
    def retry_status(self) -> str:
        return self.availability.lifecycle.retry_status

    @property
    def diagnostics(self) -> tuple[str, ...]:
        """Remarks about the current connection: malformed tools, noise on stdout."""
        return (*self.connector.diagnostics.remarks,)

    def stderr_tail(self) -> str:
        """The last lines of a stdio server's stderr, at most 50; "" for HTTP."""
        return "\n".join(self.connector.diagnostics.stderr())

    def remove(self, reason: str) -> None:
        """Refuse all further calls. The connection ends after those in flight, which have their own deadlines."""
        self.availability.stop(reason)

    async def call(
        self,
        tool: str,
        arguments: dict[str, Json],
        *,
        seconds: float,
        key: str | None = None,
        progress: ProgressHandler | None = None,
        request_handler: ServerRequestHandler | None = None,
        on_sent: Callable[[bool], None] = lambda was_seen: None,
    ) -> ToolResult:
        """Call a tool. Waits for a starting upstream and for the answer, together at most `seconds`.

        Progress extends that (`MOST_EXTENSION`). A failed call is retried if that is safe and may help. Each attempt
        carries the idempotency `key` in `_meta`.
        `progress` and `request_handler` serve the upstream during the call. `on_sent(was_seen)` runs before every
        send; `was_seen` says whether the upstream may have seen the call already. It may raise an
        UpstreamWithheldError to prevent the send.
        Raises UpstreamError: the message is masked; the class says what may have happened.
        """
        params = {"name": tool, "arguments": arguments}
        call = Call("tools/call", params, seconds, on_sent, key, progress, request_handler)
        return await self._deliver(call, Session.call)

    async def offered(
        self, listed: Listed, *, seconds: float, on_sent: Callable[[bool], None]
    ) -> list[dict[str, Json]]:
        """List resources or prompts within `seconds`; see `read_offered`. Raises UpstreamError: as `call` does."""
        deadline = self.availability.now() + seconds

        async def page(cursor: Json) -> dict[str, Json]:
            params = {} if cursor is None else {"cursor": cursor}
            left_seconds = deadline - self.availability.now()
            if cursor is not None and left_seconds <= 0:
                raise errors.UpstreamTimeoutError(f"its listing did not end within {seconds:g} s")
            return await self.ask(_OFFERED[listed][0], params, seconds=left_seconds, on_sent=on_sent)

        return await read_offered(listed, page, self.connector.diagnostics.note)

    async def ask(
        self, method: str, params: dict[str, Json], *, seconds: float, on_sent: Callable[[bool], None]
    ) -> dict[str, Json]:
        """The raw result of any other request, retried if it was not sent. Raises UpstreamError: as `call` does."""
        return await self._deliver(Call(method, params, seconds, on_sent), Session.ask)

    async def _deliver(self, call: Call, send: Callable[[Session, Call, float], Awaitable[T]]) -> T:
        deadline = self.availability.now() + call.seconds

        def is_safe() -> bool:
            return bool(call.tool) and self.may_repeat(call.tool)

        async def attempt(failures: Sequence[errors.UpstreamError]) -> T:
            outcomes = {each.outcome for each in failures}
            was_lost = any(isinstance(each, errors.UpstreamLostError) for each in failures)
            wait_until = self.availability.now() + RECONNECT_WAIT_SECONDS if was_lost else -inf
            taken_from, session = await self.availability.take(deadline, wait_until)
            try:
                # The annotations may have changed since the failure.
                if "unknown" in outcomes and not is_safe():
                    raise errors.UpstreamWithheldError("the tool no longer declares that it is safe to retry")
                with self._circuit.guard():
                    call.on_sent(bool(outcomes - {"not_started"}))
                    if self._observe is None:
                        return await send(session, call, deadline)
                    sending = partial(send, session, call, deadline)
                    result: T = await self._observe(self, session, call.method, call.tool, sending)
                    return result
            finally:
                taken_from.release()

        try:
            return await with_retries(
                attempt, attempts=self.spec.retries.attempts, is_safe=is_safe, deadline=deadline
            )
        except errors.UpstreamError as error:
            if error.remedy:
                remedy = self.redact.start(error.remedy)
                log.warning("call_failed", upstream=self.name, code=error.code, remedy=remedy)
            # The same error with the upstream's name, masked.
            error.args = (f"upstream {self.name!r}: {self.redact.start(str(error))}",)
            error.data = self.redact.in_value(error.data)
            raise
        finally:
            self._follow_circuit()

    def _follow_circuit(self) -> None:
        if self.availability.session is not None and self._circuit.reason:
            self.availability.note("circuit_opened", self.redact.start(self._circuit.reason))
        elif self.availability.session is not None and self.state.status == "failing":
            self.availability.note("served")

    def may_repeat(self, tool: str) -> bool:
        """Whether a call of the tool may be made twice, by its current annotations and the operator."""
        tools = (self.connector.listed_by or self).tools
        if tools is not self._named_tools:
            self._named_tools, self._repeatable = tools, {}
        if tool not in self._repeatable:  # naming a thousand functions takes a millisecond
            annotations = {each.name: each.annotations for each in tools}
            function = function_names([*annotations]).get(tool) or identifier(tool)
            names = ToolNames(self.name, namespace_of(self.name), tool, function)
            self._repeatable[tool] = may_repeat(self.spec.retries, names, annotations.get(tool, {}))
        return self._repeatable[tool]


async def read_offered(
    listed: Listed, read_page: PageReader, note: Callable[[str], None] = lambda text: None
) -> list[dict[str, Json]]:
    """All valid rows: `uri`, `uriTemplate`, `name`, `title`, `description`, `mimeType`, `size` and `arguments`.

    A server that does not support the method has no rows. Raises UpstreamError: the first page failed. A later failure
    only ends the listing.
    """
    rows: dict[str, dict[str, Json]] = {}
    method, arguments = _OFFERED[listed][0], 0
    try:
        async for page in pages(read_page, lambda text: note(f"{method}: {text}")):
            found = page.get(listed)
            for raw in found[:MAX_LISTED] if isinstance(found, list) else []:
                arguments += _count_arguments(raw)
                if arguments > MAX_ARGUMENTS:
                    note(f"{method}: cut, because its rows have more than {MAX_ARGUMENTS} arguments")
                    return [*rows.values()]
                identifier, row = _row(listed, raw)
                if identifier and len(rows) < MAX_LISTED:
                    rows.setdefault(identifier, row)
    except errors.UpstreamRefusedError as error:
        if error.rpc_code != METHOD_NOT_FOUND:
            raise
    return [*rows.values()]


def _count_arguments(raw: Json) -> int:
    arguments = raw.get("arguments") if isinstance(raw, dict) else None
    return len(arguments) if isinstance(arguments, list) else 0


def _row(listed: Listed, raw: Json) -> tuple[str, dict[str, Json]]:
    """The identifier of a row, "" if it is invalid, and its known fields."""
    _, key, kind = _OFFERED[listed]
    try:
        known = {field: raw[field] for field in _FIELDS if field in raw}
        read = kind.model_validate({"name": raw[key], **known}, by_name=False)
    except (ValidationError, TypeError, KeyError, IndexError):
        return "", {}
    row: dict[str, Json] = read.model_dump(mode="json", by_alias=True, exclude_none=True)
    if listed == "prompts":
        row["arguments"] = [{"required": False, **each} for each in row.get("arguments", [])]
    return (row[key] if len(row[key]) <= MAX_IDENTIFIER_CHARACTERS else ""), row


_FIRST_WAIT_SECONDS: Final = 0.1
_LONGEST_WAIT_SECONDS: Final = 2.0


async def with_retries(
    attempt: Callable[[Sequence[errors.UpstreamError]], Awaitable[T]],
    *,
    attempts: int,
    is_safe: Callable[[], bool],
    deadline: float,
) -> T:
    """Return the first success of at most `attempts`; each gets the failures so far.

    A call that may have acted is retried only if `is_safe`. A call that certainly did nothing may always be retried.

    Raises:
        UpstreamError: The failure of the last attempt. If that certainly did nothing, an earlier failure that may have
            acted takes precedence; if it was withheld, so does an earlier answer of the upstream.
    """
    failures: list[errors.UpstreamError] = []
    may_repeat = False
    while True:
        try:
            return await attempt(failures)
        except errors.UpstreamError as error:
            may_repeat = may_repeat if failures else is_safe()
            failures.append(error)
            wait_seconds = _wait_seconds(error, len(failures))
            is_in_time = anyio.current_time() + wait_seconds < deadline
            if not is_in_time or not _should_retry(failures, may_repeat, attempts):
                raise _most_informative(failures) from None
        await anyio.sleep(wait_seconds)


def _should_retry(failures: Sequence[errors.UpstreamError], is_safe: bool, attempts: int) -> bool:
    last = failures[-1]
    if last.repetition == "if_safe" or isinstance(last, errors.UpstreamBusyError):
        return (is_safe or isinstance(last, errors.UpstreamBusyError)) and len(failures) < attempts
    # Once more on the next connection if it was not sent, and with the next credentials if it was unauthorized.
    return last.repetition == "always" and sum(type(each) is type(last) for each in failures) == 1


def _most_informative(failures: Sequence[errors.UpstreamError]) -> errors.UpstreamError:
    """The last failure, or an earlier one that says more about what may have happened."""
    last = failures[-1]
    worst = ("unknown", "failed") if isinstance(last, errors.UpstreamWithheldError) else ("unknown",)
    return next((error for error in reversed(failures) if error.outcome in worst), last)


def _wait_seconds(error: errors.UpstreamError, attempts: int) -> float:
    if error.after_seconds is not None:
        return error.after_seconds
    if isinstance(error, errors.UpstreamUnavailableError | errors.UpstreamUnauthorizedError):
        return 0.0
    longest = min(_LONGEST_WAIT_SECONDS, _FIRST_WAIT_SECONDS * 2.0**attempts)
    return random.uniform(longest / 2, longest)
