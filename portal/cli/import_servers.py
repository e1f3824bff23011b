"""`mcp-code-portal import`: takes over the servers that clients are configured with."""

import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from manifests.json_value import Json
from manifests.loader import DEFAULT_FILE, find_manifest
from manifests.manifest import Manifest
from portal.cli.client_installation import as_written, installed, undone
from portal.cli.import_facts import facts_of
from portal.cli.terminal import Terminal, counted
from portal.client_files.contents import Contents, read_contents
from portal.client_files.entries import IS_PORTAL
from portal.client_files.existing import CannotAddError
from portal.client_files.manifest_text import origin_text, path_text, upstream_lines
from portal.client_files.merging import Merged, Variable, merged
from portal.client_files.places import Place, places
from portal.client_files.target import Target
from portal.first_steps import SMALLEST_MANIFEST

PARTLY = 1
"""The exit status when a file could not be used, or no servers were found."""
REFUSED = 2
"""The exit status when a manifest is there and was not to be added to, or no client has the name that was asked for."""


async def command(manifest: Manifest, options: Namespace, terminal: Terminal) -> int:
    """Show what clients are configured with, and write it as portal.yaml."""
    return _command(options, terminal)


def _command(options: Namespace, terminal: Terminal) -> int:
    home, here = Path.home(), Path(options.project or Path.cwd()).absolute()
    known = list(places(sys.platform, os.environ, home, here))
    chosen = _chosen(known, options.client, terminal)
    changed = _named(chosen or known, options.undo or options.install or (), terminal)
    if chosen is None or changed is None:
        return REFUSED
    if options.undo:
        status, undoings = undone(changed, terminal)
        if options.json:
            terminal.json({"undone": undoings})
        return status
    target = Target.at((find_manifest(options.config, os.environ) or DEFAULT_FILE).absolute())
    contents = [read_contents(place, home, here, os.environ) for place in chosen]
    taken_over = merged(contents, target.existing, os.environ, target.kept)
    importing = _Import(home, contents, taken_over, target, options, terminal)
    return importing.run()


