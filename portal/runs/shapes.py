"""Shapes of results that replicas share."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import anyio.from_thread

from portal.library.observed import Observed, dumped, loaded
from portal.store.records import StoreError
from portal.store.run_tables import RunTables
from portal.store.writer import RunStore

_KIND: Final = "shapes"


@dataclass(frozen=True)
class SharedShapes:
    """Shapes in the store of runs. Its methods are called in a thread of the event loop's."""

    store: RunStore

    def load(self, upstream: str) -> dict[str, Observed]:
        """What is stored about an upstream's tools, by name. Empty if it cannot be read."""
        try:
            data = anyio.from_thread.run(self.store.read, partial(_get, upstream=upstream))
        except StoreError:
            return {}
        return loaded(data or b"{}")

    def save(self, upstream: str, tools: Mapping[str, Observed]) -> None:
        """Store `tools`, merged with what other replicas stored meanwhile. Raises OSError."""

        def save(tables: RunTables) -> None:
            data = dumped(loaded(_get(tables, upstream) or b"{}"), tools)
            tables.put(_KIND, "", upstream, data)

        try:
            anyio.from_thread.run(self.store.write, save)
        except StoreError as error:
            raise OSError(str(error)) from error


def _get(tables: RunTables, upstream: str) -> bytes | None:
    return tables.get(_KIND, "", upstream)
