"""One upstream as the portal sees it: its state, its tools, and calls to it."""

from collections.abc import Awaitable, Callable
from functools import partial
from math import inf
from typing import TypeVar

import anyio

from manifests.json_value import Json
from manifests.names import ToolNames, function_names, identifier, namespace_of
from manifests.upstream_sections import UpstreamSection, may_repeat
from upstreams.circuit import CircuitBreaker
from upstreams.errors import (
    UpstreamError,
    UpstreamLostError,
    UpstreamTimeoutError,
    UpstreamWithheldError,
)
from upstreams.notifications import LogHearer
from upstreams.offerings import LISTING_METHODS, Listed, read_offered
from upstreams.questions import Questioned
from upstreams.redaction import Redaction
from upstreams.retries import with_retries
from upstreams.session import Session, WireOpener
from upstreams.supervisor import PATIENCE_SECONDS, StartTurns, Supervisor
from upstreams.tool_listing import ListingStore
from upstreams.tool_result import ToolResult
from upstreams.wire import ProgressHearer

T = TypeVar("T")


class Upstream(Supervisor):
    """One MCP server behind the portal, and calls to it. `run` keeps a connection to it, in a task of its own.

    Calls run in their callers' tasks. So neither a failing connection nor another upstream can cancel a
    caller, and a caller that goes away takes nothing with it.
    """

    def __init__(
        self,
        name: str,
        spec: UpstreamSection,
        open_wire: WireOpener,
        redact: Redaction,
        turns: StartTurns,
        on_change: Callable[["Upstream"], None],
        listings: ListingStore | None = None,
    ) -> None:
        circuit = CircuitBreaker(anyio.current_time)
        super().__init__(name, spec, open_wire, redact, circuit, turns, listings, lambda: on_change(self))
        self._rules = spec.retries

    async def call(
        self,
        tool: str,
        arguments: dict[str, Json],
        *,
        seconds: float,
        key: str | None = None,
        progress: ProgressHearer | None = None,
        log_hearer: LogHearer | None = None,
        questioned: Questioned | None = None,
        on_sent: Callable[[bool], None] = lambda was_seen: None,
    ) -> ToolResult:
        """Call a tool; waits for a starting upstream and for the answer, together at most `seconds`.

        A call that fails is sent again where that is safe and may help (`with_retries`). `key` goes with every
        attempt, so that an upstream that looks at it acts once. `progress` and `log_hearer` hear what the upstream says
        meanwhile, `questioned` is whom it may ask. `on_sent` is called when the upstream may see the call from then on:
        a caller that is cancelled before knows that nothing happened. It hears whether the upstream may have seen the
        call before, and may raise an UpstreamWithheldError.

        Raises:
            UpstreamError: With a scrubbed message; the class says what may have happened.
        """

        def send(session: Session, left_seconds: float) -> Awaitable[ToolResult]:
            return session.call(
                tool,
                arguments,
                seconds=left_seconds,
                key=key,
                progress=progress,
                log_hearer=log_hearer,
                questioned=questioned,
            )

        return await self._deliver(send, seconds, on_sent, partial(self._is_safe, tool))

    async def offered(
        self, listed: Listed, *, seconds: float, on_sent: Callable[[bool], None]
    ) -> list[dict[str, Json]]:
        """What it lists besides tools within `seconds`, as far as that goes; see `upstreams/offerings.py`.

        Raises:
            UpstreamError: As `call` does.
        """
        deadline = anyio.current_time() + seconds

        async def page(cursor: str | None) -> dict[str, Json]:
            params = {} if cursor is None else {"cursor": cursor}
            left_seconds = deadline - anyio.current_time()
            if cursor is not None and left_seconds <= 0:
                raise UpstreamTimeoutError(f"lists without end, longer than {seconds:g} s")
            method = LISTING_METHODS[listed]
            return await self.ask(method, params, seconds=left_seconds, on_sent=on_sent)

        return await read_offered(listed, page)

    async def ask(
        self,
        method: str,
        params: dict[str, Json],
        *,
        seconds: float,
        on_sent: Callable[[bool], None],
    ) -> dict[str, Json]:
        """Any other request, which is sent again only where it certainly was not answered before; its raw result.

        Raises:
            UpstreamError: As `call` does.
        """

        def send(session: Session, left_seconds: float) -> Awaitable[dict[str, Json]]:
            return session.ask(method, params, seconds=left_seconds)

        return await self._deliver(send, seconds, on_sent, lambda: False)

    async def _deliver(
        self,
        send: Callable[[Session, float], Awaitable[T]],
        seconds: float,
        on_sent: Callable[[bool], None],
        is_safe: Callable[[], bool],
    ) -> T:
        deadline = anyio.current_time() + seconds
        was_seen = may_have_acted = False
        patient_until = -inf

        async def attempt() -> T:
            nonlocal was_seen, may_have_acted, patient_until
            async with self.session(deadline, patient_until) as session:
                if may_have_acted and not is_safe():  # as it was when it failed
                    raise UpstreamWithheldError("the tool no longer says that it is safe to repeat")
                with self._circuit.watching():
                    on_sent(was_seen)
                    try:
                        return await send(session, max(0.0, deadline - anyio.current_time()))
                    except UpstreamError as error:
                        was_seen = was_seen or error.outcome != "not_started"
                        may_have_acted = may_have_acted or error.outcome == "unknown"
                        if isinstance(error, UpstreamLostError):
                            patient_until = anyio.current_time() + PATIENCE_SECONDS
                        raise

        try:
            return await with_retries(
                attempt, attempts=self._rules.attempts, is_safe=is_safe, deadline=deadline
            )
        except UpstreamError as error:
            # The same error, for the caller: scrubbed, and naming the upstream.
            error.args = (f"upstream {self.name!r}: {self._redact.start(str(error))}",)
            raise
        finally:
            self.tell_health()

    def scrubbed(self, text: str, limit: int) -> str:
        """The first `limit` characters of a text of the upstream without the secrets that it was configured with."""
        return self._redact.start(text, limit)

    def _is_safe(self, tool: str) -> bool:
        """Whether a second call of the tool does no more than the first, as it says now."""
        annotations = next((known.annotations for known in self.tools if known.name == tool), {})
        function = function_names([known.name for known in self.tools]).get(tool, identifier(tool))
        names = ToolNames(self.name, namespace_of(self.name), tool, function)
        return may_repeat(self._rules, names, annotations)
