"""`mcp-code-portal lock`: accepts the definitions of tools as they are now, and shows what differs."""

from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from manifests.json_value import Json
from manifests.lock import lock_path
from manifests.manifest import Manifest
from manifests.tool_rules import Hints
from portal.cli.check import declared
from portal.cli.terminal import Terminal, upstreams_tried
from portal.composition import Portal, open_portal
from portal.library.plain_text import escaped, first_sentence
from portal.pinning.differences import Difference, accept, differences, hash_of, meant
from portal.pinning.pins import pins_of
from portal.pinning.suspicions import Suspicion, suspicions

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
    path = lock_path(manifest.path)
    async with open_portal(manifest, terminal.note, runs_scripts=False) as portal:
        with terminal.waiting("starting the upstreams"):
            silent = await _listed(portal, terminal)
        now = [pin for upstream in portal.fleet if upstream.name not in silent for pin in pins_of(upstream)]
    for name, why in silent.items():
        terminal.error(f"upstream {name!r} cannot be asked, what was accepted of it stays: {why}")
    before = {} if manifest.lock is None else manifest.lock.pins
    found = differences(before, [*now, *(pin for pin in before.values() if pin.upstream in silent)])
    odd = [*suspicions([each.now for each in found if each.now is not None], now)]
    if not options.json:
        _show(found, odd, terminal, is_whole=options.verbose)
    chosen = [] if options.diff else _accepted(path, manifest, found, options.accept, terminal)
    if options.json:
        terminal.json(_report(path, found, chosen, odd, silent))
    elif options.diff and found:
        terminal.line("to accept all of this and nothing else:")
        terminal.line(f"    mcp-code-portal lock --accept '*@{hash_of(found)}'")
    elif chosen is not None and not options.diff:
        done = f"{len(chosen)} accepted, {len(found) - len(chosen)} left as they were"
        terminal.line(f"{path.name}: {done if found or manifest.lock is None else 'nothing to accept'}")
    if chosen is None:
        return REFUSED
    return DIFFERENT if silent or (options.diff and found) else 0


async def _listed(portal: Portal, terminal: Terminal) -> dict[str, str]:
    """Wait for all upstreams; those that do not say what they offer, and why."""
    portal.fleet.want_all()
    await upstreams_tried(portal.fleet, terminal)
    return {
        upstream.name: f"it is {upstream.state}" for upstream in portal.fleet if not upstream.state.is_well
    }


def _show(
    found: Sequence[Difference], odd: Sequence[Suspicion], terminal: Terminal, *, is_whole: bool
) -> None:
    """A table, tool by tool; of those that changed each place, and of all of them if the whole is asked for."""
    if not found:
        return
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
        what = "instructions of " if each.pin.tool is None else ""
        terminal.line(f"{each.kind:<8}{what}{escaped(each.pin.name)}@{each.hash}")
        for place in each.places():
            terminal.line(f"    {place}")
    if len(shown) < len(found):
        terminal.line("the whole definitions: lock --diff --verbose")


def _accepted(
    path: Path,
    manifest: Manifest,
    found: Sequence[Difference],
    patterns: Sequence[str] | None,
    terminal: Terminal,
) -> list[Difference] | None:
    """The differences that are accepted in the lockfile now; None if nothing was written, and why is told."""
    chosen = list(found)
    if patterns is not None:
        by_pattern = {pattern: meant(found, pattern) for pattern in patterns}
        for pattern in (pattern for pattern, differing in by_pattern.items() if not differing):
            terminal.error(
                f"nothing that differs now is meant by {escaped(pattern)!r}; nothing was accepted. "
                "`lock --diff --verbose` shows what differs, and the hash of each."
            )
        if not all(by_pattern.values()):
            return None
        keys = {each.key for differing in by_pattern.values() for each in differing}
        chosen = [each for each in found if each.key in keys]
    if not chosen and manifest.lock is not None:
        return chosen
    if accept(path, manifest.lock, chosen):
        return chosen
    terminal.error(
        f"{path.name} was written by somebody else meanwhile; nothing was accepted. Look again at what differs."
    )
    return None


def _report(
    path: Path,
    found: Sequence[Difference],
    accepted: Sequence[Difference] | None,
    odd: Sequence[Suspicion],
    silent: Mapping[str, str],
) -> Json:
    return {
        "file": path.name,
        "differences": [
            {
                "kind": each.kind,
                "upstream": each.pin.upstream,
                "tool": each.pin.tool,
                "hash": each.hash,
                "places": list(each.places()),
            }
            for each in found
        ],
        "hash": hash_of(found),
        "suspicious": [*map(str, odd)],
        "unreachable": dict(silent),
        "accepted": [f"{each.pin.name}@{each.hash}" for each in accepted or ()],
    }
