"""Imports of a script's own modules from the workspace, once it has put a folder of it on `sys.path`.

No folder is there by itself: in a workspace that others share, what they put there must not run for want of a package.
"""

import importlib
import io
import os
import sys
from collections.abc import Callable
from typing import Any


def install(open: Callable[..., Any]) -> None:
    """Have Python's import machinery look where `os` and `open` look; it has the originals of both for itself."""
    machinery = sys.modules["_frozen_importlib_external"]
    machinery._os = os  # type: ignore[attr-defined]

    def open_code(path: str) -> Any:
        return open(path, "rb")

    io.open_code = sys.modules["_io"].open_code = open_code  # type: ignore[attr-defined]
    sys.dont_write_bytecode = True  # it would cost operations, and be of no use to the next run
    importlib.invalidate_caches()
