"""The consoles of all portals of this user behind one address, as `mcp-code-portal ui` serves them.

A portal renders its own pages, and is reached by its socket. Stores that all portals have left are shown from here.
"""

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from typing import Any, Final, TypeAlias
from urllib.parse import quote

import anyio
import anyio.to_thread
import httpx2
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from manifests.manifest import Manifest
from portal.app.peer import is_from
from portal.app.running import RunningPortal, address, outer_portals
from portal.base.plain_text import shown_path
from portal.console.access import Access
from portal.console.app import console_app, guarded
from portal.console.needs import approvals
from portal.console.pages import bare_page, visitor_of
from portal.console.source import LeftSource
from portal.console.visitor import HEADER, Visitor
from portal.identity.approvers import Decider
from portal.records.store.places import Place, holding, manifest_of, open_tables, place_of
from portal.records.store.records import StoreError
from portal.runs.decisions import unknown_run

ANSWER_SECONDS: Final = 2.0
"""A portal that takes longer to tell about itself counts as one that does not answer."""

PAGE_SECONDS: Final = 30.0
"""For the beginning of a page. It may end at any time, like a stream."""

_TO_PORTAL: Final = ("host", "accept", "accept-encoding", "content-type", "content-length")
_NOT_TO_BROWSER: Final = (b"connection", b"keep-alive", b"transfer-encoding", b"date", b"server")

Clients: TypeAlias = Callable[[], Awaitable[Mapping[str, tuple[str, httpx2.AsyncClient]]]]
"""Gives the running portals by their names in addresses: the path of the manifest, and an HTTP client."""


class Consoles:
    """`app` is an ASGI application. `manifest` has the key of its own store, in case all portals have left that."""

    def __init__(self, clients: Clients, manifest: Manifest, access: Access) -> None:
        self._find, self._manifest = clients, manifest
        self._manifests: dict[str, str] = {}
        """Of each portal that was seen."""
        pages = Route("/ui/@{name}/{path:path}", self._page, methods=["GET", "POST"])
        self.app = guarded([Route("/ui/", self._list), pages], access.admit)

    async def _clients(self) -> dict[str, httpx2.AsyncClient]:
        found = await self._find()
        self._manifests |= {name: manifest for name, (manifest, _) in found.items()}
        return {name: client for name, (_, client) in found.items()}

    async def path_of(self, run: str) -> str:
        """The path of the page of a run with this id or beginning; without one, of the only portal or of the list.

        Raises RunsError: there is no such run.
        """
        clients, visitor = await self._clients(), Visitor(Decider("console"), may_decide=False)
        if not run:
            return f"/ui/@{next(iter(clients))}/" if len(clients) == 1 else "/ui/"
        for name, source in (await anyio.to_thread.run_sync(self._left)).items():
            inside = httpx2.ASGITransport(app=_app_of(source, visitor))
            clients[name] = httpx2.AsyncClient(transport=inside, base_url="http://left")
        for name, client in clients.items():
            path = f"/ui/@{name}/runs/{quote(run, '')}"
            with anyio.move_on_after(ANSWER_SECONDS), suppress(httpx2.TransportError):
                answer = await client.get(path, headers={HEADER: visitor.header})
                if answer.status_code in (200, 400):  # if several begin so, the page says which
                    return path
        raise unknown_run(run)

    async def listener_tickets(self, visitor: Visitor, path: str) -> list[str]:
        """Addresses at which the visitor may enter at listeners, once each. `path` is the page here."""
        found = []
        for name, client in (await self._clients()).items():
            base = f"/ui/@{name}"
            own = f"/ui{path.removeprefix(base)}" if path.startswith(f"{base}/") else "/ui/"
            with anyio.move_on_after(ANSWER_SECONDS), suppress(httpx2.TransportError, ValueError):
                header = {HEADER: visitor.header}
                answer = await client.get(f"{base}/ticket", params={"path": own}, headers=header)
                if answer.is_success:
                    found.append(answer.json())
        return found

    async def _list(self, request: Request) -> Response:
        """The portals, and the stores that were left: name, address, how it runs, and how much needs a person."""
        running, left = list[tuple[str, str, str, int]](), list[tuple[str, str, str, int]]()

        async def ask(name: str, client: httpx2.AsyncClient) -> None:
            manifest, about, waiting = name, "does not answer", 0
            with anyio.move_on_after(ANSWER_SECONDS), suppress(httpx2.TransportError, ValueError):
                told = (await client.get("/status")).json()
                manifest, waiting = shown_path(told["manifest"]) or "no portal.yaml", len(told["needs_you"])
                how = (told["transport"], told["client"], f"pid {told['pid']}")
                about = " · ".join(filter(None, how))
            running.append((manifest, f"/ui/@{name}/", about, waiting))

        async with anyio.create_task_group() as tasks:
            for name, client in (await self._clients()).items():
                tasks.start_soon(ask, name, client)
        for source in (await anyio.to_thread.run_sync(self._left)).values():
            waiting = len(await source.read(lambda each: approvals(each, each.listed(is_asking=True))))
            left.append((source.name, f"{source.base}/", source.about, waiting))
        return bare_page("portals.html", portals=[*sorted(running), *sorted(left)])

    async def _page(self, request: Request) -> Response | ASGIApp:
        name, clients = request.path_params["name"], await self._clients()
        if (client := clients.get(name)) is not None:
            try:
                with anyio.fail_after(PAGE_SECONDS):
                    return await _passed_on(request, client)
            except TimeoutError:
                return bare_page("silent.html", 504)
            except httpx2.TransportError:
                pass  # it ended just now
        elif manifest := self._manifests.get(name):
            for heir in clients:
                if self._manifests[heir] == manifest:  # its client has started it again
                    path = request.url.path.replace(f"@{name}", f"@{heir}", 1)
                    return RedirectResponse(request.url.replace(path=path), 307)
        if (source := (await anyio.to_thread.run_sync(self._left)).get(name)) is not None:
            return _app_of(source, visitor_of(request))
        return bare_page("ended.html", 404)

    def _left(self) -> dict[str, LeftSource]:
        """The stores that all portals have left, by their names in addresses."""
        own, places = place_of(self._manifest), dict[Place, Manifest | None]()
        if isinstance(own, str) or own.exists():
            places[own] = self._manifest
        for path in holding(tables=("runs", "trail")):
            places.setdefault(path, None)
        found = {}
        for place, manifest in places.items():
            # One that needs a key is shown with the manifest that has it.
            with suppress(StoreError), closing(open_tables(place, manifest)) as tables:
                if not tables.has_replicas():
                    name = f"left-{hashlib.sha256(str(place).encode()).hexdigest()[:8]}"
                    found[name] = LeftSource(place, manifest, f"/ui/@{name}", manifest_of(tables))
        return found


