"""The portal in a client's file in place of the servers that it stands in front of, and out of it again.

The file is written anew by its format's library. What it was stays beside it, byte for byte.
"""

import sys
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from tomlkit import TOMLDocument

from manifests.json_value import Json
from portal.importing.clients import CLAUDE_CODE, VSCODE, ClientFile, ClientFileError, Data
from portal.importing.servers import Origin, containers, is_portal

_PROGRAM: Final = "mcp-code-portal"
_NAMES: Final = ("portal", *(f"portal-{number}" for number in range(2, 100)))


def original(file: ClientFile) -> ClientFile:
    """The file as it was before the portal was put in; an empty one stands for none."""
    return replace(file, path=file.path.with_name(f"{file.path.name}.before-portal"))


def install(file: ClientFile, origins: Sequence[Origin], manifest: Path, *, is_dry: bool) -> str:
    """Write the file anew with the portal in place of these servers; the name of its entry.

    Raises ClientFileError: the portal is there already, or a file cannot be read or written.
    """
    before = original(file)
    if before.content() is not None:
        raise ClientFileError(file.path, f"has the portal already; import --undo {file.name} takes it out")
    content = file.content()
    data = file.parsed(content or b"")
    for origin in origins:
        _at(data, origin.container).pop(origin.name, None)
    for _, servers in containers(file, data):
        _take_out_portals(servers)
    servers = _at(data, (file.client.key,))
    name = next(each for each in _NAMES if each not in servers)
    servers[name] = _entry(file, manifest)
    if not is_dry:
        before.put(content or b"", file.mode)
        file.write(data)
    return name


def undo(file: ClientFile) -> str:
    """Take the portal out and put the servers back; says what was done.

    Raises ClientFileError: there is nothing to undo, or it cannot be done.
    """
    kept = original(file)
    content = kept.content()
    if content is None:
        raise ClientFileError(file.path, "the portal was not put in here, or was taken out already")
    data, before = file.parsed(file.content() or b""), kept.parsed(content)
    for path, servers in containers(file, data):
        _take_out_portals(servers, _at(before, path))
    for path, servers in containers(file, before):
        now = _at(data, path)
        for name, entry in servers.items():
            now.setdefault(name, entry)
    if _plain(data) == _plain(before):
        file.put(content or None)
        kept.put(None)
        return "is as it was before"
    file.write(data)
    aside = kept.path.with_name(f"{kept.path.name}.{datetime.now(UTC):%Y%m%dT%H%M%S}")
    kept.path.replace(aside)
    return f"has its servers back; what else changed meanwhile stays, and what it was before is in {aside}"


def _at(data: Data, path: Sequence[str]) -> Data:
    for key in path:
        data = data.setdefault(key, {})
    return data


def _take_out_portals(servers: Data, besides: Collection[str] = ()) -> None:
    for name, entry in [*servers.items()]:
        words = [entry.get("command"), *(entry.get("args") or ())] if isinstance(entry, dict) else [None]
        if name not in besides and isinstance(words[0], str) and is_portal(words[0], [*map(str, words[1:])]):
            del servers[name]


def _entry(file: ClientFile, manifest: Path) -> dict[str, Json]:
    """How the client starts this very portal, whatever PATH it has."""
    told, beside = Path(sys.argv[0]), Path(sys.executable).with_name(_PROGRAM)
    program = next((path for path in (told, beside) if path.name == _PROGRAM and path.exists()), None)
    command = [sys.executable, "-m", "portal"] if program is None else [str(program.absolute())]
    entry: dict[str, Json] = {"type": "stdio"} if file.client in (VSCODE, CLAUDE_CODE) else {}
    return entry | {"command": command[0], "args": [*command[1:], "serve", "--config", str(manifest)]}


def _plain(data: Data) -> Any:
    """As JSON has it; without objects for servers that have none."""
    plain = data.unwrap() if isinstance(data, TOMLDocument) else data
    return {key: value for key, value in plain.items() if value != {}}
