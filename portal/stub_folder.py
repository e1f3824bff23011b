"""The private folder in which a running portal keeps the stubs that scripts are checked against."""

import os
import shutil
import tempfile
from pathlib import Path

_PREFIX = "mcp-code-portal-"


def stub_folder() -> Path:
    """A new folder, owner-only. What portals left that were killed is removed on the way."""
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*-*"):
        process = left.name.removeprefix(_PREFIX).partition("-")[0]
        if process.isdigit() and not _lives(int(process)):
            shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # it is somebody else's
    return True
