"""Requests over HTTP that are read on although they were given up.

Before 2026-07-28 to hang up is not to cancel a request, and its answer tells that the upstream works on it no more.
Each takes a socket and a task meanwhile.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from weakref import WeakKeyDictionary

import anyio
import httpx2

from upstreams.errors import UpstreamAnswerError, UpstreamError, UpstreamLostError
from upstreams.given_up import GIVEN_UP_SECONDS
from upstreams.http_status import described_http
from upstreams.room import Held, Room

MAX_GIVEN_UP: Final = 16
"""Of one connection; with another, the one that was given up first is closed."""

_CUT_OFF: Final = b"event: cut-off\n\n"
"""Makes half an event one of a kind that nobody reads."""


class OpenPost:
    """One request, from when it is sent until its answer was read, of which it holds what has come."""

    def __init__(self, request_id: int | None, held: Held) -> None:
        self.request_id = request_id
        self.held = held
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

    def __init__(self, room: Room) -> None:
        self._room = room
        self._open: dict[int | None, OpenPost] = {}
        self._given_up: dict[int | None, OpenPost] = {}
        # The SDK has a task for each request, and asks in it for the rest of events that broke off.
        self._of_tasks: WeakKeyDictionary[asyncio.Task[Any], OpenPost] = WeakKeyDictionary()

    def opened(self, request_id: int | None) -> OpenPost:
        """One that is about to be sent."""
        post = self._open[request_id] = OpenPost(request_id, Held(self._room, is_of_call=True))
        return post

    def close(self, post: OpenPost) -> None:
        """Nothing more of it is read."""
        post.held.release()
        self._open.pop(post.request_id, None)
        self._given_up.pop(post.request_id, None)

    def close_with_task(self, post: OpenPost) -> None:
        """Nothing more of it is read when this task has ended."""
        task = asyncio.current_task()
        assert task
        self._of_tasks[task] = post
        task.add_done_callback(lambda _: self.close(post))

    def of_task(self) -> OpenPost | None:
        """The one that this task reads the answer to."""
        task = asyncio.current_task()
        assert task
        return self._of_tasks.get(task)

    def give_up(self, request_id: int) -> None:
        """Nobody waits for it any more. It is closed, unless there is little of its answer."""
        post = self._open.get(request_id)
        if post is None:
            return
        post.held.abandon()
        if post.held.is_large:
            post.end_by(-math.inf)
            return
        post.end_by(anyio.current_time() + GIVEN_UP_SECONDS)
        self._given_up[request_id] = post
        if len(self._given_up) > MAX_GIVEN_UP:
            self._given_up.pop(next(iter(self._given_up))).end_by(-math.inf)


class WantedEvents(httpx2.AsyncByteStream):
    """The events that answer a request, until that is closed or they cannot be read: then they end with the answer that
    `stand_in` makes of the error. Each of their pieces has whole lines."""

    def __init__(
        self,
        events: httpx2.AsyncByteStream,
        post: OpenPost,
        stand_in: Callable[[UpstreamError], bytes],
    ) -> None:
        self._events = events
        self._post = post
        self._stand_in = stand_in

    async def __aiter__(self) -> AsyncIterator[bytes]:
        pieces = aiter(self._events)
        while True:
            try:
                with self._post.waiting():
                    piece = await anext(pieces, None)
            except UpstreamLostError as error:
                yield self._last_event(error)
                return
            except httpx2.DecodingError as error:
                cause = error.__cause__
                told = cause if isinstance(cause, UpstreamError) else None
                yield self._last_event(told or UpstreamAnswerError(described_http(error)))
                return
            if piece is None:
                return
            yield piece

    def _last_event(self, error: UpstreamError) -> bytes:
        return _CUT_OFF + b"data: " + self._stand_in(error) + b"\n\n"

    async def aclose(self) -> None:
        await self._events.aclose()
