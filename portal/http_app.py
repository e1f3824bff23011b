"""The portal over HTTP: MCP at /mcp, and /healthz and /readyz for whatever starts it."""

from typing import Any

from mcp.server.lowlevel import Server
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from manifests.json_value import Json
from portal.budget.tokens import compact
from portal.composition import Portal
from portal.http_gate import GateRules, HttpGate

MAX_REQUEST_BYTES = 4 << 20
"""Body of one request; a longer one is answered with 413. A script has at most 1 MiB."""


def build_http_app(portal: Portal, server: Server[Any], rules: GateRules) -> Starlette:
    """The ASGI application. The SDK's own Host check is off because the gate in front covers every route.

    Source: MCP 2026-07-28, basic/transports#streamable-http.
    """

    async def healthz(request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(request: Request) -> Response:
        told = compact(_readiness(portal, rules.is_authorised(request.headers)))
        return Response(f"{told}\n", media_type="application/json")

    app = server.streamable_http_app(
        streamable_http_path="/mcp",
        max_request_body_size=MAX_REQUEST_BYTES,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        custom_starlette_routes=[Route("/healthz", healthz), Route("/readyz", readyz)],
    )
    app.user_middleware.append(Middleware(HttpGate, rules=rules))
    return app


def _readiness(portal: Portal, tells_names: bool) -> dict[str, Json]:
    """`{ready, upstreams: {status: count}, not_ready?: {name: detail}}`: ready although an upstream is down."""
    counts: dict[str, int] = {}
    not_ready: dict[str, str] = {}
    for upstream in portal.fleet:
        counts[upstream.state.status] = counts.get(upstream.state.status, 0) + 1
        if not upstream.state.is_well:
            detail = f": {upstream.state.detail}" if upstream.state.detail else ""
            prospect = f"; {upstream.prospect}" if upstream.prospect else ""
            not_ready[upstream.name] = f"{upstream.state.status}{detail}{prospect}"
    answer: dict[str, Json] = {"ready": True, "upstreams": counts}
    if not_ready and tells_names:
        answer["not_ready"] = not_ready
    return answer
