"""Where log lines go: stderr, always; stdout belongs to results and to the protocol."""

import logging
import sys
from collections.abc import Iterable
from contextlib import suppress

import structlog
from structlog.typing import Processor

from portal.pipe_room import has_room


def configure_logs(level: str) -> None:
    """Set the level ("debug", "info", "warning", "error") for our own events and for the libraries'.

    On a terminal events are readable lines, elsewhere JSON lines.
    """
    number = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=list(_processors()),
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=lambda *_: _Stderr(),
        cache_logger_on_first_use=False,
    )
    # httpx2 logs URLs with their queries at INFO, and the SDK logs tracebacks of what strangers send.
    logging.basicConfig(
        stream=sys.stderr, level=max(number, logging.WARNING), format="%(name)s: %(message)s", force=True
    )
    for name in ("mcp", "server"):
        logging.getLogger(name).setLevel(logging.DEBUG if number == logging.DEBUG else logging.CRITICAL)
    # Of its client also the URLs of upstreams, with whatever key is in them, and what they answer.
    for name in ("mcp.client", "client"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


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
        return has_room(sys.stderr.fileno())
    except (OSError, ValueError):
        return True  # it is no file


def _processors() -> Iterable[Processor]:
    yield structlog.contextvars.merge_contextvars
    yield structlog.processors.add_log_level
    yield structlog.processors.TimeStamper(fmt="iso")
    if sys.stderr.isatty():
        # Rich tracebacks would show the values of variables, and some are secrets.
        yield structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    else:
        yield structlog.processors.format_exc_info
        yield structlog.processors.JSONRenderer()
