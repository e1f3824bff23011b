"""Requests over HTTP that are read on although they were given up.

Before 2026-07-28 to hang up is not to cancel a request, and its answer tells that the upstream works on it no more.
Each takes a socket and a task meanwhile.
"""

import math
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Final

import anyio
import httpx2

from upstreams.errors import UpstreamLostError
from upstreams.given_up import GIVEN_UP_SECONDS

MAX_GIVEN_UP: Final = 16
"""Of one connection; with another, the one that was given up first is closed."""


class OpenPost:
    """One request, from when it is sent until its answer was read."""

    def __init__(self) -> None:
        self._deadline = math.inf
        self._scope: anyio.CancelScope | None = None

    def end_by(self, deadline: float) -> None:
        """Wait for it until then, by the clock of anyio."""
        self._deadline = deadline
        if self._scope is not None:
            self._scope.deadline = deadline

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Around waiting for the upstream.

        Raises:
            UpstreamLostError: It was given up, and it is time to close it.
        """
        with anyio.CancelScope(deadline=self._deadline) as self._scope:
            yield
        is_over, self._scope = self._scope.cancelled_caught, None
        if is_over:
            raise UpstreamLostError("nobody waits for the answer any more")


class OpenPosts:
    """Those of one connection, by their ids."""

    def __init__(self) -> None:
        self._open: dict[int | None, OpenPost] = {}
        self._given_up: dict[int | None, OpenPost] = {}

    def opened(self, request_id: int | None) -> OpenPost:
        """One that is about to be sent."""
        post = self._open[request_id] = OpenPost()
        return post

    def close(self, request_id: int | None) -> None:
        """Nothing more of it is read."""
        self._open.pop(request_id, None)
        self._given_up.pop(request_id, None)

    def give_up(self, request_id: int) -> None:
        """Nobody waits for it any more."""
        post = self._open.get(request_id)
        if post is None:
            return
        post.end_by(anyio.current_time() + GIVEN_UP_SECONDS)
        self._given_up[request_id] = post
        if len(self._given_up) > MAX_GIVEN_UP:
            self._given_up.pop(next(iter(self._given_up))).end_by(-math.inf)


class WantedEvents(httpx2.AsyncByteStream):
    """The events that answer a request until it is closed; they end with the answer that `lost` makes then."""

    def __init__(
        self,
        events: httpx2.AsyncByteStream,
        post: OpenPost,
        *,
        lost: Callable[[UpstreamLostError], bytes],
        close: Callable[[], None],
    ) -> None:
        self._events = events
        self._post = post
        self._lost = lost
        self._close = close

    async def __aiter__(self) -> AsyncIterator[bytes]:
        pieces = aiter(self._events)
        while True:
            try:
                with self._post.waiting():
                    piece = await anext(pieces, None)
            except UpstreamLostError as error:
                yield b"\n\ndata: " + self._lost(error) + b"\n\n"
                return
            if piece is None:
                return
            yield piece

    async def aclose(self) -> None:
        self._close()
        await self._events.aclose()
