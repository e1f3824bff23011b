"""What a script sees of each fault of a stdio server, how often the server acted, and that the portal recovers.

`act` declares nothing and may never be sent twice; `look` is read-only and may. Beside every fault a healthy upstream
answers, and afterwards the faulty one does, too.
"""

from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from tests.upstreams.faults.bench import Bench, Seen, bench, logged, stdio_entry
from upstreams import health
from upstreams.health import FAILURES_IN_A_ROW

pytestmark = pytest.mark.anyio

OK = Seen("ok", "done")
LOST = Seen("upstream_lost", "unknown")
LATE = Seen("upstream_timeout", "unknown")
UNREADABLE = Seen("upstream_answer", "unknown")
REFUSED = Seen("upstream_refused", "failed")
DOWN = Seen("upstream_unavailable", "refused")


@dataclass(frozen=True)
class Fault:
    """What is seen of a call that may not be repeated and of one that may; how often each arrived and acted."""

    name: str
    act: Seen
    look: Seen
    arrivals: int = 1
    """Of `look`; `act` arrives once."""
    effects: int = 1
    look_effects: int = 1
    reconnects: bool = False


FAULTS = [
    Fault("hang_after_acting", LATE, LATE),
    Fault("stop_reading", LATE, LATE, effects=0, look_effects=0, reconnects=True),
    Fault("crash_before_acting", LOST, OK, arrivals=2, effects=0, reconnects=True),
    Fault("crash_in_the_answer", LOST, OK, arrivals=2, look_effects=2, reconnects=True),
    Fault("close_stdout", LOST, OK, arrivals=2, look_effects=2, reconnects=True),
    Fault("answer_what_nobody_asked", OK, OK),
    Fault("banner", OK, OK),
    Fault("flood_stderr_lines", OK, OK),
    Fault("much_progress", OK, OK),
    Fault("tool_is_gone", REFUSED, REFUSED, effects=0, look_effects=0),
    Fault("error_without_sense", REFUSED, REFUSED, effects=0, look_effects=0),
]

# Calls that nobody answers end at this deadline; a machine that is busy still answers the others within it.
CALL_SECONDS = 1.0
ANSWERED = ("ok", "upstream_answer", "upstream_lost", "upstream_refused")


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
async def test_call_is_sent_again_only_if_it_may_be(tmp_path: Path, fault: Fault) -> None:
    is_answered = fault.act.code in ANSWERED and fault.look.code in ANSWERED
    entry = stdio_entry(tmp_path, fault.name, call_seconds=30 if is_answered else CALL_SECONDS)
    async with bench(tmp_path, entry) as bench_:
        assert await bench_.call_beside("faulty.act") == fault.act
        assert len(logged(tmp_path, "arrival", "act")) == 1
        assert len(logged(tmp_path, "effect", "act")) == fault.effects
        await assert_recovered(bench_, tmp_path, fault, 1)
        assert await bench_.call_beside("faulty.look") == fault.look
        arrivals = logged(tmp_path, "arrival", "look")
        assert len(arrivals) == fault.arrivals
        assert len({key for _, _, key in arrivals}) == 1
        assert len(logged(tmp_path, "effect", "look")) == fault.look_effects
        await assert_recovered(bench_, tmp_path, fault, 2)


async def assert_recovered(bench_: Bench, folder: Path, fault: Fault, strikes: int) -> None:
    """The faulty upstream answers again, on a new connection only where the old one was of no use."""
    connections = 1 + strikes if fault.reconnects else 1
    await bench_.watched.until(lambda: bench_.connections >= connections)
    assert await bench_.call("faulty.fine", n=7) == OK
    assert len(logged(folder, "start")) == connections


CUTS = [
    "too_long",
    "garbage_with_the_id",
    "never_ending_line",
    "flood_notices",
    "flood_stdout",
    "flood_requests",
]


@pytest.mark.parametrize("fault", CUTS)
async def test_server_that_sends_too_much_is_cut_off(
    tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "FIRST_OPEN_SECONDS", 0.0)
    async with bench(tmp_path, stdio_entry(tmp_path, fault)) as bench_:
        faulty = bench_.watched["faulty"]
        assert await bench_.call_beside("faulty.act") == UNREADABLE
        await bench_.watched.until(lambda: faulty.state.status == "failing")
        assert "sent" in faulty.state.detail
        assert await bench_.call("faulty.fine") == OK
        assert faulty.state.status == "ready"
        assert len(logged(tmp_path, "arrival", "act")) == 1
        assert len(logged(tmp_path, "start")) == 2


async def test_calls_to_a_server_that_closed_its_stdin_go_to_its_next_connection(tmp_path: Path) -> None:
    async with bench(tmp_path, stdio_entry(tmp_path, "close_stdin")) as bench_:
        assert await bench_.call("faulty.act") == OK
        async with anyio.create_task_group() as tasks:
            for number in range(2 * FAILURES_IN_A_ROW):
                tasks.start_soon(lambda n: bench_.call("faulty.fine", n=n), number)
        assert {row["state"] for row in bench_.ledger()} == {"done"}
        assert len(logged(tmp_path, "arrival", "fine")) == 2 * FAILURES_IN_A_ROW
        assert len(logged(tmp_path, "start")) == 2


STARTS = [
    ("exit_at_start", DOWN),
    ("silent_at_start", DOWN),
    ("nonsense_version", DOWN),
    ("handshake_refused", DOWN),
    ("listing_refused", DOWN),
    ("log_at_start", OK),
    ("flood_at_start", DOWN),
    ("pages_in_a_circle", OK),
]


@pytest.mark.parametrize(("fault", "seen"), STARTS, ids=[fault for fault, _ in STARTS])
async def test_fault_of_the_start(tmp_path: Path, fault: str, seen: Seen) -> None:
    connect_seconds = 1 if fault == "silent_at_start" else 30
    async with bench(tmp_path, stdio_entry(tmp_path, fault, connect_seconds=connect_seconds)) as bench_:
        assert await bench_.call_beside("faulty.fine") == seen
        assert len(logged(tmp_path, "arrival")) == (1 if seen == OK else 0)
