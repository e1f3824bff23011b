"""The step that answers a script's searches."""

from collections.abc import Sequence

from manifests.json_value import Json
from portal.base.requests import RequestError, docs_search_request
from portal.calls.broker import ended
from portal.calls.run import SEARCH, SEARCHED, Attempt, RunContext, Steps, pass_on
from portal.catalog.docs_search import DocsSearch, Found, rows
from portal.library.function import Function
from sandbox_runtime.call_port import CallError, Outcome


async def search(run: RunContext, attempt: Attempt, rest: Steps) -> Outcome:
    """Answer `portal.search` and `portal.describe`. The ledger records them like other calls."""
    if run.docs_search is None or attempt.call.function not in SEARCHED:
        return await pass_on(run, attempt, rest)
    work = _search if attempt.call.function == SEARCH else _describe
    answer = work(run, run.docs_search, attempt)
    if isinstance(answer, CallError):
        return ended(attempt.entry, "refused", answer)
    attempt.entry.end("done")
    return Outcome(value=answer)


def _search(run: RunContext, docs_search: DocsSearch, attempt: Attempt) -> dict[str, Json] | CallError:
    """The answer of docs_search, without a token budget, because a script reads it."""
    try:
        request = docs_search_request(attempt.call.arguments)
    except RequestError as error:
        return CallError(error.code, str(error), error.hint)
    # Without reasons: they may quote upstreams, and a search does not count as data from them.
    return docs_search.find(run.snapshot, request, most=0).structured()


def _describe(run: RunContext, docs_search: DocsSearch, attempt: Attempt) -> dict[str, Json] | CallError:
    name, snapshot = attempt.call.arguments.get("function"), run.snapshot
    if not isinstance(name, str) or len(attempt.call.arguments) > 1:
        return CallError(
            "invalid_arguments", "portal.describe takes the name of one function", "Search first."
        )
    known = snapshot.library.functions.get(snapshot.canonical(name))
    named: Sequence[Function] = () if known is None else (known,)
    if known is None and snapshot.index is not None:
        hits = snapshot.index.search(name, 2)  # two show that the name is ambiguous
        named = hits.functions[: hits.exact]
    if len(named) == 1:
        most = docs_search.manifest.portal.server.output_tokens
        (row,) = Found(named, 1, 1, []).answer(most).structured["functions"]
        return row if "stub" in row else rows(named, 1, -1)[0]
    return run.absence(next(iter(snapshot.withheld(name)), name), attempt.entry)
