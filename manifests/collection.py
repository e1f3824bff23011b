"""Keeps the garbage collector from what long JSON is read into: it would look at the same millions of objects again
and again, while nobody is served.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Final

_FEW_BYTES: Final = 16 * 1024
_MOVES_BETWEEN_COLLECTIONS: Final = 500

_moves = count(1)


@contextmanager
def no_collection(size: int) -> Iterator[None]:
    """Collect nothing while a text of so many bytes or characters is read."""
    if size < _FEW_BYTES or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        if gc.get_count()[0] > gc.get_threshold()[0]:
            _move_to_oldest()
        gc.enable()


def _move_to_oldest() -> None:
    """Take what is new for old, without looking at it.

    That is also what is garbage by now, and the collector forgets that its time had come: so from time to time it looks
    at everything here.
    """
    gc.freeze()
    gc.unfreeze()
    if next(_moves) % _MOVES_BETWEEN_COLLECTIONS == 0:
        gc.collect()
