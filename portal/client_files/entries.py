"""One entry of a client's file, turned into a server of the portal, or into the reason why it cannot be one.

Data only: of what the file says, nothing becomes more than a command with its arguments and variables, or a URL with
its headers, and nothing is started or fetched here.
"""

import glob
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PurePath
from typing import Final

from manifests.json_value import Json
from portal.client_files.fields import Fields, UnfitError, reference
from portal.client_files.legibility import legible
from portal.client_files.places import GEMINI
from portal.client_files.quotation import quoted
from portal.client_files.references import Surroundings
from portal.client_files.secret_values import (
    hidden_arguments,
    hidden_header,
    hidden_url,
    hidden_variable,
)
from portal.client_files.servers import LeftOut, Origin, Server
from portal.client_files.sign_ins import KEYS, left_of, sign_in
from portal.client_files.variables import Reference

IS_PORTAL: Final = "it is the portal itself"

_TRANSPORTS: Final = {
    "": None,
    "stdio": None,
    "local": None,
    "http": None,
    "streamable-http": None,
    "streamable_http": None,
    "streamablehttp": None,
    "remote": None,
    "sse": "sse",
}
_URLS: Final = ("url", "serverUrl", "httpUrl")
_READ: Final = {"command", "args", "env", "cwd", "headers", "type", "transport", *_URLS}
_READ_OF_CODEX: Final = {
    "http_headers",
    "env_http_headers",
    "bearer_token_env_var",
    "bearer_token",
    "env_vars",
}
_ALLOWED: Final = ("includeTools", "enabled_tools", "enabledTools")
_DENIED: Final = ("excludeTools", "disabled_tools", "disabledTools")
_SILENT: Final = {"disabled", "enabled", "description", "name", "icon", "gallery", "version"}
_NOTES: Final = {
    **dict.fromkeys(
        ("autoApprove", "alwaysAllow", "trust", "default_tools_approval_mode", "tools"),
        "{} is not taken over: what scripts may do, capabilities.tools says",
    ),
    **dict.fromkeys(
        ("timeout", "startup_timeout_sec", "startup_timeout_ms", "tool_timeout_sec"),
        "{} is not taken over: the portal has call_seconds and connect_seconds, 60 each",
    ),
    **dict.fromkeys(
        ("auth", "oauth", "authProviderType", "scopes", "oauth_resource"),
        "{} is not taken over: sign in with mcp-code-portal login where the manifest says oauth",
    ),
    "envFile": "{} is not taken over: write what the server needs of it under env",
    "sandbox": "{} is not taken over: the server runs as the portal does",
    "sandboxEnabled": "{} is not taken over: the server runs as the portal does",
}
_MOST_NAMES: Final = 20
_MOST_KEYS: Final = 5
_PATH: Final = re.compile(r"[/~]|\.{1,2}/|[A-Za-z]:[/\\]")
_RELATIVE: Final = re.compile(r"\.{1,2}(?:/.*)?", re.DOTALL)
_CONTAINERS: Final = re.compile(r"(?:docker|podman|nerdctl)(?:\.exe)?")
_IMAGE: Final = re.compile(r"[a-z0-9][a-z0-9.-]*(?::[0-9]+)?(?:/[A-Za-z0-9._-]+)*/[^/\\]+")
_BINARY: Final = re.compile(r"[/\\](?:bin|Scripts)[/\\][^/\\]+$")
_SELF: Final = re.compile(r"mcp-code-portal(?:\.exe)?(?:\[[^\]]*\])?(?:[@=:~<>!].*)?")


@dataclass(frozen=True)
class Entry:
    """What a file has under a server's name. `off` says that the client itself does not use it, and where."""

    origin: Origin
    data: Json
    folder: Path | None = None  # the project's, where relative paths begin
    off: str = ""


