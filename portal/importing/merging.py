"""What is taken over from all files together, and the portal.yaml and portal.env that say it."""

import json
import re
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from manifests.errors import ManifestError
from manifests.json_value import Json
from manifests.loader import load_manifest
from manifests.names import namespace_of
from manifests.own_files import write_whole
from manifests.references import SecretReference, VariableReference, env_path, env_text, pieces, read_env
from manifests.yaml_source import YamlSource, read_yaml
from portal.importing.servers import LeftOut, Origin, Server, UnfitError, Value, variable_name
from portal.library.plain_text import is_hidden

HEADING: Final = """\
# What clients had as their servers, taken over by `mcp-code-portal import`. `mcp-code-portal check` tries it out.
# What scripts may do with them, capabilities says: docs/permissions.md.

"""
_UNKNOWN: Final = ("unknown", "https://unknown.example")
"""In the place of what is not known here: as one of these a URL that begins with a variable is one."""

_COMPARED: Final = ("command", "args", "env", "url", "headers")
_VARIABLE: Final = re.compile(r"(?<!\$)\$\{([^}]*)\}")
_PLAIN_KEY: Final = re.compile(
    r"(?!(?:null|true|false|yes|no|on|off|y|n)$)[A-Za-z_][A-Za-z0-9_./-]*", re.IGNORECASE
)


class CannotAddError(ValueError):
    """The manifest is written in a way that nothing can be added to; the message says which."""


@dataclass(frozen=True)
class Variable:
    """One that the new upstreams refer to. `value` stood in a file, and is nobody's to see."""

    name: str
    used_by: str
    value: str | None = field(repr=False, default=None)


@dataclass
class Taken:
    """A server as the manifest gets it, and everywhere that it stands; of one that it has already `spec` is None."""

    name: str
    server: Server
    origins: list[Origin]
    spec: dict[str, Json] | None = None


class Target:
    """A manifest, there or not yet, and portal.env beside it."""

    def __init__(self, path: Path) -> None:
        """
        Raises:
            OSError, ManifestError: One of the files cannot be read or understood.
        """
        self.path = path
        self.env_path = env_path(path)
        self.kept = read_env(self.env_path)
        self.is_there = path.exists() or path.is_symlink()
        # newline="": what is added ends its lines as the others do.
        self.text = path.open(encoding="utf-8", newline="").read() if self.is_there else ""
        self.source = _read(self.text.removeprefix("\ufeff"), path.name)

    @property
    def upstreams(self) -> dict[str, Json]:
        data = self.source.data
        found = data.get("upstreams") if isinstance(data, dict) else None
        return found if isinstance(found, dict) else {}

    def with_upstreams(self, new: Mapping[str, Sequence[str]]) -> str:
        """The text with more upstreams at the top of their section, and no other character changed.

        Raises:
            CannotAddError: There is no place at which they could be put.
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
            data = _read(text.removeprefix("\ufeff"), self.path.name).data
        except ManifestError:
            data = None
        if data is None or [*data["upstreams"]] != [*new, *self.upstreams]:
            raise CannotAddError("its upstreams are not a block that is indented by two")
        return text

    def require_loading(self, text: str, values: Mapping[str, str]) -> None:
        """
        Raises:
            ManifestError: With every variable set, a portal would not take the text.
        """
        for unknown in _UNKNOWN:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / self.path.name
                path.write_text(text, "utf-8", newline="")
                try:
                    load_manifest(path, {**dict.fromkeys(needed(text), unknown), **values}, _pretended)
                    return
                except ManifestError as error:
                    problem = error
        raise problem

    def write(self, text: str) -> None:
        """
        Raises:
            OSError: It cannot be written, or is there although it was not.
        """
        if not self.is_there:
            with self.path.open("x", encoding="utf-8") as file:
                file.write(text)
            return
        self.path.write_text(text, "utf-8", newline="")

    def keep(self, variables: Sequence[Variable]) -> list[str]:
        """Write values to portal.env, for its owner alone; the names of those that were not there.

        Raises:
            OSError: It cannot be written.
        """
        new = {
            each.name: each.value
            for each in variables
            if each.value is not None and each.name not in self.kept
        }
        if new:
            before = self.env_path.read_text("utf-8") if self.env_path.exists() else ""
            write_whole(self.env_path, env_text(new, before).encode())
            self.kept |= new
        return list(new)


class Merging:
    """The servers of all files, each once, under names of their own, with variables for what is nobody's to see."""

    def __init__(self, target: Target, environ: Mapping[str, str]) -> None:
        self.taken: list[Taken] = []
        self.left_out: list[LeftOut] = []
        self.variables: dict[str, Variable] = {}
        self._target = target
        self._known = {**target.kept, **environ}
        self._used = {*needed(target.text)}
        self._namespaces = {namespace_of(name) for name in target.upstreams}

    def add(self, server: Server | LeftOut) -> None:
        if isinstance(server, LeftOut):
            self.left_out.append(server)
            return
        same = next((each for each in self.taken if each.server.raw() == server.raw()), None)
        if same is not None:
            same.origins.append(server.origin)
        elif (name := self._there(server)) is not None:
            self.taken.append(Taken(name, server, [server.origin]))
        else:
            self._take(server)

    def lines(self, taken: Taken, home: Path) -> list[str]:
        """How the manifest says a new upstream, indented by two."""
        origins = "; ".join(
            f"{each.file.client.title}, {short(each.file.path, home)}" for each in taken.origins
        )
        return [f"  # {_shown(origins)}", f"  {_key(taken.name)}:", *_lines(taken.spec or {}, "    ")]

    def _take(self, server: Server) -> None:
        name = self._free_name(server.origin)
        made: dict[str, Variable] = {}
        try:
            spec = server.spec(lambda value: self._variable(name, value, made))
            values = {key: each.value for key, each in made.items() if each.value is not None}
            taken = Taken(name, server, [server.origin], spec)
            text = "\n".join(["upstreams:", *self.lines(taken, Path("/"))])
            self._target.require_loading(text, {**self._known, **values})
        except UnfitError as error:
            self.left_out.append(LeftOut(server.origin, str(error)))
        except ManifestError as error:
            self.left_out.append(LeftOut(server.origin, error.problems[0].message))
        else:
            self.taken.append(taken)
            self.variables |= made
            for each in needed(text) - made.keys():
                self.variables.setdefault(each, Variable(each, name))
            self._used |= needed(text)
            self._namespaces.add(namespace_of(name))

    def _free_name(self, origin: Origin) -> str:
        """The client's own name; with the client's behind it where another server gives the same namespace."""
        plain = "".join("_" if is_hidden(each) else each for each in origin.name[:70]).strip()
        plain = plain if re.search(r"[A-Za-z0-9]", plain) else "server"
        names = [plain, f"{plain}-{origin.file.name}", *(f"{plain}-{number}" for number in range(2, 2000))]
        return next(name for name in names if namespace_of(name) not in self._namespaces)

    def _variable(self, server_name: str, value: Value, made: dict[str, Variable]) -> str:
        """The variable for a value: equal values under one name share it."""
        prefix = variable_name(server_name)
        full = value.name if value.name.startswith(f"{prefix}_") else f"{prefix}_{value.name}"
        names = [value.name, full, *(f"{full}_{number}" for number in range(2, 2000))]
        name = next(name for name in names if self._is_free(name, value.text, made))
        made[name] = Variable(name, server_name, value.text)
        return name

    def _is_free(self, name: str, value: str | None, made: Mapping[str, Variable]) -> bool:
        """Whether the variable has this value and no other, wherever it is set already."""
        known = [each[name].value for each in (self.variables, made) if name in each]
        known += [self._known[name]] if name in self._known else []
        return all(each == value for each in known) and (bool(known) or name not in self._used)

    def _there(self, server: Server) -> str | None:
        """What the manifest calls the server, if it has it; its variables stand for the values of the file then."""
        values: list[Value] = []

        def numbered(value: Value) -> str:
            values.append(value)
            return str(len(values) - 1)

        try:
            own, references = _shape(server.spec(numbered))
        except UnfitError:
            return None
        taken = {each.name for each in self.taken if each.spec is None}
        names = (server.origin.name, f"{server.origin.name}-{server.origin.file.name}")
        for name in sorted(self._target.upstreams.keys() - taken, key=lambda each: each not in names):
            shape, variables = _shape(self._target.upstreams[name])
            if shape != own:
                continue
            pairs = zip(variables, references, strict=True)
            told = {each: values[int(index)].text for each, index in pairs if index.isdecimal()}
            if all(text in (None, self._known.get(each, text)) for each, text in told.items()):
                self.variables |= {
                    each: Variable(each, name, text)
                    for each, text in told.items()
                    if text is not None and each not in self._known
                }
                return name
        return None


