"""The trace of a run: the inputs that its worker gave it, as a line of tokens.

    7       seven reads of a clock that showed the same time as the read before
    +12     a read of a clock, 12 ms later
    =2      an exchange that returned two frames of answers; =0 returned nothing
    @1700   the run was resumed: from here on the wall clock starts at 1700 ms since 1970

A replay log has the same line, with *LENGTH instead of =COUNT. The answers follow the line.
"""

import re
from collections.abc import Iterator

from sandbox_runtime.frames import FrameError

READS, LATER, ANSWERED, RESUMED, REPLAYED = "", "+", "=", "@", "*"

MAX_TRACE_TOKENS = 1024
MAX_TRACE_BYTES = 16 * (MAX_TRACE_TOKENS + 1)
"""Limit of one frame: parsing a token takes a microsecond, which blocks the portal."""

_TOKEN = re.compile(rb"([+=@*]?)(0|[1-9][0-9]{0,12})(?: |$)")


def tokens(trace: bytes) -> Iterator[tuple[str, int]]:
    """The tokens of a trace, as sign and number. Raises FrameError at the first malformed one."""
    at = 0
    while at < len(trace):
        token = _TOKEN.match(trace, at)
        if token is None:
            raise FrameError("a malformed trace")
        yield token[1].decode(), int(token[2])
        at = token.end()
