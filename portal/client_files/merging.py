"""What is taken over from all files together: which servers, under which names, and with which variables."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pydantic import TypeAdapter, ValidationError

from manifests.names import namespace_of
from manifests.upstream_sections import HttpUpstream, StdioUpstream, Upstream
from portal.client_files.contents import Contents
from portal.client_files.existing import Existing, asked_for
from portal.client_files.quotation import quoted
from portal.client_files.secret_names import is_secret_name
from portal.client_files.servers import LeftOut, Origin, Server
from portal.client_files.variables import Input, Reference, Secret, variable_name
from portal.library.hidden_characters import respelt

MAX_NAME: Final = 70
"""A manifest takes 100: behind it there is room for a client's name and a number."""

_BLANK: Final = re.compile(r"[^\S ]")
_UPSTREAM: Final[TypeAdapter[StdioUpstream | HttpUpstream]] = TypeAdapter(Upstream)


@dataclass(frozen=True)
class Variable:
    """One that the manifest refers to. `value` is known of what stood in a file; a secret's is nobody's to see.

    `input_places` are the files for which VS Code asks for it, as what `input_id` calls there.
    """

    name: str
    used_by: tuple[str, ...]
    value: str | None = field(repr=False, default=None)
    input_id: str | None = None
    input_places: tuple[str, ...] = ()


@dataclass(frozen=True)
class Taken:
    """A server as the manifest gets it, and everywhere that it stands. `is_new` unless the manifest has it already."""

    name: str
    server: Server
    origins: tuple[Origin, ...]
    is_new: bool
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Merged:
    taken: tuple[Taken, ...]
    left_out: tuple[LeftOut, ...]
    variables: tuple[Variable, ...]


def merged(
    contents: Iterable[Contents], existing: Existing, environ: Mapping[str, str], kept: Mapping[str, str]
) -> Merged:
    """`kept` is what portal.env holds. Everything depends only on the files and on what is there already."""
    merging = _Merging(existing, environ, kept)
    for each in contents:
        for server in each.servers:
            merging.add(server)
    left_out = [out for each in contents for out in each.left_out] + merging.left_out
    names = _Naming(existing, environ, kept, merging.references(), merging.inputs())
    taken = tuple(_taken(row, names) for row in merging.rows)
    variables = (*merging.found(), *_variables(taken, names))
    return Merged(taken, tuple(left_out), tuple({each.name: each for each in variables}.values()))


_Row = tuple[str, Server, list[Origin], bool]
_Asked = tuple[str, str]
"""The name of a file's place, and the id of an input in it."""


class _Merging:
    def __init__(self, existing: Existing, environ: Mapping[str, str], kept: Mapping[str, str]) -> None:
        self.rows: list[_Row] = []
        self.left_out: list[LeftOut] = []
        self._existing = existing
        self._environ = {**kept, **environ}
        self._clients_environ = environ
        self._by_identity: dict[object, _Row] = {}
        self._found: dict[str, tuple[str, _Row]] = {}
        self._namespaces = {namespace_of(name) for name in existing.upstreams}

    def add(self, server: Server) -> None:
        if (row := self._by_identity.get(server.identity)) is not None:
            row[2].append(server.origin)
            return
        if reason := self._fault(server):
            self.left_out.append(LeftOut(server.origin, reason))
            return
        # A variable has one value: what it was found to stand for counts for all servers that follow.
        found = {variable: text for variable, (text, _) in self._found.items()}
        others = [name for name, _, _, is_new in self.rows if not is_new]
        there = self._find(server, found, others)
        name = there[0] if there is not None else self._free_name(server.origin)
        row = (name, server, [server.origin], there is None)
        self._found |= {variable: (text, row) for variable, text in (there[1] if there else {}).items()}
        self._namespaces.add(namespace_of(name))
        self._by_identity[server.identity] = row
        self.rows.append(row)

    def _find(
        self, server: Server, found: Mapping[str, str], others: Sequence[str]
    ) -> tuple[str, Mapping[str, str]] | None:
        there = self._existing.find(server, self._environ, found, others)
        names = {piece.name for piece in server.references()} - self._clients_environ.keys()
        if there is not None or server.origin.place.project is None or not names:
            return there
        # An earlier import may have given these names of their own, whatever is set under either by now. What may stand
        # for anything fits another account's, too, so only what an import would have called so is looked at.
        rest = {name: value for name, value in self._environ.items() if not names & _ends_of(name)}
        own = self._existing.called_like(server)
        strangers = [name for name in self._existing.upstreams if name not in own]
        return self._existing.find(server, rest, found, [*others, *strangers])

    def found(self) -> Iterator[Variable]:
        """What variables of the manifest stand for."""
        for variable, (text, (name, _, origins, _)) in self._found.items():
            if (input_id := asked_for(text)) is None:
                yield Variable(variable, (name,), text)
            else:
                places = tuple(origin.place.name for origin in origins)
                yield Variable(variable, (name,), None, input_id, places)

    def inputs(self) -> "dict[_Asked, str]":
        """The variables that the manifest has for inputs."""
        found = [(variable, asked_for(text), row) for variable, (text, row) in self._found.items()]
        return {
            (row[1].origin.place.name, input_id): variable
            for variable, input_id, row in found
            if input_id is not None
        }

    def references(self) -> dict[str, Reference]:
        return {piece.name: piece for _, server, *_ in self.rows for piece in server.references()}

    def _fault(self, server: Server) -> str:
        """Why a manifest cannot have the server; "" if it can."""
        try:
            (server.cwd or "").encode()
            _UPSTREAM.validate_python(server.filled(self._environ))
            server.named(_AnyName()).spec()
        except UnicodeEncodeError:
            return "its cwd is not UTF-8"
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(f"{part}" for part in first["loc"][1:] if part != "[key]")
            return f"its {place[:80]!a} {first['msg']}"
        except ValueError as error:
            return str(error)
        return ""

    def _free_name(self, origin: Origin) -> str:
        """The client's own name; with the client's behind it where another server gives the same namespace."""
        name = _usable(origin.name)
        if namespace_of(name) not in self._namespaces:
            return name
        number, name = 1, f"{name}-{origin.place.name}"
        candidate = name
        while namespace_of(candidate) in self._namespaces:
            number += 1
            candidate = f"{name}-{number}"
        return candidate


