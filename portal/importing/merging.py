"""Merges the servers of all files, and writes portal.yaml and portal.env."""

import re
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import yaml

from manifests.errors import ManifestError
from manifests.json_value import Json
from manifests.loader import DEFAULT_FILE, YamlSource, load_manifest, read_yaml
from manifests.names import namespace_of
from manifests.own_files import write_whole
from manifests.references import VariableReference, env_path, env_text, pieces, read_env
from portal.importing.servers import EntryError, Origin, Server, SkippedServer, Value, variable_name
from portal.library.plain_text import escaped, is_hidden

HEADING: Final = """\
# Imported from MCP clients by `mcp-code-portal import`. Run `mcp-code-portal check` to test.
# Set permissions under `capabilities`: see docs/permissions.md.

"""
_UNKNOWN: Final = "https://unknown.example"
"""Stands for the value of an unset variable. A URL may begin with a variable."""

_COMPARED: Final = ("command", "args", "env", "url", "headers")


class CannotAddError(ValueError):
    """Upstreams cannot be added to the manifest as it is written. The message says why."""


@dataclass
class ImportedServer:
    """A server for the manifest, with all places where it was found. `spec` is None if the manifest already has it."""

    name: str
    server: Server
    origins: list[Origin]
    spec: dict[str, Json] | None = None


class Target:
    """A manifest, which may not exist yet, and portal.env next to it."""

    def __init__(self, path: Path) -> None:
        """Raises OSError, ManifestError: one of the files cannot be read or parsed."""
        self.path = path
        self.env_path = env_path(path)
        self.kept = read_env(self.env_path)
        self.is_there = path.exists() or path.is_symlink()
        # newline="" keeps line endings, so that added lines get the same ones.
        self.text = path.open(encoding="utf-8", newline="").read() if self.is_there else ""
        self.source = self._read(self.text)

    @property
    def upstreams(self) -> dict[str, Json]:
        data = self.source.data
        found = data.get("upstreams") if isinstance(data, dict) else None
        return found if isinstance(found, dict) else {}

    def with_upstreams(self, new: Mapping[str, Sequence[str]]) -> str:
        """The text with more upstreams at the top of their section. No other character changes.

        Raises CannotAddError: there is no place for them.
        """
        block = [line for lines in new.values() for line in ("", *lines)][1:]
        if not self.text.strip():
            return "".join([HEADING, "upstreams:\n", *(f"{line}\n" for line in block)])
        end = "\r\n" if "\r\n" in self.text else "\n"
        rows = self.text.splitlines(keepends=True)
        section = self.source.places.get(("upstreams",))
        if section is None:
            rows[-1] += "" if rows[-1].endswith("\n") else end
            block.insert(0, "upstreams:")
        index = len(rows) if section is None else section.line
        text = "".join([*rows[:index], *(f"{line}{end}" if line else end for line in block), *rows[index:]])
        try:
            data = self._read(text).data
        except ManifestError:
            data = None
        if data is None or [*data["upstreams"]] != [*new, *self.upstreams]:
            raise CannotAddError("its upstreams are not a block indented by two spaces")
        return text

    def write(self, text: str) -> None:
        """Write the manifest. Raises OSError: it cannot be written, or exists although it did not before."""
        with self.path.open("w" if self.is_there else "x", encoding="utf-8", newline="") as file:
            file.write(text)

    def keep(self, variables: Mapping[str, str | None]) -> list[str]:
        """Write values to portal.env, readable only by its owner. Returns the names of the new ones.

        Raises OSError: it cannot be written.
        """
        known = {name: value for name, value in variables.items() if value is not None}
        new = {name: value for name, value in known.items() if name not in self.kept}
        if new:
            before = self.env_path.read_text("utf-8") if self.env_path.exists() else ""
            write_whole(self.env_path, env_text(new, before).encode())
            self.kept |= new
        return list(new)

    def _read(self, text: str) -> YamlSource:
        try:
            source = read_yaml(text.removeprefix("\ufeff"))
        except ManifestError as error:
            raise ManifestError(error.problems, self.path.name) from None
        if source.problems:
            raise ManifestError(source.problems, self.path.name)
        return source


