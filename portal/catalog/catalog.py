"""Builds snapshots from the tools of all upstreams: applies the rules, compiles the library, indexes it for search."""

import os
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

import anyio
import anyio.to_thread
import structlog

from manifests.decision import Decision, ListedTool
from manifests.grants import Hints
from manifests.manifest import Manifest
from manifests.names import function_names, namespace_of
from portal.base.errors import ASK_OPERATOR
from portal.catalog.authority import Authority, Policy, effective_capabilities
from portal.catalog.check.checker import Checker
from portal.catalog.methods import LISTED
from portal.catalog.snapshot import Snapshot
from portal.library.library import PORTAL, Library, LibrarySource, portal_functions
from portal.library.observed import Observations, Observed, schema_of
from upstreams.tools import ListedUpstream, RecordedTool


def listed_tools(upstream: ListedUpstream) -> list[ListedTool]:
    """The tools that the upstream lists now, granted or not, and the methods for resources and prompts."""
    names, found = function_names([tool.name for tool in upstream.tools]), [*LISTED]
    for tool in upstream.tools:
        properties = tool.input_schema.get("properties")
        arguments = frozenset(properties) if isinstance(properties, dict) and properties else None
        found.append(ListedTool(tool.name, names[tool.name], Hints.of(tool.annotations), arguments))
    return found


def decided_tools(policy: Policy, upstream: ListedUpstream) -> Iterator[tuple[ListedTool, Decision]]:
    """The tools that the upstream lists now, each with the decision about it."""
    for each in listed_tools(upstream)[len(LISTED) :]:
        about = policy.about_listed(upstream.name, upstream.tools, each.tool, each.function, each.hints)
        yield each, about


@dataclass(frozen=True)
class CatalogEntry:
    """The shown tools of one upstream, and the decisions about all tools that are not granted, by one manifest.

    `source` is None if no tool is shown. The keys of `denied` are qualified names.
    """

    manifest: Manifest
    tools: tuple[RecordedTool, ...]
    summary: str
    observed: Mapping[str, Observed]
    source: LibrarySource | None
    denied: Mapping[str, Decision]

    def is_of(self, policy: Policy, upstream: ListedUpstream, observed: Mapping[str, Observed]) -> bool:
        """Whether the entry is up to date: manifest, listing and observed results have not changed."""
        is_same = self.manifest is policy.manifest and self.tools is upstream.tools
        is_same = is_same and self.summary == policy.pins.summary(upstream)
        return is_same and self.observed == observed


def make_entry(policy: Policy, upstream: ListedUpstream, observed: Mapping[str, Observed]) -> CatalogEntry:
    manifest, namespace = policy.manifest, namespace_of(upstream.name)
    tools, summary = upstream.tools, policy.pins.summary(upstream)
    # Name all tools, so that no name depends on what is granted.
    names = function_names([tool.name for tool in tools])
    shown: list[RecordedTool] = []
    denied: dict[str, Decision] = {}
    refusals: dict[str, str] = {}
    asking: set[str] = set()
    for tool in tools:
        name = names[tool.name]
        decision = policy.about_listed(upstream.name, tools, tool.name, name, Hints.of(tool.annotations))
        if decision.granted or decision.is_shown:
            shown.append(tool)
        if decision.asks:
            asking.add(tool.name)
        if not decision.granted:
            denied[f"{namespace}.{name}"] = decision
            refusals[tool.name] = f"{decision.rule}. {ASK_OPERATOR}"
    if not shown:
        return CatalogEntry(manifest, tools, summary, observed, None, denied)
    listed = {tool.name: tool for tool in shown}
    seen = ((name, each, listed.get(name)) for name, each in observed.items())
    known = {name: each for name, each, tool in seen if tool and tool.digest == each.definition}
    since = {name: each.data_since for name, each in known.items()}
    schemas = {name: schema_of(each.shape) for name, each in known.items() if each.shape}
    mismatches = {name: each.mismatch for name, each in known.items() if each.mismatch}
    source = LibrarySource(
        upstream.name, namespace, summary, shown, names, schemas, refusals, mismatches, asking, since
    )
    return CatalogEntry(manifest, tools, summary, observed, source, denied)


log = structlog.get_logger()

RETRY_SECONDS: Final = 1.0


