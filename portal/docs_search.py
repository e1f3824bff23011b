"""`docs_search`: finds functions and shows them as Python stub code."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from manifests.json_value import Json
from manifests.manifest import Manifest
from portal.budget.tokens import is_within
from portal.catalog import Catalog, Snapshot
from portal.compact_json import compact
from portal.library.function import Function
from upstreams.fleet import Fleet


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

    async def answer(self, request: DocsSearchRequest) -> DocsSearchAnswer:
        """Search once the upstreams have started, or have had `server.start_seconds` to."""
        await self._fleet.settled(self._manifest.portal.server.start_seconds)
        snapshot = await self._catalog.fresh()
        notices = self._state_notices()
        upstream = self._upstream(request.upstream, notices)
        functions, total = _found(snapshot, request, upstream)
        if request.query.strip() and not functions:
            notices.append(_nothing(snapshot, request.query))
        full = request.detail == "full" or _is_exact(request.query, functions)
        namespaces = None if request.query.strip() else self._namespaces(snapshot)
        return self._fitted(functions, total, notices, namespaces, full)

    def _fitted(
        self,
        functions: Sequence[Function],
        total: int,
        notices: list[str],
        namespaces: list[dict[str, Json]] | None,
        full: bool,
    ) -> DocsSearchAnswer:
        """The answer with as many functions and namespaces as fit; the rest is counted in a notice."""
        budget = self._manifest.portal.server.output_tokens
        shown, listed = len(functions), len(namespaces or [])
        while True:
            answer = _answer(functions[:shown], total, notices, namespaces and namespaces[:listed], full)
            if left_out := len(functions) - shown + len(namespaces or []) - listed:
                answer["notices"] = [
                    *notices,
                    f"{left_out} more do not fit here: ask for fewer, or for one upstream",
                ]
            text = _text(answer, functions[:shown], full)
            fits = is_within(text, budget) and is_within(compact(answer), budget)
            if fits or (shown <= 1 and listed <= 1):
                return DocsSearchAnswer(answer, text)
            shown, listed = max(shown * 3 // 4, min(shown, 1)), listed * 3 // 4

    def _state_notices(self) -> list[str]:
        """One line for each upstream that cannot be called now."""
        notices = []
        for upstream in self._fleet:
            if upstream.state.status == "ready":
                continue
            since = upstream.state.since.strftime("%H:%M:%S")
            detail = f": {upstream.state.detail}" if upstream.state.detail else ""
            notices.append(
                f"upstream {upstream.name!r} is {upstream.state.status} since {since}{detail[:300]}"
            )
        if not self._manifest.portal.upstreams:
            notices.append(_NO_UPSTREAMS)
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
        notices.append(f"there is no upstream {name!r}; there are: {', '.join(near) or 'none'}")
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


_NO_UPSTREAMS = (
    "no upstreams are configured, so there are no functions yet. The smallest portal.yaml that helps: "
    'upstreams: {time: {command: uvx, args: ["mcp-server-time"]}} — pass it with --config, '
    "$MCP_CODE_PORTAL_CONFIG or as ./portal.yaml. execute_code runs plain Python meanwhile."
)


def _found(
    snapshot: Snapshot, request: DocsSearchRequest, upstream: str | None
) -> tuple[Sequence[Function], int]:
    if not request.query.strip():
        if upstream is None:
            return (), len(snapshot.library.functions)
        own = [f for f in snapshot.library.functions.values() if f.upstream == upstream]
        return own[: request.limit], len(own)
    exact = snapshot.library.functions.get(request.query.strip())
    if exact is not None and upstream in (None, exact.upstream):
        return (exact,), 1
    assert snapshot.index is not None, "a fresh snapshot has one"
    hits = snapshot.index.search(request.query, request.limit, upstream)
    return hits.functions, hits.total


def _is_exact(query: str, functions: Sequence[Function]) -> bool:
    return len(functions) == 1 and query.strip() in (
        functions[0].qualified,
        functions[0].name,
        functions[0].tool,
    )


def _nothing(snapshot: Snapshot, query: str) -> str:
    if decision := snapshot.denied.get(query.strip()):
        return f"{query.strip()} exists but is not granted to scripts: {decision.rule} ({decision.where})"
    return "nothing fits: try other words for one step of the task, or an empty query for the namespaces"


def _answer(
    functions: Sequence[Function],
    total: int,
    notices: list[str],
    namespaces: list[dict[str, Json]] | None,
    full: bool,
) -> dict[str, Json]:
    answer: dict[str, Json] = {
        "functions": [_row(function, full) for function in functions],
        "total": total,
        "notices": notices,
    }
    if namespaces is not None:
        answer["namespaces"] = namespaces
    return answer


def _row(function: Function, full: bool) -> dict[str, Json]:
    row: dict[str, Json] = {
        "name": function.qualified,
        "upstream": function.upstream,
        "tool": function.tool,
        "signature": function.signature,
        "summary": function.summary,
    }
    if full:
        row["stub"] = function.stub
    return row


def _text(answer: dict[str, Json], functions: Sequence[Function], full: bool) -> str:
    """The same facts as Python stub code; what is no code is a comment."""
    lines = []
    for row in answer.get("namespaces", ()):
        summary = f"  {row['summary']}" if row["summary"] else ""
        upstream = "" if row["upstream"] == row["namespace"] else f" (upstream {row['upstream']!r})"
        lines.append(f"# {row['namespace']}{upstream}: {row['functions']} functions, {row['state']}{summary}")
    for function in functions:
        origin = "" if function.tool == function.name else f"  # tool {function.tool!r}"
        if full:
            lines.append(f"# {function.qualified}, upstream {function.upstream!r}{origin}\n{function.stub}\n")
        else:
            lines.append(f"{function.signature}{origin}\n    {_docstring(function.summary)}")
    if functions and answer["total"] > len(functions):
        lines.append(f"# {len(functions)} of {answer['total']}")
    lines.extend(f"# notice: {notice}" for notice in answer["notices"])
    return "\n".join(lines) or "# nothing"


def _docstring(summary: str) -> str:
    return f'"""{summary}"""' if summary else "..."
