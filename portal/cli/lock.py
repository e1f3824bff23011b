"""`mcp-code-portal lock`: accepts the definitions of tools as they are now, and shows what differs."""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from manifests.grants import Hints
from manifests.manifest import Manifest
from manifests.own_files import Lock, lock_path
from portal.cli.check import declared
from portal.cli.terminal import Terminal, upstreams_tried
from portal.composition import open_portal
from portal.library.pinning import (
    Difference,
    Suspicion,
    accept,
    differences,
    hash_of,
    meant,
    pins_of,
    suspicions,
)
from portal.library.plain_text import first_sentence

DIFFERENT: Final = 1
"""The exit status of `lock --diff` when something differs."""

REFUSED: Final = 2
"""That of `lock` when nothing was accepted of what was asked for."""

_SAID: Final = 60
"""Characters told of a tool's description."""


async def command(manifest: Manifest, options: Namespace, terminal: Terminal) -> int:
    """Write the lockfile beside the manifest, or with --diff only say what it would change."""
    if manifest.path is None:
        terminal.error("there is no manifest to lock the tools of: write portal.yaml, or pass --config FILE")
        return REFUSED
    path, before = lock_path(manifest.path), {} if manifest.lock is None else manifest.lock.pins
    async with open_portal(manifest, terminal.note, runs_scripts=False) as portal:
        portal.fleet.want_all()
        await upstreams_tried(portal.fleet, terminal)
        silent = {each.name: str(each.state) for each in portal.fleet if not each.state.is_well}
        now = [pin for upstream in portal.fleet if upstream.name not in silent for pin in pins_of(upstream)]
    for name, state in silent.items():
        terminal.error(f"upstream {name!r} is {state}. What was accepted of it stays")
    found = differences(before, [*now, *(pin for pin in before.values() if pin.upstream in silent)])
    odd = [*suspicions([each.now for each in found if each.now is not None])]
    if found and not options.json:
        _show(found, odd, terminal, is_whole=options.verbose)
    chosen = [] if options.diff else _accepted(path, manifest.lock, found, options.accept, terminal)
    if options.json:
        told = [
            {"kind": each.kind, "upstream": each.pin.upstream, "tool": each.pin.tool, "hash": each.hash}
            | {"changes": [*each.changes()]}
            for each in found
        ]
        report = {"file": path.name, "differences": told, "hash": hash_of(found)}
        accepted = [f"{each.pin.name}@{each.hash}" for each in chosen or ()]
        terminal.json({**report, "suspicious": [*map(str, odd)], "unreachable": silent, "accepted": accepted})
    elif options.diff and _is_shown(found, is_whole=options.verbose):
        terminal.line("to accept all of this and nothing else:")
        terminal.line(f"    mcp-code-portal lock --accept '*@{hash_of(found)}'")
    elif chosen is not None and not options.diff:
        done = f"{len(chosen)} accepted, {len(found) - len(chosen)} left as they were"
        terminal.line(f"{path.name}: {done if found or manifest.lock is None else 'nothing to accept'}")
    if chosen is None:
        return REFUSED
    return DIFFERENT if silent or (options.diff and found) else 0


def _show(
    found: Sequence[Difference], odd: Sequence[Suspicion], terminal: Terminal, *, is_whole: bool
) -> None:
    """A table of the tools that differ, then what changed in each; with `is_whole` their whole definitions."""
    odd_names = {each.name for each in odd}
    terminal.table(
        ("", "tool", "declares", "suspicious", "says"),
        [
            (
                each.kind,
                each.pin.name if each.pin.tool else f"{each.pin.name} (instructions)",
                declared(Hints.of(each.pin.definition.get("annotations") or {})) if each.pin.tool else "",
                "yes" if each.pin.name in odd_names else "",
                first_sentence(each.pin.description, _SAID),
            )
            for each in found
        ],
    )
    for suspicion in odd:
        terminal.line(f"suspicious: {suspicion}", style="yellow")
    shown = [each for each in found if is_whole or each.kind == "changed"]
    for each in shown:
        terminal.line(f"{each.kind:<8}{each.pin.name}@{each.hash}")
        for line in each.definition() if is_whole else each.changes():
            terminal.line(f"    {line}")
    if not _is_shown(found, is_whole=is_whole):
        terminal.line("the whole definitions, and the command that accepts just these: lock --diff --verbose")


def _is_shown(found: Sequence[Difference], *, is_whole: bool) -> bool:
    """Whether all that would be accepted was shown: a tool's text steers the models that read it."""
    return bool(found) and (is_whole or all(each.kind == "changed" for each in found))


def _accepted(
    path: Path,
    lock: Lock | None,
    found: Sequence[Difference],
    patterns: Sequence[str] | None,
    terminal: Terminal,
) -> Sequence[Difference] | None:
    """The differences that are accepted in the lockfile now; None if nothing was written, and why is told."""
    chosen = found
    if patterns is not None:
        by_pattern = {pattern: meant(found, pattern) for pattern in patterns}
        for pattern in (pattern for pattern, differing in by_pattern.items() if not differing):
            terminal.error(
                f"{pattern!r} matches nothing that differs; nothing was accepted. "
                "`lock --diff --verbose` shows what differs, and the hash of each."
            )
        if not all(by_pattern.values()):
            return None
        keys = {each.key for differing in by_pattern.values() for each in differing}
        chosen = [each for each in found if each.key in keys]
    if (not chosen and lock is not None) or accept(path, lock, chosen):
        return chosen
    terminal.error(
        f"{path.name} was written by somebody else meanwhile; nothing was accepted. Run lock again"
    )
    return None
