"""The one name for "any JSON value", and reading long ones without the garbage collector."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

Json: TypeAlias = Any
"""None, bool, int, float, str, list of Json, or dict of str to Json."""


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
