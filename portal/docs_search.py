"""`docs_search`: finds functions and shows them as Python stub code."""

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import anyio

from manifests.decision import Decision
from manifests.json_value import Json
from manifests.manifest import Manifest
from portal.budget.tokens import is_within
from portal.catalog import Catalog, standing
from portal.compact_json import compact
from portal.first_steps import NO_UPSTREAMS
from portal.granted import granted
from portal.library.function import Function
from portal.library.rendering import CUT_PARAMETERS
from portal.snapshot import Snapshot
from upstreams.fleet import Fleet

PORTAL = "portal"
"""The module that every script has. It is no namespace, but a query may ask what it does."""

MAX_DETAIL_CHARACTERS = 300
"""Of why an upstream is not ready no more is told in a notice."""

MAX_STATE_NOTICES = 10
"""Upstreams that are not ready, told with their reason; of as many more the name, the rest are counted."""


@dataclass(frozen=True)
class DocsSearchRequest:
    """The arguments of one call, already of the right types."""

    query: str = ""
    detail: Literal["brief", "full"] = "brief"
    upstream: str | None = None
    limit: int = 5


@dataclass(frozen=True)
class DocsSearchAnswer:
    """`structured` is `{functions, total, notices, namespaces?}`; `text` says the same as Python stub code."""

    structured: dict[str, Json]
    text: str


