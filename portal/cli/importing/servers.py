"""Converts one entry of a client's file to an upstream of the portal, or says why it cannot.

Nothing is started or fetched. An entry becomes a command with arguments, or a URL with headers.
"""

import glob
import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

from manifests.json_value import Json
from manifests.references import TOKEN, VariableReference
from portal.base.plain_text import shown_path
from portal.cli.importing.clients import (
    CLAUDE_CODE,
    CLINE,
    COPILOT,
    GEMINI,
    GOOSE,
    OPENCODE,
    ClientFile,
    Data,
)
from upstreams.redaction import LEAST_CHARACTERS

_TRANSPORTS: Final = ("stdio", "local", "remote", "http", "streamablehttp", "sse")
_URLS: Final = ("url", "serverUrl", "httpUrl")
_ALLOWED: Final = ("includeTools", "enabled_tools", "enabledTools")
_DENIED: Final = ("excludeTools", "disabled_tools", "disabledTools")
_READ: Final = frozenset(
    (
        *("command", "args", "env", "env_vars", "cwd", "type", "transport", "disabled", "enabled", *_URLS),
        *("headers", "http_headers", "env_http_headers", "bearer_token_env_var", *_ALLOWED, *_DENIED),
        *("name", "display_name", "description", "icon", "gallery", "version", "source", "bundled"),
    )
)
_KEYS: Final = {"cmd": "command", "envs": "env", "environment": "env", "env_keys": "env_vars", "uri": "url"}
"""Goose's and opencode's names for these."""
_MAX_SHOWN: Final = 10
_SCHEME: Final = re.compile(r"(?i:bearer|basic|token) +(?=\S)")
_OF_URL: Final = re.compile(
    r"(?P<before>://(?:[^/?#:@]*:)?)(?P<login>[^/?#]+)(?=@)|(?P<start>[?&](?P<name>[^=&#]+)=)(?P<value>[^&#]+)"
)
_SELF: Final = re.compile(r"mcp-code-portal(?:\.exe)?(?:\[[^\]]*\])?(?:[@=:~<>!].*)?")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ORIGIN: Final = re.compile(r"https?://[^/@?#]+/?")
_WORDS: Final = re.compile(r"(?:(?:[A-Za-z]{2,20}|v?\d{1,8})(?:[-_./ ,;:=*+]+|$))+")
"""A text like `us-east-1` or `text/event-stream`: a key has longer words, or letters and digits in one."""
_ARGUMENTS: Final = re.compile(r"\S.*\s-|[^/\\]+\s")
"""Begins a command with arguments in it: `npx x`, `/bin/x -y`, but not `/Applications/My App/x`."""
_ANYWHERE: Final = re.compile(
    r"(?:.*[/\\])?(?:npx|uvx|bunx|pnpx|pipx|docker|podman)(?:\.\w+)?|[/~].*|[A-Za-z]:.*"
)
"""A command that does the same in every folder: it runs a package, or has an absolute path."""
_RELATIVE: Final = re.compile(r"(?:.*=)?(?:\.|[\w-]+(?:/|\.\w+$))")
SECRET_NAME: Final = re.compile(
    r"key|token|secret|pass|pwd|pat$|auth|cred|cookie|session|private|sign|dsn|login|bearer|license",
    re.IGNORECASE,
)
"""Words in the names of variables that hold secrets."""


@dataclass(frozen=True)
class Value:
    """A value that becomes a variable in the manifest. `text` is None for an input that VS Code asks for.

    `name` is the preferred name of the variable.
    """

    name: str
    text: str | None = field(repr=False)


Piece: TypeAlias = str | VariableReference | Value
Template: TypeAlias = tuple[Piece, ...]


class EntryError(ValueError):
    """The entry cannot be imported. The message says why."""


@dataclass(frozen=True)
class Origin:
    """The place of a server: `name` in the object at `container` of the file."""

    file: ClientFile
    name: str
    container: tuple[str, ...]

    @property
    def place(self) -> str:
        """The client and its file, for people."""
        return f"{self.file.client.title}, {shown_path(str(self.file.path))}"


@dataclass(frozen=True)
class SkippedServer:
    origin: Origin
    reason: str


