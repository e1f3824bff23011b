"""References in the strings of a manifest: `${NAME}`, `${NAME:-default}`, `${command:...}`, `${keyring:service/user}`,
`${caller.claim}`; portal.env, which holds variables that the environment lacks; and tokens that should be references.

References are resolved after parsing the YAML, so that no value can add a key, and only once, so that no value is
parsed as a reference. The default applies if the variable is unset or empty, as in a shell. Without a default an empty
variable is an empty string, and an unset one is an error. `$${` is a literal `${`; every other `$` is literal.

portal.env has one `NAME=value` per line; blank lines and lines that begin with `#` are ignored. A value is the rest of
the line, a JSON string in double quotes, or a literal in single quotes.
"""

import json
import re
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias
from zlib import crc32

from manifests.errors import KeyPath, ManifestError, Place, Problem, problem_at
from manifests.json_value import Json
from manifests.own_files import ManifestFiles, read_capped, utf8


@dataclass(frozen=True)
class SecretReference:
    """A reference to a secret; `text` follows the colon: a command line, or `service/user`."""

    kind: Literal["command", "keyring"]
    text: str


class SecretError(Exception):
    """The secret cannot be fetched. The message says why and never shows the value; `hint` says what to do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


FetchSecrets: TypeAlias = Callable[
    [Collection[SecretReference], Path, Mapping[str, str]], Mapping[SecretReference, str | SecretError]
]
"""Fetches all references concurrently, running commands in the folder, if the files that they name have the hashes that
were accepted. It has its own deadline and never raises."""


def fetch_nothing(
    references: Collection[SecretReference], folder: Path, hashes: Mapping[str, str]
) -> Mapping[SecretReference, str | SecretError]:
    """Resolve no reference: for code that only reads a manifest."""
    return {
        reference: SecretError(f"{reference.kind} references are not resolved here")
        for reference in references
    }


STAND_IN: Final = "stand-in.example"
"""The beginning of each reference's stand-in."""


def stand_in(
    references: Collection[SecretReference], folder: Path, hashes: Mapping[str, str]
) -> Mapping[SecretReference, str | SecretError]:
    """Replace each reference by a stand-in, so that a missing secret is not a problem: for checks that run nothing."""
    return {each: _standing_for(each) for each in references}


def _standing_for(reference: object) -> str:
    return f"{STAND_IN}-{crc32(repr(reference).encode()):08x}"


_SCHEMES: Final = {
    "store": "postgres://",
    **dict.fromkeys(("url", "otlp", "issuer", "public_url"), "https://"),
}
"""The beginning that a stand-in for a whole value of these keys needs to be valid."""


@dataclass(frozen=True)
class Template:
    """A string with references to secrets; all other references are resolved."""

    parts: tuple[str | SecretReference, ...]

    @property
    def references(self) -> tuple[SecretReference, ...]:
        return tuple(part for part in self.parts if isinstance(part, SecretReference))

    def filled(self, secrets: Mapping[SecretReference, str]) -> str:
        return "".join(part if isinstance(part, str) else secrets[part] for part in self.parts)


@dataclass(frozen=True)
class VariableReference:
    """A reference to a variable of the environment or of portal.env; required unless it has a default."""

    name: str
    default: str | None = None

    def __str__(self) -> str:
        return f"${{{self.name}}}" if self.default is None else f"${{{self.name}:-{self.default}}}"


@dataclass(frozen=True)
class ClaimReference:
    """A reference to a claim of the person who calls, like `email`; resolved at each call."""

    claim: str


CallerHeader: TypeAlias = tuple[str | ClaimReference, ...]
"""A header that names claims; all other references are resolved."""


@dataclass(frozen=True)
class FaultyReference:
    written: str


Piece: TypeAlias = str | VariableReference | SecretReference | ClaimReference | FaultyReference