class Catalog:
    """Rebuilds the snapshot when an upstream's tools or state change, or when results have a new shape.

    One rebuild runs at a time and compiles only what changed. Only callers of `fresh` wait for it. The stub files and
    the snapshot are replaced together, while no check reads them.
    """

    def __init__(self, authority: Authority, checker: Checker | None, observations: Observations) -> None:
        self._authority = authority
        self._checker = checker
        self._observations = observations
        observations.listen(self.note_change)
        self._entries: dict[str, CatalogEntry] = {}
        self._replacing = anyio.Lock(fast_acquire=True)
        """Held to replace the stub files, and to begin a check, which reads them."""
        self._readers = 0
        self._has_left = anyio.Event()
        self._noted = 1  # number of changes so far; the first is the fleet itself
        self._held = 0  # number of changes in the snapshot
        self._changed = anyio.Event()
        self._tried = anyio.Event()
        """The next rebuild has ended, whether or not it failed."""
        self.snapshot = Snapshot(Library.compile([]), None, {}, {})

    def note_change(self) -> None:
        """Schedule a rebuild: an upstream's state or tools, the manifest or the observed results changed."""
        self._noted += 1
        self._changed.set()

    async def keep(self, fleet: Iterable[ListedUpstream]) -> None:
        """Rebuild the snapshot after each change, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed = anyio.Event()
            while self._held < self._noted:
                noted = self._noted
                try:
                    await self._rebuild(fleet)
                except Exception as error:  # noqa: BLE001  # the portal goes on, with the former snapshot if there is one
                    log.error("library_not_rebuilt", error=f"{type(error).__name__}: {error}")
                    self._end_attempt()
                    await anyio.sleep(RETRY_SECONDS)
                    self._noted += 1
                    if self.snapshot.index is None:
                        continue
                self._held = noted
                self._end_attempt()

    async def fresh(self) -> Snapshot:
        """Return a snapshot with every change noted so far. Does not wait for later changes."""
        await self._observations.learn()
        return await self.settled()

    async def settled(self) -> Snapshot:
        """Like `fresh`, without what results that are not read yet change: types, but no namespace.

        Raises RuntimeError: the first library could not be compiled, so there is none.
        """
        noted = self._noted
        while self._held < noted:
            await self._tried.wait()
            if self.snapshot.index is None:
                raise RuntimeError("there is no library of functions: see library_not_rebuilt in the log")
        return self.snapshot

    @asynccontextmanager
    async def steady(self) -> AsyncIterator[Snapshot]:
        """Yield the snapshot and keep its stub files unchanged. For a check, not for a run."""
        async with self._replacing:
            self._readers += 1
        try:
            yield self.snapshot
        finally:
            self._readers -= 1
            self._has_left.set()

    def _end_attempt(self) -> None:
        self._tried.set()
        self._tried = anyio.Event()

    async def _rebuild(self, fleet: Iterable[ListedUpstream]) -> None:
        former, upstreams, policy = self.snapshot, list(fleet), self._authority.policy
        await self._observations.load(upstream.name for upstream in upstreams)
        observed = {upstream.name: self._observations.of(upstream.name) for upstream in upstreams}
        snapshot = await anyio.to_thread.run_sync(partial(self._build, policy, former, upstreams, observed))
        async with self._replacing:
            while self._readers:
                self._has_left = anyio.Event()
                await self._has_left.wait()
            if self._checker is not None:
                touched = await anyio.to_thread.run_sync(self._checker.write, snapshot.library)
                await self._checker.update(snapshot.library, touched)
            self.snapshot = snapshot

    def _build(
        self,
        policy: Policy,
        former: Snapshot,
        upstreams: list[ListedUpstream],
        observed: Mapping[str, Mapping[str, Observed]],
    ) -> Snapshot:
        # Imported in this thread: numpy takes 0.3 s. Its BLAS, which is not used, would start a thread per core.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        from portal.catalog.search.index import SearchIndex

        denied: dict[str, Decision] = {}
        silent: dict[str, str] = {}
        sources: list[LibrarySource] = []
        entries: dict[str, CatalogEntry] = {}
        for upstream in upstreams:
            known, entry = observed[upstream.name], self._entries.get(upstream.name)
            if entry is None or not entry.is_of(policy, upstream, known):
                entry = make_entry(policy, upstream, known)
            entries[upstream.name] = entry
            denied.update(entry.denied)
            if entry.source is not None:
                sources.append(entry.source)
            elif not entry.tools:
                is_well, name = upstream.state.is_well, namespace_of(upstream.name)
                reason = f"upstream {upstream.name!r} lists no tools"
                silent[name] = reason if is_well else describe_state(upstream)
        self._entries = entries
        library = Library.compile(sources, former.library)
        index = former.index or SearchIndex({}, {})
        own = portal_functions(fetches=effective_capabilities(policy.manifest).network is not None)
        spaces = {name: each.in_order for name, each in library.namespaces.items()}
        index = index.updated({PORTAL: own, **spaces})
        return Snapshot(library, index, denied, silent)


def describe_state(upstream: ListedUpstream, max_detail_characters: int | None = None) -> str:
    """The state of an upstream, since when, and why, in words for scripts and models."""
    state = upstream.state
    since = f"{state.since:%Y-%m-%d %H:%M:%S} UTC"
    detail = f": {state.detail}" if state.detail else ""
    return f"upstream {upstream.name!r} is {state.adjective} since {since}{detail[:max_detail_characters]}"
