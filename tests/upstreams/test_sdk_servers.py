"""Servers made with the official SDK, in this process, in both eras of the protocol. Those that do not know the first
request of 2026-07-28 start as if it had not been sent, and are remembered.
"""

from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from mcp.server import Server
from mcp.server.mcpserver import Context, MCPServer
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from manifests.json_value import Json
from tests.upstreams.peers import DEADLINE_SECONDS, Clock, fleet_at, fleet_of, in_memory, raw_server
from upstreams import connector, supervisor
from upstreams.errors import UpstreamArgumentError, UpstreamTimeoutError
from upstreams.session import MOST_EXTENSION
from upstreams.tools import ToolResult
from upstreams.transports import notifications
from upstreams.transports.messages import known_handshake

WITH_HEADER = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
BAD_HEADER = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "no good name"}}}


async def list_tools(context: Any, params: Any) -> ListToolsResult:
    schemas = {"plain": {"type": "object"}, "with_header": WITH_HEADER, "bad_header": BAD_HEADER}
    promise = {"type": "object", "required": ["kept"]}
    tools = [Tool(name=name, input_schema=schema, output_schema=promise) for name, schema in schemas.items()]
    return ListToolsResult(tools=tools)


async def call_tool(context: Any, params: Any) -> CallToolResult:
    if params.name == "fail":
        return CallToolResult(content=[TextContent(text="it failed")], is_error=True)
    return CallToolResult(content=[TextContent(text="ok")], structured_content={"broken": "promise"})


async def test_modern_server_works_and_its_broken_promise_is_passed_on() -> None:
    async with in_memory(Server("sdk", on_list_tools=list_tools, on_call_tool=call_tool)) as upstream:
        assert upstream.state.status == "ready"
        result = await upstream.call("plain", {}, seconds=DEADLINE_SECONDS)
        assert result.structured == {"broken": "promise"}
        failed = await upstream.call("fail", {}, seconds=DEADLINE_SECONDS)
        assert (failed.is_error, failed.content) == (True, [{"type": "text", "text": "it failed"}])


async def test_argument_that_no_header_can_repeat_is_refused_before_sending() -> None:
    server = Server("sdk", on_list_tools=list_tools, on_call_tool=call_tool)
    async with in_memory(server) as upstream:
        with pytest.raises(UpstreamArgumentError):
            await upstream.call("with_header", {"region": "\ud800"}, seconds=DEADLINE_SECONDS)


class Worker:
    """Reports progress before each step of a call, and hears that it has arrived. A step takes .9 of `call_seconds`."""

    def __init__(self, steps: int, last_seconds: float = 0.9) -> None:
        self.server = Server("worker", on_list_tools=list_tools, on_call_tool=self._work)
        self.arrived: list[float] = []
        self._steps, self._last_seconds = steps, last_seconds
        self._news = anyio.Event()
        self._clock = Clock()

    async def _work(self, context: Any, params: Any) -> CallToolResult:
        for step in range(self._steps):
            self._news = anyio.Event()
            await context.session.report_progress(step)
            await self._news.wait()
            self._clock.advance(0.9 if step < self._steps - 1 else self._last_seconds)
            await anyio.lowlevel.checkpoint()
        return CallToolResult(content=[])

    def note(self, progress: float, total: float | None, message: str | None) -> None:
        self.arrived.append(progress)
        self._news.set()


async def test_call_goes_on_as_long_as_its_tool_reports_progress() -> None:
    worker = Worker(5)
    async with in_memory(worker.server) as upstream:
        await upstream.call("plain", {}, seconds=1.0, progress=worker.note)
    assert len(worker.arrived) == 5


@pytest.mark.parametrize(("worker", "steps"), [((1_000,), MOST_EXTENSION + 2), ((2, 1.1), 2)])
async def test_call_ends_at_ten_times_its_seconds_or_without_progress(
    worker: tuple[Any, ...], steps: int
) -> None:
    made = Worker(*worker)
    async with in_memory(made.server) as upstream:
        with pytest.raises(UpstreamTimeoutError, match="10 times"):
            await upstream.call("plain", {}, seconds=1.0, progress=made.note)
    assert len(made.arrived) in (steps, steps + 1), "one may be on its way"