_REFERENCE = re.compile(
    r"\$\$\{"
    r"|\$\{caller\.(?P<claim>(?:(?!:-)[A-Za-z0-9_.:/-]){1,200})\}"
    r"|\$\{(?P<kind>command|keyring):(?!-)(?P<text>[^}]*)\}"
    r"|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^$}]*))?\}"
    r"|(?P<faulty>\$\{[^}]*\}?)"
)


def pieces(text: str) -> Iterator[Piece]:
    """Split a string into references and the text between them, with `$${` as `${`."""
    end = 0
    for match in _REFERENCE.finditer(text):
        yield text[end : match.start()]
        end = match.end()
        if match["name"]:
            yield VariableReference(match["name"], match["default"])
        elif match["claim"]:
            yield ClaimReference(match["claim"])
        elif kind := match["kind"]:
            yield SecretReference("command" if kind == "command" else "keyring", match["text"].strip())
        else:
            yield FaultyReference(match[0]) if match["faulty"] else "${"
    yield text[end:]


_SECTIONS = (("upstreams",), ("defaults",), ("server",), ("runs",), ("telemetry",))
"""Sections that may have references. `capabilities.environment` may have references to variables only, because scripts
read it. Nothing else of the capabilities depends on the environment."""

_COMPONENT: Final = ("server", "component")
"""A path that must be known before anything runs, because a person accepts the file."""

NO_SECRETS = frozenset({"HOME", "LANG", "PATH", "PWD", "TMPDIR", "USER"})
"""Variables that are not secrets. A variable with a default in the manifest is a setting, not a secret either."""

NETWORK_VARIABLE: Final = re.compile(
    r"(?i:SSL_CERT_(?:FILE|DIR)|REQUESTS_CA_BUNDLE|NODE_EXTRA_CA_CERTS|(?:HTTPS?|NO|ALL)_PROXY"
    r"|(?:UV|PIP|NPM_CONFIG)\w*_(?:INDEX|REGISTRY|(?:NO)?PROXY|CERT|TLS|SSL|CAFILE|CA$|LINKS|HOST$)\w*)"
)
"""Variables for certificates, proxies and package indexes, without which a child may not reach the network."""


def literal_defaults(data: Json) -> dict[str, str]:
    """The variables with literal values under `defaults.env`: references fall back to them."""
    section = data.get("defaults") if isinstance(data, dict) else None
    found = section.get("env") if isinstance(section, dict) else None
    texts = found.items() if isinstance(found, dict) else ()
    return {name: text for name, text in texts if isinstance(text, str) and "${" not in text}


def required(data: Json) -> set[str]:
    """The variables without which a manifest does not load."""
    found = {piece for _, text in _texts(data) for piece in pieces(text)}
    return {each.name for each in found if isinstance(each, VariableReference) and each.default is None}


def open_variables(data: Json) -> set[str]:
    """Variables that the person who accepts a manifest has to see: settings, and what is started or asked."""
    pairs = [(path, each) for path, text in _texts(data) for each in pieces(text)]
    found = [(path, each) for path, each in pairs if isinstance(each, VariableReference)]
    used = {each.name for path, each in found if {*path[2:3]} & {"command", "args", "url", "cwd", "roots"}}
    return used | {each.name for _, each in found} - {each.name for _, each in found if not each.default}


