"""Logs to stderr. Stdout is for results and the protocol."""

import io
import logging
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

PIPE_BYTES: Final = select.PIPE_BUF
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
        logger_factory=lambda *_: _Stderr(),
        cache_logger_on_first_use=False,
    )
    # httpx2 logs URLs with their queries at INFO, and the SDK logs tracebacks caused by untrusted input.
    handler = logging.StreamHandler(sys.stderr)
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


def is_pipe_writable(file: int) -> bool:
    """Whether PIPE_BYTES can be written without blocking: a client may not read stderr."""
    poll = select.poll()
    poll.register(file, select.POLLOUT)
    return bool(poll.poll(_WRITE_WAIT_MS))


class _Marked(logging.Formatter):
    """Formats messages of libraries: tracebacks stay readable, and no line looks like another event."""

    def format(self, record: logging.LogRecord) -> str:
        return marked_lines(super().format(record))


class _Stderr:
    """Writes lines to stderr. It drops lines silently if the reader is gone or does not read."""

    def msg(self, line: str) -> None:
        if not _is_read():
            return
        with suppress(OSError, ValueError):
            sys.stderr.write(line + "\n")
            sys.stderr.flush()

    debug = info = warning = error = critical = exception = msg


def _is_read() -> bool:
    try:
        return is_pipe_writable(sys.stderr.fileno())
    except (OSError, ValueError):
        return True  # stderr has no descriptor


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
