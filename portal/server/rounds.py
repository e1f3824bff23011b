"""Requests of revision 2026-07-28 that wait for the client's answer, which arrives in another request.

Rule 1: `requestState` only identifies the waiting request. It is a random name, valid once, and only with the same
arguments and caller.

Source: MCP 2026-07-28, basic/patterns/mrtr.
"""

import secrets
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import anyio
import mcp_types as types
from anyio.abc import TaskGroup
from mcp.shared.exceptions import MCPError, NoBackChannelError

from manifests.json_value import Json
from portal.base.caller import Caller
from portal.calls.channel import ClientChannel
from portal.calls.questions import Ask, Question, Questions
from portal.identity.approvers import Decider
from portal.records.ledger import Ledger

MAX_WAITING: Final = 100
"""Requests that wait for their clients. One more ends the oldest request of the caller with the most."""

WAITING_SECONDS: Final = 600.0
"""How long a request waits for its client. Its own time limits keep running, and most end it earlier."""

Work: TypeAlias = Callable[["PendingRequest"], Awaitable[types.Result]]


class PendingRequest:
    """A request that runs in its own task, so that it outlives the HTTP request that started it."""

    def __init__(self, queue_key: str, binding: Json, questions: Callable[[Ask], Questions]) -> None:
        self.queue_key = queue_key
        self.binding = binding
        self.ledger = Ledger()
        self.channel = ClientChannel(questions(self.ask))
        self.scope = anyio.CancelScope()
        self.has_begun = False
        self.has_ended = False
        self.result: types.Result | None = None
        """None if it was cancelled."""
        self.questions: types.InputRequests = {}
        """Open questions to the client."""
        self._answers: dict[str, tuple[dict[str, Json], Decider]] = {}
        self._asked = 0
        self._changed = anyio.Event()

    async def run(self, work: Work) -> None:
        try:
            with self.scope:
                self.result = await work(self)
        finally:
            self.has_ended = True
            self._note_change()

    async def ask(self, question: Question) -> dict[str, Json]:
        """Ask the client and wait for its answer. On return, the channel's decider is whoever answered.

        Raises NoBackChannelError: the request has ended, and with it the client's wait for a run that goes on.
        """
        self._asked += 1
        key = f"question-{self._asked}"
        self.questions[key] = question
        self._note_change()
        try:
            while key not in self._answers:
                if self.has_ended:
                    raise NoBackChannelError(question.method)
                await self._changed.wait()
        finally:
            self.questions.pop(key, None)
        # Set when this answer is read, not when it arrives: another answer may arrive in between.
        answer, self.channel.decider = self._answers.pop(key)
        return answer

    async def round(self) -> None:
        """Wait until the request has ended or has a question."""
        while not self.has_ended and not self.questions:
            await self._changed.wait()

    def add_answers(self, answers: types.InputResponses, decider: Decider) -> None:
        """Add answers, which may come with another token than the request's. Ignores those without an open question."""
        for key, answer in answers.items():
            if self.questions.pop(key, None) is not None:
                shown = answer.model_dump(by_alias=True, mode="json", exclude_none=True)
                self._answers[key] = shown, decider
        self._note_change()

    def _note_change(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


class Rounds:
    """The requests that wait for answers of their clients. They run in `tasks`; their names begin with `home`."""

    def __init__(self, tasks: TaskGroup, seconds: float = WAITING_SECONDS, home: str = "") -> None:
        self._tasks = tasks
        self._home = home
        self._seconds = seconds
        self._waiting: dict[str, PendingRequest] = {}

    def joined(
        self, caller: Caller, params: types.CallToolRequestParams, questions: Callable[[Ask], Questions]
    ) -> PendingRequest:
        """The pending request that `params` continues, or a new one.

        Raises MCPError: `requestState` is unknown, or belongs to another caller or to other arguments.
        """
        binding = caller.owner, caller.profile, params.name, params.arguments
        if params.request_state is None:
            return PendingRequest(caller.queue_key, binding, questions)
        known = self._waiting.get(params.request_state)
        if known is None or known.binding != binding:
            raise MCPError(
                types.INVALID_PARAMS,
                "requestState is not valid: it was used, has ended, or belongs to another request",
            )
        del self._waiting[params.request_state]
        known.add_answers(params.input_responses or {}, questions(known.ask).decider)
        return known

    async def outcome(self, pending: PendingRequest, work: Work) -> types.Result | None:
        """The outcome of one round; None if the request has ended without a result. The first round starts the work."""
        if not pending.has_begun:
            pending.has_begun = True
            self._tasks.start_soon(pending.run, work)
        try:
            await pending.round()
        except anyio.get_cancelled_exc_class():
            pending.scope.cancel()
            raise
        if pending.has_ended:
            return pending.result
        state = self._wait_for_answer(pending)
        return types.InputRequiredResult(input_requests={**pending.questions}, request_state=state)

    def _wait_for_answer(self, pending: PendingRequest) -> str:
        if len(self._waiting) >= MAX_WAITING:
            # The caller with the most requests loses its oldest.
            owners = [*(each.queue_key for each in self._waiting.values()), pending.queue_key]
            most = Counter(owners).most_common(1)[0][0]
            self._end(next(state for state, each in self._waiting.items() if each.queue_key == most))
        state = self._home + secrets.token_urlsafe(32)
        self._waiting[state] = pending
        self._tasks.start_soon(self._expire, state)
        return state

    async def _expire(self, state: str) -> None:
        await anyio.sleep(self._seconds)
        if state in self._waiting:
            self._end(state)

    def _end(self, state: str) -> None:
        self._waiting.pop(state).scope.cancel()
