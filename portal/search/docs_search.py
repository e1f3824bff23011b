"""`docs_search`: finds functions and answers within a token budget; scripts get the whole answer."""

import difflib
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import anyio.to_thread

from manifests.json_value import Json
from manifests.manifest import Manifest
from manifests.names import namespace_of
from portal.authority import Authority, grant_lines
from portal.broker import Broker
from portal.budget.tokens import compact, is_loaded, is_within, o200k_base
from portal.definitions import DocsSearchRequest, RequestError, docs_search_request
from portal.errors import ASK_OPERATOR, NO_UPSTREAMS
from portal.library.catalog import Catalog, describe_state
from portal.library.full_form import full_forms
from portal.library.function import Function, short_parameter
from portal.library.library import portal_functions
from portal.library.plain_text import escaped
from portal.library.schema import MAX_DEPTH
from portal.library.snapshot import MAX_NAME_CHARACTERS, Snapshot
from portal.search.query import asked_name
from sandbox_runtime.calls import CallError, Outcome, ToolCall
from upstreams.fleet import Fleet
from upstreams.upstream import Upstream

_SUMMARY_CHARACTERS: Final = 200
_SUMMARIES: Final = 50
"""Namespaces that are listed with a summary of their upstream."""


@dataclass(frozen=True)
class DocsSearchAnswer:
    """`structured` is `{functions, total, notices, namespaces?}`; `text` is the same as Python stub code."""

    structured: dict[str, Json]
    text: str


