"""Where scripts reach the portal's own files: through a workspace, or through an upstream that writes files."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from manifests.errors import KeyPath, Place, Problem, problem_at
from manifests.own_files import lock_path
from manifests.portal_manifest import PortalManifest
from manifests.references import env_path


def exposures(
    portal: PortalManifest, path: Path, own_folders: Sequence[Path], places: Mapping[KeyPath, Place]
) -> Iterator[Problem]:
    """A workspace that exposes the portal's settings, secrets, logs or code to scripts.

    A script that can write them decides what scripts may do; one that can read them has the secrets. `path` is the
    manifest's; `own_folders` hold the portal's own data.
    """
    grant = portal.capabilities.files
    if grant is None or grant.share in ("session", "run"):  # those folders are new and empty
        return
    root = Path(os.path.realpath(path.absolute().parent / grant.workspace))
    if found := _own_files_in(root, portal, path, own_folders):
        keys = ("capabilities", "files", "workspace")
        hint = "Use a folder with nothing else in it, like `workspace: data`."
        message = f"the workspace contains {' and '.join(found)}, which scripts must not access"
        yield problem_at(places, keys, message, hint)


def _own_files_in(root: Path, portal: PortalManifest, path: Path, own_folders: Sequence[Path]) -> list[str]:
    """What of the portal's own is in this folder, or is this file."""
    folder = path.absolute().parent
    named = {
        **{each.name: each.name for each in (path, env_path(path), lock_path(path))},
        "the audit log": portal.audit.to if portal.audit and portal.audit.is_file else None,
        "server.observed_folder": portal.server.observed_folder,
        "server.component": portal.server.component,
        "runs.store": None if portal.runs.is_shared else portal.runs.store,
        "the portal's own code": str(Path(__file__).parent),
    }
    modules = [(each, each.partition(":")[0].replace(".", "/")) for each in portal.middleware]
    pairs = [
        *named.items(),
        *((f"the middleware {each}", f"{own}{end}") for each, own in modules for end in ("", ".py")),
    ]
    found = [what for what, own in pairs if own is not None and _is_within(folder / own, root)]
    found = [*dict.fromkeys(found)]
    if any(_is_within(own, root) or _is_within(root, own) for own in own_folders):
        found.append("the portal's own data")
    return found


def _is_within(inner: Path, outer: Path) -> bool:
    """Whether it is inside, also through a link inside `outer`: a script could replace that link."""
    return any(_is_same(each, outer) for way in _ways(inner) for each in (way, *way.parents))


def _ways(path: Path) -> Iterator[Path]:
    """The path, and where it leads link by link."""
    yield Path(os.path.realpath(path))
    for _ in range(_MAX_LINKS):
        path = Path(os.path.normpath(path))
        yield path
        link = next((each for each in (*reversed(path.parents), path) if each.is_symlink()), None)
        if link is None:
            return
        path = link.parent / os.readlink(link) / path.relative_to(link)


def _is_same(one: Path, other: Path) -> bool:
    """Compare by inode: a file system may have several names for one folder, like upper case or a bind mount."""
    try:
        return one.samefile(other)
    except OSError:
        return one == other


_MAX_LINKS: Final = 40
