"""Finds ways for scripts to the portal's own files: a workspace, or an upstream that writes files."""

import os
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import unquote

from manifests.decision import ListedTool
from manifests.errors import KeyPath, Place, Problem, problem_at
from manifests.manifest import Manifest
from manifests.own_files import ManifestFiles, cache_folder, lock_path, state_folder
from manifests.portal_manifest import PortalManifest, StdioUpstream
from manifests.references import env_path


def exposures(
    portal: PortalManifest, files: ManifestFiles, own_folders: Sequence[Path], places: Mapping[KeyPath, Place]
) -> Iterator[Problem]:
    """Report a workspace that exposes the portal's settings, secrets, logs or code to scripts.

    A script that can write them decides what scripts may do; one that can read them knows the secrets. `own_folders`
    hold the portal's own data.
    """
    grant = portal.capabilities.files
    if grant is None or grant.share in ("session", "run"):  # those folders are new and empty
        return
    root = files.path.absolute().parent / grant.workspace
    if found := _found(root, _own_files(portal, files.path, files.hashes), own_folders):
        keys = ("capabilities", "files", "workspace")
        hint = "Use a folder with nothing else in it, like `workspace: data`."
        message = f"the workspace contains {' and '.join(found)}, which scripts must not access"
        yield problem_at(places, keys, message, hint)


Around: TypeAlias = "set[tuple[int, int] | str]"
"""A file and all folders that contain it."""


def _own_files(portal: PortalManifest, path: Path, files: Collection[str]) -> list[tuple[str, Around]]:
    """The files that decide what scripts may do, or hold secrets, by their names for people."""
    folder = path.absolute().parent
    named = {
        **{each.name: each.name for each in (path, env_path(path), lock_path(path))},
        "the audit log": portal.audit.to if portal.audit and portal.audit.is_file else None,
        "server.observed_folder": portal.server.observed_folder,
        "server.component": portal.server.component,
        "runs.store": None if portal.runs.is_shared else portal.runs.store,
        "the portal's own code": str(Path(__file__).parent),
    }
    modules = [
        (f"the middleware {each}", each.partition(":")[0].replace(".", "/")) for each in portal.middleware
    ]
    pairs = [*named.items(), *((what, f"{own}{end}") for what, own in modules for end in ("", ".py"))]
    pairs += [(each, each) for each in sorted({*files} - {own for _, own in pairs})]  # programs, packages
    return [(what, _around(folder / own)) for what, own in pairs if own is not None]


def _found(root: Path, files: Iterable[tuple[str, Around]], own_folders: Sequence[Path]) -> list[str]:
    """The files that are this folder or in it. The portal's own data counts also if the folder is in that."""
    if "\0" in str(root):  # no file has such a name
        return []
    key, around = _key(root), _around(root)
    found = [what for what, places in files if key in places]
    if any(key in _around(own) or _key(own) in around for own in own_folders):
        found.append("the portal's own data")
    return [*dict.fromkeys(found)]


def _around(path: Path) -> Around:
    """The path and all folders that contain it or the target of a link on the way: scripts could replace the link."""
    seen: set[Path] = set()
    ways = [path]
    while ways and len(seen) < _MAX_WAYS:
        way = ways.pop()
        seen.add(way)
        with suppress(OSError):  # it was removed since
            targets = [way.parent / os.readlink(way)] if os.path.islink(way) else []
            ways += {way.parent, *targets} - seen
    return {_key(each) for each in seen}


def _key(path: Path) -> tuple[int, int] | str:
    """A file system may have several names for one folder, like upper case or a bind mount, but one inode."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return os.path.normpath(path)
    return status.st_dev, status.st_ino


_MAX_WAYS: Final = 1000
"""At most this many steps for one path: links may lead in circles."""

_BETWEEN: Final = re.compile(r"[=,:;|\"'\s{}\[\]()]+")
"""Separators of paths in one argument: --root=/a, /a:/b, JSON, a shell command."""

_URI_PATH: Final = re.compile(r"""(?i:file):(?://[^/\s"']*)?(/[^\s"'|,]*)""")
"""file:///a, file://localhost/a, file:/a, also in JSON."""

_PATH_WORD: Final = re.compile(
    r"paths?|files?|filename|filepath|dirs?|director(?:y|ies)|folders?|uris?|cwd|roots?|dest(?:ination)?|command|cmd"
)


def writable_files(
    manifest: Manifest, writers: Mapping[str, Sequence[ListedTool]], environ: Mapping[str, str]
) -> Iterator[tuple[str, bool]]:
    """Warn about stdio upstreams that let scripts write the portal's files, and say if the manifest names the place.

    `writers` are the granted tools of each upstream that do not declare `readOnlyHint`. An argument, a root or `cwd`
    names a place. The default working directory, the manifest's folder, counts only if one of `writers` takes a path:
    most servers never look at it.
    """
    if manifest.path is None:
        return
    files = _own_files(manifest.portal, manifest.path, manifest.hashes)
    own_folders = [state_folder(environ), cache_folder(environ)]
    now = ", at once" if manifest.portal.server.reload == "watch" else ""
    for name, spec in manifest.portal.upstreams.items():
        tools = writers.get(name, ())
        if not tools or not isinstance(spec, StdioUpstream):
            continue
        cwd = manifest.folder / (spec.cwd or "")
        roots = [path for text in (*spec.args, *spec.roots) for path in _paths(text, cwd)]
        roots += [cwd] if spec.cwd else []
        named = dict.fromkeys(what for root in roots for what in _found(root, files, own_folders))
        names = (each for tool in tools for each in tool.arguments or ())  # path, repoPath, output_dir
        words = (word.lower() for name in names for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name))
        takes_paths = any(map(_PATH_WORD.fullmatch, words))
        if found := named or (takes_paths and dict.fromkeys(_found(cwd, files, own_folders))):
            text = (
                f"{manifest.where('upstreams', name)}: through {name} a script may write {', '.join(found)}, and so "
                f"run programs outside of the sandbox{now}. Move the manifest into a folder of its own, like "
                f"~/.config/mcp-code-portal, give {name} a narrower folder, or deny what writes"
            )
            yield text, bool(named)


def _paths(text: str, cwd: Path) -> Iterator[Path]:
    """The paths that an argument may name, relative to where the child runs."""
    words = {text, text.partition("=")[2], *map(unquote, _URI_PATH.findall(text)), *_BETWEEN.split(text)}
    after_flags = {each[2:] for each in words if re.match(r"-\w[/~.]", each)}
    for each in words | after_flags:
        if each:
            yield cwd / os.path.expanduser(each)


def command_files(command: str, folder: Path) -> Iterator[str]:
    """The files in or below the folder that the words of a `${command:...}` name, relative to it.

    Shell expansions and Python modules do not count.
    """
    real, folder = os.path.realpath(folder), folder.absolute()
    with suppress(ValueError):  # it has no words, or a NUL: then it cannot run
        paths = [path for word in shlex.split(command) for path in _paths(word, folder)]
        names = [os.path.relpath(path, folder) for path in paths]
        names += [os.path.relpath(os.path.realpath(path), real) for path in paths]
        # os.path.isfile, since a word may be too long for a name.
        yield from (
            each for each in dict.fromkeys(names) if each[:3] != "../" and os.path.isfile(folder / each)
        )
