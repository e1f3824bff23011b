"""The runs of one portal, for executions, and for people and their tools. Also asks the person at a run's client."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import anyio
import structlog
from anyio.abc import TaskGroup
from mcp_types import ElicitRequest

from manifests.json_value import Json
from manifests.kernels import PYTHON
from manifests.manifest import Manifest
from portal.base.caller import Caller
from portal.base.errors import RunsError, refuse_kernel
from portal.base.requests import ExecuteCode
from portal.calls.channel import NO_CLIENT, ClientChannel
from portal.catalog.authority import Authorization
from portal.identity.approvers import Approvers, Decider
from portal.records.ledger import Ledger
from portal.records.store.records import OPEN, FencedError, RunState, StoredRun, StoreError
from portal.records.store.run_tables import RunTables
from portal.records.store.writer import RunStore
from portal.records.telemetry.instruments import current_trace
from portal.runs import decisions
from portal.runs.answer import Answer
from portal.runs.changes import Changes
from portal.runs.decisions import decide_call
from portal.runs.forms import MAX_CALLS, approval_form, decision_of
from portal.runs.journal import Journal, unwritten
from portal.runs.leases import Address, Leases, public_url
from portal.runs.past import HEAD, Piece, RunHead, new_row, new_run_id
from portal.runs.results import KeptResults
from portal.runs.segment_state import SegmentState
from portal.runs.trail import Trail
from sandbox_runtime.recording import Recording
from upstreams.redaction import Redaction

log = structlog.get_logger()

GATHER_SECONDS: Final = 0.05
"""Calls of a run that begin to wait within this time share one form."""

UNATTENDED_SECONDS: Final = 0.1
"""How soon a waiting run is suspended at the earliest, and if no client waits for it."""


class Runs:
    """The runs of one portal, which is served over HTTP at `address`, if it has one."""

    def __init__(
        self,
        manifest: Manifest,
        store: RunStore | None,
        tasks: TaskGroup,
        address: Address | None = None,
    ) -> None:
        self.settings = manifest.portal.runs
        self.kernels = manifest.portal.server.switched_on
        self.store = store
        self.mask = Redaction(manifest.hidden)
        """Masks secrets in what is written."""
        self.results = KeptResults(store, self.mask.in_json_text)
        self.changes = Changes()
        self.trail = Trail(store, self.settings, self.mask, self.changes.note_rows)
        self.leases = Leases(store, address)
        self.live: dict[str, Journal | None] = {}
        """The journals of the segments that are under way in this process; None for one that is about to begin."""
        self.questions = Questions(self, tasks)
        self.approvers = Approvers.of(manifest)
        self.unwritten: dict[str, Callable[[], Awaitable[None]]] = {}
        """What ends the runs whose ends could not be written yet."""

    @property
    def public_url(self) -> str | None:
        """The base URL for delivering events; None if there is no such URL."""
        return public_url(self.settings, self.leases.address)

    def replace(self, manifest: Manifest) -> None:
        """Switch to a reloaded manifest: mask and decide by it, and resume the runs of its profiles."""
        self.mask.replace(manifest.hidden)
        self.approvers = Approvers.of(manifest)
        self.changes.wake()

    # For executions

    def journal(
        self, piece: Piece, recording: Recording | None, ledger: Ledger, authorization: Authorization
    ) -> Journal | None:
        """The journal for one segment of a run; None without a store."""
        if self.store is None:
            return None
        # No client waits for the answer of a run that the portal resumes. Without a pause, the wait would spin.
        is_attended = not piece.epoch or self.questions.channel(piece.run_id) is not NO_CLIENT
        park_seconds = max(self.settings.park_after_seconds if is_attended else 0, UNATTENDED_SECONDS)
        state = SegmentState(piece, recording, ledger, authorization.counted)
        return Journal(state, self, self.store, park_seconds, authorization)

    def fence(self, run: str) -> None:
        """Stop a segment at once, if it is under way here: its run has ended, or another portal holds it."""
        if (journal := self.live.get(run)) is not None:
            journal.scope.cancel()

    async def start(self, profile: str | None, request: ExecuteCode, caller: Caller) -> Answer:
        """Run a script in the background. The answer says only that it runs, under which id. Raises RunsError."""
        refuse_kernel(request.kernel or PYTHON, self.kernels)
        store = self.store_or_error("A run in the background")
        head = RunHead(request, caller, profile, is_background=True, trace=current_trace(), began=time.time())
        row = new_row(new_run_id(), caller.run_owner, head, None, self.settings.max_age_days)
        row = replace(row, state="waiting", wake_at=0.0, title=head.title(self.mask))
        try:
            create = partial(RunTables.create, row=row, head=HEAD.dump_json(head), caller=caller.label)
            await store.write(create, is_lasting=True)
        except StoreError as error:
            log.error("run_not_journaled", run=row.id, error=str(error))
            failure = unwritten(error, "The run did not start")
            raise RunsError(failure.code, failure.message, failure.hint) from error
        self.changes.wake()
        return Answer("running", row.id)

    async def end(
        self, run: str, state: RunState, answer: bytes | None = None, epoch: int | None = None
    ) -> None:
        """End a run that has a row, whoever holds it. With an epoch, only if no other portal has taken it over since.

        If that cannot be written now, it is retried.
        """
        if self.store is None:
            return
        masked = answer and self.mask.in_json_text(answer.decode()).encode()
        finish = partial(RunTables.finish, run=run, state=state, answer=masked, epoch=epoch)
        try:
            await self.store.write(finish)
        except FencedError:
            return
        except StoreError as error:
            log.error("run_not_ended", run=run, error=str(error))
            self.unwritten[run] = partial(self.end, run, state, answer, epoch)
        else:
            self.changes.wake()

    async def write_ends(self) -> None:
        """Try again to write the ends that could not be written."""
        for run in [*self.unwritten]:
            await self.unwritten.pop(run)()

    async def final_answer(self, run: str) -> Answer:
        """The answer for the client of a suspended run: the final answer while the client has an open question; else
        what the run waits for.
        """
        while True:
            # A question is removed once its decision is written, so it is looked up before the row is read.
            news, was_asked = self.changes.news, self.questions.are_open(run)
            row = await self.store_or_error().read(partial(decisions.find_run, run=run, owner=None))
            is_under_way = row.wake_at == 0 or run in self.live
            is_awaited = is_under_way or was_asked or self.questions.are_open(run)
            if row.state not in OPEN or not is_awaited:
                return await self.answer(run, None)
            await news.wait()

    # For people and their tools

    async def answers(self, run: str) -> AsyncIterator[Answer]:
        """The current answer of a run, and one after each change, until it has ended. Raises RunsError, StoreError."""
        while True:
            news = self.changes.news  # taken before the store is read
            answer = await self.answer(run, None)
            yield answer
            if answer.status not in OPEN:
                return
            await news.wait()

    async def answer(self, run: str, owner: str | None) -> Answer:
        """The current answer of a run. Raises RunsError: the owner has no such run."""
        return decisions.answer_of(await self.load(run, owner))

    async def load(self, run: str, owner: str | None) -> StoredRun:
        """Everything about a run. Raises RunsError: the owner has no such run."""
        return await self.seen(run, Decider("", owner), Approvers())

    async def seen(self, run: str, decider: Decider, approvers: Approvers | None = None) -> StoredRun:
        """Everything about a run that the decider may see. Raises RunsError: there is no such run."""

        def load(tables: RunTables) -> StoredRun | None:
            return tables.load(decisions.find_seen(tables, run, decider, approvers or self.approvers).id)

        stored = await self.store_or_error().read(load, decider.owner or "")
        assert stored is not None
        return stored

    async def decide(self, run: str, seq: int | None, decider: Decider, **decision: Any) -> str:
        """Approve or deny a waiting call, as `decide_call` does. Returns the run's id. Raises RunsError."""
        decide = partial(decide_call, run=run, seq=seq, decider=decider, approvers=self.approvers, **decision)
        run = (await self.store_or_error().write(decide, is_lasting=True)).run
        self.changes.wake(run)
        return run

    def form(self, run: str, asked: Mapping[int, Json]) -> ElicitRequest:
        """The form about calls of a run: what their rows show, by `seq`."""
        url = decisions.console_url(self.public_url, run, min(asked))
        return approval_form(run, [*asked.values()], four_eyes=self.approvers.four_eyes, url=url)

    def asks_in_console(self, channel: ClientChannel) -> bool:
        """Whether the person at this client is sent to the console, instead of a form."""
        return self.settings.ask_in == "console" and channel.can_open_pages and self.public_url is not None

    async def cancel(self, run: str, owner: str | None) -> str:
        """End a run in any state. Returns its id. Raises RunsError."""
        cancel = partial(decisions.cancel_run, run=run, owner=owner)
        run = await self.store_or_error().write(cancel, is_lasting=True)
        self.fence(run)
        self.changes.wake()
        return run

    async def deliver(self, token: str, payload: bytes) -> bool | None:
        """Deliver an event. Returns whether it was the first delivery; None for an unknown token."""
        deliver = partial(RunTables.deliver, token=token, payload=payload)
        found = await self.store_or_error().write(deliver, is_lasting=True)
        if found is not None:
            self.changes.wake(found[0])
        return found and found[1]

    def store_or_error(self, what: str = "This") -> RunStore:
        """The store, without which there is no `what`. Raises RunsError: the portal has no store."""
        if self.store is None:
            message = f"{what} needs the store of runs, which cannot be used; the portal's log says why"
            raise RunsError("runs_unavailable", message, "Tell the operator.")
        return self.store