@dataclass
class Interpolation:
    """Resolves references. Collects problems, and the paths with a value from the environment."""

    environ: Mapping[str, str]
    places: Mapping[KeyPath, Place]
    fetch_secrets: FetchSecrets
    files: ManifestFiles
    problems: list[Problem] = field(default_factory=list)
    filled: set[KeyPath] = field(default_factory=set)
    unknown: set[KeyPath] = field(default_factory=set)
    """The paths of strings with a stand-in."""
    templates: dict[KeyPath, Template] = field(default_factory=dict, repr=False)
    """The strings with a secret, to be resolved again when it changes."""
    taken: dict[KeyPath, set[str]] = field(default_factory=dict, repr=False)
    """The resolved secrets, by the path of their string."""
    caller_headers: dict[str, dict[str, CallerHeader]] = field(default_factory=dict, repr=False)
    """The headers of each upstream that name claims of the caller. In the data a placeholder stands for each claim."""
    fetched: Mapping[SecretReference, str | SecretError] = field(default_factory=dict, repr=False)

    def manifest(self, data: Json) -> Json:
        """The same data with resolved references; keys are unchanged."""
        texts = (text for path, text in _texts(data) if path[:1] in _SECTIONS)
        wanted = {each for text in texts for each in pieces(text) if isinstance(each, SecretReference)}
        if wanted:  # concurrently, and each command once
            self.fetched = self.fetch_secrets(wanted, self.files.path.absolute().parent, self.files.hashes)
        return _changed(data, (), self._text)

    def _text(self, value: Json, path: KeyPath) -> Json:
        is_read = path[:1] in _SECTIONS or path[:2] == ("capabilities", "environment")
        if not isinstance(value, str) or "${" not in value or not is_read:
            return value
        parts = [self._part(piece, path) for piece in pieces(value)]
        template = Template(tuple(each for each in parts if not isinstance(each, ClaimReference)))
        secrets = {each: self._secret(each, path) for each in template.references}
        if len(template.parts) < len(parts):
            header = [secrets[each] if isinstance(each, SecretReference) else each for each in parts]
            # A path of another length is refused later: its value is no text.
            self.caller_headers.setdefault(str(path[1]), {})[str(path[-1])] = tuple(header)
            return "".join("caller" if isinstance(each, ClaimReference) else each for each in header)
        if template.references:
            self.templates[path] = template
        filled = template.filled(secrets)
        if STAND_IN in filled:
            self.unknown.add(path)
        return _SCHEMES.get(str(path[-1]), "") + filled if filled.startswith(STAND_IN) else filled

    def _part(self, piece: Piece, path: KeyPath) -> str | SecretReference | ClaimReference:
        if isinstance(piece, str):
            return piece
        self.filled.add(path)
        if isinstance(piece, ClaimReference):
            if path[:1] == ("upstreams",) and path[2:3] == ("headers",):
                return piece
            message = f"${{caller.{piece.claim[:60]}}} is not allowed here"
            self._note(path, message, "Use it in the headers of an upstream.")
            return ""
        if isinstance(piece, SecretReference) and path[:1] in _SECTIONS and path != _COMPONENT:
            return piece
        if isinstance(piece, SecretReference):
            hint = "Use it under upstreams, defaults, server, runs or telemetry, for a value that is secret."
            self._note(path, f"${{{piece.kind}:...}} is not allowed here", hint)
            return ""
        if isinstance(piece, FaultyReference):
            hint = "Write ${NAME} or ${NAME:-default}, without $ in the default. Write a literal ${ as $${."
            self._note(path, f"{piece.written[:60]!r} is not a reference to an environment variable", hint)
            return ""
        value = self.environ.get(piece.name)
        is_setting = piece.name in NO_SECRETS or piece.default
        if value and not is_setting and path[:1] in _SECTIONS:
            self.taken.setdefault(path, set()).add(value)
        if value is None and piece.default is None and self.fetch_secrets is stand_in and path != _COMPONENT:
            return _standing_for(piece)
        if value is None and piece.default is None:
            file = env_path(self.files.path).name
            hint = f"Set it in the environment or in {file}. For a setting, write ${{{piece.name}:-default}}."
            self._note(path, f"the environment variable {piece.name} is not set", hint)
        return value or piece.default or ""

    def _secret(self, reference: SecretReference, path: KeyPath) -> str:
        value = self.fetched[reference]
        if isinstance(value, SecretError):
            self._note(path, str(value), value.hint)
            return ""
        self.taken.setdefault(path, set()).add(value)
        return value

    def _note(self, path: KeyPath, message: str, hint: str) -> None:
        self.problems.append(problem_at(self.places, path, message, hint))


