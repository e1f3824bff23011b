"""Streams of events that break off are asked for again with patience, and those of a call not for ever."""

import pytest

from upstreams import event_requests
from upstreams.event_requests import MOST_RESUMPTIONS, EventRequests, next_pause

pytestmark = pytest.mark.anyio


def pauses(held_seconds: float, *, is_of_call: bool) -> list[float]:
    found = [0.0]
    for _ in range(9):
        found.append(next_pause(found[-1], held_seconds, is_of_call=is_of_call))
    return found[1:]


def test_pauses_grow_where_no_call_waits_and_streams_are_short() -> None:
    assert pauses(0.1, is_of_call=False) == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert pauses(30, is_of_call=False) == [1] * 9
    assert next_pause(60, 30, is_of_call=False) == 1


def test_call_never_waits_longer_than_a_second() -> None:
    assert pauses(0.1, is_of_call=True) == [1] * 9


async def test_stream_of_a_call_is_not_resumed_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_requests, "PAUSE_SECONDS", 0.0)
    requests = EventRequests()
    requests.begin_call()
    assert [await requests.turn() for _ in range(MOST_RESUMPTIONS + 2)] == [True] * MOST_RESUMPTIONS + [
        False,
        False,
    ]
    requests.begin_call()
    assert await requests.turn()


async def test_stream_that_no_call_waits_for_is_listened_to_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_requests, "PAUSE_SECONDS", 0.0)
    requests = EventRequests()
    assert all([await requests.turn() for _ in range(MOST_RESUMPTIONS + 2)])
