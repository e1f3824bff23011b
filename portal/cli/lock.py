"""`mcp-code-portal lock`: accepts the definitions of tools as they are now, and shows what differs."""

from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path

from manifests.json_value import Json
from manifests.lock import Pin, lock_path
from manifests.manifest import Manifest
from portal.cli.terminal import Terminal
from portal.cli.upstream_wait import tried
from portal.composition import Portal, open_portal
from portal.library.plain_text import spelt_out
from portal.pinning.acceptance import accept, meant
from portal.pinning.differences import Difference, differences, hash_of
from portal.pinning.pins import pins_of
from portal.pinning.suspicions import Neighbours, suspicions

DIFFERENT = 1
"""The exit status of `lock --diff` when something differs."""

REFUSED = 2
"""That of `lock` when nothing was accepted of what was asked for."""


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
    odd = _suspicious(found, now)
    if not options.json:
        _show(found, odd, terminal)
    chosen = [] if options.diff else _accepted(path, manifest, found, options.accept, terminal)
    if options.json:
        terminal.json(_report(path, found, chosen, odd, silent))
    elif options.diff and found:
        terminal.line("all of this and nothing else:")
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
    await tried(portal.fleet, terminal)
    return {
        upstream.name: f"it is {upstream.state.status}. {upstream.state.detail}".strip()
        for upstream in portal.fleet
        if not upstream.state.is_well
    }


def _suspicious(found: Sequence[Difference], now: Sequence[Pin]) -> list[str]:
    differing = [difference.now for difference in found if difference.now is not None]
    return [str(suspicion) for suspicion in suspicions(differing, Neighbours.of(now))]


def _show(found: Sequence[Difference], odd: Sequence[str], terminal: Terminal) -> None:
    for difference in found:
        for line in difference.lines():
            terminal.line(line)
    for suspicion in odd:
        terminal.line(f"suspicious: {suspicion}", style="yellow")


def _accepted(
    path: Path,
    manifest: Manifest,
    found: Sequence[Difference],
    patterns: Sequence[str] | None,
    terminal: Terminal,
) -> list[Difference] | None:
    """The differences that are accepted in the lockfile now; None if nothing was written, and why is told."""
    chosen = _chosen(found, patterns, terminal)
    if chosen is None or not (chosen or manifest.lock is None):
        return chosen
    if accept(path, manifest.lock, chosen):
        return chosen
    terminal.error(
        f"{path.name} was written by somebody else meanwhile; nothing was accepted. Look again at what differs."
    )
    return None


def _chosen(
    found: Sequence[Difference], patterns: Sequence[str] | None, terminal: Terminal
) -> list[Difference] | None:
    """The differences to accept; None if a pattern means none, which is told."""
    if patterns is None:
        return list(found)
    by_pattern = {pattern: meant(found, pattern) for pattern in patterns}
    for pattern in (pattern for pattern, differing in by_pattern.items() if not differing):
        terminal.error(
            f"nothing that differs now is meant by {spelt_out(pattern)!r}; nothing was accepted. "
            "`lock --diff` shows what differs, and the hash of each."
        )
    if not all(by_pattern.values()):
        return None
    keys = {each.key for differing in by_pattern.values() for each in differing}
    return [each for each in found if each.key in keys]


def _report(
    path: Path,
    found: Sequence[Difference],
    accepted: Sequence[Difference] | None,
    odd: Sequence[str],
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
        "suspicious": list(odd),
        "unreachable": dict(silent),
        "accepted": [f"{each.pin.name}@{each.hash}" for each in accepted or ()],
    }
