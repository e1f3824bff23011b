"""Where the pages of the console get their data: from a running portal, or from a store that portals have left."""

import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import anyio
import anyio.to_thread

from manifests.json_value import Json
from manifests.manifest import Manifest
from portal.base.plain_text import shown_path
from portal.console.needs import Need, of_portal, upstream_states
from portal.identity.approvers import Approvers, Decider
from portal.records.store.places import Place, open_tables
from portal.records.store.run_tables import RunTables
from portal.runs.decisions import add_messages, cancel_run, decide_call

if TYPE_CHECKING:  # the SDK behind it takes a second to import
    from portal.server.portal import Portal

Found = TypeVar("Found")

SILENCE_SECONDS: Final = 15.0


class LiveSource:
    """A portal that runs in this process. Others may write to its store too.

    All addresses of its pages begin with `base`: `/ui`, or `/ui/@NAME` behind the command `ui`.
    """

    def __init__(self, portal: "Portal", base: str, about: Callable[[], str]) -> None:
        self._portal, self.base, self._about = portal, base, about
        self.decide, self.cancel = portal.runs.decide, portal.runs.cancel

    @property
    def name(self) -> str:
        """Its manifest, for people."""
        path = self._portal.manifest.path
        return shown_path(os.path.abspath(path)) if path else "no portal.yaml"

    @property
    def about(self) -> str:
        """How it runs, for people: `stdio · pid 5120`; `ended` if no portal does."""
        return self._about()

    @property
    def approvers(self) -> Approvers:
        return self._portal.runs.approvers

    async def read(self, work: Callable[[RunTables], Found], owner: str | None = None) -> Found:
        """Read the store in its thread. Raises RunsError, StoreError."""
        return await self._portal.runs.store_or_error().read(work, owner or "")

    def upstreams(self) -> Sequence[Json]:
        return upstream_states(self._portal)

    def needs(self) -> Sequence[Need]:
        """What needs a person besides the calls that wait, which are in the store."""
        return of_portal(self._portal)

    async def changes(self) -> AsyncGenerator[bool]:
        """Yield True whenever something may have happened to a run or an upstream, False after a while without."""
        while True:
            news = self._portal.runs.changes.rows
            yield True  # whoever reads the store now has taken the event before
            while not news.is_set():
                with anyio.move_on_after(SILENCE_SECONDS) as silence:
                    await news.wait()
                if silence.cancelled_caught:
                    yield False


class LeftSource:
    """A store whose portals have ended. A decision waits there for the next portal of its manifest.

    `manifest` has the key of the store, and the rules about deciding; without one the store is unencrypted. Nothing
    happens there but what people decide, so its pages are told of nothing.
    """

    about = "ended"

    def __init__(self, place: Place, manifest: Manifest | None, base: str, name: str) -> None:
        self._place, self._manifest, self.base, self.name = place, manifest, base, name

    @property
    def approvers(self) -> Approvers:
        return Approvers.of(self._manifest) if self._manifest else Approvers()

    async def read(self, work: Callable[[RunTables], Found], owner: str | None = None) -> Found:
        def read() -> Found:
            with closing(open_tables(self._place, self._manifest)) as tables:
                return work(tables)

        return await anyio.to_thread.run_sync(read)

    async def decide(self, run: str, seq: int | None, decider: Decider, **decision: Any) -> str:
        def decide(tables: RunTables) -> str:
            return decide_call(tables, run, seq, decider, self.approvers, **decision).run

        return await anyio.to_thread.run_sync(self._write, decide)

    async def cancel(self, run: str, owner: str | None) -> str:
        return await anyio.to_thread.run_sync(self._write, partial(cancel_run, run=run, owner=owner))

    def upstreams(self) -> Sequence[Json]:
        return ()

    def needs(self) -> Sequence[Need]:
        return ()

    async def changes(self) -> AsyncGenerator[bool]:
        yield True  # for a page that has lost its stream
        while True:
            await anyio.sleep(SILENCE_SECONDS)
            yield False

    def _write(self, work: Callable[[RunTables], Found]) -> Found:
        webhooks = self._manifest.portal.runs.webhooks if self._manifest else ()
        tables = open_tables(self._place, self._manifest, on_note=partial(add_messages, webhooks=webhooks))
        with closing(tables), tables.transaction(is_lasting=True):
            return work(tables)


Source: TypeAlias = LiveSource | LeftSource
"""What the pages need of a portal. Decisions and reads raise RunsError, StoreError."""
