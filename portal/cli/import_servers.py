"""`mcp-code-portal import`: imports the servers that clients are configured with."""

import os
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from manifests.errors import ManifestError
from manifests.json_value import Json
from manifests.loader import DEFAULT_FILE, find_manifest
from manifests.manifest import Manifest
from manifests.references import required
from portal.base.errors import SMALLEST_MANIFEST, PortalError
from portal.base.plain_text import shown_path
from portal.cli.importing.clients import ClientFile, ClientFileError, client_files
from portal.cli.importing.installation import install, original, undo
from portal.cli.importing.merging import (
    INHERITED,
    CannotAddError,
    ImportedServer,
    Merging,
    Target,
    require_loading,
)
from portal.cli.importing.servers import Origin, Server, SkippedServer, servers_of
from portal.cli.terminal import Terminal, counted

PARTLY: Final = 1
"""The exit status if a file could not be used, or no servers were found."""

REFUSED: Final = 2
"""The exit status if there is a manifest and no --add, a client's name is unknown, or options exclude each other."""


async def command(manifest: Manifest, options: Namespace, terminal: Terminal) -> int:
    """Show the servers of clients and write them to portal.yaml."""
    project = None if options.project is None else options.project.absolute()
    known = client_files(sys.platform, os.environ, Path.home(), project)
    names = {name for file in known for name in (file.name, file.client.name)}
    for name in (*options.client, *options.install, *options.undo):
        if name not in names:
            hint = "; add --project DIR for files of a project" if project is None else ""
            names_text = ", ".join(file.name for file in known)
            terminal.error(f"no client is called {name!r}; clients: {names_text}{hint}")
            return REFUSED
    if options.undo and (options.dry_run or options.install):
        terminal.error("--undo goes with neither --dry-run nor --install; run it by itself")
        return REFUSED
    if options.undo:
        return _undo([file for file in known if file.name in options.undo], terminal)
    wanted = {*options.client, *options.install}
    chosen = [f for f in known if not options.client or {f.name, f.client.name} & wanted]
    path = (find_manifest(options.config, os.environ) or DEFAULT_FILE).absolute()
    target = Target(path)
    return _Import(chosen, target, Merging(target, os.environ), options, terminal).run()


def _undo(files: Sequence[ClientFile], terminal: Terminal) -> int:
    status = 0
    for file in files:
        try:
            terminal.note(f"{file.path} {undo(file)}")
        except ClientFileError as error:
            terminal.error(str(error))
            status = PARTLY
    return status


