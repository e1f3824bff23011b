"""The library as a typed package on disk, for type checkers and editors."""

from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from typing import Final

from manifests.own_files import ORDINARY, write_whole
from portal.library.library import GENERATED, Library, Namespace
from portal.library.portal_stub import PORTAL_STUB

PACKAGE: Final = "tools"
_PORTAL: Final = "portal.pyi"


class ForeignFileError(Exception):
    """A file that is not ours stands where a stub belongs; nothing was written."""


def write_stubs(
    library: Library, folder: Path, written: Library | None = None, absent: Set[str] = frozenset()
) -> frozenset[Path]:
    """Make `folder` hold the stubs of this library and of no other; says which files changed or went.

    Namespaces that `written` has too, the very same ones, are taken to be there already. What is there of `absent` ones
    stays: theirs could not be had this time.

    With the folder as root, `from tools import github`, `from tools.github import create_issue` and
    `import github` resolve. Files are replaced one by one, each at once, and only if they differ. Stubs of a
    former library are removed; files that do not begin as ours do are left alone, unless empty and in the way.

    Raises:
        ForeignFileError: A file that is not ours is in the way.
        OSError: The folder cannot be written.
    """
    known = written.namespaces if written is not None else {}
    kept = {name for name in absent if _is_ours(folder / PACKAGE / f"{name}.pyi")} - library.namespaces.keys()
    files = {folder / path: text for path, text in _package(library, known, kept)}
    foreign = [path.name for path in files if path.exists() and not _is_ours(path) and path.stat().st_size]
    if foreign:
        raise ForeignFileError(
            f"not written by mcp-code-portal, and in the way: {', '.join(sorted(foreign))}"
        )
    (folder / PACKAGE).mkdir(parents=True, exist_ok=True)
    changed = {path for path, text in files.items() if _write(path, text)}
    if written is None or library.namespaces.keys() != known.keys():
        changed.update(_remove_stale(folder, library.namespaces.keys() | kept))
    return frozenset(changed)


def _package(library: Library, known: Mapping[str, Namespace], kept: Set[str]) -> Iterator[tuple[str, str]]:
    """Paths within the folder, and texts; without those of known and kept namespaces."""
    names = sorted(library.namespaces.keys() | kept)
    imports = "".join(f"from . import {name} as {name}\n" for name in names)
    yield f"{PACKAGE}/__init__.pyi", f"{GENERATED}.\n{imports}"
    yield f"{PACKAGE}/py.typed", ""
    yield _PORTAL, PORTAL_STUB
    for name, namespace in library.namespaces.items():
        if known.get(name) is not namespace:
            yield f"{PACKAGE}/{name}.pyi", namespace.module
            yield f"{name}.pyi", _top_level(namespace)


def _top_level(namespace: Namespace) -> str:
    """`import github`: by name, because `*` would leave out names that begin with `_`."""
    names = "".join(f"    {name} as {name},\n" for name in namespace.functions)
    imports = f"from {PACKAGE}.{namespace.name} import (\n{names})\n" if names else ""
    return f"{GENERATED}.\n{imports}"


def _write(path: Path, text: str) -> bool:
    """Replace the file at once, unless it is the same already."""
    data = text.encode()
    if path.exists() and path.read_bytes() == data:
        return False
    write_whole(path, data, mode=ORDINARY, is_lasting=False)
    return True


def _remove_stale(folder: Path, namespaces: Set[str]) -> Iterator[Path]:
    package = folder / PACKAGE
    ours = {folder / _PORTAL, package / "__init__.pyi"}
    for path in (*folder.glob("*.pyi"), *package.glob("*.pyi")):
        is_current = path.stem in namespaces or path in ours
        if not is_current and _is_ours(path):
            path.unlink()
            yield path


def _is_ours(path: Path) -> bool:
    """Whether it begins as our files do."""
    try:
        with path.open("rb") as file:
            return file.read(len(GENERATED)) == GENERATED.encode()
    except FileNotFoundError:
        return False
