"""What a run learned from outside, in order, as a line of tokens: the part of a record that a worker writes.

    7       seven reads of a clock that showed the same time as the read before
    +12     a read of a clock, 12 ms later
    =2      an exchange that returned two frames of answers; =0 is one that returned nothing
    @1700   from here on the wall clock shows 1700 ms since 1970 and what passes: the run was taken up again

A worker that repeats a run gets the same line, with *LENGTH for =COUNT: the answers follow the line.
"""

import re
from collections.abc import Iterator

READS, LATER, ANSWERED, RESUMED, REPEATED = "", "+", "=", "@", "*"

MAX_TRACE_TOKENS = 1024
MAX_TRACE_BYTES = 16 * (MAX_TRACE_TOKENS + 1)
"""Of one frame. To read a token costs a microsecond, and others wait."""

_TOKEN = re.compile(rb"([+=@*]?)(0|[1-9][0-9]{0,12})(?: |$)")


class TraceError(Exception):
    """It is no trace."""


def tokens(trace: bytes) -> Iterator[tuple[str, int]]:
    """The tokens, each as its sign and its number.

    Raises:
        TraceError: At the first thing that is no token.
    """
    at = 0
    while at < len(trace):
        token = _TOKEN.match(trace, at)
        if token is None:
            raise TraceError("a trace that no worker of ours would write")
        yield token[1].decode(), int(token[2])
        at = token.end()
