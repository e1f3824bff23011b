"""Requests of revision 2026-07-28 that wait for an answer of their client, which comes with another request.

Rule 1: what the client sends back says nothing but which request is meant: a random name, good for one answer, and only
together with the arguments and the caller of that request.

Source: MCP 2026-07-28, basic/patterns/mrtr.
"""

import hashlib
import json
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import anyio
from anyio.abc import TaskGroup
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    InputRequests,
    InputRequiredResult,
    InputResponses,
)

from manifests.json_value import Json
from portal.caller import Caller
from portal.ledger import Ledger
from portal.passthrough.asking import Ask, Asking, Question
from portal.passthrough.audience import NOBODY, Audience, Relay

MAX_PARKED: Final = 100
"""Requests that wait for their clients. One more takes the place of one of the caller who has most of them: of one
that has ended, or else of the one that has waited longest."""

PARKED_SECONDS: Final = 600.0
"""How long one waits; its limits of time go on meanwhile, and most end earlier."""

Work: TypeAlias = Callable[[Audience], Awaitable[CallToolResult]]


class Parked:
    """One request, worked on in a task of its own, so that it outlives the request that it came with."""

    def __init__(self, share: str, binding: str, ledger: Ledger, asking: Callable[[Ask], Asking]) -> None:
        self.share = share
        self.binding = binding
        self.ledger = ledger
        self.audience = Relay(asking(self.ask))
        self.parked_at = 0.0
        self._scope = anyio.CancelScope()
        self._result: CallToolResult | None = None
        self.has_ended = False
        self._questions: dict[str, _Open] = {}
        self._asked = 0
        self._changed = anyio.Event()

    async def run(self, work: Work) -> None:
        try:
            with self._scope:
                self._result = await work(self.audience)
        finally:
            self.has_ended = True
            self._tell()

    async def ask(self, question: Question) -> dict[str, Json]:
        """Put a question to the client, and wait for its answer."""
        self._asked += 1
        key, asked = f"question-{self._asked}", _Open(question)
        self._questions[key] = asked
        self._tell()
        try:
            await asked.answered.wait()
        finally:
            self._questions.pop(key, None)
        return asked.answer

    async def outcome(self) -> "CallToolResult | InputRequests":
        """The result, or what the client is asked before there is one.

        Raises:
            MCPError: There will be neither.
        """
        while not self.has_ended:
            if self._questions:
                return {key: each.question for key, each in self._questions.items()}
            await self._changed.wait()
        if self._result is None:
            raise MCPError(INVALID_PARAMS, "the request has ended without a result")
        return self._result

    def hear(self, answers: InputResponses) -> None:
        """Take the answers; to what is not asked any more, they are nothing."""
        for key, answer in answers.items():
            if key in self._questions:
                told = answer.model_dump(by_alias=True, mode="json", exclude_none=True)
                self._questions.pop(key).tell(told)

    def end(self) -> None:
        self._scope.cancel()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


class _Open:
    def __init__(self, question: Question) -> None:
        self.question = question
        self.answer: dict[str, Json] = {}
        self.answered = anyio.Event()

    def tell(self, answer: dict[str, Json]) -> None:
        self.answer = answer
        self.answered.set()


class Parking:
    """The requests whose clients have been asked something. They are worked on in `tasks`."""

    def __init__(self, tasks: TaskGroup, seconds: float = PARKED_SECONDS) -> None:
        self._tasks = tasks
        self._seconds = seconds
        self._is_timing = False
        self._parked: dict[str, Parked] = {}

    async def round(
        self,
        caller: Caller,
        params: CallToolRequestParams,
        work: Work,
        ledger: Ledger,
        audience: Audience,
        asking: Callable[[Ask], Asking],
    ) -> CallToolResult | InputRequiredResult:
        """One request, or the one that it goes on with: its result, or what its client is asked before.

        `audience` hears of it as long as this waits; `ledger` is what a new one fills.

        Raises:
            MCPError: It goes on with one that is not there, or not this caller's, or was another.
        """
        binding = _binding(caller, params)
        if params.request_state is None:
            parked = Parked(caller.share, binding, ledger, asking)
            parked.audience.current = audience
            self._tasks.start_soon(parked.run, work)
        else:
            parked = self._claimed(params.request_state, binding)
            audience.follow(parked.ledger)
            parked.audience.current = audience
            parked.hear(params.input_responses or {})
        try:
            outcome = await parked.outcome()
        except anyio.get_cancelled_exc_class():
            parked.end()
            raise
        finally:
            parked.audience.current = NOBODY
        if isinstance(outcome, CallToolResult):
            return outcome
        return InputRequiredResult(input_requests=outcome, request_state=self._park(parked))

    def _claimed(self, state: str, binding: str) -> Parked:
        parked = self._parked.get(state)
        if parked is None or parked.binding != binding:
            raise MCPError(
                INVALID_PARAMS, "nothing waits for this requestState: it was used, ended, or is another's"
            )
        del self._parked[state]
        return parked

    def _park(self, parked: Parked) -> str:
        if len(self._parked) >= MAX_PARKED:
            self._drop(self._least_missed(parked.share))
        state = secrets.token_urlsafe(32)
        parked.parked_at = anyio.current_time()
        self._parked[state] = parked
        if not self._is_timing:
            self._is_timing = True
            self._tasks.start_soon(self._drop_late)
        return state

    def _least_missed(self, share: str) -> str:
        """What makes room for one more of `share`: nobody loses a request to a caller who has more of them."""
        most = Counter([*(parked.share for parked in self._parked.values()), share]).most_common(1)[0][0]
        theirs = [state for state, parked in self._parked.items() if parked.share == most]
        return next((state for state in theirs if self._parked[state].has_ended), theirs[0])

    async def _drop_late(self) -> None:
        while self._parked:
            await anyio.sleep_until(next(iter(self._parked.values())).parked_at + self._seconds)
            latest = anyio.current_time() - self._seconds
            for state in [state for state, parked in self._parked.items() if parked.parked_at <= latest]:
                self._drop(state)
        self._is_timing = False

    def _drop(self, state: str) -> None:
        self._parked.pop(state).end()


def _binding(caller: Caller, params: CallToolRequestParams) -> str:
    asked = [caller.owner, caller.profile, params.name, params.arguments]
    try:
        text = json.dumps(asked, sort_keys=True)
    except ValueError:  # an integer of more digits than Python writes
        text = secrets.token_hex(32)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