@dataclass(frozen=True)
class Server:
    """A server that can be an upstream. `templates` has the keys of an upstream in the manifest.

    `notes` say which parts of the entry were not imported.
    """

    origin: Origin
    templates: Mapping[str, Any]
    notes: tuple[str, ...] = ()

    def spec(self, name_of: Callable[[Value], str]) -> dict[str, Json]:
        """The upstream for the manifest, with variables named by `name_of` in place of values.

        Raises EntryError: a manifest cannot express it.
        """
        found = _mapped(self.templates, lambda template: _written(template, name_of))
        return {key: value for key, value in found.items() if value}

    def raw(self) -> dict[str, Json]:
        """The identity of the server, with the values themselves. Unknown values stay references."""
        found = _mapped(self.templates, lambda template: "".join(map(_raw, template)))
        # Its folder counts only if the command may depend on it.
        if _ANYWHERE.fullmatch(found.get("command", "")) and not any(map(_RELATIVE.match, found["args"])):
            found.pop("cwd")
        return {key: value for key, value in found.items() if value}


def containers(file: ClientFile, data: Data) -> Iterator[tuple[tuple[str, ...], Data]]:
    """The objects with servers in a file, each with its path. Claude Code also has one per project."""
    key = file.client.key
    projects = data.get("projects") if file.client is CLAUDE_CODE else None
    found: dict[tuple[str, ...], Any] = {
        (): data,
        **{("projects", path): each for path, each in (projects or {}).items()},
    }
    for path, holder in found.items():
        if isinstance(holder, MutableMapping) and isinstance(servers := holder.get(key), MutableMapping):
            inner = servers.get("servers") if file.client is OPENCODE else None
            if isinstance(inner, MutableMapping) and "type" not in inner:  # since opencode 2
                yield (*path, key, "servers"), inner
            else:
                yield (*path, key), servers


def servers_of(file: ClientFile, data: Data) -> list[Server | SkippedServer]:
    found: list[Server | SkippedServer] = []
    for container, servers in containers(file, data):
        folder = Path(container[1]) if container[0] == "projects" else file.project
        for name, entry in servers.items():
            origin = Origin(file, name, container)
            try:
                if is_excluded(file, data, name):
                    raise EntryError("it is disabled in the client")
                found.append(_Entry(origin, _in_our_words(file, entry), folder).server())
            except EntryError as error:
                found.append(SkippedServer(origin, str(error)))
    return found


def is_excluded(file: ClientFile, data: Data, name: str) -> bool:
    """Whether the lists of Gemini CLI leave a server out."""
    lists = data.get("mcp") if file.client is GEMINI else None
    lists = lists if isinstance(lists, Mapping) else {}
    allowed = lists.get("allowed")
    return name in (lists.get("excluded") or ()) or (isinstance(allowed, list) and name not in allowed)


def is_portal(command: str, arguments: Sequence[str]) -> bool:
    """Whether the command starts a portal. A portal in front of itself would never finish starting."""
    # Only file names count: a folder with the portal's name may be an argument of another server.
    words = [re.split(r"[/\\]", command)[-1], *arguments]
    starts = [word.rpartition("/")[2] for word, after in pairwise([*words, ""]) if after == "serve"]
    return ("-m", "portal") in pairwise(words) or any(map(_SELF.fullmatch, [*words, *starts]))


def variable_name(*texts: str) -> str:
    """A name for a variable: `api-key` -> `API_KEY`, `exaApiKey` -> `EXA_API_KEY`."""
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", "_".join(texts))
    name = re.sub(r"[^A-Z0-9]+", "_", text.upper()).strip("_")[:80] or "VALUE"
    return f"_{name}" if name[0].isdigit() else name


def _in_our_words(file: ClientFile, entry: Any) -> Any:
    """The entry with the keys that most clients have."""
    if not isinstance(entry, Mapping):
        return entry
    found = {_KEYS.get(key, key): value for key, value in entry.items()}
    if file.client is COPILOT and (tools := found.pop("tools", None)) != ["*"]:
        found["enabled_tools"] = tools
    if file.client is GOOSE:
        found["enabled_tools"] = found.pop("available_tools", None) or None
    command = found.get("command")
    if isinstance(command, list):  # opencode
        found |= {"command": command[0] if command else "", "args": command[1:]}
    return found


