"""What is the portal's own, and would stand in the workspace that a manifest gives to scripts."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from manifests.env_file import env_path
from manifests.errors import Problem
from manifests.grants import NO_TENANT
from manifests.lock import lock_path
from manifests.portal_manifest import PortalManifest
from manifests.yaml_source import KeyPath, Place

_KEYS = ("capabilities", "files", "workspace")


def exposures(
    portal: PortalManifest, path: Path, own_folders: Sequence[Path], places: Mapping[KeyPath, Place]
) -> Iterator[Problem]:
    """A workspace with settings, secrets, records or programs of the portal in it, or within its own folders.

    Whoever writes those decides what scripts may do; the secrets are there for whoever only reads, too. `path` is the
    manifest's; `own_folders` are those in which the portal keeps what it makes for itself.
    """
    roots = _roots(portal, path.absolute().parent)
    found = [what for what, own in _own(portal, path) if any(_is_within(own, root) for root in roots)]
    if any(_is_within(own, root) or _is_within(root, own) for own in own_folders for root in roots):
        found.append("what the portal keeps for itself")
    if found:
        place = places.get(_KEYS) or Place(1, 1, 1, 1)
        hint = "Give scripts a folder that has nothing else in it, like `workspace: data`."
        message = f"has {' and '.join(found)} in it, which are not for scripts"
        yield Problem(message, place.value_line, place.value_column, hint, ".".join(_KEYS))


def _roots(portal: PortalManifest, folder: Path) -> list[Path]:
    """Folders that scripts see as theirs. Those of a session or a run are new and empty."""
    grant = portal.capabilities.files
    if grant is None or grant.share in ("session", "run"):
        return []
    workspace = Path(os.path.realpath(folder / grant.workspace))
    if grant.share == "all":
        return [workspace]
    tenants = {token.tenant for token in portal.server.tokens if token.tenant}
    return [workspace / tenant for tenant in sorted({NO_TENANT, *tenants})]


def _own(portal: PortalManifest, path: Path) -> Iterator[tuple[str, Path]]:
    folder = path.absolute().parent
    for each in (path, env_path(path), lock_path(path)):
        yield each.name, each.absolute()
    if portal.audit is not None and portal.audit.to != "stderr":
        yield "the audit log", folder / portal.audit.to
    if portal.server.observed_folder is not None:
        yield "server.observed_folder", folder / portal.server.observed_folder
    if portal.server.component is not None:
        yield "server.component", folder / portal.server.component
    yield "the portal's own code", Path(__file__).parent


def _is_within(inner: Path, outer: Path) -> bool:
    """Also by a link that stands in there: who may replace that puts something else in its place."""
    ways = {Path(os.path.normpath(inner)), Path(os.path.realpath(inner))}
    return any(_is_same(each, outer) for way in ways for each in (way, *way.parents))


def _is_same(one: Path, other: Path) -> bool:
    """By what it is, since a file system may have several names for it: upper case, a bind mount."""
    try:
        return one.samefile(other)
    except OSError:
        return one == other
