"""Runs in a real store, without a sandbox: what a script does is said by its first word.

ok          ends at once
hang        does not end
ask         waits for a person about call 1, and ends with what was decided
event       waits for an event as call 1, and ends with its payload
"""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
import httpx2
from starlette.applications import Starlette
from starlette.middleware import Middleware

from manifests.json_value import Json
from manifests.loader import load_manifest
from portal.app.http_access import HttpAccess, HttpAccessMiddleware
from portal.base.caller import LOCAL
from portal.base.requests import ExecuteCode
from portal.calls.channel import ClientChannel
from portal.records.store.places import components_folder, open_store, place_of, present
from portal.records.store.records import CallRow
from portal.records.store.run_tables import RunTables
from portal.records.store.writer import RunStore
from portal.runs.answer import Answer
from portal.runs.components import Components
from portal.runs.decisions import add_messages
from portal.runs.dispatcher import Dispatcher, GoOn
from portal.runs.leases import public_url
from portal.runs.past import Piece
from portal.runs.service import Runs
from portal.runs.webhooks import Webhooks
from portal.server.http_runs import run_routes
from tests.portal.peers import DEADLINE_SECONDS, write_manifest

BOUND = [{"token": "token-of-alice"}, {"token": "token-of-bob"}]
ALICE, BOB = ({"Authorization": f"Bearer {each['token']}"} for each in BOUND)


@dataclass
class Script:
    """Does what the script's first word says, in the place of an Execution."""

    store: RunStore

    async def go_on(self, piece: Piece, channel: ClientChannel) -> Answer:
        run, epoch, call = piece.run_id, piece.epoch, piece.past.calls.get(1)
        act = piece.head.request.code.split()[0]
        result: Json = None
        if act == "hang":
            await anyio.sleep_forever()
        if act in ("ask", "event") and (call is None or call.state == "waiting"):
            await self.store.write(partial(_wait, run=run, epoch=epoch, act=act, is_new=call is None))
            return Answer("waiting", run)
        if act == "ask":
            result = {"state": call.state, **json.loads(call.decision)}
        if act == "event":
            result = json.loads(await self.store.read(partial(RunTables.payload, run=run, name="deployed")))
        answer = Answer("ok", run, result)
        finish = partial(RunTables.finish, run=run, state="ok", answer=answer.dump(), epoch=epoch)
        await self.store.write(finish)
        return answer


def _wait(file: RunTables, run: str, epoch: int, act: str, is_new: bool) -> None:
    if is_new:
        kind, name = ("event", "deployed") if act == "event" else ("ask", "")
        shown = json.dumps({"function": "store.merge", "arguments": {"pull": 7}}).encode()
        call = CallRow(run, 1, kind, "store.merge", "waiting", name=name, shown=shown)
        file.advance(run, epoch, calls=[call])
    file.park(run, epoch, [1])


@dataclass
class KeptRuns:
    runs: Runs
    store: RunStore
    app: Starlette
    headers: dict[str, str]
    """Of a client that may decide."""

    @asynccontextmanager
    async def client(self, **headers: str) -> AsyncIterator[httpx2.AsyncClient]:
        transport = httpx2.ASGITransport(app=self.app)
        async with httpx2.AsyncClient(
            transport=transport, base_url="http://127.0.0.1:8080", headers={**self.headers, **headers}
        ) as client:
            yield client

    async def start(self, code: str) -> str:
        answer = await self.runs.start(None, ExecuteCode(code, background=True), LOCAL)
        return answer.run_id

    async def until(self, run: str, state: str) -> None:
        """Return as soon as the run is in this state."""
        with anyio.fail_after(DEADLINE_SECONDS):
            while True:
                news = self.runs.changes.news
                row = await self.store.read(partial(RunTables.row, run=run))
                if row is not None and row.told == state:
                    return
                await news.wait()

    async def hook(self, run: str) -> str:
        return f"/hooks/{await self.store.write(partial(RunTables.hook, run=run, name='deployed'))}"


@asynccontextmanager
async def kept_runs(
    folder: Path,
    *,
    tokens: Json = (),
    may_decide: bool = True,
    go_on: GoOn | None = None,
    sends: bool = True,
    sections: dict[str, Json] | None = None,
    **settings: Json,
) -> AsyncIterator[KeptRuns]:
    """A store of runs in `folder`, what goes on with them, and their routes."""
    is_known = may_decide and not tokens
    server: Json = {"tokens": [*tokens], **({"token": "token-of-operator"} if is_known else {})}
    written = write_manifest(
        folder, {}, runs={"store": "runs.sqlite", **settings}, server=server, **(sections or {})
    )
    manifest = load_manifest(written, {})
    place = place_of(manifest)
    async with AsyncExitStack() as stack, anyio.create_task_group() as tasks:
        on_note = partial(
            add_messages, webhooks=manifest.portal.runs.webhooks, base=public_url(manifest.portal.runs, None)
        )
        store = open_store(place, manifest, stack.enter_context(present(place)), on_note)
        stack.push_async_callback(store.close)
        components = Components(components_folder(place), stack, lambda line: None)
        runs = Runs(manifest, store, tasks)
        resumes = {None: go_on or Script(store).go_on}
        tasks.start_soon(Dispatcher(runs, store, tasks, components, lambda: resumes, takes_all=True).keep)
        if sends:
            tasks.start_soon(Webhooks(manifest, runs, store).keep)
        access = HttpAccess("127.0.0.1", manifest.portal)
        guard = Middleware(HttpAccessMiddleware, access=lambda: access)
        routes = run_routes(runs, lambda profile: None)
        headers = {"Authorization": "Bearer token-of-operator"} if is_known else {}
        yield KeptRuns(runs, store, Starlette(routes=routes, middleware=[guard]), headers)
        tasks.cancel_scope.cancel()
