"""The life of a connection as tables: states, pauses, how long calls wait, and what is sent first; and its circuit,
which opens on an upstream that keeps failing, and closes when it answers again.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any

import anyio
import pytest

from upstreams import health
from upstreams.connector import Handshake, HandshakeFirstError, HandshakeUnansweredError
from upstreams.errors import (
    UpstreamCircuitOpenError,
    UpstreamDownError,
    UpstreamError,
    UpstreamFaultError,
    UpstreamLostError,
    UpstreamNeedsLoginError,
    UpstreamRefusedError,
    UpstreamSessionError,
    UpstreamTimeoutError,
    UpstreamUnauthorizedError,
    UpstreamUnavailableError,
)
from upstreams.health import (
    FAILURES_IN_A_ROW,
    FIRST_OPEN_SECONDS,
    LONGEST_OPEN_SECONDS,
    LONGEST_PAUSE_SECONDS,
    RECONNECT_WAIT_SECONDS,
    RETRY_ON_CALL_SECONDS,
    STATE_AFTER,
    CircuitBreaker,
    Event,
    Lifecycle,
)
from upstreams.session import REFUSAL_GRACE_SECONDS, Retirement

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def life(clock: Clock) -> Lifecycle:
    return Lifecycle(clock, lambda: NOON + timedelta(seconds=clock.seconds))


def fail(life: Lifecycle, reason: str = "refused", **more: Any) -> float:
    """One failed attempt to connect, whose pause has no jitter."""
    return life.lose(reason, "", **{"stable_seconds": None, "needs_login": False, "jitter": 1.0, **more})


@pytest.mark.parametrize("before", STATE_AFTER)
def test_each_event_leads_to_its_state_and_none_out_of_stopped(clock: Clock, before: Event) -> None:
    for event, status in STATE_AFTER.items():
        life = Lifecycle(clock)
        life.note(before, "x")
        life.note(event, "y")
        assert life.state.status == ("stopped" if before == "removed" else status), (before, event)


def test_it_is_down_since_its_first_failure_until_it_is_reached(clock: Clock, life: Lifecycle) -> None:
    for seconds, event, since in [
        (1, "failed", 1), (2, "login_needed", 1), (3, "reopened", 3), (4, "failed", 1), (5, "served", 5),
        (6, "failed", 6), (7, "rested", 7), (8, "reopened", 8), (9, "failed", 9),
    ]:  # fmt: skip
        clock.seconds = seconds
        life.note(event, f"at {seconds}")  # type: ignore[arg-type]
        assert life.state.since == NOON + timedelta(seconds=since), event


def test_same_failure_again_is_no_news(life: Lifecycle) -> None:
    fail(life)
    before = life.state
    fail(life)
    assert life.state is before
    fail(life, "other")
    assert life.state is not before


def test_pauses_double_up_to_the_longest_and_jitter_shortens_them(life: Lifecycle) -> None:
    longer = [health.FIRST_PAUSE_SECONDS * 2**number for number in range(20)]
    assert [fail(life) for _ in longer] == [min(each, LONGEST_PAUSE_SECONDS) for each in longer]
    assert fail(life, jitter=0.5) == LONGEST_PAUSE_SECONDS / 2


@pytest.mark.parametrize(("stable_seconds", "pauses", "status"), [
    (0.0, False, "starting"), (1.0, False, "starting"), (1.1, True, "down"), (None, True, "down"),
])  # fmt: skip
def test_only_a_connection_that_was_stable_is_reopened_at_once_after_a_failure(
    clock: Clock, life: Lifecycle, stable_seconds: float | None, pauses: bool, status: str
) -> None:
    fail(life)
    life.begin_attempt()
    clock.seconds = 1.0
    assert bool(fail(life, stable_seconds=stable_seconds)) is pauses
    assert life.state.status == status


def test_connection_that_keeps_ending_without_an_answer_is_down(life: Lifecycle) -> None:
    pauses = [fail(life, stable_seconds=1.0) for _ in range(3)]
    assert pauses == [0.0, 2 * health.FIRST_PAUSE_SECONDS, 4 * health.FIRST_PAUSE_SECONDS]
    assert life.state.status == "down"


def test_call_ends_a_pause_only_after_some_seconds(clock: Clock, life: Lifecycle) -> None:
    fail(life)
    for seconds, is_news in (0.0, False), (RETRY_ON_CALL_SECONDS - 0.1, False), (RETRY_ON_CALL_SECONDS, True):
        clock.seconds = seconds
        assert life.want() is is_news
    assert not life.want(), "the attempt that it caused is under way"
    assert "an attempt has been running" in life.retry_status


def test_first_call_ends_idling(life: Lifecycle) -> None:
    life.note("rested")
    assert life.want() and life.is_wanted and life.state.status == "starting"
    life.note("served")
    assert (life.is_wanted, life.state.status) == (False, "ready")


@pytest.mark.parametrize(
    ("events", "wait_until", "deadline"),
    [
        ((), -inf, inf),
        (("idle",), -inf, inf),
        (("pause",), -inf, -inf),
        (("pause",), 99.0, 99.0),
        (("pause", "attempt"), -inf, 1 + RECONNECT_WAIT_SECONDS),
        (("pause", "attempt"), 5.0, 1 + RECONNECT_WAIT_SECONDS),
        (("login", "attempt"), 99.0, 1 + RECONNECT_WAIT_SECONDS),
        (("login",), 99.0, -inf),
        (("stop",), 99.0, -inf),
    ],
)
def test_calls_wait_for_a_start_and_briefly_for_an_attempt(
    clock: Clock, life: Lifecycle, events: tuple[str, ...], wait_until: float, deadline: float
) -> None:
    clock.seconds = 1.0
    does = {
        "idle": lambda: life.note("rested"), "pause": lambda: fail(life), "attempt": life.begin_attempt,
        "login": lambda: fail(life, needs_login=True), "stop": lambda: life.note("removed", "gone"),
    }  # fmt: skip
    for event in events:
        does[event]()
    assert life.wait_deadline(wait_until) == deadline


@pytest.mark.parametrize(("event", "kind", "told"), [
    ("reopened", UpstreamUnavailableError, "still starting since 2026-01-01 12:00:00 UTC"),
    ("failed", UpstreamDownError, "down since 2026-01-01 12:00:00 UTC: why; an attempt has been running for 0 s"),
    ("login_needed", UpstreamNeedsLoginError, "why"),
    ("removed", UpstreamDownError, "stopped since 2026-01-01 12:00:00 UTC: why"),
])  # fmt: skip
def test_refusal_says_why_and_since_when(
    life: Lifecycle, event: Event, kind: type[UpstreamError], told: str
) -> None:
    life.note(event, "" if event == "reopened" else "why")
    error = life.unavailable()
    assert (type(error), str(error), error.outcome) == (kind, told, "not_started")


def test_next_attempt_is_announced(clock: Clock, life: Lifecycle) -> None:
    fail(life)
    assert life.retry_status == "the next attempt is in 1 s"
    life.note("served")
    assert life.retry_status == ""


FATAL, SLOW, OTHER = HandshakeFirstError("exited"), HandshakeUnansweredError("late"), UpstreamDownError("no")


@pytest.mark.parametrize(
    ("causes", "at_once", "comes_first"),
    [
        ([FATAL], True, True),
        ([SLOW], False, True),
        ([OTHER], False, False),
        ([FATAL, FATAL], False, False),
        ([FATAL, OTHER], False, False),
        ([FATAL, FATAL, FATAL], True, True),
    ],
)
def test_probe_and_handshake_are_tried_in_turns(
    causes: list[Exception], at_once: bool, comes_first: bool
) -> None:
    handshake = Handshake()
    assert [handshake.failed(cause) for cause in causes][-1] is at_once
    assert handshake.comes_first is handshake.probe_was_fatal is comes_first


def test_older_server_is_greeted_with_the_handshake_next_time() -> None:
    handshake = Handshake()
    for is_modern in (False, True):
        handshake.succeeded(is_modern=is_modern)
        assert (handshake.comes_first, handshake.probe_was_fatal) == (not is_modern, False)


@pytest.mark.parametrize(
    ("failure", "in_grace", "has_answered", "retires", "was_refused"),
    [
        (UpstreamUnauthorizedError("401"), False, True, True, True),
        (UpstreamUnauthorizedError("401"), True, True, False, False),
        (UpstreamDownError("no"), True, False, False, False),
        (UpstreamSessionError("lost"), False, False, True, True),
        (UpstreamSessionError("lost"), True, False, False, False),
        (UpstreamSessionError("lost"), True, True, True, True),
        (UpstreamUnavailableError("stale"), True, False, True, False),
        (UpstreamRefusedError("no"), False, True, False, False),
    ],
)
def test_refused_session_is_replaced_once_in_a_while(
    failure: UpstreamError, in_grace: bool, has_answered: bool, retires: bool, was_refused: bool
) -> None:
    retirement = Retirement()
    retirement.begin_grace(0.0)
    now = REFUSAL_GRACE_SECONDS - 0.1 * in_grace
    assert retirement.note(failure, now, has_answered=has_answered) is retires
    assert (retirement.is_retired, retirement.was_refused) == (retires, was_refused)


def call(circuit: CircuitBreaker, error: Exception | None = None) -> type[Exception] | None:
    """One call that fails like this; the class of what its caller sees."""
    try:
        with circuit.guard():
            if error is not None:
                raise error
    except (UpstreamError, anyio.EndOfStream) as told:
        return type(told)
    return None


def lose(
    circuit: CircuitBreaker, count: int, errors: Sequence[UpstreamError] = (UpstreamLostError("exited"),)
) -> None:
    """This many concurrent calls fail, each with the next of these errors."""
    with pytest.raises(UpstreamError), circuit.guard():
        if count > 1:
            lose(circuit, count - 1, errors)
        raise errors[count % len(errors)]


@pytest.fixture
def opened(clock: Clock) -> CircuitBreaker:
    """A circuit that has just opened."""
    circuit = CircuitBreaker(clock)
    for _ in range(FAILURES_IN_A_ROW):
        call(circuit, UpstreamTimeoutError("late"))
    return circuit


def test_it_opens_after_so_many_failures_in_a_row_and_says_why(opened: CircuitBreaker) -> None:
    assert opened.reason
    with pytest.raises(UpstreamCircuitOpenError, match=r"late.*next try in 5 s") as caught, opened.guard():
        pass
    assert (caught.value.code, caught.value.outcome) == ("circuit_open", "not_started")


@pytest.mark.parametrize("errors", [
    [UpstreamLostError("exited")], [UpstreamFaultError("HTTP 503")],
    [UpstreamFaultError("HTTP 500"), UpstreamLostError("closed the connection")],
], ids=["lost", "answered by a gateway", "both"])  # fmt: skip
def test_one_crash_is_one_failure_for_all_calls(clock: Clock, errors: list[UpstreamError]) -> None:
    circuit = CircuitBreaker(clock)
    for _ in range(FAILURES_IN_A_ROW - 1):
        lose(circuit, FAILURES_IN_A_ROW * 2, errors)
    assert not circuit.reason
    lose(circuit, FAILURES_IN_A_ROW * 2, errors)
    assert circuit.reason


def test_one_call_alone_finds_out_whether_it_works_again(clock: Clock, opened: CircuitBreaker) -> None:
    clock.seconds = FIRST_OPEN_SECONDS
    with opened.guard():
        assert call(opened) is UpstreamCircuitOpenError
    assert call(opened) is None
    assert not opened.reason


def test_failing_probe_opens_it_for_twice_as_long_up_to_a_minute(
    clock: Clock, opened: CircuitBreaker
) -> None:
    seconds = FIRST_OPEN_SECONDS
    for _ in range(6):
        clock.seconds += seconds
        assert call(opened, UpstreamFaultError("503")) is UpstreamFaultError
        seconds = min(seconds * 2, LONGEST_OPEN_SECONDS)
        clock.seconds += seconds - 0.5
        assert call(opened) is UpstreamCircuitOpenError
        clock.seconds -= seconds - 0.5
    clock.seconds += seconds
    assert call(opened) is None
