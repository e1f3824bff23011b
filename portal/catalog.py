"""Keeps the library, its search index and its stub files in step with the tools that the upstreams list."""

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType

import anyio
import anyio.to_thread
import structlog

from manifests.decision import Decision, decide
from manifests.manifest import Manifest
from manifests.names import function_names
from portal.check.checker import Checker
from portal.library.library import Library
from portal.library.namespace import LibrarySource
from portal.library.stub_package import write_stubs
from portal.observed.observations import Observations
from portal.observed.shape_store import Observed
from portal.snapshot import Snapshot
from upstreams.fleet import Fleet
from upstreams.recorded_tool import RecordedTool
from upstreams.upstream import Upstream

log = structlog.get_logger()


class Catalog:
    """Rebuilds the snapshot whenever an upstream's tools or state change, or results look like none before them; one
    rebuild at a time.
    """

    def __init__(
        self, manifest: Manifest, stubs: Path, checker: Checker | None, observations: Observations
    ) -> None:
        self._manifest = manifest
        self._stubs = stubs
        self._checker = checker
        self._observations = observations
        observations.on_change = self._note_change
        self._noted = 1  # changes, the first of which is that there is a fleet
        self._held = 0  # of these, as many as the snapshot holds
        self._changed = anyio.Event()
        self._rebuilt = anyio.Event()
        self.snapshot = Snapshot(0, Library.compile([]), None, MappingProxyType({}), MappingProxyType({}))

    def note_change(self, upstream: Upstream) -> None:
        """Called by the fleet whenever an upstream's state or tools changed."""
        log.debug(
            "upstream_changed",
            upstream=upstream.name,
            status=upstream.state.status,
            tools=len(upstream.tools),
        )
        self._note_change()

    def _note_change(self) -> None:
        self._noted += 1
        self._changed.set()

    async def keep(self, fleet: Fleet) -> None:
        """Follow the fleet until cancelled."""
        while True:
            while self._held < self._noted:
                noted = self._noted
                await self._rebuild(fleet)
                self._held = noted
                self._rebuilt.set()
                self._rebuilt = anyio.Event()
            self._changed = anyio.Event()
            await self._changed.wait()

    async def fresh(self) -> Snapshot:
        """The snapshot that holds every change noted so far; later ones keep nobody waiting."""
        self._observations.learn()
        noted = self._noted
        while self._held < noted:
            await self._rebuilt.wait()
        return self.snapshot

    async def _rebuild(self, fleet: Fleet) -> None:
        upstreams = list(fleet)
        await self._observations.load(upstream.name for upstream in upstreams)
        observed = {upstream.name: self._observations.of(upstream.name) for upstream in upstreams}
        outdated: dict[str, list[str]] = {}
        build = partial(self._build, self.snapshot, upstreams, observed, outdated)
        snapshot, touched = await anyio.to_thread.run_sync(build)
        for name, tools in outdated.items():
            self._observations.drop(name, tools)
        if self._checker is not None:
            await self._checker.update(snapshot.library, touched)
        self.snapshot = snapshot

    def _build(
        self,
        former: Snapshot,
        upstreams: list[Upstream],
        observed: Mapping[str, Mapping[str, Observed]],
        outdated: dict[str, list[str]],
    ) -> tuple[Snapshot, frozenset[Path]]:
        # Here, in a thread, and not on top: numpy takes a third of a second to import, and no client waits for it.
        from portal.search.index import SearchIndex

        denied: dict[str, Decision] = {}
        silent: dict[str, str] = {}
        sources = []
        for upstream in upstreams:
            namespace = self._manifest.namespaces[upstream.name]
            names = function_names([tool.name for tool in upstream.tools])
            granted = list(self._granted(upstream, names, denied))
            if granted:
                summary = upstream.instructions or upstream.server or ""
                known = observed[upstream.name]
                outdated[upstream.name] = [tool.name for tool in upstream.tools if _is_outdated(tool, known)]
                schemas = {tool.name: known[tool.name].schema for tool in granted if _is_known(tool, known)}
                sources.append(LibrarySource(upstream.name, namespace, summary, granted, names, schemas))
            elif not upstream.tools:
                silent[namespace] = _silence(upstream)
        library = Library.compile(sources, former.library)
        touched = self._written(library)
        index = SearchIndex.build(library.functions.values(), former.index)
        rules = MappingProxyType(denied), MappingProxyType(silent)
        snapshot = Snapshot(former.version + 1, library, index, *rules, is_on_disk=touched is not None)
        return snapshot, touched or frozenset()

    def _written(self, library: Library) -> frozenset[Path] | None:
        """The stub files that changed; None if they could not be written."""
        try:
            return write_stubs(library, self._stubs)
        except OSError as error:
            log.error("stubs_not_written", reason=error.strerror)
            return None

    def _granted(
        self, upstream: Upstream, names: Mapping[str, str], denied: dict[str, Decision]
    ) -> Iterable[RecordedTool]:
        """The tools that scripts may call; the others go to `denied`. `names` are of all tools, whatever is granted."""
        namespace = self._manifest.namespaces[upstream.name]
        for tool in upstream.tools:
            name = names[tool.name]
            decision = decide(self._manifest, upstream=upstream.name, tool=tool.name, function=name)
            if decision.granted:
                yield tool
            else:
                denied[f"{namespace}.{name}"] = decision


def _is_known(tool: RecordedTool, observed: Mapping[str, Observed]) -> bool:
    known = observed.get(tool.name)
    return known is not None and known.definition == tool.digest


def _is_outdated(tool: RecordedTool, observed: Mapping[str, Observed]) -> bool:
    """Whether what is known was learnt of another definition."""
    return tool.name in observed and not _is_known(tool, observed)


def _silence(upstream: Upstream) -> str:
    if upstream.state.status == "ready":
        return f"upstream {upstream.name!r} lists no tools"
    return standing(upstream)


def standing(upstream: Upstream, max_detail_characters: int | None = None) -> str:
    """How an upstream is, since when, and why."""
    state = upstream.state
    since = state.since.strftime("%H:%M:%S")
    detail = f": {state.detail}" if state.detail else ""
    return f"upstream {upstream.name!r} is {state.status} since {since}{detail[:max_detail_characters]}"