@dataclass(eq=False)
class _Import:
    files: Sequence[ClientFile]
    target: Target
    merging: Merging
    options: Namespace
    terminal: Terminal
    status: int = 0

    def run(self) -> int:
        """Read, show, write and install. Returns the exit status."""
        self.merging.add([each for file in self.files for each in self._read(file)])
        if self.options.json:
            self.terminal.json(self._facts())
        else:
            self._show()
        if self.merging.imported or (self.target.is_there and self.options.install):
            self._write()
        else:
            self.status = PARTLY
            start = () if self.target.is_there else (f"write portal.yaml yourself: {SMALLEST_MANIFEST}",)
            message = (
                "no servers were found that could be imported; docs/import.md lists the files that are read"
            )
            self.terminal.error(message, *start)
        return self.status

    def _read(self, file: ClientFile) -> list[Server | SkippedServer]:
        try:
            content = file.content()
            found = [] if content is None else servers_of(file, file.parsed(content))
        except ClientFileError as error:
            self.terminal.error(str(error))
            self.status = PARTLY
            return []
        if content is not None and not self.options.json:
            path = shown_path(str(file.path))
            self.terminal.line(f"{file.name:22} {path}: {counted(len(found), 'server')}")
        return found

    def _show(self) -> None:
        line = self.terminal.line
        for each in self.merging.imported:
            line(f"{'+' if each.spec else '='} {each.name}: {_address(each)}")
            line(f"    from {each.places}")
            if each.is_edited:
                line(f"    {self.target.path.name} has another entry of this name, which stays")
            for note in each.notes:
                line(f"    {note}")
        for out in self.merging.skipped:
            line(f"- {out.origin.name} ({out.origin.place}): skipped: {out.reason}")

    def _facts(self) -> dict[str, Json]:
        """The report as data, with names of variables but no values."""
        return {
            "servers": [
                {
                    "name": each.name,
                    "is_new": each.spec is not None,
                    "spec": each.spec,
                    "from": [*map(_fact, each.origins)],
                    "notes": each.notes,
                }
                for each in self.merging.imported
            ],
            "left_out": [{**_fact(each.origin), "reason": each.reason} for each in self.merging.skipped],
            "variables": list(self.merging.variables),
        }

    def _write(self) -> None:
        target, note, options = self.target, self.terminal.note, self.options
        # With --install alone, servers that the manifest lacks stay in the client.
        adds = options.add or not (target.is_there and options.install)
        new = [each for each in self.merging.imported if adds and each.spec is not None]
        lines = {each.name: self.merging.lines(each) for each in new}
        if lines and target.is_there and not options.add:
            self._refuse("exists already. Use --add, or add these by hand:", lines)
            return
        try:
            text = target.with_upstreams(lines, self.merging.defaults()) if lines else target.text
        except CannotAddError as error:
            self._refuse(f"was not changed, because {error}; add these by hand:", lines)
            return
        there = [each for each in self.merging.imported if each.spec is None or each in new]
        origins = [origin for each in there for origin in each.origins]
        files = [each for each in self.files if each.name in options.install]
        replaced = {file: [each for each in origins if each.file == file] for file in files}
        self._replace(replaced, text)
        if not lines:
            note(f"nothing is added to {target.path.name}")
        elif options.dry_run:
            note(f"nothing was written; {target.path.name} would get {counted(len(lines), 'server')}")
        else:
            self._report_written(new)
        self._report_installed(replaced)

    def _replace(self, replaced: Mapping[ClientFile, Sequence[Origin]], text: str) -> None:
        """Write all files or none. Raises PortalError, OSError: one cannot be written, or would not work."""
        target, options = self.target, self.options
        shell = os.environ if options.install else {}
        needed = required(target.read(text).data) - INHERITED if options.save_secrets else ()
        values = {name: v for name in needed if (v := self.merging.variables.get(name) or shell.get(name))}
        if replaced:
            has = {name: value for name, value in os.environ.items() if name in INHERITED}
            try:
                require_loading(text, {**has, **target.kept, **values}, target.path)
            except ManifestError as error:
                titles = " or ".join(file.client.title for file in replaced)
                advice = f"--save-secrets writes what the files and your shell have to {target.env_path.name}"
                why = f"a portal started by {titles} would not start, so nothing was changed; {advice}"
                raise PortalError(f"{why}. {error}") from None
        with ExitStack() as undoing:
            for file, origins in replaced.items():
                install(file, origins, target.path, is_dry=options.dry_run)
                if not options.dry_run:
                    undoing.callback(undo, file)
            if not options.dry_run:
                if saved := target.keep(values):
                    kept = f"wrote {counted(len(saved), 'value')} to {target.env_path}"
                    self.terminal.note(f"{kept}, for its owner alone. Do not commit it")
                if text != target.text:
                    target.write(text)
            undoing.pop_all()

    def _refuse(self, why: str, lines: Mapping[str, Sequence[str]]) -> None:
        self.status = REFUSED
        self.terminal.error(f"{self.target.path.name} {why}")
        if not self.options.json:
            text = [line for each in lines.values() for line in each]
            self.terminal.result("\n".join(["upstreams:", *text]))

    def _report_written(self, new: Sequence[ImportedServer]) -> None:
        target, note = self.target, self.terminal.note
        added = f"added {counted(len(new), 'server')} to {target.path}"
        note(added if target.is_there else f"wrote {target.path}")
        if not target.text.strip():
            note(
                "tools that declare themselves destructive wait for a person: in a form of the client, or for "
                "`mcp-code-portal runs approve` (docs/permissions.md)"
            )
        variables = self.merging.variables
        unset = sorted(variables.keys() - os.environ.keys() - target.kept.keys())
        if unset:
            note(f"set {', '.join(unset)}, in the environment or in {target.env_path.name}")
        if any(variables[each] is not None for each in unset):
            note(f"import --save-secrets writes the values in these files to {target.env_path.name}")
        if theirs := [each.name for each in new if any(o.file.project for o in each.origins)]:
            note(f"{', '.join(theirs)}: from files of the project. Review them before `check` starts them")
        note("next: mcp-code-portal check")

    def _report_installed(self, replaced: Mapping[ClientFile, Sequence[Origin]]) -> None:
        note, manifest, is_dry = self.terminal.note, self.target.path.name, self.options.dry_run
        for file, origins in replaced.items():
            out = f" in place of {', '.join(origin.name for origin in origins)}" if origins else ""
            note(f"{file.path} {'would have' if is_dry else 'now has'} the portal{out}")
            found = [each for one in self.merging.imported for each in one.origins if each.file == file]
            if left := [each.name for each in found if each not in origins]:
                note(f"not in {manifest}: {', '.join(left)}, stays (--add adds it)")
            note(f"{file.client.title} gets all servers of {manifest} through it, with their keys")
            if not is_dry:
                note(f"the original is in {original(file).path}; import --undo {file.name} restores it")


def _address(imported: ImportedServer) -> str:
    spec = imported.spec or imported.server.spec(lambda value: value.name)
    words = [spec["url"]] if "url" in spec else [spec["command"], *spec.get("args", ())]
    return " ".join(words).replace("$${", "${")


def _fact(origin: Origin) -> dict[str, Json]:
    return {"client": origin.file.name, "path": str(origin.file.path), "name": origin.name}
