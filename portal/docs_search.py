"""`docs_search`: finds functions and shows them as Python stub code."""

import difflib
import math
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import anyio
import anyio.to_thread

from manifests.json_value import Json
from manifests.manifest import Manifest
from portal.budget.tokens import is_loaded, o200k_base
from portal.catalog import Catalog, standing
from portal.first_steps import NO_UPSTREAMS
from portal.found import DocsSearchAnswer, Found
from portal.granted import granted
from portal.library.function import Function
from portal.library.portal_stub import portal_functions
from portal.search.query import asked_name
from portal.snapshot import MAX_NAME_CHARACTERS, Snapshot
from upstreams.fleet import Fleet
from upstreams.upstream import Upstream

PORTAL = "portal"
"""The module that every script has. It is no namespace, but a query may ask what it does."""

_FEW_ROWS = 12
_ROWS_OF_FULL = 3

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


class DocsSearch:
    """Answers from the catalog's current snapshot, within `server.output_tokens`."""

    def __init__(self, manifest: Manifest, catalog: Catalog, fleet: Fleet) -> None:
        self._manifest = manifest
        self._catalog = catalog
        self._fleet = fleet
        self._began = anyio.current_time()

    async def answer(self, request: DocsSearchRequest) -> DocsSearchAnswer:
        """Search once the upstreams have started, or have had `server.start_seconds` to."""
        key = self._key(request.upstream)
        await self._started(None if key is None else {key})
        found = self.look(await self._catalog.fresh(), request)
        rows = len(found.functions) + len(found.namespaces or ()) + _ROWS_OF_FULL * found.full
        if rows > _FEW_ROWS and not is_loaded():
            await anyio.to_thread.run_sync(o200k_base)  # their tokens may have to be counted
        return found.answer(self._manifest.portal.server.output_tokens)

    async def since(self, known: Snapshot, upstream: str | None, most_seconds: float) -> Snapshot | None:
        """The snapshot of now, if upstreams that are searched are silent in the one that is `known`.

        Such of them as are starting are waited for, as `answer` does, at most `most_seconds`.
        """
        namespaces = self._manifest.namespaces
        silent = {u.name for u in self.searched(upstream) if namespaces[u.name] in known.silent}
        if not silent:
            return None
        await self._started(silent, most_seconds)
        return await self._catalog.fresh()

    def has(self, upstream: str) -> bool:
        """Whether an upstream has this name or namespace."""
        return self._key(upstream) in self._manifest.namespaces

    def is_complete(self, upstream: str | None) -> bool:
        """Whether no upstream, or not the one that is searched, may soon bring what was not found."""
        return not any(u.state.status == "starting" and not u.tools for u in self.searched(upstream))

    def searched(self, upstream: str | None) -> list[Upstream]:
        """Those that a search is of: the one that has this name or namespace, or all."""
        key = self._key(upstream)
        return [each for each in self._fleet if key in (None, each.name)]

    def look(self, snapshot: Snapshot, request: DocsSearchRequest) -> Found:
        """What the snapshot has for a request, here and now."""
        query = request.query.strip()
        upstream = self._key(request.upstream)
        functions, total, exact = _found(snapshot, request, upstream)
        notices = [
            *self._state_notices(query),
            *self._upstream_notices(upstream),
            *(
                _absence_notices(snapshot, query, functions, exact, self.is_complete(upstream))
                if len(self._fleet)
                else ()
            ),
        ]
        if exact and not query.isalpha():
            # One plain word may be a function's name and still be a search: its others follow, briefly.
            functions, total = functions[:exact], exact
        full = len(functions) if request.detail == "full" else exact
        if not query or _is_about_portal(query):
            notices += granted(self._manifest)
        if _is_about_portal(query):
            notices += portal_functions(asked_name(query).removeprefix(f"{PORTAL}."))
        if query:
            return Found(functions, total, full, notices)
        notices += [_oddities(u) for u in self._fleet if u.diagnostics][:MAX_STATE_NOTICES]
        return Found(functions, total, full, notices, self._namespaces(snapshot))

    async def _started(self, upstreams: Collection[str] | None, most_seconds: float = math.inf) -> None:
        """Wait for all upstreams, or those that are searched; a slow one keeps only the first searches waiting."""
        left_seconds = self._began + self._manifest.portal.server.start_seconds - anyio.current_time()
        await self._fleet.settled(max(0.0, min(left_seconds, most_seconds)), upstreams)

    def _state_notices(self, query: str) -> list[str]:
        """One line for each upstream that cannot be called now, first those that are asked for; of many, the names."""
        asked = set(_words(query))
        silent = [upstream for upstream in self._fleet if not upstream.state.is_well]
        silent.sort(key=lambda upstream: asked.isdisjoint(_words(upstream.name)))
        notices = [_standing_now(upstream) for upstream in silent[:MAX_STATE_NOTICES]]
        if others := silent[MAX_STATE_NOTICES:]:
            names = ", ".join(repr(upstream.name) for upstream in others[:MAX_STATE_NOTICES])
            more = ", ..." if len(others) > MAX_STATE_NOTICES else ""
            notices.append(f"{len(others)} more upstreams are not ready: {names}{more}")
        if not self._manifest.portal.upstreams:
            notices.append(NO_UPSTREAMS)
        return notices

    def _key(self, name: str | None) -> str | None:
        """The manifest's key for `name`, which may also be a namespace. An unknown name stays, and finds nothing."""
        namespaces = self._manifest.namespaces
        if name is None or name in namespaces:
            return name
        return next((key for key, namespace in namespaces.items() if namespace == name), name)

    def _upstream_notices(self, key: str | None) -> list[str]:
        namespaces = self._manifest.namespaces
        if key is None or key in namespaces:
            return []
        near = difflib.get_close_matches(key, namespaces) or sorted(namespaces)[:10]
        return [f"there is no upstream {key[:100]!r}; there are: {', '.join(near) or 'none'}"]

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


