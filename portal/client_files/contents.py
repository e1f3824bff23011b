"""What the files of clients name as servers."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from portal.client_files.entries import Entry, read_entry
from portal.client_files.errors import ClientFileError
from portal.client_files.json_text import JsonTextError, Members, Node, line_of, plain, read_json, texts
from portal.client_files.places import CLAUDE_CODE, GEMINI, LOOKED_INTO, Place
from portal.client_files.quotation import quoted
from portal.client_files.raw_file import RawFile, read_raw
from portal.client_files.refusals import refused_names
from portal.client_files.servers import LeftOut, Origin, Server
from portal.client_files.toml_text import TomlTextError, read_toml, tables

MAX_SERVERS: Final = 1000
MAX_TEXT: Final = 1024 * 1024

_GEMINI_RULES: Final = ((("mcp", "excluded"), "allowed"), (("excludeMCPServers",), "allowMCPServers"))
"""Where it turns servers off, and beside it the only ones that it starts; older versions have the second pair."""


@dataclass(frozen=True)
class Contents:
    """What one file says. Without `is_there` there is no such file; with a `problem` nothing of it could be read, and
    there is no `file`.
    """

    place: Place
    is_there: bool = True
    servers: Sequence[Server] = ()
    left_out: Sequence[LeftOut] = ()
    problem: ClientFileError | None = None
    file: RawFile | None = None


def read_contents(place: Place, home: Path, here: Path, environ: Mapping[str, str]) -> Contents:
    """Never raises for what a file holds: that is its `problem`, and others are read all the same."""
    try:
        file = read_raw(place.path)
        if file.content is None:
            return Contents(place, is_there=False, file=file)
        text, refused = file.text(), refused_names(place)
        reading = _TomlReading(place, text) if place.client.is_toml else _JsonReading(place, text, refused)
        entries = list(reading.entries())
        if len(entries) > MAX_SERVERS:
            raise ClientFileError(place.path, f"names more than {MAX_SERVERS} servers")
        if sum(len(str(each.data)) for each in entries if isinstance(each, Entry)) > MAX_TEXT:
            raise ClientFileError(place.path, f"says more than {MAX_TEXT} characters of its servers")
    except ClientFileError as error:
        return Contents(place, problem=error)
    read = [each if isinstance(each, LeftOut) else read_entry(each, home, here, environ) for each in entries]
    return Contents(
        place,
        servers=[each for each in read if isinstance(each, Server)],
        left_out=[each for each in read if isinstance(each, LeftOut)],
        file=file,
    )


def turned_off(place: Place, text: str, name: str) -> str:
    """Why a client does not start a server of that name, put into its file; "" if it does.

    Raises:
        ClientFileError: The text is not JSON.
    """
    if place.client.is_toml:
        return ""
    refused = refused_names(place)
    return _JsonReading(place, text, refused).off(name, refused)


class _JsonReading:
    def __init__(self, place: Place, text: str, refused: Collection[str]) -> None:
        self._place = place
        self._text = text
        self._refused = refused
        try:
            self._root = read_json(text, LOOKED_INTO)
        except JsonTextError as error:
            raise ClientFileError(place.path, f"not JSON: {error}", error.line) from None
        if self._root is not None and not isinstance(self._root, Members):
            raise ClientFileError(place.path, "is no JSON object", 1)

    def entries(self) -> Iterator[Entry | LeftOut]:
        key = self._place.client.key
        yield from self._servers((), self._place.project, self._refused)
        projects = self._at(self._root, "projects") if self._place.client == CLAUDE_CODE else None
        for member in projects.members if isinstance(projects, Members) else ():
            if isinstance(member.node, Members) and member.node.find(key) is not None:
                off = texts(member.node.find("disabledMcpServers"))
                folder = Path(member.key)
                yield from self._servers(
                    ("projects", member.key), folder if folder.is_absolute() else None, off
                )

    def _servers(
        self, path: tuple[str, ...], folder: Path | None, off: Collection[str]
    ) -> Iterator[Entry | LeftOut]:
        node: Node | None = self._root
        for key in (*path, self._place.client.key):
            node = self._at(node, key)
        if node is None:
            return
        if not isinstance(node, Members):
            raise self._error(f"{self._place.client.key} is no object", node)
        if node.repeated is not None:
            raise self._error(f"the server {quoted(node.repeated)} is there twice", node)
        container = (*path, self._place.client.key)
        for member in node.members:
            origin = Origin(self._place, member.key, line_of(self._text, member.start), container)
            try:
                data = plain(member.node)
                key = plain_key(member.key)
            except ValueError as error:
                yield LeftOut(origin, str(error))
                continue
            yield Entry(origin, data, folder, self.off(key, off))

    def off(self, name: str, off: Collection[str]) -> str:
        """Why the client does not start a server of that name; "" if it does."""
        if name in off:
            return "it is turned off in the client"
        for (*path, excluded), allowed in _GEMINI_RULES if self._place.client == GEMINI else ():
            rules = self._root
            for key in path:
                rules = self._at(rules, key)
            if name in texts(self._at(rules, excluded)):
                return f"it is turned off in the client ({'.'.join([*path, excluded])})"
            only = self._at(rules, allowed)
            if only and name not in texts(only):
                return f"it is turned off in the client ({'.'.join([*path, allowed])} does not have it)"
        return ""

    def _at(self, node: Node | None, key: str) -> Node | None:
        found = node.find(key) if isinstance(node, Members) else None
        return None if found is not None and getattr(found, "value", "") is None else found

    def _error(self, message: str, node: Node) -> ClientFileError:
        return ClientFileError(self._place.path, message, line_of(self._text, node.start))


class _TomlReading:
    def __init__(self, place: Place, text: str) -> None:
        self._place = place
        try:
            self._data = read_toml(text)
        except TomlTextError as error:
            raise ClientFileError(place.path, str(error), error.line) from None
        self._lines = {table.keys: table.first + 1 for table in tables(text)}

    def entries(self) -> Iterator[Entry | LeftOut]:
        key = self._place.client.key
        servers = self._data.get(key, {})
        if not isinstance(servers, dict):
            raise ClientFileError(self._place.path, f"{key} is no table")
        for name, data in servers.items():
            origin = Origin(self._place, name, self._lines.get((key, name)), (key,))
            yield Entry(origin, data, self._place.project)


def plain_key(key: str) -> str:
    """
    Raises:
        ValueError: It is not Unicode.
    """
    try:
        key.encode()
    except UnicodeEncodeError:
        raise ValueError("its name holds half a character (a lone surrogate)") from None
    return key
