"""SQLite in memory. A database in the workspace is written as a whole at each commit."""

import base64
import contextlib
import errno
import functools
import sqlite3
import urllib.parse
from typing import Any

from sandbox_runtime.guest.files.workspace import Workspace

_WRITE_AHEAD = slice(18, 20)  # bytes of the header: 1 rollback journal, 2 write-ahead log


_IN_MEMORY = ":memory:"
_TEMPORARY = ("", b"")
"""Names of a database that is a temporary file."""


class Connection(sqlite3.Connection):
    """A connection that uses memory instead of temporary files, which an instance cannot have.

    Sorters, indices and temporary tables count as the script's memory.
    """

    __module__ = "sqlite3"

    def __init__(self, database: Any, *arguments: Any, **named: Any) -> None:
        super().__init__(_IN_MEMORY if database in _TEMPORARY else database, *arguments, **named)
        # Not a method of the connection: a script's subclass may override it, and is not initialised yet.
        sqlite3.Cursor(self).execute("PRAGMA temp_store = MEMORY").close()


def install_in_memory() -> None:
    """Make this the default class of connections."""
    original = sqlite3.connect

    @functools.wraps(original)
    def connect(database: Any, *arguments: Any, **named: Any) -> Any:
        named.setdefault("factory", Connection)
        return original(database, *arguments, **named)

    for module in (sqlite3, sqlite3.dbapi2):
        vars(module).update(Connection=Connection, connect=connect)


def install(workspace: Workspace) -> None:
    """Let `sqlite3.connect` open databases in the workspace; others are unchanged."""
    original = sqlite3.connect

    def connect(database: Any, *arguments: Any, **named: Any) -> Any:
        path, mode = _path_and_mode(database, is_uri=bool(named.get("uri")))
        place = None if path in (_IN_MEMORY, *_TEMPORARY) or mode == "memory" else workspace.locate(path)
        if place is None:
            return original(database, *arguments, **named)
        factory: Any = named.get("factory", Connection)
        connection = type(factory.__name__, (Stored, factory), {})(_IN_MEMORY, *arguments, **named)
        connection.load(workspace, path, place, mode)
        workspace.add(connection)
        return connection

    sqlite3.connect = sqlite3.dbapi2.connect = connect


def _path_and_mode(database: Any, *, is_uri: bool) -> tuple[Any, str]:
    """The path to open, and the mode: ro, rw, rwc or memory."""
    if not (is_uri and isinstance(database, str) and database.startswith("file:")):
        return database, "rwc"
    parts = urllib.parse.urlsplit(database)
    modes = urllib.parse.parse_qs(parts.query).get("mode", ["rwc"])
    return urllib.parse.unquote(parts.path), modes[-1]


class Stored(Connection):
    """A connection whose database is a file in the workspace.

    If another program has changed the file since it was read, nothing is written and the commit fails.
    """

    _workspace: Workspace | None = None

    def load(self, workspace: Workspace, shown: Any, place: str, mode: str) -> None:
        """Read the file, or create a new database if `mode` (ro, rw, rwc) allows it.

        Raises:
            sqlite3.OperationalError: It cannot be read, or another program is writing to it.
        """
        self.name = shown
        self.place: str | None = place
        """None once the file was removed; later commits are lost."""
        self._version = ""
        self._image = b""
        with _as_database_error(f"unable to open database file {str(shown)!r}"):
            _check_journals(workspace, shown, place)
            with contextlib.suppress(FileNotFoundError):
                text, facts = workspace.ask("read", shown, place)
                self._image, self._version = base64.b64decode(text), facts[3]
        is_writable = workspace.is_writable and mode != "ro"
        if not self._version and not (is_writable and mode == "rwc"):
            raise sqlite3.OperationalError(f"unable to open database file {str(shown)!r}")
        if self._image:
            image = bytearray(self._image)
            image[_WRITE_AHEAD] = b"\x01\x01"  # a write-ahead log is not supported here
            self.deserialize(bytes(image))
            self._image = self.serialize()
        if not is_writable:
            self.execute("PRAGMA query_only = ON")
        self._workspace = workspace

    @property
    def closed(self) -> bool:
        return self._workspace is None

    def commit(self) -> None:
        super().commit()
        self.flush(is_committed=True)

    def flush(self, *, is_committed: bool = False) -> None:
        """Write the database to its file, unless it is unchanged or in a transaction.

        Raises:
            sqlite3.OperationalError: The host refuses it.
        """
        workspace = self._workspace
        # After a commit with `autocommit=False` the next transaction is open, but empty.
        is_committed = is_committed and getattr(self, "autocommit", None) is False
        if workspace is None or not workspace.is_writable or (self.in_transaction and not is_committed):
            return
        image = self.serialize()
        if image == self._image:
            return
        if self.place is None:
            self._image = image  # report it once
            raise sqlite3.OperationalError(
                f"attempt to write a readonly database: the file of {str(self.name)!r} was removed or replaced"
            )
        text = base64.b64encode(image).decode()
        with _as_database_error(f"the database {str(self.name)!r} was not saved"):
            facts = workspace.give("write", self.name, self.place, base64=text, expected=self._version)
        self._image, self._version = image, facts[3]

    def close(self) -> None:
        if self._workspace is not None:
            with contextlib.suppress(sqlite3.ProgrammingError):
                if self.in_transaction:
                    # Not `rollback()`: with `autocommit` it does nothing, or begins a new transaction.
                    sqlite3.Connection.execute(self, "ROLLBACK")
                self.flush()
            self._workspace = None
        super().close()

    def __exit__(self, *error: Any) -> Any:
        result = super().__exit__(*error)
        self.flush(is_committed=True)
        return result

    def __del__(self) -> None:
        self.close()


def _check_journals(workspace: Workspace, shown: Any, place: str) -> None:
    """Refuse a database with a journal or log, whose content would be missing."""
    for ending in ("-journal", "-wal"):
        try:
            facts = workspace.facts(shown, place + ending)
        except FileNotFoundError:
            continue
        if facts[1]:
            raise OSError(errno.EBUSY, f"another program is writing to it, or has left {ending} behind")


@contextlib.contextmanager
def _as_database_error(what: str) -> Any:
    try:
        yield
    except OSError as error:
        raise sqlite3.OperationalError(f"{what}: {error.strerror}") from None
