"""Keeps the garbage collector from what long JSON is read into: it would look at the same millions of objects again."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_FEW_BYTES: Final = 4 * 1024


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
        gc.enable()
