"""What a script may wait for besides its calls: a person, a time, an event. Also recalls kept results of earlier runs.

Source: MCP 2026-07-28, client/elicitation#response-actions.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeGuard

import anyio
import structlog

from manifests.json_value import Json
from portal.base.errors import ASK_OPERATOR, RunsError
from portal.base.tokens import compact
from portal.calls.channel import ClientChannel
from portal.calls.run import APPROVE, EVENT, EVENT_URL, RECALL, SEARCH_TEXT, SLEEP
from portal.catalog.authority import ApprovalNeeded, Authorization
from portal.records.ledger import Entry
from portal.records.store.records import CallRow, StoreError
from portal.records.store.run_tables import RunTables
from portal.runs.journal import Journal, unwritten
from portal.runs.service import Runs
from portal.runs.shown_calls import MAX_SHOWN_CHARACTERS, readable, sha256_of, told_hints
from sandbox_runtime.call_port import CallError, Outcome, ToolCall
from sandbox_runtime.guest_json import encode

log = structlog.get_logger()

MAX_NAME_CHARACTERS: Final = 100
MAX_QUESTION_CHARACTERS: Final = 2_000
MAX_SECONDS: Final = 366 * 86_400.0


@dataclass(eq=False)
class Waits:
    """Handles the waits of one run. Without a journal a script may only sleep."""

    runs: Runs
    journal: Journal | None
    owner: str
    authorization: Authorization
    channel: ClientChannel

    async def __call__(self, call: ToolCall, entry: Entry) -> Outcome:
        """Answer one of `portal.calls.run.WAITED`. Errors are returned, never raised, except FencedError."""
        arguments, results, carry = call.arguments, self.runs.results, self.authorization.carry
        waits = {SLEEP: self._sleep, EVENT: self._event, EVENT_URL: self._event_url, APPROVE: self._approve}
        answer, error = None, None
        try:
            if call.function == RECALL:
                answer = await results.recall(arguments.get("handle"), self.owner, carry)
            elif call.function == SEARCH_TEXT:
                answer = await results.search(arguments, self.owner, carry)
            else:
                answer = await waits[call.function](call.seq, arguments)
        except RunsError as refusal:
            error = refusal.call_error
        except StoreError as failure:
            log.error("run_not_journaled", run=self.journal and self.journal.piece.run_id, error=str(failure))
            error = unwritten(failure, f"{call.function} was not done")
        if call.function in (RECALL, SEARCH_TEXT):
            entry.sources |= self.authorization.sources
        entry.end("refused" if error else "done", error)
        return Outcome(answer, error)

    async def approval(
        self, call: ToolCall, needed: ApprovalNeeded, digest_now: Callable[[], str]
    ) -> "dict[str, Json] | CallError":
        """Wait for a person's decision about a call. Returns the arguments to use, or an error if it was denied.

        An approval covers this definition of the tool and these arguments, or those that the person wrote instead.
        """
        digest, arguments_sha256 = digest_now(), sha256_of(needed.arguments)
        arguments = self.runs.mask.in_value(needed.arguments)  # first: a cut secret would not be recognized
        is_long = len(compact(arguments)) > MAX_SHOWN_CHARACTERS
        shown = {
            "upstream": needed.request.destination,
            "function": call.function,
            "arguments": "\n".join(readable(arguments)) if is_long else arguments,
            "arguments_sha256": arguments_sha256,
            "rule": needed.rule,
            "where": needed.where,
            "hints": told_hints(needed.request.hints),
            # Not where a rule looks at each call's arguments, nor for a fetch, whose arguments say where it goes.
            "may_stand": bool(digest) and not needed.request.tool.conditions,
        }
        asking = CallRow("", call.seq, "ask", call.function, "waiting", digest, arguments_sha256)
        try:
            row = await self._decided(asking, shown)
        except RunsError as refusal:
            return refusal.call_error
        return approved_arguments(row, call.arguments, digest_now(), arguments_sha256)

    async def _decided(self, asking: CallRow, shown: dict[str, Json]) -> CallRow:
        """The row of a call that a person approved. Raises RunsError: it was denied, or no one can be asked."""
        seq, function = asking.seq, asking.function
        journal = self._journal_for(f"{function} asks a person, and asking")
        may_decide = self.runs.approvers.refusal(self.owner, self.channel.decider) is None
        can_ask = self.channel.can_ask_person or self.runs.asks_in_console(self.channel)
        channel = self.channel if may_decide and can_ask else None
        run = journal.piece.run_id
        ask = partial(self.runs.questions.ask, run, seq, self.runs.mask.in_value(shown), channel)
        row = await journal.wait(replace(asking, run=run, shown=encode(shown)), ask)
        if row.state not in ("approved", "denied"):
            raise RunsError("cancelled", f"{function} no longer waits for a decision", "Nothing was sent.")
        decision = json.loads(row.decision or b"{}")
        self.authorization.audit.decided(seq, function, row.state, row.decided_by, decision)
        if through := decision.get("through"):
            journal.note_notices([f"call {seq} ({function}) was approved with call {through}"])
        if row.state == "approved":
            return row
        reason = decision.get("reason") or ""
        why = f": {reason[:MAX_QUESTION_CHARACTERS]}" if reason else ""
        raise RunsError(
            "denied", f"{function} was denied{why}", "Nothing was sent. Do not try to do it another way."
        )

    async def _sleep(self, seq: int, arguments: Mapping[str, Json]) -> None:
        seconds, journal = arguments.get("seconds"), self.journal
        if not _is_duration(seconds):
            raise _invalid("portal.sleep takes seconds from 0 to a year", seconds)
        if journal is None and seconds > 60:
            journal = self._journal_for("portal.sleep for more than a minute")
        if journal is None or (seconds <= journal.park_seconds and seq not in journal.piece.past.calls):
            await anyio.sleep(seconds)
        else:
            due_at = journal.store.now() + seconds
            await journal.wait(CallRow(journal.piece.run_id, seq, "sleep", SLEEP, "waiting", due_at=due_at))

    async def _event(self, seq: int, arguments: Mapping[str, Json]) -> Json:
        timeout = arguments.get("timeout")
        if timeout is not None and not _is_duration(timeout):
            raise _invalid("the timeout of portal.event is in seconds, from 0 to a year", timeout)
        name, journal = _event_name(arguments), self._journal_for("an event")
        due_at, run = None if timeout is None else journal.store.now() + timeout, journal.piece.run_id
        # Without a URL the run cannot wait either, unless another portal has told someone its own.
        if not await journal.store.read(partial(RunTables.has_hook, run=run, name=name)):
            await self._event_url(seq, arguments)
        payload = partial(RunTables.payload, run=run, name=name)
        known = await journal.store.read(payload)
        if known is None:
            await journal.wait(CallRow(run, seq, "event", EVENT, "waiting", name=name, due_at=due_at))
            known = await journal.store.read(payload)
        if known is None:
            message = f"the event {name!r} did not come within {timeout:g} s"
            raise RunsError("event_timeout", message, "Wait for it again, or go on without it.")
        return json.loads(known)

    async def _event_url(self, seq: int, arguments: Mapping[str, Json]) -> str:
        """The URL that delivers an event to the run."""
        name, journal = _event_name(arguments), self._journal_for("an event")
        if self.runs.public_url is None:
            raise RunsError("no_public_url", "events need a URL, and this portal has none", ASK_OPERATOR)
        await journal.begin()
        token = await journal.store.write(partial(RunTables.hook, run=journal.piece.run_id, name=name))
        return f"{self.runs.public_url}/hooks/{token}"

    async def _approve(self, seq: int, arguments: Mapping[str, Json]) -> bool:
        asked = arguments.get("question")
        if not isinstance(asked, str) or not asked.strip():
            raise _invalid("portal.approve takes one text, the question", asked)
        shown: dict[str, Json] = {"question": asked[:MAX_QUESTION_CHARACTERS]}
        await self._decided(CallRow("", seq, "approve", APPROVE, "waiting"), shown)
        return True

    def _journal_for(self, what: str) -> Journal:
        """The journal, without which there is no `what`. Raises RunsError: the portal has no store."""
        self.runs.store_or_error(what)
        assert self.journal is not None, "there is one where there is a store"
        return self.journal


def approved_arguments(
    row: CallRow, arguments: dict[str, Json], digest: str, arguments_sha256: str
) -> dict[str, Json] | CallError:
    """The arguments that a person approved, for the tool's definition `digest` and these arguments of the script."""
    changed = json.loads(row.decision or b"{}").get("arguments")
    if row.digest != digest:
        return CallError(
            "tool_changed",
            f"{row.function} was not called: the tool's definition changed after the person was asked",
            "Nothing was sent. Run the script again: the person is asked about the new definition.",
        )
    if changed is None and row.arguments_sha256 != arguments_sha256:
        return CallError(
            "arguments_changed",
            f"{row.function} was not called: the approval is for other arguments",
            "Nothing was sent. Run the script again: the person is asked about these.",
        )
    return arguments if changed is None else changed


def _event_name(arguments: Mapping[str, Json]) -> str:
    name = arguments.get("name")
    if isinstance(name, str) and 0 < len(name) <= MAX_NAME_CHARACTERS and name.isprintable():
        return name
    raise _invalid(f"an event's name is a text of 1 to {MAX_NAME_CHARACTERS} printable characters", name)


def _is_duration(value: Json) -> TypeGuard[float]:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value) and 0 <= value <= MAX_SECONDS


def _invalid(what: str, value: Json) -> RunsError:
    return RunsError("invalid_arguments", f"{what}, not {compact(value)[:100]}", "Nothing was done.")
