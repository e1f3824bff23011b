"""Group commits of one run, on a store that commits when the test says so, or before `submit` returns."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from portal.base.caller import LOCAL
from portal.base.requests import ExecuteCode
from portal.records.ledger import Ledger
from portal.records.store.records import FencedError, StoreError
from portal.runs.answer import Answer
from portal.runs.changes import Changes
from portal.runs.journal import Journal
from portal.runs.leases import Leases
from portal.runs.past import EntryRow, Piece, RunHead
from portal.runs.segment_state import SegmentState
from sandbox_runtime.call_port import CallError, Outcome
from sandbox_runtime.recording import Recording
from tests.portal.peers import DEADLINE_SECONDS
from tests.portal.rows import opened
from upstreams.redaction import Redaction

HOME: Any = SimpleNamespace(
    settings=SimpleNamespace(max_age_days=1), mask=Redaction([]), leases=Leases(None), changes=Changes()
)


class Store:
    """Commits in `submit`, or, while `is_held`, in `commit`."""

    def __init__(self, folder: Path) -> None:
        self.tables, self.is_held, self.jobs, self.made = opened(folder), False, list[Any](), list[bool]()

    def submit(
        self, work: Any, done: Callable[[Any, Any], None], *, is_lasting: bool, is_brief: bool = False
    ) -> None:
        self.jobs.append((work, done))
        self.made.append(is_lasting)
        if not self.is_held:
            self.commit()

    def commit(self, error: Exception | None = None) -> None:
        work, done = self.jobs.pop(0)
        try:
            if error is not None:
                raise error
            with self.tables.transaction():
                result = work(self.tables)
        except (StoreError, FencedError) as failure:
            done(None, failure)
        else:
            done(result, None)

    async def write(self, work: Any, *, is_lasting: bool = False) -> None:
        ended = anyio.Event()
        self.submit(work, lambda _, __: ended.set(), is_lasting=is_lasting)
        await ended.wait()

    async def until_job(self) -> None:
        while not self.jobs:
            await anyio.lowlevel.checkpoint()

    def states(self) -> list[str]:
        return [call.state for call in self.tables.calls("run")]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


@pytest.fixture
async def journal(store: Store) -> Journal:
    ledger, authorization = Ledger(), SimpleNamespace(counted={})
    for seq in range(1, 9):
        ledger.open(seq, "git.push")
    piece = Piece("run", RunHead(ExecuteCode("1"), LOCAL, None))
    state = SegmentState(piece, Recording(), ledger, authorization.counted)
    return Journal(state, HOME, store, 0.1, authorization)


async def intend_all(journal: Journal, *seqs: int) -> dict[int, CallError | Exception | None]:
    """What `intend` returns or raises for calls of the same moment."""
    ends: dict[int, CallError | Exception | None] = {}

    async def intend(seq: int) -> None:
        try:
            ends[seq] = await journal.intend(seq, "git.push")
        except FencedError as error:
            ends[seq] = error

    async with anyio.create_task_group() as tasks:
        for seq in seqs:
            tasks.start_soon(intend, seq)
    return ends


async def committed(store: Store, *errors: Exception | None) -> None:
    for error in errors:
        await store.until_job()
        store.commit(error)


@pytest.mark.parametrize("is_held", [False, True])
async def test_calls_of_the_same_moment_share_a_lasting_transaction(
    store: Store, journal: Journal, is_held: bool
) -> None:
    store.is_held = is_held
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(committed, store, *[None] * is_held)
        assert await intend_all(journal, 1, 2, 3) == {1: None, 2: None, 3: None}
    assert (store.made, store.states()) == ([True], ["intended"] * 3)


@pytest.mark.parametrize(("seq", "is_alone"), [(8, True), (7, False)])
async def test_a_call_that_is_alone_is_journaled_in_its_turn_of_the_loop_and_others_wait_for_more(
    store: Store, journal: Journal, seq: int, is_alone: bool
) -> None:
    async def work() -> Outcome:
        return Outcome(error=await journal.intend(seq, "git.push"))

    call = journal.call(journal.state.ledger[seq], work)  # the script has made eight
    with pytest.raises(StopIteration) if is_alone else nullcontext():
        call.send(None)
    assert store.states() == ["intended"] * is_alone
    call.close()


async def test_the_answer_of_a_run_whose_first_intent_is_being_written_is_written(
    store: Store, journal: Journal
) -> None:
    store.is_held = True
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(intend_all, journal, 1)
        await store.until_job()
        tasks.start_soon(committed, store, None, None)  # it begins when `finish` waits
        await journal.finish(Answer("ok", "run"))
    assert store.tables.row("run").state == "ok"


async def test_an_outcome_that_could_not_be_written_is_written_later(
    store: Store, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("portal.runs.journal.RETRY_SECONDS", 0.001)

    async def work() -> Outcome:
        return Outcome(error=await journal.intend(1, "git.push"))

    entry = journal.state.ledger[1]
    await journal.call(entry, work)
    entry.end("done")
    store.is_held = True
    with anyio.fail_after(DEADLINE_SECONDS):
        await committed(store, StoreError("full"), None)
    assert store.states() == ["done"]


async def test_a_fault_of_the_portal_leaves_nobody_waiting(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(EntryRow, "of")
    with anyio.fail_after(DEADLINE_SECONDS), pytest.raises(AttributeError):
        await journal.intend(1, "git.push")


@pytest.mark.parametrize("is_suspended", [True, False])
async def test_a_call_during_a_suspension_goes_on_only_if_that_fails(
    store: Store, journal: Journal, is_suspended: bool
) -> None:
    ends = None
    await journal.begin()
    store.is_held = True
    with journal.scope:
        async with anyio.create_task_group() as tasks:
            with anyio.CancelScope() as given_up:
                tasks.start_soon(journal.park)
                await store.until_job()
                given_up.cancel()
            tasks.start_soon(committed, store, None if is_suspended else StoreError("full"), None)
            ends = await intend_all(journal, 2)
    assert ends == (None if is_suspended else {2: None})
    assert store.tables.row("run").state == ("waiting" if is_suspended else "running")


async def test_a_run_that_another_portal_took_over_stops(store: Store, journal: Journal) -> None:
    await journal.begin()
    with store.tables.transaction():
        store.tables.database.execute("UPDATE runs SET epoch = 2")
    ends = await intend_all(journal, 1)
    assert isinstance(ends[1], FencedError) and journal.scope.cancel_called
    assert store.states() == []


@pytest.mark.parametrize("error", [None, FencedError("run"), StoreError("away")])
async def test_a_call_is_sent_only_if_the_run_is_still_held_once_its_intent_is_written(
    store: Store, journal: Journal, error: Exception | None
) -> None:
    async def hold(run: str, epoch: int, lapses: int) -> int:
        assert (run, epoch, store.states()) == ("run", 1, ["intended"])
        if error is not None:
            raise error
        return lapses

    journal.runs = SimpleNamespace(**{**vars(HOME), "leases": SimpleNamespace(hold=hold, lapses=0)})
    end = (await intend_all(journal, 1))[1]
    assert getattr(end, "code", end) == ("journal_failed" if isinstance(error, StoreError) else error)
