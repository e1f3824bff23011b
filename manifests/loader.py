"""Loads portal.yaml into a Manifest, or reports all its problems at once, in the words of the file.

A value is shown only where it cannot be a secret: not if any part came from the environment, and never under `env`,
`environment`, `headers`, `args`, `url`, `token`, `client_secret`, `key` and `secret`.
"""

import os
import re
from collections.abc import Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from manifests.constraints import TAG, UNUSABLE
from manifests.errors import KeyPath, ManifestError, Place, Problem, nearest, problem_at
from manifests.exposure import command_files, exposures
from manifests.json_value import Json
from manifests.manifest import Manifest, validation_problems
from manifests.own_files import (
    ManifestFiles,
    cache_folder,
    lock_content,
    lock_path,
    parsed_lock,
    read_capped,
    state_folder,
    unreadable,
    utf8,
)
from manifests.portal_manifest import HttpUpstream, PortalManifest, StdioUpstream
from manifests.references import (
    CallerHeader,
    FetchSecrets,
    Interpolation,
    env_content,
    env_path,
    fetch_nothing,
    literal_defaults,
    parsed_env,
    stand_in,
)

CONFIG_VARIABLE = "MCP_CODE_PORTAL_CONFIG"
DEFAULT_FILE = Path("portal.yaml")
MAX_BYTES = 1024 * 1024
"""Limit of the manifest, and of each middleware file."""
MAX_PROGRAM_BYTES = 256 * 1024 * 1024
"""Limit of the component, and of each file that a `${command:...}` names."""


def find_manifest(explicit: Path | None, environ: Mapping[str, str]) -> Path | None:
    """The file to load: `explicit`, else `$MCP_CODE_PORTAL_CONFIG`, else `./portal.yaml` if it exists."""
    if named := explicit or environ.get(CONFIG_VARIABLE):
        return Path(named)
    return DEFAULT_FILE if os.path.lexists(DEFAULT_FILE) else None


def load_manifest(
    path: Path | None, environ: Mapping[str, str], fetch_secrets: FetchSecrets = fetch_nothing
) -> Manifest:
    """Read the files of a manifest and parse them; without a path, an empty one. Raises ManifestError."""
    if path is None:
        return Manifest(PortalManifest(), folder=Path.cwd())
    return parse_manifest(read_files(path, environ), environ, fetch_secrets)


def read_files(path: Path, environ: Mapping[str, str]) -> ManifestFiles:
    """Read the manifest, portal.env and portal.lock beside it, and the code that it names. Nothing of it runs.

    The first one that cannot be read, or a portal.env that others can access, is the `problem` of the files.
    Raises ManifestError: the path is a folder.
    """
    contents: dict[str, bytes] = {}
    problem = None
    if not path.name:  # a root folder, which has no files beside it
        read_capped(path, MAX_BYTES)
    for file, read in ((path, _text), (env_path(path), env_content), (lock_path(path), lock_content)):
        try:
            contents |= {} if (content := read(file)) is None else {file.name: content}
        except ManifestError as error:
            contents[file.name], problem = str(error).encode(), problem or error
    data, commands = written(ManifestFiles(path, contents), environ)
    for name in (*_code(data), *(name for each in commands for name in command_files(each, path.parent))):
        try:
            max_bytes = MAX_BYTES if name.endswith(".py") else MAX_PROGRAM_BYTES
            contents[name] = read_capped(path.parent / name, max_bytes)[0]
        except ManifestError as error:
            contents[name], problem = str(error).encode(), problem or error
        except (FileNotFoundError, ValueError):  # no file has such a name
            pass
    return ManifestFiles(path, contents, problem)


def _text(path: Path) -> bytes:
    try:
        return read_capped(path, MAX_BYTES)[0]
    except FileNotFoundError as error:
        raise ManifestError([Problem(unreadable(error, path))], path.name) from None


def written(files: ManifestFiles, environ: Mapping[str, str]) -> tuple[dict[str, Json], list[str]]:
    """The data of a manifest with stand-ins, and its commands. Need not be valid, because a stand-in may not be."""
    with suppress(ManifestError):
        _, interpolation, data = _interpolated(files, environ, stand_in)
        commands = [each.text for each in interpolation.fetched if each.kind == "command"]
        return data if isinstance(data, dict) else {}, commands
    return {}, []


