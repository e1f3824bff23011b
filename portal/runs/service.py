"""The runs of one portal: starts them in the background, resumes those that were left, and wakes those that wait."""

import os
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio
import structlog
from anyio.abc import TaskGroup

from manifests.manifest import Manifest
from portal.answer import Answer
from portal.authority import Authorization
from portal.definitions import ExecuteCode
from portal.ledger import Ledger
from portal.passthrough.notifications import NO_CLIENT, ClientChannel
from portal.runs.components import Components
from portal.runs.decisions import RunsError, answer_of, cancel_run, decide_call, find_run
from portal.runs.journal import HEAD, Journal, Past, RunHead, new_row, new_run_id
from portal.runs.records import FencedError, RunState, StoredRun, StoreError
from portal.runs.results import KeptResults
from portal.runs.store import DAY_SECONDS, RunFile
from portal.runs.writer import RunStore
from portal.sessions import Caller
from sandbox_runtime.recording import Recording
from sandbox_runtime.result import RunError
from sandbox_runtime.sandbox import Sandbox

if TYPE_CHECKING:
    from portal.execution import Execution, Piece

log = structlog.get_logger()

POLL_SECONDS: Final = 0.1
"""How often the portal looks whether somebody else has written the store, such as the command line."""

SWEEP_SECONDS: Final = 600.0
RETRY_SECONDS: Final = 1.0
MAX_RETRIES: Final = 8
"""A run that no worker could take up is tried again, each time after twice as long."""

UNATTENDED_SECONDS: Final = 0.05
"""After this time a run is parked for which no client waits."""

_MTIME_SECONDS: Final = 0.02


@dataclass(eq=False)
class Attendance:
    """A client that waits for the answer of a run, and can be asked meanwhile."""

    channel: ClientChannel
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    questions: set[int] = field(default_factory=set)
    answer: Answer | None = None


