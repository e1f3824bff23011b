"""Keeps the garbage collector from what long JSON is read into: it would look at the same millions of objects again
and again, while nobody is served.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_FEW_BYTES: Final = 4 * 1024
_MOVES_BEFORE_COLLECTION: Final = 500
_MOST_MOVES: Final = 20 * _MOVES_BEFORE_COLLECTION


class _Reading:
    """What is read in this process."""

    texts = 0
    """Long ones, of which parts are there."""

    moves = 0
    """Of what was read past the collector, since it last looked at everything."""


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


@contextmanager
def long_text() -> Iterator[None]:
    """One is read whose parts are read one by one, and others meanwhile.

    If it is time to look at everything, that is done before the first of them, and not in the midst: it would look at
    all that was read.
    """
    if not _Reading.texts and _Reading.moves >= _MOVES_BEFORE_COLLECTION:
        _collect()
    _Reading.texts += 1
    try:
        yield
    finally:
        _Reading.texts -= 1


def _move_to_oldest() -> None:
    """Take what is new for old, without looking at it.

    That is also what is garbage by now, and the collector forgets that its time had come: so from time to time it looks
    at everything here.
    """
    gc.freeze()
    gc.unfreeze()
    _Reading.moves += 1
    if _Reading.moves >= (_MOST_MOVES if _Reading.texts else _MOVES_BEFORE_COLLECTION):
        _collect()


def _collect() -> None:
    _Reading.moves = 0
    gc.collect()
