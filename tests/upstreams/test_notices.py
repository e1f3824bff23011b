"""Nobody waits for a server that does not take what has no answer: that a call was cancelled, or a reply."""

from typing import Any

import anyio
import pytest
from starlette.responses import Response

from manifests.portal_manifest import HttpUpstream
from tests.upstreams.peers import DEADLINE_SECONDS, fleet_of, http_peer
from tests.upstreams.raw_http_server import RawHttpServer
from tests.upstreams.test_http_upstreams import url_of
from upstreams.errors import UpstreamTimeoutError
from upstreams.health import FAILURES_IN_A_ROW
from upstreams.transports import http
from upstreams.upstream import Upstream

pytestmark = pytest.mark.anyio

AT_ONCE_SECONDS = 3.0
"""Less than the SDK has a cancelled caller wait for its notice."""


class Held:
    """How many calls are not answered."""

    def __init__(self) -> None:
        self._count = 0
        self._changed = anyio.Event()

    def add(self) -> None:
        self._count += 1
        self._changed.set()
        self._changed = anyio.Event()

    async def until(self, count: int) -> None:
        with anyio.fail_after(DEADLINE_SECONDS):
            while self._count < count:
                await self._changed.wait()


class Mute(RawHttpServer):
    """Never answers a POST of a notification but the first one, which ends the handshake."""

    def __init__(self) -> None:
        super().__init__()
        self.held = Held()

    async def _handle(self, request: Any) -> Response:
        message = await request.json() if request.method == "POST" else {}
        if message.get("method") != "notifications/cancelled":
            return await super()._handle(request)
        while (await request.receive())["type"] != "http.disconnect":
            pass
        return Response(status_code=202)

    async def _call(self, message: dict[str, Any]) -> Response:
        if message["params"]["name"] == "wait":
            self.held.add()
            await anyio.sleep_forever()
        return await super()._call(message)


async def wait_in_vain(upstream: Upstream, seconds: float = 60) -> None:
    with pytest.raises(UpstreamTimeoutError):
        await upstream.call("wait", {}, seconds=seconds)


async def test_calls_that_meet_their_deadline_end_and_others_go_on_although_no_notice_of_it_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "NOTICE_SECONDS", 1_000.0)
    async with (
        http_peer(Mute().app) as peer,
        fleet_of(real=HttpUpstream(url=url_of(peer.port, "mcp"))) as fleet,
    ):
        upstream = fleet["real"]
        with anyio.fail_after(AT_ONCE_SECONDS):
            async with anyio.create_task_group() as tasks:
                for _ in range(FAILURES_IN_A_ROW - 1):
                    tasks.start_soon(wait_in_vain, upstream, 0.2)
            await upstream.call("echo", {"a": 1, "b": 1}, seconds=DEADLINE_SECONDS)
