"""Logs to stderr. Stdout is for results and the protocol."""

import io
import logging
import os
import select
import sys
import traceback
from collections.abc import Iterable
from contextlib import suppress
from types import TracebackType
from typing import Final, TextIO

import structlog
from structlog.typing import EventDict, ExcInfo, Processor, WrappedLogger

from portal.base.plain_text import escaped, marked_lines

_PIPE_BYTES: Final = select.PIPE_BUF
"""Bytes that a writable pipe accepts without blocking."""

_WRITE_WAIT_MS: Final = 20

_OURS: Final = frozenset({"timestamp", "level", "event", "exc_info"})
"""Fields without untrusted text, or with their own formatting."""


def configure_logs(level: str) -> None:
    """Set the level ("debug", "info", "warning", "error") for our own events and those of libraries.

    Events are readable lines on a terminal, else JSON lines. Untrusted text cannot start a line in either.
    """
    number = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=list(_processors()),
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=lambda *_: STDERR,
        cache_logger_on_first_use=False,
    )
    # httpx2 logs URLs with their queries at INFO, and the SDK logs tracebacks caused by untrusted input.
    handler = logging.StreamHandler(STDERR)
    handler.setFormatter(_Marked("%(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler], level=max(number, logging.WARNING), force=True)
    # The exporters of telemetry log each batch that fails; the portal logs each outage.
    for name in ("mcp", "server", "opentelemetry"):
        logging.getLogger(name).setLevel(logging.DEBUG if number == logging.DEBUG else logging.CRITICAL)
    # The SDK's client also logs the URLs of upstreams, which may contain keys, and their answers.
    for name in ("mcp.client", "client"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def report_crash(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an unexpected exception, as `sys.excepthook`."""
    text = "".join(traceback.format_exception(kind, error, trace))
    sys.stderr.write(f"{marked_lines(text)}\n")


class _Marked(logging.Formatter):
    """Formats messages of libraries: tracebacks stay readable, and no line looks like another event."""

    def format(self, record: logging.LogRecord) -> str:
        return marked_lines(super().format(record))


class _Stderr:
    """Writes lines to stderr, and never waits: a client may not read it. What does not fit is dropped."""

    def __init__(self) -> None:
        self._is_torn = False

    def write_line(self, line: bytes) -> bool:
        """Returns whether it was written, perhaps without its line feed. Raises OSError, ValueError: it is closed."""
        text, written = b"\n" + line if self._is_torn else line, 0
        # Python's buffer is bypassed: it would write later what failed now.
        file = sys.stderr.fileno()
        ready = select.poll()
        ready.register(file, select.POLLOUT)
        try:
            while written < len(text) and ready.poll(_WRITE_WAIT_MS):
                piece = text[written : written + _PIPE_BYTES]
                taken = os.write(file, piece)
                written += taken
                if taken < len(piece):
                    break
        finally:
            if written:
                self._is_torn = written < len(text)
        return written >= len(text) - 1

    def msg(self, line: str) -> None:
        with suppress(OSError, ValueError):
            if _has_descriptor():
                self.write_line(f"{line}\n".encode(errors="backslashreplace"))
            else:
                sys.stderr.write(f"{line}\n")

    def write(self, text: str) -> None:
        self.msg(text.removesuffix("\n"))

    debug = info = warning = error = critical = exception = msg


STDERR: Final = _Stderr()


def _has_descriptor() -> bool:
    with suppress(OSError, ValueError):
        return sys.stderr.fileno() >= 0
    return False


def _processors() -> Iterable[Processor]:
    yield structlog.contextvars.merge_contextvars
    yield structlog.processors.add_log_level
    yield structlog.processors.TimeStamper(fmt="iso")
    if sys.stderr.isatty():
        yield _escape_event
        # Rich tracebacks would show the values of variables, and some are secrets.
        yield structlog.dev.ConsoleRenderer(exception_formatter=_traceback)
    else:
        yield structlog.processors.format_exc_info
        yield structlog.processors.JSONRenderer()


def _escape_event(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Escape strings for a terminal. The renderer quotes strings with spaces, and uses `repr` for other values."""
    escaped_event = {
        key: escaped(value) if isinstance(value, str) and key not in _OURS else value
        for key, value in event.items()
    }
    return {**escaped_event, "event": escaped(str(event["event"]))}


def _traceback(out: TextIO, raised: ExcInfo) -> None:
    text = io.StringIO()
    structlog.dev.plain_traceback(text, raised)
    out.write(marked_lines(text.getvalue()))
