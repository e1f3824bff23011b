"""One faulty upstream beside a healthy one, behind a pipeline, and what a script would see of its calls."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio

from manifests.json_value import Json
from manifests.loader import load_manifest
from portal.calls.pipeline import Pipeline
from portal.catalog.authority import Authority, Authorization
from portal.catalog.catalog import Catalog
from portal.identity.accounts import Accounts
from portal.library.observed import Observations
from sandbox_runtime.call_port import ToolCall
from tests.portal.peers import run_context, write_manifest
from tests.upstreams.faults.http_server import FaultyHttpServer
from tests.upstreams.peers import DEADLINE_SECONDS, RAW_SERVER, WatchedFleet, open_fleet


@dataclass(frozen=True)
class Seen:
    """One call as the script and its ledger see it: `code` is that of its error, or `ok`."""

    code: str
    state: str


class Bench:
    """Calls as a script's, in one run."""

    def __init__(self, calls: Pipeline, watched: WatchedFleet) -> None:
        self.watched = watched
        self.values: dict[int, Json] = {}
        self._calls = calls
        self._seq = 0

    async def call(self, function: str, **arguments: Json) -> Seen:
        self._seq += 1
        seq = self._seq
        self._calls.open(seq, function)
        with anyio.fail_after(DEADLINE_SECONDS):
            outcome = await self._calls(ToolCall(seq, function, arguments))
        self.values[seq] = outcome.value
        row = self._calls.run.ledger.rows()[seq - 1]
        return Seen(outcome.error.code if outcome.error else "ok", row["state"])

    def ledger(self) -> list[Json]:
        """The rows of all calls so far."""
        return self._calls.run.ledger.rows()

    async def call_beside(self, function: str) -> Seen:
        """The same, while the healthy upstream answers ten calls and must not have to wait for this one."""
        seen: list[Seen] = []

        async def call() -> None:
            seen.append(await self.call(function, n=0))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            for number in range(10):
                assert await self.call("healthy.fine", n=number) == Seen("ok", "done")
        return seen[0]

    async def until(self, status: str) -> None:
        """The faulty upstream is in this state."""
        await self.watched.until(lambda: self.watched["faulty"].state.status == status)

    @property
    def connections(self) -> int:
        """How often the faulty upstream was ready."""
        return sum(change == ("faulty", "ready") for change in self.watched.history)


@asynccontextmanager
async def bench(folder: Path, faulty: dict[str, Json]) -> AsyncIterator[Bench]:
    """`faulty` is the manifest's entry; both upstreams have started, or failed to."""
    watched = WatchedFleet()
    async with FaultyHttpServer().serving() as healthy:
        entries = {"faulty": faulty, "healthy": {"url": healthy.url}}
        manifest = load_manifest(write_manifest(folder, entries), {})
        stubs = folder / "stubs"
        stubs.mkdir(exist_ok=True)
        authority = Authority.fixed(manifest)
        catalog = Catalog(authority, stubs, None, Observations(None))

        def note(upstream: object) -> None:
            catalog.note_change()
            watched.note(upstream)  # type: ignore[arg-type]

        async with (
            open_fleet(manifest.portal.upstreams, manifest.folder, note) as fleet,
            anyio.create_task_group() as tasks,
        ):
            watched.fleet = fleet
            tasks.start_soon(catalog.keep, fleet)
            assert not await fleet.settled(DEADLINE_SECONDS)
            snapshot = await catalog.fresh()
            context = run_context(Accounts(manifest, fleet, None), snapshot, Authorization(authority, set()))
            yield Bench(Pipeline(context), watched)
            tasks.cancel_scope.cancel()


def stdio_entry(
    folder: Path, fault: str = "none", connect_seconds: float = 30, **more: Json
) -> dict[str, Json]:
    """The manifest's entry of a stdio server with this fault, or with another behaviour."""
    behaviour = {"fault": fault, "journal": str(folder / "journal"), **more}
    arguments = [str(RAW_SERVER), json.dumps(behaviour)]
    return {"command": sys.executable, "args": arguments, "connect_seconds": connect_seconds}


def noted(folder: Path, *words: str) -> list[list[str]]:
    """The lines of the stdio server's journal that begin so."""
    lines = [line.split() for line in (folder / "journal").read_text().splitlines()]
    return [line for line in lines if line[: len(words)] == list(words)]
