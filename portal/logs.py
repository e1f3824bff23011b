"""Where log lines go: stderr, always; stdout belongs to results and to the protocol."""

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

from portal.library.plain_text import escaped, marked_lines

PIPE_BYTES: Final = select.PIPE_BUF
"""A pipe that is ready for writing takes this much without blocking."""

_PATIENCE_MS: Final = 20

_OURS: Final = frozenset({"timestamp", "level", "event", "exc_info"})
"""What no stranger has a say in, or is spelt out otherwise."""


def configure_logs(level: str) -> None:
    """Set the level ("debug", "info", "warning", "error") for our own events and for the libraries'.

    On a terminal events are readable lines, elsewhere JSON lines. What strangers say has no line of its own in either.
    """
    number = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=list(_processors()),
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=lambda *_: _Stderr(),
        cache_logger_on_first_use=False,
    )
    # httpx2 logs URLs with their queries at INFO, and the SDK logs tracebacks of what strangers send.
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Marked("%(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler], level=max(number, logging.WARNING), force=True)
    for name in ("mcp", "server"):
        logging.getLogger(name).setLevel(logging.DEBUG if number == logging.DEBUG else logging.CRITICAL)
    # Of its client also the URLs of upstreams, with whatever key is in them, and what they answer.
    for name in ("mcp.client", "client"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def tell_defect(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """What nobody expected ends the command: a `sys.excepthook`."""
    told = "".join(traceback.format_exception(kind, error, trace))
    sys.stderr.write(f"{marked_lines(told)}\n")


def is_pipe_writable(file: int) -> bool:
    """Whether PIPE_BYTES can be written at once: a client that reads no stderr must not hold the portal up."""
    poll = select.poll()
    poll.register(file, select.POLLOUT)
    return bool(poll.poll(_PATIENCE_MS))


class _Marked(logging.Formatter):
    """Of the libraries' own messages: tracebacks stay readable, and no line of them passes for another event."""

    def format(self, record: logging.LogRecord) -> str:
        return marked_lines(super().format(record))


class _Stderr:
    """Writes lines to stderr. A reader that went away must not end the portal, and one that reads nothing must not hold
    it up: so that fails silently."""

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
        return True  # it is no file


def _processors() -> Iterable[Processor]:
    yield structlog.contextvars.merge_contextvars
    yield structlog.processors.add_log_level
    yield structlog.processors.TimeStamper(fmt="iso")
    if sys.stderr.isatty():
        yield _told
        # Rich tracebacks would show the values of variables, and some are secrets.
        yield structlog.dev.ConsoleRenderer(exception_formatter=_traceback)
    else:
        yield structlog.processors.format_exc_info
        yield structlog.processors.JSONRenderer()


def _told(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Texts as a terminal shows them; the renderer quotes those with spaces, and writes other values as Python does."""
    told = {
        key: escaped(value) if isinstance(value, str) and key not in _OURS else value
        for key, value in event.items()
    }
    return {**told, "event": escaped(str(event["event"]))}


def _traceback(out: TextIO, raised: ExcInfo) -> None:
    told = io.StringIO()
    structlog.dev.plain_traceback(told, raised)
    out.write(marked_lines(told.getvalue()))
