"""Learns the shape of results from real ones, if the tool declares none: types, keys and nesting.

Shapes are stored on disk for the next portal with the same manifest.

No data of a result, such as an id, an address or a person's name, may reach the disk or a model as a key. In doubt,
keys count as data and the object becomes a map. That costs a stub some detail; the opposite mistake leaks data.
"""

import hashlib
import os
import re
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from itertools import islice
from math import inf
from pathlib import Path
from typing import Final, Protocol

import anyio
import anyio.lowlevel
import anyio.to_thread
import structlog
from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from manifests.json_value import KINDS, Json, SchemaError
from manifests.manifest import Manifest
from manifests.own_files import is_private, state_folder, write_whole
from portal.base.plain_text import one_line
from portal.library.arguments import listing, nearest_error
from portal.library.function import Function
from portal.library.results import parsed_text
from portal.library.schema import kind_of, kind_words

MAX_DEPTH: Final = 8
"""Levels of nesting. Deeper values may be anything."""

MAX_FIELDS: Final = 100
"""Keys of one object. An object with more is a map."""

MAX_PLACES: Final = 400
"""Places of one shape. Beyond that, the deepest ones may be anything."""

MAX_VALUES: Final = 1_000
"""Values of one result that are read, which takes about a millisecond."""

MAX_ITEMS: Final = 12
"""Items of one list that are read: the first ones, and some of the others."""

_FIRST_ITEMS: Final = 6
_MAX_ARGUMENT_TEXTS: Final = 200
_LONGEST_ARGUMENT_TEXT: Final = 1_000
_BETWEEN_NAMES: Final = re.compile(r"[,;|\n，、；]")
_MANY_FIELDS: Final = 30
_MANY_ALIKE: Final = 3

_FIELD_NAME: Final = re.compile(
    r"""
    (?!.{41})
    (?![0-9a-f]{8,}\Z | (?=.*[0-9])[0-9a-f]{6,}\Z)   # no hexadecimal number: deadbeef, fa855f
    (?!.*[b-df-hj-np-tv-xz]{9})                       # no token: xKqZbWtRpL
    [$@#_]{0,2}[a-z][a-z_-]*(?:[0-9]{1,3}[a-z_-]*)?\Z   # at most one number, a short one
    """,
    re.ASCII | re.IGNORECASE | re.VERBOSE,
)
_DIGITS: Final = re.compile(r"[0-9]+")


class Shape(TypedDict, total=False):
    """The values seen at one place of some results, as JSON Schema (2020-12); empty if none was.

    `items` is the shape of list items. An object has `properties`, and `required` lists those that every one had. If
    its keys are data, it has `additionalProperties` instead.
    """

    type: list[str]
    properties: "dict[str, Shape]"
    required: list[str]
    additionalProperties: "Shape"
    items: "Shape"


_OF_SCALARS: Final = {of: Shape(type=[name]) for of, name in KINDS.items() if of not in (dict, list)}
_NULL: Final = Shape(type=["null"])


