"""Requests that were given up are somebody's until they are answered."""

import anyio
import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, INVALID_PARAMS

from upstreams.given_up import GivenUp

pytestmark = pytest.mark.anyio


async def give_up(requests: GivenUp, owner: str | None) -> int:
    with anyio.CancelScope() as scope, requests.sending(owner) as request_id:
        scope.cancel()
        await anyio.lowlevel.checkpoint()
    return request_id


async def test_one_that_was_given_up_is_its_owners_until_it_is_answered() -> None:
    requests = GivenUp()
    first, second = [await give_up(requests, "a") for _ in range(2)]
    third = await give_up(requests, None)
    assert requests.owners() == {"a", None}
    assert requests.answered(first)
    assert requests.answered(str(third))
    assert requests.owners() == {"a"}
    assert requests.answered(second)
    assert requests.owners() == set()


async def test_only_the_first_answer_to_what_was_sent_is_one() -> None:
    requests = GivenUp()
    given_up = await give_up(requests, "a")
    with requests.sending("a") as request_id:
        answers = [
            requests.answered(known) for known in (request_id, given_up, None, 7, request_id, given_up)
        ]
    assert answers == [True, True, False, False, False, False]


async def test_one_whose_answer_was_lost_is_its_owners_and_one_that_was_refused_is_nobodys() -> None:
    requests = GivenUp()
    with pytest.raises(MCPError), requests.sending("lost"):
        raise MCPError(CONNECTION_CLOSED, "SSE stream ended without a response")
    with pytest.raises(MCPError), requests.sending("refused") as request_id:
        requests.answered(request_id)
        raise MCPError(INVALID_PARAMS, "no such issue")
    assert requests.owners() == {"lost"}


async def test_one_that_ended_or_was_answered_before_is_nobodys() -> None:
    requests = GivenUp()
    with requests.sending("a"):
        pass
    with pytest.raises(KeyError), requests.sending("a"):
        raise KeyError
    with anyio.CancelScope() as scope, requests.sending("a") as request_id:
        requests.answered(request_id)
        scope.cancel()
        await anyio.lowlevel.checkpoint()
    assert requests.owners() == set()


async def test_ids_are_never_used_again() -> None:
    requests = GivenUp()
    assert len({await give_up(requests, "a") for _ in range(3)}) == 3
