"""The way out to the host, and what a script prints: standard output and standard error alike."""

import io
from typing import Protocol

from sandbox_runtime.guest.values import clean, replacement

_EAGER_LINES = 10_000
_BUFFER_CHARS = 4096
_PIECE_CHARS = 1 << 20


class Host(Protocol):
    """The `host` interface of wit/sandbox.wit."""

    def exchange(self, outbox: str, timeout_ms: int) -> str: ...
    def print(self, text: str) -> None: ...
    def emit(self, block: str) -> None: ...


class Output(io.TextIOBase):
    """A text stream that ends at the host.

    The first 10,000 lines of a run cross one by one, so that a run that is stopped keeps what it printed;
    later ones in pieces of 4 KB, so that a flood costs little.
    """

    encoding = "utf-8"
    errors = "replace"

    def __init__(self, host: Host) -> None:
        self._out = host
        self._parts: list[str] = []
        self._chars = 0
        self._eager_lines = _EAGER_LINES
        self._is_replaced = False
        self.buffer = self

    def begin(self) -> None:
        """Start a run."""
        self._eager_lines = _EAGER_LINES
        self._is_replaced = False

    def notices(self) -> list[str]:
        """What a reader of the run's output should know."""
        return [replacement("stdout")] if self._is_replaced else []

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        """As standard output has it; what is written to the number itself is captured by nobody."""
        return 1

    def write(self, text: str | bytes) -> int:
        if isinstance(text, bytes):
            text = text.decode("utf-8", "replace")  # what is written to `sys.stdout.buffer`
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        self._parts.append(text)
        self._chars += len(text)
        if self._chars >= _BUFFER_CHARS:
            self.flush()
        elif self._eager_lines and "\n" in text:
            self._eager_lines -= 1
            self.flush()
        return len(text)

    def flush(self) -> None:
        if not self._parts:
            return
        written = "".join(self._parts)
        text = clean(written)
        self._is_replaced |= text is not written
        self._parts.clear()
        self._chars = 0
        for start in range(0, len(text), _PIECE_CHARS):
            self._out.print(text[start : start + _PIECE_CHARS])
