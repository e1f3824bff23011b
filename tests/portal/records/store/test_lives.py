"""What can happen to a run and to a call that waits: each event changes the rows that it applies to, and no others."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import get_args

import pytest

from portal.records.store.records import (
    ASKING,
    CALL_LIFE,
    OPEN,
    CallKind,
    CallRow,
    CallRowState,
    FencedError,
    RunState,
)
from portal.records.store.run_tables import RunTables
from tests.portal.rows import Tables, begun, living

CALL_EVENTS: dict[CallRowState, Callable[[RunTables, str], object]] = {
    "approved": lambda file, run: file.decide(run, 1, "approved", b"{}", "ann"),
    "denied": lambda file, run: file.decide(run, 1, "denied", b"{}", "ann"),
    "delivered": lambda file, run: file.deliver(file.hook(run, "name"), b"1"),
    "due": lambda file, run: file.claim(run),
    "done": lambda file, run: file.park(run, 1, [2]),
}
LATER = "wake_at = 9e9"
RUN_EVENTS: dict[str, tuple[tuple[str, ...], RunState, str, Callable[[RunTables, str], object]]] = {
    "parked": (OPEN, "waiting", LATER, lambda file, run: file.park(run, 1, [1])),
    "woken": (("waiting",), "waiting", LATER, lambda file, run: file.deliver(file.hook(run, "name"), b"1")),
    "due": (("waiting",), "running", f"wake_at = {time.time() - 1}", lambda file, run: file.claim(run)),
    "left": (("running",), "running", f"{LATER}, holder = 'gone'", lambda file, run: file.claim(run)),
    "ended": (OPEN, "ok", LATER, lambda file, run: file.finish(run, "ok", None)),
}
"""The states in which it can happen, the state after it, and what is true of the run, which a living portal holds."""


def test_a_first_decision_counts_and_no_second_one_does() -> None:
    assert "waiting" not in CALL_LIFE
    assert CALL_LIFE["approved"] == CALL_LIFE["denied"] == ASKING == ("ask", "approve"), (
        "a person decides no more"
    )


@pytest.mark.parametrize("event", CALL_LIFE)
def test_what_happens_to_a_call_is_what_its_table_says(tables: Tables, event: CallRowState) -> None:
    file = tables()
    for kind in get_args(CallKind):
        for state in get_args(CallRowState):
            run = begun(file).id
            with file.transaction():
                file.advance(run, 1, calls=[CallRow(run, 1, kind, "a.b", state, name="name", due_at=1.0)])
                CALL_EVENTS[event](file, run)
            found = file.call(run, 1)
            assert found is not None
            applies = state == "waiting" and kind in CALL_LIFE[event]
            assert found.state == (event if applies else state), (kind, state)


@pytest.mark.parametrize("event", RUN_EVENTS)
def test_what_happens_to_a_run_is_what_the_table_says(tables: Tables, event: str) -> None:
    file, (before, after, facts, happen) = tables(holder="own"), RUN_EVENTS[event]
    for state in get_args(RunState):
        with living(tables) as other:
            run = begun(other).id
            with file.transaction():
                file.database.execute(f"UPDATE runs SET state = ?, {facts} WHERE id = ?", (state, run))
                was = file.row(run)
                with suppress(FencedError):
                    happen(file, run)
        now = file.row(run)
        assert was is not None and now is not None
        if state not in before:
            assert (now.state, now.wake_at, now.epoch) == (state, was.wake_at, was.epoch)
        else:
            assert now.state == after, state
            assert (now.wake_at == 0) is (event == "woken")
            assert now.epoch == 1 + (event in ("due", "left", "ended")), "the former holder is fenced"