def _code(data: Mapping[str, Json]) -> Iterator[str]:
    """The middleware files that are beside the manifest, and the component."""
    with suppress(ValidationError):  # names that are not valid have no effect
        portal = PortalManifest.model_validate({key: data[key] for key in data if key == "middleware"})
        for module in (each.partition(":")[0].split(".") for each in portal.middleware):
            for base in ("/".join(module[:end]) for end in range(1, len(module) + 1)):
                yield from (f"{base}.py", f"{base}/__init__.py")
    server = data.get("server")
    component = server.get("component") if isinstance(server, dict) else None
    if component and isinstance(component, str):
        yield component


def parse_manifest(
    files: ManifestFiles, environ: Mapping[str, str], fetch_secrets: FetchSecrets = fetch_nothing
) -> Manifest:
    """Parse the files of a manifest. Variables of the environment override those of portal.env.

    `fetch_secrets` is called once, for all references to commands and the keyring; it may block.

    Raises ManifestError: a file cannot be used; it carries every problem found.
    """
    if files.problem is not None:
        raise files.problem
    contents, lock = files.contents, lock_path(files.path).name
    manifest = _parse(files, environ, fetch_secrets)
    modules = {*_code({"middleware": manifest.portal.middleware})}
    return replace(
        manifest,
        lock=parsed_lock(contents[lock], lock) if lock in contents else None,
        hashes=files.hashes,
        modules={name: contents[name] for name in modules & contents.keys()},
    )


def check_written(files: ManifestFiles, environ: Mapping[str, str]) -> None:
    """Raises ManifestError if the manifest cannot be used, whatever its references stand for. Runs nothing of it."""
    try:
        parse_manifest(files, environ, stand_in)
    except ManifestError as error:
        if error.problems:
            raise


def overridden(files: ManifestFiles, environ: Mapping[str, str]) -> str:
    """The variables of portal.env that the environment has with another value, which wins."""
    env = env_path(files.path).name
    values = parsed_env(files.contents.get(env), env)
    return ", ".join(sorted(name for name in values if environ.get(name, values[name]) != values[name]))


def _interpolated(
    files: ManifestFiles, environ: Mapping[str, str], fetch_secrets: FetchSecrets
) -> tuple["YamlSource", Interpolation, Json]:
    path, env = files.path, env_path(files.path).name
    kept = parsed_env(files.contents.get(env), env)
    try:
        source = read_yaml(utf8(files.contents[path.name], path.name))
    except ManifestError as error:
        raise ManifestError(error.problems, path.name) from None
    environ = {**literal_defaults(source.data), **kept, **environ}
    interpolation = Interpolation(environ, source.places, fetch_secrets, files)
    return source, interpolation, interpolation.manifest({} if source.data is None else source.data)


def _parse(files: ManifestFiles, environ: Mapping[str, str], fetch_secrets: FetchSecrets) -> Manifest:
    path, own_folders = files.path, [state_folder(environ), cache_folder(environ)]
    source, interpolation, data = _interpolated(files, environ, fetch_secrets)
    problems, portal = [*source.problems, *interpolation.problems], None
    try:
        portal = PortalManifest.model_validate(data)
        found = [*validation_problems(portal, source.places, interpolation.caller_headers)]
        found += exposures(portal, files, own_folders, source.places)
    except ValidationError as error:
        errors = error.errors(include_url=False)
        found = [_problem(each, source.places, interpolation.filled) for each in errors]
    # A faulty reference is reported already; the error about its empty value would only repeat that.
    known = {problem.key for problem in interpolation.problems} if portal is None else set()
    if fetch_secrets is stand_in:
        known |= {".".join(map(str, each)) for each in interpolation.unknown}
    problems += [problem for problem in found if problem.key not in known]
    # Outside the handler: the validation error shows values and must not become the context.
    if problems or portal is None:  # None without problems: a stand-in is not valid
        raise ManifestError(problems, path.name)
    upstreams: dict[str, Json] = (source.data or {}).get("upstreams") or {}
    return Manifest(
        _without(portal, interpolation.caller_headers),
        path.absolute().parent,
        path,
        source.places,
        caller_headers=interpolation.caller_headers,
        templates=interpolation.templates,
        hidden=frozenset().union(*interpolation.taken.values()),
        credentials={name: _secrets_given(portal, name, interpolation.taken) for name in upstreams},
        written=source.data or {},
    )