def needed(text: str) -> set[str]:
    """The variables without which a manifest does not load."""
    found = re.findall(r"\$*\$\{[^}]*\}", text)
    return {
        piece.name
        for each in found
        for piece in pieces(each)
        if isinstance(piece, VariableReference) and piece.default is None
    }


def short(path: Path, home: Path) -> str:
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def _read(text: str, file: str) -> YamlSource:
    try:
        source = read_yaml(text)
    except ManifestError as error:
        raise ManifestError(error.problems, file) from None
    if source.problems:
        raise ManifestError(source.problems, file)
    return source


def _shape(spec: Json) -> tuple[str, list[str]]:
    """What says how a server is reached, without the names of its variables, and these in their order."""
    found = {key: spec[key] for key in _COMPARED if spec.get(key)} if isinstance(spec, dict) else spec
    text = json.dumps(found, sort_keys=True)
    return _VARIABLE.sub("${}", text), [each.partition(":-")[0] for each in _VARIABLE.findall(text)]


def _pretended(references: Collection[SecretReference], folder: Path) -> Mapping[SecretReference, str]:
    """To import is not to run the commands of a manifest that is there."""
    return dict.fromkeys(references, "unknown")


def _lines(spec: Mapping[str, Json], indent: str) -> Iterator[str]:
    for key, value in spec.items():
        if isinstance(value, dict) and value:
            yield f"{indent}{_key(key)}:"
            yield from _lines(value, f"{indent}  ")
        else:
            yield f"{indent}{_key(key)}: {_shown(json.dumps(value, ensure_ascii=False))}"


def _key(text: str) -> str:
    return text if _PLAIN_KEY.fullmatch(text) else _shown(json.dumps(text, ensure_ascii=False))


def _shown(text: str) -> str:
    """With escapes of YAML for what an editor would not show."""
    return "".join(f"\\U{ord(each):08x}" if is_hidden(each) else each for each in text)