@dataclass(frozen=True)
class _Entry:
    """One entry of a client's file. `folder` is the project's, in which its servers start."""

    origin: Origin
    data: Any
    folder: Path | None

    def server(self) -> Server:
        if not isinstance(self.data, Mapping):
            raise EntryError("the entry is not an object")
        if self.data.get("disabled") is True or self.data.get("enabled") is False:
            raise EntryError("it is disabled in the client")
        kind = (self._text("type") or self._text("transport") or "stdio").lower()
        if re.sub("[-_]", "", kind) not in _TRANSPORTS:
            raise EntryError(f"the portal does not support its type {kind[:40]!r}")
        templates = self._stdio() if self._text("command") is not None else self._http(kind)
        allow, deny = self._listed(_ALLOWED), self._listed(_DENIED)
        tools = {"allow": allow, "deny": deny or None}
        templates["tools"] = {key: names for key, names in tools.items() if names is not None}
        return Server(self.origin, templates, tuple(self._notes(allow)))

    @property
    def _prefix(self) -> str:
        return variable_name(self.origin.name)

    @cached_property
    def _own(self) -> dict[str, str]:
        return self._mapping("env")

    def _stdio(self) -> dict[str, Any]:
        command, arguments = self._text("command") or "", self._texts("args")
        if not command.strip():
            raise EntryError("its command is empty")
        if _ARGUMENTS.match(command.strip()):
            raise EntryError("its command contains arguments: write them as args")
        if is_portal(command, arguments):
            raise EntryError("it is the portal itself")
        env = {name: self._variable_of(name, text) for name, text in self._own.items()}
        env |= {name: (VariableReference(name),) for name in self._texts("env_vars")}
        cwd = self._text("cwd")
        folder = self.folder if cwd is None else (self.folder or Path.home()) / self._plain(cwd, "cwd")
        return {
            "command": self._translated(command),
            "args": [self._argument(before, text) for before, text in pairwise(["", *arguments])],
            "env": env,
            "cwd": () if folder is None else (str(folder),),
        }

    def _http(self, kind: str) -> dict[str, Any]:
        keys = [key for key in _URLS if self._text(key) is not None]
        if not keys:
            raise EntryError("it has neither a command nor a URL")
        if "headersHelper" in self.data:
            raise EntryError("its headers come from a program (headersHelper), which the portal does not run")
        url = self._text(keys[-1]) or ""
        headers = {
            name: (text,)
            if _WORDS.fullmatch(text) and not SECRET_NAME.search(name) and not TOKEN.search(text)
            else self._hidden(text, variable_name(self._prefix, name))
            for key in ("headers", "http_headers")
            for name, text in self._mapping(key).items()
        }
        headers |= {name: (_reference(text),) for name, text in self._mapping("env_http_headers").items()}
        if (bearer := self._text("bearer_token_env_var")) is not None:
            headers["Authorization"] = ("Bearer ", _reference(bearer))
        templates: dict[str, Any] = {"url": self._url(url), "headers": headers}
        # A URL without a type is one of HTTP+SSE there.
        is_older = self.origin.file.client in (GEMINI, CLINE) and (keys[-1], kind) == ("url", "stdio")
        if kind == "sse" or is_older or re.split(r"[?#]", url)[0].rstrip("/").endswith("/sse"):
            templates["transport"] = ("sse",)
        return templates

    def _notes(self, allowed: Sequence[Any] | None) -> Iterator[str]:
        if left := [key for key in self.data if key not in _READ]:
            yield f"not imported: {', '.join(left[:_MAX_SHOWN])}"
        if allowed is not None:
            yield "the tools in its filter are granted by name, including destructive ones"
        if self.origin.container[0] == "projects":
            yield f"was for {self.folder} alone; each client of the portal gets it"

    def _variable_of(self, name: str, text: str) -> Template:
        pieces = self._translated(text)
        setting = "".join(piece for piece in pieces if isinstance(piece, str))
        is_literal = all(isinstance(piece, str) for piece in pieces)
        return (setting,) if is_literal and _is_setting(name, setting) else self._hidden(text, name)

    def _hidden(self, text: str, name: str) -> Template:
        """The text of a variable or a header. The manifest gets no literal of it except a prefix such as `Bearer `."""
        pieces = self._translated(text)
        if not any(isinstance(piece, VariableReference | Value) for piece in pieces):
            text = "".join(map(str, pieces))
            scheme = _SCHEME.match(text)
            start = scheme.end() if scheme else 0
            value = Value(variable_name(name) if not _NAME.fullmatch(name) else name, text[start:])
            return tuple(filter(None, (text[:start], value if text[start:] else "")))
        if any("@" in str(piece) or TOKEN.search(str(piece)) for piece in pieces):
            raise EntryError(f"its {name} combines a secret with a variable")
        return pieces

    def _argument(self, before: str, text: str) -> Template:
        option = next((each for each in (text, before) if each.startswith("-")), "").partition("=")[0]
        pieces = self._url(text) if "://" in text else self._translated(text)
        return self._without_tokens(pieces, option or "token")

    def _url(self, text: str) -> Template:
        def split(found: re.Match[str]) -> Template:
            if found["login"]:
                return (found["before"], Value(variable_name(self._prefix, "password"), found["login"]))
            return (
                found["start"],
                Value(variable_name(self._prefix, unquote(found["name"])), found["value"]),
            )

        return self._without_tokens(_split(self._translated(text), _OF_URL, split), "token")

    def _without_tokens(self, pieces: Template, name: str) -> Template:
        value = partial(Value, variable_name(self._prefix, name))
        return _split(pieces, TOKEN, lambda found: (value(found[0]),))

    def _translated(self, text: str) -> Template:
        """The text with the client's variables as the portal's."""
        pattern = self.origin.file.client.variables
        return (text,) if pattern is None else _split((text,), pattern, self._variable)

    def _variable(self, found: re.Match[str]) -> Template:
        groups = found.groupdict()
        if "inside" not in groups:
            name = groups.get("bare") or groups["name"]
            # mcp-remote and others expand this reference themselves, from the variables of their entry. In headers
            # Goose does.
            if name in self._own and self._own[name] != found[0]:
                is_child = self._text("command") is not None
                return (found[0],) if is_child else self._hidden(self._own[name], name)
            return (VariableReference(name, groups["default"]),)
        prefix, inside = groups["prefix"], groups["inside"]
        if prefix == "env":
            return (_reference(inside),)
        if prefix == "input":
            return (Value(variable_name(inside), None),)
        if prefix is not None:
            raise EntryError(f"only the client can expand {found[0][:60]}")
        folder = str(self.folder or Path.cwd())
        known = {"workspaceFolder": folder, "workspaceRoot": folder, "userHome": str(Path.home())}
        return (known.get(inside, found[0]),)

    def _plain(self, text: str, key: str) -> str:
        pieces = self._translated(text)
        if not all(isinstance(piece, str) for piece in pieces):
            raise EntryError(f"its {key} contains a variable. Manifests do not allow variables there")
        return "".join(map(str, pieces))

    def _text(self, key: str) -> str | None:
        value = self.data.get(key)
        if value is not None and not isinstance(value, str):
            raise EntryError(f"its {key} is not a string")
        return value if value is None else str(value)

    def _texts(self, key: str) -> list[str]:
        value = self.data.get(key) or []
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise EntryError(f"its {key} is not a list of strings")
        return [str(each) for each in value]

    def _mapping(self, key: str) -> dict[str, str]:
        value = self.data.get(key) or {}
        if not isinstance(value, Mapping) or any(isinstance(each, Mapping | list) for each in value.values()):
            raise EntryError(f"its {key} is not an object of strings")
        return {
            str(k): str(v).lower() if isinstance(v, bool) else str(v)
            for k, v in value.items()
            if v is not None
        }

    def _listed(self, keys: Sequence[str]) -> list[Template] | None:
        """Patterns that match exactly the tools in a filter; None without a filter."""
        found = [key for key in keys if self.data.get(key) is not None]
        return [(glob.escape(name),) for key in found for name in self._texts(key)] if found else None


