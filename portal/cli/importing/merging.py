"""Merges the servers of all files, and writes portal.yaml and portal.env."""

import errno
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import yaml

from manifests.errors import ManifestError
from manifests.json_value import Json
from manifests.loader import DEFAULT_FILE, YamlSource, parse_manifest, plain_value, read_yaml
from manifests.names import namespace_of
from manifests.own_files import ORDINARY, ManifestFiles, utf8, write_whole
from manifests.references import NETWORK_VARIABLE, NO_SECRETS, env_path, env_text, read_env, required
from portal.base.plain_text import escaped, is_hidden
from portal.cli.importing import servers

HEADING: Final = """\
# Imported from MCP clients by `mcp-code-portal import`. Run `mcp-code-portal check` to test.
# Tools that declare themselves destructive ask a person first: see docs/permissions.md.
capabilities:
  tools: {ask: [{annotation: destructive}]}

"""
_UNKNOWN: Final = "https://unknown.example"
"""Stands for the value of an unset variable. A URL may begin with a variable."""

INHERITED: Final = frozenset({"HOME", "LOGNAME", "PATH", "SHELL", "USER"})
"""Variables that every client passes to the servers that it starts."""

_COMPARED: Final = ("command", "args", "env", "url", "headers")


class CannotAddError(ValueError):
    """Upstreams cannot be added to the manifest as it is written. The message says why."""


@dataclass
class ImportedServer:
    """A server for the manifest, with all places where it was found, and notes on what was not imported from them.

    `spec` is None if the manifest already has it; `is_edited` if the manifest has another entry under that name.
    """

    server: servers.Server
    origins: list[servers.Origin]
    notes: list[str] = field(default_factory=list)
    name: str = ""
    spec: dict[str, Json] | None = None
    is_edited: bool = False

    @property
    def places(self) -> str:
        """The files that have it, each with its name there if that differs."""
        names = {each: "" if each.name == self.name else f" ({each.name})" for each in self.origins}
        return "; ".join(f"{each.place}{name}" for each, name in names.items())