def shape_of(value: Json, arguments: Json = None) -> Shape:
    """The shape of one result. A large result is sampled.

    `arguments` are those of the call: keys that repeat them may be data.
    """
    argument_texts = frozenset(islice(_texts(arguments, 0), _MAX_ARGUMENT_TEXTS))
    left = iter(range(MAX_VALUES))

    def read(value: Json, depth: int) -> Shape:
        is_late = next(left, None) is None
        if type(value) in _OF_SCALARS:
            return _OF_SCALARS[type(value)]
        if depth > MAX_DEPTH or is_late:
            return {}
        if isinstance(value, list):
            step = max(1, (len(value) - _FIRST_ITEMS) // (MAX_ITEMS - _FIRST_ITEMS))
            sample = [*value[:_FIRST_ITEMS], *value[_FIRST_ITEMS::step]][:MAX_ITEMS]
            items = [read(each, depth + 1) for each in sample]
            return {"type": ["array"], "items": reduce(_merged, items, Shape())}
        # Read one key more than MAX_FIELDS, which makes the object a map.
        fields = {key: read(child, depth + 1) for key, child in islice(value.items(), MAX_FIELDS + 1)}
        return {"type": ["object"], **_object(fields, [*fields], argument_texts)}

    return _bounded(read(value, 1))


def merged(one: Shape, other: Shape) -> Shape:
    """The shape that covers both. Merging only widens a shape, up to its bounds, so repeated merging ends."""
    return _bounded(_merged(one, other))


def schema_of(shape: Shape) -> Json:
    """The JSON Schema for results of this shape. A place that was always null may be anything."""
    return shape if shape == _NULL else _mapped(shape, _without_null)


def _without_null(shape: Shape) -> Shape:
    return {} if shape == _NULL else _mapped(shape, _without_null)


@lru_cache(maxsize=4096)
def is_field_name(key: str) -> bool:
    """Whether a key looks like a programmer's name: words, at most one short number, no id or token."""
    return _FIELD_NAME.match(key) is not None


def are_numbered(keys: Collection[str]) -> bool:
    """Whether all keys, or at least three, differ only in their numbers."""
    alike = Counter(_DIGITS.sub("0", key) for key in keys if _DIGITS.search(key))
    most = max(alike.values(), default=0)
    return most >= _MANY_ALIKE or (most > 1 and most == len(keys))


def _texts(value: Json, depth: int) -> Iterator[str]:
    """Strings in arguments, casefolded and split at list separators. Prose is not split: its words name fields."""
    if isinstance(value, str):
        if len(value) <= _LONGEST_ARGUMENT_TEXT:
            yield from map(str.strip, _BETWEEN_NAMES.split(value.casefold()))
    elif isinstance(value, dict | list) and depth < MAX_DEPTH:
        for child in value.values() if isinstance(value, dict) else value:
            yield from _texts(child, depth + 1)


def _bounded(shape: Shape) -> Shape:
    depth = MAX_DEPTH
    while _places(shape) > MAX_PLACES and depth > 1:
        depth -= 1
        shape = _cut(shape, depth)
    return shape


def _places(shape: Shape) -> int:
    inner = [*shape.get("properties", {}).values(), shape.get("items"), shape.get("additionalProperties")]
    return 1 + sum(_places(each) for each in inner if each is not None)


def _cut(shape: Shape, depth: int) -> Shape:
    """The shape with nothing known below `depth` levels."""
    return _mapped(shape, lambda inner: _cut(inner, depth - 1)) if depth else {}


def _mapped(shape: Shape, change: Callable[[Shape], Shape]) -> Shape:
    """The shape with `change` applied to its direct children."""
    shape = {**shape}
    if "properties" in shape:
        shape["properties"] = {key: change(each) for key, each in shape["properties"].items()}
    if "additionalProperties" in shape:
        shape["additionalProperties"] = change(shape["additionalProperties"])
    if "items" in shape:
        shape["items"] = change(shape["items"])
    return shape


def _merged(one: Shape, other: Shape) -> Shape:
    if other in (one, {}):
        return one
    if not one:
        return other
    types = {*one.get("type", ()), *other.get("type", ())}
    if "number" in types:
        types -= {"integer"}  # integers are numbers
    whole = _merged_objects(one, other) if "object" in types else Shape()
    if "array" in types:
        whole["items"] = _merged(one.get("items", {}), other.get("items", {}))
    return {**whole, "type": [name for name in reversed(KINDS.values()) if name in types]}


def _merged_objects(one: Shape, other: Shape) -> Shape:
    if "additionalProperties" in one or "additionalProperties" in other:
        values = [value for each in (one, other) for value in each.get("properties", {}).values()]
        values += [each["additionalProperties"] for each in (one, other) if "additionalProperties" in each]
        return {"additionalProperties": reduce(_merged, values)}
    if "properties" not in one or "properties" not in other:
        known = one if "properties" in one else other
        return {"properties": known.get("properties", {}), "required": known.get("required", [])}
    mine, theirs = one["properties"], other["properties"]
    shared = {key: _merged(mine[key], theirs[key]) for key in mine if key in theirs}
    required = [key for key in one.get("required", []) if key in other.get("required", [])]
    return _object({**mine, **theirs, **shared}, required)


def _object(fields: dict[str, Shape], required: list[str], argument_texts: Collection[str] = ()) -> Shape:
    """The keywords for an object with these fields, or for a map if the keys are data."""
    if _are_data(fields, required, argument_texts):
        return {"additionalProperties": reduce(_merged, fields.values(), Shape())}
    return {"properties": fields, "required": required}


def _are_data(
    fields: Mapping[str, Shape], required: Collection[str], argument_texts: Collection[str]
) -> bool:
    """Whether the keys are data. Objects under a key from the arguments make a map; so do values of one type."""
    if len(fields) > MAX_FIELDS or not all(map(is_field_name, fields)) or are_numbered(fields):
        return True
    if len(fields) > _MANY_FIELDS and len(required) * 4 < len(fields):
        return True
    repeated = [shape for key, shape in fields.items() if key.casefold() in argument_texts]
    if any("object" in shape.get("type", ()) for shape in repeated):
        return True
    kinds = {frozenset(shape.get("type", ())) - {"null"} for shape in fields.values()} - {frozenset()}
    if len(kinds) != 1:
        return False
    # Objects with the same keys are records: {"Ann": {...}, "Bob": {...}, "Cy": {...}}.
    keys = {frozenset(shape.get("properties", ())) for shape in fields.values()}
    are_records = len(fields) >= _MANY_ALIKE and len(keys) == 1 and keys != {frozenset()}
    has_nothing_in_common = len(fields) > 1 and not required
    return has_nothing_in_common or bool(repeated) or are_records


log = structlog.get_logger()

MAX_WAITING: Final = 64
"""Results that wait to be read. Beyond that, the oldest are dropped."""

MOST_COMPARED: Final = 50
"""Results of a tool that are compared with its declaration."""

MAX_STEPS: Final = 500
"""Validation steps for one result, some milliseconds. The rest counts as valid."""

LEARN_PAUSE_SECONDS: Final = 0.02
"""Time before a result is read. The script that got it, and its next calls, go first."""

SURE: Final = 3
"""Results that are JSON in a declared text, and no other text before, until scripts get the data."""

LONGEST_MISMATCH: Final = 200

_MOST_PLACES: Final = 3
_CLOSE_SECONDS: Final = 5.0

MAX_FILE_BYTES: Final = 4 * 1024 * 1024
"""Size of one upstream's file. If it is exceeded, the tools whose shapes changed longest ago are dropped."""


@dataclass(frozen=True)
class Observed:
    """Knowledge about one tool's results. Valid while the tool's definition has this hash."""

    definition: str
    shape: Shape
    mismatch: str = ""
    """Where results differed from the tool's declaration; without any value."""
    texts: int = 0
    """Results that were JSON in a declared text, before any other text; at most SURE."""
    data_since: float = inf
    """When they became SURE, in seconds since 1970. It stays, whatever follows, so that scripts keep working."""

    def merged_with(self, other: "Observed") -> "Observed":
        """Merge both. Returns `self` if `other` adds nothing, and `other` if it is for another definition."""
        if other.definition != self.definition:
            return other
        shape, mismatch = merged(self.shape, other.shape), self.mismatch or other.mismatch
        texts, since = max(self.texts, other.texts), min(self.data_since, other.data_since)
        together = Observed(self.definition, shape, mismatch, texts, since)
        return self if together == self else together


_FILE: Final = TypeAdapter(dict[str, Observed])


class Shapes(Protocol):
    """Stores observed types. Its methods run in a thread."""

    def load(self, upstream: str) -> dict[str, Observed]:
        """Return what is stored about an upstream's tools, by name. Empty if it cannot be read."""

    def save(self, upstream: str, tools: Mapping[str, Observed]) -> None:
        """Store `tools`, merged with what others have stored since. Raises OSError."""


@dataclass(frozen=True)
class ShapeStore:
    """Stores shapes in one folder, private to this user. Several portals may use it at once. Its methods block.

    Files that are not valid shapes are ignored. `scope` separates manifests that use one name for different upstreams.
    If two portals save at the same moment, one loses what it learnt last.
    """

    folder: Path
    scope: str

    def load(self, upstream: str) -> dict[str, Observed]:
        if not is_private(self.folder):
            return {}
        try:
            return loaded(self._file(upstream).read_bytes())
        except OSError:
            return {}

    def save(self, upstream: str, tools: Mapping[str, Observed]) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not is_private(self.folder):
            raise PermissionError("other users can write to the folder")
        write_whole(self._file(upstream), dumped(self.load(upstream), tools), is_lasting=False)

    def _file(self, upstream: str) -> Path:
        name = hashlib.sha256(f"{self.scope}\n{upstream}".encode(errors="surrogatepass")).hexdigest()
        return self.folder / f"{name[:32]}.json"


def shape_store(manifest: Manifest) -> ShapeStore | None:
    """The store of a manifest's shapes on this machine; None if results are not observed."""
    settings = manifest.portal.server
    if not settings.observe_results:
        return None
    own = settings.observed_folder
    folder = manifest.folder / own if own else state_folder(os.environ) / "observed"
    return ShapeStore(folder, str(manifest.folder.resolve()))


def loaded(data: bytes) -> dict[str, Observed]:
    """Parse what `dumped` wrote; empty if it is something else."""
    try:
        return _FILE.validate_json(data) if len(data) <= MAX_FILE_BYTES else {}
    except ValidationError:
        return {}


def dumped(stored: Mapping[str, Observed], tools: Mapping[str, Observed]) -> bytes:
    """Both together as JSON, of at most MAX_FILE_BYTES."""
    together = dict(stored)
    for name, own in tools.items():  # at the end, because they are the latest
        together[name] = together.pop(name, own).merged_with(own)
    together = {name: each for name, each in together.items() if name.isprintable()}
    while len(data := _FILE.dump_json(together, exclude_defaults=True)) > MAX_FILE_BYTES:
        together = dict(islice(together.items(), (len(together) + 1) // 2, None))
    return data


@asynccontextmanager
async def open_observations(store: Shapes | None) -> AsyncIterator["Observations"]:
    """Observations that are saved to `store`, also at the end."""
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
    """The shapes of results, by upstream and tool. Each belongs to the definition of the latest result.

    A result is read after its script got it, and then dropped. Listeners are called whenever a stub would change.
    Without a store nothing is learnt.
    """

    def __init__(self, store: Shapes | None) -> None:
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
        """Queue a result to be read. It must not be changed afterwards. Returns at once."""
        tool = function.upstream, function.tool
        is_worth_it = function.returns.is_observable or self._compared[tool] < MOST_COMPARED
        if self._store is not None and function.recorded.digest is not None and is_worth_it:
            self._waiting.append((function, arguments, value))
            self._woken.set()

    async def learn(self) -> None:
        """Read all queued results. Each takes about a millisecond; yields to the event loop after each."""
        while self._waiting:
            self._learn_result(*self._waiting.popleft())
            await anyio.lowlevel.checkpoint()

    def of(self, upstream: str) -> Mapping[str, Observed]:
        """The knowledge about an upstream's tools, by name."""
        return dict(self._known.get(upstream, {}))

    async def load(self, upstreams: Iterable[str]) -> None:
        """Load what is stored about these upstreams, once for each."""
        new = [name for name in upstreams if name not in self._known]
        if self._store is not None and new:
            found = await anyio.to_thread.run_sync(lambda store: [*map(store.load, new)], self._store)
            self._known.update(zip(new, found, strict=True))

    async def keep(self) -> None:
        """Read results as they arrive and save what was learnt, until cancelled."""
        while True:
            await self._woken.wait()
            self._woken = anyio.Event()
            await anyio.sleep(LEARN_PAUSE_SECONDS)
            await self.learn()
            await self.save()

    async def save(self) -> None:
        """Save what is not saved yet. If that fails, the next portal has to learn it again."""
        while self._unsaved:
            assert self._store is not None, "nothing is learnt without a store"
            upstream = self._unsaved.pop()
            try:
                with anyio.CancelScope(shield=True):  # no one else would save it
                    await anyio.to_thread.run_sync(self._store.save, upstream, self.of(upstream))
            except OSError as error:
                log.warning("observed_results_not_kept", reason=error.strerror or str(error))

    def _learn_result(self, function: Function, arguments: Json, value: Json) -> None:
        definition = function.recorded.digest
        assert definition is not None, "only results of tools with a digest are queued"
        known = self._known.setdefault(function.upstream, {})
        former = known.get(function.tool)
        if function.returns.is_observable:
            data = parsed_text(value) if isinstance(value, str) else value
            seen = Observed(definition, shape_of(data, arguments))
            if function.returns.declares_text and isinstance(data, dict | list):
                seen = _of_text(seen, former)
        else:
            self._compared[function.upstream, function.tool] += 1
            seen = Observed(definition, {}, mismatch(function, value))
            if not seen.mismatch:
                return
        together = former.merged_with(seen) if former is not None else seen
        if together is not former:
            known.pop(function.tool, None)  # move it to the end
            known[function.tool] = together
            self._unsaved.add(function.upstream)
            for on_change in self._listeners:
                on_change()


def _of_text(seen: Observed, former: Observed | None) -> Observed:
    """Add a result that is JSON in a declared text to what was seen before."""
    if former is None or former.definition != seen.definition:
        return replace(seen, texts=1)
    texts = former.texts if "string" in former.shape.get("type", ()) else min(former.texts + 1, SURE)
    return replace(seen, texts=texts, data_since=time.time() if texts == SURE else inf)


def mismatch(function: Function, value: Json) -> str:
    """Describe how a result differs from its tool's declaration: at most three places, without any value.

    "" if it fits. A result that does not fit is passed on: one real result in thirteen does not.
    """
    found = function.returns.validator.validate(value, MAX_STEPS, most=_MOST_PLACES).errors
    texts = dict.fromkeys(_mismatch_text(nearest_error(each)) for each in found)
    return one_line("; ".join(texts), LONGEST_MISMATCH)


def _mismatch_text(error: SchemaError) -> str:
    place = "".join(_steps(error)) or "it"
    if error.validator == "required":
        missing = [each for each in error.validator_value if each not in error.instance]
        return f"{place} lacks {listing(missing)}"
    return f"{place} is {kind_words([kind_of(error.instance)])}, which the schema does not allow"


def _steps(error: SchemaError) -> Iterator[str]:
    """The place in a result. Omits indices, and keys that the schema does not name, because they may be data."""
    for step in error.absolute_path:
        is_named = step in error.absolute_schema_path and is_field_name(str(step))
        yield "[]" if isinstance(step, int) else f"[{step!r}]" if is_named else "[...]"
