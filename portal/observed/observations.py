"""Learns, while scripts run, what the results of tools look like that declare nothing about them."""

from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import anyio
import anyio.lowlevel
import anyio.to_thread
import structlog

from manifests.json_value import Json
from portal.library.function import Function
from portal.observed.mismatch import mismatch
from portal.observed.reading import shape_of
from portal.observed.shape import UNSEEN
from portal.observed.shape_store import Observed, ShapeStore

log = structlog.get_logger()

MAX_WAITING: Final = 64
"""Results that wait to be looked at; of more, the oldest are not."""

MOST_COMPARED: Final = 50
"""Results of a tool that are compared with what it declares."""

LOOK_PAUSE_SECONDS: Final = 0.02
"""How long a result waits: the script that got it goes on first, and where it makes more calls these do."""

SAVE_PAUSE_SECONDS: Final = 1.0
"""What is learnt is kept on disk at most this often."""

_CLOSE_SECONDS: Final = 5.0


@asynccontextmanager
async def open_observations(store: ShapeStore) -> AsyncIterator["Observations"]:
    """Observations that are kept in `store`, also when they end."""
    observations = Observations(store)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(observations.keep)
        try:
            yield observations
        finally:
            tasks.cancel_scope.cancel()
            with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
                observations.learn()
                await observations.save()


class Observations:
    """The shapes of results, by upstream and tool. All methods but `load` and `save` return at once.

    A result is looked at after its script has it, and forgotten when it was. Who listens is called whenever a stub
    would say something else than before.
    """

    def __init__(self, store: ShapeStore | None) -> None:
        self._listeners: list[Callable[[], None]] = []
        self._store = store
        self._known: dict[str, dict[str, Observed]] = {}
        self._definitions: dict[str, Mapping[str, str | None]] = {}
        self._waiting: deque[tuple[Function, Json, Json]] = deque(maxlen=MAX_WAITING)
        self._unsaved: dict[str, set[str]] = {}
        self._is_failure_told = False
        self._as_declared: Counter[tuple[str, str]] = Counter()
        self._woken = anyio.Event()
        self._learnt = anyio.Event()

    def listen(self, on_change: Callable[[], None]) -> None:
        self._listeners.append(on_change)

    def _tell(self) -> None:
        for on_change in self._listeners:
            on_change()

    def note(self, function: Function, arguments: Json, value: Json) -> None:
        """Take notice of a result, which nobody may change any more."""
        if function.digest is not None and self._store is not None and self._is_worth(function):
            self._waiting.append((function, arguments, value))
            self._woken.set()

    def learn(self) -> None:
        """Look at all results that were noted; takes at most half a millisecond for each."""
        while self._waiting:
            self._look_at(*self._waiting.popleft())

    def _look_at(self, function: Function, arguments: Json, value: Json) -> None:
        current = self._definitions.get(function.upstream, {}).get(function.tool, function.digest)
        seen = self._seen(function, arguments, value) if current == function.digest else None
        if seen is not None and self._take(function.upstream, {function.tool: seen}):
            self._tell()

    def of(self, upstream: str) -> Mapping[str, Observed]:
        """What is known of an upstream's tools, by their names, as of now."""
        return dict(self._known.get(upstream, {}))

    def define(self, upstream: str, definitions: Mapping[str, str | None]) -> None:
        """Forget tools whose definition is another one now; what scripts still get by former ones is not looked at."""
        self._definitions[upstream] = definitions
        known = self._known.get(upstream, {})
        for tool in [name for name in known if name in definitions]:
            if known[tool].definition != definitions[tool]:
                del known[tool]
                self._note_unsaved(upstream).add(tool)

    async def load(self, upstreams: Iterable[str]) -> None:
        """Read what is kept about these upstreams, each one once."""
        new = [name for name in upstreams if name not in self._known]
        if self._store is not None and new:
            found = await anyio.to_thread.run_sync(lambda store: [*map(store.load, new)], self._store)
            for name, tools in zip(new, found, strict=True):
                self._known.setdefault(name, {})
                self._take(name, tools, is_saved=True)

    async def keep(self) -> None:
        """Look at results as they come, and keep what was learnt, until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._keep_saved)
            while True:
                await self._woken.wait()
                self._woken = anyio.Event()
                await anyio.sleep(LOOK_PAUSE_SECONDS)
                while self._waiting:
                    self._look_at(*self._waiting.popleft())
                    await anyio.lowlevel.checkpoint()  # everybody else has a turn

    async def save(self) -> None:
        """Keep on disk what is not kept yet. A disk that cannot be written costs the memory of it, and one warning."""
        unsaved, self._unsaved = self._unsaved, {}
        for upstream, outdated in unsaved.items():
            assert self._store is not None, "nothing is learnt without a store"
            write = partial(self._store.save, upstream, self.of(upstream), outdated)
            try:
                kept = await anyio.to_thread.run_sync(write)
            except OSError as error:
                if not self._is_failure_told:
                    log.warning("observed_results_not_kept", reason=error.strerror or str(error))
                self._is_failure_told = True
                return
            if self._take(upstream, kept, is_saved=True):
                self._tell()

    def _is_worth(self, function: Function) -> bool:
        """Whether a result may say something new: of what a tool declares, the first few show whether it is true."""
        return function.is_observable or self._as_declared[function.upstream, function.tool] < MOST_COMPARED

    def _seen(self, function: Function, arguments: Json, value: Json) -> Observed | None:
        """What one result says; None if it is what its tool declares."""
        assert function.digest is not None
        if function.is_observable:
            return Observed(function.digest, shape_of(value, arguments))
        self._as_declared[function.upstream, function.tool] += 1
        told = mismatch(function, value)
        return Observed(function.digest, UNSEEN, told) if told else None

    async def _keep_saved(self) -> None:
        while True:
            await self._learnt.wait()
            self._learnt = anyio.Event()
            await anyio.sleep(SAVE_PAUSE_SECONDS)
            await self.save()

    def _take(self, upstream: str, tools: Mapping[str, Observed], *, is_saved: bool = False) -> bool:
        """Merge into what is known; says whether that changed. A shape of another definition gives way."""
        known = self._known.setdefault(upstream, {})
        is_new = False
        for tool, seen in tools.items():
            former = known.get(tool)
            if former is not None and former.definition == seen.definition:
                seen = former.and_also(seen)
                if seen is former:
                    continue
            elif former is not None and is_saved:
                continue
            known.pop(tool, None)
            known[tool] = seen
            is_new = True
            if not is_saved:
                self._note_unsaved(upstream)
        return is_new

    def _note_unsaved(self, upstream: str) -> set[str]:
        self._learnt.set()
        return self._unsaved.setdefault(upstream, set())
