"""An upstream that was not reached is tried again now and then, and calls wait only for an attempt that is young."""

import pytest

from upstreams.attempts import PATIENCE_SECONDS, RETRY_ON_CALL_SECONDS, Attempts

REST_SECONDS = 28.0


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
    attempts = Attempts(clock)
    attempts.rest(REST_SECONDS)
    return attempts


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


def test_it_says_when_it_is_tried_again(clock: Clock, resting: Attempts) -> None:
    assert resting.prospect == "the next attempt is in 28 s, or with a call in 5 s"
    clock.seconds += RETRY_ON_CALL_SECONDS
    assert resting.prospect == "the next attempt is in 23 s, or with a call"
    resting.begin()
    clock.seconds += 12
    assert resting.prospect == "an attempt has been under way for 12 s"
    resting.rest(2)
    assert resting.prospect == "the next attempt is in 2 s"
