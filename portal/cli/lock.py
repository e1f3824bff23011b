"""`mcp-code-portal lock`: accepts the current tool definitions, and shows differences."""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from manifests.grants import Hints
from manifests.manifest import Manifest
from manifests.own_files import lock_path
from portal.app.accepted import portals_of, reload_hint
from portal.base.plain_text import first_sentence
from portal.cli.terminal import Terminal, declared, upstreams_tried
from portal.library.pinning import (
    Difference,
    Suspicion,
    accept,
    differences,
    hash_of,
    matching,
    pins_of,
    suspicions,
)

DIFFERENT: Final = 1
"""The exit status of `lock --diff` if something differs."""

REFUSED: Final = 2
"""The exit status of `lock` if nothing was accepted."""

_DESCRIPTION_CHARACTERS: Final = 60
"""Characters shown of a tool's description."""


async def command(manifest: Manifest, options: Namespace, terminal: Terminal) -> int:
    """Write the lockfile next to the manifest, or with --diff only show the differences."""
    if manifest.path is None:
        terminal.error("`lock` needs a manifest: write portal.yaml, or pass --config FILE")
        return REFUSED
    path, before = lock_path(manifest.path), {} if manifest.lock is None else manifest.lock.pins
    # Imported here, because the SDK behind it takes half a second.
    from portal.app.composition import open_portal

    async with open_portal(manifest, terminal.note, runs="none") as portal:
        portal.fleet.want_all()
        await upstreams_tried(portal.fleet, terminal)
        silent = {each.name: str(each.state) for each in portal.fleet if not each.state.is_well}
        now = [pin for upstream in portal.fleet if upstream.name not in silent for pin in pins_of(upstream)]
    for name, state in silent.items():
        terminal.error(f"upstream {name!r} is {state}. Its accepted definitions stay")
    found = differences(before, [*now, *(pin for pin in before.values() if pin.upstream in silent)])
    suspicious = [*suspicions([each.now for each in found if each.now is not None])]
    if found and not options.json:
        _show(found, suspicious, terminal, is_whole=options.verbose)
    chosen = [] if options.diff else _accepted(manifest, manifest.path, found, options.accept, terminal)
    if options.json:
        rows = [
            {"kind": each.kind, "upstream": each.pin.upstream, "tool": each.pin.tool, "hash": each.hash}
            | {"changes": [*each.changes()]}
            for each in found
        ]
        report = {"file": path.name, "differences": rows, "hash": hash_of(found)}
        accepted = [f"{each.pin.name}@{each.hash}" for each in chosen or ()]
        terminal.json(
            {**report, "suspicious": [*map(str, suspicious)], "unreachable": silent, "accepted": accepted}
        )
    elif options.diff and found and (options.verbose or all(each.kind == "changed" for each in found)):
        terminal.line("to accept exactly this:")
        terminal.line(f"    mcp-code-portal lock --accept '*@{hash_of(found)}'")
    elif options.diff and found:  # definitions steer models, so none is offered for acceptance unseen
        terminal.line("`lock --diff --verbose` shows whole definitions, and how to accept exactly these")
    elif chosen is not None and not options.diff:
        done = f"{len(chosen)} accepted, {len(found) - len(chosen)} unchanged"
        terminal.line(f"{path.name}: {done if found or manifest.lock is None else 'nothing to accept'}")
    if chosen and portals_of(manifest.path):
        terminal.note(f"a portal that runs does not use this yet; {reload_hint(manifest.path)}")
    if chosen is None:
        return REFUSED
    return DIFFERENT if silent or (options.diff and found) else 0


def _show(
    found: Sequence[Difference], suspicious: Sequence[Suspicion], terminal: Terminal, *, is_whole: bool
) -> None:
    """Print a table of the tools that differ, then the changes of each; with `is_whole` the whole definitions."""
    suspicious_names = {each.name for each in suspicious}
    terminal.table(
        ("", "tool", "declares", "suspicious", "description"),
        [
            (
                each.kind,
                each.pin.name if each.pin.tool else f"{each.pin.name} (instructions)",
                declared(Hints.of(each.pin.definition.get("annotations") or {})) if each.pin.tool else "",
                "yes" if each.pin.name in suspicious_names else "",
                first_sentence(each.pin.description, _DESCRIPTION_CHARACTERS),
            )
            for each in found
        ],
    )
    for suspicion in suspicious:
        terminal.line(f"suspicious: {suspicion}", style="yellow")
    shown = [each for each in found if is_whole or each.kind == "changed"]
    for each in shown:
        terminal.line(f"{each.kind:<8}{each.pin.name}@{each.hash}")
        for line in each.definition() if is_whole else each.changes():
            terminal.line(f"    {line}")


def _accepted(
    manifest: Manifest,
    file: Path,
    found: Sequence[Difference],
    patterns: Sequence[str] | None,
    terminal: Terminal,
) -> Sequence[Difference] | None:
    """Accept differences, beside the manifest's `file`, and return them. None if nothing was written; the reason is
    printed.
    """
    chosen, lock, path = found, manifest.lock, lock_path(file)
    if patterns is not None:
        by_pattern = {pattern: matching(found, pattern) for pattern in patterns}
        for pattern in (pattern for pattern, differing in by_pattern.items() if not differing):
            terminal.error(
                f"{pattern!r} matches no difference; nothing was accepted. "
                "`lock --diff --verbose` shows all differences with their hashes."
            )
        if not all(by_pattern.values()):
            return None
        keys = {each.key for differing in by_pattern.values() for each in differing}
        chosen = [each for each in found if each.key in keys]
    if (not chosen and lock is not None) or accept(path, lock, chosen):
        return chosen
    if path.name in manifest.waiting:
        terminal.error(f"a change of {path.name} waits, so nothing more was accepted; {reload_hint(file)}")
    else:
        terminal.error(f"{path.name} was changed by another process; nothing was accepted. Run lock again")
    return None