class Merging:
    """The servers of all files, without duplicates, under unique names, with variables for secrets."""

    def __init__(self, target: Target, environ: Mapping[str, str]) -> None:
        self.imported: list[ImportedServer] = []
        self.skipped: list[SkippedServer] = []
        self.variables: dict[str, str | None] = {}
        """The variables of the upstreams. Values come from the files and may be secret."""
        self._target = target
        self._known = {**target.kept, **environ}
        self._used = {*needed(target.text)}
        self._namespaces = {namespace_of(name) for name in target.upstreams}

    def add(self, server: Server | SkippedServer) -> None:
        if isinstance(server, SkippedServer):
            self.skipped.append(server)
            return
        same = next((each for each in self.imported if each.server.raw() == server.raw()), None)
        if same is not None:
            same.origins.append(server.origin)
        elif (name := self._there(server)) is not None:
            self.imported.append(ImportedServer(name, server, [server.origin]))
        else:
            self._take(server)

    def lines(self, imported: ImportedServer, home: Path) -> list[str]:
        """The lines of a new upstream in the manifest, indented by two spaces."""
        origins = (f"{each.file.client.title}, {short(each.file.path, home)}" for each in imported.origins)
        section = {imported.name: {key: value for key, value in (imported.spec or {}).items() if value}}
        lines = yaml.safe_dump(section, sort_keys=False, default_flow_style=None, width=1 << 20).splitlines()
        return [f"  # {escaped('; '.join(origins))}", *(f"  {line}" for line in lines)]

    def _take(self, server: Server) -> None:
        names = self._names(server.origin)
        name = next(each for each in names if namespace_of(each) not in self._namespaces)
        made: dict[str, str | None] = {}
        try:
            spec = server.spec(partial(self._variable, name, made, self._used))
            values = {key: value for key, value in made.items() if value is not None}
            imported = ImportedServer(name, server, [server.origin], spec)
            text = "\n".join(["upstreams:", *self.lines(imported, Path("/"))])
            _require_loading(text, {**self._known, **values})
        except EntryError as error:
            self.skipped.append(SkippedServer(server.origin, str(error)))
        except ManifestError as error:
            self.skipped.append(SkippedServer(server.origin, error.problems[0].message))
        else:
            self.imported.append(imported)
            self.variables = {**dict.fromkeys(needed(text)), **self.variables, **made}
            self._used |= needed(text)
            self._namespaces.add(namespace_of(name))

    def _names(self, origin: Origin) -> list[str]:
        """Candidate names: the server's own, then with the client's name, then with a number."""
        plain = "".join("_" if is_hidden(each) else each for each in origin.name[:70]).strip()
        plain = plain if re.search(r"[A-Za-z0-9]", plain) else "server"
        return [plain, f"{plain}-{origin.file.name}", *(f"{plain}-{number}" for number in range(2, 2000))]

    def _variable(
        self, server_name: str, made: dict[str, str | None], used: Collection[str], value: Value
    ) -> str:
        """The variable for a value. Equal values with one name share it. A new variable gets no `used` name."""
        prefix = variable_name(server_name)
        full = value.name if value.name.startswith(f"{prefix}_") else f"{prefix}_{value.name}"
        for name in (value.name, full, *(f"{full}_{number}" for number in range(2, 2000))):
            known = [each[name] for each in (self.variables, made, self._known) if name in each]
            # The value of a client's input is known only once somebody set the variable.
            is_same = all(value.text is None or each in (None, value.text) for each in known)
            if is_same and (known or name not in used):
                break
        made[name] = value.text
        return name

    def _there(self, server: Server) -> str | None:
        """The server's name in the manifest, if its entry is what an import would write, except for `tools`."""
        imported = {each.name for each in self.imported}
        for name in self._names(server.origin)[:2]:
            there, made = self._target.upstreams.get(name), dict[str, str | None]()
            if name in imported or not isinstance(there, dict):
                continue
            try:
                spec = server.spec(partial(self._variable, name, made, ()))
            except EntryError:
                return None
            if all(there.get(key) == spec.get(key) for key in _COMPARED):
                self.variables |= made
                return name
        return None


def needed(text: str) -> set[str]:
    """The variables that a manifest requires to load."""
    found = re.findall(r"\$*\$\{[^}]*\}", text)
    return {
        piece.name
        for each in found
        for piece in pieces(each)
        if isinstance(piece, VariableReference) and piece.default is None
    }


def short(path: Path, home: Path) -> str:
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def _require_loading(text: str, values: Mapping[str, str]) -> None:
    """Check that the text is a valid manifest if all variables are set. Raises ManifestError."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / DEFAULT_FILE
        path.write_text(text, "utf-8")
        load_manifest(path, {**dict.fromkeys(needed(text), _UNKNOWN), **values})