def _app_of(source: LeftSource, visitor: Visitor) -> ASGIApp:
    async def admit(request: Request) -> Visitor:
        return visitor

    return console_app(source, admit)


async def _passed_on(request: Request, client: httpx2.AsyncClient) -> Response:
    """The answer of a portal to a request of a browser. Raises TransportError: the portal does not answer."""
    given, query = request.headers, request.url.query
    headers = {name: given[name] for name in given if name in _TO_PORTAL or name.startswith("hx-")}
    headers.setdefault("accept-encoding", "identity")  # or the client would ask for what it can decode
    headers[HEADER] = visitor_of(request).header
    url = quote(request.scope["path"], "/@") + (f"?{query}" if query else "")
    content = request.stream() if request.method == "POST" else None
    asked = client.build_request(request.method, url, headers=headers, content=content, timeout=None)
    answer = await client.send(asked, stream=True)

    async def body() -> AsyncIterator[bytes]:
        try:
            async for chunk in answer.aiter_raw():
                yield chunk
        finally:
            await answer.aclose()

    response = StreamingResponse(body(), answer.status_code)
    response.raw_headers = [each for each in answer.headers.raw if each[0].lower() not in _NOT_TO_BROWSER]
    return response


@asynccontextmanager
async def open_clients() -> AsyncIterator[Clients]:
    """Keeps a client for each portal that was seen, also of those that ended, until the context is left."""
    seen: dict[str, tuple[str, httpx2.AsyncClient]] = {}

    async def clients() -> Mapping[str, tuple[str, httpx2.AsyncClient]]:
        portals = await anyio.to_thread.run_sync(outer_portals)
        for portal in portals:
            if portal.name not in seen:
                seen[portal.name] = portal.manifest, await stack.enter_async_context(open_client(portal))
        return {portal.name: seen[portal.name] for portal in portals}

    async with AsyncExitStack() as stack:
        yield clients


@asynccontextmanager
async def open_client(portal: RunningPortal) -> AsyncIterator[httpx2.AsyncClient]:
    """An HTTP client whose requests go to a portal: `await client.get("/status")`.

    Its requests raise httpx2.TransportError: the portal has no socket, has ended, or does not answer; or another
    process listens there.
    """

    async def check(event: str, info: Mapping[str, Any]) -> None:
        if event == "connection.connect_unix_socket.complete":
            stream = info["return_value"]
            if not is_from(stream.get_extra_info("socket"), portal.pid):
                await stream.aclose()
                raise httpx2.ConnectError("another process listens at the socket of this portal")

    async def checked(request: httpx2.Request) -> None:
        request.extensions["trace"] = check

    with address(portal.socket) as found:
        # A page that is looked at keeps a connection.
        limits = httpx2.Limits(max_connections=None)
        # Only the transport is closed: a client that is closed while it is held elsewhere raises RuntimeError.
        async with httpx2.AsyncHTTPTransport(verify=False, uds=found, limits=limits) as transport:
            base, hooks = "http://portal", {"request": [checked]}
            yield httpx2.AsyncClient(
                transport=transport, base_url=base, timeout=ANSWER_SECONDS, event_hooks=hooks
            )