@dataclass(frozen=True)
class Found:
    """The best functions, best first. The first `full` are shown with types and documentation.

    `total` counts all that match. `namespaces` is set if the query asked for them. `depth` shortens results, see
    `full_forms`.
    """

    functions: Sequence[Function]
    total: int
    full: int
    notices: Sequence[str]
    namespaces: Sequence[dict[str, Json]] | None = None
    depth: int | None = None

    def structured(self) -> dict[str, Json]:
        """Everything as data."""
        answer: dict[str, Json] = {
            "functions": rows(self.functions, self.full, self.depth),
            "total": self.total,
            "notices": [escaped(notice, "\n\t") for notice in self.notices],
        }
        if self.namespaces is not None:
            answer["namespaces"] = list(self.namespaces)
        return answer

    def answer(self, max_tokens: int) -> DocsSearchAnswer:
        """Shorten until both forms fit into `max_tokens`; a notice says what was dropped.

        The smallest answer is returned even if it does not fit.
        """
        shown, listed = len(self.functions), len(self.namespaces or ())
        while not (found := self._cut(shown, listed, self.full)._fitting(max_tokens)):
            if shown <= 1 and listed <= 1:
                return self._shortened(max_tokens)
            shown, listed = max(shown * 3 // 4, min(shown, 1)), listed * 3 // 4
        return found

    def _shortened(self, max_tokens: int) -> DocsSearchAnswer:
        """Shorten the first function's result, from its depths on, if that is enough; else show it without types."""
        fewest = min(len(self.functions), 1), min(len(self.namespaces or ()), 1)
        best = self._cut(*fewest, 0)._answer()
        for depth in range(-1, MAX_DEPTH) if self.full else ():
            answer = self._cut(*fewest, 1, depth)._fitting(max_tokens)
            if answer is None:
                break
            best = answer
        return best

    def _answer(self) -> DocsSearchAnswer:
        return DocsSearchAnswer(self.structured(), self._text())

    def _fitting(self, max_tokens: int) -> DocsSearchAnswer | None:
        """The answer, if both of its forms fit into `max_tokens`."""
        answer = self._answer()
        is_fit = is_within(answer.text, max_tokens) and is_within(compact(answer.structured), max_tokens)
        return answer if is_fit else None

    def _cut(self, shown: int, listed: int, full: int, depth: int | None = None) -> "Found":
        notices = list(self.notices)
        if left_out := len(self.functions) - shown + len(self.namespaces or ()) - listed:
            notices.append(
                f"{left_out} more do not fit into server.output_tokens: ask for fewer, or for one upstream"
            )
        name = self.functions[0].qualified if self.functions else ""
        if self.full and not full:
            notices.append(f"types and documentation of {name} do not fit into server.output_tokens")
        if depth is not None:
            notices.append(f"the result of {name} is shortened to fit into server.output_tokens: look at one")
        spaces = None if self.namespaces is None else self.namespaces[:listed]
        return Found(self.functions[:shown], self.total, min(full, shown), notices, spaces, depth)

    def _text(self) -> str:
        """Python stub code. Everything else is a comment."""
        lines = [_namespace_line(row) for row in self.namespaces or ()]
        lines += stub_code(self.functions, self.full, self.depth)
        if self.functions and self.total > len(self.functions):
            lines.append(f"# {len(self.functions)} of {self.total}")
        lines.extend(f"# notice: {escaped(notice)}" for notice in self.notices)
        return "\n".join(lines) or "# nothing"


def _namespace_line(row: dict[str, Json]) -> str:
    summary = f": {row['summary']}" if row["summary"] else ""
    upstream = "" if row["upstream"] == row["namespace"] else f" (upstream {row['upstream']!r})"
    return f"# {row['namespace']}{upstream}, {row['functions']} functions, {row['state']}{summary}"


LONGEST_BRIEF: Final = 120
"""Characters of parameters in a brief signature. Further optional ones are dropped, and the signature says so."""


def rows(functions: Sequence[Function], full: int, depth: int | None = None) -> list[dict[str, Json]]:
    """One row per function. The first `full` rows have a `stub`."""
    shown: list[dict[str, Json]] = [
        {
            "name": function.qualified,
            "upstream": function.upstream,
            "tool": function.tool,
            "signature": brief_signature(function)[0],
            "summary": function.summary,
        }
        for function in functions
    ]
    for row, stub in zip(shown, full_forms(functions[:full], depth), strict=False):
        row["stub"] = stub
    return shown


def stub_code(functions: Sequence[Function], full: int, depth: int | None = None) -> Iterator[str]:
    """The functions as lines of Python, without what a script does not need. Everything else is a comment."""
    yield from (f"{form}\n" for form in full_forms(functions[:full], depth))
    for function in functions[full:]:
        signature, is_cut = brief_signature(function)
        more = " (more parameters)" if is_cut else ""
        about = f": {function.summary.removesuffix('.')}" if function.summary else ""
        yield f"{signature}: ... # {function.qualified}{more}{about}"


def brief_signature(function: Function) -> tuple[str, bool]:
    """The function as one line of its namespace, in few tokens, and whether parameters were dropped.

    Redundant text is omitted: the type of a parameter whose default shows it, `| None` before `= None`, and a result of
    any type. Optional parameters are shown as long as they fit into `LONGEST_BRIEF` characters.
    """
    shown = function.fitting([short_parameter(each) for each in function.parameters], LONGEST_BRIEF)
    others = [] if not function.others else ["**others"]
    keywords = ", ".join([*(["*", *shown] if shown else []), *others])
    returns = "" if function.returns == "Any" else f" -> {function.returns}"
    return f"async def {function.name}({keywords}){returns}", len(shown) < len(function.parameters)


PORTAL = "portal"
"""The module that every script has. It is not a namespace, but a query may ask about it."""

_FEW_ROWS = 12
_ROWS_OF_FULL = 3

MAX_DETAIL_CHARACTERS = 300
"""Characters of the reason in a notice about an upstream that is not ready."""

MAX_STATE_NOTICES = 10
"""Upstreams that are not ready, shown with the reason. As many more are shown by name; the rest is counted."""


@dataclass(frozen=True, eq=False)
class DocsSearch:
    """Answers queries from the catalog's current snapshot, within `server.output_tokens`."""

    authority: Authority
    catalog: Catalog
    fleet: Fleet
    waiting: Sequence[str] = ()
    """Files whose change waits for the operator."""

    @property
    def manifest(self) -> Manifest:
        return self.authority.manifest

    async def answer(self, request: DocsSearchRequest) -> DocsSearchAnswer:
        """Search after the upstreams have started, or after `server.start_seconds`."""
        key = self._key(request.upstream)
        # A slow upstream delays only the first searches.
        left_seconds = self.authority.since + self.manifest.portal.server.start_seconds - time.monotonic()
        await self.fleet.settled(max(0.0, left_seconds), None if key is None else {key})
        found = self.find(await self.catalog.fresh(), request)
        rows = len(found.functions) + len(found.namespaces or ()) + _ROWS_OF_FULL * found.full
        if rows > _FEW_ROWS and not is_loaded():
            await anyio.to_thread.run_sync(o200k_base)  # their tokens may have to be counted
        return found.answer(self.manifest.portal.server.output_tokens)

    def find(
        self, snapshot: Snapshot, request: DocsSearchRequest, most: int = MAX_DETAIL_CHARACTERS
    ) -> Found:
        """Search the snapshot, without waiting for upstreams. Reasons why some are down have `most` characters."""
        query = request.query.strip()
        upstream = self._key(request.upstream)
        functions, total, exact = _search(snapshot, request, upstream)
        notices = [*self._state_notices(query, most), *self._upstream_notices(upstream)]
        if len(self.fleet):
            # An upstream that is starting may soon list the missing function.
            starting = [each for each in self.searched(upstream) if each.state.status == "starting"]
            is_complete = all(each.tools for each in starting)
            notices += _absence_notices(snapshot, query, functions, is_complete)
        if exact and not query.isalpha():
            # A single plain word may be a function's name or a search, so other matches are kept, briefly.
            functions, total = functions[:exact], exact
        full = len(functions) if request.detail == "full" else exact
        if not query or _is_about_portal(query):
            notices += grant_lines(self.manifest)
        if _is_about_portal(query):
            notices += portal_functions(asked_name(query).removeprefix(f"{PORTAL}."))
        if query:
            return Found(functions, total, full, notices)
        if self.waiting:
            notices.append(
                "a change of the portal's configuration is not in effect: its operator has not accepted it"
            )
        notices += [_diagnostics_notice(u) for u in self.fleet if u.diagnostics][:MAX_STATE_NOTICES]
        return Found(functions, total, full, notices, self._namespaces(snapshot))

    def searched(self, upstream: str | None) -> list[Upstream]:
        """The upstreams that a search covers: the one with this name or namespace, or all."""
        key = self._key(upstream)
        return [each for each in self.fleet if key in (None, each.name)]

    def _state_notices(self, query: str, most: int) -> list[str]:
        """One line per upstream that is not ready, those that the query names first. Of many, only the names."""
        asked = set(_words(query))
        silent = [upstream for upstream in self.fleet if not upstream.state.is_well]
        silent.sort(key=lambda upstream: asked.isdisjoint(_words(upstream.name)))
        notices = []
        for each in silent[:MAX_STATE_NOTICES]:
            retry_status = f"; {each.retry_status}" if each.retry_status else ""
            notices.append(f"{describe_state(each, most)}{retry_status}")
        if others := silent[MAX_STATE_NOTICES:]:
            names = ", ".join(repr(upstream.name) for upstream in others[:MAX_STATE_NOTICES])
            more = ", ..." if len(others) > MAX_STATE_NOTICES else ""
            notices.append(f"{len(others)} more upstreams are not ready: {names}{more}")
        if any(each.state.remedy for each in silent):
            notices.append("`mcp-code-portal check` tells the operator what to do")
        if not self.manifest.portal.upstreams:
            notices.append(NO_UPSTREAMS)
        return notices

    def _key(self, name: str | None) -> str | None:
        """The manifest's key for `name`, which may also be a namespace. Returns an unknown name as it is."""
        namespaces = self.manifest.namespaces
        if name is None or name in namespaces:
            return name
        return next((key for key, namespace in namespaces.items() if namespace == name), name)

    def _upstream_notices(self, key: str | None) -> list[str]:
        namespaces = self.manifest.namespaces
        if key is None or key in namespaces:
            return []
        near = difflib.get_close_matches(key, namespaces) or sorted(namespaces)[:10]
        return [f"there is no upstream {key[:100]!r}; upstreams: {', '.join(near) or 'none'}"]

    def _namespaces(self, snapshot: Snapshot) -> list[dict[str, Json]]:
        rows: list[dict[str, Json]] = []
        for upstream in self.fleet:
            namespace = namespace_of(upstream.name)
            known = snapshot.library.namespaces.get(namespace)
            rows.append(
                {
                    "namespace": namespace,
                    "upstream": upstream.name,
                    "summary": known.summary[:_SUMMARY_CHARACTERS]
                    if known and len(rows) < _SUMMARIES
                    else "",
                    "functions": len(known.functions) if known else 0,
                    "state": upstream.state.status,
                }
            )
        return rows


_NOTHING = "nothing found: try other words for one step of the task, or an empty query to list the namespaces"
_NOTHING_YET = "nothing found yet: search again after all upstreams have started"


def _search(
    snapshot: Snapshot, request: DocsSearchRequest, upstream: str | None
) -> tuple[Sequence[Function], int, int]:
    """The best functions, the number of all matches, and how many have exactly the name in the query."""
    if not request.query.strip() and upstream is None:
        return (), len(snapshot.library.functions), 0
    assert snapshot.index is not None, "a fresh snapshot has one"
    hits = snapshot.index.search(request.query, request.limit, upstream)
    return hits.functions, hits.total, hits.exact


def _absence_notices(
    snapshot: Snapshot, query: str, functions: Sequence[Function], is_complete: bool
) -> Iterator[str]:
    """Why a function is missing or cannot be called, as far as the caller may know.

    Without `is_complete`, upstreams are still starting, so that a function may still appear.
    """
    withheld = dict(snapshot.withheld(query))
    for best in functions[:1]:
        if decision := snapshot.denied.get(best.qualified):
            withheld[best.qualified] = decision
    for qualified, decision in withheld.items():
        why = "quarantined" if decision.code == "quarantined" else "not granted to scripts"
        yield f"{qualified} exists but is {why}: {decision.rule}. {ASK_OPERATOR}"
    if not query or withheld or _is_about_portal(query) or (functions and not _is_absent(query, functions)):
        return
    near = snapshot.library.nearest(query[:MAX_NAME_CHARACTERS])
    if near:
        so_far = "" if is_complete else " so far"
        yield f"no function is called {query!r}{so_far}; nearest: {', '.join(near)}"
    elif not functions:
        yield _NOTHING if is_complete else _NOTHING_YET


def _is_absent(query: str, functions: Sequence[Function]) -> bool:
    """Whether a function's whole name was asked for, `tickets.get_isue`, and is none of those found."""
    asked = asked_name(query)
    found = {
        name.casefold()
        for each in functions
        for name in (each.qualified, f"{each.upstream}.{each.tool}", each.tool)
    }
    return re.fullmatch(r"\w+(?:\.\w+)+", asked) is not None and asked not in found


def _is_about_portal(query: str) -> bool:
    return asked_name(query).partition(".")[0] == PORTAL


def _diagnostics_notice(upstream: Upstream) -> str:
    """Counts the diagnostics. Their text may contain hidden tools' names and the upstream's own words."""
    count = len(upstream.diagnostics)
    problems = "1 problem" if count == 1 else f"{count} problems"
    return f"upstream {upstream.name!r} has {problems}, which the operator can see"


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.casefold())


