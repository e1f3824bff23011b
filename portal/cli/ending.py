"""How a command ends before its time: Ctrl-C and SIGTERM cancel it in order, a second one ends it at once."""

import os
import signal
from collections.abc import Awaitable, Callable

import anyio

INTERRUPTED = 128 + signal.SIGINT
"""The exit status that a shell reports for a command that Ctrl-C ended."""

TERMINATED = 128 + signal.SIGTERM

END_SECONDS = 15
"""How long a cancelled command may take to end its upstreams, workers and responses."""


async def until_signal(command: Callable[[], Awaitable[int]]) -> int:
    """The exit status of a command; INTERRUPTED or TERMINATED if a signal ended it.

    Raises:
        BaseExceptionGroup: Of whatever the command raised.
    """
    received: list[int] = []
    status = 0
    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope() as scope:
            tasks.start_soon(_cancel, scope, received)
            status = await command()
        tasks.cancel_scope.cancel()
    return 128 + received[0] if received else status


async def _cancel(scope: anyio.CancelScope, received: list[int]) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        number = await anext(signals)
        received.append(number)
        scope.cancel()
        with anyio.move_on_after(END_SECONDS):
            await anext(signals)
        os._exit(128 + number)