def _standing_now(upstream: Upstream) -> str:
    told = standing(upstream, MAX_DETAIL_CHARACTERS)
    return f"{told}; {upstream.prospect}" if upstream.prospect else told


_NOTHING = "nothing fits: try other words for one step of the task, or an empty query for the namespaces"
_NOTHING_YET = "nothing fits so far: search again when all upstreams have started"


def _found(
    snapshot: Snapshot, request: DocsSearchRequest, upstream: str | None
) -> tuple[Sequence[Function], int, int]:
    """The functions, how many there are in all, and how many of them have the very name that was asked for."""
    if not request.query.strip() and upstream is None:
        return (), len(snapshot.library.functions), 0
    assert snapshot.index is not None, "a fresh snapshot has one"
    hits = snapshot.index.search(request.query, request.limit, upstream)
    return hits.functions, hits.total, hits.exact


def _absence_notices(
    snapshot: Snapshot, query: str, functions: Sequence[Function], exact: int, is_complete: bool
) -> Iterator[str]:
    """Why what was asked for is not among the functions or cannot be called, as far as whoever asks may know.

    Without `is_complete` it is not said that something is not there.
    """
    withheld = dict(snapshot.withheld(query))
    for best in functions[:1]:
        if decision := snapshot.denied.get(best.qualified):
            withheld[best.qualified] = decision
    for qualified, decision in withheld.items():
        why = "quarantined" if decision.code == "quarantined" else "not granted to scripts"
        rule = f"{decision.rule} ({decision.where}). {decision.grant}".strip()
        yield f"{qualified} exists but is {why}: {rule}"
    if not query or exact or withheld or _is_about_portal(query):
        return
    if functions:
        if is_complete:
            yield from snapshot.misses(query)
        return
    near = snapshot.library.nearest(query[:MAX_NAME_CHARACTERS])
    if near:
        so_far = "" if is_complete else " so far"
        yield f"nothing is called {query!r}{so_far}; nearest: {', '.join(near)}"
    else:
        yield _NOTHING if is_complete else _NOTHING_YET


def _is_about_portal(query: str) -> bool:
    return asked_name(query).partition(".")[0] == PORTAL


def _oddities(upstream: Upstream) -> str:
    """Only that there are some: in the remarks stand names of tools that scripts are not to know, and an upstream's
    own words.
    """
    count = len(upstream.diagnostics)
    things = "1 thing is" if count == 1 else f"{count} things are"
    return f"upstream {upstream.name!r}: {things} odd about it; `mcp-code-portal check` tells them"


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.casefold())