def _secrets_given(
    portal: PortalManifest, upstream: str, taken: Mapping[KeyPath, Set[str]]
) -> frozenset[str]:
    """The secrets that an upstream gets, which it may repeat."""
    sections = {("upstreams", upstream)}
    if isinstance(portal.upstreams[upstream], StdioUpstream):
        sections.add(("defaults", "env"))
    return frozenset().union(*(secrets for path, secrets in taken.items() if path[:2] in sections))


def _without(
    portal: PortalManifest, caller_headers: Mapping[str, Mapping[str, CallerHeader]]
) -> PortalManifest:
    """The same manifest without these headers, whose values are known only at a call."""
    upstreams = dict(portal.upstreams)
    for name, own in caller_headers.items():
        spec = upstreams[name]
        assert isinstance(spec, HttpUpstream), "only HTTP upstreams have headers"
        left = {header: value for header, value in spec.headers.items() if header not in own}
        upstreams[name] = spec.model_copy(update={"headers": left})
    return portal.model_copy(update={"upstreams": upstreams})


_PRIVATE = frozenset(
    {"env", "environment", "headers", "args", "url", "token", "client_secret", "key", "secret"}
)
_SHOWN = 60
_CLIENTS_SECTIONS = frozenset({"mcpServers", "servers", "mcp_servers", "context_servers"})
"""The keys under which MCP clients list their servers: Claude and Cursor, VS Code, Codex, Zed."""

_IMPORT = (
    "List upstreams under `upstreams`. `mcp-code-portal import` imports the servers of Claude, Cursor, VS Code, "
    "Codex and others."
)
_WANTED = {
    "tuple_type": "a list, like [a, b]",
    "dict_type": "a mapping of names to values",
    "model_type": "a mapping of keys to values",
}


def _problem(error: ErrorDetails, places: Mapping[KeyPath, Place], filled: Set[KeyPath]) -> Problem:
    """Turn a validation error into a problem; `filled` are the paths with a value from the environment."""
    path = tuple(part for part in error["loc"] if not str(part).startswith(TAG))
    kind, hint = error["type"], error["ctx"]["hint"]
    # Pydantic marks an error in a key at the end of the location.
    if is_key := path[-1:] == ("[key]",) and path not in places:
        path = path[:-1]
    label = _label(path)
    if kind == UNUSABLE:
        message = f"{label} {error['msg']}"
    elif kind == "extra_forbidden":
        message, is_key = f"unknown key {label}", True
        hint = _IMPORT if path[0] in _CLIENTS_SECTIONS else hint
    elif kind == "missing":
        message, is_key = f"{_label(path[:-1])} needs {path[-1]}", True
    else:
        wanted = f"be {_WANTED[kind]}" if kind in _WANTED else error["msg"].partition(" should ")[2]
        shown = "a value from the environment" if path in filled else _shown(path, error["input"])
        message = f"the key {label} must {wanted}" if is_key else f"{label} is {shown}; it must {wanted}"
        if kind == "string_type" and not isinstance(error["input"], list | dict):
            hint = 'An empty string is written "".' if error["input"] is None else "Put it in quotes."
    problem, place = problem_at(places, path, message, hint), nearest(places, path)
    return replace(problem, line=place.line, column=place.column) if is_key else problem


def _label(path: KeyPath) -> str:
    """The name of a value: its key, or `item 2 of args`."""
    if not path:
        return "the manifest"
    if isinstance(path[-1], int):
        return f"item {path[-1] + 1} of {_label(path[:-1])}"
    return path[-1] if path[-1].isidentifier() and len(path[-1]) <= _SHOWN else _cut(path[-1])


def _shown(path: KeyPath, value: Json) -> str:
    if value is None:
        return "empty"
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "a mapping"
    if not _PRIVATE.isdisjoint(path):
        return "not a string" if not isinstance(value, str) else "a string"
    return str(value).lower() if isinstance(value, bool) else _cut(value)


def _cut(value: str | int | float) -> str:
    """The `repr`, which escapes control sequences of a terminal, cut to `_SHOWN` characters."""
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


MAX_DEPTH = 32
"""Nesting levels. A manifest needs six."""


