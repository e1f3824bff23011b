"""Stands between the suite and a portal, and puts names into requests that the portal knows.

The portal shows an upstream's tools as functions of scripts, its prompts as `fixture.NAME` and its resources as
`portal://fixture/URI`; the suite has names of its own. Rule 1: only what the fixture has is renamed, so that an
unknown name is answered by the portal. Rule 2: answers, and the bodies of all other requests, pass byte for byte.
"""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field

import httpx2
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from tests.acceptance.model import Json
from tests.conformance.fixture_server import PROMPTS, RESOURCES, TOOLS

SCRIPT = """
import portal
answer = await fixture.{name}(**{arguments!r})
for block in answer if isinstance(answer, list) else []:
    portal.emit(block)
answer
"""
IN_THE_BACKGROUND = (
    "slow_compute",
    "confirm_delete",
    "failing_job",
    "protocol_error_job",
    "multi_input",
    "test_tool_with_task",
)
"""The tools that the suite expects to be tasks: which run is one, the portal's client decides."""

TOKEN = "token-of-the-suite"
"""Without one, no one may decide over HTTP, and the suite's clients answer forms about approvals."""

HOP_BY_HOP = ("connection", "transfer-encoding", "content-length")


@asynccontextmanager
async def open_relay(url: str) -> AsyncIterator["Relay"]:
    # Without limits: a stream of events stays open as long as the suite wants.
    limits = httpx2.Limits(max_connections=None)
    own = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx2.AsyncClient(headers=own, timeout=None, limits=limits) as http:
        yield Relay(url, http)


@dataclass
class Relay:
    url: str
    """The portal's."""
    http: httpx2.AsyncClient
    called: set[str] = field(default_factory=set)
    """The tools of the fixture in calls that were passed on."""

    @property
    def app(self) -> Starlette:
        methods = ["GET", "POST", "DELETE", "OPTIONS"]
        return Starlette(routes=[Route("/mcp", self._forward, methods=methods)])

    async def _forward(self, request: Request) -> StreamingResponse:
        body, headers = self._renamed(await request.body(), request.headers)
        sent = self.http.build_request(request.method, self.url, content=body, headers=headers)
        answer = await self.http.send(sent, stream=True)

        async def chunks() -> AsyncIterator[bytes]:
            async with aclosing(answer):
                async for chunk in answer.aiter_raw():
                    yield chunk

        kept = {name: value for name, value in answer.headers.items() if name not in HOP_BY_HOP}
        return StreamingResponse(chunks(), answer.status_code, kept)

    def _renamed(self, body: bytes, headers: Mapping[str, str]) -> tuple[bytes, dict[str, str]]:
        """The request for the portal. The header that repeats a name is renamed too, if it was right."""
        sent = dict(headers)
        try:
            message = json.loads(body)
            method, params = message["method"], message["params"]
        except (ValueError, KeyError, TypeError):  # not a request, or one that names nothing
            return body, sent
        new = renamed(method, params)
        if new is None:
            return body, sent
        if method == "tools/call":
            self.called.add(params["name"])
        key = "uri" if "uri" in params else "name"
        if sent.get("mcp-name") == params[key]:
            sent["mcp-name"] = new[key]
        del sent["content-length"]
        return json.dumps({**message, "params": new}).encode(), sent


def renamed(method: str, params: dict[str, Json]) -> dict[str, Json] | None:
    """The parameters with the portal's names; None if they name nothing that the fixture has."""
    name, uri = params.get("name"), params.get("uri", "")
    if method == "tools/call" and name in TOOLS:
        arguments: dict[str, Json] = {"code": SCRIPT.format(name=name, arguments=params.get("arguments", {}))}
        if name in IN_THE_BACKGROUND:
            arguments["background"] = True
        return {**params, "name": "execute_code", "arguments": arguments}
    if method == "prompts/get" and name in PROMPTS:
        return {**params, "name": f"fixture.{name}"}
    if method == "resources/read" and uri.startswith(RESOURCES):
        return {**params, "uri": f"portal://fixture/{uri}"}
    return None
