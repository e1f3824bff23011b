"""An upstream that says things while it works; made with the official SDK, in one era or the other."""

from contextvars import ContextVar
from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.runner import serve_loop
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourcesListChanged
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

STATE = "what only the upstream understands"
SECRET = "s3cret-of-the-upstream"
TOOLS = ("count", "hang", "hangs", "cancelled", "ask", "open_page", "sample", "roots", "grow")


class AskError(Exception):
    """It wants to know something first."""

    def __init__(self, request: Any) -> None:
        super().__init__()
        self.request = request


class Chatty:
    """`cancelled` answers once a call of `hang` was cancelled."""

    def __init__(self, era: str) -> None:
        self.era = era
        self.cancelled = anyio.Event()
        self.hanging = anyio.Event()
        self.reads: list[str] = []
        self.acted = 0
        self.ending = ""  # of a URI, a template, a prompt's name and its argument's
        self.more: list[types.Resource] = []
        self.bus = InMemorySubscriptionBus()
        self._params: ContextVar[Any] = ContextVar("params")
        self.server: Server[Any] = Server(
            "chatty",
            version="1",
            on_list_tools=self._list,
            on_call_tool=self._call,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
            on_subscriptions_listen=ListenHandler(self.bus),
        )
        if era == "legacy":
            # Without it the SDK's client, and so the portal, goes on with the older handshake.
            del self.server._request_handlers["server/discover"]

    async def serve_stdio(self, reader: Any, writer: Any) -> None:
        if self.era == "modern":
            await self.server.run(reader, writer, self.server.create_initialization_options())
        else:
            await serve_loop(self.server, reader, writer, lifespan_state={})

    async def _list(self, context: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[types.Tool(name=name, input_schema={"type": "object"}) for name in TOOLS]
        )

    async def _list_resources(self, context: Any, params: Any) -> types.ListResourcesResult:
        self.reads.append("resources/list")
        if params is None or params.cursor is None:
            first = types.Resource(uri="note://a", name="a", mime_type="text/plain", size=5)
            return types.ListResourcesResult(resources=[first], next_cursor="2")
        second = types.Resource(uri=f"note://b?x=1#y{self.ending}", name="b", description="the second")
        return types.ListResourcesResult(resources=[second, *self.more])

    async def _list_templates(self, context: Any, params: Any) -> types.ListResourceTemplatesResult:
        template = types.ResourceTemplate(uri_template=f"note://{{name}}{self.ending}", name="any note")
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def _read_resource(self, context: Any, params: Any) -> types.ReadResourceResult:
        self.reads.append(f"resources/read {params.uri}")
        if params.uri == "note://hang":
            await self._hang(context)
        if params.uri == "note://missing":
            raise MCPError(types.INVALID_PARAMS, f"no such note; the token is {SECRET}")
        if params.uri == "note://big":
            return types.ReadResourceResult(
                contents=[types.TextResourceContents(uri=params.uri, text="x" * 12_000_000)]
            )
        blob = types.BlobResourceContents(uri=params.uri, blob="AAEC", mime_type="image/png")
        return types.ReadResourceResult(
            contents=[types.TextResourceContents(uri=params.uri, text=f"text of {params.uri}"), blob]
        )

    async def _list_prompts(self, context: Any, params: Any) -> types.ListPromptsResult:
        self.reads.append("prompts/list")
        who, name = f"who{self.ending}", f"greet{self.ending}"
        argument = types.PromptArgument(name=who, description="whom to greet", required=True)
        return types.ListPromptsResult(
            prompts=[types.Prompt(name=name, description="Greets.", arguments=[argument])]
        )

    async def _get_prompt(self, context: Any, params: Any) -> types.GetPromptResult:
        self.reads.append(f"prompts/get {params.name}")
        words = types.TextContent(text=f"Greet {(params.arguments or {}).get('who')}!")
        return types.GetPromptResult(
            description="Greets.", messages=[types.PromptMessage(role="user", content=words)]
        )

    async def _call(self, context: Any, params: Any) -> types.CallToolResult | types.InputRequiredResult:
        self._params.set(params)
        try:
            answer = await getattr(self, f"_{params.name}")(context, **(params.arguments or {}))
        except AskError as error:
            return types.InputRequiredResult(input_requests={"it": error.request}, request_state=STATE)
        except MCPError as error:
            return types.CallToolResult(
                content=[types.TextContent(text=f"no answer: {error}")], is_error=True
            )
        return types.CallToolResult(content=[types.TextContent(text=str(answer))])

    async def _put(self, context: Any, request: Any, kind: Any) -> Any:
        """Ask the client, as the era wants it."""
        if context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            about = ServerMessageMetadata(related_request_id=context.request_id)
            return await context.session.send_request(request, kind, metadata=about)
        params = self._params.get()
        if params.input_responses is None:
            raise AskError(request)
        assert params.request_state == STATE, "the state of the upstream comes back as it was"
        return params.input_responses["it"]

    async def _ask(
        self, context: Any, words: str = "Whom to greet?", field: str = "who", beside: bool = False
    ) -> str:
        """`beside`: only while another call hangs."""
        if beside:
            await self.hanging.wait()
        schema = {"type": "object", "properties": {field: {"type": "string"}}}
        asked = types.ElicitRequestFormParams(message=words, requested_schema=schema)
        answer = await self._put(context, types.ElicitRequest(params=asked), types.ElicitResult)
        self.acted += 1
        return f"{answer.action} {answer.content}"

    async def _open_page(self, context: Any, url: str) -> str:
        asked = types.ElicitRequestURLParams(message="Log in", url=url, elicitation_id="e1")
        answer = await self._put(context, types.ElicitRequest(params=asked), types.ElicitResult)
        return str(answer.action)

    async def _sample(self, context: Any, tokens: int = 100, words: str = "Hi") -> str:
        messages = [types.SamplingMessage(role="user", content=types.TextContent(text=words))]
        asked = types.CreateMessageRequestParams(messages=messages, max_tokens=tokens)
        answer = await self._put(context, types.CreateMessageRequest(params=asked), types.CreateMessageResult)
        return str(answer.content.text)

    async def _roots(self, context: Any) -> str:
        answer = await self._put(context, types.ListRootsRequest(), types.ListRootsResult)
        return str([str(root.uri) for root in answer.roots])

    async def _count(self, context: Any, to: int = 3, words: str = "") -> str:
        for number in range(1, to + 1):
            await context.session.report_progress(number, to, f"step {number}{words}")
        return "counted"

    async def _hang(self, context: Any) -> str:
        self.hanging.set()
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            self.cancelled.set()
            raise
        return "never"

    async def _cancelled(self, context: Any) -> str:
        await self.cancelled.wait()
        return "cancelled"

    async def _hangs(self, context: Any) -> str:
        return "yes" if self.hanging.is_set() else ""

    async def _grow(self, context: Any) -> str:
        """Have one resource more, and say so."""
        self.more.append(types.Resource(uri="note://grown", name="grown"))
        await self.bus.publish(ResourcesListChanged())
        if context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            await context.session.send_resource_list_changed()
        return "grown"
