"""`mcp-code-portal lock`: accepts the definitions of tools as they are now, and shows what differs."""

from argparse import Namespace
from collections.abc import Sequence

from manifests.lock import Lock, lock_path, write_lock
from manifests.manifest import Manifest
from manifests.pin import Pin
from portal.cli.terminal import Terminal
from portal.cli.upstream_wait import tried
from portal.composition import Portal, open_portal
from portal.pinning.differences import Difference, differences, spelt_out
from portal.pinning.pins import pins_of
from portal.pinning.suspicions import distinctive_names, suspicions

DIFFERENT = 1
"""The exit status of `lock --diff` when something differs."""


async def command(manifest: Manifest, options: Namespace, terminal: Terminal) -> int:
    """Write the lockfile beside the manifest, or with --diff only say what it would change."""
    if manifest.path is None:
        terminal.error("there is no manifest to lock the tools of: write portal.yaml, or pass --config FILE")
        return 2
    path = lock_path(manifest.path)
    async with open_portal(manifest, terminal.note, runs_scripts=False) as portal:
        with terminal.waiting("starting the upstreams"):
            silent = await _listed(portal, terminal)
        now = [pin for upstream in portal.fleet if upstream.name not in silent for pin in pins_of(upstream)]
    for name, why in silent.items():
        terminal.error(f"upstream {name!r} cannot be asked, what was accepted of it stays: {why}")
    accepted = manifest.lock or Lock(path.name, {}, {})
    kept = [pin for pin in accepted.pins.values() if pin.upstream in silent]
    found = differences(accepted.pins, [*now, *kept])
    _show(found, now, terminal)
    if options.diff:
        return DIFFERENT if found or silent else 0
    chosen = _chosen(found, options.accept, terminal)
    if chosen is None:
        return 2
    if chosen or manifest.lock is None:
        write_lock(path, _accepted(accepted, chosen))
        terminal.line(f"{path.name}: {len(chosen)} accepted, {len(found) - len(chosen)} left as they were")
    else:
        terminal.line(f"{path.name}: nothing to accept")
    return 1 if silent else 0


async def _listed(portal: Portal, terminal: Terminal) -> dict[str, str]:
    """Wait for all upstreams; those that do not say what they offer, and why."""
    portal.fleet.want_all()
    await tried(portal.fleet, terminal)
    return {
        upstream.name: f"it is {upstream.state.status}. {upstream.state.detail}".strip()
        for upstream in portal.fleet
        if not upstream.state.is_well
    }


def _show(found: Sequence[Difference], now: Sequence[Pin], terminal: Terminal) -> None:
    for difference in found:
        for line in difference.lines():
            terminal.line(line)
    names = distinctive_names((pin.upstream, pin.tool) for pin in now if pin.tool is not None)
    differing = [difference.now for difference in found if difference.now is not None]
    for suspicion in suspicions(differing, names):
        terminal.line(f"suspicious: {suspicion}", style="yellow")


def _chosen(
    found: Sequence[Difference], patterns: Sequence[str] | None, terminal: Terminal
) -> list[Difference] | None:
    """The differences to accept; None if a pattern means none, which is told."""
    if patterns is None:
        return list(found)
    idle = [pattern for pattern in patterns if not any(each.is_meant(pattern) for each in found)]
    for pattern in idle:
        terminal.error(f"nothing that differs is meant by {spelt_out(pattern)!r}; nothing was accepted")
    return None if idle else [each for each in found if any(map(each.is_meant, patterns))]


def _accepted(lock: Lock, chosen: Sequence[Difference]) -> list[Pin]:
    pins = dict(lock.pins)
    for difference in chosen:
        key = difference.pin.upstream, difference.pin.tool
        pins.pop(key, None)
        if difference.now is not None:
            pins[key] = difference.now
    return list(pins.values())
