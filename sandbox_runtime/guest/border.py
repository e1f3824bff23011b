"""The host's functions as the guest sees them."""

from collections.abc import Callable
from typing import Protocol


class Host(Protocol):
    """The `host` interface of wit/sandbox.wit."""

    def exchange(self, outbox: str, timeout_ms: int) -> str: ...
    def print(self, text: str) -> None: ...
    def emit(self, block: str) -> None: ...


class Border:
    """Holds the three functions that lead out.

    While the component is built there is no host: a rehearsal plays one (`rehearsal.py`), and the real one
    is connected last.
    """

    exchange: Callable[[str, int], str]
    print: Callable[[str], None]
    emit: Callable[[str], None]

    def __init__(self, host: Host) -> None:
        self.connect(host)

    def connect(self, host: Host) -> None:
        self.exchange = host.exchange
        self.print = host.print
        self.emit = host.emit
