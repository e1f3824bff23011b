"""`mcp-code-portal reload`: shows what changed in a manifest and its files, and lets exactly that take effect."""

import os
from argparse import Namespace
from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path
from typing import Final

import anyio

from manifests.loader import find_manifest, parse_manifest, read_files
from manifests.manifest import Manifest
from manifests.manifest_files import ManifestFiles, differing
from manifests.own_files import lock_path
from manifests.references import env_path, parsed_env, stand_in
from portal.accepted import Acceptance, portals_of
from portal.cli.terminal import Terminal

REFUSED: Final = 2
"""The exit status if nothing was accepted. 1: a running portal could not apply it, or did not say so in time."""

ANSWER_SECONDS: Final = 15.0
_POLL_SECONDS: Final = 0.2


async def command(manifest: Manifest, options: Namespace, terminal: Terminal) -> int:
    """Show the difference to the accepted files, ask, and accept the bytes that were shown."""
    path = find_manifest(options.config, os.environ)
    if path is None:
        terminal.error("there is no portal.yaml here: pass --config")
        return REFUSED
    acceptance, files = Acceptance(path), read_files(path, os.environ)
    parse_manifest(files, os.environ, stand_in)
    accepted = acceptance.files()
    if accepted is None:
        text = "nothing was accepted yet: the first portal accepts what it finds"
        terminal.note(f"{text}. One that cannot write its state folder reloads at SIGHUP")
        return 0
    for line in difference(accepted, files):
        terminal.line(line)
    if accepted.digest == files.digest:
        terminal.note("nothing has changed since it was accepted")
    elif not options.yes and not await terminal.is_confirmed("Accept it?"):
        return REFUSED
    acceptance.accept(files)
    return await _report(path, files.digest, terminal)


def difference(old: ManifestFiles, new: ManifestFiles) -> Iterator[str]:
    """The difference, line by line. Of portal.env only names, because its values are secrets."""
    env, lock = env_path(new.path).name, lock_path(new.path).name
    for name in differing(old.hashes, new.hashes):
        before, after = (files.contents.get(name) for files in (old, new))
        if name == env:
            values = [parsed_env(content, env) for content in (before, after)]
            names = {key for each in values for key in each if values[0].get(key) != values[1].get(key)}
            yield f"{name}: other values of {', '.join(sorted(names)) or 'nothing'}"
        elif name in (new.path.name, lock) or name.endswith(".py"):
            was, now = ((each or b"").decode("utf-8", "replace").splitlines() for each in (before, after))
            yield from unified_diff(was, now, f"{name} (accepted)", name, lineterm="")
        else:
            yield f"{name}: sha256 {old.hashes.get(name)} -> {new.hashes.get(name)}"


async def _report(path: Path, digest: str, terminal: Terminal) -> int:
    """Wait for the running portals, and print a line for each."""
    with anyio.move_on_after(ANSWER_SECONDS):
        while any(each.digest != digest for each in portals_of(path)):  # noqa: ASYNC110  # files tell nobody
            await anyio.sleep(_POLL_SECONDS)
    status = 0
    for each in portals_of(path):
        what = f"at {each.host}:{each.port}" if each.port else "over stdio"
        done = (
            f"runs on it; after a restart also {each.after_restart}" if each.after_restart else "runs on it"
        )
        if each.digest != digest or each.problem:
            status = 1
            done = f"goes on as before: {each.problem or 'it did not answer in time; its log says more'}"
        terminal.line(f"the portal {what} (process {each.pid}) {done}")
    if not portals_of(path):
        terminal.line("no portal of this manifest runs; the next one starts on it")
    return status