def _changed(value: Json, path: KeyPath, change: Callable[[Json, KeyPath], Json]) -> Json:
    """The same data with `change` applied to each scalar."""
    if isinstance(value, dict):
        return {key: _changed(item, (*path, key), change) for key, item in value.items()}
    if isinstance(value, list):
        return [_changed(item, (*path, index), change) for index, item in enumerate(value)]
    return change(value, path)


def _texts(value: Json, path: KeyPath = ()) -> Iterator[tuple[KeyPath, str]]:
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
    "# Secrets that the manifest refers to as ${NAME}. Variables of the environment override these."
)


def env_path(manifest: Path) -> Path:
    """`portal.env` for `portal.yaml`."""
    return manifest.parent / f"{manifest.stem or 'portal'}.env"


def read_env(path: Path) -> dict[str, str]:
    """The variables of the file; none if it does not exist.

    Raises ManifestError: it cannot be read or parsed, or other users can access it; it carries the first problem.
    """
    return parsed_env(env_content(path), path.name)


def env_content(path: Path) -> bytes | None:
    """The content of the file; None if it does not exist. Raises ManifestError, as `read_env` does."""
    try:
        content, mode = read_capped(path, MAX_BYTES)
    except FileNotFoundError:
        return None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        hint = f"It contains secrets: chmod 600 {path.name}"
        raise ManifestError([Problem("must be accessible to its owner only", hint=hint)], path.name)
    return content


def env_text(values: Mapping[str, str], before: str = "") -> str:
    """The text of the file: `before`, or a heading for a new file, and then `values`."""
    start = before or _HEADING
    gap = "" if start.endswith("\n") else "\n"
    return f"{start}{gap}" + "".join(f"{name}={_quoted(value)}\n" for name, value in values.items())


def parsed_env(content: bytes | None, file: str) -> dict[str, str]:
    """The variables in a file's `content`, which is None for a missing file. Raises ManifestError."""
    values: dict[str, str] = {}
    for number, line in enumerate(map(str.strip, utf8(content or b"", file).split("\n")), 1):
        if not line or line.startswith("#"):
            continue
        found = _LINE.fullmatch(line)
        value = _unquoted(found["value"]) if found else None
        if not found or value is None or found["name"] in values:
            # Without the line itself, which may be a secret.
            message = "is not NAME=value, or repeats a NAME"
            raise ManifestError([Problem(message, number, 1, 'Quote a value that needs it: NAME="…".')], file)
        values[found["name"]] = value
    return values


def _unquoted(text: str) -> str | None:
    """The value of a text; None if its quotes do not match, or for characters that no variable can have."""
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
    r"(?<![A-Za-z0-9_-])(?:github_pat_|gh[pousr]_|glpat-|sk-|[sr]k_live_|xox[abprs]-|xapp-|A[KS]IA|AIza|ya29\.|npm_"
    r"|pypi-|hf_|ntn_|lin_api_|dop_v1_|shpat_|SG\.|figd_|eyJ|sbp_|sb_secret_|tvly-|fc-(?=[0-9a-f]{32})|apify_api_"
    r"|sntry[sua]_|gsk_|pplx-|xai-|r8_)[A-Za-z0-9_./+=-]{12,}"
)
"""Credentials of well-known services: GitHub, GitLab, AI providers, Stripe, Slack, clouds, registries, searches."""
_URL_PASSWORD: Final = re.compile(
    r"\b[a-z][a-z0-9+.-]{1,20}://(?:\$\{[^}]*\}|[^\s/:@?#{])*+:(?!\$\{)[^\s/@?#]+@", re.I
)
"""A literal password, as in postgresql://bob:s3cret@db/x."""
_PRIVATE_KEY: Final = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")


def holds_token(text: str) -> bool:
    """Whether a text contains a well-known kind of credential."""
    return any(each.search(text) for each in (_PRIVATE_KEY, TOKEN, _URL_PASSWORD))


def literal_tokens(written: Json) -> Iterator[KeyPath]:
    """The paths of such credentials in a manifest as written."""
    return (place for place, text in _texts(written) if holds_token(text))
