"""From portal.yaml to a Manifest, or to every problem it has at once."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from manifests.complaint import Complaint
from manifests.errors import ManifestError, Problem
from manifests.grants import NO_TENANT
from manifests.json_value import Json
from manifests.lock import lock_path, read_lock
from manifests.manifest import Manifest, slips
from manifests.names import namespace_of
from manifests.own_files import cache_folder, read_capped, state_folder, unreadable, utf8
from manifests.portal_manifest import PortalManifest
from manifests.references import FetchSecrets, Interpolation, env_path, fetch_nothing, read_env
from manifests.yaml_source import KeyPath, Place, nearest, read_yaml

CONFIG_VARIABLE = "MCP_CODE_PORTAL_CONFIG"
DEFAULT_FILE = Path("portal.yaml")
MAX_BYTES = 1024 * 1024
MAX_COMPLAINTS = 200


def find_manifest(explicit: Path | None, environ: Mapping[str, str]) -> Path | None:
    """The file to load: the one asked for, else `$MCP_CODE_PORTAL_CONFIG`, else `./portal.yaml` if it is there."""
    if explicit is not None:
        return explicit
    if named := environ.get(CONFIG_VARIABLE):
        return Path(named)
    return DEFAULT_FILE if DEFAULT_FILE.exists() else None


def load_manifest(
    path: Path | None, environ: Mapping[str, str], fetch_secrets: FetchSecrets = fetch_nothing
) -> Manifest:
    """Load a manifest; without a path, the one that says nothing: no upstreams, defaults for the rest.

    A lockfile beside it is read, too, and values that the environment lacks are taken from portal.env beside it.
    `fetch_secrets` gets what commands and the keyring are to supply, once, and may take its time.

    Raises:
        ManifestError: One of the files cannot be read or used; it carries every problem found.
    """
    if path is None:
        return Manifest(PortalManifest(), folder=Path.cwd())
    kept = read_env(env_path(path)) if path.name else {}  # a folder is told as such below
    try:
        own_folders = [state_folder(environ), cache_folder(environ)]
        manifest = _load(path, {**kept, **environ}, fetch_secrets, own_folders)
    except ManifestError as error:
        raise ManifestError(error.problems, path.name) from None
    return replace(manifest, lock=read_lock(lock_path(path)))


def _load(
    path: Path, environ: Mapping[str, str], fetch_secrets: FetchSecrets, own_folders: Sequence[Path]
) -> Manifest:
    source = read_yaml(_text(path))
    folder = path.absolute().parent
    interpolation = Interpolation(environ, source.places, fetch_secrets, folder)
    data = interpolation.manifest({} if source.data is None else source.data)
    problems = [*source.problems, *interpolation.problems, *_clashes(data, source.places)]
    try:
        portal = PortalManifest.model_validate(data)
        problems += slips(portal, source.places)
        problems += exposures(portal, path, own_folders, source.places)
    except ValidationError as error:
        complaint = Complaint(source.places, interpolation.filled)
        found = map(complaint.problem, error.errors(include_url=False)[:MAX_COMPLAINTS])
        # What is wrong with a reference was said; that the hole it leaves is no good value is no news.
        reported = {problem.key for problem in interpolation.problems}
        problems += [problem for problem in found if problem.key not in reported]
    # Outside the handler: the validation error shows values, and must not travel along as the context.
    if problems:
        raise ManifestError(problems)
    return Manifest(
        portal,
        folder,
        path,
        source.places,
        templates=interpolation.templates,
        hidden=frozenset().union(*interpolation.taken.values()),
        credentials={
            name: frozenset().union(
                *(taken for path, taken in interpolation.taken.items() if path[:2] == ("upstreams", name))
            )
            for name in _upstreams(source.data)
        },
        written=_upstreams(source.data),
    )


def _upstreams(data: Json) -> dict[str, Json]:
    upstreams = data.get("upstreams") if isinstance(data, dict) else None
    return upstreams if isinstance(upstreams, dict) else {}


def _text(path: Path) -> str:
    try:
        content, _ = read_capped(path, MAX_BYTES)
    except FileNotFoundError as error:
        raise ManifestError([Problem(unreadable(error, path))]) from None
    return utf8(content, path.name)


def _clashes(data: Json, places: Mapping[KeyPath, Place]) -> Iterator[Problem]:
    """Upstreams whose names give the namespace of an earlier one: scripts could not tell them apart."""
    upstreams = data.get("upstreams") if isinstance(data, dict) else None
    first: dict[str, str] = {}
    for name in upstreams if isinstance(upstreams, dict) else ():
        namespace = namespace_of(name)
        if first.setdefault(namespace, name) != name:
            place, earlier = places["upstreams", name], places["upstreams", first[namespace]]
            message = (
                f"the upstreams {first[namespace]!r} ({earlier.line}:{earlier.column}) and {name!r} "
                f"both give the namespace {namespace}"
            )
            yield Problem(message, place.line, place.column, "Rename one of them.", f"upstreams.{name}")


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
        place = nearest(places, _KEYS)
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
    named = {
        "the audit log": portal.audit.to if portal.audit and portal.audit.to != "stderr" else None,
        "server.observed_folder": portal.server.observed_folder,
        "server.component": portal.server.component,
        "the portal's own code": str(Path(__file__).parent),
    }
    yield from ((what, folder / own) for what, own in named.items() if own is not None)


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
