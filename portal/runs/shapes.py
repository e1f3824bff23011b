"""Observed shapes of results, shared by replicas."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import anyio.from_thread

from manifests.manifest import Manifest
from portal.library.observed import Observed, Shapes, dumped, loaded, shape_store
from portal.records.store.records import StoreError
from portal.records.store.tables import Tables
from portal.records.store.writer import RunStore


def shapes_of(manifest: Manifest, shared: RunStore | None) -> Shapes | None:
    """The store of a manifest's shapes, by default the one that machines share; None if results are not observed."""
    own = shape_store(manifest)
    if own is None or shared is None or manifest.portal.server.observed_folder is not None:
        return own
    return SharedShapes(shared)


@dataclass(frozen=True)
class SharedShapes:
    """Shapes in the store of runs. Its methods are called in a worker thread of the event loop."""

    store: RunStore

    def load(self, upstream: str) -> dict[str, Observed]:
        """Return what is stored about an upstream's tools, by name. Empty if it cannot be read."""
        try:
            return anyio.from_thread.run(self.store.read, partial(_known, upstream=upstream))
        except StoreError:
            return {}

    def save(self, upstream: str, tools: Mapping[str, Observed]) -> None:
        """Store `tools`, merged with what other replicas have stored since. Raises OSError."""

        def save(tables: Tables) -> None:
            tables.put("shapes", "", upstream, dumped(_known(tables, upstream), tools))

        try:
            anyio.from_thread.run(self.store.write, save)
        except StoreError as error:
            raise OSError(str(error)) from error


def _known(tables: Tables, upstream: str) -> dict[str, Observed]:
    return loaded(tables.get("shapes", "", upstream) or b"{}")
