"""References in the strings of a manifest: `${NAME}`, `${NAME:-default}`, `${command:...}`, `${keyring:service/user}`;
portal.env, which holds variables that the environment lacks; and tokens that should be references.

References are filled in after YAML is read, so that no value can add a key or a line, and once, so that no value is
read as a reference: what runs is what the operator wrote into the file. The default is taken when the variable is unset
or empty, as in a shell; without one an empty variable is an empty text and an unset one is an error. `$${` stands for a
literal `${`; every other `$` is itself.

portal.env has one `NAME=value` a line; blank lines and lines that begin with `#` say nothing. A value is the rest of
its line, or stands in double quotes with the escapes of JSON, or in single quotes as it is.
"""

import json
import re
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias

from manifests.errors import KeyPath, ManifestError, Place, Problem, problem_at
from manifests.json_value import Json
from manifests.own_files import read_capped, utf8


@dataclass(frozen=True)
class SecretReference:
    """`text` is what stands behind the colon: a command line, or `service/user`."""

    kind: Literal["command", "keyring"]
    text: str


class SecretError(Exception):
    """The value cannot be had. The message says why and shows nothing of it; `hint` says what to do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


FetchSecrets: TypeAlias = Callable[
    [Collection[SecretReference], Path], Mapping[SecretReference, str | SecretError]
]
"""Gets all of these at once; commands run in the folder. It may take as long as its own deadline, and never raises."""


def fetch_nothing(
    references: Collection[SecretReference], folder: Path
) -> Mapping[SecretReference, str | SecretError]:
    """Of whoever loads a manifest only to look at it."""
    return {reference: SecretError(f"no {reference.kind} is asked here") for reference in references}


@dataclass(frozen=True)
class Template:
    """A string with references to secrets in it; everything else in it was filled in already."""

    parts: tuple[str | SecretReference, ...]

    @property
    def references(self) -> tuple[SecretReference, ...]:
        return tuple(part for part in self.parts if isinstance(part, SecretReference))

    def filled(self, secrets: Mapping[SecretReference, str]) -> str:
        return "".join(part if isinstance(part, str) else secrets[part] for part in self.parts)


@dataclass(frozen=True)
class VariableReference:
    """To a variable of the environment, or of portal.env; without a default it has to be there."""

    name: str
    default: str | None = None

    def __str__(self) -> str:
        return f"${{{self.name}}}" if self.default is None else f"${{{self.name}:-{self.default}}}"


@dataclass(frozen=True)
class FaultyReference:
    """What looks like one, and is none."""

    written: str


Piece: TypeAlias = str | VariableReference | SecretReference | FaultyReference

_REFERENCE = re.compile(
    r"\$\$\{"
    r"|\$\{(?P<kind>command|keyring):(?!-)(?P<text>[^}]*)\}"
    r"|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^$}]*))?\}"
    r"|(?P<faulty>\$\{[^}]*\}?)"
)


def pieces(text: str) -> Iterator[Piece]:
    """A string in its order: the references, and what stands between them, with `$${` as the `${` that it means."""
    end = 0
    for match in _REFERENCE.finditer(text):
        yield text[end : match.start()]
        end = match.end()
        if match["name"]:
            yield VariableReference(match["name"], match["default"])
        elif kind := match["kind"]:
            yield SecretReference("command" if kind == "command" else "keyring", match["text"].strip())
        else:
            yield FaultyReference(match[0]) if match["faulty"] else "${"
    yield text[end:]


_SECTIONS = (("upstreams",), ("server",))
"""Where references mean something; those to variables do so in `capabilities.environment`, too, which scripts read.
What else scripts may do does not depend on the environment."""

NO_SECRETS = frozenset({"HOME", "LANG", "PATH", "PWD", "TMPDIR", "USER"})
"""Variables that are none, wherever they stand. Neither is one with a default in the manifest: that is a setting."""


@dataclass
class Interpolation:
    """Fills in references, noting problems and which values now hold something from the environment."""

    environ: Mapping[str, str]
    places: Mapping[KeyPath, Place]
    fetch_secrets: FetchSecrets
    folder: Path
    problems: list[Problem] = field(default_factory=list)
    filled: set[KeyPath] = field(default_factory=set)
    templates: dict[KeyPath, Template] = field(default_factory=dict, repr=False)
    """The strings that hold a secret, to be filled in anew when it has changed."""
    taken: dict[KeyPath, set[str]] = field(default_factory=dict, repr=False)
    """The secrets that references stood for, by the string that holds them."""
    _fetched: Mapping[SecretReference, str | SecretError] = field(default_factory=dict, repr=False)

    def manifest(self, data: Json) -> Json:
        """The same data with references filled in; keys stay as they are."""
        texts = (text for path, text in _texts(data) if path[:1] in _SECTIONS)
        wanted = {each for text in texts for each in pieces(text) if isinstance(each, SecretReference)}
        if wanted:  # all at once: each command is run once, and none waits for another
            self._fetched = self.fetch_secrets(wanted, self.folder)
        return _changed(data, (), self._text)

    def _text(self, value: Json, path: KeyPath) -> Json:
        is_read = path[:1] in _SECTIONS or path[:2] == ("capabilities", "environment")
        if not isinstance(value, str) or "${" not in value or not is_read:
            return value
        template = Template(tuple(self._part(piece, path) for piece in pieces(value)))
        if template.references:
            self.templates[path] = template
        return template.filled({each: self._secret(each, path) for each in template.references})

    def _part(self, piece: Piece, path: KeyPath) -> str | SecretReference:
        if isinstance(piece, str):
            return piece
        self.filled.add(path)
        if isinstance(piece, SecretReference) and path[:1] in _SECTIONS:
            return piece
        if isinstance(piece, SecretReference):
            message = f"${{{piece.kind}:...}} means nothing here, where every script could read it"
            self._note(path, message, "It may stand in upstreams and in server.")
            return ""
        if isinstance(piece, FaultyReference):
            hint = "Write ${NAME} or ${NAME:-default}; the default holds no $. A literal ${ is written $${."
            self._note(path, f"{piece.written[:60]!r} is not a reference to an environment variable", hint)
            return ""
        value = self.environ.get(piece.name)
        is_setting = piece.name in NO_SECRETS or piece.default
        if value and not is_setting and path[:1] in _SECTIONS:
            self.taken.setdefault(path, set()).add(value)
        if value is None and piece.default is None:
            hint = f"Set it, here or in portal.env, or give a setting a default: ${{{piece.name}:-default}}."
            self._note(path, f"the environment variable {piece.name} is not set", hint)
        return value or piece.default or ""

    def _secret(self, reference: SecretReference, path: KeyPath) -> str:
        value = self._fetched[reference]
        if isinstance(value, SecretError):
            self._note(path, str(value), value.hint)
            return ""
        self.taken.setdefault(path, set()).add(value)
        return value

    def _note(self, path: KeyPath, message: str, hint: str) -> None:
        self.problems.append(problem_at(self.places, path, message, hint))


def _changed(value: Json, path: KeyPath, change: Callable[[Json, KeyPath], Json]) -> Json:
    """The same data with each value in it that is no list or mapping as `change` makes it."""
    if isinstance(value, dict):
        return {key: _changed(item, (*path, key), change) for key, item in value.items()}
    if isinstance(value, list):
        return [_changed(item, (*path, index), change) for index, item in enumerate(value)]
    return change(value, path)


def _texts(value: Json, path: KeyPath = ()) -> Iterator[tuple[KeyPath, str]]:
    """Every text in data, with its path."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _texts(item, (*path, key))