SEARCH: Final = "portal.search"
DESCRIBE: Final = "portal.describe"


@dataclass(frozen=True)
class ScriptSearch:
    """The call port of one run: answers `portal.search` and `portal.describe`, and passes other calls to the broker.

    The ledger records both like other calls.
    """

    docs_search: DocsSearch
    broker: Broker

    async def __call__(self, call: ToolCall) -> Outcome:
        if call.function not in (SEARCH, DESCRIBE):
            return await self.broker(call)
        entry = self.broker.ledger[call.seq]
        answer = self._search(call.arguments) if call.function == SEARCH else self._describe(call)
        if isinstance(answer, CallError):
            entry.end("refused", answer)
            return Outcome(error=answer)
        entry.end("done")
        return Outcome(value=answer)

    def _search(self, arguments: dict[str, Json]) -> dict[str, Json] | CallError:
        """The answer of docs_search, not shortened, because a script reads it."""
        try:
            request = docs_search_request(arguments)
        except RequestError as error:
            return CallError(error.code, str(error), error.hint)
        # Without reasons: they may have words of upstreams, and a search is no data of theirs.
        return self.docs_search.find(self.broker.snapshot, request, most=0).structured()

    def _describe(self, call: ToolCall) -> dict[str, Json] | CallError:
        name = call.arguments.get("function")
        if not isinstance(name, str) or len(call.arguments) > 1:
            return CallError(
                "invalid_arguments", "portal.describe takes the name of one function", "Search first."
            )
        named = _named(self.broker.snapshot, name)
        if len(named) == 1:
            most = self.docs_search.manifest.portal.server.output_tokens
            (row,) = Found(named, 1, 1, []).answer(most).structured["functions"]
            return row if "stub" in row else rows(named, 1, -1)[0]
        return self.broker.absence(next(iter(self.broker.snapshot.withheld(name)), name), call.seq)


def _named(snapshot: Snapshot, name: str) -> Sequence[Function]:
    """The function of that name; two if several namespaces have it."""
    if (function := snapshot.library.functions.get(snapshot.canonical(name))) is not None:
        return (function,)
    assert snapshot.index is not None, "a script runs with a fresh snapshot"
    hits = snapshot.index.search(name, 2)
    return hits.functions[: hits.exact]
