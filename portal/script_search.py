"""`portal.search` and `portal.describe`: docs_search for a script, in the library that it was checked against.

Tools of an upstream that had not listed any by then, because it was starting or down, are found as soon as it has, and
may be called from then on.
"""

from collections.abc import Sequence
from typing import Final

import anyio

from manifests.json_value import Json
from portal.broker import Broker
from portal.docs_search import DocsSearch, rows
from portal.library.function import Function
from portal.requests import RequestError, docs_search_request
from portal.snapshot import MAX_NAME_CHARACTERS, Snapshot
from sandbox_runtime.calls import CallError, Outcome, ToolCall

SEARCH: Final = "portal.search"
DESCRIBE: Final = "portal.describe"

WAITING_SHARE: Final = 0.5
"""After so much of a script's time no search waits any more: the rest is for what it found."""


class ScriptSearch:
    """The sandbox's call port of one run: answers these two functions, and has the broker answer all others.

    They count as calls and stand in the ledger like them.
    """

    def __init__(self, docs_search: DocsSearch, broker: Broker, wall_seconds: float) -> None:
        self._broker = broker
        self._docs_search = docs_search
        self._waits_until = anyio.current_time() + WAITING_SHARE * wall_seconds

    async def __call__(self, call: ToolCall) -> Outcome:
        if call.function not in (SEARCH, DESCRIBE):
            return await self._broker(call)
        entry = self._broker.ledger[call.seq]
        tell = self._found if call.function == SEARCH else self._described
        told = await tell(call.arguments)
        if isinstance(told, CallError):
            entry.end("refused", told)
            return Outcome(error=told)
        entry.end("done")
        return Outcome(value=told)

    async def _found(self, arguments: dict[str, Json]) -> dict[str, Json] | CallError:
        """What docs_search answers; not cut, because a script reads it and not a model."""
        try:
            request = docs_search_request(arguments)
        except RequestError as error:
            return CallError(error.code, str(error))
        snapshot = await self._completed(request.upstream)
        return self._docs_search.look(snapshot, request).structured()

    async def _described(self, arguments: dict[str, Json]) -> dict[str, Json] | CallError:
        name = arguments.get("function")
        if not isinstance(name, str) or len(arguments) > 1:
            return CallError("invalid_arguments", "portal.describe takes the name of one function")
        owner = name.partition(".")[0]
        upstream = owner if self._docs_search.has(owner) else None
        named = _named(self._broker.snapshot, name) or _named(await self._completed(upstream), name)
        if len(named) == 1:
            (row,) = rows(named, full=1)
            return row
        if not named and upstream is None and not self._docs_search.is_complete(None):
            told = f"nothing is called {name[:MAX_NAME_CHARACTERS]!r} so far, and upstreams are starting"
            return CallError("upstream_unavailable", told, "Try again later.")
        return self._broker.absence(next(iter(self._broker.snapshot.withheld(name)), name))

    async def _completed(self, upstream: str | None) -> Snapshot:
        """The snapshot of the run: a later one if it lacks upstreams that are searched. Calls are judged by it, too."""
        seconds = self._waits_until - anyio.current_time()
        self._broker.snapshot = await self._docs_search.since(self._broker.snapshot, upstream, seconds)
        return self._broker.snapshot


def _named(snapshot: Snapshot, name: str) -> Sequence[Function]:
    """The function of that name; two if there are more, in several namespaces."""
    if (function := snapshot.library.functions.get(name)) is not None:
        return (function,)
    assert snapshot.index is not None, "a script runs with a fresh snapshot"
    hits = snapshot.index.search(name, 2)
    return hits.functions[: hits.exact]
