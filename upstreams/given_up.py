"""Requests that nobody waits for any more, while the upstream may still work on them.

An upstream need not heed that a request was cancelled. What it says and asks then still belongs to that request, and
must not pass for another caller's.
"""

from collections import Counter
from collections.abc import Iterator, Set
from contextlib import contextmanager
from itertools import count
from typing import Final

import anyio
from mcp.shared.dispatcher import coerce_request_id
from mcp.shared.exceptions import MCPError
from mcp_types import RequestId

GIVEN_UP_SECONDS: Final = 300.0
"""How long one counts as under way after it was given up, unless it is answered: one that was heeded never is."""

# Far from those that the SDK's dispatcher counts out itself, and still a number of 32 bits for servers that want one.
_FIRST_ID: Final = 1 << 30


class GivenUp:
    """The requests of one connection, by the ids that they are sent with."""

    def __init__(self) -> None:
        self._ids = count(_FIRST_ID)
        self._unanswered: set[RequestId] = set()
        self._given_up: dict[RequestId, tuple[str | None, float]] = {}
        self._owners: Counter[str | None] = Counter()

    @contextmanager
    def sending(self, owner: str | None) -> Iterator[int]:
        """Around one request of `owner`, None if it is nobody's in particular: the id to send it with."""
        request_id = next(self._ids)
        self._unanswered.add(request_id)
        try:
            yield request_id
        except (anyio.get_cancelled_exc_class(), MCPError):
            if request_id in self._unanswered:
                self._given_up[request_id] = (owner, anyio.current_time() + GIVEN_UP_SECONDS)
                self._owners[owner] += 1
            raise
        finally:
            self._unanswered.discard(request_id)

    def answered(self, request_id: RequestId | None) -> bool:
        """The upstream works on it no more; whether this is the first answer to a request that it was sent."""
        if request_id is None:
            return False
        known = coerce_request_id(request_id)
        is_first = known in self._unanswered or known in self._given_up
        self._unanswered.discard(known)
        self._forget(known)
        return is_first

    def owners(self) -> Set[str | None]:
        """Whose requests it may still work on."""
        # They are given up one after the other, so the first has been there longest.
        while self._given_up and (first := next(iter(self._given_up.items())))[1][1] <= anyio.current_time():
            self._forget(first[0])
        return self._owners.keys()

    def _forget(self, request_id: RequestId) -> None:
        if request_id in self._given_up:
            owner, _ = self._given_up.pop(request_id)
            self._owners[owner] -= 1
            if not self._owners[owner]:
                del self._owners[owner]
