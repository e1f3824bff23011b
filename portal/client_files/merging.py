"""What is taken over from all files together: which servers, under which names, and with which variables."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pydantic import TypeAdapter, ValidationError

from manifests.names import namespace_of
from manifests.upstream_sections import HttpUpstream, StdioUpstream, Upstream
from portal.client_files.contents import Contents
from portal.client_files.existing import Existing
from portal.client_files.servers import LeftOut, Origin, Server
from portal.client_files.variables import Reference, Secret, variable_name

MAX_NAME: Final = 80

_UPSTREAM: Final[TypeAdapter[StdioUpstream | HttpUpstream]] = TypeAdapter(Upstream)


@dataclass(frozen=True)
class Variable:
    """One that the manifest refers to. `value` is known of what stood in a file; a secret's is nobody's to see."""

    name: str
    used_by: tuple[str, ...]
    value: str | None = field(repr=False, default=None)
    input_id: str | None = None
    input_place: str = ""


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
    merging = _Merging(existing, {**kept, **environ})
    for each in contents:
        for server in each.servers:
            merging.add(server)
    left_out = [out for each in contents for out in each.left_out] + merging.left_out
    servers = [_noted(*row) for row in merging.rows]
    names = _Naming(existing, environ, kept, merging.references())
    taken = tuple(
        Taken(
            name,
            server.named(names.of(name, server)) if is_new else server,
            tuple(origins),
            is_new,
            notes,
        )
        for name, server, origins, is_new, notes in servers
    )
    variables = (*merging.found, *_variables(taken, names.values))
    return Merged(taken, tuple(left_out), tuple({each.name: each for each in variables}.values()))


_Row = tuple[str, Server, list[Origin], bool]


class _Merging:
    def __init__(self, existing: Existing, environ: Mapping[str, str]) -> None:
        self.rows: list[_Row] = []
        self.left_out: list[LeftOut] = []
        self.found: list[Variable] = []
        self._existing = existing
        self._environ = environ
        self._by_identity: dict[object, _Row] = {}
        self._namespaces = {namespace_of(name) for name in existing.upstreams}

    def add(self, server: Server) -> None:
        if (row := self._by_identity.get(server.identity)) is not None:
            row[2].append(server.origin)
            return
        if reason := self._fault(server):
            self.left_out.append(LeftOut(server.origin, reason))
            return
        # A variable has one value: what it was found to stand for counts for all servers that follow.
        found = {each.name: each.value for each in self.found if each.value is not None}
        others = [name for name, _, _, is_new in self.rows if not is_new]
        there = self._existing.find(server, {**found, **self._environ}, others)
        name = there[0] if there is not None else self._free_name(server.origin)
        row = (name, server, [server.origin], there is None)
        self.found += [
            Variable(variable, (name,), value) for variable, value in (there[1] if there else {}).items()
        ]
        self._namespaces.add(namespace_of(name))
        self._by_identity[server.identity] = row
        self.rows.append(row)

    def references(self) -> dict[str, Reference]:
        pieces = [p for _, server, *_ in self.rows for t in server.templates() for p in t]
        return {piece.name: piece for piece in pieces if isinstance(piece, Reference)}

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


class _AnyName(dict[Secret, str]):
    """For a server whose text nobody writes down."""

    def __missing__(self, secret: Secret) -> str:
        return secret.name


class _Naming:
    """Gives each secret a variable of its own; equal values under one name share it."""

    def __init__(
        self,
        existing: Existing,
        environ: Mapping[str, str],
        kept: Mapping[str, str],
        references: Mapping[str, Reference],
    ) -> None:
        self.values: dict[str, str] = {}
        self._kept = kept
        self._environ = environ
        self._used = existing.variables | references.keys()

    def of(self, server_name: str, server: Server) -> dict[Secret, str]:
        secrets = [p for t in server.templates() for p in t if isinstance(p, Secret)]
        names: dict[Secret, str] = {}
        for secret in secrets:
            if secret not in names:
                names[secret] = self._name(variable_name(server_name), secret)
                self.values[names[secret]] = secret.value
        return names

    def _name(self, prefix: str, secret: Secret) -> str:
        candidates = [secret.name] if secret.is_own else []
        full = secret.name if secret.name.startswith(f"{prefix}_") else f"{prefix}_{secret.name}"
        candidates.append(full)
        number = 1
        while not self._is_free(candidates[0], secret.value):
            if len(candidates) > 1:
                candidates.pop(0)
            else:
                number += 1
                candidates[0] = f"{full}_{number}"
        return candidates[0]

    def _is_free(self, name: str, value: str) -> bool:
        """Whether the variable will have this value and no other, wherever it is set already."""
        known = [each[name] for each in (self.values, self._kept, self._environ) if name in each]
        return all(other == value for other in known) and (bool(known) or name not in self._used)


def _noted(
    name: str, server: Server, origins: list[Origin], is_new: bool
) -> tuple[str, Server, list[Origin], bool, tuple[str, ...]]:
    notes = list(server.notes)
    if is_new and name != server.origin.name:
        notes.insert(0, f"called {server.origin.name[:60]!a} there")
    return name, server, origins, is_new, tuple(notes)


def _usable(name: str) -> str:
    """A name that a manifest takes: printable, not too long, with a letter or digit for Python."""
    name = "".join(c if c.isprintable() else "_" for c in name)[:MAX_NAME].strip()
    return name if re.search(r"[A-Za-z0-9]", name) else "server"


def _variables(taken: Sequence[Taken], values: Mapping[str, str]) -> Iterable[Variable]:
    users: dict[str, list[str]] = {}
    references: dict[str, tuple[Reference, str]] = {}
    for each in taken:
        for piece in (p for t in each.server.templates() for p in t):
            if isinstance(piece, Reference) and each.is_new:
                users.setdefault(piece.name, []).append(each.name)
                if piece.name not in references or piece.default is None:
                    references[piece.name] = (piece, each.origins[0].place.name)
    for name, (piece, place) in references.items():
        if piece.default is None:
            used_by = tuple(dict.fromkeys(users[name]))
            yield Variable(name, used_by, values.get(name), piece.input_id, place if piece.input_id else "")
