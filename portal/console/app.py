"""The pages of one portal as an ASGI application."""

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Final, TypeAlias

import anyio
import structlog
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from portal.base.errors import RunsError
from portal.console.approvals import approval_routes
from portal.console.pages import FOLDER, STATUSES, page, source_of
from portal.console.runs import run_routes
from portal.console.source import Source
from portal.console.visitor import Visitor
from portal.records.store.records import StoreError

log = structlog.get_logger()

Admit: TypeAlias = Callable[[Request], Awaitable[Visitor | Response]]
"""Who asks for a page, or the response that refuses it."""

STREAM_SECONDS: Final = 1800
"""A stream of changes ends then. Its page asks for the next, and is admitted again, if its session is still open."""

PAUSE_SECONDS: Final = 0.4
"""Between two events of a stream: a busy portal must not be asked for each of its changes."""

CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
_FILES: Final = {path.name: path for path in (FOLDER / "static").iterdir()}
_HEADERS: Final = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    # With `no-referrer` browsers call the origin of a form `null`. Over plain http they tell nothing else about it.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def console_app(source: Source, admit: Admit, more: Sequence[Route] = ()) -> Starlette:
    """The pages of a portal, below `source.base`, after `more` routes there."""
    routes = [*more, *run_routes(), *approval_routes(), Route("/live", _live)]
    return guarded([Mount(source.base, routes=routes)], admit, source)


def guarded(routes: Sequence[BaseRoute], admit: Admit, source: Source | None = None) -> Starlette:
    """Routes for admitted visitors, who write only if they may decide; and the files of all pages, for everyone."""
    files = f"{source.base if source else '/ui'}/static"
    return Starlette(
        routes=[Route(f"{files}/{{name}}", _file), *routes],
        middleware=[
            Middleware(_Guard, source=source, admit=admit, files=f"{files}/"),
            Middleware(GZipMiddleware),
        ],
        exception_handlers={RunsError: _refused, StoreError: _store_failed, Exception: _failed},
    )


class _Guard:
    """Admits visitors, and adds the headers that keep pages to themselves, to refusals too.

    Handlers find the source and the visitor in `request.state`.
    """

    def __init__(self, app: ASGIApp, source: Source | None, admit: Admit, files: str) -> None:
        self._app, self._source, self._admit, self._files = app, source, admit, files

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_file = scope["type"] == "http" and scope["path"].startswith(self._files)

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(_HEADERS)
                if is_file and message["status"] == 200:
                    # The address ends with the version, so that an update is seen at once.
                    headers["Cache-Control"] = "public, max-age=31536000, immutable"
                # Behind `ui` the portal has said so already.
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        is_http = scope["type"] == "http"
        app = await self._admitted(Request(scope, receive), is_file) if is_http else self._app
        await app(scope, receive, with_headers)

    async def _admitted(self, request: Request, is_file: bool) -> ASGIApp:
        try:
            visitor = await self._admit(request)
        except HTTPException as error:
            return PlainTextResponse(f"{error.detail}\n", error.status_code)
        except ClientDisconnect:
            return PlainTextResponse("The request ended before its form did.\n", 400)
        if isinstance(visitor, Response):
            return self._app if is_file and visitor.status_code == 401 else visitor
        if request.method not in ("GET", "HEAD") and not visitor.may_decide:
            return PlainTextResponse("This session only reads.\n", 403)
        request.state.source, request.state.visitor = self._source, visitor
        return self._app


async def _file(request: Request) -> Response:
    path = _FILES.get(request.path_params["name"])
    return FileResponse(path) if path else PlainTextResponse("not found\n", 404)


async def _live(request: Request) -> Response:
    """Stream `changed` events. They have no data: the parts of a page fetch themselves again, so that there is one way
    to render, and nothing to leak. Source: HTML, 9.2 Server-sent events.
    """
    headers = {"X-Accel-Buffering": "no"}
    stream = () if request.method == "HEAD" else _events(source_of(request))
    return StreamingResponse(stream, headers=headers, media_type="text/event-stream")


async def _events(source: Source) -> AsyncIterator[str]:
    ends = anyio.current_time() + STREAM_SECONDS
    async with aclosing(source.changes()) as changes:
        async for has_changed in changes:
            yield "event: changed\ndata:\n\n" if has_changed else ": keep-alive\n\n"
            if anyio.current_time() > ends:
                return
            await anyio.sleep(PAUSE_SECONDS)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, RunsError)
    status = STATUSES.get(error.code, 400)
    return await page(request, "refused.html", status=status, title=str(error), text=error.hint)


async def _store_failed(request: Request, error: Exception) -> Response:
    log.error("runs_not_served", error=str(error))  # a page must show no path of the host
    return PlainTextResponse("The store of runs cannot be used now. The portal's log says why.\n", 503)


async def _failed(request: Request, error: Exception) -> Response:
    number = secrets.token_hex(4)
    log.exception("page_failed", number=number, error=type(error).__name__)
    return PlainTextResponse(f"The page failed. Search the portal's log for {number}.\n", 500, dict(_HEADERS))
