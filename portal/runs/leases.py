"""Leases: for how long no other portal may take over the runs of this one."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import anyio
import structlog

from manifests.portal_manifest import RunsSettings
from portal.records.store.records import StoreError
from portal.records.store.run_tables import RunTables
from portal.records.store.tables import LEASE_SECONDS
from portal.records.store.writer import RunStore

log = structlog.get_logger()

BEAT_SECONDS: Final = LEASE_SECONDS / 5
"""How often a portal sends its heartbeat, and checks those of others."""


def boot_seconds() -> float:
    """Seconds by a clock that keeps running while the machine is suspended, where the system has one."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@dataclass(frozen=True)
class Address:
    """Where a portal listens for HTTP."""

    host: str
    port: int

    @property
    def is_everywhere(self) -> bool:
        return self.host in ("0.0.0.0", "::")

    def url(self, store: RunStore | None = None) -> str:
        """The base URL. If it listens on all addresses, with a store: at the address that the database sees."""
        host = store.address if store is not None and self.is_everywhere else self.host
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"


def public_url(settings: RunsSettings, address: Address | None) -> str | None:
    """The base URL under which others reach a portal; None if there is no such URL."""
    url = settings.public_url or (address.url() if address and not address.is_everywhere else None)
    return url and url.rstrip("/")


@dataclass(eq=False)
class Leases:
    """The leases of one portal, renewed by one heartbeat. Other portals reach it at `address`, if it has one."""

    store: RunStore | None
    address: Address | None = None
    clock: Callable[[], float] = boot_seconds
    _is_store_out: bool = False

    def __post_init__(self) -> None:
        self._renewed_at = self.clock()
        """When the last successful heartbeat began, by the clock."""
        self.lapses = 0
        """How often the lease was over before it was renewed: others may have taken the runs of then."""

    @property
    def is_holding(self) -> bool:
        """Whether no other portal can have taken over the runs of this one."""
        return self.store is None or self.clock() - self._renewed_at < LEASE_SECONDS

    def is_held_since(self, lapses: int) -> bool:
        """Whether no other portal can have taken over a run that this one held when `lapses` was read."""
        return self.is_holding and self.lapses == lapses

    async def hold(self, run: str, epoch: int, lapses: int) -> int:
        """Renew the lease on a run if it was over since `lapses` was read. Returns the `lapses` for `is_held_since`.

        Raises FencedError: another portal took the run; StoreError.
        """
        while not self.is_held_since(lapses):
            await self._renew(partial(RunTables.renew, run=run, epoch=epoch))
            lapses = self.lapses
        return lapses

    async def beat(self) -> None:
        """Send a heartbeat, which tells other portals the URL, too: before a client gets a session, whose requests they
        pass on.
        """
        try:
            await self._renew(RunTables.beat)
            self.note_store(None)
        except StoreError as error:
            self.note_store(error)

    async def keep(self) -> None:
        while True:
            await self.beat()
            await anyio.sleep(BEAT_SECONDS)

    async def _renew(self, beat: Callable[..., None]) -> None:
        # Taken before the write, so that this portal counts its lease as over before others do.
        began = self.clock()
        if self.store is not None:
            url = self.address.url(self.store) if self.address else ""
            await self.store.write(partial(beat, url=url))
        self.lapses += not self.is_holding
        self._renewed_at = began

    def note_store(self, error: StoreError | None) -> None:
        """Log that the store cannot be used, once per outage."""
        if error is not None and not self._is_store_out:
            log.error("store_out", error=str(error))
        elif error is None and self._is_store_out:
            log.info("store_back")
        self._is_store_out = error is not None