class Target:
    """A manifest, which may not exist yet, and portal.env next to it."""

    def __init__(self, path: Path) -> None:
        """Raises OSError, ManifestError: one of the files cannot be read or parsed."""
        self.path = path
        self.env_path = env_path(path)
        self.kept = read_env(self.env_path)
        self.is_there = path.exists() or path.is_symlink()
        content = path.read_bytes() if self.is_there else b""
        utf8(content, path.name)
        self.text = content.decode()  # with its byte order mark and line endings
        self.source = self.read(self.text)

    @property
    def upstreams(self) -> dict[str, Json]:
        data = self.source.data
        found = data.get("upstreams") if isinstance(data, dict) else None
        return found if isinstance(found, dict) else {}

    def with_upstreams(self, new: Mapping[str, Sequence[str]], defaults: Sequence[str]) -> str:
        """The text with more upstreams at the top of their section. No other character changes.

        A new text begins with the lines of `defaults`. Raises CannotAddError: there is no place for them.
        """
        block = [line for lines in new.values() for line in ("", *lines)][1:]
        if not self.text.strip():
            return "".join([HEADING, *(f"{line}\n" for line in (*defaults, "upstreams:", *block))])
        end = "\r\n" if "\r\n" in self.text else "\n"
        rows = self.text.splitlines(keepends=True)
        section = self.source.places.get(("upstreams",))
        if section is None:
            rows[-1] += "" if rows[-1].endswith("\n") else end
            block.insert(0, "upstreams:")
        index = len(rows) if section is None else section.line
        if rows[index:] and rows[index].strip():
            block.append("")
        text = "".join([*rows[:index], *(f"{line}{end}" if line else end for line in block), *rows[index:]])
        try:
            data = self.read(text).data
        except ManifestError:
            data = None
        if data is None or [*data["upstreams"]] != [*new, *self.upstreams]:
            raise CannotAddError("its upstreams are not a block indented by two spaces")
        return text

    def write(self, text: str) -> None:
        """Write the manifest whole or not at all. Raises OSError: that fails, or it exists by now."""
        target = Path(os.path.realpath(self.path))
        if not self.is_there and target.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        write_whole(target, text.encode(), mode=ORDINARY, keeps_mode=True)

    def keep(self, variables: Mapping[str, str]) -> list[str]:
        """Write values to portal.env, readable only by its owner. Returns the names of the new ones.

        Raises OSError: it cannot be written.
        """
        new = {name: value for name, value in variables.items() if name not in self.kept}
        if new:
            before = self.env_path.read_text("utf-8") if self.env_path.exists() else ""
            write_whole(self.env_path, env_text(new, before).encode())
            self.kept |= new
        return list(new)

    def read(self, text: str) -> YamlSource:
        """Parse a text of this manifest. Raises ManifestError: it cannot be parsed, or repeats a key."""
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
        self.skipped: list[servers.SkippedServer] = []
        self.variables: dict[str, str | None] = {}
        """The variables of the upstreams. Values come from the files and may be secret."""
        self._target = target
        self._known = {**target.kept, **environ}
        self._used = required(target.source.data)
        self._namespaces = {namespace_of(name) for name in target.upstreams}

    def add(self, found: Sequence[servers.Server | servers.SkippedServer]) -> None:
        """Merge the servers of all files, in order.

        Exact matches in the manifest come before matches by name, which may be another server's entry.
        """
        for each in found:
            if isinstance(each, servers.SkippedServer):
                self.skipped.append(each)
                continue
            same = next((one for one in self.imported if one.server.raw() == each.raw()), None)
            if same is None:
                same = ImportedServer(each, [])
                self.imported.append(same)
            same.origins.append(each.origin)
            same.notes += [note for note in each.notes if note not in same.notes]
        for match in (partial(self._match, by_name=False), partial(self._match, by_name=True), self._take):
            for one in [one for one in self.imported if not one.name]:
                match(one)
        self.imported = [one for one in self.imported if one.name]

    def defaults(self) -> list[str]:
        """The lines of a new manifest that hand the shell's certificates and proxies to all upstreams."""
        env: dict[str, Json] = {}
        for name, text in () if self._target.text.strip() else sorted(self._known.items()):
            if text and NETWORK_VARIABLE.fullmatch(name):
                env[name] = text.replace("${", "$${")
                if re.search("[@?]", text) or servers.SECRET_NAME.search(name):
                    env[name], self.variables[name] = f"${{{name}}}", text
        return [*dumped({"defaults": {"env": env}}), ""] if env else []

    def lines(self, imported: ImportedServer) -> list[str]:
        """The lines of a new upstream in the manifest, indented by two spaces."""
        section = {imported.name: {key: value for key, value in (imported.spec or {}).items() if value}}
        return [f"  # {escaped(imported.places)}", *(f"  {line}" for line in dumped(section))]

    def _take(self, one: ImportedServer) -> None:
        names = self._names(one.server.origin)
        one.name = next(each for each in names if namespace_of(each) not in self._namespaces)
        made: dict[str, str | None] = {}
        try:
            one.spec = one.server.spec(partial(self._variable, one.name, made, self._used))
            values = {key: value for key, value in made.items() if value is not None}
            text = "\n".join(["upstreams:", *self.lines(one)])
            variables = required(read_yaml(text).data)
            require_loading(text, {**dict.fromkeys(variables, _UNKNOWN), **self._known, **values})
        except (servers.EntryError, ManifestError) as error:
            one.name = ""
            reason = str(error) if isinstance(error, servers.EntryError) else error.problems[0].message
            self.skipped += [servers.SkippedServer(origin, reason) for origin in one.origins]
        else:
            self.variables = {**dict.fromkeys(variables), **self.variables, **made}
            self._used |= variables
            self._namespaces.add(namespace_of(one.name))

    def _names(self, origin: servers.Origin) -> list[str]:
        """Candidate names: the server's own, then with the client's name, then with a number."""
        plain = "".join("_" if is_hidden(each) else each for each in origin.name[:70]).strip()
        plain = plain if re.search(r"[A-Za-z0-9]", plain) else "server"
        return [plain, f"{plain}-{origin.file.name}", *(f"{plain}-{number}" for number in range(2, 2000))]

    def _variable(
        self, server_name: str, made: dict[str, str | None], used: Collection[str], value: servers.Value
    ) -> str:
        """The variable for a value. Equal values with one name share it. A new variable gets no `used` name."""
        prefix = servers.variable_name(server_name)
        full = value.name if value.name.startswith(f"{prefix}_") else f"{prefix}_{value.name}"
        for name in (value.name, full, *(f"{full}_{number}" for number in range(2, 2000))):
            known = [each[name] for each in (self.variables, made, self._known) if name in each]
            # The value of a client's input is unknown until the variable is set.
            is_same = all(value.text is None or each in (None, value.text) for each in known)
            is_inherited = value.text is None and name in INHERITED | NO_SECRETS
            if is_same and (known or name not in used) and not is_inherited:
                break
        made[name] = value.text
        return name

    def _match(self, one: ImportedServer, *, by_name: bool) -> None:
        """Match it with an upstream whose entry is what an import would write, except for `tools`; or by its name."""
        there, own = self._target.upstreams, [self._names(each) for each in one.origins]
        spelt = {namespace_of(name): name for name in there}
        names = [*(names[1] for names in own), *(names[0] for names in own), *(() if by_name else there)]
        keys = (*_COMPARED, *({"cwd"} & one.server.raw().keys()))
        for name in filter(None, (spelt.get(namespace_of(each)) for each in names)):
            if name in (other.name for other in self.imported):
                continue
            made: dict[str, str | None] = {}
            try:
                spec = one.server.spec(partial(self._variable, name, made, ()))
            except servers.EntryError:
                return
            entry = there[name] if isinstance(there[name], dict) else {}
            if by_name or all(entry.get(key) == spec.get(key) for key in keys):
                one.name, one.is_edited = name, by_name
                self.variables |= {key: value for key, value in made.items() if key in self._used}
                return


class _Dumper(yaml.SafeDumper):
    """Quotes every text that the manifest's loader would not read as that text: PyYAML knows YAML 1.1 only."""

    def choose_scalar_style(self) -> str:
        style: str = super().choose_scalar_style()
        text = self.event.value if isinstance(self.event, yaml.ScalarEvent) else ""
        return "'" if not style and plain_value(text) != text else style


def dumped(data: Json) -> list[str]:
    return yaml.dump(
        data, Dumper=_Dumper, sort_keys=False, default_flow_style=None, width=1 << 20
    ).splitlines()


def require_loading(text: str, values: Mapping[str, str], path: Path = DEFAULT_FILE) -> None:
    """Check that the text is a valid manifest with these variables. Runs no command. Raises ManifestError."""
    files = ManifestFiles(path, {path.name: text.encode()})
    parse_manifest(files, values, lambda references, *_: dict.fromkeys(references, _UNKNOWN))
