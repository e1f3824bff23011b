"""Where log lines go: stderr, always; stdout belongs to results and to the protocol."""

import io
import logging
import re
import select
import shutil
import sys
import traceback
from collections.abc import Iterable
from contextlib import suppress
from types import TracebackType
from typing import Final, TextIO

import structlog
from structlog.typing import EventDict, ExcInfo, Processor, WrappedLogger

from portal.library.hidden_characters import respelt
from portal.library.plain_text import marked_lines, spelt_out
from portal.terminal_rows import columns_of, marked_rows

PIPE_BYTES: Final = select.PIPE_BUF
"""A pipe that is ready for writing takes this much without blocking."""

_PATIENCE_MS: Final = 20

_OURS: Final = frozenset({"timestamp", "level", "event", "exc_info"})
"""What no stranger has a say in, or is spelt out otherwise."""

_UNCLEAR: Final = re.compile(r"""[\s='"]|\A\Z""")


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
    sys.stderr.write(f"{_shown(marked_lines(told))}\n")


def is_pipe_writable(file: int) -> bool:
    """Whether PIPE_BYTES can be written at once: a client that reads no stderr must not hold the portal up."""
    poll = select.poll()
    poll.register(file, select.POLLOUT)
    return bool(poll.poll(_PATIENCE_MS))


def _shown(text: str) -> str:
    """The text as stderr has it: on a terminal no row of it begins with what a stranger wrote, either."""
    if not sys.stderr.isatty():
        return text
    return marked_rows(text, columns_of(sys.stderr) or shutil.get_terminal_size().columns)


class _Marked(logging.Formatter):
    """Of the libraries' own messages: tracebacks stay readable, and no line of them passes for another event."""

    def format(self, record: logging.LogRecord) -> str:
        return _shown(marked_lines(super().format(record)))


class _Stderr:
    """Writes lines to stderr. A reader that went away must not end the portal, and one that reads nothing must not hold
    it up: so that fails silently."""

    def msg(self, line: str) -> None:
        if not _is_read():
            return
        with suppress(OSError, ValueError):
            sys.stderr.write(_shown(line) + "\n")
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


class _Told:
    """A value as it is written on a terminal: in Python's quotes, if it is a text that without them is unclear. What is
    ordinary stays as it is there.
    """

    def __init__(self, value: object) -> None:
        self._value = value

    def __repr__(self) -> str:
        if not isinstance(self._value, str):
            return respelt(repr(self._value), _escaped)
        told = respelt(self._value.replace("\\", "\\\\"), _escaped)
        if told == self._value and not _UNCLEAR.search(told):
            return told
        quote = '"' if "'" in told and '"' not in told else "'"
        return quote + told.replace(quote, "\\" + quote) + quote


def _told(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    told = {key: value if key in _OURS else _Told(value) for key, value in event.items()}
    return {**told, "event": spelt_out(str(event["event"]))}


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def _traceback(out: TextIO, raised: ExcInfo) -> None:
    told = io.StringIO()
    structlog.dev.plain_traceback(told, raised)
    out.write(marked_lines(told.getvalue()))
