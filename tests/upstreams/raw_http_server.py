"""A Streamable HTTP server of the handshake era, so that it can misbehave."""

import json
from typing import Any

import anyio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

TOOLS = [{"name": "echo", "inputSchema": {"type": "object"}}]


class RawHttpServer:
    """Answers by the book until told otherwise; counts the calls it executed."""

    def __init__(self) -> None:
        self.app = Starlette(routes=[Route("/mcp", self._handle, methods=["POST", "GET", "DELETE"])])
        self.executed = 0
        self.authorization: str | None = None
        self.sessions_opened = 0
        self.sessions_ended: list[str | None] = []
        self.notified: list[str] = []
        """The methods of the notifications."""
        self.call_answer: Response | None = None
        self.hangs_on_calls = False
        self.is_hanging = anyio.Event()
        self.may_go_on = anyio.Event()
        """Set, what hangs is answered after all."""
        self.as_events = False
        self.result_text = '{"content":[]}'
        self.tools_text = json.dumps(TOOLS)
        self._sessions: set[str] = set()

    async def _handle(self, request: Request) -> Response:
        message = await request.json() if request.method == "POST" else {}
        if self.authorization and request.headers.get("authorization") != self.authorization:
            return Response("who are you?", status_code=401, media_type="text/plain")
        if request.method != "POST":
            return self._end_session(request)
        if message["method"] == "server/discover":
            return Response("unknown method", status_code=400, media_type="text/plain")
        if message["method"] == "initialize":
            return self._initialize(message)
        if request.headers.get("mcp-session-id") not in self._sessions:
            return Response(status_code=404)
        if "id" not in message:
            self.notified.append(message["method"])
            return Response(status_code=202)
        if message["method"] == "tools/list":
            return await self._list(message)
        if message["method"] == "ping":
            return self._answer(message, "{}")
        return await self._call(message)

    def _end_session(self, request: Request) -> Response:
        if request.method != "DELETE":
            return Response(status_code=405)
        self.sessions_ended.append(request.headers.get("mcp-session-id"))
        return Response(status_code=204)

    def _initialize(self, message: dict[str, Any]) -> Response:
        self.sessions_opened += 1
        session = f"session-{self.sessions_opened}"
        self._sessions.add(session)
        info = {"name": "raw http", "version": "1"}
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
        return JSONResponse(
            {"jsonrpc": "2.0", "id": message["id"], "result": result}, headers={"mcp-session-id": session}
        )

    async def _list(self, message: dict[str, Any]) -> Response:
        return self._answer(message, f'{{"tools":{self.tools_text}}}')

    async def _call(self, message: dict[str, Any]) -> Response:
        self.executed += 1
        if self.hangs_on_calls:
            self.is_hanging.set()
            await self.may_go_on.wait()
        if self.call_answer is not None:
            return self.call_answer
        return self._answer(message, self.result_text)

    def _answer(self, message: dict[str, Any], result: str) -> Response:
        body = f'{{"jsonrpc":"2.0","id":{message["id"]},"result":{result}}}'
        if self.as_events:
            return Response(f"data: {body}\nevent: message\n\n", media_type="text/event-stream")
        return Response(body, media_type="application/json")
