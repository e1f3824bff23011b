"""What SIGHUP does to a portal. By default it would end the process at once, and leave scripts without an answer."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


def handle_hang_ups() -> None:
    """From now on SIGHUP is SIGTERM if this process has a terminal, and else does nothing."""
    is_due = has_terminal()  # asked now, because a closed terminal is none

    def end(*_: object) -> None:
        nonlocal is_due
        if is_due:
            is_due = False  # a window that is closed and its shell may both send the signal
            os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(signal.SIGHUP, end)


@contextmanager
def at_hang_up(act: Callable[[], object]) -> Iterator[None]:
    """Call `act` in the event loop at each SIGHUP, unless there is a terminal: no one decided to send it then."""
    if has_terminal():
        yield
        return
    loop = asyncio.get_running_loop()
    # Not the loop's own handler: removing that one restores the default, not the former one.
    former = signal.signal(signal.SIGHUP, lambda *_: loop.call_soon_threadsafe(act))
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, former)


def has_terminal() -> bool:
    with suppress(OSError):
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC))
        return True
    return any(map(os.isatty, (0, 1, 2)))