async def test_request_has_a_progress_token_though_nobody_listens() -> None:
    tokens = []

    async def call_tool(context: Any, params: Any) -> CallToolResult:
        tokens.append(params.meta and params.meta.get("progressToken", params.meta.get("progress_token")))
        return CallToolResult(content=[])

    async with in_memory(Server("sdk", on_list_tools=list_tools, on_call_tool=call_tool)) as upstream:
        await upstream.call("plain", {}, seconds=DEADLINE_SECONDS)
    assert isinstance(tokens[0], int)


async def test_arguments_marked_for_headers_reach_a_modern_http_server() -> None:
    # The SDK's server answers a call whose headers do not match its arguments with an error.
    server = Server("sdk", on_list_tools=list_tools, on_call_tool=call_tool)
    async with fleet_at(server.streamable_http_app()) as fleet:
        assert not (await fleet.call("with_header", {"region": "eu-1 é"})).is_error


def changing() -> ASGIApp:
    """A server that has one tool more after a call of its first."""
    server = MCPServer("changing")

    @server.tool()
    async def grow(context: Context) -> None:
        server.add_tool(lambda: None, name="grown")
        await context.notify_tools_changed()

    return server.streamable_http_app()


@pytest.mark.parametrize("refusals", [[], [503, 401, 502]])
async def test_modern_server_is_listed_again(refusals: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if a gateway before it refuses the subscription for a while."""
    monkeypatch.setattr(notifications, "_RELISTEN_SECONDS", 0.001)
    inner = changing()

    async def gateway(scope: Scope, receive: Receive, send: Send) -> None:
        is_listening = (b"mcp-method", b"subscriptions/listen") in scope.get("headers", ())
        app = Response(status_code=refusals.pop(0)) if refusals and is_listening else inner
        await app(scope, receive, send)

    async with fleet_at(gateway) as fleet:
        await fleet.call("grow")
        await fleet.until(lambda: "grown" in [tool.name for tool in fleet.one.tools])
    assert not refusals


@pytest.mark.parametrize("handshake", [True, False])
async def test_stateless_server_that_a_newer_one_replaces_is_listed_again(
    handshake: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing tells of it: there is no session to lose, and it sends no notifications."""
    monkeypatch.setattr(supervisor, "RELIST_SECONDS", 0.01)
    monkeypatch.setattr(supervisor, "RELIST_PAUSE_SECONDS", 0.0)
    names = ["old"]

    async def list_tools(context: Any, params: Any) -> ListToolsResult:
        return ListToolsResult(tools=[Tool(name=name, input_schema={"type": "object"}) for name in names])

    app = Server("deployed", on_list_tools=list_tools).streamable_http_app(stateless_http=True)
    async with fleet_at(app, handshake=handshake) as fleet:
        assert [tool.name for tool in fleet.one.tools] == ["old"]
        names[:] = ["new"]
        await fleet.until(lambda: [tool.name for tool in fleet.one.tools] == ["new"])


async def test_tools_stay_if_they_are_listed_in_another_order_or_a_later_page_fails() -> None:
    """Else functions would be gone for the next ten minutes, or the library would be built anew for nothing."""
    answers: list[list[str]] = [["a", "b"], ["c"], ["c", "b"], ["a"], ["a", "b"], [], ["a", "b"], ["d"]]

    async def list_tools(context: Any, params: Any) -> ListToolsResult:
        if not (names := answers.pop(0)):
            raise MCPError(-32603, "too busy")
        tools = [Tool(name=name, input_schema={"type": "object"}) for name in names]
        return ListToolsResult(tools=tools, next_cursor=None if len(names) == 1 else "more")

    async with in_memory(Server("sdk", on_list_tools=list_tools)) as upstream:
        session, listed = upstream.availability.session, upstream.tools
        assert session is not None
        assert [await upstream.connector.relist(session) for _ in range(2)] == [False, False]
        assert upstream.tools is listed and "too busy" in upstream.diagnostics[0]
        assert await upstream.connector.relist(session)
        assert [tool.name for tool in upstream.tools] == ["a", "b", "d"]


class Gateway:
    """Cuts the first subscription of a server after its first event, answers the second by itself, and then none."""

    def __init__(self, app: ASGIApp, refusal: int | None) -> None:
        self.app, self.refusal, self.opened = app, refusal, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_listening = (b"mcp-method", b"subscriptions/listen") in scope.get("headers", ())
        self.opened += is_listening
        if is_listening and self.opened == 1:
            await self._cut(scope, receive, send)
        elif is_listening and self.opened == 2 and self.refusal is None:
            await anyio.sleep_forever()
        elif is_listening and self.opened == 2:
            await Response(status_code=self.refusal or 0)(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _cut(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with anyio.create_task_group() as tasks:

            async def passed_on(message: Any) -> None:
                await send(message)
                if message.get("body"):
                    tasks.cancel_scope.cancel()

            await self.app(scope, receive, passed_on)
        await send({"type": "http.response.body"})


@pytest.mark.parametrize("refusal", [404, None])
async def test_subscription_that_worked_is_opened_again_whatever_refuses_it(
    refusal: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a deployment, a gateway may answer in its own way for a while, or not at all."""
    monkeypatch.setattr(notifications, "_RELISTEN_SECONDS", 0.001)
    gateway = Gateway(changing(), refusal)

    async with fleet_at(gateway, connect_seconds=1) as fleet:
        with anyio.fail_after(DEADLINE_SECONDS):
            while gateway.opened < 3:  # noqa: ASYNC110
                await anyio.sleep(0.01)
        await fleet.call("grow")
        await fleet.until(lambda: "grown" in [tool.name for tool in fleet.one.tools])


ONCE = ["initialize", "notifications/initialized", "tools/list"]


@pytest.mark.parametrize(("probe", "is_remembered"), [
    ("complains", True), ("has no id", False), ("odd result", False), ("dies", True), ("dies later", True),
    ("is deaf", True), (None, False),
])  # fmt: skip
async def test_server_that_does_not_know_the_probe_starts_and_gets_it_again_unless_it_cost_time(
    tmp_path: Path, probe: str | None, is_remembered: bool
) -> None:
    log, more = tmp_path / "log", {} if probe is None else {"probe": probe}
    spec = raw_server(log=str(log), connect_seconds=1.5 if probe == "is deaf" else 20, **more)
    for sent_first in (["server/discover"], [] if is_remembered else ["server/discover"]):
        async with fleet_of(listings=tmp_path / "kept", settled=False, one=spec) as fleet:
            await fleet.until(lambda: fleet.one.state.status == "ready")
            assert fleet.one.stderr_tail() == ""
        assert log.read_text().splitlines() == [*sent_first, *ONCE]
        log.unlink()


async def test_modern_server_that_starts_slowly_stays_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connector, "PROBE_SECONDS", 0.0)
    server = MCPServer("modern")

    @server.tool()
    def revision(context: Context) -> str:
        return str(context.session.protocol_version)

    async with in_memory(server._lowlevel_server) as upstream:
        result: ToolResult = await upstream.call("revision", {}, seconds=DEADLINE_SECONDS)
        assert result.structured == {"result": "2026-07-28"}


@pytest.mark.parametrize("probe", ["comes first", "comes last", "is forgotten"])
async def test_server_may_answer_both_the_probe_and_the_handshake(
    probe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("upstreams.connector.BOTH_SECONDS", DEADLINE_SECONDS)  # machines that test are busy
    async with fleet_of(one=raw_server(probe=probe)) as fleet:
        assert fleet.one.state.status == "ready", fleet.one.state.detail


@pytest.mark.parametrize(
    ("info", "known"),
    [
        ({"name": "a", "version": "1", "icons": "nope", "websiteUrl": 3}, {"name": "a", "version": "1"}),
        ({"name": "a"}, {"name": "a", "version": ""}),
        ({"name": "a", "version": 1.5}, {"name": "a", "version": "1.5"}),
        ("a", "a"),
    ],
)
def test_odd_informational_fields_cost_nothing_but_themselves(info: Json, known: Json) -> None:
    needed = {"protocolVersion": "2025-06-18", "capabilities": {}}
    result = {**needed, "serverInfo": info, "instructions": 7, "_meta": []}
    assert known_handshake(result) == {**needed, "serverInfo": known}


@pytest.mark.parametrize(
    ("handshake", "field"),
    [({"serverInfo": {"version": "1"}}, "serverInfo.name"), ({"protocolVersion": None}, "protocolVersion")],
)
async def test_invalid_answer_to_initialize_is_told_by_its_field(handshake: Json, field: str) -> None:
    async with fleet_of(one=raw_server(handshake=handshake)) as fleet:
        assert f"`{field}`" in fleet.one.state.detail