class _Import:
    def __init__(
        self,
        home: Path,
        contents: Sequence[Contents],
        taken_over: Merged,
        target: Target,
        options: Namespace,
        terminal: Terminal,
    ) -> None:
        self._home = home
        self._contents = contents
        self._merged = taken_over
        self._target = target
        self._options = options
        self._terminal = terminal
        self._new = [each for each in taken_over.taken if each.is_new]
        self._kept: list[str] = []
        self._is_written = False
        self._text = target.existing.text
        self._installed: list[Json] = []

    def run(self) -> int:
        if not self._options.json:
            self._show()
        status = self._write()
        if self._options.install and status == 0 and self._merged.taken:
            status = self._install()
        if self._options.json:
            self._terminal.json(self._facts())
        broken = any(each.problem for each in self._contents)
        return status or (PARTLY if broken or not self._merged.taken else 0)

    def _write(self) -> int:
        target, path = self._target, self._target.manifest.path
        if not self._new:
            if not self._merged.taken:
                self._terminal.error(*self._nothing())
                return 0
            self._terminal.note(f"{path.name} has all of them already")
            if self._options.save_secrets and not self._options.dry_run:
                self._save()
            return 0
        if target.is_there and not self._options.add:
            self._tell_lines("is there already, and was left as it is: --add adds them to it, or write")
            return REFUSED
        try:
            text = target.text(self._merged.taken, self._home)
        except CannotAddError as error:
            self._tell_lines(f"was left as it is, because {error}: write there")
            return REFUSED
        target.require_loading(text, self._merged.variables, os.environ)
        self._text = text
        if self._options.dry_run:
            self._terminal.note(
                f"nothing was written; {path.name} would get {counted(len(self._new), 'server')}"
            )
            return 0
        if self._options.save_secrets:
            self._save()
        target.write(text)
        self._is_written = True
        self._tell_written()
        return 0

    def _nothing(self) -> list[str]:
        """Why there is nothing to take over: after an installation the portal is all that is there."""
        portals = [
            each.place.name for each in self._contents if any(o.reason == IS_PORTAL for o in each.left_out)
        ]
        there = [name for name in self._options.install or () if name in portals]
        if there:
            undoing = " ".join(f"--undo {name}" for name in there)
            return [f"{', '.join(there)}: has the portal already; {undoing} takes it out again"]
        looked = [
            f"    {path_text(each.place.path, self._home)}" for each in self._contents if not each.is_there
        ]
        return [
            "no servers were found that could be taken over",
            *(["these files are not there:", *looked] if looked else []),
            *([] if self._target.is_there else [f"now: write portal.yaml yourself. {SMALLEST_MANIFEST}"]),
        ]

    def _install(self) -> int:
        """Put the portal into the files that were asked for, with the manifest as it is now, or would be."""
        wanted = [each for each in self._contents if each.place.name in self._options.install]
        is_saved = self._options.save_secrets
        saved = {
            each.name: each.value for each in self._merged.variables if each.value is not None and is_saved
        }
        now = as_written(self._target, self._text, saved)
        status, self._installed = installed(
            wanted, self._merged, now, self._terminal, is_dry=self._options.dry_run
        )
        return status

    def _tell_lines(self, why: str) -> None:
        """What nobody wrote for the operator, to write by hand."""
        self._terminal.error(f"{self._target.manifest.path.name} {why}")
        if not self._options.json:
            self._terminal.result("\n".join(["upstreams:", *upstream_lines(self._new, self._home)]))
        if self._options.save_secrets and any(each.value is not None for each in self._merged.variables):
            env = self._target.env.path.name
            self._terminal.note(
                f"{env} was left as it is, too: --save-secrets again, once the servers are there"
            )

    def _save(self) -> None:
        path = self._target.env.path
        self._kept = self._target.keep(self._merged.variables)
        if self._kept:
            self._terminal.note(
                f"{path} holds {counted(len(self._kept), 'secret')} more, for its owner alone"
            )
            if any((folder / ".git").exists() for folder in path.parents):
                self._terminal.note(f"add {path.name} to .gitignore")

    def _tell_written(self) -> None:
        path, env, terminal = self._target.manifest.path, self._target.env.path.name, self._terminal
        terminal.note(
            f"{path} has {counted(len(self._new), 'server')} more"
            if self._target.is_there
            else f"{path} is written"
        )
        known = {*os.environ, *self._target.kept, *self._kept}
        unset = [each for each in self._merged.variables if each.name not in known]
        if unset:
            terminal.note(f"set {', '.join(each.name for each in unset)}, in the environment or in {env}")
        if any(each.value is not None for each in unset):
            terminal.note(f"--save-secrets writes to {env} what the files hold")
        strangers = [each.name for each in self._new if any(o.place.project for o in each.origins)]
        if strangers:
            terminal.note(
                f"{', '.join(strangers)}: from files of the project; look at them before check starts them"
            )
        terminal.note("now: mcp-code-portal check")

    def _show(self) -> None:
        terminal = self._terminal
        for each in self._contents:
            if each.problem is not None:
                terminal.error(str(each.problem))
            elif each.is_there:
                left = f", {len(each.left_out)} left out" if each.left_out else ""
                path = path_text(each.place.path, self._home)
                terminal.line(f"{each.place.name:22} {path}: {counted(len(each.servers), 'server')}{left}")
        for taken in self._merged.taken:
            terminal.line(f"{'+' if taken.is_new else '='} {taken.name}: {taken.server.told()}")
            terminal.line(
                "    from " + "; ".join(origin_text(origin, self._home) for origin in taken.origins)
            )
            for note in taken.notes:
                terminal.line(f"    {note}")
        for out in self._merged.left_out:
            terminal.line(f"- {out.origin.name} ({origin_text(out.origin, self._home)}): {out.reason}")
        for variable in self._merged.variables:
            terminal.line(f"${{{variable.name}}} for {', '.join(variable.used_by)}{self._state(variable)}")

    def _state(self, variable: Variable) -> str:
        if variable.value is not None:
            return ", a secret of that file"
        if variable.name in os.environ or variable.name in self._target.kept:
            return ""
        return ", which VS Code asks for" if variable.input_id is not None else ", not set here"

    def _facts(self) -> Json:
        manifest = self._target.manifest.path
        return {
            **facts_of(self._contents, self._merged, {*os.environ, *self._target.kept, *self._kept}),
            "manifest": {
                "path": str(manifest),
                "was_there": self._target.is_there,
                "is_written": self._is_written,
            },
            "saved": self._kept,
            "installed": self._installed,
        }


def _chosen(known: Sequence[Place], names: Sequence[str], terminal: Terminal) -> list[Place] | None:
    """The files of the clients that are asked for, of all if none is; None if a name means nothing, which is told."""
    meant = {name: [p for p in known if name in (p.name, p.client.name)] for name in names}
    for name in (name for name, found in meant.items() if not found):
        there = ", ".join(place.name for place in known)
        terminal.error(f"no client is called {name!r}; there are: {there}")
    if not all(meant.values()):
        return None
    return [p for p in known if not names or any(p in found for found in meant.values())]


def _named(known: Sequence[Place], names: Sequence[str], terminal: Terminal) -> list[Place] | None:
    """The files with just these names; None if there is no such file, which is told."""
    unknown = [name for name in names if name not in {place.name for place in known}]
    for name in unknown:
        terminal.error(f"there is no {name!r} among {', '.join(place.name for place in known)}")
    return None if unknown else [place for place in known if place.name in names]
