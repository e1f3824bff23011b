"""Requests that were abandoned are somebody's until they are answered."""

import anyio
import pytest

from upstreams.notifications import AbandonedRequests

pytestmark = pytest.mark.anyio


async def abandon(requests: AbandonedRequests, owner: str | None) -> int:
    with anyio.CancelScope() as scope, requests.sending(owner) as request_id:
        scope.cancel()
        await anyio.lowlevel.checkpoint()
    return request_id


async def test_abandoned_request_is_its_owners_until_it_is_answered() -> None:
    requests = AbandonedRequests()
    first, second = [await abandon(requests, "a") for _ in range(2)]
    third = await abandon(requests, None)
    assert requests.owners() == {"a", None}
    assert requests.answered(first)
    assert requests.answered(str(third))
    assert requests.owners() == {"a"}
    assert requests.answered(second)
    assert requests.owners() == set()


async def test_only_the_first_answer_to_what_was_sent_is_one() -> None:
    requests = AbandonedRequests()
    abandoned = await abandon(requests, "a")
    with requests.sending("a") as request_id:
        answers = [
            requests.answered(known) for known in (request_id, abandoned, None, 7, request_id, abandoned)
        ]
    assert answers == [True, True, False, False, False, False]
