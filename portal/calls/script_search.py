"""The call port of a run: answers searches, and passes other calls to the broker."""

from collections.abc import Sequence
from dataclasses import dataclass

from manifests.json_value import Json
from portal.base.requests import RequestError, docs_search_request
from portal.calls.broker import Broker
from portal.calls.run import SEARCH, SEARCHED
from portal.catalog.docs_search import DocsSearch, Found, rows
from portal.library.function import Function
from sandbox_runtime.call_port import CallError, Outcome, ToolCall


@dataclass(frozen=True)
class ScriptSearch:
    """The call port of one run: answers `portal.search` and `portal.describe`, and passes other calls to the broker.

    The ledger records searches like other calls.
    """

    docs_search: DocsSearch
    broker: Broker

    async def __call__(self, call: ToolCall) -> Outcome:
        if call.function not in SEARCHED:
            return await self.broker(call)
        entry = self.broker.ledger[call.seq]
        answer = self._search(call.arguments) if call.function == SEARCH else self._describe(call)
        if isinstance(answer, CallError):
            entry.end("refused", answer)
            return Outcome(error=answer)
        entry.end("done")
        return Outcome(value=answer)

    def _search(self, arguments: dict[str, Json]) -> dict[str, Json] | CallError:
        """The answer of docs_search, without a token budget, because a script reads it."""
        try:
            request = docs_search_request(arguments)
        except RequestError as error:
            return CallError(error.code, str(error), error.hint)
        # Without reasons: they may quote upstreams, and a search does not count as data from them.
        return self.docs_search.find(self.broker.snapshot, request, most=0).structured()

    def _describe(self, call: ToolCall) -> dict[str, Json] | CallError:
        name = call.arguments.get("function")
        if not isinstance(name, str) or len(call.arguments) > 1:
            return CallError(
                "invalid_arguments", "portal.describe takes the name of one function", "Search first."
            )
        snapshot = self.broker.snapshot
        known = snapshot.library.functions.get(snapshot.canonical(name))
        named: Sequence[Function] = () if known is None else (known,)
        if known is None and snapshot.index is not None:
            hits = snapshot.index.search(name, 2)  # two show that the name is ambiguous
            named = hits.functions[: hits.exact]
        if len(named) == 1:
            most = self.docs_search.manifest.portal.server.output_tokens
            (row,) = Found(named, 1, 1, []).answer(most).structured["functions"]
            return row if "stub" in row else rows(named, 1, -1)[0]
        return self.broker.absence(next(iter(snapshot.withheld(name)), name), call.seq)
