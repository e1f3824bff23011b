"""Reaches an upstream by URL: Streamable HTTP, and the HTTP+SSE transport it replaced."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Final

import anyio
import httpx2
from anyio.abc import ObjectSendStream
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError

from manifests.upstream_sections import HttpUpstream
from upstreams.diagnostics import Diagnostics
from upstreams.errors import UpstreamUnavailableError
from upstreams.http_body import CODING
from upstreams.http_client import SseHttpClient, UpstreamHttpClient
from upstreams.http_credentials import Admission, HttpCredentials
from upstreams.room import Room
from upstreams.trusted_authorities import trusted_authorities
from upstreams.wire import Failures, Wire
from upstreams.wire_text import MAX_MESSAGE_BYTES

_WRITE_SECONDS: Final = 60.0
_LEAST_READ_SECONDS: Final = 300.0
_DAY_SECONDS: Final = 86_400.0


@asynccontextmanager
async def open_http_wire(
    spec: HttpUpstream, diagnostics: Diagnostics, credentials: HttpCredentials, room: Room
) -> AsyncIterator[Wire]:
    """A wire over Streamable HTTP; nothing is sent yet, so this cannot fail."""
    failures = Failures()
    client = UpstreamHttpClient(
        failures,
        diagnostics,
        Admission(spec.url, credentials),
        room,
        headers={**CODING, **spec.headers},
        timeout=_timeout(spec),
        limits=_limits(),
        verify=trusted_authorities(),
    )
    async with (
        client,
        streamable_http_client(str(spec.url), http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES) as (
            read_stream,
            write_stream,
        ),
    ):
        yield Wire(
            read_stream, write_stream, failures=failures, closes_requests=True, stand_ins=client.stand_ins
        )


@asynccontextmanager
async def open_sse_wire(
    spec: HttpUpstream, diagnostics: Diagnostics, credentials: HttpCredentials, room: Room
) -> AsyncIterator[Wire]:
    """A wire over HTTP+SSE, connected within `connect_seconds`.

    An event over 64 MiB ends the connection, which is then opened anew.
    """
    failures = Failures()
    arrived, arriving = anyio.create_memory_object_stream[SessionMessage | Exception]()

    def deliver(answer: JSONRPCError) -> None:
        tasks.start_soon(hand_over, SessionMessage(answer))

    async def hand_over(message: SessionMessage) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # the connection has ended first
            await arrived.send(message)

    def new_client(
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        return SseHttpClient(
            failures,
            diagnostics,
            Admission(spec.url, credentials),
            room,
            deliver=deliver,
            take_message=hand_over,
            headers=headers,
            timeout=timeout,
            auth=auth,
            limits=_limits(),
            verify=trusted_authorities(),
        )

    transport = sse_client(
        str(spec.url),
        headers={**CODING, **spec.headers},
        timeout=min(spec.connect_seconds, _WRITE_SECONDS),
        sse_read_timeout=_DAY_SECONDS,
        httpx_client_factory=new_client,
    )
    # One scope around the whole life: a scope may not end inside a transport that was entered in it.
    with anyio.CancelScope(deadline=anyio.current_time() + spec.connect_seconds) as connecting:
        async with AsyncExitStack() as stack:
            read_stream, write_stream = await stack.enter_async_context(transport)
            connecting.deadline = float("inf")
            tasks = await stack.enter_async_context(anyio.create_task_group())
            tasks.start_soon(_carry, read_stream, arrived)
            yield Wire(arriving, write_stream, failures=failures)
            tasks.cancel_scope.cancel()
    if connecting.cancelled_caught:
        raise UpstreamUnavailableError(f"sent no endpoint within {spec.connect_seconds:g} s")


async def _carry(source: Any, arrived: ObjectSendStream[SessionMessage | Exception]) -> None:
    async with arrived:
        async for item in source:
            await arrived.send(item)


def _timeout(spec: HttpUpstream) -> httpx2.Timeout:
    # Deadlines are the calls' own. The read timeout only collects requests whose caller has long gone: before
    # 2026-07-28 a cancelled call's POST stays open until the server answers it.
    read_seconds = max(_LEAST_READ_SECONDS, spec.call_seconds) + 10
    return httpx2.Timeout(_WRITE_SECONDS, connect=spec.connect_seconds, read=read_seconds, pool=None)


def _limits() -> httpx2.Limits:
    return httpx2.Limits(max_connections=None, max_keepalive_connections=32)
