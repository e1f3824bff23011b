"""A circuit opens on an upstream that keeps failing, and closes when it answers again."""

from collections.abc import Sequence

import anyio
import pytest

from upstreams.errors import (
    UpstreamCircuitOpenError,
    UpstreamError,
    UpstreamFaultError,
    UpstreamLostError,
    UpstreamTimeoutError,
)
from upstreams.health import FAILURES_IN_A_ROW, FIRST_OPEN_SECONDS, LONGEST_OPEN_SECONDS, CircuitBreaker


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


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
def clock() -> Clock:
    return Clock()


@pytest.fixture
def opened(clock: Clock) -> CircuitBreaker:
    """A circuit that has just opened."""
    circuit = CircuitBreaker(clock)
    for _ in range(FAILURES_IN_A_ROW):
        call(circuit, UpstreamTimeoutError("late"))
    return circuit


def test_it_opens_after_so_many_failures_in_a_row_and_says_why(opened: CircuitBreaker) -> None:
    assert opened.is_open
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
    assert not circuit.is_open
    lose(circuit, FAILURES_IN_A_ROW * 2, errors)
    assert circuit.is_open


def test_one_call_alone_finds_out_whether_it_works_again(clock: Clock, opened: CircuitBreaker) -> None:
    clock.seconds = FIRST_OPEN_SECONDS
    with opened.guard():
        assert call(opened) is UpstreamCircuitOpenError
    assert call(opened) is None
    assert not opened.is_open


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
