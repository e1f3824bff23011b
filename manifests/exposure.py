"""Where scripts reach the portal's own files: through a workspace, or through an upstream that writes files."""

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final
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
    manifest: Manifest, upstream: str, writers: Sequence[ListedTool], environ: Mapping[str, str]
) -> Iterator[str]:
    """Warnings: through this stdio upstream scripts may write the portal's own files, or the program of an upstream.

    `writers` are its granted tools that do not declare `readOnlyHint`. What an argument, a variable, a root or `cwd`
    names counts. The working directory by default, which is the manifest's folder, counts only if one of `writers`
    takes a path: a server for the time has the same one.
    """
    spec, path = manifest.portal.upstreams.get(upstream), manifest.path
    if path is None or not isinstance(spec, StdioUpstream) or not writers:
        return
    cwd = manifest.folder / (spec.cwd or "")
    texts: dict[KeyPath, str] = {("args", n): each for n, each in enumerate(spec.args)}
    texts |= {("env", name): value for name, value in spec.env.items() if name not in NO_SECRETS}
    texts |= {("roots", n): each for n, each in enumerate(spec.roots)}
    places = {keys: [*_paths(text, cwd)] for keys, text in texts.items()}
    taking = [each for each in writers if any(map(_is_path, each.arguments or ()))]
    if spec.cwd or taking:
        places[("cwd",) if spec.cwd else ()] = [cwd]
    programs = [*_programs(manifest)]
    own_folders = [state_folder(environ), cache_folder(environ)]
    is_told = False
    for keys, roots in places.items():
        found = [what for root in roots for what in _own_files_in(root, manifest.portal, path, own_folders)]
        found += [what for root in roots if root.is_dir() for what, own in programs if _is_within(own, root)]
        if found and (keys or not is_told):
            is_told, able = True, writers if keys else taking
            tool = next((each.tool for each in able if _WRITING.search(each.tool)), able[0].tool)
            is_watched = manifest.portal.server.reload == "watch"
            yield (
                f"{manifest.where('upstreams', upstream, *keys)}: through {upstream}.{tool} a script may write "
                f"{', '.join(dict.fromkeys(found))}, and so run programs outside of the sandbox. Move {path.name} into "
                "a folder of its own, like ~/.config/mcp-code-portal, name a narrower one here, or deny the tools that "
                f"write{'. With reload: watch a change takes effect at once' if is_watched else ''}"
            )


def _paths(text: str, cwd: Path) -> Iterator[Path]:
    """The paths that an argument may name, relative to where the child runs."""
    after = text.partition("=")[2]
    short = text[2:] if re.match(r"-\w[/~.]", text) else ""
    for each in dict.fromkeys((text, after, short, *_BETWEEN.split(text))):
        if each and "://" not in each:
            yield cwd / os.path.expanduser(each)
    for uri in re.findall(r"file:[^\s\"',]*", text):
        yield cwd / unquote(urlsplit(uri).path)


def _programs(manifest: Manifest) -> Iterator[tuple[str, Path]]:
    """The programs of all upstreams, and the scripts that their arguments name."""
    for name, spec in manifest.portal.upstreams.items():
        if isinstance(spec, StdioUpstream):
            what = f"the program of {name}"
            command = spec.command if "/" in spec.command else shutil.which(spec.command) or ""
            if command:
                yield what, manifest.folder / command
            for each in (manifest.folder / (spec.cwd or "") / arg for arg in spec.args):
                if each.is_file() and (each.suffix in _PROGRAMS or os.access(each, os.X_OK)):
                    yield what, each


def _is_path(parameter: str) -> bool:
    """Whether a parameter is called like a place in the file system: path, repoPath, output_dir."""
    return any(
        map(_PATH_WORD.fullmatch, (each.lower() for each in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", parameter)))
    )
