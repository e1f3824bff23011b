"""Replaces servers in a client's file by the portal, and undoes that.

The library of its format rewrites the file. A byte-for-byte copy of the original stays next to it.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from tomlkit import TOMLDocument

from manifests.json_value import Json
from portal.cli.importing.clients import CLAUDE_CODE, VSCODE, ClientFile, ClientFileError, Data
from portal.cli.importing.servers import Origin, containers, is_excluded, is_portal

_PROGRAM: Final = "mcp-code-portal"
_NAMES: Final = ("portal", *(f"portal-{number}" for number in range(2, 100)))


def original(file: ClientFile) -> ClientFile:
    """The copy of the file from before the portal was put in. It is empty if there was no file."""
    return replace(file, path=file.path.with_name(f"{file.path.name}.before-portal"))


def install(file: ClientFile, origins: Sequence[Origin], manifest: Path, *, is_dry: bool) -> None:
    """Replace these servers by the portal.

    Raises ClientFileError: the file already has the portal, or a file cannot be read or written.
    """
    if file.client.is_read_only:
        raise ClientFileError(file.path, f"is only read. Add the portal by hand: {_command(manifest)}")
    before = original(file)
    if before.content() is not None:
        raise ClientFileError(file.path, f"already has the portal; import --undo {file.name} removes it")
    content = file.content()
    data = file.parsed(content or b"")
    for origin in origins:
        _at(data, origin.container).pop(origin.name, None)
    for _, servers in containers(file, data):
        _remove_portals(servers)
    servers = _at(data, (file.client.key,))
    name = next(each for each in _NAMES if each not in servers)
    if is_excluded(file, data, name):
        raise ClientFileError(file.path, f"its `mcp.allowed` or `mcp.excluded` leaves out {name!r}")
    servers[name] = _entry(file, manifest)
    dumped = _dumped(file, data, f"add the portal by hand: {_command(manifest)}")
    if not is_dry:
        before.put(content or b"")
        try:
            file.put(dumped)
        except ClientFileError:
            before.put(None)
            raise


def undo(file: ClientFile) -> str:
    """Remove the portal and restore the servers. Returns a description of the result.

    Raises ClientFileError: there is nothing to undo, or a file cannot be read or written.
    """
    kept = original(file)
    content = kept.content()
    if content is None:
        raise ClientFileError(
            file.path, "nothing to undo: import did not put the portal here, or it was undone"
        )
    data, before = file.parsed(file.content() or b""), kept.parsed(content)
    for _, servers in containers(file, data):
        _remove_portals(servers)
    for path, servers in containers(file, before):
        now = _at(data, path)
        for name, entry in servers.items():
            now.setdefault(name, entry)
    if _plain(data) == _plain(before):
        file.put(content or None)
        kept.put(None)
        return "is restored"
    file.put(_dumped(file, data, f"copy what you need from {kept.path}"))
    aside = kept.path.with_name(f"{kept.path.name}.{datetime.now(UTC):%Y%m%dT%H%M%S}")
    kept.path.replace(aside)
    return f"has its servers back. Other changes since then stay; the original is in {aside}"


def _at(data: Data, path: Sequence[str]) -> Data:
    for key in path:
        if data.get(key) in (None, []):
            data[key] = {}
        data = data[key]
    return data


def _dumped(file: ClientFile, data: Data, instead: str) -> bytes:
    """Raises ClientFileError: the library of its format would move other settings (tomlkit, dotted keys)."""
    content = file.dumped(data)
    before, after = (_as_text(each) for each in (data, file.parsed(content)))
    if before != after:
        message = "cannot be rewritten without moving other settings: write its servers as tables, [mcp_servers.NAME]"
        raise ClientFileError(file.path, f"{message}, or {instead}")
    return content


def _command(manifest: Path) -> str:
    return f"mcp-code-portal serve --config {manifest}"


def _remove_portals(servers: Data) -> None:
    for name, entry in [*servers.items()]:
        words = [entry.get("command"), *(entry.get("args") or ())] if isinstance(entry, dict) else [None]
        if isinstance(words[0], str) and is_portal(words[0], [*map(str, words[1:])]):
            del servers[name]


def _entry(file: ClientFile, manifest: Path) -> dict[str, Json]:
    """The entry with which the client starts this installation of the portal, whatever its PATH."""
    running, beside = Path(sys.argv[0]), Path(sys.executable).with_name(_PROGRAM)
    program = next((path for path in (running, beside) if path.name == _PROGRAM and path.exists()), None)
    command = [sys.executable, "-m", "portal"] if program is None else [str(program.absolute())]
    entry: dict[str, Json] = {"type": "stdio"} if file.client in (VSCODE, CLAUDE_CODE) else {}
    return entry | {"command": command[0], "args": [*command[1:], "serve", "--config", str(manifest)]}


def _as_text(data: Data) -> str:
    return json.dumps(_plain(data), sort_keys=True, default=str)  # NaN is not equal to itself


def _plain(data: Data) -> Any:
    """The data as plain JSON, without empty values."""
    plain = data.unwrap() if isinstance(data, TOMLDocument) else data
    return {key: value for key, value in plain.items() if value not in ({}, [], None)}