class DocsSearch:
    """Answers from the catalog's current snapshot, within `server.output_tokens`."""

    def __init__(self, manifest: Manifest, catalog: Catalog, fleet: Fleet) -> None:
        self._manifest = manifest
        self._catalog = catalog
        self._fleet = fleet
        self._began = anyio.current_time()

    async def answer(self, request: DocsSearchRequest) -> DocsSearchAnswer:
        """Search once the upstreams have started, or have had `server.start_seconds` to."""
        notices: list[str] = []
        upstream = self._upstream(request.upstream, notices)
        await self._started(upstream)
        snapshot = await self._catalog.fresh()
        notices[:0] = self._state_notices()
        functions, total, exact = _found(snapshot, request, upstream)
        if decision := snapshot.denied.get(request.query.strip()):
            notices.append(_denial(request.query.strip(), decision))
        elif request.query.strip() and not functions:
            notices.append(_NOTHING)
        if exact and not request.query.strip().isalpha():
            # One plain word may be a function's name and still be a search: its others follow, briefly.
            functions, total = functions[:exact], exact
        full = len(functions) if request.detail == "full" else exact
        namespaces = None if request.query.strip() else self._namespaces(snapshot)
        if namespaces is not None or request.query.strip().partition(".")[0] == PORTAL:
            notices += granted(self._manifest)
        if namespaces is not None:
            notices += [f"upstream {u.name!r}: {u.diagnostics[0]}" for u in self._fleet if u.diagnostics][:10]
        return self._fitted(functions, total, notices, namespaces, full)

    async def _started(self, upstream: str | None) -> None:
        """Wait for all upstreams, or the one that is searched; a slow one keeps only the first searches waiting."""
        left_seconds = self._began + self._manifest.portal.server.start_seconds - anyio.current_time()
        await self._fleet.settled(max(0.0, left_seconds), None if upstream is None else {upstream})

    def _fitted(
        self,
        functions: Sequence[Function],
        total: int,
        notices: list[str],
        namespaces: list[dict[str, Json]] | None,
        full: int,
    ) -> DocsSearchAnswer:
        """The answer with as many functions and namespaces as fit; a notice says what does not."""
        budget = self._manifest.portal.server.output_tokens
        shown, listed, documented = len(functions), len(namespaces or []), full
        while True:
            answer = _answer(
                functions[:shown], total, notices, namespaces and namespaces[:listed], documented
            )
            left_out = len(functions) - shown + len(namespaces or []) - listed
            answer["notices"] = [*notices, *_omissions(left_out, functions[documented:full])]
            text = _text(answer, functions[:shown], documented)
            if is_within(text, budget) and is_within(compact(answer), budget):
                return DocsSearchAnswer(answer, text)
            if shown > 1 or listed > 1:
                shown, listed = max(shown * 3 // 4, min(shown, 1)), listed * 3 // 4
            elif documented:
                documented = 0
            else:
                return DocsSearchAnswer(answer, text)

    def _state_notices(self) -> list[str]:
        """One line for each upstream that cannot be called now; of many, the names of some."""
        silent = [upstream for upstream in self._fleet if not upstream.state.is_well]
        notices = [standing(upstream, MAX_DETAIL_CHARACTERS) for upstream in silent[:MAX_STATE_NOTICES]]
        if others := silent[MAX_STATE_NOTICES:]:
            names = ", ".join(repr(upstream.name) for upstream in others[:MAX_STATE_NOTICES])
            more = ", ..." if len(others) > MAX_STATE_NOTICES else ""
            notices.append(f"{len(others)} more upstreams are not ready: {names}{more}")
        if not self._manifest.portal.upstreams:
            notices.append(NO_UPSTREAMS)
        return notices

    def _upstream(self, name: str | None, notices: list[str]) -> str | None:
        """The manifest's key for `name`, which may also be a namespace; an unknown one is told and finds nothing."""
        namespaces = self._manifest.namespaces
        if name is None or name in namespaces:
            return name
        for key, namespace in namespaces.items():
            if namespace == name:
                return key
        near = difflib.get_close_matches(name, namespaces) or sorted(namespaces)[:10]
        notices.append(f"there is no upstream {name[:100]!r}; there are: {', '.join(near) or 'none'}")
        return name

    def _namespaces(self, snapshot: Snapshot) -> list[dict[str, Json]]:
        rows = []
        for upstream in self._fleet:
            namespace = self._manifest.namespaces[upstream.name]
            known = snapshot.library.namespaces.get(namespace)
            rows.append(
                {
                    "namespace": namespace,
                    "upstream": upstream.name,
                    "summary": known.summary if known else "",
                    "functions": len(known.functions) if known else 0,
                    "state": upstream.state.status,
                }
            )
        return rows


def _omissions(left_out: int, undocumented: Sequence[Function]) -> Iterator[str]:
    if left_out:
        yield f"{left_out} more do not fit here: ask for fewer, or for one upstream"
    if undocumented:
        yield f"types and documentation of {undocumented[0].qualified} do not fit into server.output_tokens"


_NOTHING = "nothing fits: try other words for one step of the task, or an empty query for the namespaces"


def _found(
    snapshot: Snapshot, request: DocsSearchRequest, upstream: str | None
) -> tuple[Sequence[Function], int, int]:
    """The functions, how many there are in all, and how many of them have the very name that was asked for."""
    if not request.query.strip() and upstream is None:
        return (), len(snapshot.library.functions), 0
    assert snapshot.index is not None, "a fresh snapshot has one"
    hits = snapshot.index.search(request.query, request.limit, upstream)
    return hits.functions, hits.total, hits.exact


def _denial(qualified: str, decision: Decision) -> str:
    return f"{qualified} exists but is not granted to scripts: {decision.rule} ({decision.where})"


def _answer(
    functions: Sequence[Function],
    total: int,
    notices: list[str],
    namespaces: list[dict[str, Json]] | None,
    full: int,
) -> dict[str, Json]:
    answer: dict[str, Json] = {
        "functions": _rows(functions, full),
        "total": total,
        "notices": notices,
    }
    if namespaces is not None:
        answer["namespaces"] = namespaces
    return answer


def _rows(functions: Sequence[Function], full: int) -> list[dict[str, Json]]:
    """One row a function; the first `full` of them have a `stub`."""
    rows: list[dict[str, Json]] = [
        {
            "name": function.qualified,
            "upstream": function.upstream,
            "tool": function.tool,
            "signature": _signature(function),
            "summary": function.summary,
        }
        for function in functions
    ]
    for row, stub in zip(rows, _stubs(functions[:full]), strict=False):
        row["stub"] = stub
    return rows


def _signature(function: Function) -> str:
    """As it stands in the namespace's stub, where the name has no prefix; valid Python also where it was cut."""
    text = function.signature.replace(f"async def {function.qualified}(", f"async def {function.name}(", 1)
    return text.replace(CUT_PARAMETERS, ") -> ", 1)


def _is_cut(function: Function) -> bool:
    return CUT_PARAMETERS in function.signature


def _stubs(functions: Sequence[Function]) -> list[str]:
    """Each function's stub, with those of its types that an earlier one of its namespace has not brought."""
    told: set[tuple[str, str]] = set()
    stubs = []
    for function in functions:
        news = [text for text in function.types if (function.namespace, text) not in told]
        told.update((function.namespace, text) for text in news)
        stubs.append("\n\n".join([*news, function.definition]))
    return stubs


def _text(answer: dict[str, Json], functions: Sequence[Function], full: int) -> str:
    """The same facts as Python stub code; what is no code is a comment."""
    lines = [_namespace_line(row) for row in answer.get("namespaces", ())]
    for function, stub in zip(functions, _stubs(functions[:full]), strict=False):
        tool = "" if function.tool == function.name else f", tool {function.tool!r}"
        lines.append(f"# {function.qualified}, of upstream {function.upstream!r}{tool}\n{stub}\n")
    for function in functions[full:]:
        tool = "" if function.tool == function.name else f" (tool {function.tool!r})"
        more = ", with more parameters: see its full stub" if _is_cut(function) else ""
        about = f": {function.summary}" if function.summary else ""
        lines.append(f"{_signature(function)}: ...  # {function.qualified}{tool}{more}{about}")
    if functions and answer["total"] > len(functions):
        lines.append(f"# {len(functions)} of {answer['total']}")
    lines.extend(f"# notice: {notice}" for notice in answer["notices"])
    return "\n".join(lines) or "# nothing"


def _namespace_line(row: dict[str, Json]) -> str:
    summary = f": {row['summary']}" if row["summary"] else ""
    upstream = "" if row["upstream"] == row["namespace"] else f" (upstream {row['upstream']!r})"
    return f"# {row['namespace']}{upstream}, {row['functions']} functions, {row['state']}{summary}"
