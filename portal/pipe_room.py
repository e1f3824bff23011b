"""Whether what reads our stderr has room for a line: a client that never reads must not hold the portal up."""

import select
from typing import Final

PIECE_BYTES: Final = select.PIPE_BUF
"""A pipe that is ready for writing takes this much without blocking."""

_PATIENCE_MS: Final = 20


def has_room(file: int) -> bool:
    """Whether so many bytes can be written to it without waiting; waits a moment for that."""
    poll = select.poll()
    poll.register(file, select.POLLOUT)
    return bool(poll.poll(_PATIENCE_MS))