def _split(
    pieces: Template, pattern: re.Pattern[str], split: Callable[[re.Match[str]], Template]
) -> Template:
    """Split each match of the pattern in the template's texts."""
    found: list[Piece] = []
    for piece in pieces:
        end = 0
        for match in pattern.finditer(piece) if isinstance(piece, str) else ():
            found += [match.string[end : match.start()], *split(match)]
            end = match.end()
        found.append(piece[end:] if isinstance(piece, str) else piece)
    return tuple(each for each in found if each)


def _is_setting(name: str, text: str) -> bool:
    """Whether a variable is not a secret: by its name, or because it is too short, or the URL of a host.

    The values of secrets are masked in results of tools, so `production` must not become one.
    """
    if "${" in text or TOKEN.search(text) or ("://" in text and not _ORIGIN.fullmatch(text)):
        return False
    return len(text) < LEAST_CHARACTERS or bool(_ORIGIN.fullmatch(text)) or not SECRET_NAME.search(name)


def _reference(name: str) -> VariableReference:
    if not _NAME.fullmatch(name):  # not shown, because it may be a token in place of a name
        raise EntryError("the name of one of its environment variables is not valid")
    return VariableReference(name)


def _mapped(value: Any, change: Callable[[Template], Any]) -> Any:
    """Apply `change` to each template in a value."""
    if isinstance(value, Mapping):
        return {key: _mapped(each, change) for key, each in value.items()}
    if isinstance(value, list):
        return [_mapped(each, change) for each in value]
    return change(value)


def _written(template: Template, name_of: Callable[[Value], str]) -> str:
    text = ""
    for piece in template:
        if isinstance(piece, str):
            text += piece.replace("${", "$${")
        elif text.endswith("$"):
            raise EntryError("a `$` directly before a variable is not supported")
        else:
            text += str(VariableReference(name_of(piece)) if isinstance(piece, Value) else piece)
    return text


def _raw(piece: Piece) -> str:
    if isinstance(piece, Value):
        return str(VariableReference(piece.name)) if piece.text is None else piece.text
    return str(piece)
