"""The statements do what the tables of lives say: each event changes the rows that it applies to, and no others."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import get_args

import pytest

from portal.records.store.records import (
    CALL_LIFE,
    OPEN,
    RUN_LIFE,
    CallKind,
    CallRow,
    CallRowState,
    FencedError,
    RunState,
)
from portal.records.store.run_tables import RunTables
from tests.portal.rows import Tables, begun, living

CALL_EVENTS: dict[str, Callable[[RunTables, str], object]] = {
    "approved": lambda file, run: file.decide(run, 1, "approved", b"{}", "ann"),
    "denied": lambda file, run: file.decide(run, 1, "denied", b"{}", "ann"),
    "delivered": lambda file, run: file.deliver(file.hook(run, "name"), b"1"),
    "due": lambda file, run: file.claim(run),
    "given_up": lambda file, run: file.park(run, 1, [2]),
}
RUN_EVENTS: dict[str, Callable[[RunTables, str], object]] = {
    "parked": lambda file, run: file.park(run, 1, [1]),
    "woken": lambda file, run: file.deliver(file.hook(run, "name"), b"1"),
    "due": lambda file, run: file.claim(run),
    "left": lambda file, run: file.claim(run),
    "ended": lambda file, run: file.finish(run, "ok", None),
}
FACTS: dict[str, str] = {"due": f"wake_at = {time.time() - 1}", "left": "wake_at = 9e9, holder = 'gone'"}
"""What else is true of a run to which the event happens. Otherwise a portal that lives holds it."""

KINDS: tuple[CallKind, ...] = get_args(CallKind)


def test_a_first_decision_counts_and_no_second_one_does() -> None:
    steps = CALL_LIFE.values()
    assert not any(step.applies(other.after, kind) for step in steps for other in steps for kind in KINDS)
    assert set(RUN_LIFE["ended"].before) == {*OPEN}, "nothing happens to a run that has ended"
    assert all({*step.before} <= {*OPEN} for step in RUN_LIFE.values())
    asking = {kind for kind in KINDS if CALL_LIFE["approved"].applies("waiting", kind)}
    assert asking == {"ask", "approve"}, "a person decides nothing else"


@pytest.mark.parametrize("event", CALL_LIFE)
def test_what_happens_to_a_call_is_what_its_table_says(tables: Tables, event: str) -> None:
    file, step = tables(), CALL_LIFE[event]
    for kind in KINDS:
        for state in get_args(CallRowState):
            run = begun(file).id
            with file.transaction():
                file.advance(
                    run, 1, calls=[CallRow(run, 1, kind, "git.merge", state, name="name", due_at=1.0)]
                )
                CALL_EVENTS[event](file, run)
            found = file.call(run, 1)
            assert found is not None
            assert found.state == (step.after if step.applies(state, kind) else state), (kind, state)


@pytest.mark.parametrize("event", RUN_LIFE)
def test_what_happens_to_a_run_is_what_its_table_says(tables: Tables, event: str) -> None:
    file, step, facts = tables(holder="own"), RUN_LIFE[event], FACTS.get(event, "wake_at = 9e9")
    for state in get_args(RunState):
        with living(tables) as other:
            run = begun(other).id
            with file.transaction():
                file.database.execute(f"UPDATE runs SET state = ?, {facts} WHERE id = ?", (state, run))
                before = file.row(run)
                with suppress(FencedError):
                    RUN_EVENTS[event](file, run)
        after = file.row(run)
        assert before is not None and after is not None
        if not step.applies(state):
            assert (after.state, after.wake_at, after.epoch) == (state, before.wake_at, before.epoch)
        else:
            assert after.state == ("ok" if event == "ended" else step.after), state
            assert (after.wake_at == 0) is (event == "woken")
            assert after.epoch == 1 + (event in ("due", "left", "ended")), "the former holder is fenced"
