"""`portal.search` and `portal.describe`: docs_search for a script, in the library that it was checked against."""

from collections.abc import Sequence
from typing import Final

from manifests.json_value import Json
from portal.broker import Broker
from portal.docs_search import DocsSearch, rows
from portal.library.function import Function
from portal.requests import RequestError, docs_search_request
from portal.snapshot import Snapshot
from sandbox_runtime.calls import CallError, Outcome, ToolCall

SEARCH: Final = "portal.search"
DESCRIBE: Final = "portal.describe"


class ScriptSearch:
    """The sandbox's call port of one run: answers these two functions, and has the broker answer all others.

    They count as calls and stand in the ledger like them.
    """

    def __init__(self, docs_search: DocsSearch, broker: Broker) -> None:
        self._broker = broker
        self._docs_search = docs_search

    async def __call__(self, call: ToolCall) -> Outcome:
        if call.function not in (SEARCH, DESCRIBE):
            return await self._broker(call)
        entry = self._broker.ledger[call.seq]
        tell = self._found if call.function == SEARCH else self._described
        told = tell(call.arguments)
        if isinstance(told, CallError):
            entry.end("refused", told)
            return Outcome(error=told)
        entry.end("done")
        return Outcome(value=told)

    def _found(self, arguments: dict[str, Json]) -> dict[str, Json] | CallError:
        """What docs_search answers; not cut, because a script reads it and not a model."""
        try:
            request = docs_search_request(arguments)
        except RequestError as error:
            return CallError(error.code, str(error))
        return self._docs_search.look(self._broker.snapshot, request).structured()

    def _described(self, arguments: dict[str, Json]) -> dict[str, Json] | CallError:
        name = arguments.get("function")
        if not isinstance(name, str) or len(arguments) > 1:
            return CallError("invalid_arguments", "portal.describe takes the name of one function")
        named = _named(self._broker.snapshot, name)
        if len(named) == 1:
            (row,) = rows(named, full=1)
            return row
        return self._broker.absence(next(iter(self._broker.snapshot.withheld(name)), name))


def _named(snapshot: Snapshot, name: str) -> Sequence[Function]:
    """The function of that name; two if there are more, in several namespaces."""
    if (function := snapshot.library.functions.get(name)) is not None:
        return (function,)
    assert snapshot.index is not None, "a script runs with a fresh snapshot"
    hits = snapshot.index.search(name, 2)
    return hits.functions[: hits.exact]
