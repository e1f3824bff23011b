"""Learns, while scripts run, what the results of tools look like that declare nothing about them, and keeps it on disk
for the next portal over the same manifest.
"""

import hashlib
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

import anyio
import anyio.lowlevel
import anyio.to_thread
import structlog
from pydantic import TypeAdapter, ValidationError

from manifests.json_value import Json
from manifests.own_files import is_private, write_whole
from manifests.schema_validation import SchemaError
from portal.library.arguments import listing, nearest_error
from portal.library.function import Function
from portal.library.plain_text import one_line
from portal.library.schema import kind_of, kind_words
from portal.observed.shape import Shape, is_field_name, merged, shape_of

log = structlog.get_logger()

MAX_WAITING: Final = 64
"""Results that wait to be looked at; of more, the oldest are not."""

MOST_COMPARED: Final = 50
"""Results of a tool that are compared with what it declares."""

MAX_STEPS: Final = 500
"""Uses of a schema's keyword on one result, some milliseconds; what lies beyond counts as right."""

LOOK_PAUSE_SECONDS: Final = 0.02
"""How long a result waits: the script that got it goes on first, and where it makes more calls these do."""

LONGEST_MISMATCH: Final = 200

_MOST_PLACES: Final = 3
_CLOSE_SECONDS: Final = 5.0

MAX_FILE_BYTES: Final = 4 * 1024 * 1024
"""Of one upstream's file. Of tools that do not fit, those whose shapes changed longest ago are left out."""


@dataclass(frozen=True)
class Observed:
    """What is known of one tool's results, as long as its definition has this hash."""

    definition: str
    shape: Shape
    mismatch: str = ""
    """Where results were not what the tool declares; without any value of them."""

    def and_also(self, other: "Observed") -> "Observed":
        """What both say; the same object where that is nothing new, the other one if it is of another definition."""
        if other.definition != self.definition:
            return other
        shape, told = merged(self.shape, other.shape), self.mismatch or other.mismatch
        is_same = shape == self.shape and told == self.mismatch
        return self if is_same else Observed(self.definition, shape, told)


_FILE: Final = TypeAdapter(dict[str, Observed])


