"""`mcp-code-portal reload`: shows the changes of a manifest and its files, and accepts exactly those."""

import os
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import suppress
from difflib import unified_diff
from pathlib import Path
from typing import Final

import anyio

from manifests.errors import ManifestError
from manifests.loader import check_written, find_manifest, overridden, parse_manifest, read_files, read_yaml
from manifests.manifest import Manifest
from manifests.own_files import ManifestFiles, differing, lock_path, utf8
from manifests.references import env_path, open_variables, parsed_env, stand_in
from portal.app.accepted import Acceptance, portals_of
from portal.app.reload import without_fixed
from portal.cli.terminal import Terminal

REFUSED: Final = 2
"""The exit status if nothing was accepted. 1: a running portal did not switch to it in time."""

ANSWER_SECONDS: Final = 15.0
_POLL_SECONDS: Final = 0.2


async def command(manifest: Manifest, options: Namespace, terminal: Terminal) -> int:
    """Show the difference to the accepted files, ask, and accept the bytes that were shown."""
    path = find_manifest(options.config, os.environ)
    if path is None:
        terminal.error("there is no portal.yaml here: pass --config")
        return REFUSED
    acceptance, files = Acceptance(path), read_files(path, os.environ)
    check_written(files, os.environ)
    accepted = acceptance.files() or ManifestFiles(path, {path.name: b""})
    for line in difference(accepted, files):
        terminal.line(line)
    with suppress(ManifestError):  # an invalid combination: the portal's log says why
        both = (parse_manifest(each, os.environ, stand_in) for each in (accepted, files))
        if (keys := without_fixed(*map(acceptance.with_copies, both))[1]) and portals_of(path):
            terminal.note(f"takes effect after a restart: {', '.join(keys)}")
    if names := overridden(files, os.environ):
        terminal.note(f"the environment wins over portal.env: another {names} here, and maybe in portals")
    if accepted.hashes == files.hashes:
        terminal.note("nothing has changed since it was accepted")
    elif not options.yes and not await terminal.is_confirmed("Accept it?"):
        return REFUSED
    acceptance.accept(files)
    acceptance.release()
    return await _report(path, files.hashes, terminal)


def difference(old: ManifestFiles, new: ManifestFiles) -> Iterator[str]:
    """The difference, line by line. Values in portal.env are shown only if they are settings or start something."""
    env, lock = env_path(new.path).name, lock_path(new.path).name
    for name in differing(old.hashes, new.hashes):
        before, after = (files.contents.get(name) for files in (old, new))
        if name == env:
            values = [parsed_env(content, env) for content in (before, after)]
            names = {key for each in values for key in each if values[0].get(key) != values[1].get(key)}
            is_open = open_variables(read_yaml(utf8(new.contents[new.path.name], new.path.name)).data)
            texts = [f"{each}={values[1].get(each)!r}" if each in is_open else each for each in sorted(names)]
            yield f"{name}: other values of {', '.join(texts) or 'nothing'}"
            continue
        lines: list[str] = []
        if name in (new.path.name, lock) or name.endswith((".py", ".sh")) or (after or b"").startswith(b"#!"):
            # Lossless, so that no byte differs unseen. str.splitlines() splits at more characters than Python or YAML.
            was, now = (
                (each or b"").decode("utf-8", "surrogateescape").split("\n") for each in (before, after)
            )
            lines = [*unified_diff(was, now, f"{name} (accepted)", name, lineterm="")]
        yield from lines or [f"{name}: sha256 {old.hashes.get(name)} -> {new.hashes.get(name)}"]


async def _report(path: Path, hashes: Mapping[str, str], terminal: Terminal) -> int:
    """Wait for the running portals, and print a line for each."""
    contents = {*hashes.values()}  # hashes only, because the files have other names by a link
    with anyio.move_on_after(ANSWER_SECONDS):
        while any({*each.hashes.values()} != contents for each in portals_of(path)):  # noqa: ASYNC110  # files send no events
            await anyio.sleep(_POLL_SECONDS)
    status, portals = 0, portals_of(path)
    for each in portals:
        what = f"at {each.host}:{each.port}" if each.port else "over stdio"
        done = "runs on it" if {*each.hashes.values()} == contents else "goes on as before: its log says why"
        terminal.line(f"the portal {what} (process {each.pid}) {done}")
        status |= {*each.hashes.values()} != contents
    if not portals:
        terminal.line("no portal of this manifest runs; the next one starts on it")
    return status
