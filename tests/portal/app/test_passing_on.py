"""Requests that are forwarded to another replica."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import anyio
import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from portal.app.replicas import ReplicaMiddleware
from portal.records.store.tables import LEASE_SECONDS
from portal.records.store.writer import RunStore
from tests.portal.peers import DEADLINE_SECONDS
from tests.portal.rows import Tables, store_of
from tests.postgres import Postgres
from tests.upstreams.peers import Clock, http_peer

pytestmark = pytest.mark.servers

OWN, OTHER = "a" * 16, "b" * 16
FOR_THE_OTHER = {"mcp-session-id": f"{OTHER}.1"}


@dataclass
class Pair:
    """A replica, and another one that answers no request with `?hold`, and one with `?stall` or `?stream` in part."""

    store: RunStore
    http: httpx2.AsyncClient = field(init=False)
    """Sends requests for the other one to the replica."""
    front: ReplicaMiddleware = field(init=False)
    own: list[bytes] = field(default_factory=list)
    """The bodies that the replica kept for itself."""
    others: list[Request] = field(default_factory=list)
    """The requests that came to the other one."""
    gone: list[Request] = field(default_factory=list)
    """Those of them whose client went away."""
    instead: ReplicaMiddleware | None = None
    """The listener at the other replica's address."""

    async def here(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.own.append(await Request(scope, receive).body())
        await Response("here", 404)(scope, receive, send)

    async def there(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        self.others.append(request := Request(scope, receive))
        body = await request.body()
        if request.url.query in ("stall", "stream"):
            headers = [(b"content-type", b"text/event-stream")] if request.url.query == "stream" else []
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        if request.url.query:
            while (await receive())["type"] != "http.disconnect":
                pass
            self.gone.append(request)
            return
        await Response(b"there " + body)(scope, receive, send)

    async def until(self, is_true: Callable[[], bool]) -> None:
        with anyio.fail_after(DEADLINE_SECONDS):
            while not is_true():  # noqa: ASYNC110
                await anyio.sleep(0.01)


def middleware(app: Any, store: RunStore) -> ReplicaMiddleware:
    runs: Any = SimpleNamespace(store=store)
    return ReplicaMiddleware(app, runs)


@pytest.fixture
async def both(postgres: Postgres) -> AsyncIterator[Pair]:
    tables = Tables(postgres.new_database())
    async with store_of(tables, holder=OWN) as store:
        both = Pair(store)
        both.front = middleware(both.here, store)

        async def own(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http":
                await both.front(scope, receive, send)

        async def there(scope: Scope, receive: Receive, send: Send) -> None:
            await (both.instead or both.there)(
                scope, receive, send
            )  # uvicorn takes a method for something older

        async with http_peer(own) as replica, http_peer(there) as served:
            other, url = tables(holder=OTHER), f"http://127.0.0.1:{replica.port}"
            with other.transaction():
                other.beat(f"http://127.0.0.1:{served.port}")
            many = httpx2.Limits(max_connections=None)
            async with httpx2.AsyncClient(
                base_url=url, headers=FOR_THE_OTHER, limits=many, timeout=DEADLINE_SECONDS
            ) as both.http:
                yield both
    tables.close()


async def test_requests_that_last_do_not_hold_up_others(both: Pair) -> None:
    lasting = 101  # a client has at most 100 connections by default
    async with anyio.create_task_group() as tasks:
        for _ in range(lasting):
            tasks.start_soon(both.http.get, "/mcp?hold")
        await both.until(lambda: len(both.others) == lasting)
        assert (await both.http.post("/mcp", content=b"x")).text == "there x"
        tasks.cancel_scope.cancel()


async def test_a_request_whose_client_left_is_cancelled_there_and_not_done_here_too(both: Pair) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(both.http.post, "/mcp?hold")
        await both.until(lambda: len(both.others) == 1)
        tasks.cancel_scope.cancel()
    await both.until(lambda: len(both.gone) == 1)
    assert both.own == []


async def test_the_other_replica_is_told_whose_request_it_is(both: Pair) -> None:
    of_a_client = httpx2.ASGITransport(app=both.front, client=("192.0.2.7", 1234))
    headers = {**FOR_THE_OTHER, "x-forwarded-for": "192.0.2.9"}
    async with httpx2.AsyncClient(transport=of_a_client, headers=headers) as http:
        await http.post("http://127.0.0.1/mcp")
    (request,) = both.others
    assert request.headers.getlist("x-forwarded-for") == ["192.0.2.7"]


async def test_a_body_that_is_too_long_is_refused_here(both: Pair) -> None:
    answer = await both.http.post("/mcp", content=b"x" * 6_000_000)
    assert (len(both.own), both.others, answer.text) == (1, [], "here")


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_a_request_without_a_body_to_read_is_passed_on_whatever_length_it_says(
    both: Pair, method: str
) -> None:
    answer = await both.http.request(method, "/mcp", content=b"hello")
    assert (answer.status_code, answer.text) == (200, "there ")


async def test_a_request_that_reaches_another_replica_than_it_names_is_not_done_there(
    postgres: Postgres, both: Pair
) -> None:
    tables = Tables(postgres.new_database())
    async with store_of(tables, holder="c" * 16) as third:
        both.instead = middleware(both.there, third)
        answer = await both.http.post("/mcp", content=b"x")
    tables.close()
    assert (both.own, both.others, answer.text) == ([b"x"], [], "here")


async def test_a_request_is_passed_on_while_the_database_is_away_and_heartbeats_are_old(both: Pair) -> None:
    """A 404 would end the session, which lives."""

    async def execute(*statements: str) -> None:
        for statement in statements:
            await both.store.write(lambda tables, text=statement: tables.database.execute(text))

    async def asked(body: bytes) -> str:
        return (await both.http.post("/mcp", content=body)).text

    assert await asked(b"before") == "there before"
    await execute("ALTER TABLE replicas RENAME TO away")
    assert await asked(b"meanwhile") == "there meanwhile"
    await execute("ALTER TABLE away RENAME TO replicas", "UPDATE replicas SET seen = 0")
    assert await asked(b"after") == "there after"
    Clock().advance(LEASE_SECONDS)
    assert await asked(b"later") == "here"


@pytest.mark.parametrize(
    ("method", "path", "told"),
    [
        ("POST", "/mcp?hold", (502, True)),
        ("POST", "/mcp?stall", (200, False)),
        ("POST", "/mcp?stream", (200, True)),
        ("GET", "/mcp?stream", (200, False)),
    ],
)
async def test_client_of_a_replica_that_stops_is_told(
    both: Pair, monkeypatch: pytest.MonkeyPatch, method: str, path: str, told: tuple[int, bool]
) -> None:
    monkeypatch.setattr("portal.app.replicas._LOOK_SECONDS", 0.05)
    answers: list[httpx2.Response] = []

    async def ask() -> None:
        content = b'{"id": 7}' if method == "POST" else b""
        answers.append(await both.http.request(method, path, content=content))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await both.until(lambda: len(both.others) == 1)
        await anyio.sleep(0.2)
        assert not answers, "while it is alive, however long it takes"
        await both.store.write(lambda tables: tables.database.execute("UPDATE replicas SET seen = 0"))
    [answer] = answers
    assert (answer.status_code, "may have taken effect" in answer.text) == told
    assert ('"id":7' in answer.text) == ((method, path) == ("POST", "/mcp?stream")), (
        "as an error of the request"
    )
    assert both.own == []


async def test_client_of_a_replica_that_ends_while_it_passes_on_is_told(both: Pair) -> None:
    given: list[Message] = [{"type": "http.request", "body": b'{"id": 7}'}]
    sent: list[Message] = []

    async def receive() -> Message:
        return given.pop() if given else await anyio.sleep_forever()

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(key.encode(), value.encode()) for key, value in FOR_THE_OTHER.items()]
    scope = {"type": "http", "method": "POST", "path": "/mcp", "query_string": b"stream", "headers": headers}
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(both.front, scope, receive, send)
        await both.until(lambda: len(sent) == 2)
        tasks.cancel_scope.cancel()
    assert b'"id":7' in sent[-1]["body"]
