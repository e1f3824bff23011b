"""What happens to requests while they are passed on to another replica."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from starlette.types import Message, Receive, Scope, Send

from portal.app.replicas import ReplicaMiddleware
from portal.records.store.writer import RunStore
from tests.portal.peers import DEADLINE_SECONDS
from tests.portal.runs.rows import Tables
from tests.postgres import Postgres
from tests.upstreams.peers import http_peer

pytestmark = [pytest.mark.anyio, pytest.mark.servers]

OWN, OTHER = "a" * 16, "b" * 16
SESSION = f"{OTHER}.1".encode()


@dataclass
class Pair:
    """A replica, and another one that answers no request with `hold=1`, and one with `stall=1` not to its end."""

    store: RunStore
    own: list[bytes] = field(default_factory=list)
    """The bodies that the replica kept for itself."""
    others: list[Scope] = field(default_factory=list)
    """The requests that came to the other one."""
    gone: list[Scope] = field(default_factory=list)
    """Those of them whose client went away."""
    instead: ReplicaMiddleware | None = None
    """What listens where the other one did."""

    @property
    def app(self) -> ReplicaMiddleware:
        runs: Any = SimpleNamespace(store=self.store)
        return ReplicaMiddleware(self.here, runs)

    async def here(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.own.append((await receive()).get("body", b""))
        await send({"type": "http.response.start", "status": 404, "headers": []})
        await send({"type": "http.response.body", "body": b"here"})

    async def there(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        self.others.append(scope)
        body = b""
        while (message := await receive())["type"] == "http.request" and message.get("more_body"):
            body += message["body"]
        body += message.get("body", b"")
        if scope["query_string"] == b"stall=1":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        if scope["query_string"] in (b"hold=1", b"stall=1"):
            while message["type"] != "http.disconnect":
                message = await receive()
            self.gone.append(scope)
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"there " + body})


@dataclass
class Asked:
    """A request to the replica."""

    status: int = 0
    body: bytes = b""
    is_over: bool = False
    """Whether the answer is complete."""
    has_left: anyio.Event = field(default_factory=anyio.Event)
    """Set when its client goes away."""

    async def ask(
        self,
        app: ReplicaMiddleware,
        *chunks: bytes,
        method: str = "POST",
        query: bytes = b"",
        headers: tuple[tuple[bytes, bytes], ...] = ((b"mcp-session-id", SESSION),),
    ) -> None:
        left = list(chunks or (b"",))

        async def receive() -> Message:
            if left:
                return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}
            await self.has_left.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            self.status = message.get("status", self.status)
            self.body += message.get("body", b"")
            self.is_over = message["type"] == "http.response.body" and not message.get("more_body")

        scope: Scope = {
            "type": "http",
            "method": method,
            "path": "/mcp",
            "query_string": query,
            "headers": [*headers],
            "client": ("192.0.2.7", 1234),
        }
        await app(scope, receive, send)


@pytest.fixture
async def both(postgres: Postgres) -> AsyncIterator[Pair]:
    tables = Tables(postgres.new_database())
    both = Pair(RunStore(tables(holder=OWN), tables(holder=OWN)))

    async def there(scope: Scope, receive: Receive, send: Send) -> None:
        await (both.instead or both.there)(scope, receive, send)  # uvicorn takes a method for something older

    async with http_peer(there) as served:
        other = tables(holder=OTHER)
        with other.transaction():
            other.beat(f"http://127.0.0.1:{served.port}")
        yield both
    await both.store.close()
    tables.close()


async def until(is_true: Callable[[], bool]) -> None:
    with anyio.fail_after(DEADLINE_SECONDS):
        while not is_true():  # noqa: ASYNC110
            await anyio.sleep(0.01)


async def answered(app: ReplicaMiddleware, *chunks: bytes, **named: Any) -> Asked:
    """A request that has been answered."""
    asked = Asked()
    with anyio.fail_after(DEADLINE_SECONDS):
        await asked.ask(app, *chunks, **named)
    return asked


async def test_requests_that_last_do_not_hold_up_others(both: Pair) -> None:
    lasting, app = 120, both.app
    async with anyio.create_task_group() as tasks:
        for _ in range(lasting):
            tasks.start_soon(lambda: Asked().ask(app, method="GET", query=b"hold=1"))
        await until(lambda: len(both.others) == lasting)
        assert (await answered(app, b"x")).body == b"there x"
        tasks.cancel_scope.cancel()


async def test_a_request_whose_client_left_is_cancelled_there_and_not_done_here_too(both: Pair) -> None:
    async with anyio.create_task_group() as tasks:
        asked = Asked()
        tasks.start_soon(lambda: asked.ask(both.app, b"x", query=b"hold=1"))
        await until(lambda: len(both.others) == 1)
        asked.has_left.set()
        await until(lambda: len(both.gone) == 1)
    assert both.own == []


async def test_the_other_replica_is_told_whose_request_it_is(both: Pair) -> None:
    headers = ((b"mcp-session-id", SESSION), (b"x-forwarded-for", b"192.0.2.9"))
    await answered(both.app, b"x", headers=headers)
    (scope,) = both.others
    assert [value for name, value in scope["headers"] if name == b"x-forwarded-for"] == [b"192.0.2.7"]


async def test_a_body_that_is_too_long_is_refused_here(both: Pair) -> None:
    headers = ((b"mcp-session-id", SESSION), (b"content-length", b"6000000"))
    asked = await answered(both.app, *[b"x" * 1_000_000] * 6, headers=headers)
    assert (len(both.own), both.others, asked.body) == (1, [], b"here")


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_a_request_without_a_body_to_read_is_passed_on_whatever_length_it_says(
    both: Pair, method: str
) -> None:
    headers = ((b"mcp-session-id", SESSION), (b"content-length", b"5"))
    asked = await answered(both.app, b"hello", method=method, headers=headers)
    assert (asked.status, asked.body) == (200, b"there ")


async def test_a_request_that_reaches_another_replica_than_it_names_is_not_done_there(
    postgres: Postgres, both: Pair
) -> None:
    tables = Tables(postgres.new_database())
    third: Any = SimpleNamespace(store=RunStore(tables(holder="c" * 16), tables(holder="c" * 16)))
    both.instead = ReplicaMiddleware(both.there, third)
    asked = await answered(both.app, b"x")
    await third.store.close()
    tables.close()
    assert (both.own, both.others, asked.body) == ([b"x"], [], b"here")


@pytest.mark.parametrize(("query", "status"), [(b"hold=1", 502), (b"stall=1", 200)])
async def test_client_of_a_replica_that_stops_is_told(
    both: Pair, monkeypatch: pytest.MonkeyPatch, query: bytes, status: int
) -> None:
    monkeypatch.setattr("portal.app.replicas._LOOK_SECONDS", 0.1)
    async with anyio.create_task_group() as tasks:
        asked = Asked()
        with anyio.fail_after(DEADLINE_SECONDS):
            tasks.start_soon(lambda: asked.ask(both.app, b"x", query=query))
            await until(lambda: len(both.others) == 1)
            await anyio.sleep(0.5)
            assert not asked.is_over, "while it is alive, however long it takes"
            await both.store.write(lambda tables: tables._execute("UPDATE replicas SET seen = 0"))
            await until(lambda: asked.is_over)
    assert (asked.status, b"may have happened" in asked.body) == (status, status == 502)
    assert both.own == []