@dataclass(frozen=True)
class ShapeStore:
    """One folder, private to this user, which several portals may use at once. Its methods block.

    What lies there is believed only if it reads as shapes. `scope` tells manifests apart that use one name for
    different upstreams. Of two portals that save at the same moment, one loses what it learnt last.
    """

    folder: Path
    scope: str

    def load(self, upstream: str) -> dict[str, Observed]:
        """What is kept about the tools of an upstream, by their names; nothing, if its file cannot be read."""
        if not is_private(self.folder):
            return {}
        try:
            data = self._file(upstream).read_bytes()
            return _FILE.validate_json(data) if len(data) <= MAX_FILE_BYTES else {}
        except (OSError, ValidationError):
            return {}

    def save(self, upstream: str, tools: Mapping[str, Observed]) -> None:
        """Keep this, together with what other portals learnt meanwhile.

        Raises:
            OSError: The folder cannot be written.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not is_private(self.folder):
            raise PermissionError("the folder could be changed by other users")
        together = self.load(upstream)
        for name, own in tools.items():  # last, because they are the latest
            together[name] = together.pop(name, own).and_also(own)
        together = {name: each for name, each in together.items() if name.isprintable()}
        while len(data := _FILE.dump_json(together, exclude_defaults=True)) > MAX_FILE_BYTES:
            together = dict(islice(together.items(), (len(together) + 1) // 2, None))
        write_whole(self._file(upstream), data, is_lasting=False)

    def _file(self, upstream: str) -> Path:
        name = hashlib.sha256(f"{self.scope}\n{upstream}".encode(errors="surrogatepass")).hexdigest()
        return self.folder / f"{name[:32]}.json"


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
                await observations.learn()
                await observations.save()


class Observations:
    """The shapes of results, by upstream and tool, each of the definition that the latest result was of.

    A result is looked at after its script has it, and forgotten when it was. Listeners are called whenever a stub
    would say something else than before. Without a store nothing is learnt.
    """

    def __init__(self, store: ShapeStore | None) -> None:
        self._listeners: list[Callable[[], None]] = []
        self._store = store
        self._known: dict[str, dict[str, Observed]] = {}
        self._waiting: deque[tuple[Function, Json, Json]] = deque(maxlen=MAX_WAITING)
        self._unsaved: set[str] = set()
        self._compared: Counter[tuple[str, str]] = Counter()
        self._woken = anyio.Event()

    def listen(self, on_change: Callable[[], None]) -> None:
        self._listeners.append(on_change)

    def note(self, function: Function, arguments: Json, value: Json) -> None:
        """Take notice of a result, which nobody may change any more; returns at once."""
        tool = function.upstream, function.tool
        is_worth_it = function.is_observable or self._compared[tool] < MOST_COMPARED
        if self._store is not None and function.recorded.digest is not None and is_worth_it:
            self._waiting.append((function, arguments, value))
            self._woken.set()

    async def learn(self) -> None:
        """Look at all results that were noted; takes about a millisecond for each, and others have a turn between."""
        while self._waiting:
            self._look_at(*self._waiting.popleft())
            await anyio.lowlevel.checkpoint()

    def of(self, upstream: str) -> Mapping[str, Observed]:
        """What is known of an upstream's tools, by their names, as of now."""
        return dict(self._known.get(upstream, {}))

    async def load(self, upstreams: Iterable[str]) -> None:
        """Read what is kept about these upstreams, each one once."""
        new = [name for name in upstreams if name not in self._known]
        if self._store is not None and new:
            found = await anyio.to_thread.run_sync(lambda store: [*map(store.load, new)], self._store)
            self._known.update(zip(new, found, strict=True))

    async def keep(self) -> None:
        """Look at results as they come, and keep what was learnt, until cancelled."""
        while True:
            await self._woken.wait()
            self._woken = anyio.Event()
            await anyio.sleep(LOOK_PAUSE_SECONDS)
            await self.learn()
            await self.save()

    async def save(self) -> None:
        """Keep on disk what is not kept yet. A disk that cannot be written costs the memory of it."""
        unsaved, self._unsaved = self._unsaved, set()
        for upstream in unsaved:
            assert self._store is not None, "nothing is learnt without a store"
            try:
                await anyio.to_thread.run_sync(self._store.save, upstream, self.of(upstream))
            except OSError as error:
                log.warning("observed_results_not_kept", reason=error.strerror or str(error))

    def _look_at(self, function: Function, arguments: Json, value: Json) -> None:
        definition = function.recorded.digest
        assert definition is not None, "only what has one is noted"
        if function.is_observable:
            seen = Observed(definition, shape_of(value, arguments))
        else:
            self._compared[function.upstream, function.tool] += 1
            seen = Observed(definition, {}, mismatch(function, value))
            if not seen.mismatch:
                return
        known = self._known.setdefault(function.upstream, {})
        former = known.get(function.tool)
        together = former.and_also(seen) if former is not None else seen
        if together is not former:
            known.pop(function.tool, None)  # the latest is last
            known[function.tool] = together
            self._unsaved.add(function.upstream)
            for on_change in self._listeners:
                on_change()


def mismatch(function: Function, value: Json) -> str:
    """Where and how a result is not what its tool declares, at three places at most and without any value of it.

    "" if it fits. A result that does not is passed on all the same: one real result in thirteen does not.
    """
    found = function.results.look_at(value, MAX_STEPS, most=_MOST_PLACES).errors
    told = dict.fromkeys(_told(nearest_error(each)) for each in found)
    return one_line("; ".join(told), LONGEST_MISMATCH)


def _told(error: SchemaError) -> str:
    place = "".join(_steps(error)) or "it"
    if error.validator == "required":
        missing = [each for each in error.validator_value if each not in error.instance]
        return f"{place} lacks {listing(missing)}"
    return f"{place} is {kind_words([kind_of(error.instance)])} that the schema does not take"


def _steps(error: SchemaError) -> Iterator[str]:
    """Where in a result: indices are left out, and keys that the schema does not name, because they may be data."""
    for step in error.absolute_path:
        is_named = step in error.absolute_schema_path and is_field_name(str(step))
        yield "[]" if isinstance(step, int) else f"[{step!r}]" if is_named else "[...]"
