"""What a run's transactions write, and when it may be suspended: without a store, a sandbox or a clock."""

from dataclasses import replace

import pytest

from manifests.grants import Limits
from manifests.manifest import Budget
from manifests.names import Glob
from portal.base.caller import LOCAL
from portal.base.requests import ExecuteCode
from portal.records.ledger import Entry, Ledger
from portal.records.store.records import CallRow
from portal.runs.answer import Answer
from portal.runs.past import EntryRow, Past, Piece, RunHead, new_row
from portal.runs.segment_state import Activity, Rows, SegmentState
from sandbox_runtime.call_port import CallError, Outcome
from sandbox_runtime.recording import Event, Origin, Record, Recording

HEAD = RunHead(ExecuteCode("1"), LOCAL, None)
CALLS = [CallRow("run", seq, "call", "git.push", "intended") for seq in (1, 2)]
PARSED = Record(Origin.now("0" * 64), "1", (), Limits(), 0, None, ())
SENT, ENDED = Event("sent", "1 git.push {}"), Event("finished", "x")


@pytest.fixture
def state() -> SegmentState:
    state = SegmentState(Piece("run", HEAD), Recording(), Ledger(), {})
    for seq in (1, 2):
        state.ledger.open(seq, "git.push")
    return state


def committed(state: SegmentState) -> Rows:
    rows = state.begin()
    state.ended(rows, is_committed=True)
    return rows


def test_each_thing_is_written_once_and_chunks_are_numbered(state: SegmentState) -> None:
    state.recording.events.append(SENT)
    state.touched.add(1)
    state.calls.append(CALLS[0])
    first = committed(state)
    assert (first.is_first, first.head, first.events, first.calls) == (True, HEAD, (SENT,), (CALLS[0],))
    assert [entry.seq for entry in first.entries] == [1]
    assert (first.written.epoch, first.written.chunks, state.with_row) == (1, 1, {1})
    second = committed(state)
    assert second == Rows("run", first.written, False, None, (), (), (), (), None)
    state.recording.events.append(SENT)
    assert (third := state.begin()).events == (SENT,) and third.written.chunks == 2


def test_a_call_that_is_sent_next_is_read_as_unknown_until_it_is_known(state: SegmentState) -> None:
    state.touched.update((1, 2))
    state.calls.append(CALLS[0])
    assert [entry.state for entry in committed(state).entries] == ["unknown", "not_started"]
    state.touched.add(1)  # the script gave it up before it was sent
    state.calls.append(CALLS[1])
    assert [entry.state for entry in committed(state).entries] == ["not_started", "unknown"]


def test_a_failed_transaction_drops_its_calls_and_its_chunk_is_contained_in_the_next(
    state: SegmentState,
) -> None:
    state.recording.events.append(SENT)
    state.touched.add(1)
    state.calls.append(CALLS[0])
    state.outcomes.append((2, "done", Outcome(1)))
    failed = state.begin()
    state.calls.append(CALLS[1])  # noted while it is under way: for the next one
    state.outcomes.append((1, "done", Outcome(2)))
    state.touched.add(2)
    state.recording.events.append(SENT)
    state.ended(failed, is_committed=False)
    after = state.begin()
    assert (after.is_first, after.head, after.calls) == (True, HEAD, (CALLS[1],))
    assert after.written.chunks == failed.written.chunks == 1
    assert [entry.seq for entry in after.entries] == [1, 2]
    assert (len(after.events), [seq for seq, *_ in after.outcomes]) == (2, [2, 1])
    assert not state.with_row
    state.ended(after, is_committed=True)
    assert (state.outcomes, state.with_row) == ([], {2})


def test_an_outcome_that_comes_during_a_transaction_is_left_for_the_next(state: SegmentState) -> None:
    state.outcomes.append((1, "done", Outcome(1)))
    rows = state.begin()
    state.outcomes.append((2, "done", Outcome(2)))
    state.ended(rows, is_committed=True)
    assert [seq for seq, *_ in rows.outcomes] == [1]
    assert [seq for seq, *_ in state.begin().outcomes] == [2]


def test_the_ending_is_written_only_with_the_answer(state: SegmentState) -> None:
    state.recording.events += [SENT, ENDED]
    assert committed(state).events == (SENT,)
    assert (last := state.begin(Answer("ok", "run"))).events == (ENDED,) and last.answer is not None


def test_the_head_is_written_when_it_changes(state: SegmentState) -> None:
    committed(state)
    assert committed(state).head is None
    state.recording.head = PARSED
    assert state.begin().head == state.head == replace(HEAD, record=PARSED)


def test_a_resumed_segment_goes_on_after_what_earlier_ones_wrote() -> None:
    past = Past(replace(PARSED, events=(SENT, SENT)), calls={1: CALLS[0]}, chunks=3)
    state = SegmentState(Piece("run", HEAD, past, 7), Recording(), Ledger(), {})
    state.recording.events += [SENT, SENT, SENT]
    rows = state.begin()
    assert (rows.is_first, rows.events, rows.written[:3]) == (False, (SENT,), (7, 4, 3))
    assert state.with_row == {1}


@pytest.mark.parametrize(
    ("in_flight", "waiting", "changed_at", "cpu_seconds", "is_idle"),
    [
        ({1}, {1}, 0.0, 0.0, True),
        ({1, 2}, {1, 2}, 0.09, 4.9, True),  # a timer that fires a little early
        ({1, 2}, {1}, 0.0, 0.0, False),  # a call is at its upstream
        ({1}, {1}, 0.2, 0.0, False),  # one just ended
        ({1}, {1}, 0.0, 5.0, False),  # the script computes
    ],
)
def test_run_is_suspended_only_if_nothing_but_waits_was_under_way(
    in_flight: set[int], waiting: set[int], changed_at: float, cpu_seconds: float, is_idle: bool
) -> None:
    activity = Activity(in_flight, waiting, changed_at)
    assert activity.is_idle(now=10.0, seconds=10.0, cpu_seconds=cpu_seconds) is is_idle


def test_each_request_of_a_call_counts_to_its_budgets_again_when_the_run_goes_on(state: SegmentState) -> None:
    spent = Budget(Glob.of("git.push"), 9, None, ("tools", "budgets", 0))
    state.counted, state.touched = {1: [spent, spent]}, {1}
    assert [entry.budgets for entry in state.begin().entries] == [(spent.keys, spent.keys)]


def test_an_entry_that_was_written_is_restored_as_it_was() -> None:
    before, after = (Entry(1, "git.push", 0.0) for _ in range(2))
    before.request, before.answered_by, before.arguments = "git.pull", "middleware", "n=1"
    before.sources, before.at = {"git", "mail"}, 100.0
    before.end("failed", CallError("tool_error", "no", "hint"))
    EntryRow.of(before, ()).restore(after)
    began, ended = before.began - after.began, before.ended - after.ended
    assert round(began - ended, 3) == 0
    assert replace(after, began=before.began, ended=before.ended) == before


def test_a_run_began_when_its_script_did_and_a_fork_when_it_was_forked() -> None:
    head = replace(HEAD, began=100.0)
    own, fork = (new_row("run_1", "local", head, parent, 1.0) for parent in (None, "run_0"))
    assert own.began == 100.0
    assert fork.began > 100.0 and own.expires > 86_400.0 + 100.0
