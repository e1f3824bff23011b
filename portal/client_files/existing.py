"""The portal.yaml that is there already: what it names, and adding to it without touching what it says."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from manifests.errors import ManifestError
from manifests.json_value import Json
from manifests.references import SecretReference, VariableReference, pieces
from manifests.yaml_source import YamlSource, read_yaml
from portal.client_files.fitting import Gap, fitted
from portal.client_files.servers import Server
from portal.client_files.variables import Secret

_NAMED: Final = re.compile(r"(?<!\$)\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-[^}]*)?\}")
"""A variable, also in what is no string of the manifest."""

_ASKED: Final = re.compile("\0[^\0]*\0(?P<id>[^\0]*)\0", re.DOTALL)
"""Stands for what VS Code asks for: the file, and the input's id in it. No text of a file holds its NUL."""

_COMPARED: Final = ("command", "args", "env", "cwd", "url", "headers")


def asked_for(text: str) -> str | None:
    """The id of the input that a variable was found to stand for; None if that is a text."""
    found = _ASKED.fullmatch(text)
    return found["id"] if found else None


class CannotAddError(ValueError):
    """The manifest is written in a way that nothing can be added to; the message says which."""


@dataclass(frozen=True)
class Existing:
    """`text` is that of the manifest, "" if there is none yet."""

    text: str = ""
    source: YamlSource = field(default_factory=YamlSource)

    @classmethod
    def of(cls, text: str) -> "Existing":
        """
        Raises:
            ManifestError: It is not YAML.
        """
        source = read_yaml(text)
        if source.problems:
            raise ManifestError(source.problems)
        return cls(text, source)

    @property
    def upstreams(self) -> Mapping[str, Json]:
        found = self.source.data.get("upstreams") if isinstance(self.source.data, dict) else None
        return found if isinstance(found, dict) else {}

    @property
    def variables(self) -> frozenset[str]:
        """Names that it refers to, wherever."""
        return frozenset(_NAMED.findall(self.text))

    @property
    def needed(self) -> frozenset[str]:
        """The variables without which it does not load."""
        return frozenset(each.name for each in self._references() if each.default is None)

    @property
    def defaulted(self) -> frozenset[str]:
        """The other variables: without them it loads, but perhaps as another one."""
        return frozenset(each.name for each in self._references()) - self.needed

    @property
    def starts_of_urls(self) -> frozenset[str]:
        """Those of the variables `needed` with which the URL of an upstream begins."""
        urls = [spec.get("url") for spec in self.upstreams.values() if isinstance(spec, dict)]
        first = (next(filter(None, pieces(url)), "") for url in urls if isinstance(url, str))
        return self.needed & {each.name for each in first if isinstance(each, VariableReference)}

    def _references(self) -> Iterator[VariableReference]:
        for text in _texts(self.source.data):
            yield from (piece for piece in pieces(text) if isinstance(piece, VariableReference))

    def find(
        self, server: Server, environ: Mapping[str, str], found: Mapping[str, str], others: Collection[str]
    ) -> tuple[str, Mapping[str, str]] | None:
        """What it calls the server, if it has it, and the server's secrets by the variables that it has for them.

        A variable that is not set may stand for any value, and each for an input (`asked_for`). `found` is what they
        were found to stand for so far, `others` are upstreams that other servers are.
        """
        inputs = {each: f"\0{server.origin.place.name}\0{each.id}\0" for each in server.inputs()}
        filled = server.filled(environ, inputs)
        hidden = {piece.value for piece in server.pieces() if isinstance(piece, Secret)}
        hidden.update(inputs.values())
        # With variables unset several may fit, as for two accounts: first those that an import would have called so.
        named = self.called_like(server)
        for name in [name for name in (*named, *self.upstreams) if name not in others]:
            spec = self.upstreams[name]
            comparison = _Comparison(environ, found, has_inputs=bool(inputs))
            if isinstance(spec, dict) and comparison.is_same(spec, filled):
                new = comparison.found.items() - found.items()
                return name, {variable: value for variable, value in sorted(new) if value in hidden}
        return None

    def called_like(self, server: Server) -> Sequence[str]:
        """The upstreams that an import of the server may have made, by their names; the likeliest first."""
        own = (f"{server.origin.name}-{server.origin.place.name}", server.origin.name)
        numbered = [name for name in self.upstreams if name.startswith(tuple(f"{each}-" for each in own))]
        return [*dict.fromkeys([*(name for name in own if name in self.upstreams), *numbered])]

    def with_upstreams(self, lines: Sequence[str], upstreams: Mapping[str, Json]) -> str:
        """The text with more upstreams, whose `lines` are indented by two, as they are by themselves in `upstreams`.

        Raises:
            CannotAddError: There is no place at which they could be put.
        """
        data = self.source.data if self.source.data is not None else {}
        if not isinstance(data, dict):
            raise CannotAddError("it is no mapping of keys to values")
        end = "\r\n" if "\r\n" in self.text else "\n"
        rows = self.text.splitlines(keepends=True)
        if rows and not rows[-1].endswith("\n"):
            rows[-1] += end
        index, width = self._gap(rows)
        added = [f"{' ' * (width - 2)}{line}{end}" if line else end for line in lines]
        if "upstreams" not in data:
            added = [f"upstreams:{end}", *added]
        text = "".join([*rows[:index], *added, *rows[index:]])
        wanted = {**data, "upstreams": {**self.upstreams, **upstreams}}
        try:
            reread = read_yaml(text)
        except ManifestError:
            raise CannotAddError("it is written in a way that cannot be added to") from None
        if reread.problems or reread.data != wanted:
            raise CannotAddError("it is written in a way that cannot be added to")
        return text

    def _gap(self, rows: Sequence[str]) -> tuple[int, int]:
        """Before which line to add, and how far to indent."""
        places = self.source.places
        own = places.get(("upstreams",))
        if own is None:
            return len(rows), 2
        first = next((places["upstreams", name] for name in self.upstreams), None)
        width = 2 if first is None else first.column - 1
        if width < 2 or (first is not None and first.line == own.line):
            raise CannotAddError("its upstreams are written on one line, or not indented by two")
        after = [place.line for path, place in places.items() if len(path) == 1 and place.line > own.line]
        index = min(after) - 1 if after else len(rows)
        # What is said before the next section belongs to that, not to the upstreams.
        while index > own.line and (not rows[index - 1].strip() or rows[index - 1].startswith("#")):
            index -= 1
        return index, width