def read_entry(entry: Entry, home: Path, here: Path, environ: Mapping[str, str]) -> Server | LeftOut:
    """`here` is the folder for which servers are looked for: what a client has open, where a file does not say."""
    try:
        fields = Fields.of(entry.data)
        _require_use(entry, fields)
        own = fields.mapping("env")
        surroundings = Surroundings(
            entry.origin.place.client.style, home, entry.folder or here, own.keys(), environ
        )
        server = _stdio if fields.text("command") is not None else _http
        return legible(server(entry, fields, surroundings).with_secrets_everywhere())
    except ValueError as error:
        return LeftOut(entry.origin, str(error))


def is_portal(command: str, arguments: Sequence[str]) -> bool:
    """Whether it starts a portal: one in front of itself would never finish starting."""
    words = [command, *arguments]
    is_contained = any(_CONTAINERS.fullmatch(_file(word)) for word in words)
    if _SELF.fullmatch(_file(command)) or any(map(_SELF.fullmatch, arguments)):
        return True
    if is_contained and any(_IMAGE.fullmatch(word) and _SELF.fullmatch(_file(word)) for word in arguments):
        return True
    # A path may as well be of a folder that a server is to look at: somebody has the portal's sources.
    programs = [
        word for word, after in pairwise([*arguments, ""]) if after == "serve" or _BINARY.search(word)
    ]
    return any(_SELF.fullmatch(_file(word)) for word in programs) or ("-m", "portal") in pairwise(words)


def _file(path: str) -> str:
    return re.split(r"[/\\]", path)[-1]


def _stdio(entry: Entry, fields: Fields, around: Surroundings) -> Server:
    command = fields.text("command") or ""
    arguments = fields.texts("args")
    if not command.strip():
        raise UnfitError("its command is empty")
    if any(fields.text(key) is not None for key in _URLS):
        raise UnfitError("it has both a command and a URL")
    if re.search(r"\s-", command) or (re.search(r"\s", command) and not _PATH.match(command)):
        raise UnfitError("its command holds blanks: what follows the program belongs into args")
    if is_portal(command, arguments):
        raise UnfitError(IS_PORTAL)
    env = {name: around.translated(value, in_env=True) for name, value in fields.mapping("env").items()}
    for name in fields.names("env_vars"):
        env.setdefault(name, (Reference(name),))
    program = around.translated(command)
    return Server(
        entry.origin,
        command=program,
        args=hidden_arguments(program, [around.translated(each) for each in arguments]),
        env={name: hidden_variable(name, value) for name, value in env.items()},
        cwd=_cwd(entry, fields, around, command, arguments),
        allow=_patterns(fields.listed(_ALLOWED), around),
        deny=_patterns(fields.listed(_DENIED), around) or (),
        notes=_notes(entry, fields, around),
    )


def _http(entry: Entry, fields: Fields, around: Surroundings) -> Server:
    keys = [key for key in _URLS if fields.text(key) is not None]
    if not keys:
        raise UnfitError("it has neither a command nor a URL")
    url = fields.text(keys[-1]) or ""
    if "headersHelper" in fields.data:
        raise UnfitError("its headers come from a program (headersHelper), which is not run for it")
    if url.startswith(("unix:", "pipe:")):
        raise UnfitError("it listens on a socket or a pipe, which the portal cannot reach")
    headers = {
        name: hidden_header(name, around.translated(value))
        for key in ("headers", "http_headers")
        for name, value in fields.mapping(key).items()
    }
    for name, variable in fields.mapping("env_http_headers").items():
        headers[name] = (reference(variable),)
    if (token := fields.text("bearer_token")) is not None:
        headers["Authorization"] = hidden_header("Authorization", (f"Bearer {token}",))
    if (bearer := fields.text("bearer_token_env_var")) is not None:
        headers["Authorization"] = ("Bearer ", reference(bearer))
    oauth = sign_in(fields, url, headers)
    return Server(
        entry.origin,
        url=hidden_url(around.translated(url)),
        headers=headers,
        transport=_transport(entry, fields, keys[-1], url),
        oauth=oauth,
        allow=_patterns(fields.listed(_ALLOWED), around),
        deny=_patterns(fields.listed(_DENIED), around) or (),
        notes=_notes(entry, fields, around, oauth),
    )


