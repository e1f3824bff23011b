"""Who looks names up, and how many each may have looked up at once: a name server that hangs is somebody's own."""

import asyncio
import socket
from collections.abc import Sequence
from functools import partial
from weakref import WeakValueDictionary

from manifests.hosts import Address, Resolver, addresses_in
from sandbox_runtime.grants.threads import Threads

THREADS = 64
OF_A_CALLER = 16
OF_A_RUN = 4


class Lookups:
    """Those of all runs."""

    def __init__(self, resolve: Resolver) -> None:
        self._resolve = resolve
        # One lives as long as a run of its caller, or a lookup that such a run began.
        self._callers: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def of_run(self, caller: str) -> "RunLookups":
        """Those of one run of a caller's. Further ones wait, of the run, and of all runs of the caller."""
        share = self._callers.setdefault(caller, asyncio.Semaphore(OF_A_CALLER))
        return RunLookups(self._resolve, (asyncio.Semaphore(OF_A_RUN), share))


class RunLookups:
    """A lookup that nobody waits for any more counts until it ends: what hangs is a thread."""

    def __init__(self, resolve: Resolver, shares: Sequence[asyncio.Semaphore]) -> None:
        self._resolve = resolve
        self._shares = shares

    async def __call__(self, host: str, port: int) -> Sequence[Address]:
        taken: list[asyncio.Semaphore] = []
        try:
            for share in self._shares:
                await share.acquire()
                taken.append(share)
            lookup = asyncio.ensure_future(self._resolve(host, port))
        except BaseException:
            _release(taken)
            raise
        lookup.add_done_callback(partial(_ended, taken))
        return await asyncio.shield(lookup)


def _ended(taken: Sequence[asyncio.Semaphore], lookup: "asyncio.Future[Sequence[Address]]") -> None:
    _release(taken)
    if not lookup.cancelled():
        lookup.exception()  # nobody may be waiting for it any more


def _release(taken: Sequence[asyncio.Semaphore]) -> None:
    for share in taken:
        share.release()


class SystemResolver:
    """Asks the system, in threads of its own."""

    def __init__(self) -> None:
        self._threads = Threads(THREADS)

    async def __call__(self, host: str, port: int) -> Sequence[Address]:
        return await self._threads.run(partial(_looked_up, host, port))


def _looked_up(host: str, port: int) -> Sequence[Address]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise OSError("not a name") from error
    return addresses_in(found)
