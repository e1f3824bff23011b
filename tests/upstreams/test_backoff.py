"""A failing upstream is tried again after longer and longer, never very long, and not in step with others."""

from upstreams.backoff import FIRST_SECONDS, LONGEST_SECONDS, Backoff


def test_waits_double_up_to_a_cap_however_long_it_fails() -> None:
    backoff = Backoff()
    waits = [backoff.failed() for _ in range(2_000)]
    for number, seconds in enumerate(waits[:8]):
        whole = min(LONGEST_SECONDS, FIRST_SECONDS * 2**number)
        assert whole / 2 <= seconds <= whole
    assert max(waits) <= LONGEST_SECONDS


def test_waits_of_upstreams_that_failed_together_differ() -> None:
    assert len({Backoff().failed() for _ in range(20)}) > 10


def test_success_starts_anew() -> None:
    backoff = Backoff()
    for _ in range(10):
        backoff.failed()
    backoff.succeeded()
    assert (backoff.failures, backoff.failed() <= FIRST_SECONDS) == (0, True)