def _require_use(entry: Entry, fields: Fields) -> None:
    if entry.off:
        raise UnfitError(entry.off)
    if fields.data.get("disabled") is True or fields.data.get("enabled") is False:
        raise UnfitError("it is turned off in the client")
    kind = _kind(fields)
    if kind not in _TRANSPORTS:
        raise UnfitError(f"its type {kind[:40]!a} is none that the portal speaks")


def _kind(fields: Fields) -> str:
    return (fields.text("type") or fields.text("transport") or "").lower()


def _transport(entry: Entry, fields: Fields, key: str, url: str) -> str | None:
    if kind := _kind(fields):
        return _TRANSPORTS[kind]
    if entry.origin.place.client == GEMINI and key == "url":
        return "sse"
    # Clients try the newer transport first and fall back; the portal is told which one it is.
    return "sse" if re.split(r"[?#]", url)[0].rstrip("/").endswith("/sse") else None


def _patterns(names: Sequence[str] | None, around: Surroundings) -> tuple[str, ...] | None:
    """Patterns that mean just these tools."""
    if names is None:
        return None
    templates = [around.translated(name) for name in names]
    if not all(isinstance(piece, str) for template in templates for piece in template):
        # Its value would be a pattern, in which more than itself may be meant.
        raise UnfitError("a filter of its tools holds a variable, which a manifest's cannot")
    return tuple(glob.escape("".join(map(str, template))) for template in templates)


def _cwd(
    entry: Entry, fields: Fields, around: Surroundings, command: str, arguments: Sequence[str]
) -> str | None:
    told = fields.text("cwd")
    if told:
        pieces = around.translated(told)
        if not all(isinstance(piece, str) for piece in pieces):
            raise UnfitError("its cwd holds a variable, which a manifest's cannot")
        return str(around.folder / "".join(map(str, pieces)))
    if entry.folder is None:
        return None
    is_relative = "/" in command and not PurePath(command).is_absolute()
    if is_relative or any(_is_in(entry.folder, each) for each in arguments):
        return str(entry.folder)
    return None


def _is_in(folder: Path, argument: str) -> bool:
    """Whether an argument means something relative to the project's folder."""
    if _RELATIVE.fullmatch(argument):
        return True
    is_path = 0 < len(argument) < 1000 and not argument.startswith(("-", "/", "~")) and "\0" not in argument
    try:
        return is_path and (folder / argument).exists()
    except OSError:  # no name that a file could have
        return False


def _notes(
    entry: Entry, fields: Fields, around: Surroundings, oauth: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    read = _READ | _READ_OF_CODEX | set(_ALLOWED) | set(_DENIED) | _SILENT
    left: list[str] = []
    if oauth is not None:
        read, left = read.union(KEYS), [*left_of(fields, oauth)]
    others = [key for key in fields.data if key not in read]
    notes = [_NOTES[key].format(key) for key in others if key in _NOTES]
    if unknown := [*left, *(key for key in others if key not in _NOTES)]:
        notes.append(f"not taken over: {_told(unknown, _MOST_KEYS)}")
    if (names := fields.listed(_ALLOWED)) is not None:
        granted = _told(names, _MOST_NAMES) or "no tools"
        notes.append(f"granted by name, also what declares itself destructive: {granted}")
    if around.style == "prefixed" and entry.folder is None and "${workspaceFolder" in str(fields.data):
        notes.append(f"the workspace's folder is {around.folder} from now on")
    return tuple(dict.fromkeys(notes))


def _told(names: Sequence[str], most: int) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(quoted, names[:most])) + more
