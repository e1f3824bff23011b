"""What a path says beside the name it leads to, and what systems refuse for it."""

import errno
import posixpath
from collections.abc import Callable
from dataclasses import dataclass

MOUNT = "/workspace"
"""Where scripts see the folder. It is also their working directory."""

ROOT = "/"
"""The place of the folder that the workspace lies in, which holds nothing else. No place within is called so."""

_NAME = "name"


@dataclass(frozen=True, slots=True)
class Way:
    """How a path leads to its place: "" is the workspace itself, None is elsewhere."""

    place: str | None
    through: tuple[str, ...]
    """Places that it goes up from again, by `..`: the way ends where one of them is no folder."""
    last: str
    """With what it ends: `.`, `..`, the workspace or the root ("/"), or "name"."""
    has_slash: bool
    """It ends with one, and so at a folder."""


def way_of(folder: str, path: str) -> Way:
    """Follow a path from a folder by its words alone: there are no links."""
    names = [] if path.startswith("/") else _names(folder)
    through = []
    parts = path.split("/")
    for part in parts:
        if part == "..":
            through.append(_place(names))
            names = names[:-1]
        elif part not in ("", "."):
            names.append(part)
    place = _place(names)
    said = [part for part in parts if part]
    last = "/" if place in ("", ROOT) else _NAME
    if said and said[-1] in (".", ".."):
        last = said[-1]
    return Way(place, tuple(dict.fromkeys(each for each in through if each)), last, path.endswith("/"))


def fault(operation: str, way: Way, is_folder: Callable[[str], bool]) -> int:
    """The errno with which a system refuses an operation for the way to it; 0 if it does not.

    `is_folder` raises OSError where nothing is. `new` creates a file that must not be there, and `target` is what a
    rename leads to.
    """
    if not all(is_folder(place) for place in way.through):
        return errno.ENOTDIR
    if way.last == _NAME:
        return _fault_of_slash(operation, way.place or "", is_folder) if way.has_slash else 0
    if way.last != "/" and not is_folder(way.place or ""):
        return errno.ENOTDIR
    return _REFUSED.get(operation, {}).get(way.last, 0)


def _fault_of_slash(operation: str, place: str, is_folder: Callable[[str], bool]) -> int:
    if operation in ("create", "new", "target"):
        refused = 0 if operation == "target" else errno.EISDIR
        return refused if is_folder(posixpath.dirname(place)) else errno.ENOTDIR
    if operation in ("mkdir", "rmdir", "list"):
        return 0  # they are for folders anyway
    if not is_folder(place):
        return errno.ENOTDIR
    return errno.EISDIR if operation in ("read", "remove") else 0


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name]


def _place(names: list[str]) -> str | None:
    if not names:
        return ROOT
    return "/".join(names[1:]) if names[0] == MOUNT[1:] else None


def _always(number: int) -> dict[str, int]:
    return dict.fromkeys((".", "..", "/"), number)


_REFUSED = {
    "read": _always(errno.EISDIR),
    "create": _always(errno.EISDIR),
    "new": _always(errno.EEXIST),
    "remove": _always(errno.EISDIR),
    "mkdir": _always(errno.EEXIST),
    "rmdir": {".": errno.EINVAL, "..": errno.ENOTEMPTY, "/": errno.EBUSY},
    "rename": _always(errno.EBUSY),
    "target": _always(errno.EBUSY),
}