MAX_BYTES: Final = 1024 * 1024

_LINE: Final = re.compile(r"(?:export[ \t]+)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*(?P<value>.*)")
_BARE: Final = re.compile(r"[A-Za-z0-9_./:@%+=,~^-]+")
_FIT: Final = re.compile(r"[^\0\ud800-\udfff]*")
_HEADING: Final = (
    "# Secrets that portal.yaml refers to as ${NAME}. The environment's own values count more than these."
)


def env_path(manifest: Path) -> Path:
    """`portal.env` for `portal.yaml`."""
    return manifest.parent / f"{manifest.stem or 'portal'}.env"


def read_env(path: Path) -> dict[str, str]:
    """The variables of the file; none if there is no such file.

    Raises:
        ManifestError: It cannot be read or used, or others than its owner can read it; it carries the first problem.
    """
    try:
        content, mode = read_capped(path, MAX_BYTES)
    except FileNotFoundError:
        return {}
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        hint = f"It holds secrets: chmod 600 {path.name}"
        raise ManifestError([Problem("is not its owner's alone", hint=hint)], path.name)
    return _parsed(content, path.name)


def env_text(values: Mapping[str, str], before: str = "") -> str:
    """The file that says these, behind what it says `before`; a new one begins with a heading."""
    start = before or _HEADING
    gap = "" if start.endswith("\n") else "\n"
    return f"{start}{gap}" + "".join(f"{name}={_quoted(value)}\n" for name, value in values.items())


def _parsed(content: bytes, file: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for number, line in enumerate(map(str.strip, utf8(content, file).split("\n")), 1):
        if not line or line.startswith("#"):
            continue
        found = _LINE.fullmatch(line)
        value = _unquoted(found["value"]) if found else None
        if not found or value is None or found["name"] in values:
            # Without the line itself: it may well be a secret.
            told = "is not NAME=value, or a NAME that is here already"
            raise ManifestError([Problem(told, number, 1, 'Quote a value that needs it: NAME="…".')], file)
        values[found["name"]] = value
    return values


def _unquoted(text: str) -> str | None:
    """The value that a text stands for; None if its quotes do not match or it holds what no variable can."""
    value: object = text
    if text.startswith('"'):
        try:
            value = json.loads(text)
        except ValueError:
            return None
    elif text.startswith("'"):
        value = text[1:-1] if len(text) > 1 and text.endswith("'") and "'" not in text[1:-1] else None
    return value if isinstance(value, str) and _FIT.fullmatch(value) else None


def _quoted(value: str) -> str:
    return value if _BARE.fullmatch(value) else json.dumps(value, ensure_ascii=False)


TOKEN: Final = re.compile(
    r"(?<![A-Za-z0-9_-])(?:github_pat_|gh[pous]_|glpat-|sk-|[sr]k_live_|xox[bp]-|xapp-|A[KS]IA|AIza|ya29\.|npm_|pypi-"
    r"|hf_|ntn_|lin_api_|dop_v1_|shpat_|SG\.|figd_|eyJ)[A-Za-z0-9_./+=-]{12,}"
)
"""A credential as well-known services write theirs: GitHub, GitLab, AI providers, Stripe, Slack, clouds, registries."""
_PRIVATE_KEY: Final = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")


def holds_token(text: str) -> bool:
    """Whether a text holds a well-known kind of credential."""
    return bool(_PRIVATE_KEY.search(text) or TOKEN.search(text))


def literal_tokens(written: Json, path: KeyPath = ()) -> Iterator[KeyPath]:
    """Where a manifest, as it was written, holds such credentials."""
    return (place for place, text in _texts(written, path) if holds_token(text))