class Runs:
    """The runs of one portal. `executions` are those of its profiles, and are set before `keep` starts."""

    def __init__(
        self,
        manifest: Manifest,
        store: RunStore | None,
        components: Components,
        tasks: TaskGroup,
        *,
        takes_all: bool,
    ) -> None:
        self.settings = manifest.portal.runs
        self.store = store
        self.results = KeptResults(store)
        self.components = components
        url = manifest.portal.runs.public_url
        self.public_url = url and url.rstrip("/")
        """Where events are delivered, without a slash at the end; None if nobody can."""
        self.executions: Sequence[Execution] = ()
        self.news = anyio.Event()
        """Set and replaced after something happened to a run, perhaps. Take it before you read the store."""
        self._began = time.time()
        self._tasks = tasks
        self._takes_all = takes_all
        self._own: set[str] = set()
        self._live: dict[str, Journal] = {}
        self._waits: dict[str, dict[int, anyio.Event]] = {}
        self._attended: dict[str, Attendance] = {}
        self._driving: dict[str, int] = {}
        """The runs that are being taken up, and how often that failed."""
        workers = manifest.portal.server.workers or 8 * (os.cpu_count() or 1)
        # Half of the workers: a thousand runs that wake at once leave the others to new callers.
        self._turns = anyio.CapacityLimiter(max(1, workers // 2))
        self._seen: tuple[int, int] = (0, 0)

    # For executions

    def journal(
        self,
        piece: "Piece",
        recording: Recording | None,
        ledger: Ledger,
        authorization: Authorization,
        mask: Callable[[str], str],
    ) -> Journal | None:
        """The journal of one piece of a run; None without a store."""
        if self.store is None:
            return None
        # Nobody waits for the answer of a run that the portal goes on with.
        is_attended = not piece.epoch or piece.run_id in self._attended
        return Journal(
            run_id=piece.run_id,
            store=self.store,
            waiters=self,
            head=piece.head,
            owner=piece.head.caller.run_owner,
            max_age_days=self.settings.max_age_days,
            park_seconds=self.settings.park_after_seconds if is_attended else UNATTENDED_SECONDS,
            recording=recording,
            ledger=ledger,
            authorization=authorization,
            mask=mask,
            past=piece.past,
            epoch=piece.epoch,
            process_began=self._began,
        )

    async def sandbox_of(self, component: str, present: Sandbox) -> Sandbox:
        """The sandbox for a run that began in this guest component. Raises RecordError: it is not kept."""
        if component == present.component:
            return present
        return await self.components.sandbox(component)

    def opened(self, journal: Journal) -> None:
        """A piece of a run begins in this process."""
        self._live[journal.run_id] = journal
        if not self._takes_all:
            self._own.add(journal.run_id)

    def closed(self, journal: Journal) -> None:
        self._live.pop(journal.run_id, None)
        self._waits.pop(journal.run_id, None)

    def register(self, run: str, seq: int) -> anyio.Event:
        """An event that is set when something about a waiting call may have been decided."""
        return self._waits.setdefault(run, {}).setdefault(seq, anyio.Event())

    def parked(self, run: str) -> None:
        """A run waits in the store from now on."""
        self._note_change()

    async def start(self, execution: "Execution", request: ExecuteCode, caller: Caller) -> Answer:
        """Run a script in the background. The answer says only that it runs, under which id."""
        if self.store is None:
            return Answer("refused", "", error=self.unavailable("A run in the background"))
        head = RunHead(request, caller, execution.profile, is_background=True)
        run = new_run_id()
        row = new_row(run, caller.run_owner, head, None, self.settings.max_age_days)
        try:
            create = partial(RunFile.create, row=row, head=HEAD.dump_json(head))
            await self.store.write(create, is_lasting=True)
        except StoreError as error:
            log.error("run_not_journaled", run=run, error=str(error))
            failure = RunError(
                "journal_failed", "the run cannot be written to the store of runs", hint="Nothing ran."
            )
            return Answer("refused", "", error=failure)
        self._spawn(run)
        return Answer("running", run, notices=(f'Ask for its answer later: execute_code(run="{run}").',))

    def unavailable(self, what: str) -> RunError:
        return RunError(
            "runs_unavailable",
            f"{what} needs the store of runs, which cannot be used; the portal's log says why",
            hint="Set runs.store in portal.yaml to a file that can be written.",
        )

    async def end(self, run: str, state: RunState) -> None:
        """End a run whose client is gone."""
        if self.store is not None:
            await self.store.write(partial(RunFile.finish, run=run, state=state, answer=None))

    def attend(self, run: str, channel: ClientChannel) -> Attendance:
        """The client that waits for this run."""
        return self._attended.setdefault(run, Attendance(channel))

    async def ask_client(
        self,
        run: str,
        seq: int,
        channel: ClientChannel,
        ask: Callable[[], Awaitable[tuple[bool, str] | None]],
    ) -> None:
        """Ask the person at the client in the background. The answer counts if nobody decided before."""
        attendance = self.attend(run, channel)
        attendance.questions.add(seq)

        async def work() -> None:
            with attendance.scope:
                try:
                    answer = await ask()
                    if answer is not None:
                        is_approved, reason = answer
                        await self.decide(run, seq, is_approved=is_approved, by="client", reason=reason)
                except RunsError:
                    pass  # somebody else was faster
                finally:
                    attendance.questions.discard(seq)
                    self._note_change()

        self._tasks.start_soon(work)

    async def final_answer(self, answer: Answer, *, to_its_end: bool = False) -> Answer:
        """The answer for a client whose run waits: the final one if it has an open question, or waits `to_its_end`."""
        attendance = (
            self.attend(answer.run_id, NO_CLIENT) if to_its_end else self._attended.get(answer.run_id)
        )
        while attendance is not None:
            if attendance.answer is not None and attendance.answer.status != "waiting":
                return attendance.answer
            is_going_on = answer.run_id in self._driving or answer.run_id in self._live
            if not attendance.questions and not is_going_on and not to_its_end:
                return attendance.answer or answer
            await self.news.wait()
        return answer

    def leave(self, run: str) -> None:
        """The client of a run does not wait any more."""
        attendance = self._attended.pop(run, None)
        if attendance is not None:
            attendance.scope.cancel()

    # For people and their tools

    async def answer(self, run: str, owner: str | None) -> Answer:
        """The answer of a run as it is now. Raises RunsError: the owner has no such run."""
        return answer_of(await self.load(run, owner))

    async def load(self, run: str, owner: str | None) -> StoredRun:
        """Everything about a run. Raises RunsError: the owner has no such run."""

        def load(file: RunFile) -> StoredRun | None:
            find_run(file, run, owner)
            return file.load(run)

        stored = await self.store_or_error().read(load)
        assert stored is not None
        return stored

    async def decide(self, run: str, seq: int | None, **decision: Any) -> int:
        """Approve or deny a waiting call, as `decide_call` does. Returns its number. Raises RunsError."""
        decide = partial(decide_call, run=run, seq=seq, **decision)
        call = await self.store_or_error().write(decide, is_lasting=True)
        self.wake(run)
        return call.seq

    async def cancel(self, run: str, owner: str | None) -> None:
        """End a run in any state. Raises RunsError."""
        await self.store_or_error().write(partial(cancel_run, run=run, owner=owner), is_lasting=True)
        self._fence(run)
        self._note_change()

    async def deliver(self, token: str, payload: bytes) -> bool | None:
        """Deliver an event. Returns whether it was the first delivery; None for an unknown token."""
        deliver = partial(RunFile.deliver, token=token, payload=payload)
        found = await self.store_or_error().write(deliver, is_lasting=True)
        if found is None:
            return None
        self.wake(found[0])
        return found[1]

    def store_or_error(self) -> RunStore:
        """The store. Raises RunsError: there is none."""
        if self.store is None:
            error = self.unavailable("This")
            raise RunsError(error.code, error.message, error.hint)
        return self.store

    def wake(self, run: str) -> None:
        """Something about a run has been decided."""
        for changed in self._waits.pop(run, {}).values():
            changed.set()
        self._note_change()

    # The dispatcher

    async def keep(self) -> None:
        """Go on with the runs that the last portal left, and wake runs that are due, until cancelled."""
        store = self.store
        if store is None:
            return
        for run in await store.read(RunFile.running) if self._takes_all else ():
            self._spawn(run)
        swept_at = 0.0
        while True:
            news, now = self.news, time.time()
            try:
                if now - swept_at > SWEEP_SECONDS or await store.read(RunFile.next_expiry) <= now:
                    swept_at = now
                    await self._sweep(store, now)
                for run in await store.read(partial(RunFile.due, now=now, limit=1_000)):
                    self._spawn(run)
                next_at = await store.read(partial(RunFile.next_due, now=now))
            except StoreError as error:
                log.error("runs_not_read", error=str(error))
                next_at = now + RETRY_SECONDS
            await self._until(min(next_at, swept_at + SWEEP_SECONDS), news)

    async def _sweep(self, store: RunStore, now: float) -> None:
        keep_seconds = self.settings.keep_days * DAY_SECONDS
        for run in await store.write(partial(RunFile.sweep, now=now, keep_seconds=keep_seconds)):
            self._fence(run)
            self._note_change()
        self.components.delete_others(await store.read(RunFile.components))

    async def _until(self, at: float, news: anyio.Event) -> None:
        """Wait until a time, news, or somebody else's change of the file."""
        with anyio.move_on_after(max(at - time.time(), 0.001)):
            while not news.is_set():
                with anyio.move_on_after(POLL_SECONDS):
                    await news.wait()
                    return
                if self._is_file_changed():
                    await self._look_again()

    def _is_file_changed(self) -> bool:
        """Whether anybody has written the store since the last time, as its files tell."""
        assert self.store is not None
        try:
            status = os.stat(f"{self.store.path}-wal")
        except OSError:
            return False
        now = status.st_mtime_ns, status.st_size
        # A second write within one tick of the file system's clock changes nothing here.
        is_recent = time.time() - status.st_mtime < POLL_SECONDS + _MTIME_SECONDS
        is_changed, self._seen = now != self._seen or is_recent, now
        return is_changed

    async def _look_again(self) -> None:
        """Tell what another process may have decided about live runs."""
        assert self.store is not None
        held = {run: journal.epoch for run, journal in self._live.items() if journal.epoch}
        if held:
            epochs = await self.store.read(partial(RunFile.epochs, runs=[*held]))
            for run, epoch in held.items():
                journal = self._live.get(run)
                if journal is not None and journal.epoch == epoch and epochs.get(run) != epoch:
                    self._fence(run)
        for run in [*self._waits]:
            self.wake(run)
        self._note_change()

    def _fence(self, run: str) -> None:
        journal = self._live.get(run)
        if journal is not None:
            journal.fence()

    def _spawn(self, run: str) -> None:
        if run not in self._driving and (self._takes_all or run in self._own):
            self._driving[run] = 0
            self._tasks.start_soon(self._drive, run)

    async def _drive(self, run: str) -> None:
        """Go on with a run until it has ended or waits again."""
        try:
            while True:
                async with self._turns:
                    if await self._go_on(run):
                        return
                self._driving[run] += 1
                await anyio.sleep(RETRY_SECONDS * 2 ** self._driving[run])
        except StoreError as error:
            log.error("run_not_taken_up", run=run, error=str(error))
        except Exception as error:  # it must not end the portal
            log.exception("run_failed", run=run, error=type(error).__name__)
            await self.end(run, "error")
        finally:
            self._driving.pop(run, None)
            self._note_change()

    async def _go_on(self, run: str) -> bool:
        """One piece of a run. Returns whether it ended or waits; if not, it is to be tried again."""
        assert self.store is not None
        try:
            stored = await self.store.write(partial(RunFile.claim, run=run))
        except FencedError:
            return True
        try:
            head = HEAD.validate_json(stored.head)
            past = Past.of(stored, head)
        except ValueError:
            log.exception("journal_damaged", run=run)
            await self.end(run, "stuck")
            return True
        execution = next((each for each in self.executions if each.profile == head.profile), None)
        if execution is None or (head.record is None and not head.is_background):
            log.warning("run_cannot_go_on", run=run, profile=head.profile)
            await self.end(run, "error")
            return True
        attendance = self._attended.get(run)
        channel = attendance.channel if attendance is not None else NO_CLIENT
        answer = await execution.go_on(run, head, past, stored.row.epoch, channel)
        if (
            answer.error is not None
            and answer.error.code == "sandbox_busy"
            and self._driving[run] < MAX_RETRIES
        ):
            return False
        if attendance is not None:
            attendance.answer = answer
        return True

    def _note_change(self) -> None:
        self.news.set()
        self.news = anyio.Event()
