"""`portal.search` and `portal.describe`: docs_search for a script, in the library that it was checked against.

Tools of an upstream that had not listed any by then, because it was starting or down, are found as soon as it has.
"""

from typing import Final

from manifests.json_value import Json
from portal.broker import Broker
from portal.docs_search import DocsSearch
from portal.function_rows import rows
from portal.library.function import Function
from portal.requests import RequestError, docs_search_request
from portal.snapshot import MAX_NAME_CHARACTERS, Snapshot
from sandbox_runtime.calls import CallError, Outcome, ToolCall

SEARCH: Final = "portal.search"
DESCRIBE: Final = "portal.describe"


class ScriptSearch:
    """The sandbox's call port of one run: answers these two functions, and has the broker answer all others.

    They count as calls and stand in the ledger like them.
    """

    def __init__(self, docs_search: DocsSearch, broker: Broker, snapshot: Snapshot) -> None:
        self._broker = broker
        self._docs_search = docs_search
        self._snapshot = snapshot

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
        snapshot = await self._completed(upstream)
        function = snapshot.library.functions.get(name) or _only_one(snapshot, name)
        if function is not None:
            (row,) = rows([function], full=1)
            return row
        if upstream is None and not self._docs_search.is_complete(None):
            told = f"nothing is called {name[:MAX_NAME_CHARACTERS]!r} so far, and upstreams are starting"
            return CallError("upstream_unavailable", told, "Try again later.")
        return self._broker.absence(next(iter(snapshot.withheld(name)), name), snapshot)

    async def _completed(self, upstream: str | None) -> Snapshot:
        self._snapshot = await self._docs_search.completed(self._snapshot, upstream)
        return self._snapshot


def _only_one(snapshot: Snapshot, name: str) -> Function | None:
    """The function of that name, whatever its namespace, if there is just one."""
    assert snapshot.index is not None, "a script runs with a fresh snapshot"
    hits = snapshot.index.search(name, 2)
    return hits.functions[0] if hits.exact == 1 else None
