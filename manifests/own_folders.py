"""Where the portal keeps what it makes for itself."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

_NAME = "mcp-code-portal"


def cache_folder(environ: Mapping[str, str]) -> Path:
    """For what can be made again: in $XDG_CACHE_HOME, or where the system has such things."""
    home = _home(environ)
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / _NAME
    return _chosen(environ, "XDG_CACHE_HOME", home / ".cache") / _NAME


def state_folder(environ: Mapping[str, str]) -> Path:
    """For what was learnt and would be missed: in $XDG_STATE_HOME, or where the system has such things."""
    home = _home(environ)
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / _NAME
    return _chosen(environ, "XDG_STATE_HOME", home / ".local" / "state") / _NAME


def is_private(folder: Path) -> bool:
    """Whether nobody but this user can put anything there."""
    try:
        status = folder.stat()
    except OSError:
        return False
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022


def _chosen(environ: Mapping[str, str], variable: str, otherwise: Path) -> Path:
    """As the XDG Base Directory Specification says: a relative path is ignored."""
    chosen = environ.get(variable, "")
    return Path(chosen) if os.path.isabs(chosen) else otherwise


def _home(environ: Mapping[str, str]) -> Path:
    """In a container the user may have none; where nothing can be written then, nothing is kept."""
    try:
        return Path(environ.get("HOME") or "~").expanduser()
    except RuntimeError:
        return Path("/")