def _compose(text: str) -> yaml.Node | None:
    """Parse the only document of a text, ignoring tags.

    Raises ManifestError: it is not YAML, has several documents, is nested too deeply, or has an alias without anchor.
    """
    # libyaml reads a manifest of 900 upstreams in 4 ms, pure Python in 70 ms; not every platform has libyaml.
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    depth = 0
    try:
        for event in yaml.parse(text, loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                raise _too_much(event)
        return yaml.compose(text, loader)
    except yaml.YAMLError as error:
        problem = _syntax_problem(error, text)
    raise ManifestError([problem])


def _position(node: yaml.Event | yaml.Node) -> tuple[int, int]:
    mark = node.start_mark
    return (mark.line + 1, mark.column + 1) if mark else (1, 1)


def _too_much(node: yaml.Event | yaml.Node) -> ManifestError:
    message = (
        f"nested deeper than {MAX_DEPTH} levels, or more than {MAX_NODES} values (with every alias expanded)"
    )
    return ManifestError([Problem(message, *_position(node))])


def _syntax_problem(error: yaml.YAMLError, text: str) -> Problem:
    """The parser's message, without PyYAML's snippet of the file, which may contain secrets."""
    if foreign := yaml.reader.Reader.NON_PRINTABLE.search(text):
        before = text[: foreign.start()]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        return Problem(f"not YAML: the character U+{ord(foreign[0]):04X} is not allowed", line, column)
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return Problem("not YAML", 1, 1)
    mark = error.problem_mark
    message = f"not YAML: {error.problem}" + (f" {error.context}" if error.context else "")
    line_text = "".join(text.split("\n")[mark.line : mark.line + 1])
    if "alias" in message:
        hint = 'A value that begins with * needs quotes: "*". An alias needs the name of an anchor.'
    elif line_text[: mark.column].endswith("$"):
        hint = 'Inside { } and [ ] a reference needs quotes: "${NAME}".'
    else:
        hint = "Check the indentation, quotes and brackets just before it. YAML allows no tabs."
    return Problem(message, mark.line + 1, mark.column + 1, hint)


MAX_NODES = 100_000
"""Counted with every alias expanded: a few lines of aliases to aliases can stand for billions of nodes."""

_INTEGER = re.compile(r"[-+]?[0-9]{1,300}|0o[0-7]{1,100}|0x[0-9a-fA-F]{1,100}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?")
_WORDS: dict[str, Json] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


@dataclass
class YamlSource:
    """`data` is None, bool, int, float, str, or lists and dicts of them; `places` has every node."""

    data: Json = None
    places: dict[KeyPath, Place] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    """Problems that do not prevent reading the rest."""

    def read(self, node: yaml.Node, path: KeyPath, key: yaml.Node) -> Json:
        """The value of a node. Records the place of every node in it."""
        if len(path) > MAX_DEPTH or len(self.places) >= MAX_NODES:
            raise _too_much(node)
        self.places[path] = Place(*_position(key), *_position(node))
        if isinstance(node, yaml.ScalarNode):
            return str(node.value) if node.style else plain_value(str(node.value))  # quoted, or a block
        if isinstance(node, yaml.SequenceNode):
            return [self.read(item, (*path, index), item) for index, item in enumerate(node.value)]
        data: dict[str, Json] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._note(key, "a key must be a string, not a list or a mapping", "", path)
            elif (name := str(key.value)) in data:
                first = self.places[(*path, name)]
                message = f"the key {name!r} is here twice; the first is at {first.line}:{first.column}"
                self._note(key, message, "Keep one of them.", (*path, name))
            else:
                data[name] = self.read(value, (*path, name), key)
        return data

    def _note(self, node: yaml.Node, message: str, hint: str, path: KeyPath) -> None:
        self.problems.append(Problem(message, *_position(node), hint, ".".join(map(str, path))))


def read_yaml(text: str) -> YamlSource:
    """Read a text of at most one YAML document.

    Raises ManifestError: it is not YAML or exceeds a limit. No other problem is reported then.
    """
    source, root = YamlSource(), _compose(text)
    if root is not None:
        source.data = source.read(root, (), root)
    return source


def plain_value(text: str) -> Json:
    """The value of a scalar without quotes in YAML 1.2's core schema. An overlong number stays a string."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
    return float(text) if _FLOAT.fullmatch(text) else text
