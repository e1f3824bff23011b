"""Files that are there whole or as they were before, whoever reads them meanwhile and however the disk fails."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

PRIVATE: Final = 0o600
ORDINARY: Final = 0o666
"""For whom the user's own file mask allows."""

UNFINISHED: Final = ".new-"
"""How the name of a file begins that a process which died may have left behind."""


def write_whole(
    path: Path, data: bytes, *, mode: int = PRIVATE, prepare: Callable[[int], None] | None = None
) -> None:
    """Replace the file at once. `prepare` gets the descriptor of the new file before that is to be seen.

    Raises:
        OSError: It cannot be written; what was there before still is.
    """
    new = path.with_name(f"{UNFINISHED}{uuid4().hex}")
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as file:
            if prepare is not None:
                prepare(file.fileno())
            file.write(data)
        new.replace(path)
    except OSError:
        with suppress(OSError):
            new.unlink()
        raise
