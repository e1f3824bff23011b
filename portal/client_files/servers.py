"""A server as one client's file names it, in the words of a manifest."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

from manifests.json_value import Json
from portal.client_files.command_lines import is_word
from portal.client_files.places import Place
from portal.client_files.secret_looks import looks_secret
from portal.client_files.variables import Input, Piece, Reference, Secret, Template, shown, written

_TELLING: Final = 8
"""A shorter secret may well stand elsewhere by chance, and so may a word: `postgres` in the name of a package."""
_NO_WORD: Final = re.compile(r"(?=.*[\d!$%^&*+=#?])\S+", re.DOTALL)

_NUMBERED_WORD: Final = re.compile(r"[A-Za-z][a-z]*(?:[-._][a-z]+)*[-._]?\d*")
"""As packages and their versions are called, and passwords, too: `hunter22`."""

UNKNOWN: Final = "unknown"
"""In the place of what is not known here, where only the form of a text is looked at."""

UNKNOWN_URL: Final = "https://unknown.example"
"""The same for that with which a URL begins."""

_MOST: Final = 50
"""Secrets of one entry that are looked for elsewhere in it; nobody writes more of them twice."""


@dataclass(frozen=True)
class Origin:
    """Where a server stands: in `container` of the file, under `name`."""

    place: Place
    name: str
    line: int | None
    container: tuple[str, ...]


@dataclass(frozen=True)
class Server:
    """A server that the portal can stand in front of: `command` or `url` is None.

    `notes` say what of its entry was not taken over.
    """

    origin: Origin
    command: Template | None = None
    args: tuple[Template, ...] = ()
    env: Mapping[str, Template] = field(default_factory=dict)
    cwd: str | None = None
    url: Template | None = None
    headers: Mapping[str, Template] = field(default_factory=dict)
    transport: str | None = None
    oauth: Mapping[str, str] | None = None
    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def identity(self) -> object:
        """Equal for the same server, whatever it is called and whichever file it is from."""
        env = sorted(self.env.items())
        # By their names alone: those that differ in case only are in order already, and templates have none.
        headers = sorted(((k.lower(), v) for k, v in self.headers.items()), key=lambda header: header[0])
        ways = (self.command, self.args, tuple(env), self.cwd, self.url, tuple(headers), self.transport)
        return (*ways, None if self.oauth is None else tuple(self.oauth.items()), self.allow, self.deny)

    def pieces(self) -> Iterator[Piece]:
        """Those of every text in which something may be filled in, in the order of the manifest."""
        texts = (self.command or (), *self.args, *self.env.values(), self.url or (), *self.headers.values())
        return chain.from_iterable(texts)

    def named(self, names: "Mapping[Secret | Input | Reference, str]") -> "Server":
        """The same with a variable in the place of each secret and each input, and other names for some references."""

        def piece(old: Piece) -> str | Reference:
            if isinstance(old, Secret | Input):
                return Reference(names[old])
            if isinstance(old, Reference) and old in names:
                return Reference(names[old], old.default)
            return old

        return self._mapped(lambda template: tuple(map(piece, template)))

    def references(self) -> tuple[Reference, ...]:
        return tuple(piece for piece in self.pieces() if isinstance(piece, Reference))

    def inputs(self) -> frozenset[Input]:
        return frozenset(piece for piece in self.pieces() if isinstance(piece, Input))

    def with_secrets_everywhere(self) -> "Server":
        """The same with what is a secret at one place taken for one wherever it stands, but for its program."""
        pieces = [*self.pieces()]
        rest = "\0".join(piece for piece in pieces if isinstance(piece, str))
        is_strangers = self.origin.place.project is not None
        secrets = {
            p.value: p
            for p in pieces
            if isinstance(p, Secret) and p.value in rest and _is_telling(p.value, is_strangers=is_strangers)
        }
        if not secrets:
            return self
        longest = sorted(secrets, key=len, reverse=True)[:_MOST]
        pattern = "|".join(map(_alone, longest))

        def split(piece: str) -> Iterator[str | Secret]:
            for part in filter(None, re.split(f"({pattern})", piece)):
                yield secrets.get(part, part)

        def known(template: Template) -> Template:
            return tuple(p for each in template for p in (split(each) if isinstance(each, str) else (each,)))

        return replace(self._mapped(known), command=self.command)

    def with_names_of_project(self) -> "Server":
        """The same with names for its secrets that no variable of a person has, so that none goes in their place.

        A server's name in front is not enough: of `GH` and `TOKEN` it makes `GH_TOKEN`.
        """

        def piece(old: Piece) -> Piece:
            return Secret(old.value, f"OF_PROJECT_{old.name}") if isinstance(old, Secret) else old

        return self._mapped(lambda template: tuple(map(piece, template)))

    def _mapped(self, change: Callable[[Template], Template]) -> "Server":
        return replace(
            self,
            command=self.command and change(self.command),
            args=tuple(map(change, self.args)),
            env={name: change(value) for name, value in self.env.items()},
            url=self.url and change(self.url),
            headers={name: change(value) for name, value in self.headers.items()},
        )

    def spec(self) -> dict[str, Json]:
        """What the manifest says of it. Secrets must have been replaced.

        Raises:
            ValueError: A manifest cannot say it.
        """
        spec: dict[str, object] = {}
        if self.command is not None:
            spec |= {"command": self.command, "args": [*self.args], "env": self.env, "cwd": self.cwd}
        if self.url is not None:
            spec |= {"url": self.url, "headers": self.headers, "transport": self.transport}
        spec["tools"] = self._tools()
        said = {key: value for key, value in spec.items() if value}
        if self.oauth is not None:
            said["oauth"] = self.oauth
        return {key: _said(value) for key, value in said.items()}

    def _tools(self) -> dict[str, Json]:
        allow = {} if self.allow is None else {"allow": [*self.allow]}
        return {**allow, "deny": [*self.deny]} if self.deny else allow

    def filled(
        self, environ: Mapping[str, str], answers: Mapping[Input, str] | None = None
    ) -> dict[str, Json]:
        """The same as `spec` of the whole, with values in the place of secrets, references and inputs."""

        def text(template: Template) -> str:
            return "".join(_value(piece, environ, answers or {}) for piece in template)

        if self.url is not None:
            url, headers = text(self.url), {name: text(value) for name, value in self.headers.items()}
            if _begins_unknown(self.url, environ, answers or {}):
                url = UNKNOWN_URL + url.removeprefix(UNKNOWN)
            return {"url": url, "headers": headers, "oauth": self.oauth, "tools": self._tools()}
        command = {"command": text(self.command or ()), "args": [text(each) for each in self.args]}
        env = {name: text(value) for name, value in self.env.items()}
        return {**command, "env": env, "cwd": self.cwd, "tools": self._tools()}

    def told(self) -> str:
        """How it is started or reached, for people."""
        if self.url is not None:
            return shown(self.url)
        return " ".join(map(shown, (self.command or (), *self.args)))


@dataclass(frozen=True)
class LeftOut:
    """An entry that is not taken over, and why."""

    origin: Origin
    reason: str


def _is_telling(secret: str, *, is_strangers: bool) -> bool:
    """Whether it is no chance that it stands elsewhere. With less, a project's file could hide a package's name."""
    if is_strangers:
        return is_word(secret) and looks_secret(secret)
    return len(secret) >= _TELLING and bool(_NO_WORD.fullmatch(secret))


def _alone(secret: str) -> str:
    """A pattern for it: within a word only for what is none by chance, or behind an option of one letter."""
    pattern = re.escape(secret)
    if looks_secret(secret) or not _NUMBERED_WORD.fullmatch(secret):
        return pattern
    return rf"(?:(?<![\w.@-])|(?<=\A-[A-Za-z])){pattern}(?![\w.-])"


def _said(value: object) -> Json:
    """As a manifest has it, where no text of a file is a reference of ours. In keys a manifest has none."""
    if isinstance(value, Mapping):
        return {key: _said(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_said(item) for item in value]
    if isinstance(value, str):
        return written((value,))
    assert isinstance(value, tuple)  # a template
    return written(value)


def _begins_unknown(url: Template, environ: Mapping[str, str], answers: Mapping[Input, str]) -> bool:
    """Whether it is not known here whether it begins as a URL does."""
    first = next((piece for piece in url if piece), "")
    if isinstance(first, Input):
        return first not in answers
    return isinstance(first, Reference) and first.default is None and first.name not in environ


def _value(piece: Piece, environ: Mapping[str, str], answers: Mapping[Input, str]) -> str:
    if isinstance(piece, Input):
        return answers.get(piece, UNKNOWN)
    if isinstance(piece, Reference) and piece.default is not None:
        return environ.get(piece.name) or piece.default
    if isinstance(piece, Reference):
        return environ.get(piece.name, UNKNOWN)
    return piece.value if isinstance(piece, Secret) else piece