@dataclass(eq=False)
class Questions:
    """The questions to the people at the clients that wait for runs."""

    runs: Runs
    tasks: TaskGroup
    _channels: dict[str, ClientChannel] = field(default_factory=dict)
    """The clients that wait for a run, and can be asked while they do."""
    _open: dict[str, dict[int, anyio.CancelScope]] = field(default_factory=dict)
    """By run and call: the task that asks. A question is open until its decision is written."""
    _unshown: dict[str, dict[int, Json]] = field(default_factory=dict)
    """By run: the calls that its next form will show."""

    def channel(self, run: str) -> ClientChannel:
        """The client of a run that has been asked, and still waits."""
        return self._channels.get(run, NO_CLIENT)

    def are_open(self, run: str) -> bool:
        return bool(self._open.get(run))

    async def ask(self, run: str, seq: int, asked: Json, channel: ClientChannel | None) -> None:
        """Ask the person at the client, if there is one, about a waiting call that no earlier approval stands for.

        Runs in the background. Calls of the same moment share one form. The answer counts if no one decided before.
        """
        if await self._stands(run, seq, asked) or channel is None or seq in self._open.get(run, ()):
            return
        self._channels[run] = channel
        questions, unshown = self._open.setdefault(run, {}), self._unshown.setdefault(run, {})
        if unshown:
            questions[seq] = questions[next(iter(unshown))]
        else:
            scope = questions[seq] = anyio.CancelScope()
            self.tasks.start_soon(self._show, run, unshown, channel, scope)
        unshown[seq] = asked

    async def _show(
        self, run: str, unshown: dict[int, Json], channel: ClientChannel, scope: anyio.CancelScope
    ) -> None:
        """Show the calls in one form after the other, without those that are decided in between."""
        questions = self._open.get(run, {})
        with scope:
            await anyio.sleep(GATHER_SECONDS)
            left = dict(sorted(unshown.items()))
            unshown.clear()  # calls that come from now on get another form
            # A segment that went on may have read its row before the last decision about it.
            for each in left.keys() - await self._waiting(run, left):
                left.pop(each)
                questions.pop(each, None)
                self.runs.changes.wake()
            if left and self.runs.asks_in_console(channel):
                await self._send_to_console(run, left, channel)
                for each in left:
                    questions.pop(each, None)
                self.runs.changes.wake()
                return
            while left:
                shown = [each for each in left if "question" not in left[each]][:MAX_CALLS] or [*left][:1]
                asked = {each: left.pop(each) for each in shown}
                answer = await channel.ask_person(self.runs.form(run, asked))
                # Read now: the answer to the next form may come from another person with another token.
                decider = channel.decider
                if (decision := decision_of(answer)) is not None:
                    for each in shown:
                        await self._settle(run, each, self.runs.decide(run, each, decider, **decision))
                shown += [each for each in left if await self._stands(run, each, left[each])]
                for each in shown:
                    left.pop(each, None)
                    questions.pop(each, None)
                self.runs.changes.wake()

    async def _send_to_console(self, run: str, calls: Collection[int], channel: ClientChannel) -> None:
        """Have the client open the page about these calls. If it does, return when none of them waits any more.

        Neither answer decides anything.
        """
        page = decisions.console_url(self.runs.public_url, run, min(calls))
        told = f"A script (run {run}) waits for your decision. Open the page to see about what, and decide there."
        is_opened = await channel.open_page(page, told)
        while is_opened:
            news = self.runs.changes.news
            if not await self._waiting(run, calls):
                return
            await news.wait()

    async def _waiting(self, run: str, calls: Collection[int]) -> Collection[int]:
        """Those of these calls that still wait; all of them, if the store cannot be read."""
        waiting = partial(RunTables.calls, run=run, which="state = 'waiting'")
        try:
            found = await self.runs.store_or_error().read(waiting)
        except StoreError as error:
            log.error("decision_not_read", run=run, error=str(error))
            return calls
        return {call.seq for call in found}.intersection(calls)

    async def _stands(self, run: str, seq: int, asked: Json) -> bool:
        """Approve a call if an earlier approval stands for it. Returns whether it does."""
        approve = partial(decisions.let_pass, run=run, seq=seq, approvers=self.runs.approvers)
        may = bool(asked.get("may_stand"))
        return may and await self._settle(run, seq, self.runs.store_or_error().write(approve)) is True

    async def _settle(self, run: str, seq: int, decision: Awaitable[object]) -> object:
        """Return the result of a decision; None if it did not count."""
        try:
            return await decision
        except RunsError as error:  # another decision was faster, or the rules have changed
            log.info("decision_refused", run=run, call=seq, code=error.code)
        except StoreError as error:
            log.error("decision_not_written", run=run, error=str(error))
        finally:
            self.runs.changes.wake(run)
        return None

    def leave(self, run: str) -> None:
        """Withdraw what a client was asked about a run for which it no longer waits."""
        self._channels.pop(run, NO_CLIENT).leave()
        self._unshown.pop(run, {}).clear()
        for scope in self._open.pop(run, {}).values():
            scope.cancel()
