"""Where scripts reach the portal's own files: through a workspace, or through an upstream that writes files."""

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import unquote, urlsplit

from manifests.decision import ListedTool
from manifests.errors import KeyPath, Place, Problem, problem_at
from manifests.manifest import Manifest
from manifests.own_files import cache_folder, lock_path, state_folder
from manifests.portal_manifest import PortalManifest, StdioUpstream
from manifests.references import NO_SECRETS, env_path


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
    root = path.absolute().parent / grant.workspace
    if found := _found(root, _own_files(portal, path), own_folders):
        keys = ("capabilities", "files", "workspace")
        hint = "Use a folder with nothing else in it, like `workspace: data`."
        message = f"the workspace contains {' and '.join(found)}, which scripts must not access"
        yield problem_at(places, keys, message, hint)


Around: TypeAlias = "set[tuple[int, int] | str]"
"""A file and everything that it is in."""


def _own_files(portal: PortalManifest, path: Path) -> list[tuple[str, Around]]:
    """What decides what scripts may do, or knows it, by its name for people."""
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
    return [(what, _around(folder / own)) for what, own in pairs if own is not None]


def _found(root: Path, files: Iterable[tuple[str, Around]], own_folders: Sequence[Path]) -> list[str]:
    """Which of the files are in this folder, or are it; also if it is in one of the portal's folders."""
    key, around = _key(root), _around(root)
    found = [what for what, places in files if key in places]
    if any(key in _around(own) or _key(own) in around for own in own_folders):
        found.append("the portal's own data")
    return [*dict.fromkeys(found)]


def _around(path: Path) -> Around:
    """The path and all that it is in, also by where it leads link by link: a script could replace such a link."""
    return {_key(each) for way in _ways(path) for each in (way, *way.parents)}


def _key(path: Path) -> tuple[int, int] | str:
    """A file system may have several names for one folder, like upper case or a bind mount, but one inode."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return os.path.normpath(path)
    return status.st_dev, status.st_ino


def _ways(path: Path) -> Iterator[Path]:
    """The path, and where it leads link by link."""
    yield Path(os.path.realpath(path))
    for _ in range(_MAX_LINKS):
        path = Path(os.path.normpath(path))
        yield path
        link = next(filter(os.path.islink, (*reversed(path.parents), path)), None)
        if link is None:
            return
        with suppress(OSError):  # it is gone meanwhile
            path = link.parent / os.readlink(link) / path.relative_to(link)


_MAX_LINKS: Final = 40
_BETWEEN: Final = re.compile(r"[=,:;|\"'\s{}\[\]()]+")
"""What may stand between the paths in one argument: --root=/a, /a:/b, JSON, a line for a shell."""

_PATH_WORD: Final = re.compile(
    r"paths?|files?|filename|filepath|dirs?|director(?:y|ies)|folders?|uris?|cwd|roots?|dest(?:ination)?|command|cmd"
)
_WRITING: Final = re.compile("write|edit|create|save|put|move|append|commit")
_PROGRAMS: Final = frozenset(
    (".py", ".js", ".mjs", ".cjs", ".ts", ".mts", ".sh", ".rb", ".php", ".jar", ".pl")
)


def writable_files(
    manifest: Manifest, writers: Mapping[str, Sequence[ListedTool]], environ: Mapping[str, str]
) -> Iterator[str]:
    """Warnings: through a stdio upstream scripts may write the portal's own files, or the program of an upstream.

    `writers` are the granted tools of each upstream that do not declare `readOnlyHint`. What an argument, a variable, a
    root or `cwd` names counts. The working directory by default, which is the manifest's folder, counts only if one of
    `writers` takes a path: a server for the time has the same one.
    """
    if manifest.path is None:
        return
    files, programs = _own_files(manifest.portal, manifest.path), [*_programs(manifest)]
    own_folders = [state_folder(environ), cache_folder(environ)]
    is_watched = manifest.portal.server.reload == "watch"
    for name, spec in manifest.portal.upstreams.items():
        tools = writers.get(name, ())
        if not tools or not isinstance(spec, StdioUpstream):
            continue
        found: dict[KeyPath, list[str]] = {}
        for keys, root in _roots(manifest, spec):
            here = _found(root, [*files, *(programs if os.path.isdir(root) else ())], own_folders)
            found[keys] = [*dict.fromkeys([*found.get(keys, ()), *here])]
        taking = [each for each in tools if any(map(_is_path, each.arguments or ()))]
        if not taking or any(what for keys, what in found.items() if keys):
            found.pop((), None)
        for keys, what in ((keys, what) for keys, what in found.items() if what):
            tool = next((each for each in taking or tools if _WRITING.search(each.tool)), tools[0]).tool
            where, now = manifest.where("upstreams", name, *keys), ", at once" if is_watched else ""
            yield (
                f"{where}: through {name}.{tool} a script may write {', '.join(what)}, and so run programs outside of "
                f"the sandbox{now}. Move the manifest into a folder of its own, like ~/.config/mcp-code-portal, name a "
                "narrower folder here, or deny what writes"
            )


def _roots(manifest: Manifest, spec: StdioUpstream) -> Iterator[tuple[KeyPath, Path]]:
    """The places that the manifest gives to an upstream, by the keys that do; () is the default of `cwd`."""
    cwd = manifest.folder / (spec.cwd or "")
    texts: dict[KeyPath, str] = {("args", n): each for n, each in enumerate(spec.args)}
    texts |= {("env", name): value for name, value in spec.env.items() if name not in NO_SECRETS}
    texts |= {("roots", n): each for n, each in enumerate(spec.roots)}
    yield from ((keys, path) for keys, text in texts.items() for path in _paths(text, cwd))
    yield ("cwd",) if spec.cwd else (), cwd


def _paths(text: str, cwd: Path) -> Iterator[Path]:
    """The paths that an argument may name, relative to where the child runs."""
    after = text.partition("=")[2]
    short = text[2:] if re.match(r"-\w[/~.]", text) else ""
    for each in dict.fromkeys((text, after, short, *_BETWEEN.split(text))):
        if each and "://" not in each:
            yield cwd / os.path.expanduser(each)
    for uri in re.findall(r"file:[^\s\"',]*", text):
        yield cwd / unquote(urlsplit(uri).path)


def _programs(manifest: Manifest) -> Iterator[tuple[str, Around]]:
    """The programs of all upstreams, and the scripts that their arguments name."""
    for name, spec in manifest.portal.upstreams.items():
        if isinstance(spec, StdioUpstream):
            what = f"the program of {name}"
            command = spec.command if "/" in spec.command else shutil.which(spec.command) or ""
            if command:
                yield what, _around(manifest.folder / command)
            for each in (manifest.folder / (spec.cwd or "") / arg for arg in spec.args):
                if os.path.isfile(each) and (each.suffix in _PROGRAMS or os.access(each, os.X_OK)):
                    yield what, _around(each)


def _is_path(parameter: str) -> bool:
    """Whether a parameter is called like a place in the file system: path, repoPath, output_dir."""
    return any(
        map(_PATH_WORD.fullmatch, (each.lower() for each in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", parameter)))
    )
