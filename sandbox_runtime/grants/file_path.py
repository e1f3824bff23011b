"""The names that a guest may use in its workspace."""

import unicodedata
from typing import TypeAlias

from sandbox_runtime.grants.file_error import FileError

FilePath: TypeAlias = tuple[str, ...]
"""The names from the workspace down; of the workspace itself none."""

OURS = ".portal-"
"""How names begin that only the portal uses, whatever their case; guests neither see nor make them."""

MAX_NAME_BYTES = 255
MAX_DEPTH = 32
MAX_PATH_CHARS = 4096
# Invisible: control characters steer the operator's terminal, others make two names look alike.
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def parse_path(text: str) -> FilePath:
    """Read a path relative to the workspace, with `/` between its names; "" is the workspace.

    Raises:
        FileError: It is absolute, or has a name that is empty, `.`, `..`, too long, not visible, or ours.
    """
    if len(text) > MAX_PATH_CHARS:
        raise FileError("ENAMETOOLONG")
    path = tuple(text.split("/")) if text else ()
    if len(path) > MAX_DEPTH:
        raise FileError("ENAMETOOLONG", f"folders are at most {MAX_DEPTH} levels deep")
    for name in path:
        if fault := _fault(name):
            raise fault
    return path


def is_usable(name: str) -> bool:
    """Whether guests may see a name that is there."""
    return _fault(name) is None


def _fault(name: str) -> FileError | None:
    if name in ("", ".", "..") or "/" in name:
        return FileError("EINVAL", "not a name of a file")
    if any(unicodedata.category(character) in _INVISIBLE for character in name):
        return FileError("EINVAL", "a name has visible characters only")
    if len(name.encode()) > MAX_NAME_BYTES:
        return FileError("ENAMETOOLONG")
    if unicodedata.normalize("NFKC", name).casefold().startswith(OURS):
        return FileError("EACCES", f"names that begin with {OURS} are the portal's own")
    return None