def _texts(data: Json) -> Iterator[str]:
    if isinstance(data, dict):
        data = list(data.values())
    if isinstance(data, list):
        for each in data:
            yield from _texts(each)
    elif isinstance(data, str):
        yield data


class _Comparison:
    """Of an upstream as it is written with a server as it is; `found` is what its variables must stand for."""

    def __init__(self, environ: Mapping[str, str], found: Mapping[str, str], *, has_inputs: bool) -> None:
        self._environ = environ
        self._has_inputs = has_inputs
        self.found = dict(found)

    def is_same(self, spec: Mapping[str, Json], filled: Mapping[str, Json]) -> bool:
        return all(self._matches(spec.get(key) or None, filled.get(key) or None) for key in _COMPARED)

    def _matches(self, written: Json, value: Json) -> bool:
        if isinstance(written, dict) and isinstance(value, dict):
            return written.keys() == value.keys() and all(
                self._matches(written[k], value[k]) for k in written
            )
        if isinstance(written, list) and isinstance(value, list):
            pairs = zip(written, value, strict=False)
            return len(written) == len(value) and all(self._matches(*pair) for pair in pairs)
        if isinstance(written, str) and isinstance(value, str):
            return self._matches_text(written, value)
        return bool(written == value)

    def _matches_text(self, written: str, value: str) -> bool:
        known: dict[str, str] = {}
        # A variable may as well stand for an input, whatever it is here: both are looked at when it is known which.
        is_asked = self._has_inputs and "\0" in value
        found = fitted(self._pieces(written, known, is_asked=is_asked), value)
        if found is None:
            return False
        for name, text in found.items():
            if name not in known or asked_for(text) is not None:
                self.found[name] = text
            elif text != known[name]:
                return False
        return True

    def _pieces(self, written: str, known: dict[str, str], *, is_asked: bool) -> Iterator[str | Gap]:
        """The text with what its variables stand for, and gaps for those of which that is to be found."""
        for piece in pieces(written):
            if isinstance(piece, VariableReference):
                yield self._meant(piece, known, is_asked=is_asked)
            elif isinstance(piece, str):
                yield piece
            else:
                yield Gap(None) if isinstance(piece, SecretReference) else piece.written

    def _meant(self, reference: VariableReference, known: dict[str, str], *, is_asked: bool) -> str | Gap:
        name = reference.name
        value = self.found.get(name)
        if value is None:
            value = self._environ.get(name) or reference.default
            if value is not None and is_asked:
                known[name] = value
                value = None
        return Gap(name) if value is None else value
