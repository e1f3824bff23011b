"""The sandboxes that the runs and portals of a test process share, one for each kernel: each run has an instance of its
own in any case.

To open one costs a third of a second, so it opens when the first test needs it, and ends with the last.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import anyio

from manifests.kernels import PYTHON, KernelName
from manifests.loader import Manifest
from manifests.portal_manifest import ServerSettings
from sandbox_runtime.kernels import KERNELS
from sandbox_runtime.sandbox import Sandbox, open_sandbox

_USUAL = ServerSettings()
_KEPT: list["OneSandbox"] = []


class OneSandbox:
    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self._lock = anyio.Lock()
        self._sandboxes: dict[KernelName, Sandbox] = {}

    async def opened(self, kernel: KernelName = PYTHON) -> Sandbox:
        async with self._lock:
            if kernel not in self._sandboxes:
                opening = open_sandbox(kernel=KERNELS[kernel], progress=print)
                self._sandboxes[kernel] = await self._stack.enter_async_context(opening)
            return self._sandboxes[kernel]


@asynccontextmanager
async def one_sandbox() -> AsyncIterator[OneSandbox]:
    """Entered once by a process, on the event loop of all its tests."""
    async with AsyncExitStack() as stack:
        _KEPT.append(OneSandbox(stack))
        yield _KEPT[0]
    _KEPT.clear()


async def shared(manifest: Manifest) -> Sandbox | None:
    """The sandbox for a portal; None if its manifest says what its own is like."""
    server = manifest.portal.server
    names = ("workers", "component", "queue", "queue_seconds")
    if not _KEPT or any(getattr(server, name) != getattr(_USUAL, name) for name in names):
        return None
    return await _KEPT[0].opened()
