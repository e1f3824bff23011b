"""The sandboxes of a portal: one for each kernel, with worker processes of its own."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import anyio
import structlog

from manifests.kernels import PYTHON, KernelName
from manifests.manifest import Manifest
from portal.base.errors import RunsError, refuse_kernel
from portal.runs.components import Components
from sandbox_runtime.aot import guest_component
from sandbox_runtime.errors import SandboxError
from sandbox_runtime.fair_queue import QueueLimits
from sandbox_runtime.kernels import KERNELS
from sandbox_runtime.sandbox import Sandbox, open_sandbox

log = structlog.get_logger()


@dataclass(eq=False)
class Kernels:
    """Python's sandbox opens in the background, because its first start compiles for seconds; another one at the first
    script of its language. `components` keeps what the runs began in.
    """

    manifest: Manifest
    stack: AsyncExitStack
    progress: Callable[[str], None]
    component: Path | None = None
    """Python's, from the operator."""
    components: Components | None = None
    given: Sandbox | None = None
    """Used instead of an own one for Python, and left open."""
    opened: dict[KernelName, Sandbox] = field(default_factory=dict)
    _is_open: anyio.Event = field(default_factory=anyio.Event)
    _opening: anyio.Lock = field(default_factory=anyio.Lock)

    async def hold(self) -> None:
        """Keep Python's sandbox open until cancelled. Raises SandboxError: it cannot run on this machine."""
        async with self._open(PYTHON) as sandbox:
            self.opened[PYTHON] = sandbox
            self._is_open.set()
            await self._keep(sandbox)
            await anyio.sleep_forever()

    async def sandbox(self, name: KernelName = PYTHON, component: str = "") -> Sandbox:
        """The sandbox of a kernel, or that of an earlier component of it, by sha256, once it is open.

        Raises RunsError: the kernel is not on, or does not start here. Of a component also as `Components.sandbox`.
        """
        refuse_kernel(name, self.manifest.portal.server.switched_on)
        if name not in self.opened:
            await (self._is_open.wait() if name == PYTHON else self._start(name))
        sandbox = self.opened[name]
        if component in ("", sandbox.component) or self.components is None:
            return sandbox
        return await self.components.sandbox(component, name)

    async def _start(self, name: KernelName) -> None:
        async with self._opening:
            if name in self.opened:  # another script was first
                return
            try:
                self.opened[name] = await self.stack.enter_async_context(self._open(name))
            except SandboxError as error:
                log.error("kernel_not_opened", kernel=name, reason=str(error), hint=error.hint)
                message = f"the kernel {name} does not start here; the portal's log says why"
                raise RunsError("sandbox_busy", message, "Tell the operator.") from error
            # Nothing keeps it later if the client of this script goes away now.
            with anyio.CancelScope(shield=True):
                await self._keep(self.opened[name])

    def _open(self, name: KernelName) -> AbstractAsyncContextManager[Sandbox]:
        if name == PYTHON and self.given is not None:
            return nullcontext(self.given)
        settings = self.manifest.portal.server
        return open_sandbox(
            kernel=KERNELS[name],
            workers=settings.workers,
            component=self.component if name == PYTHON else None,
            queue=QueueLimits(settings.queue, settings.queue_seconds, partial(self.manifest.where, "server")),
            progress=self.progress,
        )

    async def _keep(self, sandbox: Sandbox) -> None:
        if self.components is not None:
            own = self.component if sandbox.kernel.name == PYTHON else None
            await self.components.keep(own or guest_component(sandbox.kernel), sandbox.component)