def _ends_of(name: str) -> frozenset[str]:
    """What it may have been given as a name of its own for: `EVIL_API_TOKEN_2` for `API_TOKEN`, and others."""
    whole = {name, re.sub(r"_\d+$", "", name)}
    behind = {each[found.end() :] for each in whole for found in re.finditer("_", each)}
    return frozenset(whole | behind)


class _AnyName(dict[Secret | Input | Reference, str]):
    """For a server whose text nobody writes down."""

    def __missing__(self, piece: Secret | Input) -> str:
        return "NAME"


class _Naming:
    """Gives each secret and each file's input a variable of its own; equal values under one name share it.

    An input gets none that is set already or used elsewhere: another's value would go to its server. So would it with a
    reference of a project's file, whoever wrote that, to what only the portal knows: the client has no such variable.
    """

    def __init__(
        self,
        existing: Existing,
        environ: Mapping[str, str],
        kept: Mapping[str, str],
        references: Mapping[str, Reference],
        inputs: Mapping[_Asked, str],
    ) -> None:
        self.values: dict[str, str] = {}
        self.inputs = dict(inputs)
        self._kept = kept
        self._environ = environ
        self._used = {*existing.variables, *references}
        self._others = (existing.variables | kept.keys()) - environ.keys()

    def of(
        self, server_name: str, server: Server, *, is_strangers: bool
    ) -> dict[Secret | Input | Reference, str]:
        prefix = variable_name(server_name)
        names: dict[Secret | Input | Reference, str] = {}
        own: dict[str, str] = {}
        for piece in server.pieces():
            if isinstance(piece, Secret) and piece not in names:
                names[piece] = self._name(prefix, piece.name, piece.value, is_own=piece.is_own)
                self.values[names[piece]] = piece.value
            elif isinstance(piece, Input) and piece not in names:
                names[piece] = self._input(prefix, (server.origin.place.name, piece.id))
            elif isinstance(piece, Reference) and is_strangers and piece.name in self._others:
                if piece.name not in own:
                    own[piece.name] = self._name(prefix, piece.name, None, is_own=False)
                    self._used.add(own[piece.name])
                names[piece] = own[piece.name]
        return names

    def _input(self, prefix: str, asked: _Asked) -> str:
        if asked not in self.inputs:
            # `${input:path}` is no path for programs, and what is no secret's name may be one that they look at.
            is_own = is_secret_name(asked[1])
            self.inputs[asked] = self._name(prefix, variable_name(asked[1]), None, is_own=is_own)
            self._used.add(self.inputs[asked])
        return self.inputs[asked]

    def _name(self, prefix: str, name: str, value: str | None, *, is_own: bool) -> str:
        candidates = [name] if is_own else []
        full = name if name.startswith(f"{prefix}_") else f"{prefix}_{name}"
        candidates.append(full)
        number = 1
        while not self._is_free(candidates[0], value):
            if len(candidates) > 1:
                candidates.pop(0)
            else:
                number += 1
                candidates[0] = f"{full}_{number}"
        return candidates[0]

    def _is_free(self, name: str, value: str | None) -> bool:
        """Whether the variable will have this value and no other, wherever it is set already."""
        known = [each[name] for each in (self.values, self._kept, self._environ) if name in each]
        return all(other == value for other in known) and (bool(known) or name not in self._used)


def _taken(row: _Row, names: _Naming) -> Taken:
    name, server, origins, is_new = row
    if not is_new:
        return Taken(name, server, tuple(origins), is_new, server.notes)
    is_strangers = all(origin.place.project for origin in origins)
    found = names.of(name, server, is_strangers=is_strangers)
    notes = [f"called {quoted(server.origin.name)} there"] if name != server.origin.name else []
    renamed = {piece.name: own for piece, own in found.items() if isinstance(piece, Reference)}
    notes += [
        f"{theirs} is {own} for it: {theirs} is another's, and it comes from a file of the project"
        for theirs, own in renamed.items()
    ]
    return Taken(name, server.named(found), tuple(origins), is_new, (*notes, *server.notes))


def _usable(name: str) -> str:
    """A name that a manifest takes: readable, not too long, with a letter or digit for Python."""
    name = respelt(_BLANK.sub("_", name[:MAX_NAME]), lambda _: "_").strip()
    return name if re.search(r"[A-Za-z0-9]", name) else "server"


def _variables(taken: Sequence[Taken], names: _Naming) -> Iterable[Variable]:
    users: dict[str, list[Taken]] = {}
    references: dict[str, Reference] = {}
    for each in (each for each in taken if each.is_new):
        for piece in each.server.pieces():
            if isinstance(piece, Reference):
                users.setdefault(piece.name, []).append(each)
                if piece.name not in references or piece.default is None:
                    references[piece.name] = piece
    ids = {name: input_id for (_, input_id), name in names.inputs.items()}
    for name in (name for name, piece in references.items() if piece.default is None):
        used_by = tuple(dict.fromkeys(each.name for each in users[name]))
        places = dict.fromkeys(origin.place.name for each in users[name] for origin in each.origins)
        is_asked = name in ids
        yield Variable(
            name, used_by, names.values.get(name), ids.get(name), tuple(places) if is_asked else ()
        )
