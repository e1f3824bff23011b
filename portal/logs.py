"""Where log lines go: stderr, always; stdout belongs to results and to the protocol."""

import logging
import sys
from collections.abc import Iterable

import structlog
from structlog.typing import Processor


def configure_logs(level: str) -> None:
    """Set the level ("debug", "info", "warning", "error") for our own events and for the libraries'.

    On a terminal events are readable lines, elsewhere JSON lines.
    """
    number = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=list(_processors()),
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    # The SDK and uvicorn log what clients and upstreams do wrong at INFO; that is ours to tell.
    logging.basicConfig(
        stream=sys.stderr, level=max(number, logging.WARNING), format="%(name)s: %(message)s", force=True
    )


def _processors() -> Iterable[Processor]:
    yield structlog.contextvars.merge_contextvars
    yield structlog.processors.add_log_level
    yield structlog.processors.TimeStamper(fmt="iso")
    if sys.stderr.isatty():
        yield structlog.dev.ConsoleRenderer()
    else:
        yield structlog.processors.format_exc_info
        yield structlog.processors.JSONRenderer()
