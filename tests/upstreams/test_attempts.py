"""An upstream that was not reached is tried again now and then, and calls wait only for an attempt that is young."""

import pytest

from upstreams.attempts import (
    PATIENCE_AFTER_HANGING_SECONDS,
    PATIENCE_SECONDS,
    PATIENCE_TIMES,
    RETRY_ON_CALL_SECONDS,
    Attempts,
)

REST_SECONDS = 28.0
CONNECT_SECONDS = 60.0


class Clock:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def resting(clock: Clock) -> Attempts:
    """One attempt has just failed."""
    attempts = Attempts(clock, CONNECT_SECONDS)
    attempts.rest(REST_SECONDS, was_reached=False)
    return attempts


def patience_after(attempts: Attempts, clock: Clock) -> float:
    """How long the next attempt is waited for, from its turn, when the last has failed now."""
    attempts.rest(REST_SECONDS, was_reached=False)
    attempts.begin()
    return attempts.patience_end - clock.seconds


def test_no_call_waits_while_it_rests(clock: Clock, resting: Attempts) -> None:
    assert not resting.begin_for_call()
    assert resting.patience_end < clock.seconds


def test_calls_wait_for_an_attempt_that_has_just_begun_and_not_for_one_that_lasts(
    clock: Clock, resting: Attempts
) -> None:
    resting.begin()
    began = clock.seconds
    assert resting.patience_end == began + PATIENCE_SECONDS
    clock.seconds += PATIENCE_SECONDS * 10
    assert resting.begin_for_call()
    assert resting.patience_end == began + PATIENCE_SECONDS


def test_a_call_ends_a_rest_that_lasted(clock: Clock, resting: Attempts) -> None:
    clock.seconds += RETRY_ON_CALL_SECONDS
    assert resting.begin_for_call()
    assert resting.patience_end == clock.seconds + PATIENCE_SECONDS
    resting.begin()  # the supervisor, which wakes up later
    assert resting.patience_end == clock.seconds + PATIENCE_SECONDS


def test_after_an_attempt_that_hung_the_next_is_waited_for_only_a_moment(
    clock: Clock, resting: Attempts
) -> None:
    resting.begin()
    clock.seconds += PATIENCE_SECONDS
    assert patience_after(resting, clock) == PATIENCE_AFTER_HANGING_SECONDS
    clock.seconds += PATIENCE_SECONDS / 2
    assert patience_after(resting, clock) == PATIENCE_SECONDS, "this one failed by itself"


def test_attempt_whose_time_was_up_hung_however_short_that_is(clock: Clock) -> None:
    attempts = Attempts(clock, 6.0)
    clock.seconds += 6.0
    assert patience_after(attempts, clock) == PATIENCE_AFTER_HANGING_SECONDS


def test_upstream_that_is_known_to_start_slowly_is_waited_for_longer(clock: Clock, resting: Attempts) -> None:
    resting.begin()
    clock.seconds += 20
    resting.succeed()
    clock.seconds += CONNECT_SECONDS
    resting.rest(REST_SECONDS, was_reached=True)
    resting.begin()
    assert resting.patience_end == clock.seconds + PATIENCE_TIMES * 20
    clock.seconds += PATIENCE_SECONDS / 2
    assert patience_after(resting, clock) == PATIENCE_TIMES * 20, "this one failed by itself"


@pytest.mark.parametrize(
    ("good_seconds", "patience_seconds"), [(55, PATIENCE_SECONDS), (4, PATIENCE_TIMES * 4)]
)
def test_upstream_that_once_started_slowly_and_now_hangs_is_not_waited_for_as_long(
    clock: Clock, resting: Attempts, good_seconds: float, patience_seconds: float
) -> None:
    resting.begin()
    clock.seconds += good_seconds
    resting.succeed()
    resting.rest(REST_SECONDS, was_reached=True)
    resting.begin()
    clock.seconds += CONNECT_SECONDS
    assert patience_after(resting, clock) == patience_seconds


def test_connection_that_lasted_and_was_lost_is_no_attempt_that_hung(clock: Clock, resting: Attempts) -> None:
    resting.begin()
    resting.succeed()
    clock.seconds += CONNECT_SECONDS
    resting.rest(REST_SECONDS, was_reached=True)
    resting.begin()
    assert resting.patience_end == clock.seconds + PATIENCE_SECONDS


def test_attempt_begins_anew_when_its_turn_comes(clock: Clock, resting: Attempts) -> None:
    resting.begin()
    clock.seconds += PATIENCE_SECONDS
    resting.begin_turn()
    assert resting.patience_end == clock.seconds + PATIENCE_SECONDS
    assert patience_after(resting, clock) == PATIENCE_SECONDS


def test_it_says_when_it_is_tried_again(clock: Clock, resting: Attempts) -> None:
    assert resting.prospect == "the next attempt is in 28 s, or with a call in 5 s"
    clock.seconds += RETRY_ON_CALL_SECONDS
    assert resting.prospect == "the next attempt is in 23 s, or with a call"
    resting.begin()
    clock.seconds += 12
    assert resting.prospect == "an attempt has been under way for 12 s"
    resting.rest(2, was_reached=False)
    assert resting.prospect == "the next attempt is in 2 s"
